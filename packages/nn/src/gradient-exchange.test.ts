import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import type { Exchange } from "@lazuli/core/engine"
import { definePrimitive } from "@lazuli/core/plugin"
import { expect, test } from "vitest"
import * as nn from "./index"

const ran: string[] = []
/** The array itself, which notes when it is computed. */
const notes = (name: string, exchanges: boolean) =>
  definePrimitive({
    name: `gradient-exchange-test/${name}`,
    api: 1,
    params: { what: "string" },
    facts: { exchanges },
    infer: ([x]) => x,
    reference: ([x], [out], { what }) => {
      ran.push(what)
      out.data.set(x.data)
    },
  })
const [noted, exchanged] = [notes("noted", false), notes("exchanged", true)]

/** Two members with the same arrays. */
class Twins extends mx.distributed.Group {
  private exchanges = 0
  override rank = (): number => 0
  override size = (): number => 2
  override exchange(x: mx.Array | null, { op }: Exchange): mx.Array {
    return exchanged([(x as mx.Array).multiply(2)], { what: `${op} ${this.exchanges++}` })
  }
}

/** Gradients of a chain of layers: each needs that of the layer behind it. */
function gradients(count = 2): mx.Array[] {
  const all: mx.Array[] = []
  let g = mx.arange(1, count + 1, { dtype: mx.float32 })
  for (let layer = 2; layer >= 0; layer--) {
    g = noted([g.add(layer)], { what: `gradient ${layer}` })
    all.unshift(g)
  }
  return all
}

test.each([0, 8, 16])("with %i bytes together exchanges begin as soon as gradients are there", (bytes) => {
  const communicationStream = mx.newStream(mx.cpu)
  const group = new Twins()
  const averages = nn.averageGradients(gradients(), { group, allReduceSize: bytes, communicationStream })
  ran.length = 0
  // As an optimizer uses them: the first layer's first.
  mx.eval(averages.map((x) => x.multiply(0.5)))
  const expected = ["gradient 2", "allSum 0", "gradient 1", "allSum 1", "gradient 0", "allSum 2"]
  // Two of them in the first layers' bucket.
  const together = ["gradient 2", "allSum 0", "gradient 1", "gradient 0", "allSum 1"]
  expect(ran).toEqual(bytes === 16 ? together : expected)
  expect(averages.map((x) => x.tolist())).toEqual([
    [4, 5],
    [4, 5],
    [3, 4],
  ])
})

test("in a compiled step exchanges begin as soon as gradients are there", () => {
  const communicationStream = mx.newStream(mx.cpu)
  const group = new Twins()
  const weights = [0, 1, 2].map(() => mx.zeros([1 << 15]))
  const step = compile(
    () => {
      const grads = gradients(1 << 15)
      const averages = nn.averageGradients(grads, { group, allReduceSize: 0, communicationStream })
      averages.forEach((average, i) => {
        weights[i] = noted([weights[i].subtract(average)], { what: `update ${i}` })
      })
    },
    { inputs: weights, outputs: weights },
  )
  for (let i = 0; i < 2; i++) {
    ran.length = 0
    step()
    mx.eval(weights)
    expect(ran.slice(0, 6)).toEqual(
      [2, 1, 0].flatMap((layer) => [`gradient ${layer}`, expect.stringMatching(/^allSum/)]),
    )
    expect(ran.slice(6).sort()).toEqual(["update 0", "update 1", "update 2"])
  }
  expect(weights.map((x) => x.index(0).item())).toEqual([-8, -8, -6])
})

test("averages of float16 hold what their sums would not, and keep their dtype", () => {
  const [x, y] = nn.averageGradients([mx.full([2], 40_000, mx.float16), mx.array([1, 2])], new Twins())
  expect([x.dtype, y.dtype]).toEqual([mx.float16, mx.float32])
  expect([x.tolist(), y.tolist()]).toEqual([
    [40_000, 40_000],
    [1, 2],
  ])
})

test("what differs in trees differs in the number that members compare", () => {
  const numbers: number[] = []
  class Noting extends Twins {
    override exchange(x: mx.Array | null, its: Exchange): mx.Array {
      numbers.push(its.structure as number)
      return super.exchange(x, its)
    }
  }
  const numberOf = (tree: unknown, allReduceSize = 100): number => {
    numbers.length = 0
    nn.averageGradients(tree, { group: new Noting(), allReduceSize })
    expect(new Set(numbers).size).toBe(1)
    return numbers[0]
  }
  const [a, b] = [mx.ones([2]), mx.ones([2, 3])]
  expect(numberOf({ a, b })).toBe(numberOf({ a: mx.zeros([2]), b: mx.ones([2, 3]) }))
  const trees = [
    { a, b },
    { b, a },
    { a, c: b },
    { a },
    { a, b: b.T },
    { a, b: b.astype(mx.float16) },
    [a, b],
  ]
  const all = [...trees.map((tree) => numberOf(tree)), numberOf({ a, b }, 0), numberOf({ a, b: a })]
  expect(new Set(all).size).toBe(all.length)
  expect(all).not.toContain(0)
})
