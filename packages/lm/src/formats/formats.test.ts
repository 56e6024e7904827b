/** Models are unchanged after saving and loading. */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as mx from "@lazuli/core"
import { isPlainObject } from "@lazuli/core/engine"
import * as lm from "@lazuli/lm"
import { afterAll, describe, expect, test } from "vitest"
import "@lazuli/backend-cpu"
import { type Tiny, tiny, writeCheckpoint } from "../../test/checkpoints"
import { forGguf } from "../../test/gguf-checkpoints"
import { VOCABULARY } from "../../test/tokenizer"
import { Pass } from "../models/attend"
import type { JsonObject } from "../models/settings"
import { packedLayers } from "./packed"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-formats-"))
afterAll(() => rmSync(scratch, { recursive: true }))
const at = (name: string): string => join(scratch, name)
const TOKENS = mx.array([Array.from({ length: 24 }, (_, i) => (i * 37 + 11) % 256)], mx.int32)

const logits = ({ network }: lm.LoadedModel): mx.Array => (network as lm.CausalNetwork).forward(TOKENS)
const distance = (a: mx.Array, b: mx.Array): number => a.subtract(b).abs().max().item() as number

test("sharded weights load as one model, with progress", async () => {
  const seen: number[] = []
  const whole = await lm.load(writeCheckpoint("llama", at("whole")))
  const shards = await lm.load(writeCheckpoint("llama", at("shards"), 3), {
    onProgress: (done, total) => seen.push(done / total),
  })
  expect(distance(logits(whole), logits(shards))).toBe(0)
  expect(seen).toEqual([...seen].sort((a, b) => a - b))
  // More than one for each shard.
  expect(seen.length).toBeGreaterThan(10)
  expect([seen[0], seen.at(-1)]).toEqual([0, 1])
})

test("an index with files outside the folder, or missing ones, is rejected", async () => {
  const folder = writeCheckpoint("llama", at("bad"), 2)
  const index = (map: object): void =>
    writeFileSync(join(folder, "model.safetensors.index.json"), JSON.stringify({ weight_map: map }))
  index({ a: "../whole/model.safetensors" })
  await expect(lm.load(folder)).rejects.toThrow(/is not a file in the folder/)
  index({ a: "model-9.safetensors" })
  await expect(lm.load(folder)).rejects.toThrow(/model-9.safetensors, listed in .* is missing/)
})

test.each([
  ["gemma3", { use_bidirectional_attention: true }],
  ["bert", { position_embedding_type: "relative_key" }],
  ["gpt2", { add_cross_attention: true }],
])("a %s with %j is refused", (name, values) => {
  const config = tiny[name].config as JsonObject
  lm.fromConfig(config)
  expect(() => lm.fromConfig({ ...config, ...values })).toThrow(
    new RegExp(`"${Object.keys(values)[0]}" .* is not supported`),
  )
})

test("a Qwen's sliding windows begin at layer 28 by default", () => {
  const config = { ...tiny.qwen2.config, num_hidden_layers: 29, use_sliding_window: true, sliding_window: 8 }
  const { network } = lm.fromConfig(config as JsonObject)
  const windows = (network as lm.CausalNetwork).layerShapes().map(({ window }) => window)
  expect(windows).toEqual([...Array.from({ length: 28 }, () => null), 8])
})

test("GPT-2 scales scores as its config says", async () => {
  const folder = writeCheckpoint("gpt2", at("gpt2"))
  const { config, tensors } = tiny.gpt2
  const scaled = async (values: object, layer: number, factor: number): Promise<number> => {
    const other = { config: { ...config, ...values }, tensors }
    const loaded = await lm.load(writeCheckpoint("gpt2", at("gpt2-scaled"), 1, other))
    // The same by larger queries of one layer, or of both.
    const plain = await lm.load(folder)
    const weights = mx.treeFlatten(plain.network.parameters()) as [string, mx.Array][]
    const HIDDEN = Number(config.n_embd)
    const larger = weights.map(([name, w]): [string, mx.Array] => {
      if (!/c_attn/.test(name) || !(layer < 0 || name.includes(`h.${layer}.`))) return [name, w]
      const [q, rest] = mx.split(w, [HIDDEN], 0)
      return [name, mx.concatenate([q.multiply(factor), rest], 0)]
    })
    plain.network.update(mx.treeUnflatten(larger) as never)
    expect(distance(logits(plain), logits(await lm.load(folder)))).toBeGreaterThan(1e-3)
    return distance(logits(loaded), logits(plain))
  }
  const headDim = Number(config.n_embd) / Number(config.n_head)
  expect(await scaled({ scale_attn_by_inverse_layer_idx: true }, 1, 0.5)).toBeLessThan(1e-4)
  expect(await scaled({ scale_attn_weights: false }, -1, Math.sqrt(headDim))).toBeLessThan(1e-3)
})

