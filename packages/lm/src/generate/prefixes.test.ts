/** The prefix store with sliding windows, whose caches cannot always be trimmed. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as lm from "@lazuli/lm"
import { afterAll, beforeAll, expect, test } from "vitest"
import "@lazuli/backend-cpu"
import { writeCheckpoint } from "../../test/checkpoints"
import { maxCacheSize } from "./caches"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-prefixes-"))
afterAll(() => rmSync(scratch, { recursive: true }))
let llama: lm.LoadedModel
let mistral: lm.LoadedModel
beforeAll(async () => {
  const load = (name: string): Promise<lm.LoadedModel> => lm.load(writeCheckpoint(name, join(scratch, name)))
  ;[llama, mistral] = await Promise.all([load("llama"), load("mistral")])
})

const prompt = (seed: number, length: number): number[] =>
  Array.from({ length }, (_, i) => (i * i * 7 + i * seed + 3) % 250)

/** Processes tokens in chunks of 64, so that windows move. */
async function cacheOf({ network, ...rest }: lm.LoadedModel, tokens: number[]): Promise<lm.Cache> {
  const cache = lm.makeCache(network as lm.CausalNetwork)
  for await (const _ of lm.stream({ network, ...rest }, tokens, { cache, maxTokens: 1, prefillStep: 64 }));
  return cache
}

test("a longer entry that cannot be trimmed hides and replaces no shorter one", async () => {
  const store = new lm.PrefixStore(1e9)
  const short = prompt(1, 20)
  const long = [...short, ...prompt(2, 600)]
  store.add(short, await cacheOf(mistral, short))
  store.add(long, await cacheOf(mistral, long))
  expect(lm.cacheLength(store.find([...short, 240, 241]) ?? [])).toBe(20)
  expect(lm.cacheLength(store.find([...long, 240]) ?? [])).toBe(620)
  // Plain caches can be trimmed to any length, and replace their prefixes.
  const plain = new lm.PrefixStore(1e9)
  plain.add(short, await cacheOf(llama, short))
  plain.add(long, await cacheOf(llama, long))
  expect(plain.nbytes).toBe(lm.cacheBytes(await cacheOf(llama, long)))
  expect(lm.cacheLength(plain.find([...short, 240, 241]) ?? [])).toBe(20)
})

test.each([
  ["plain", "llama", {}],
  ["quantized", "llama-wide", { cacheBits: 8 }],
] as const)(
  "a short prompt does not take over the capacity of a long one: %s caches",
  async (_, name, options) => {
    const model = name === "llama" ? llama : await lm.load(writeCheckpoint(name, join(scratch, name)))
    const one = maxCacheSize(model.network as lm.CausalNetwork, 40, 256, options)
    const long = prompt(5, 900)
    const maxCacheBytes = maxCacheSize(model.network as lm.CausalNetwork, 1024, 256, options)
    const batch = new lm.Batcher(model, { ...options, maxCacheBytes, prefixBytes: 1e9 })
    for await (const _ of batch.stream(long, { maxTokens: 2 }));
    let bytes = 0
    for await (const _ of batch.stream([...long.slice(0, 20), 9, 9], { maxTokens: 10, ignoreEos: true }))
      bytes = Math.max(bytes, batch.stats().cacheBytes)
    batch.close()
    expect(bytes).toBeGreaterThan(0)
    expect(bytes).toBeLessThanOrEqual(one)
  },
)
