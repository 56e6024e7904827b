/** The order of work: everything after what it reads, and what frees memory before what takes more. */
import * as mx from "@lazuli/core"
import type { Node } from "@lazuli/core/engine"
import { definePrimitive } from "@lazuli/core/plugin"
import fc from "fast-check"
import { describe, expect, test } from "vitest"
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

describe("exchanges with other processes", () => {
  const exchange = definePrimitive({
    name: "@me/plan-order/exchange",
    api: 1,
    facts: { exchanges: true },
    infer: ([x]) => x,
    decompose: ([x]) => x.negative(),
  })
  const isExchange = (node: Node): boolean => primitiveOf(node) === exchange.primitive
  /** Layers whose gradients are exchanged, and updates that follow; the order of the exchanges by their number of columns. */
  function step(batch: number): { order: readonly Node[]; exchanges: number[]; updates: Node[] } {
    const widths = [8, 16, 24, 32]
    const weights = widths.slice(1).map((width, i) => leaf([widths[i], width]))
    const activations = [leaf([batch, widths[0]])]
    for (const weight of weights)
      activations.push(mx.tanh(activations[activations.length - 1].matmul(weight)))
    let slopes = activations[activations.length - 1].square()
    const updates: mx.Array[] = []
    for (let i = weights.length - 1; i >= 0; i--) {
      const exchanged = exchange([activations[i].T.matmul(slopes)])
      updates.unshift(weights[i].sub(exchanged.multiply(0.1)))
      if (i > 0) slopes = slopes.matmul(weights[i].T).multiply(activations[i])
    }
    const outputs = updates.map(({ node }) => node)
    const order: readonly Node[] = planOrder(
      outputs,
      new Map(outputs.map((node, i) => [node, weights[i].node])),
      isExchange,
    )
    return { order, exchanges: order.filter(isExchange).map(({ shape }) => shape[1]), updates: outputs }
  }
  test("come as soon as their arrays are there, in an order that does not depend on the sizes of other work", () => {
    for (const batch of [1, 7, 64, 4096]) expect(step(batch).exchanges, `${batch}`).toEqual([32, 24, 16])
  })
  test("come as a program makes them, whatever is there first, and however little they take", () => {
    const chosen = fc.record({
      order: fc.shuffledSubarray([0, 1, 2, 3], { minLength: 4 }),
      rows: fc.nat(3),
      back: fc.boolean(),
    })
    fc.assert(
      fc.property(chosen, fc.boolean(), ({ order, rows, back }, isBeside) => {
        const x = leaf([[1, 2, 300, 4000][rows], 4])
        let local = x
        const made = order.map((columns) => {
          local = mx.tanh(local)
          return exchange([mx.concatenate([local.sum(0), mx.ones([columns])])])
        })
        const roots = (back ? made.toReversed() : made).map(({ node }) => node)
        const plan = planOrder(roots, new Map(), isBeside ? isExchange : undefined).filter(isExchange)
        expect(plan.map(({ shape }) => shape[0] - 4)).toEqual(order)
      }),
    )
  })
  test("that take memory come a layer ahead of their readers where they run beside other work, and those of gradients as soon as they can", () => {
    const gather = definePrimitive({
      name: "@me/plan-order/gather",
      api: 1,
      facts: { exchanges: true },
      infer: ([x]) => ({ ...x, shape: [2 * x.shape[0], ...x.shape.slice(1)] }),
      decompose: ([x]) => mx.concatenate([x, x]),
    })
    const layers = [0, 1, 2, 3].map(() => ({ bias: leaf([2, 16]), weight: leaf([8, 16]) }))
    let x = leaf([4, 16])
    const activations = layers.map(({ bias, weight }) => {
      const added = gather([bias])
      x = mx.tanh(x.matmul(gather([weight])).add(added))
      return x
    })
    const sums = activations.toReversed().map((each) => exchange([each.T.matmul(each)]))
    const roots = sums.reverse().map(({ node }) => node)
    const kindOf = (node: Node): string => primitiveOf(node).name.replace("@me/plan-order/", "")
    const kinds = (isBeside: boolean): string =>
      planOrder(roots, new Map(), (node) => isBeside && /gather|exchange/.test(kindOf(node)))
        .map(kindOf)
        .filter((kind) => /gather|matmul|exchange/.test(kind))
        .join(" ")
    const rest = "matmul exchange ".repeat(4).trim()
    const both = "gather gather "
    expect(kinds(true)).toBe(`${both}${`${both}matmul `.repeat(3)}matmul ${rest}`)
    // Products free gathered memory, and nothing runs beside gathers.
    expect(kinds(false)).toBe(`${`${both}matmul `.repeat(4)}${rest}`)
  })
  test("are read in their order when the work beside them is done", () => {
    const { order, updates } = step(64)
    const last = Math.max(...order.filter(isExchange).map((node) => order.indexOf(node)))
    for (const update of updates) expect(order.indexOf(update)).toBeGreaterThan(last)
    // While the first layer's gradients are exchanged, the last layer is updated.
    expect(order.filter((node) => updates.includes(node))).toEqual(updates.toReversed())
    const first = order.findIndex(isExchange)
    expect(names(order.slice(first, last)).filter((name) => name === "matmul").length).toBeGreaterThan(2)
  })
})
