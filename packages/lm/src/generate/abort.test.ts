/** Memory after an abort: caches are freed at once, and nothing is left after garbage collection. */
import * as mx from "@lazuli/core"
import * as lm from "@lazuli/lm"
import { expect, test } from "vitest"
import "@lazuli/backend-cpu"
import { tiny } from "../../test/checkpoints"

/** Many layers, so that a cache is much larger than one layer's activations. */
const LAYERS = 16
const deep = (config: object): lm.LoadedModel =>
  lm.fromConfig({ ...(tiny.llama.config as object), num_hidden_layers: LAYERS, head_dim: 32, ...config })
const llama = deep({})
const mistral = deep({ model_type: "mistral", sliding_window: 1024 })

const LENGTH = 2000
const prompt = (seed: number): number[] => Array.from({ length: LENGTH }, (_, i) => (i * 7 + seed) % 250)
/** Bytes of a prompt's keys and values: two heads of 32 features in each layer. */
const CACHE = LENGTH * LAYERS * 2 * 2 * 32 * 4
const enough = new Error("enough")

/** Reads until a number of pieces, then aborts. */
async function abortAfter(
  count: number,
  start: (signal: AbortSignal) => AsyncIterable<lm.Piece>,
): Promise<void> {
  const controller = new AbortController()
  let seen = 0
  const read = async (): Promise<void> => {
    for await (const _ of start(controller.signal)) if (++seen === count) controller.abort(enough)
  }
  await expect(read()).rejects.toBe(enough)
  expect(seen).toBe(count)
}

const streamed =
  (model: lm.LoadedModel, options: lm.GenerateOptions = {}) =>
  (): Promise<void> =>
    abortAfter(3, (signal) =>
      lm.stream(model, prompt(1), { ignoreEos: true, prefillStep: LENGTH, ...options, signal }),
    )

/** Aborts while the prompt is processed. */
const prefilled =
  (model: lm.LoadedModel, options: lm.GenerateOptions = {}) =>
  async (): Promise<void> => {
    const controller = new AbortController()
    const onPrefill = (done: number): void => {
      if (done >= LENGTH / 2) controller.abort(enough)
    }
    const text = lm.generate(model, prompt(1), { ...options, onPrefill, signal: controller.signal })
    await expect(text).rejects.toBe(enough)
  }

const pause = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 5))

/** Aborts one of two requests, and then the other. */
const batched =
  (model: lm.LoadedModel, options: lm.BatchOptions = {}) =>
  async (): Promise<void> => {
    const batch = new lm.Batcher(model, { prefillStep: LENGTH, ...options })
    await Promise.all(
      [2, 6].map((count) =>
        abortAfter(count, (signal) =>
          batch.stream(prompt(count), { ignoreEos: true, maxTokens: 100, signal }),
        ),
      ),
    )
    // The step in progress ends by itself.
    for (let i = 0; i < 20; i++) await pause()
    expect(batch.stats()).toMatchObject({ active: 0, waiting: 0, cacheBytes: 0 })
    batch.close()
  }

/**
 * The memory in use once it no longer changes. What runs when a request is aborted ends by itself, on busy machines after a while: memory
 * that is still in use by it must not be counted as memory that was there before.
 */
async function settled(): Promise<number> {
  let [last, same] = [Number.NaN, 0]
  for (let i = 0; i < 200 && same < 5; i++) {
    await pause()
    mx.synchronize()
    mx.memoryReport()
    const now = mx.getActiveMemory()
    same = now === last ? same + 1 : 0
    last = now
  }
  return last
}

test.each<[string, () => Promise<void>]>([
  ["a stream", streamed(llama)],
  ["a stream without compiled steps", streamed(llama, { compile: false })],
  ["a stream that samples", streamed(llama, { temperature: 1, topK: 5, topP: 0.9, logprobs: 2 })],
  ["a stream with penalties", streamed(llama, { repetitionPenalty: 1.1, frequencyPenalty: 1 })],
  ["a stream with a sliding window", streamed(mistral)],
  ["a stream with pages", streamed(llama, { pageTokens: 64 })],
  ["a stream with a quantized cache", streamed(llama, { cacheBits: 8 })],
  ["a speculative run", streamed(llama, { draft: mistral })],
  ["a prompt", prefilled(llama)],
  ["a prompt with a sliding window", prefilled(mistral)],
  ["a prompt with pages", prefilled(llama, { pageTokens: 64 })],
  ["a prompt with a quantized cache", prefilled(llama, { cacheBits: 6 })],
  ["a prompt of a speculative run", prefilled(llama, { draft: mistral })],
  ["requests of a batch", batched(llama)],
  ["requests of an exact batch", batched(llama, { exact: true })],
  ["requests of a batch without compiled steps", batched(llama, { compile: false })],
  ["requests of a batch with pages", batched(llama, { pageTokens: 64 })],
  ["requests of a batch with stored prefixes", batched(llama, { prefixBytes: 1e7 })],
  ["requests of such a batch with stored prefixes", batched(llama, { compile: false, prefixBytes: 1e7 })],
])("%s", async (_, run) => {
  // Makes what stays: compiled programs.
  await run()
  const before = await settled()
  await run()
  const atOnce = mx.getActiveMemory() - before
  const left = (await settled()) - before
  expect(left).toBe(0)
  expect(atOnce).toBeLessThan(CACHE / 2)
})
