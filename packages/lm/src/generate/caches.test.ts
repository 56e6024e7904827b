/**
 * All caches, drafts and batches generate the same tokens as plain greedy decoding. It is long because it has every kind of cache.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as mx from "@lazuli/core"
import * as lm from "@lazuli/lm"
import { afterAll, beforeAll, describe, expect, test } from "vitest"
import "@lazuli/backend-cpu"
import { tiny, writeCheckpoint } from "../../test/checkpoints"
import { prompt, tokensOf, write } from "../../test/generations"
import { cacheLength, PlainCache, trimCache } from "../models/cache"
import type { JsonObject } from "../models/settings"
import { type CacheOptions, maxCacheSize } from "./caches"
import type { StepOptions } from "./steps"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-caches-"))
afterAll(() => rmSync(scratch, { recursive: true }))
const load = (name: string): Promise<lm.LoadedModel> => lm.load(writeCheckpoint(name, join(scratch, name)))
let llama: lm.LoadedModel
let mistral: lm.LoadedModel
beforeAll(async () => {
  ;[llama, mistral] = await Promise.all([load("llama"), load("mistral")])
})

describe("a rotating cache", () => {
  test("equals a plain one with the same window, far beyond it", async () => {
    const causal = mistral.network as lm.CausalNetwork
    const plain = causal.layerShapes().map(() => new PlainCache())
    const options = { maxTokens: 300 }
    expect(await write(mistral, prompt(5), options)).toEqual(
      await write(mistral, prompt(5), { ...options, cache: plain }),
    )
  })

  test("stays small", async () => {
    const cache = lm.makeCache(llama.network as lm.CausalNetwork, { maxContext: 16 })
    await write(llama, prompt(5), { cache, maxTokens: 600 })
    expect(cacheLength(cache)).toBe(620)
    expect(lm.cacheBytes(cache)).toBeLessThanOrEqual(2 * 2 * 512 * 2 * 16 * 4)
  }, 60_000)
})

describe("a paged cache", () => {
  test.each([1, 7, 64])(
    "of %i tokens a page equals a plain one, with and without a window",
    async (pageTokens) => {
      for (const model of [llama, mistral]) {
        const want = await write(model, prompt(5), { maxTokens: 150 })
        expect(await write(model, prompt(5), { maxTokens: 150, pageTokens })).toEqual(want)
        expect(await write(model, prompt(5), { maxTokens: 150, pageTokens, prefillStep: 4 })).toEqual(want)
      }
      const draft = { draft: mistral, draftTokens: 3 }
      expect(await write(llama, prompt(7), { pageTokens, ...draft })).toEqual(await write(llama, prompt(7)))
    },
  )

  test("keeps only the pages of its window", async () => {
    const cache = lm.makeCache(llama.network as lm.CausalNetwork, { maxContext: 16, pageTokens: 8 })
    await write(llama, prompt(5), { cache, maxTokens: 200 })
    expect(lm.cacheBytes(cache)).toBeLessThanOrEqual(2 * 2 * (16 + 64 + 2 * 8) * 2 * 16 * 4)
  })

  test("shares its pages with continuations, which do not overwrite each other", async () => {
    const network = llama.network as lm.CausalNetwork
    const beginning = prompt(3, 200)
    const plain = new lm.PrefixStore(1e9)
    const paged = new lm.PrefixStore(1e9)
    for (let i = 0; i < 5; i++) {
      const tokens = [...beginning, i, ...prompt(i, 20)]
      const want = await write(llama, tokens, { maxTokens: 4 })
      for (const [store, options] of [
        [plain, {}],
        [paged, { pageTokens: 16 }],
      ] as const) {
        const cache = store.find(tokens) ?? lm.makeCache(network, options)
        expect(await write(llama, tokens, { cache, maxTokens: 4 })).toEqual(want)
        store.add(tokens, cache)
      }
    }
    const page = 2 * 2 * 2 * 16 * 16 * 4
    expect(paged.nbytes).toBeLessThanOrEqual(((208 + 5 * 48) / 16) * page)
    expect(paged.nbytes).toBeLessThan(plain.nbytes / 2)
    expect(await write(llama, beginning, { cache: paged.find(beginning) ?? [], maxTokens: 9 })).toEqual(
      await write(llama, beginning, { maxTokens: 9 }),
    )
  })
})

test("a quantized cache is close to a plain one: KL per token ≤ 0.01", async () => {
  const network = (await load("llama-wide")).network as lm.CausalNetwork
  const tokens = mx.array([prompt(3, 200)], mx.int32)
  const logprobs = (cache: lm.Cache | null): mx.Array => {
    const logits = network.forward(tokens, cache)
    return logits.subtract(mx.logsumexp(logits, -1, true))
  }
  const want = logprobs(null)
  const divergence = (cacheBits: number): mx.Array => {
    const got = logprobs(lm.makeCache(network, { cacheBits }))
    return want.exp().multiply(want.subtract(got)).sum(-1)
  }
  expect(divergence(6).mean().item()).toBeLessThan(0.01)
  expect(divergence(8).max().item()).toBeLessThan(0.002)
  // With fewer bits it is larger.
  for (const cacheBits of [4, 5, Number.NaN])
    expect(() => lm.makeCache(network, { cacheBits })).toThrow(/cacheBits must be 6 or 8, received/)
  expect(() => lm.makeCache(llama.network as lm.CausalNetwork, { cacheBits: 8 })).toThrow(
    /the head dimension 16 is not divisible by the group size 32/,
  )
})

test("generation continues from a saved prompt cache", async () => {
  for (const model of [llama, mistral]) {
    const tokens = prompt(11)
    const want = await write(model, tokens)
    const cache = lm.makeCache(model.network as lm.CausalNetwork)
    await write(model, tokens, { cache, maxTokens: 1 })
    const paged = lm.makeCache(model.network as lm.CausalNetwork, { pageTokens: 6 })
    await write(model, tokens, { cache: paged, maxTokens: 1 })
    lm.savePromptCache(join(scratch, "paged.safetensors"), paged, tokens)
    const pages = lm.loadPromptCache(join(scratch, "paged.safetensors")).cache
    expect(await write(model, tokens, { cache: pages })).toEqual(want)
    const file = join(scratch, "prompt.safetensors")
    lm.savePromptCache(file, cache, tokens)
    const loaded = lm.loadPromptCache(file)
    expect(loaded.tokens).toEqual(tokens)
    expect(await write(model, tokens, { cache: loaded.cache })).toEqual(want)
    // Also with a longer prompt.
    const longer = [...tokens, 1, 2, 3]
    const again = lm.loadPromptCache(file).cache
    expect(await write(model, longer, { cache: again })).toEqual(await write(model, longer))
  }
  const other = join(scratch, "other.safetensors")
  mx.saveSafetensors(other, { x: mx.ones([1]) })
  expect(() => lm.loadPromptCache(other)).toThrow(mx.FormatError)
  const saved = (layers: string, arrays: Record<string, mx.Array> = {}): string => {
    const all = { tokens: mx.ones([1], mx.int32), ...arrays }
    mx.saveSafetensors(other, all, { format: "lazuli-lm-cache", layers })
    return other
  }
  for (const layers of [
    "null",
    "[3]",
    '[{"kind":"plain"}]',
    '[{"kind":"plain","numbers":{"offset":-1}}]',
    '[{"kind":"plain","numbers":{"offset":"1"}}]',
  ])
    expect(() => lm.loadPromptCache(saved(layers))).toThrow(/is not a prompt cache/)
  const keys = { "0.keys": mx.ones([1, 2, 3, 4]) }
  for (const [layers, arrays] of [
    ['[{"kind":"plain","numbers":{"offset":3}}]', {}],
    ['[{"kind":"plain","numbers":{"offset":3}}]', keys],
    ['[{"kind":"plain","numbers":{}}]', {}],
    [
      '[{"kind":"rotating","numbers":{"offset":9,"first":4,"window":8}}]',
      { ...keys, "0.values": keys["0.keys"] },
    ],
    ['[{"kind":"paged","numbers":{"offset":9,"dropped":0,"size":4,"window":0}}]', keys],
    ['[{"kind":"quantized","numbers":{"offset":3,"bits":8,"groupSize":32}}]', keys],
  ] as const)
    expect(() => lm.loadPromptCache(saved(layers, arrays)), layers).toThrow(
      /do not match the number of tokens/,
    )
  expect(() => lm.loadPromptCache(saved('[{"kind":"quantized","numbers":{"offset":0,"bits":4}}]'))).toThrow(
    /has keys and values of 4 bits, which are not supported/,
  )
})

test("generation continues from a saved quantized cache", async () => {
  const model = await load("llama-wide")
  const tokens = prompt(11)
  for (const cacheBits of [6, 8]) {
    const cache = lm.makeCache(model.network as lm.CausalNetwork, { cacheBits })
    const want = await write(model, tokens, { cache })
    trimCache(cache, lm.cacheLength(cache) - tokens.length)
    const file = join(scratch, "quantized.safetensors")
    lm.savePromptCache(file, cache, tokens)
    expect(await write(model, tokens, { cache: lm.loadPromptCache(file).cache })).toEqual(want)
  }
})

test("a draft does not change the output, be it good or bad", async () => {
  for (const [model, draft] of [
    [llama, mistral],
    [mistral, llama],
    [llama, llama],
  ])
    for (const draftTokens of [1, 4]) {
      const want = await write(model, prompt(7))
      expect(await write(model, prompt(7), { draft, draftTokens })).toEqual(want)
    }
})

/** A random Llama with a vocabulary of this size. */
const llamaOf = (vocab_size: number): lm.LoadedModel =>
  lm.fromConfig({ ...(tiny.llama.config as JsonObject), vocab_size })

