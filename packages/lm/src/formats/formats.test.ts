/** Models go from one format to another and stay what they were. */
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as mx from "@lazuli/core"
import * as lm from "@lazuli/lm"
import { afterAll, expect, test } from "vitest"
import "@lazuli/backend-cpu"
import { tiny, tinyWeights, writeCheckpoint } from "../../test/checkpoints"
import { writeGguf } from "../../test/gguf"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-formats-"))
afterAll(() => rmSync(scratch, { recursive: true }))
const at = (name: string): string => join(scratch, name)
const TOKENS = mx.array([Array.from({ length: 24 }, (_, i) => (i * 37 + 11) % 256)], mx.int32)

const logits = ({ network }: lm.LoadedModel): mx.Array => (network as lm.CausalNetwork).forward(TOKENS)
const distance = (a: mx.Array, b: mx.Array): number => a.subtract(b).abs().max().item() as number

test("several files are one model, and tell how far they are", async () => {
  const seen: number[] = []
  const whole = await lm.load(writeCheckpoint("llama", at("whole")))
  const shards = await lm.load(writeCheckpoint("llama", at("shards"), 3), {
    onProgress: (done, total) => seen.push(done / total),
  })
  expect(distance(logits(whole), logits(shards))).toBe(0)
  expect(seen).toEqual([...seen].sort((a, b) => a - b))
  expect([seen.length, seen[0], seen.at(-1)]).toEqual([4, 0, 1])
})

test("an index that leads out of the folder, and files that are missing, are refused", async () => {
  const folder = writeCheckpoint("llama", at("bad"), 2)
  const index = (map: object): void =>
    writeFileSync(join(folder, "model.safetensors.index.json"), JSON.stringify({ weight_map: map }))
  index({ a: "../whole/model.safetensors" })
  await expect(lm.load(folder)).rejects.toThrow(/is no file of it/)
  index({ a: "model-9.safetensors" })
  await expect(lm.load(folder)).rejects.toThrow(/lacks model-9.safetensors/)
})

test.each(Object.keys(tiny).filter((name) => !name.startsWith("bert")))(
  "%s is what it was, saved and loaded",
  async (name) => {
    const model = await lm.load(writeCheckpoint(name, at(name)))
    lm.save(model, at(`${name}-saved`), { maxShardBytes: 100_000 })
    const again = await lm.load(at(`${name}-saved`))
    expect(distance(logits(model), logits(again))).toBe(0)
    expect(again.tokenizer?.encode("in the end")).toEqual(model.tokenizer?.encode("in the end"))
    expect(again.tokenizer?.eosIds).toEqual(model.tokenizer?.eosIds)
  },
)

test.each([
  ["llama", { bits: 8 }],
  ["llama", { bits: 4, groupSize: 32 }],
  ["qwen2-moe", { bits: 8, groupSize: 32 }],
  ["gemma2", { mode: "mxfp8" }],
  ["llama", { mode: "mxfp4" }],
  ["llama", { mode: "nvfp4" }],
] as const)("%s quantized %j loads as it was saved", async (name, options) => {
  const model = await lm.load(writeCheckpoint(name, at(`${name}-dense`)))
  const dense = logits(model)
  mx.eval(dense)
  const packed = lm.quantize(model, {
    ...options,
    choose: (layer) => (layer.endsWith("v_proj") ? options : !layer.endsWith("mlp.gate")),
  })
  const want = logits(packed)
  expect(distance(dense, want)).toBeGreaterThan(0)
  lm.save(packed, at("packed"))
  const again = await lm.load(at("packed"))
  expect(distance(want, logits(again))).toBe(0)
  expect(() => lm.quantize(again)).toThrow(/quantized already/)
  // In place of the folder that was there, and nothing beside it.
  expect(readdirSync(scratch).filter((entry) => entry.startsWith("packed"))).toEqual(["packed"])
})

test.each(["llama", "qwen2", "qwen3"])("%s from a GGUF file", async (name) => {
  const want = await lm.load(writeCheckpoint(name, at(`${name}-hub`)))
  const file = writeGguf(at(`${name}.gguf`), tiny[name].config, tinyWeights(name))
  const got = await lm.load(file)
  expect(distance(logits(want), logits(got))).toBeLessThan(1e-5)
  const text = "in the 東京, the end"
  expect(got.tokenizer?.encode(text)).toEqual(want.tokenizer?.encode(text))
  const messages = [{ role: "user", content: "the" }]
  expect(got.tokenizer?.prompt(messages)).toBe(want.tokenizer?.prompt(messages))
  const options = { maxTokens: 8 }
  expect(await lm.generate(got, messages, options)).toBe(await lm.generate(want, messages, options))
})

test("packed GGUF weights stay packed, give what they stand for, and go on as a folder", async () => {
  const file = writeGguf(at("packed.gguf"), tiny.llama.config, tinyWeights("llama"), "Q8_0")
  const got = await lm.load(file)
  expect(got.config.part("quantization")?.values).toMatchObject({ group_size: 32, bits: 8, mode: "affine" })
  const packed = logits(got)
  const want = await lm.load(at("llama-hub"))
  const drift = packed.subtract(logits(want))
  expect(drift.square().mean().sqrt().item()).toBeLessThan(0.05)
  lm.save(got, at("from-gguf"))
  expect(distance(packed, logits(await lm.load(at("from-gguf"))))).toBe(0)
})

test("a GGUF file of another architecture is refused by name", async () => {
  mx.saveGguf(at("other.gguf"), { x: mx.ones([1]) }, { "general.architecture": "mamba" })
  await expect(lm.load(at("other.gguf"))).rejects.toThrow(/"mamba" is not read from GGUF/)
})
