/** Scalar programs are registered once, and given up when there are many. */
import * as mx from "@lazuli/core"
import { expect, test } from "vitest"
import "./index"
import { native } from "./native"

const scaled = mx.definePrimitive({
  name: "@lazuli/test/scaled",
  params: { factor: "f64" },
  infer: ([x]) => x,
  scalar: (s, [x], { factor }) => s.multiply(x, s.constant(factor, s.dtypeOf(x))),
})

test("thousands of programs leave few behind, and all still compute", async () => {
  const x = mx.array([1, 2])
  mx.eval(x)
  const ys: mx.Array[] = []
  for (let i = 0; i < 3000; i++) {
    const y = scaled([x], { factor: i })
    if (i % 3 === 0) mx.asyncEval(y)
    else mx.eval(y)
    ys.push(y)
  }
  await mx.asyncEval(ys)
  expect(ys.map((y) => y.index(1).item())).toEqual(ys.map((_, i) => 2 * i))
  // An id is the lowest number that is free.
  const words = new BigInt64Array([1n, 1n, 1n, 11n, 0n, 11n, 0n, -1n, -1n, 0n, 1n])
  const id = native.registerProgram(words)
  expect(id).toBeLessThan(1600)
  native.releaseProgram(id)
  // Those that were forgotten are registered again.
  for (const factor of [1, 2999, 5])
    expect(scaled([x], { factor }).add(1).tolist()).toEqual([factor + 1, 2 * factor + 1])
})