test("a draft's vocabulary may be padded to another size", async () => {
  const { tokenizer } = llama
  for (const [size, draftSize] of [
    [300, 320],
    [320, 300],
  ]) {
    mx.random.seed(5)
    const model = { ...llamaOf(size), tokenizer }
    // A draft that would propose padding, and a model that may choose it.
    const draft = { ...llamaOf(draftSize), tokenizer }
    const options = { temperature: 5, seed: 11 }
    const want = await write(model, prompt(7), options)
    expect(await write(model, prompt(7), { ...options, draft })).toEqual(want)
    expect(Math.max(...want)).toBeGreaterThanOrEqual(Math.min(size, 300) - 20)
  }
  await expect(write(llamaOf(300), prompt(7), { draft: llamaOf(320) })).rejects.toThrow(
    /has 320 tokens and the model's 300, expected the same of models without tokenizers/,
  )
})

test("a draft has the model's tokens", async () => {
  const { files } = llama.tokenizer!
  const text = JSON.stringify(files.tokenizer).replace('"unused280":280', '"other":280')
  const other = new lm.Tokenizer({ ...files, tokenizer: JSON.parse(text) as JsonObject })
  const same = new lm.Tokenizer(files)
  const drafted = (tokenizer: lm.Tokenizer) => write(llama, prompt(7), { draft: { ...llama, tokenizer } })
  expect(await drafted(same)).toEqual(await drafted(llama.tokenizer!))
  await expect(drafted(other)).rejects.toThrow(/the draft model's tokenizer is another one/)
})

test("a draft leaves no rejected or unread tokens in the cache", async () => {
  for (const maxTokens of [1, 2, 3, 4, 5]) {
    const cache = lm.makeCache(llama.network as lm.CausalNetwork)
    const tokens = await write(llama, prompt(7), { cache, draft: llama, draftTokens: 4, maxTokens })
    expect(cacheLength(cache)).toBeLessThan(prompt(7).length + maxTokens)
    const longer = [...prompt(7), ...tokens, 9, 9, 9, 9, 9]
    expect(await write(llama, longer, { cache, maxTokens: 4 })).toEqual(
      await write(llama, longer, { maxTokens: 4 }),
    )
  }
})

test("maxCacheBytes is enforced", async () => {
  await expect(write(llama, prompt(1), { maxCacheBytes: 1000 })).rejects.toThrow(/maxCacheBytes \(1000\)/)
  // A draft's cache counts too.
  const one = maxCacheSize(llama.network as lm.CausalNetwork, 61, 512)
  expect((await write(llama, prompt(1), { maxCacheBytes: one })).length).toBe(40)
  await expect(write(llama, prompt(1), { maxCacheBytes: one, draft: llama })).rejects.toThrow(/maxCacheBytes/)
})

test("a cache is used by one generation at a time", async () => {
  const cache = lm.makeCache(llama.network as lm.CausalNetwork)
  const first = lm.stream(llama, prompt(1), { cache })
  await first.next()
  await expect(write(llama, prompt(1), { cache })).rejects.toThrow(
    /is used by a generation that has not ended/,
  )
  await first.return()
  expect(await write(llama, prompt(1), { cache })).toEqual(await write(llama, prompt(1)))
})

test("logits that are not numbers are an error", async () => {
  const broken = await load("llama")
  const network = broken.network as lm.CausalNetwork
  network.update({ model: { norm: { weight: mx.full([64], Number.NaN) } } })
  await expect(write(broken, prompt(1))).rejects.toThrow(
    /the logits are not numbers. The weights are damaged/,
  )
  const batch = new lm.Batcher(broken)
  await expect(tokensOf(batch.stream(prompt(1)))).rejects.toThrow(mx.NumericError)
  batch.close()
})

describe("logits that are not numbers after the prompt", () => {
  const tokens = prompt(1)
  /** A model with damaged embeddings of tokens that are not in the prompt. */
  const damaged = async (): Promise<lm.LoadedModel> => {
    const broken = await load("llama")
    const network = broken.network as lm.CausalNetwork
    const isRead = mx.array(Array.from({ length: network.vocabulary }, (_, i) => tokens.includes(i)))
    const [[, weight]] = (mx.treeFlatten(network.parameters()) as [string, mx.Array][]).filter(([name]) =>
      name.includes("embedTokens"),
    )
    const embedTokens = { weight: mx.where(isRead.expandDims(1), weight, Number.NaN) }
    network.update({ model: { embedTokens } })
    return broken
  }

  test.each([
    ["", {}],
    [" of eager steps", { compile: false }],
    [" at a temperature", { temperature: 1, seed: 3 }],
    [" with log-probabilities", { logprobs: 2 }],
    [" with penalties", { repetitionPenalty: 1.1 }],
    [" and a draft", {}, true],
  ] as [string, lm.GenerateOptions, boolean?][])("are an error%s", async (_, options, drafts) => {
    const all = drafts ? { draft: llama } : options
    await expect(write(await damaged(), tokens, all)).rejects.toThrow(mx.NumericError)
  })

  test.each([{}, { compile: false }, { exact: true }])("are an error in a batch with %j", async (options) => {
    const batch = new lm.Batcher(await damaged(), options)
    const rows = [0, 0.5].map((temperature) =>
      tokensOf(batch.stream(tokens, { maxTokens: 40, ignoreEos: true, temperature })),
    )
    for (const row of rows) await expect(row).rejects.toThrow(mx.NumericError)
    expect(batch.stats()).toMatchObject({ active: 0, waiting: 0 })
    batch.close()
  })
})

test("options that a given cache does not have are refused", async () => {
  const wide = await load("llama-wide")
  const network = wide.network as lm.CausalNetwork
  for (const [made, options, name] of [
    [{}, { cacheBits: 8 }, "cacheBits"],
    [{ cacheBits: 6 }, { cacheBits: 8 }, "cacheBits"],
    [{}, { pageTokens: 4 }, "pageTokens"],
    [{ pageTokens: 4 }, { pageTokens: 8 }, "pageTokens"],
    [{ maxContext: 16 }, { maxContext: 8 }, "maxContext"],
  ] as [lm.CacheOptions, lm.CacheOptions, string][]) {
    await expect(write(wide, prompt(1), { cache: lm.makeCache(network, made), ...options })).rejects.toThrow(
      `the given cache was made with another ${name}. Pass its options to makeCache`,
    )
    const cache = lm.makeCache(network, options)
    await write(wide, prompt(1), { cache, ...options })
    await write(wide, [...prompt(1), 7], { cache, ...options })
  }
})

test("a cache is not of a model that was fine-tuned in its last layer", async () => {
  const tuned = await load("llama")
  const cache = lm.makeCache(llama.network as lm.CausalNetwork)
  await write(llama, prompt(3, 8), { cache, maxTokens: 1 })
  lm.addAdapters(tuned.network, { rank: 2, layers: 1 })
  for (const layer of tuned.network.modules().filter((module) => module instanceof lm.LoraLinear))
    layer.loraB = mx.full(layer.loraB.shape, 0.1)
  lm.fuseAdapters(tuned.network)
  await expect(write(tuned, prompt(3, 12), { cache })).rejects.toThrow(/the cache is from another model/)
})

test("a cache is loaded by the name that it was saved with", async () => {
  const cache = lm.makeCache(llama.network as lm.CausalNetwork)
  await write(llama, prompt(3, 8), { cache, maxTokens: 1 })
  lm.savePromptCache(join(scratch, "short.st"), cache, prompt(3, 8))
  expect(lm.loadPromptCache(join(scratch, "short.st")).tokens).toEqual(prompt(3, 8))
})

test("a cache is used with its tokens and its model", async () => {
  const network = llama.network as lm.CausalNetwork
  const cache = lm.makeCache(network)
  const file = join(scratch, "mine.safetensors")
  await write(llama, prompt(3, 8), { cache, maxTokens: 1 })
  expect(() => lm.savePromptCache(file, cache, [7])).toThrow(/the cache has 8 tokens, and 1 were passed/)
  expect(() => lm.savePromptCache(file, cache, prompt(4, 8))).toThrow(/the cache has other tokens/)
  lm.savePromptCache(file, cache, prompt(3, 8))
  await expect(write(llama, prompt(4, 12), { cache })).rejects.toThrow(/has other tokens than the beginning/)
  const loaded = lm.loadPromptCache(file).cache
  await expect(write(llama, prompt(4, 12), { cache: loaded })).rejects.toThrow(/has other tokens/)
  await expect(write(mistral, prompt(3, 12), { cache: loaded })).rejects.toThrow(/is from another model/)
  // The common beginning is enough.
  const shorter = prompt(3, 8).slice(0, 5)
  expect(await write(llama, shorter, { cache: loaded })).toEqual(await write(llama, shorter))
  const [arrays, metadata] = mx.load(file, "safetensors", true)
  mx.saveSafetensors(file, { ...arrays, tokens: mx.ones([9], mx.int32) }, metadata)
  expect(() => lm.loadPromptCache(file)).toThrow(/has 9 tokens, and their keys and values are of 8/)
})

test("without a tokenizer, the config's end-of-text tokens end the text", async () => {
  const folder = writeCheckpoint("llama", join(scratch, "untokenized"))
  rmSync(join(folder, "tokenizer.json"))
  const tokens = await write(await lm.load(folder), prompt(5))
  const ends = (files: Record<string, object>): Promise<number[]> => {
    for (const [name, values] of Object.entries(files))
      writeFileSync(
        join(folder, name),
        JSON.stringify({ ...JSON.parse(readFileSync(join(folder, "config.json"), "utf8")), ...values }),
      )
    return lm.load(folder).then((model) => write(model, prompt(5), { ignoreEos: false }))
  }
  const first = (token: number): number[] => tokens.slice(0, tokens.indexOf(token) + 1)
  expect(await ends({ "config.json": { eos_token_id: tokens[5] } })).toEqual(first(tokens[5]))
  expect(await ends({ "generation_config.json": { eos_token_id: [tokens[3]] } })).toEqual(first(tokens[3]))
})

test("a cache of a window is not quantized", () => {
  expect(() => lm.makeCache(llama.network as lm.CausalNetwork, { cacheBits: 8, maxContext: 16 })).toThrow(
    /pass cacheBits or maxContext/,
  )
})

test.each([{}, { draft: true }])(
  "an aborted generation throws the signal's reason: %j",
  async ({ draft }) => {
    const controller = new AbortController()
    const seen: number[] = []
    const run = async (): Promise<void> => {
      const options = { signal: controller.signal, draft: draft ? llama : undefined }
      for await (const { token } of lm.stream(llama, prompt(1), options)) {
        seen.push(token)
        if (seen.length === 3) controller.abort(new Error("enough"))
      }
    }
    await expect(run()).rejects.toThrow("enough")
    expect(seen.length).toBe(3)
  },
)

describe("a batch", () => {
  test("gives each request the tokens of plain decoding", async () => {
    for (const model of [llama, mistral]) {
      const prompts = Array.from({ length: 7 }, (_, i) => prompt(i, 5 + i * 6))
      const want = await Promise.all(prompts.map((tokens) => write(model, tokens, { maxTokens: 12 })))
      const options = { maxTokens: 12, ignoreEos: true }
      for (const pages of [{}, { pageTokens: 8 }]) {
        const limits = { maxRows: 3, prefillStep: 9, prefixBytes: 1e6 }
        const batch = new lm.Batcher(model, { ...limits, ...pages, exact: true })
        const got = await Promise.all(prompts.map((tokens) => tokensOf(batch.stream(tokens, options))))
        expect(got).toEqual(want)
        // Now from the prefix store.
        const again = await Promise.all(prompts.map((tokens) => tokensOf(batch.stream(tokens, options))))
        expect(again).toEqual(want)
        expect(batch.stats()).toMatchObject({ active: 0, waiting: 0, cacheBytes: 0 })
        batch.close()
      }
    }
  })

  test.each([
    ["plain", "llama", { compile: false }],
    ["rotating", "mistral", {}],
    ["rotating by maxContext", "llama", { maxContext: 16 }],
    ["paged", "llama", { pageTokens: 16 }],
    ["paged with windows", "mistral", { pageTokens: 16 }],
    ["quantized", "llama-wide", { cacheBits: 8 }],
    ["quantized", "llama-wide", { cacheBits: 6 }],
    ["shared", "llama", {}],
  ] as [string, string, CacheOptions & StepOptions][])(
    "never exceeds its limits in bytes: %s caches",
    async (_kind, name, options) => {
      const model = await load(name)
      const network = model.network as lm.CausalNetwork
      const one = maxCacheSize(network, 70, 32, options)
      const batch = new lm.Batcher(model, {
        ...options,
        ...{ maxRows: 8, prefillStep: 32, maxCacheBytes: 2.5 * one, prefixBytes: 1.5 * one },
      })
      let [cacheBytes, prefixBytes, active] = [0, 0, 0]
      const run = async (i: number): Promise<void> => {
        for await (const _ of batch.stream(prompt(i, 40), { maxTokens: 30, ignoreEos: true })) {
          const stats = batch.stats()
          cacheBytes = Math.max(cacheBytes, stats.cacheBytes)
          prefixBytes = Math.max(prefixBytes, stats.prefixBytes)
          active = Math.max(active, stats.active)
        }
      }
      await Promise.all(Array.from({ length: 6 }, (_, i) => run(i)))
      expect(active).toBe(2)
      expect(cacheBytes).toBeGreaterThan(0)
      expect(cacheBytes).toBeLessThanOrEqual(2.5 * one)
      expect(prefixBytes).toBeLessThanOrEqual(1.5 * one)
      batch.close()
    },
  )

  test.each(["bfloat16", "4 bits"])(
    "with `exact` gives the bits of `stream`, also after shared prefixes: %s",
    async (kind) => {
      mx.random.seed(2)
      const config = {
        ...{ model_type: "llama", vocab_size: 512, hidden_size: 256, intermediate_size: 512 },
        ...{ num_hidden_layers: 2, num_attention_heads: 8, num_key_value_heads: 4 },
      }
      const random = lm.fromConfig(config, mx.bfloat16)
      const model = kind === "4 bits" ? lm.quantize(random, { bits: 4 }) : random
      const beginning = prompt(4, 70)
      const prompts = Array.from({ length: 6 }, (_, i) => [...beginning, ...prompt(i, 3 + 7 * i)])
      const options = { maxTokens: 12, ignoreEos: true, logprobs: 0 }
      const read = async (pieces: AsyncIterable<lm.Piece>): Promise<unknown[]> => {
        const out: unknown[] = []
        for await (const { token, logprob } of pieces) out.push([token, logprob])
        return out
      }
      const want: unknown[] = []
      for (const tokens of prompts)
        want.push(await read(lm.stream(model, tokens, { ...options, prefillStep: 32 })))
      const batch = new lm.Batcher(model, { exact: true, prefillStep: 32, prefixBytes: 1e8 })
      for (let i = 0; i < 2; i++)
        expect(await Promise.all(prompts.map((tokens) => read(batch.stream(tokens, options))))).toEqual(want)
      expect(batch.stats().prefixBytes).toBeGreaterThan(0)
      batch.close()
    },
  )

  test("without `exact` is as close as rounding allows", async () => {
    const prompts = Array.from({ length: 5 }, (_, i) => prompt(i, 5 + i * 6))
    const batch = new lm.Batcher(llama)
    const options = { maxTokens: 8, ignoreEos: true, logprobs: 0 }
    const run = async (pieces: AsyncIterable<lm.Piece>): Promise<number[]> => {
      const out: number[] = []
      for await (const { logprob } of pieces) out.push(logprob ?? 0)
      return out
    }
    const got = await Promise.all(prompts.map((tokens) => run(batch.stream(tokens, options))))
    const want = await Promise.all(prompts.map((tokens) => run(lm.stream(llama, tokens, options))))
    got.flat().forEach((value, i) => expect(value).toBeCloseTo(want.flat()[i], 4))
  })

  test("continues when a request leaves", async () => {
    const batch = new lm.Batcher(llama, { exact: true })
    const want = await write(llama, prompt(2))
    const other = batch.stream(prompt(9), { maxTokens: 100, ignoreEos: true })
    const stays = tokensOf(batch.stream(prompt(2), { maxTokens: 40, ignoreEos: true }))
    await other.next()
    await other.return()
    expect(await stays).toEqual(want)
    expect(batch.stats().active).toBe(0)
  })

  test("rejects requests beyond its queue's limit, and ones that cannot fit", async () => {
    const batch = new lm.Batcher(llama, { maxRows: 1, maxWaiting: 1, maxCacheBytes: 300_000 })
    const first = batch.stream(prompt(1), { maxTokens: 2 })
    const second = batch.stream(prompt(2), { maxTokens: 2 })
    expect(() => batch.stream(prompt(1))).toThrow(lm.BusyError)
    await Promise.all([tokensOf(first), tokensOf(second)])
    expect(() => batch.stream(prompt(1), { maxTokens: 100_000 })).toThrow(/do not fit maxCacheBytes/)
  })
})

test("sampling: a seed repeats, top-k 1 is greedy, a bias forces a token, penalties change the answer", async () => {
  const drawn = { temperature: 1, seed: 7, topP: 0.9, minP: 0.01, topK: 50 }
  const first = await write(llama, prompt(4), drawn)
  expect(await write(llama, prompt(4), drawn)).toEqual(first)
  expect(await write(llama, prompt(4), { ...drawn, seed: 8 })).not.toEqual(first)
  const greedy = await write(llama, prompt(4))
  expect(await write(llama, prompt(4), { temperature: 1, seed: 1, topK: 1 })).toEqual(greedy)
  expect(await write(llama, prompt(4), { temperature: 1, seed: 1, topP: 0 })).toEqual(greedy)
  expect(await write(llama, prompt(4), { logitBias: { 42: 1000 }, maxTokens: 3 })).toEqual([42, 42, 42])
  const fresh = await write(llama, prompt(4), { frequencyPenalty: 50, maxTokens: 30 })
  expect(new Set(fresh).size).toBe(30)
  const varied = await write(llama, prompt(4), { repetitionPenalty: 1e5, maxTokens: 20 })
  expect(new Set([...varied, ...prompt(4)]).size).toBe(20 + new Set(prompt(4)).size)
  await expect(write(llama, prompt(4), { topP: 2 })).rejects.toThrow(/topP must be a number from 0 to 1/)
})

test("a stop string ends the output and is not part of it", async () => {
  const whole = await lm.generate(llama, "in the", { maxTokens: 60, ignoreEos: true })
  const stop = whole.slice(10, 14)
  const cut = await lm.generate(llama, "in the", {
    maxTokens: 60,
    ignoreEos: true,
    stop: ["never there", stop],
  })
  expect(cut).toBe(whole.slice(0, whole.indexOf(stop)))
  // Also one that only the end completes: U+FFFD for a part of a character.
  const [part] = llama.tokenizer!.encode("東")
  const pieces: lm.Piece[] = []
  const options = { maxTokens: 1, logitBias: { [part]: 1000 }, stop: "\uFFFD" }
  for await (const piece of lm.stream(llama, "the", options)) pieces.push(piece)
  expect(pieces).toMatchObject([{ text: "", finish: "stop" }])
})

test("log-probabilities are those of the generated and the most likely tokens", async () => {
  for await (const piece of lm.stream(llama, prompt(1), { maxTokens: 4, logprobs: 3, ignoreEos: true })) {
    expect(piece.top.length).toBe(3)
    expect(piece.top[0]).toEqual({ token: piece.token, logprob: piece.logprob })
    expect(piece.top[0].logprob).toBeGreaterThanOrEqual(piece.top[1].logprob)
  }
})
