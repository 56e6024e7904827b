/** Compares each family with logits of transformers, recorded by test/vectors.py. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import * as mx from "@lazuli/core"
import { CausalNetwork, embed, fromConfig, load, registerFamily, rerank } from "@lazuli/lm"
import { afterAll, expect, test } from "vitest"
import "@lazuli/backend-cpu"
import { type Tiny, tiny, writeCheckpoint } from "../../test/checkpoints"
import { gptOss, gptOssFamily } from "../../test/gpt-oss"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-vectors-"))
afterAll(() => rmSync(scratch, { recursive: true }))
const vectors = mx.load(
  fileURLToPath(new URL("../../test/vectors.safetensors", import.meta.url)),
  "safetensors",
)

/** GPT-OSS has attention sinks. It is a family that another package registers. */
const all: Record<string, Tiny> = { ...tiny, "gpt-oss": gptOss }
registerFamily(gptOssFamily)

const TOKENS = Array.from({ length: 24 }, (_, i) => (i * 37 + 11) % 256)
const POSITIONS = [0, 7, 15, 23]

test("every checkpoint has recorded vectors", () => {
  expect(Object.keys(vectors).sort()).toEqual(Object.keys(all).sort())
})

test.each(Object.keys(vectors))("%s", async (name) => {
  const { network } = await load(writeCheckpoint(name, join(scratch, name), 1, all[name]))
  const tokens = mx.array([TOKENS], mx.int32)
  const at = mx.array(POSITIONS, mx.int32)
  let got: mx.Array
  if (network instanceof CausalNetwork) got = network.forward(tokens).index(0, at)
  else {
    const hasTypes = Number(all[name].config.type_vocab_size) > 1
    const types = hasTypes ? mx.arange(24).greaterEqual(12).astype(mx.int32).expandDims(0) : null
    const hidden = network.hidden(tokens, types, null)
    got = network.scores ? network.score(hidden) : hidden.index(0, at)
  }
  const error = got.subtract(vectors[name]).abs().max().item()
  expect(error).toBeLessThan(1e-4)
})

test("Gemma 3's multimodal configs omit sizes of the text model", () => {
  const text_config = {
    ...{ model_type: "gemma3_text", hidden_size: 4, intermediate_size: 4 },
    ...{ num_hidden_layers: 1, sliding_window: 8 },
  }
  const network = fromConfig({ model_type: "gemma3", text_config }).network as CausalNetwork
  expect(network.vocabulary).toBe(262_208)
  expect(network.layerShapes()).toMatchObject([{ kvHeads: 4, headDim: 256, window: 8 }])
})

test("a reranker scores pairs, and padding does not change embeddings", async () => {
  const reranker = await load(writeCheckpoint("bert-reranker", join(scratch, "reranker")))
  const scores = await rerank(reranker, "the beginning", ["the end", "in"])
  const single = await Promise.all(["the end", "in"].map((text) => rerank(reranker, "the beginning", [text])))
  single.forEach(([score], i) => expect(scores[i]).toBeCloseTo(score, 5))
  const embedder = await load(writeCheckpoint("bert", join(scratch, "embedder")))
  const both = await embed(embedder, ["the end of the beginning", "in"])
  const [alone] = await embed(embedder, ["in"])
  both[1].forEach((value, i) => expect(value).toBeCloseTo(alone[i], 5))
  // Batches are sorted by length, results are not.
  const texts = Array.from({ length: 40 }, (_, i) => `${"the ".repeat((i * 7) % 11)}end`)
  const many = await embed(embedder, texts)
  for (const i of [0, 10, 25, 39]) {
    const [own] = await embed(embedder, [texts[i]])
    many[i].forEach((value, k) => expect(value).toBeCloseTo(own[k], 5))
  }
  await expect(rerank(embedder, "a", ["b"])).rejects.toThrow(/not a reranker/)
  await expect(embed(embedder, ["a"], { batchSize: 0 })).rejects.toThrow(
    /batchSize must be a positive integer/,
  )
  const long = "the ".repeat(70)
  const reason = /text 1 has \d+ tokens, the model supports 64/
  await expect(embed(embedder, ["in", long])).rejects.toThrow(reason)
  await expect(rerank(reranker, "a", ["in", long])).rejects.toThrow(reason)
  const roberta = await load(writeCheckpoint("xlm-roberta-reranker", join(scratch, "roberta")))
  expect((await rerank(roberta, "the beginning", ["the end"])).length).toBe(1)
})
