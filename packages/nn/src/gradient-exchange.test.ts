import * as mx from "@lazuli/core"
import type { Exchange } from "@lazuli/core/engine"
import { definePrimitive } from "@lazuli/core/plugin"
import { expect, test } from "vitest"
import * as nn from "./index"

const ran: string[] = []
/** The array itself, which notes when it is computed. */
const noted = definePrimitive({
  name: "gradient-exchange-test/noted",
  api: 1,
  params: { what: "string" },
  infer: ([x]) => x,
  reference: ([x], [out], { what }) => {
    ran.push(what)
    out.data.set(x.data)
  },
})

/** Two members with the same arrays. */
class Twins extends mx.distributed.Group {
  private exchanges = 0
  override rank = (): number => 0
  override size = (): number => 2
  override exchange(x: mx.Array | null, { op }: Exchange): mx.Array {
    return noted([(x as mx.Array).multiply(2)], { what: `${op} ${this.exchanges++}` })
  }
}

/** Gradients of a chain of layers: each needs that of the layer behind it. */
function gradients(): mx.Array[] {
  const all: mx.Array[] = []
  let g = mx.array([1, 2])
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
