/** Graphs of very many nodes: built, evaluated and dropped without recursion, also under transforms, compiled and handed over. */
import { mx } from "lazuli"
import { expect, test } from "vitest"

const SLOW = 120_000
const start = mx.array([1, 2, 3])
const chain = (x: mx.Array, length: number): mx.Array => {
  let y = x
  for (let i = 0; i < length; i++) y = y.add(1)
  return y
}

test("a chain of 100,000 operations, evaluated and handed over", { timeout: SLOW }, async () => {
  expect(chain(start, 100_000).tolist()).toEqual([100_001, 100_002, 100_003])
  const x = chain(start, 100_000)
  await mx.asyncEval(x)
  expect(x.tolist()).toEqual([100_001, 100_002, 100_003])
})

test("one that nobody evaluates is dropped, and leaves nothing", { timeout: SLOW }, () => {
  const { buffers } = mx.memoryReport()
  for (let i = 0; i < 2; i++) chain(start, 50_000)
  expect(mx.memoryReport().buffers - buffers).toBeLessThan(40)
})

test("100,000 operations that are all held", { timeout: SLOW }, () => {
  const held = Array.from({ length: 100_000 }, (_, i) => start.add(i))
  mx.eval(held)
  expect(held[99_999].tolist()).toEqual([100_000, 100_001, 100_002])
})

test("the gradient through 50,000 operations", { timeout: SLOW }, () => {
  const [[y], [gradient]] = mx.vjp((x: mx.Array) => chain(x, 50_000), [start], [mx.array([1, 2, 3])])
  expect(y.tolist()).toEqual([50_001, 50_002, 50_003])
  expect(gradient.tolist()).toEqual([1, 2, 3])
})

test("20,000 operations, compiled", { timeout: SLOW }, () => {
  const f = mx.compile((x: mx.Array) => chain(x, 20_000))
  expect(f(start).tolist()).toEqual([20_001, 20_002, 20_003])
  expect(f(f(start)).tolist()).toEqual([40_001, 40_002, 40_003])
})
