/** A batch's options, and requests that fail, end early or are never read. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as mx from "@lazuli/core"
import * as lm from "@lazuli/lm"
import { afterAll, beforeAll, expect, test } from "vitest"
import "@lazuli/backend-cpu"
import { writeCheckpoint } from "../../test/checkpoints"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-batch-"))
afterAll(() => rmSync(scratch, { recursive: true }))
let llama: lm.LoadedModel
let gpt2: lm.LoadedModel
beforeAll(async () => {
  const load = (name: string): Promise<lm.LoadedModel> => lm.load(writeCheckpoint(name, join(scratch, name)))
  ;[llama, gpt2] = await Promise.all([load("llama"), load("gpt2")])
})

const prompt = (length: number): number[] => Array.from({ length }, (_, i) => (i * i * 7 + 3) % 250)

async function finishOf(pieces: AsyncIterable<lm.Piece>): Promise<[count: number, finish: string | null]> {
  let [count, finish]: [number, string | null] = [0, null]
  for await (const piece of pieces) [count, finish] = [count + 1, piece.finish]
  return [count, finish]
}

test.each([
  [{ maxRows: 0 }, /maxRows must be a positive integer, received/],
  [{ maxRows: Number.NaN }, /maxRows/],
  [{ maxWaiting: 0 }, /maxWaiting/],
  [{ prefillStep: 0.5 }, /prefillStep/],
  [{ prefixBytes: -1 }, /prefixBytes must be a non-negative number/],
  [{ cacheBits: 8, pageTokens: 16 }, /paged caches cannot be quantized/],
  [{ pageTokens: 0 }, /pageTokens must be a positive integer/],
  [{ maxContext: 0 }, /maxContext must be a positive integer/],
] as const)("options %j are rejected by the constructor", (options, reason) => {
  expect(() => new lm.Batcher(llama, options)).toThrow(reason)
})

test("a generator that is closed before it starts removes its request", async () => {
  const batch = new lm.Batcher(llama)
  await batch.stream(prompt(5), { maxTokens: 500, ignoreEos: true }).return()
  expect(batch.stats()).toMatchObject({ active: 0, waiting: 0 })
  batch.close()
})

test("a closed batch keeps no caches of prompts that it was processing", async () => {
  const batch = new lm.Batcher(llama, { prefixBytes: 1e8 })
  const first = batch.stream(prompt(5)).next()
  batch.close()
  await expect(first).rejects.toThrow("the batch is closed")
  for (let i = 0; i < 20; i++) await new Promise((resolve) => setTimeout(resolve, 5))
  expect(batch.stats()).toMatchObject({ active: 0, prefixBytes: 0 })
})

test("prompts from before a change of adapters are not reused, nor those that it interrupted", async () => {
  const model = await lm.load(writeCheckpoint("llama", join(scratch, "changing")))
  const network = model.network as lm.CausalNetwork
  lm.addAdapters(network, { rank: 2 })
  const batch = new lm.Batcher(model, { prefixBytes: 1e8 })
  const options = { maxTokens: 8, ignoreEos: true }
  const written = async (pieces: AsyncIterable<lm.Piece>): Promise<number[]> => {
    const tokens: number[] = []
    for await (const { token } of pieces) tokens.push(token)
    return tokens
  }
  const change = (by: number): void => {
    for (const layer of network.modules())
      if (layer instanceof lm.LoraLinear) layer.loraB = mx.full(layer.loraB.shape, by)
  }
  const [first, other] = [prompt(20), prompt(30).slice(10)]
  await written(batch.stream(first, options))
  const interrupted = batch.stream(other, { ...options, maxTokens: 40 })
  await interrupted.next()
  change(0.2)
  for await (const _ of interrupted);
  for (const tokens of [first, other])
    expect(await written(batch.stream(tokens, options))).toEqual(
      await written(lm.stream(model, tokens, options)),
    )
  // With the same weights they are.
  expect(batch.stats().prefixBytes).toBeGreaterThan(0)
  batch.close()

  const store = new lm.PrefixStore(1e8)
  const cache = lm.makeCache(network)
  await written(lm.stream(model, first, { ...options, cache }))
  store.add([...first, ...prompt(8)], cache)
  await written(lm.stream(model, first, { ...options, cache: store.find(first)! }))
  change(0.4)
  await expect(written(lm.stream(model, first, { ...options, cache: store.find(first)! }))).rejects.toThrow(
    "the cache is from another model",
  )
})

test("generation ends at the model's maximum sequence length, alone and beside others", async () => {
  // GPT-2 has 128 positions here; the 129th token needs none.
  const options = { maxTokens: 40, ignoreEos: true }
  expect(await finishOf(lm.stream(gpt2, prompt(120), options))).toEqual([9, "length"])
  const draft = { ...options, draft: gpt2, draftTokens: 4 }
  expect(await finishOf(lm.stream(gpt2, prompt(120), draft))).toEqual([9, "length"])
  const batch = new lm.Batcher(gpt2)
  const all = await Promise.all([120, 10].map((n) => finishOf(batch.stream(prompt(n), options))))
  expect(all).toEqual([
    [9, "length"],
    [40, "length"],
  ])
  batch.close()
  await expect(finishOf(lm.stream(gpt2, prompt(129)))).rejects.toThrow(
    /the prompt has 129 tokens, the model supports 128/,
  )
})

test.each([[-1], [288], [1.5], [Number.NaN]])("the token %d is not in the vocabulary", async (token) => {
  const reason = `the vocabulary of 288 has no token ${token}`
  await expect(finishOf(lm.stream(llama, [1, token]))).rejects.toThrow(reason)
  expect(() => new lm.Batcher(llama).stream([1, token])).toThrow(reason)
  await expect(lm.embed(llama, [[1, token]])).rejects.toThrow(reason)
})

test.each([
  [{ logitBias: { "-1": 1 } }, /logitBias must map token ids to numbers, received -1/],
  [{ logitBias: { 1.5: 1 } }, /logitBias must map/],
  [{ logitBias: { 5: Number.NaN } }, /logitBias must map/],
  [
    { logitBias: Object.fromEntries(Array.from({ length: 288 }, (_, i) => [i, -Infinity])) },
    /logitBias leaves no token/,
  ],
  [{ logitBias: { 288: 1 } }, /logitBias: the vocabulary of 288 has no token 288/],
  [{ topK: 1.5 }, /topK must be an integer/],
  [{ repetitionWindow: 1.5 }, /repetitionWindow must be an integer/],
] as const)("sampling options %j are rejected", async (options, reason) => {
  await expect(finishOf(lm.stream(llama, [1], options))).rejects.toThrow(reason)
  expect(() => new lm.Batcher(llama).stream([1], options)).toThrow(reason)
})
