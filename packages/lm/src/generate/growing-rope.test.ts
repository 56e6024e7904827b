/** Positions that are encoded by the length of the sequence: decoding continues no keys of other lengths. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as mx from "@lazuli/core"
import * as lm from "@lazuli/lm"
import { afterAll, describe, expect, test } from "vitest"
import "@lazuli/backend-cpu"
import { prompt, tokensOf, write } from "../../test/generations"
import { cacheLength, trimCache } from "../models/cache"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-growing-"))
afterAll(() => rmSync(scratch, { recursive: true }))

describe.each([
  [
    "longrope",
    {
      model_type: "phi3",
      original_max_position_embeddings: 16,
      rope_scaling: {
        type: "longrope",
        short_factor: [1.05, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7],
        long_factor: [1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5],
      },
      max_position_embeddings: 256,
    },
  ],
  [
    "dynamic RoPE",
    {
      model_type: "llama",
      max_position_embeddings: 16,
      rope_scaling: { rope_type: "dynamic", factor: 2 },
    },
  ],
])("%s", (kind, own) => {
  /** A model with weights large enough that positions matter. */
  const make = (seed: number): lm.LoadedModel => {
    mx.random.seed(seed)
    const model = lm.fromConfig({
      vocab_size: 300,
      hidden_size: 64,
      intermediate_size: 128,
      num_hidden_layers: 2,
      num_attention_heads: 4,
      num_key_value_heads: 2,
      ...own,
    })
    const weights = mx.treeFlatten(model.network.parameters()) as [string, mx.Array][]
    const larger = weights.map(([name, w]): [string, mx.Array] => [name, w.ndim > 1 ? w.multiply(2) : w])
    model.network.update(mx.treeUnflatten(larger) as never)
    return model
  }
  const model = make(1)
  const draft = make(2)
  // Below, across and above the trained length of 16.
  const prompts = [prompt(5, 9), prompt(5, 16), prompt(5, 17), prompt(5, 40)]
  const plainly = (): Promise<number[][]> => Promise.all(prompts.map((tokens) => write(model, tokens)))

  test("generates the same tokens from chunks", async () => {
    const chunks = await Promise.all(prompts.map((tokens) => write(model, tokens, { prefillStep: 7 })))
    expect(chunks).toEqual(await plainly())
  })

  test("generates the same tokens with drafts", async () => {
    for (const other of [model, draft])
      expect(await Promise.all(prompts.map((tokens) => write(model, tokens, { draft: other })))).toEqual(
        await plainly(),
      )
  })

  test.each([
    ["exact", { exact: true }],
    ["together", {}],
  ])("generates the same tokens in a batch, %s, with shared prefixes", async (_, how) => {
    const want = await plainly()
    const batch = new lm.Batcher(model, { ...how, prefillStep: 7, prefixBytes: 1e8 })
    const all = (): Promise<number[][]> =>
      Promise.all(prompts.map((tokens) => tokensOf(batch.stream(tokens, { maxTokens: 40, ignoreEos: true }))))
    expect(await all()).toEqual(want)
    expect(await all()).toEqual(want)
    batch.close()
  })

  test.each([{}, { pageTokens: 8 }, { maxContext: 64 }])(
    "does not continue keys of other lengths in a cache with %o",
    async (options) => {
      const network = model.network as lm.CausalNetwork
      const file = join(scratch, "lengths.safetensors")
      for (const first of prompts)
        for (const then of prompts) {
          const cache = lm.makeCache(network, options)
          await write(model, first, { cache, maxTokens: 3 })
          trimCache(cache, cacheLength(cache) - first.length)
          lm.savePromptCache(file, cache, first)
          const want = await write(model, then, { ...options, maxTokens: 12 })
          expect(await write(model, then, { cache, maxTokens: 12 })).toEqual(want)
          const { cache: loaded } = lm.loadPromptCache(file)
          expect(await write(model, then, { cache: loaded, maxTokens: 12 })).toEqual(want)
        }
    },
  )

  if (kind === "longrope")
    test("generates what the network computes without a cache", async () => {
      for (const tokens of prompts) {
        const sequence = [...tokens]
        for (let i = 0; i < 20; i++) {
          const logits = model.network.forward(mx.array([sequence], mx.int32)).index(0, -1)
          sequence.push(Number(mx.argmax(logits).item()))
        }
        expect(await write(model, tokens, { maxTokens: 20 })).toEqual(sequence.slice(tokens.length))
      }
    })
})
