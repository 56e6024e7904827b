/** Elementwise work that a reduction over all or the first axes reads as it is computed: when, and that the order of sums stays eager's. */
import { compile } from "@lazuli/compile"
import { arrays } from "@lazuli/conformance/generator"
import * as mx from "@lazuli/core"
import { expect, test } from "vitest"
import { bits } from "../test/bits"
import "./index"

type F = (...xs: mx.Array[]) => mx.Array | mx.Array[]

const random = arrays()

/** Compiled equals eager; counts the prologues. */
function prologues(f: F, ...xs: mx.Array[]): number {
  const compiled = compile(f)
  expect(bits(compiled(...xs))).toEqual(bits(f(...xs)))
  return compiled.explain(...xs).steps.filter(({ reason }) => /^piece by piece/.test(reason)).length
}

test("sums over all axes and over the first ones, of every layout of pieces", () => {
  for (const shape of [
    [600_001],
    [5000, 130],
    [4, 70_001],
    [64, 9000],
    [1000, 1000],
    [40, 50, 300],
    [300_000, 3],
  ]) {
    const x = random(shape)
    const row = random([shape[shape.length - 1]])
    const column = random([shape[0], ...shape.slice(1).map(() => 1)])
    expect(prologues((x) => x.multiply(2).exp().sum(), x)).toBe(1)
    const short = x.size / shape[0] <= 1024
    expect(prologues((x) => x.sin().square().add(1).sum(0), x)).toBe(short ? 1 : 0)
    expect(prologues((x, row) => x.subtract(row).abs().mean(), x, row)).toBeLessThanOrEqual(1)
    expect(
      prologues((x, row, column) => x.multiply(row).add(column).sum(0), x, row, column),
    ).toBeLessThanOrEqual(1)
    if (shape.length === 3) expect(prologues((x) => x.tanh().sum([0, 1]), x)).toBe(1)
  }
})

test("explanations say why not", () => {
  const [last] = compile((x: mx.Array) => x.exp().sum(0)).explain(random([200, 2000])).steps
  expect(last.reason).toMatch(/not in pieces for the reduction after it: rows are long/)
})

test("every reduction and element type", () => {
  const dtypes = [mx.float32, mx.float16, mx.bfloat16, mx.float64, mx.complex64, mx.int32, mx.uint8, mx.int64]
  for (const dtype of dtypes) {
    const x = random([1200, 900]).multiply(3).astype(dtype)
    for (const axes of [undefined, 0] as const) {
      expect(prologues((x) => x.multiply(x).add(1).sum(axes), x)).toBe(1)
      prologues((x) => x.negative().abs().prod(axes), x)
      prologues((x) => x.equal(x.multiply(1)).all(axes), x)
      prologues((x) => x.multiply(2).equal(0).any(axes), x)
      if (dtype === mx.complex64) continue
      prologues((x) => x.multiply(2).add(1).max(axes), x)
      prologues((x) => x.multiply(2).add(1).min(axes), x)
    }
  }
  const holes = mx.where(random([1200, 900]).greater(4), Number.NaN, random([1200, 900]))
  expect(prologues((x) => x.multiply(2).max(0), holes)).toBe(1)
  expect(prologues((x) => x.multiply(2).max(), holes)).toBe(1)
})

test("again and again, until it is machine code, and in threads' pieces", () => {
  const [x, y] = [random([2000, 700]), random([700])]
  for (const f of [
    (x, y) => x.subtract(y).square().add(x).sum(),
    (x, y) => mx.erf(x.subtract(y)).multiply(x).sum(0),
    (x) => mx.erf(x).multiply(x).sum(0),
  ] as F[]) {
    const compiled = compile(f)
    const answer = bits(f(x, y))
    for (let i = 0; i < 12; i++) expect(bits(compiled(x, y))).toEqual(answer)
  }
})

test("what others read is computed first, and what the work reads lasts", () => {
  const x = random([1000, 700])
  expect(
    prologues((x) => {
      const y = x.exp()
      return [y.sum(), y]
    }, x),
  ).toBe(0)
  expect(prologues((x) => x.exp().T.sum(0), x)).toBe(0)
  expect(prologues((x) => x.exp().sum(1), x)).toBe(0)
  expect(prologues((x) => x.index("0:100").exp().sum(), x)).toBe(0)
  // The sums may not overwrite what their work still reads.
  const f: F = (x) => {
    let y = x
    for (let i = 0; i < 4; i++) {
      const z = y.sort(0)
      y = x.multiply(z.subtract(1).square().sum(0)).tanh()
    }
    return y
  }
  expect(prologues(f, x)).toBe(4)
  expect(prologues((x) => x.index("::-1").exp().sum(0), x)).toBe(1)
  expect(prologues((x) => x.T.exp().sum(0), x)).toBe(1)
})
