/** Compiled steps, and rows with shared buffers, generate the same tokens as eager decoding. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as mx from "@lazuli/core"
import * as lm from "@lazuli/lm"
import { afterAll, describe, expect, test } from "vitest"
import "@lazuli/backend-cpu"
import { writeCheckpoint } from "../../test/checkpoints"
import { maxCacheSize } from "./caches"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-steps-"))
afterAll(() => rmSync(scratch, { recursive: true }))
const models = new Map<string, Promise<lm.LoadedModel>>()
function modelOf(name: string): Promise<lm.LoadedModel> {
  const known = models.get(name)
  if (known) return known
  const made = lm.load(writeCheckpoint(name, join(scratch, name)))
  models.set(name, made)
  return made
}
const promptOf = (length: number, seed = 0): number[] =>
  Array.from({ length }, (_, i) => (i * 37 + 11 + 5 * seed) % 250)

async function written(pieces: AsyncIterable<lm.Piece>): Promise<number[]> {
  const tokens: number[] = []
  for await (const { token } of pieces) tokens.push(token)
  return tokens
}
const settings = { maxTokens: 20, ignoreEos: true } as const
const alone = async (name: string, prompt: number[], options: lm.GenerateOptions = {}): Promise<number[]> =>
  written(lm.stream(await modelOf(name), prompt, { ...settings, compile: false, ...options }))

// GPT-2's positions end at 128.
describe.each([
  ["llama", 250],
  ["gemma2", 250],
  ["gpt2", 90],
])("%s", (name, longest) => {
  test("compiled steps equal eager ones, also when the cache grows", async () => {
    const prompt = promptOf(longest)
    const want = await alone(name, prompt)
    expect(await alone(name, prompt, { compile: true })).toEqual(want)
    const { network } = await modelOf(name)
    const cache = lm.makeCache(network as lm.CausalNetwork)
    expect(await alone(name, prompt, { compile: true, cache, maxTokens: 9 })).toEqual(want.slice(0, 9))
    expect(lm.cacheLength(cache)).toBe(prompt.length + 8)
    // The cache can be continued, compiled or not.
    const rest = { cache, maxTokens: 4 }
    expect(await alone(name, [...prompt, ...want.slice(0, 9)], rest)).toEqual(want.slice(9, 13))
    expect(await alone(name, [...prompt, ...want.slice(0, 12)], { ...rest, compile: true })).toEqual(
      want.slice(12, 16),
    )
  })

  test("rows with shared buffers generate what each alone generates", async () => {
    const batch = new lm.Batcher(await modelOf(name), { prefixBytes: 1e7 })
    const prompts = [3, longest, 40, 7, 60].map((length, i) => promptOf(length, i))
    const lengths = [20, 4, 11, 30, 2]
    const want = await Promise.all(prompts.map((prompt, i) => alone(name, prompt, { maxTokens: lengths[i] })))
    const got = await Promise.all(
      prompts.map((prompt, i) => written(batch.stream(prompt, { ...settings, maxTokens: lengths[i] }))),
    )
    expect(got).toEqual(want)
    // The next turn of a conversation.
    const more = [...prompts[3], ...want[3]]
    expect(await written(batch.stream(more, settings))).toEqual(await alone(name, more))
    for (let i = 0; i < 50 && batch.stats().cacheBytes > 0; i++) await new Promise(setImmediate)
    expect(batch.stats().cacheBytes).toBe(0)
    batch.close()
  })
})

test("shared buffers shrink when a long row has left", async () => {
  const model = await modelOf("llama")
  const network = model.network as lm.CausalNetwork
  const batch = new lm.Batcher(model)
  const long = written(batch.stream(promptOf(1000), { ...settings, maxTokens: 3 }))
  const short: number[] = []
  const bytes: number[] = []
  for await (const { token } of batch.stream(promptOf(9), { ...settings, maxTokens: 40 })) {
    short.push(token)
    bytes.push(batch.stats().cacheBytes)
  }
  await long
  expect(Math.max(...bytes)).toBe(2 * maxCacheSize(network, 1003, 256))
  expect(bytes.slice(-10)).toEqual(Array.from({ length: 10 }, () => maxCacheSize(network, 49, 256)))
  expect(short).toEqual(await alone("llama", promptOf(9), { maxTokens: 40 }))
  batch.close()
})

test("a network without layers runs in compiled batches", async () => {
  class Successor extends lm.CausalNetwork {
    readonly vocabulary = 8
    layerShapes(): lm.LayerShape[] {
      return []
    }
    override get takesPositions(): boolean {
      return true
    }
    hidden(tokens: mx.Array): mx.Array {
      return tokens.expandDims(-1)
    }
    logits(hidden: mx.Array): mx.Array {
      return hidden.add(1).equal(mx.arange(8)).astype(mx.float32)
    }
  }
  const batch = new lm.Batcher({
    ...(await modelOf("llama")),
    network: new Successor(),
    tokenizer: null,
  })
  for (const length of [1, 300]) {
    const prompt = Array.from({ length }, () => 2)
    expect(await written(batch.stream(prompt, { maxTokens: 3, ignoreEos: true }))).toEqual([3, 4, 5])
  }
  batch.close()
})

test("the cache does not contain the token computed ahead", async () => {
  const { network, ...model } = await modelOf("llama-wide")
  for (const options of [{}, { cacheBits: 8 }, { pageTokens: 8 }, { maxContext: 30 }]) {
    const cache = lm.makeCache(network as lm.CausalNetwork, options)
    const prompt = promptOf(40)
    let count = 0
    for await (const _piece of lm.stream({ network, ...model }, prompt, { ...settings, cache, ...options }))
      if (++count === 5) break
    expect(lm.cacheLength(cache), JSON.stringify(options)).toBe(prompt.length + 4)
  }
})

test("compiled steps use changed weights", async () => {
  const model = await lm.load(writeCheckpoint("llama", join(scratch, "changed")))
  const prompt = promptOf(12)
  const run = (compile: boolean): Promise<number[]> =>
    written(lm.stream(model, prompt, { ...settings, compile }))
  const before = await run(true)
  lm.quantize(model, { bits: 2, groupSize: 32 })
  const want = await run(false)
  expect(want).not.toEqual(before)
  expect(await run(true)).toEqual(want)
})

test("sampled tokens are the same, compiled or not", async () => {
  const options = { temperature: 0.8, topK: 20, seed: 7 }
  expect(await alone("llama", promptOf(9), { ...options, compile: true })).toEqual(
    await alone("llama", promptOf(9), options),
  )
})
