/** Peak memory of prompt processing. */
import * as mx from "@lazuli/core"
import * as nn from "@lazuli/nn"
import { expect, test } from "vitest"
import "@lazuli/backend-cpu"
import { cacheBytes } from "../models/cache"
import { Decoder } from "../models/decoder"
import { GatedFeedForward } from "../models/layers"
import { Rope } from "../models/rope"
import { makeCache } from "./caches"
import { prefill } from "./prefill"

const [hidden, inner, layers, vocabulary, headDim] = [64, 512, 16, 500, 32]
const frequencies = { freqs: Float64Array.from({ length: headDim / 2 }, (_, i) => 2 ** i), factor: 1 }
const network = new Decoder({
  ...{ vocabulary, hidden, layers, tied: false },
  attention: () => ({
    ...{ hidden, heads: 2, kvHeads: 1, headDim },
    rope: new Rope(() => ({ ...frequencies, bound: Infinity }), headDim, false),
  }),
  feedForward: () => new GatedFeedForward(hidden, inner, { activation: (x) => nn.silu(x) }),
  norm: (dims) => new nn.RMSNorm(dims),
})
mx.eval(network.parameters())

test.each([128, 4000])(
  "a prompt of %i tokens needs only its cache and the activations of one layer",
  async (length) => {
    const tokens = Array.from({ length }, (_, i) => (i * 7919) % vocabulary)
    const before = mx.getActiveMemory()
    mx.resetPeakMemory()
    const cache = makeCache(network)
    const logits = await prefill(network, tokens, cache)
    const peak = mx.getPeakMemory() - before
    const product = Math.min(length, 512) * inner * 4
    expect(logits.shape).toEqual([vocabulary])
    // The layer's old buffers, and four products of its feed-forward network.
    expect(peak).toBeLessThan((1 + 1 / layers) * cacheBytes(cache) + 4 * product)
  },
)

test("a first call in tidy leaves the network usable", () => {
  const ids = mx.array([[1, 2, 3]], mx.int32)
  const first = mx.tidy(() => network.forward(ids).sum().item())
  expect(network.forward(ids).sum().item()).toBe(first)
  const rope = new Rope(() => ({ ...frequencies, bound: Infinity }), headDim, false)
  const x = mx.ones([1, 1, 2, headDim])
  mx.tidy(() => rope.forward(x, 0).sum().item())
  expect(rope.forward(x, 0).shape).toEqual(x.shape)
})
