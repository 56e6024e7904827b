/**
 * Random functions under vmap: a batch of keys gives each example the numbers that its key gives alone.
 */
import * as mx from "@lazuli/core"
import { expect, it } from "vitest"
import { grad, vmap, vmapLoops } from "./index"

const { random } = mx
const keys = random.split(random.key(3), 3)
const logits = mx.array([
  [0.1, 0.2, 3],
  [1, 1, 1],
])

const draws: Record<string, (key: mx.Array) => mx.Array> = {
  bits: (key) => random.bits({ shape: [2, 3], key }),
  "bits of two bytes": (key) => random.bits({ shape: [5], key, width: 2 }),
  split: (key) => random.split(key, 3),
  uniform: (key) => random.uniform({ shape: [2, 3], key }),
  normal: (key) => random.normal([2, 3], { key, loc: 1, scale: 2 }),
  "normal of bfloat16": (key) => random.normal([2, 3], { key, dtype: mx.bfloat16 }),
  randint: (key) => random.randint(0, 10, { shape: [2, 3], key }),
  bernoulli: (key) => random.bernoulli(0.4, [2, 3], key),
  truncatedNormal: (key) => random.truncatedNormal(-1, 1, [2, 3], mx.float32, key),
  gumbel: (key) => random.gumbel([2, 3], { key }),
  laplace: (key) => random.laplace([2, 3], { key }),
  categorical: (key) => random.categorical(logits, { key }),
  "categorical, several": (key) => random.categorical(logits, { key, numSamples: 5 }),
  permutation: (key) => random.permutation(7, { key }),
  "permutation of an array": (key) => random.permutation(mx.arange(12).reshape([3, 4]), { key, axis: 1 }),
}

it.each(Object.entries(draws))("%s", (_name, draw) => {
  const before = vmapLoops()
  const want = mx.stack([0, 1, 2].map((i) => draw(keys.index(i)))).tolist()
  expect(vmap(draw)(keys).tolist()).toEqual(want)
  expect(vmap(draw, { inAxes: 1 })(keys.T).tolist()).toEqual(want)
  expect(vmap(vmap(draw))(keys.reshape([1, 3, 2])).tolist()).toEqual([want])
  expect(vmapLoops()).toEqual(before)
})

it("parameters have derivatives, and batches", () => {
  const key = random.key(1)
  const [dloc, dscale] = grad(
    (loc: mx.Array, scale: mx.Array) => random.normal([4], { loc, scale, key }).sum(),
    [0, 1],
  )(mx.array(1), mx.array(2))
  expect(dloc.item()).toBe(4)
  expect(dscale.item()).toBeCloseTo(random.normal([4], { key }).sum().item() as number, 5)
  const lows = mx.array([1, 2])
  const draw = (low: mx.Array) => random.uniform(low, 5, { shape: [2], key })
  expect(vmap(draw)(lows).tolist()).toEqual(mx.stack([...lows].map(draw)).tolist())
})
