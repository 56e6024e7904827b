import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import "@lazuli/backend-cpu"
import * as mx from "@lazuli/core"
import { afterAll, expect, test } from "vitest"
import { writeCheckpoint } from "../../test/checkpoints"
import * as lm from "../index"
import { Pass } from "../models/attend"
import { maxCacheSize } from "./caches"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-embed-"))
afterAll(() => rmSync(scratch, { recursive: true }))

/** Token ids of a text of some length. */
const textOf = (length: number): number[] => Array.from({ length }, (_, i) => 3 + ((i * 37 + length) % 200))

test.each(["llama", "gemma2", "mistral", "phi3-longrope"])(
  "embeddings of long texts of %s, processed in chunks, are those of one pass",
  async (kind) => {
    const model = await lm.load(writeCheckpoint(kind, join(scratch, kind)), { dtype: mx.float32 })
    const network = model.network as lm.CausalNetwork
    // More tokens together than a chunk has; the shorter texts end in different chunks.
    const texts = [textOf(600), textOf(5), textOf(170), textOf(171), textOf(400)]
    for (const pooling of ["last", "mean", "first"] as const) {
      const vectors = await lm.embed(model, texts, { pooling, normalize: false })
      texts.forEach((text, i) => {
        const hidden = network
          .hidden(mx.array([text], mx.int32), null, new Pass())
          .index(0)
          .astype(mx.float32)
        const want = { last: hidden.index(-1), first: hidden.index(0), mean: hidden.mean(0) }[pooling]
        expect(mx.abs(mx.array(vectors[i]).subtract(want)).max().item()).toBeLessThan(1e-4)
      })
    }
  },
)

test("other work gets its turn while a long text is embedded", async () => {
  const model = await lm.load(writeCheckpoint("llama", join(scratch, "turns")))
  let turns = 0
  const timer = setInterval(() => turns++, 0)
  const embedding = lm.embed(model, [textOf(6000)])
  await embedding
  clearInterval(timer)
  // Twelve chunks.
  expect(turns).toBeGreaterThan(4)
})

test("a long text takes no memory for the short ones beside it", async () => {
  const model = await lm.load(writeCheckpoint("llama", join(scratch, "beside")))
  const peakOf = async (texts: number[][]): Promise<number> => {
    mx.resetPeakMemory()
    const before = mx.getActiveMemory()
    expect(await lm.embed(model, texts)).toHaveLength(texts.length)
    return mx.getPeakMemory() - before
  }
  const short = Array.from({ length: 15 }, () => textOf(1))
  await peakOf([textOf(4000), ...short])
  // The least of several: at times the collector has not found yet what is dead.
  const beside: number[] = []
  for (let i = 0; i < 5; i++) beside.push(await peakOf([textOf(4000), ...short]))
  expect(Math.min(...beside)).toBeLessThan(1.5 * (await peakOf([textOf(4000)])))
})

test("the keys and values of texts have a limit", async () => {
  const model = await lm.load(writeCheckpoint("llama", join(scratch, "limited")))
  const texts = [textOf(300), ...Array.from({ length: 15 }, () => textOf(290))]
  const bytesOf = (length: number): number => maxCacheSize(model.network as lm.CausalNetwork, length, 512)
  const peakOf = async (maxCacheBytes?: number): Promise<[number, Float32Array[]]> => {
    mx.resetPeakMemory()
    const before = mx.getActiveMemory()
    const vectors = await lm.embed(model, texts, { maxCacheBytes })
    return [mx.getPeakMemory() - before, vectors]
  }
  const [, want] = await peakOf()
  const [free] = await peakOf()
  const [limited, vectors] = await peakOf(2 * bytesOf(300))
  vectors.forEach((vector, i) => {
    vector.forEach((x, k) => expect(x).toBeCloseTo(want[i][k], 4))
  })
  // The caches of two texts instead of sixteen.
  expect(limited).toBeLessThan(0.8 * free)
  await expect(lm.embed(model, texts, { maxCacheBytes: bytesOf(300) - 1 })).rejects.toThrow(
    "[embed] text 0 of 300 tokens does not fit maxCacheBytes. Split or truncate it",
  )
})

test("embeddings and scores that are not numbers are errors", async () => {
  const model = await lm.load(writeCheckpoint("llama", join(scratch, "damaged")))
  const reranker = await lm.load(writeCheckpoint("bert-reranker", join(scratch, "damaged-reranker")))
  for (const { network } of [model, reranker])
    network.update(mx.treeMap((x) => (x as mx.Array).multiply(NaN), network.parameters()) as never)
  await expect(lm.embed(model, ["the"])).rejects.toThrow(mx.NumericError)
  await expect(lm.rerank(reranker, "the", ["end"])).rejects.toThrow(/\[rerank\] the results are not numbers/)
})

test("embeddings are pooled as the model's folder says", async () => {
  const folder = writeCheckpoint("bert", join(scratch, "pooled"))
  const steps = (...types: string[]): void => {
    const list = types.map((type, i) => ({
      idx: i,
      type: `sentence_transformers.models.${type}`,
      path: i === 0 ? "" : `${i}_${type}`,
    }))
    writeFileSync(join(folder, "modules.json"), JSON.stringify(list))
  }
  mkdirSync(join(folder, "1_Pooling"))
  const modes = (...names: string[]): void => {
    const settings = Object.fromEntries(
      ["cls_token", "mean_tokens", "max_tokens", "lasttoken"].map((name) => [
        `pooling_mode_${name}`,
        names.includes(name),
      ]),
    )
    writeFileSync(
      join(folder, "1_Pooling", "config.json"),
      JSON.stringify({ word_embedding_dimension: 32, ...settings }),
    )
  }
  steps("Transformer", "Pooling", "Normalize")
  const first = async (): Promise<number[]> => [...(await lm.embed(await lm.load(folder), ["the end"]))[0]]
  const plain = await lm.load(writeCheckpoint("bert", join(scratch, "plain")))
  for (const [mode, pooling] of [
    ["cls_token", "first"],
    ["mean_tokens", "mean"],
    ["lasttoken", "last"],
  ] as const) {
    modes(mode)
    expect(await first()).toEqual([...(await lm.embed(plain, ["the end"], { pooling }))[0]])
  }
  modes("max_tokens")
  await expect(first()).rejects.toThrow(
    "pooled makes embeddings by pooling_mode_max_tokens, which is not supported",
  )
  modes("cls_token", "mean_tokens")
  await expect(first()).rejects.toThrow("by pooling_mode_cls_token and pooling_mode_mean_tokens")
  steps("Transformer", "Pooling", "Dense")
  await expect(first()).rejects.toThrow("by sentence_transformers.models.Dense")
  expect((await lm.embed(await lm.load(folder), ["the end"], { pooling: "mean" })).length).toBe(1)
  writeFileSync(join(folder, "modules.json"), '[{"type": "x.Pooling", "path": "../1"}]')
  await expect(first()).rejects.toThrow(mx.FormatError)
})
