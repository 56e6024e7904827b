/** A compiled step that decodes: a cache in the captured state and a position that moves need one trace, one plan and no copies. */
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { expect, test } from "vitest"
import "./index"

const [features, heads, room, words] = [64, 4, 300, 50]
const size = features / heads
const random = (seed: number, shape: number[]): mx.Array =>
  mx.random.normal(shape, { key: mx.random.key(seed) }).multiply(0.2)
const weights = { embed: random(1, [words, features]), qkv: random(2, [features, 3 * features]), out: random(3, [features, features]) } // biome-ignore format: one line
const emptyCache = () => {
  const cache = {
    keys: mx.zeros([1, heads, room, size]).add(0),
    values: mx.zeros([1, heads, room, size]).add(0),
  }
  mx.eval(cache)
  return cache
}

/** Logits after a token at a position, which is an array. */
function forward(cache: ReturnType<typeof emptyCache>, token: mx.Array, position: mx.Array): mx.Array {
  const x = weights.embed.index(token).reshape([1, 1, features])
  const [q, k, v] = mx
    .split(x.matmul(weights.qkv), 3, -1)
    .map((each) => each.reshape([1, 1, heads, size]).swapaxes(1, 2))
  const rope = (y: mx.Array): mx.Array =>
    mx.fast.rope(y, size, { traditional: false, base: 10000, scale: 1, offset: position })
  const at = position.reshape([1])
  cache.keys = mx.sliceUpdate(cache.keys, rope(k), at, [2])
  cache.values = mx.sliceUpdate(cache.values, v, at, [2])
  const mask = mx.arange(room).lessEqual(position)
  const seen = mx.fast.scaledDotProductAttention(rope(q), cache.keys, cache.values, {
    scale: size ** -0.5,
    mask,
  })
  return x
    .add(seen.swapaxes(1, 2).reshape([1, 1, features]).matmul(weights.out))
    .matmul(weights.embed.T)
    .flatten()
}

test("a step with a moving position is traced and planned once, gives eager's logits, and writes its cache in place", () => {
  const [eager, cache] = [emptyCache(), emptyCache()]
  const step = compile((token: mx.Array, position: mx.Array) => forward(cache, token, position), {
    inputs: cache,
    outputs: cache,
    donate: true,
  })
  const addressOf = ({ node: { storage } }: mx.Array): bigint => storage?.memory.address?.(storage) ?? 0n
  const addresses = [addressOf(cache.keys), addressOf(cache.values)]
  let token = mx.array(7, mx.int32)
  for (let n = 0; n < 140; n++) {
    const position = mx.array(n, mx.int32)
    const [got, want] = [step(token, position), forward(eager, token, position)]
    mx.eval(got, want, cache, eager)
    expect(mx.arrayEqual(got, want).item()).toBe(true)
    token = got.argmax().astype(mx.int32)
  }
  expect([addressOf(cache.keys), addressOf(cache.values)]).toEqual(addresses)
  expect(mx.arrayEqual(cache.keys, eager.keys).item()).toBe(true)
  expect(step.stats()).toEqual({ calls: 140, traces: 1, programs: 1 })
})
