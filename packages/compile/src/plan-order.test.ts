/** The order of work: everything after what it reads, and what frees memory before what takes more. */
import * as mx from "@lazuli/core"
import type { Node } from "@lazuli/core/engine"
import { expect, test } from "vitest"
import { isLeaf, primitiveOf } from "./order"
import { planOrder } from "./plan-order"

const leaf = (shape: number[]): mx.Array => {
  const x = mx.zeros(shape).add(0)
  mx.eval(x)
  return x
}
const names = (order: readonly Node[]): string[] => order.map((node) => primitiveOf(node).name)

test("everything comes once, after what it reads", () => {
  const x = leaf([4, 4])
  const [a, b] = mx.split(x.exp(), 2)
  const y = a.matmul(b.T).sum(0).add(x.index(0, 0))
  const order = planOrder([y.node, a.node])
  const seen = new Set<Node>()
  for (const node of order) {
    for (const input of node.inputs)
      expect(isLeaf(input) || seen.has(input) || input.primitive?.facts.immediate).toBe(true)
    expect(seen.has(node)).toBe(false)
    seen.add(node)
  }
  expect(seen.has(y.node) && seen.has(a.node)).toBe(true)
})

test("what lets go of more than it takes runs as soon as it can", () => {
  const x = leaf([64, 64])
  const big = x.exp()
  const next = big.sin()
  // By need, the sums would come after everything that `end` needs.
  const end = next.cos().sum()
  const order = names(planOrder([end.node, big.sum(0).node, next.sum(0).node]))
  expect(order.indexOf("sum")).toBeLessThan(order.indexOf("cos"))
})

test("what takes an input's place waits for the input's other readers", () => {
  const [w, x] = [leaf([64, 64]), leaf([64, 64])]
  const slopes = x.exp()
  const next = w.sub(x.T.matmul(slopes))
  const back = slopes.matmul(w.T)
  const outputs = [back.sum(0).node, next.node]
  const order: readonly Node[] = planOrder(outputs, new Map([[next.node, w.node]]))
  expect(order.indexOf(next.node)).toBeGreaterThan(order.indexOf(back.node))
})