test.each([
  [{ hidden_act: "constructor" }, /the activation "constructor" is not supported/],
  [
    { num_attention_heads: 3, head_dim: null },
    /"hidden_size" 64 is not divisible by "num_attention_heads" 3/,
  ],
  [{ num_key_value_heads: 3 }, /"num_attention_heads" 4 is not divisible by "num_key_value_heads" 3/],
  [{ num_hidden_layers: 1e9 }, /"num_hidden_layers" must be a positive integer of at most 10000/],
  [{ head_dim: 1e15 }, /"head_dim" must be a positive integer of at most 65536/],
  [{ rope_theta: 0 }, /"rope_theta" must be a positive number/],
  [{ rope_scaling: { rope_type: "yarn", factor: -2 } }, /"factor" must be a positive number/],
  [{ sliding_window: 4, layer_types: ["full_attention"] }, /"layer_types" must be .* for each layer/],
  [{ layer_types: ["full_attention", "linear_attention"] }, /received full_attention, linear_attention/],
  [{ attn_logit_softcapping: 30 }, /"attn_logit_softcapping" 30 is not supported for this model_type/],
  [{ residual_multiplier: 0.2 }, /"residual_multiplier" 0.2/],
  [{ eos_token_id: "257" }, /"eos_token_id" must be a token id or a list/],
] as const)("the config %j is refused", async (values, reason) => {
  const config = { ...tiny.llama.config, ...values }
  const folder = writeCheckpoint("llama", at("refused"), 1, { ...tiny.llama, config })
  const refused = expect(lm.load(folder)).rejects
  await refused.toThrow(reason)
  await expect(lm.load(folder)).rejects.toBeInstanceOf(mx.FormatError)
})

test("experts that are missing, and too many for a token, are refused", async () => {
  const { config, tensors } = tiny.mixtral
  const missing = Object.entries(tensors).map(([name, shape]) => [
    name.replace("experts.3.", "experts.7."),
    shape,
  ])
  const folder = writeCheckpoint("mixtral", at("missing"), 1, {
    config,
    tensors: Object.fromEntries(missing),
  })
  await expect(lm.load(folder)).rejects.toThrow(/the experts of ".*" are not numbered from 0 to 3/)
  const many = { ...config, num_experts_per_tok: 5 }
  await expect(lm.load(writeCheckpoint("mixtral", at("many"), 1, { config: many, tensors }))).rejects.toThrow(
    /a token cannot have 5 of 4 experts/,
  )
})

