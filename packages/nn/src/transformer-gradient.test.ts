/**
 * The gradient of a transformer as a graph: bounded by the forward's size, and nothing dear a second time.
 */
import * as mx from "@lazuli/core"
import { arraysOf, type Node } from "@lazuli/core/engine"
import { checkpoint } from "@lazuli/transforms"
import { expect, it } from "vitest"
import * as nn from "./index"

/** The number of times each primitive was applied in the graphs of some arrays. */
function applications(tree: unknown): Record<string, number> {
  const seen = new Set<Node>()
  const counts: Record<string, number> = { total: 0 }
  const stack = arraysOf(tree).map((x) => x.node)
  for (let node = stack.pop(); node !== undefined; node = stack.pop()) {
    const application = node.outputs?.[0] ?? node
    if (application.primitive === null || seen.has(application)) continue
    seen.add(application)
    counts.total++
    const { name } = application.primitive
    counts[name] = (counts[name] ?? 0) + 1
    stack.push(...application.inputs)
  }
  return counts
}

const [LAYERS, WIDTH, LENGTH, TOKENS] = [4, 32, 16, 64]
class Model extends nn.Module {
  tokens = new nn.Embedding(TOKENS, WIDTH)
  positions = new nn.Embedding(LENGTH, WIDTH)
  body = new nn.TransformerEncoder(LAYERS, WIDTH, 4, { mlpDims: 4 * WIDTH, normFirst: true })
  head = new nn.Linear(WIDTH, TOKENS)
  forward(ids: mx.Array): mx.Array {
    const mask = nn.MultiHeadAttention.createAdditiveCausalMask(LENGTH)
    const x = this.tokens.forward(ids).add(this.positions.forward(mx.arange(LENGTH)))
    return this.head.forward(this.body.forward(x, mask))
  }
}

it("adds no more than four times the forward's nodes, and computes no product, norm or attention again", () => {
  const model = new Model()
  const ids = mx.random.randint(0, TOKENS, [2, LENGTH])
  mx.eval(ids, model.parameters())
  const loss = (): mx.Array => nn.losses.crossEntropy(model.forward(ids), ids, { reduction: "mean" })
  const forward = applications(loss())
  const both = applications(nn.valueAndGrad(model, loss)())

  expect(both.total - forward.total).toBeLessThanOrEqual(2 * forward.total)
  // Six products a layer (queries, keys, values, the projection out, two of the MLP) and the head; each has two transposes.
  const products = (c: Record<string, number>): number => c.matmul + c.addmm
  expect(products(forward)).toBe(6 * LAYERS + 1)
  expect(products(both)).toBe(3 * products(forward))
  for (const name of ["scaledDotProductAttention", "layerNorm", "logsumexp", "gather"])
    expect(both[name], name).toBe(forward[name])
  expect(both.scaledDotProductAttentionVjp).toBe(LAYERS)
  expect(both.layerNormVjp).toBe(2 * LAYERS + 1)
})

it("computes a layer again only where a checkpoint asks for it", () => {
  const layer = new nn.Linear(4, 4)
  const x = mx.ones([2, 4])
  mx.eval(layer.parameters())
  const block = (v: mx.Array): mx.Array => layer.forward(mx.tanh(layer.forward(v)))
  const plain = applications(nn.valueAndGrad(layer, () => block(x).sum())())
  const again = applications(nn.valueAndGrad(layer, () => checkpoint(block)(x).sum())())
  // The second product's value is not needed for the gradient.
  expect([plain.addmm, again.addmm]).toEqual([2, 3])
})
