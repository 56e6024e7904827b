/** Ways besides `shape` in which a function compiled for any sizes sees some: errors, values, empty arrays and other compiled functions. */
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as mx from "@lazuli/core"
import { grad, jvp, vmap } from "@lazuli/transforms"
import { describe, expect, test } from "vitest"
import { compile } from "./compile"
import { exportFunction } from "./export"

type Unary = (x: mx.Array) => mx.Array

const numbers = (shape: number[]): mx.Array =>
  mx
    .arange(shape.reduce((a, b) => a * b, 1))
    .add(1)
    .multiply(0.37)
    .reshape(shape)

test("sizes are seen whatever the program around does with call stacks", () => {
  const { stackTraceLimit, prepareStackTrace } = Error
  const f = (x: mx.Array): mx.Array => mx.arange(x.shape[0]).sum()
  try {
    for (const change of [
      { stackTraceLimit: 0 },
      { prepareStackTrace: (_: Error, sites: unknown) => sites },
    ]) {
      Object.assign(Error, change)
      const compiled = compile((x: mx.Array) => f(x), { shapeless: true })
      expect([3, 5].map((n) => compiled(mx.ones([n])).item())).toEqual([3, 10])
    }
  } finally {
    Object.assign(Error, { stackTraceLimit, prepareStackTrace })
  }
})

test("an error that the function catches is one of these sizes", () => {
  const f = (x: mx.Array): mx.Array => {
    try {
      return x.add(mx.ones([2]))
    } catch {
      return x.add(100)
    }
  }
  for (const sizes of [
    [3, 2],
    [2, 3],
  ]) {
    const compiled = compile((x: mx.Array) => f(x), { shapeless: true })
    for (const n of sizes) expect(compiled(numbers([n])).tolist()).toEqual(f(numbers([n])).tolist())
  }
})

test("what is empty, whose derivatives and batches depend on nothing, stands for nothing else", () => {
  const functions: Unary[] = [
    (x) =>
      grad((v: mx.Array) =>
        vmap((row: mx.Array) => row.sum())(v)
          .square()
          .sum(),
      )(x),
    (x) => grad((v: mx.Array) => mx.diagonal(v).sum())(x),
    (x) => jvp((v: mx.Array) => mx.diagonal(v), [x], [mx.onesLike(x)])[1][0],
    (x) => vmap((row: mx.Array) => row.square(), 1)(x),
    (x) => vmap((v: mx.Array) => mx.diagonal(v))(mx.stack([x, x])),
    (x) => mx.concatenate([mx.zeros([0]), ...x.unstack()]),
  ]
  const shapes = [
    [0, 3],
    [2, 3],
    [3, 0],
    [1, 1],
  ]
  for (const f of functions)
    for (const first of shapes)
      for (const next of shapes) {
        const compiled = compile((x: mx.Array) => f(x), { shapeless: true })
        for (const shape of [first, next]) {
          const [got, want] = [compiled(numbers(shape)), f(numbers(shape))]
          expect([first, shape, got.shape, got.tolist()]).toEqual([first, shape, want.shape, want.tolist()])
        }
      }
})

test("values that depend on sizes alone are those of each call, also in other compiled functions", () => {
  const inner = compile((v: mx.Array) => v.add(1))
  const functions: Unary[] = [
    (x) => inner(mx.zerosLike(x)),
    (x) => x.add(inner(mx.onesLike(x)).sum()),
    (x) => x.add(mx.onesLike(x).sum().item() as number),
    (x) => x.add(mx.onesLike(x).toTypedArray().length),
    (x) => (mx.onesLike(x).sum().greater(7).item() ? x.add(1) : x),
  ]
  for (const f of functions) {
    const compiled = compile((x: mx.Array) => f(x), { shapeless: true })
    for (const shape of [
      [2, 3],
      [4, 4],
      [1, 2],
    ])
      expect([shape, compiled(numbers(shape)).tolist()]).toEqual([shape, f(numbers(shape)).tolist()])
  }
  // Values from elsewhere, and of what is made of them and of numbers, are the same for all sizes.
  const two = mx.array(2)
  const twos: (() => unknown)[] = [
    () => two.item(),
    () => two.add(1).subtract(1).item(),
    () => (mx.arange(3, { dtype: mx.float32 }).tolist() as number[])[2],
  ]
  for (const read of twos) {
    const scaled = compile((x: mx.Array) => inner(x).multiply(read() as number), { shapeless: true })
    for (const n of [1, 2, 3])
      expect(
        scaled(mx.ones([n]))
          .sum()
          .item(),
      ).toBe(4 * n)
    expect(scaled.stats().traces).toBe(1)
  }
})

test("the number of arrays that a call gives may be none for some sizes", () => {
  const compiled = compile((x: mx.Array) => x.unstack(), { shapeless: true })
  expect(
    [
      [0, 3],
      [3, 0],
      [2, 3],
    ].map((shape) => compiled(numbers(shape)).length),
  ).toEqual([0, 3, 2])
})

describe("a file of any sizes refuses a function, and says why,", () => {
  const refusal = (f: (x: mx.Array) => mx.Array): string => {
    try {
      exportFunction(join(tmpdir(), "refused.lazuli"), f, [mx.ones([3])], { shapeless: true })
      return "accepted"
    } catch (error) {
      return (error as Error).message
    }
  }
  test("where it looks at sizes, also where stacks are frozen", () => {
    const { stackTraceLimit } = Error
    Object.defineProperty(Error, "stackTraceLimit", { value: 0, writable: false })
    const message = refusal((x) => mx.arange(x.shape[0]))
    Object.defineProperty(Error, "stackTraceLimit", { value: stackTraceLimit, writable: true })
    expect(message).toMatchInlineSnapshot(
      `"[exportFunction] the function looks at sizes, which may differ in other calls. Let operations infer sizes (-1 in reshape, flatten, unflatten), or export without shapeless"`,
    )
  })
  test("where it catches an error", () => {
    const careful = (x: mx.Array): mx.Array => {
      try {
        return x.reshape([7])
      } catch {
        return x
      }
    }
    expect(refusal(careful)).toMatchInlineSnapshot(
      `"[exportFunction] the function catches an error of reshape, which may not throw for other sizes. Decide without the error, or export without shapeless"`,
    )
  })
})