test("a folder with other files is not replaced", async () => {
  const model = await lm.load(writeCheckpoint("llama", at("kept")))
  mkdirSync(at("notes"))
  lm.save(model, at("notes"))
  lm.save(model, at("notes"))
  writeFileSync(join(at("notes"), "diary.txt"), "mine")
  expect(() => lm.save(model, at("notes"))).toThrow(/notes has other files than a model's/)
  expect(() => lm.save(model, join(at("notes"), "diary.txt"))).toThrow(/diary.txt has other files than/)
  expect(readdirSync(at("notes"))).toContain("diary.txt")
})

test("GPT-2 may have a head of its own", async () => {
  const { config, tensors } = tiny.gpt2
  const untied: Tiny = {
    config: { ...config, tie_word_embeddings: false },
    tensors: { ...tensors, "lm_head.weight": [VOCABULARY, 64] },
  }
  const folder = writeCheckpoint("gpt2", at("untied"), 1, untied)
  const model = await lm.load(folder)
  const [tied, got] = [await lm.load(writeCheckpoint("gpt2", at("tied"))), logits(model)]
  const hidden = (tied.network as lm.CausalNetwork).hidden(TOKENS, null, new Pass())
  const head = mx.load(join(folder, "model.safetensors"), "safetensors")["lm_head.weight"]
  expect(distance(got, mx.matmul(hidden, head.T))).toBeLessThan(1e-4)
  for (const saved of [at("untied-saved"), at("untied.gguf")]) {
    lm.save(model, saved)
    expect(distance(logits(await lm.load(saved)), got)).toBeLessThan(1e-4)
  }
})

test("formats of single layers have the checkpoint's names, as mlx-lm writes them for multimodal models", async () => {
  const model = await lm.load(writeCheckpoint("gemma3", at("mixed")))
  const choose = (name: string) => ({ bits: name.endsWith("down_proj") ? 8 : 4 })
  const mixed = lm.quantize(model, { groupSize: 32, choose })
  lm.save(mixed, at("mixed-saved"))
  const file = join(at("mixed-saved"), "model.safetensors")
  const prefixed = (pairs: [string, unknown][], isLayer: (name: string) => boolean) =>
    Object.fromEntries(
      pairs.map(([name, value]) => [isLayer(name) ? `language_model.${name}` : name, value]),
    ) as never
  mx.saveSafetensors(
    file,
    prefixed(Object.entries(mx.load(file, "safetensors")), () => true),
  )
  const quantization = prefixed(Object.entries(mixed.config.part("quantization")!.values), (name) =>
    name.startsWith("model."),
  )
  const config = { ...mixed.config.values, quantization }
  writeFileSync(join(at("mixed-saved"), "config.json"), JSON.stringify(config))
  expect(distance(logits(await lm.load(at("mixed-saved"))), logits(mixed))).toBe(0)
})

describe.each([
  ["mixtral", 7],
  ["qwen2-moe", 15],
  ["qwen3-moe-all", 11],
] as const)("the experts of %s", (name, floatTensors) => {
  test.each([
    [{}, { group_size: 64, bits: 4, mode: "affine" }],
    [{ bits: 8 }, { group_size: 64, bits: 8, mode: "affine" }],
    [{ mode: "mxfp4" }, { group_size: 32, bits: 4, mode: "mxfp4" }],
    [{ mode: "mxfp8" }, { group_size: 32, bits: 8, mode: "mxfp8" }],
    [{ mode: "nvfp4" }, { group_size: 16, bits: 4, mode: "nvfp4" }],
  ] as const)("quantized by %j have their format in folders and GGUF files", async (options, format) => {
    const folder = writeCheckpoint(name, at("moe-dense"), 1, forGguf[name])
    const model = lm.quantize(await lm.load(folder, { dtype: mx.float16 }), options)
    const { quantization } = model.config.values as { quantization: JsonObject }
    const layers = Object.entries(quantization).filter(([, own]) => isPlainObject(own))
    // Of the layers, routers alone have another format.
    const router = { group_size: 64, bits: 8, mode: "affine" }
    const routers = [...packedLayers(model.network).keys()].filter((layer) => layer.endsWith("gate"))
    expect(routers.length).toBe(name === "qwen2-moe" ? 4 : 2)
    const others = "mode" in options || !("bits" in options) ? routers.map((layer) => [layer, router]) : []
    expect(layers).toEqual(others)
    expect(quantization).toEqual({ ...format, ...Object.fromEntries(layers) })
    const want = logits(model)
    lm.save(model, at("moe-packed"))
    expect(distance(want, logits(await lm.load(at("moe-packed"))))).toBe(0)
    lm.save(model, at("moe-packed.gguf"))
    const again = await lm.load(at("moe-packed.gguf"))
    // In the middle: routers are rounded, so that a token may get another expert.
    const errors = mx.sort(want.subtract(logits(again)).abs().flatten().astype(mx.float32))
    expect(errors.index(errors.size / 2).item()).toBeLessThan(0.01)
    // llama.cpp has routers in float32, as it has norms and biases.
    expect(again.stored?.find(({ type }) => type === "F32")?.tensors).toBe(floatTensors)
  })
})

test("Qwen 3's experts have the count and windows of transformers", async () => {
  const { config, tensors } = tiny["qwen3-moe"]
  const { num_experts, ...others } = config
  const want = await lm.load(writeCheckpoint("qwen3-moe", at("experts")))
  const renamed = { tensors, config: { ...others, num_local_experts: num_experts } }
  const got = await lm.load(writeCheckpoint("qwen3-moe", at("local-experts"), 1, renamed))
  expect(distance(logits(got), logits(want))).toBe(0)
  const slides = { tensors, config: { ...config, use_sliding_window: true, sliding_window: 8 } }
  const { network } = await lm.load(writeCheckpoint("qwen3-moe", at("sliding-experts"), 1, slides))
  expect((network as lm.CausalNetwork).layerShapes().map(({ window }) => window)).toEqual([8, 8])
})

test.each([
  ["llama", { torch_dtype: "float32" }],
  ["llama", { dtype: "float32" }],
  ["gemma3", { text_config: { torch_dtype: "float32" }, dtype: "float32" }],
] as const)("the config of a saved %s with %j has the dtype of its weights", async (name, dtypes) => {
  const { config, tensors } = tiny[name]
  const { torch_dtype: _, ...others } = config
  const given = { ...others, ...dtypes }
  const folder = writeCheckpoint(name, at("dtyped"), 1, { config: given, tensors })
  const saved = async (model: lm.LoadedModel): Promise<unknown> => {
    lm.save(model, at("dtyped-saved"))
    return JSON.parse(readFileSync(join(at("dtyped-saved"), "config.json"), "utf8"))
  }
  expect(await saved(await lm.load(folder))).toEqual(given)
  const half = JSON.parse(JSON.stringify(given).replaceAll("float32", "bfloat16"))
  const model = await lm.load(folder, { dtype: mx.bfloat16 })
  expect(await saved(model)).toEqual(half)
  expect(await saved(lm.quantize(model))).toMatchObject(half)
})

test("generation_config.json is kept", async () => {
  const folder = writeCheckpoint("llama", at("sampling"))
  const generation = { eos_token_id: 257, temperature: 0.6, top_p: 0.9, _from_model_config: true }
  writeFileSync(join(folder, "generation_config.json"), JSON.stringify(generation))
  const model = await lm.load(folder)
  expect(model.generationConfig).toEqual(generation)
  lm.save(lm.quantize(model), at("sampling-saved"))
  const again = await lm.load(at("sampling-saved"))
  expect(again.generationConfig).toEqual(generation)
  expect([...again.eosIds!]).toEqual([...model.eosIds!])
})

test("a model is saved at a path with a slash at its end", async () => {
  const model = await lm.load(writeCheckpoint("llama", at("slash")))
  for (let times = 0; times < 2; times++) lm.save(model, `${at("ended")}/`)
  expect(readdirSync(at("ended"))).toContain("model.safetensors")
  expect(readdirSync(scratch).filter((name) => name.startsWith("ended"))).toEqual(["ended"])
})

test.each(["mean", "first", "last"] as const)("the pooling %s is saved with a model", async (pooling) => {
  const folder = writeCheckpoint("bert", at("embedder"))
  const model = { ...(await lm.load(folder)), pooling }
  const [want] = await lm.embed(model, ["the end"])
  const saved = at("embedder-saved")
  for (let times = 0; times < 2; times++) lm.save(model, saved)
  const got = await lm.load(saved)
  expect(got.pooling).toBe(pooling)
  expect((await lm.embed(got, ["the end"]))[0]).toEqual(want)
  lm.save(lm.quantize(got), at("embedder-packed"))
  expect((await lm.load(at("embedder-packed"))).pooling).toBe(pooling)
  writeFileSync(join(saved, "1_Pooling", "diary.txt"), "mine")
  expect(() => lm.save(model, saved)).toThrow(/has other files than a model's/)
  rmSync(saved, { recursive: true })
})

test("a model whose embeddings are not supported is not saved as another one", async () => {
  const model = await lm.load(writeCheckpoint("bert", at("dense-embedder")))
  expect(() => lm.save({ ...model, pooling: "x.Dense" }, at("dense-saved"))).toThrow(
    "[save] embeddings by x.Dense are not supported",
  )
  lm.save({ ...model, pooling: undefined }, at("dense-saved"))
  expect((await lm.load(at("dense-saved"))).pooling).toBe(undefined)
})

test("integers in place of weights are refused", async () => {
  const folder = writeCheckpoint("llama", at("integers"))
  const file = join(folder, "model.safetensors")
  const weights = mx.load(file, "safetensors")
  mx.saveSafetensors(file, { ...weights, "model.norm.weight": mx.ones([64], mx.int32) })
  await expect(lm.load(folder)).rejects.toThrow(/"model.norm.weight" are int32, not floating-point/)
})

test("weights of other quantization methods are refused by name", async () => {
  const config = { ...tiny.llama.config, quantization_config: { quant_method: "gptq", bits: 4 } }
  const folder = writeCheckpoint("llama", at("gptq"), 1, { ...tiny.llama, config })
  await expect(lm.load(folder)).rejects.toThrow(/weights quantized by gptq are not supported/)
})

test.each(Object.keys(tiny).filter((name) => !name.includes("bert")))(
  "%s is unchanged after saving and loading",
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
] as const)("%s quantized by %j is unchanged after saving and loading", async (name, options) => {
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
  expect(() => lm.quantize(again)).toThrow(/already quantized/)
  // The old folder was replaced, and no temporary one is left.
  expect(readdirSync(scratch).filter((entry) => entry.startsWith("packed"))).toEqual(["packed"])
})
