/** Tiny results evaluated one by one: they are parts of one storage, and their work may wait until somebody reads it. */
import { compile } from "@lazuli/compile"
import { integers } from "@lazuli/conformance/generator"
import * as mx from "@lazuli/core"
import { expect, test } from "vitest"
import "./index"

/** More than get storages of their own. */
const MANY = 70

/** An array of three elements that shares its storage with others. */
function part(value: number): mx.Array {
  const zero = mx.array([0, 0, 0])
  mx.eval(zero)
  let x = zero
  for (let i = 0; i < MANY; i++) {
    x = zero.add(value)
    mx.eval(x)
  }
  return x
}

test("many results that are evaluated one by one share few storages", () => {
  const zero = part(0)
  const results = Array.from({ length: 128 }, (_, i) => {
    const x = zero.add(i)
    mx.eval(x)
    return x
  })
  expect(new Set(results.map(({ node }) => node.storage)).size).toBeLessThan(8)
  expect(results.map((x) => x.tolist())).toEqual(results.map((_, i) => [i, i, i]))
})

test("results keep their values in random loops, in which some are disposed of, shown or changed", () => {
  const below = integers(7)
  const living: { x: mx.Array; value: number[] }[] = [{ x: part(1), value: [1, 1, 1] }]
  for (let i = 0; i < 3000; i++) {
    const at = below(living.length)
    const { x, value } = living[at]
    const n = below(9)
    const [y, next] = [
      [x.add(n), value.map((v) => (v + n) % 1000)],
      [mx.subtract(n, x), value.map((v) => n - v)],
      [x.index("::-1").add(0), value.toReversed()],
      [mx.maximum(x, n), value.map((v) => Math.max(v, n))],
    ][below(4)] as [mx.Array, number[]]
    const z = mx.remainder(y, 1000)
    const bounded = next.map((v) => ((v % 1000) + 1000) % 1000)
    mx.eval(y)
    mx.eval(z)
    const action = below(12)
    if (action === 0) x.dispose()
    if (action === 0) living.splice(at, 1)
    if (action === 1) z.set([1], 5)
    if (action === 1) bounded[1] = 5
    if (action === 2) expect([...z.toTypedArray({ copy: false })]).toEqual(bounded)
    if (action === 3) expect(z.reshape([3, 1]).tolist()).toEqual(bounded.map((v) => [v]))
    living.push({ x: z, value: bounded })
    if (living.length > 50) living.splice(below(50), 1)
  }
  for (const { x, value } of living) expect(x.tolist()).toEqual(value)
})

test("work that waits reads what was there when it was evaluated", () => {
  const x = part(2)
  const y = x.add(1)
  mx.eval(y)
  // Nobody should write to it, and whoever does must not change what was evaluated before.
  ;(x.toTypedArray({ copy: false }) as Float32Array).fill(9)
  expect(y.tolist()).toEqual([3, 3, 3])
})

test("a donated part is not written over, and neither are those beside it", () => {
  const beside = part(5)
  const state = { w: beside.add(1) }
  mx.eval(state.w)
  const after = beside.add(2)
  mx.eval(after)
  const step = compile((g: mx.Array) => (state.w = state.w.add(g)), {
    inputs: state,
    outputs: state,
    donate: true,
  })
  for (let i = 0; i < 3; i++) mx.eval(step(mx.ones([3])), state)
  expect(state.w.tolist()).toEqual([9, 9, 9])
  expect(beside.tolist()).toEqual([5, 5, 5])
  expect(after.tolist()).toEqual([7, 7, 7])
})

test("memory that others see is not written to any more", async () => {
  const x = part(1)
  mx.eval(x)
  const note = mx.share({ x })
  const y = x.add(1)
  mx.eval(y)
  expect(y.node.storage).not.toBe(x.node.storage)
  expect(mx.receive(note).x.tolist()).toEqual([1, 1, 1])
})

test("where memory is short, an evaluation fails and the next one works", () => {
  const x = part(1)
  const before = mx.setMemoryLimit(0)
  try {
    expect(() => {
      for (let i = 0; i < MANY; i++) mx.eval(x.add(i))
    }).toThrow(/out of memory/)
  } finally {
    mx.setMemoryLimit(before)
  }
  const y = x.add(7)
  mx.eval(y)
  expect(y.tolist()).toEqual([8, 8, 8])
  expect(x.tolist()).toEqual([1, 1, 1])
})
