/** GGUF files: saving, loading, quantized weights, and llama.cpp's recorded log-probabilities (test/llama-cpp.ts). */
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import * as mx from "@lazuli/core"
import { blockFormats as unpacked } from "@lazuli/core/engine"
import * as lm from "@lazuli/lm"
import * as nn from "@lazuli/nn"
import { afterAll, describe, expect, test } from "vitest"
import "@lazuli/backend-cpu"
import { type Config, tiny, writeCheckpoint } from "../../test/checkpoints"
import { divergence, ggufCases, logprobs, POSITIONS, writeCase } from "../../test/gguf-cases"
import { forGguf } from "../../test/gguf-checkpoints"
import { writeJson } from "../../test/tokenizer"
import { blockFormats } from "./gguf-blocks"
import { float16Bits } from "./gguf-encode"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-gguf-"))
afterAll(() => rmSync(scratch, { recursive: true }))
const at = (name: string): string => join(scratch, name)
const recorded = mx.load(
  fileURLToPath(new URL("../../test/llama-cpp.safetensors", import.meta.url)),
  "safetensors",
)
const TOKENS = mx.array([Array.from({ length: 24 }, (_, i) => (i * 37 + 11) % 256)], mx.int32)
const logits = ({ network }: lm.LoadedModel): mx.Array => (network as lm.CausalNetwork).forward(TOKENS)
const distance = (a: mx.Array, b: mx.Array): number => a.subtract(b).abs().max().item() as number

/** Maximum divergence from the original model, by type. */
const QUALITY = {
  ...{ Q4_0: 0.1, Q4_1: 0.06, Q5_0: 0.03, Q5_1: 0.02, Q8_0: 0.0005 },
  ...{ Q4_K: 0.07, Q5_K: 0.02, Q6_K: 0.008 },
}

test("every case has llama.cpp's log-probabilities", () => {
  expect(Object.keys(recorded).sort()).toEqual(ggufCases.map(({ name, type }) => `${name}.${type}`).sort())
})

test.each(ggufCases)("$name as $type is near to llama.cpp", async (each) => {
  const { name, type, bound } = each
  const file = await writeCase(name, type, scratch)
  const [want, got] = [recorded[`${name}.${type}`], await logprobs(each, file)]
  expect(bound.by === "error" ? distance(got, want) : divergence(want, got)).toBeLessThan(bound.most)
})

test.each(["mistral", "llama-3", "qwen2", "gemma2-heads", "gpt2", "olmo2", "phi3-longrope", "mixtral"])(
  "%s is unchanged as a GGUF file",
  async (name) => {
    const want = await lm.load(writeCheckpoint(name, at(`${name}-hub`), 1, forGguf[name] ?? tiny[name]))
    lm.save(want, at(`${name}.gguf`))
    const got = await lm.load(at(`${name}.gguf`))
    expect(distance(logits(want), logits(got))).toBeLessThan(1e-5)
    const text = "in the 東京, the end"
    expect(got.tokenizer?.encode(text)).toEqual(want.tokenizer?.encode(text))
    const messages = [{ role: "user", content: "the" }]
    expect(got.tokenizer?.prompt(messages)).toBe(want.tokenizer?.prompt(messages))
    expect(got.tokenizer?.eosIds).toEqual(want.tokenizer?.eosIds)
    expect(await lm.generate(got, messages, { maxTokens: 8 })).toBe(
      await lm.generate(want, messages, { maxTokens: 8 }),
    )
  },
)

test.each(["bert", "bert-reranker"])("%s is unchanged as a GGUF file", async (name) => {
  const want = await lm.load(writeCheckpoint(name, at(name)))
  lm.save(want, at(`${name}.gguf`))
  const got = await lm.load(at(`${name}.gguf`))
  const [[a], [b]] = await Promise.all([want, got].map((model) => lm.embed(model, ["the beginning"])))
  expect(Math.max(...a.map((x, i) => Math.abs(x - b[i])))).toBeLessThan(1e-5)
  if (name === "bert") return
  const [[x], [y]] = await Promise.all([want, got].map((model) => lm.rerank(model, "the", ["end"])))
  expect(y).toBeCloseTo(x, 4)
})

test.each(["Q8_0", "Q4_0", "F16"] as const)("a Gemma of %s does not overflow", async (type) => {
  const name = "gemma3-heads"
  const model = await lm.load(writeCheckpoint(name, at("large"), 1, forGguf[name]))
  const weights = mx.treeFlatten(model.network.parameters()) as [string, mx.Array][]
  // Scaled by the root of the hidden size, these exceed 65504.
  const large = weights.map(([path, w]): [string, mx.Array] => [
    path,
    path.includes("embedTokens") ? w.multiply(4e4) : w,
  ])
  model.network.update(mx.treeUnflatten(large) as never)
  lm.save(model, at(`large.${type}.gguf`), { type })
  const got = logits(await lm.load(at(`large.${type}.gguf`)))
  expect(got.dtype).toBe(mx.bfloat16)
  expect(mx.isfinite(got).all().item()).toBe(true)
})

test("a packed Gemma is close to llama.cpp in its default dtype", async () => {
  const file = await writeCase("gemma3-heads", "Q8_0", scratch)
  const all = logits(await lm.load(file)).astype(mx.float32)
  const rows = all.index(0, mx.array(POSITIONS, mx.int32))
  const got = rows.subtract(mx.logsumexp(rows, -1, true))
  expect(divergence(recorded["gemma3-heads.Q8_0"], got)).toBeLessThan(0.01)
})

/** A model whose config.json has other values; null removes one. */
const varied = (name: string, values: Config): Promise<lm.LoadedModel> => {
  const made = forGguf[name] ?? tiny[name]
  return lm.load(
    writeCheckpoint(name, at(`varied-${name}`), 1, { ...made, config: { ...made.config, ...values } }),
  )
}
/** A model's file with other metadata; null removes a value. */
const withMetadata = (
  model: lm.LoadedModel,
  values: Record<string, mx.Array | null>,
): Promise<lm.LoadedModel> => {
  lm.save(model, at("metadata.gguf"))
  const [arrays, metadata] = mx.load(at("metadata.gguf") as "x.gguf", { returnMetadata: true })
  const changed = Object.entries({ ...metadata, ...values }).filter(([, value]) => value !== null)
  mx.saveGguf(at("metadata.gguf"), arrays, Object.fromEntries(changed) as typeof metadata)
  return lm.load(at("metadata.gguf"))
}
const factors = tiny["phi3-longrope"].config.rope_scaling as Record<string, number[]>
const half = (key: string): Config => ({ [key]: factors[key].slice(0, 4) })

test.each([
  ["phi3-plain", { partial_rotary_factor: 0.5 }],
  [
    "phi3-longrope",
    {
      partial_rotary_factor: 0.5,
      rope_scaling: { ...factors, ...half("short_factor"), ...half("long_factor") },
    },
  ],
  ["gemma3-heads", { layer_types: ["sliding_attention", "full_attention", "sliding_attention"] }],
  ["gemma3-heads", { layer_types: ["sliding_attention", "sliding_attention", "sliding_attention"] }],
  [
    "gemma3-heads",
    {
      ...{ rope_theta: null, rope_local_base_freq: null, rope_scaling: null },
      rope_parameters: {
        full_attention: { rope_type: "linear", factor: 8, rope_theta: 1e6 },
        sliding_attention: { rope_type: "default", rope_theta: 5000 },
      },
    },
  ],
  ["qwen2", { use_sliding_window: true, sliding_window: 4, max_window_layers: 2 }],
  ["olmo2", { rms_norm_eps: null }],
  ["gpt2", { activation_function: "gelu_pytorch_tanh" }],
] as [string, Config][])("%s with %j is unchanged as a GGUF file", async (name, values) => {
  const want = await varied(name, values)
  lm.save(want, at("varied.gguf"))
  expect(distance(logits(want), logits(await lm.load(at("varied.gguf"))))).toBeLessThan(1e-5)
})

test("Gemma 3's config with pictures, which omits defaults, is unchanged as a GGUF file", async () => {
  const { config, tensors } = forGguf["gemma3-heads"]
  const { num_attention_heads: _, num_key_value_heads: __, head_dim: ___, ...text } = config
  const rows = (name: string): number => (name.includes("q_proj") ? 2048 : 1024)
  const sizes = Object.entries(tensors).map(([name, shape]): [string, readonly number[]] => {
    if (/[qkv]_proj/.test(name)) return [name, [rows(name), shape[1]]]
    if (name.includes("o_proj")) return [name, [shape[0], 2048]]
    return [name, /[qk]_norm/.test(name) ? [256] : shape]
  })
  const made = {
    config: { model_type: "gemma3", text_config: { ...text, query_pre_attn_scalar: 256 } },
    tensors: Object.fromEntries(sizes),
  }
  const want = await lm.load(
    writeCheckpoint("gemma3-heads", at("pictures"), 1, made as (typeof tiny)[string]),
  )
  lm.save(want, at("pictures.gguf"))
  expect(distance(logits(want), logits(await lm.load(at("pictures.gguf"))))).toBeLessThan(1e-5)
})

test("saving a GGUF file leaves the random state as it was", async () => {
  const model = await lm.load(writeCheckpoint("llama", at("random")))
  mx.random.seed(1)
  const want = mx.random.uniform().item()
  mx.random.seed(1)
  lm.save(model, at("random.gguf"))
  expect(mx.random.uniform().item()).toBe(want)
})

test("Phi 3's window of zero is none", async () => {
  const model = await varied("phi3-plain", {})
  const got = await withMetadata(model, { "phi3.attention.sliding_window": mx.array(0, mx.uint32) })
  expect(distance(logits(model), logits(got))).toBeLessThan(1e-5)
})

test("Gemma 2's caps and window have llama.cpp's defaults", async () => {
  const model = await varied("gemma2-heads", {})
  const keys = ["attn_logit_softcapping", "final_logit_softcapping", "attention.sliding_window"]
  const got = await withMetadata(model, Object.fromEntries(keys.map((key) => [`gemma2.${key}`, null])))
  const { values } = got.config
  expect([values.attn_logit_softcapping, values.final_logit_softcapping]).toEqual([50, 30])
  expect(values.sliding_window).toBe(4096)
})

test("values may be given for each layer, if layers do not differ", async () => {
  const model = await varied("llama", {})
  const per = (...heads: number[]): Promise<lm.LoadedModel> =>
    withMetadata(model, { "llama.attention.head_count_kv": mx.array(heads, mx.uint32) })
  expect(distance(logits(model), logits(await per(2, 2)))).toBeLessThan(1e-5)
  await expect(per(2, 4)).rejects.toThrow(/llama\.attention\.head_count_kv differs by layer/)
})

test.each(["mean", "first", "last"] as const)(
  "the pooling %s is unchanged by a GGUF file",
  async (pooling) => {
    for (const name of ["bert", "qwen3"]) {
      const model = { ...(await varied(name, {})), pooling }
      lm.save(model, at("pooled.gguf"))
      const got = await lm.load(at("pooled.gguf"))
      expect(got.pooling).toBe(pooling)
      const [[a], [b]] = await Promise.all([model, got].map((each) => lm.embed(each, ["the beginning"])))
      expect(Math.max(...a.map((x, i) => Math.abs(x - b[i])))).toBeLessThan(1e-5)
    }
  },
)

describe("packed weights", () => {
  test.each(["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"] as const)(
    "of %s stay packed, with the results of dequantized ones",
    async (type) => {
      const got = await lm.load(await writeCase("llama-256", type, scratch), { dtype: mx.float32 })
      const packed = got.network.modules().filter((module) => module instanceof nn.QuantizedLinear)
      expect(packed.length).toBe(15)
      const want = logits(got)
      mx.eval(want)
      for (const layer of packed) {
        const { weight, scales, biases, groupSize, bits, mode } = layer
        const dense = mx.dequantize(weight, scales, biases, { groupSize, bits, mode })
        Object.assign(layer, { forward: (x: mx.Array) => mx.matmul(x, dense.T) })
      }
      expect(distance(want, logits(got))).toBeLessThan(1e-4)
    },
  )

  test.each([
    [{ bits: 4, groupSize: 32 }, 0],
    [{ bits: 4, groupSize: 64 }, 0],
    [{ bits: 5, groupSize: 32 }, 0],
    [{ mode: "mxfp4" }, 0],
    [{ bits: 8, groupSize: 32 }, 0.02],
    [{ mode: "mxfp8" }, 0.02],
  ] as const)("made by %j are copied to a GGUF file if it has their format", async (options, within) => {
    const model = lm.quantize(
      await lm.load(writeCheckpoint("llama", at("dense")), { dtype: mx.float16 }),
      options,
    )
    lm.save(model, at("quantized.gguf"))
    const got = await lm.load(at("quantized.gguf"))
    expect(distance(logits(model), logits(got))).toBeLessThanOrEqual(within)
    lm.save(got, at("from-gguf"))
    expect(distance(logits(got), logits(await lm.load(at("from-gguf"))))).toBe(0)
  })

  test("of experts stay packed when a file is saved again", async () => {
    const got = await lm.load(await writeCase("qwen2-moe", "Q8_0", scratch))
    lm.save(got, at("again.gguf"))
    expect(readFileSync(at("again.gguf")).length).toBe(readFileSync(at("qwen2-moe.Q8_0.gguf")).length)
    expect(distance(logits(got), logits(await lm.load(at("again.gguf"))))).toBe(0)
  })

  test.each(Object.entries(QUALITY))("of %s are close to the original weights", async (type, most) => {
    const each = {
      name: "llama-256",
      type: type as lm.GgufType,
      bound: { by: "divergence", most },
    } as const
    const kl = divergence(recorded["llama-256.F32"], await logprobs(each, at(`llama-256.${type}.gguf`)))
    expect(kl).toBeLessThan(most)
  })

  test("of Q3_K have the values of llama.cpp's loops", () => {
    const data = Uint8Array.from({ length: 220 }, (_, i) => (i * i * 31 + i * 7 + 3) % 251)
    for (const at of [108, 218]) data.set([0x66, 0x2e], at)
    const want = [0, 110].flatMap((at) => {
      const words = new DataView(data.buffer, at + 96, 12)
      const [a, b, c] = [0, 4, 8].map((k) => words.getUint32(k, true))
      const six = (low: number, high: number): number =>
        ((low & 0x0f0f0f0f) | ((high & 0x03030303) << 4)) >>> 0
      const packed = Uint32Array.of(six(a, c), six(b, c >>> 2), six(a >>> 4, c >>> 4), six(b >>> 4, c >>> 6))
      const scales = new Int8Array(packed.buffer)
      const out: number[] = []
      let [group, mask] = [0, 1]
      for (const low of [at + 32, at + 64])
        for (let shift = 0; shift < 8; shift += 2, mask <<= 1)
          for (const half of [0, 16]) {
            const scale = Math.fround(0.1) * (scales[group++] - 32)
            for (let l = half; l < half + 16; l++)
              out.push(scale * (((data[low + l] >> shift) & 3) - (data[at + l] & mask ? 0 : 4)))
          }
      return out
    })
    const [packed, scales, biases] = blockFormats.get(11)!.read(data, [2, 256])
    const got = mx.dequantize(packed, scales, biases, { bits: 4, groupSize: 16 })
    expect(distance(got, mx.array(want).reshape([2, 256]))).toBeLessThan(0.02)
  })

  test.each([
    [10, { bits: 2, groupSize: 16 }],
    [12, { bits: 4, groupSize: 32 }],
    [13, { bits: 5, groupSize: 32 }],
    [14, { bits: 6, groupSize: 16 }],
  ] as const)("of type %i have the values of mx.load", (type, format) => {
    const { bytes, read } = unpacked.get(type)!
    const data = Uint8Array.from({ length: 4 * bytes }, (_, i) => (i * i * 31 + i * 7 + 3) % 251)
    // Finite scales, of a magnitude at which float16 is precise.
    const scales = { 10: [80, 82], 12: [0, 2], 13: [0, 2], 14: [208] }[type]
    for (let block = 0; block < 4; block++)
      for (const at of scales) data.set([0x66, 0x2e], block * bytes + at)
    const [want] = read(data, [2, 512])
    const [packed, scale, bias] = blockFormats.get(type)!.read(data, [2, 512])
    const got = mx.dequantize(packed, scale, bias, format)
    const error = got
      .subtract(want)
      .abs()
      .subtract(want.abs().multiply(2 ** -10))
    expect(error.max().item()).toBeLessThan(1e-3)
  })

  test("have scales in float16, rounded to even", () => {
    for (const value of [0, 1, -2.5, 65504, 7e4, 6e-8, 3e-8, 1e-9, 0.1, 2049, -1e-5]) {
      const want = mx.array([value], mx.float16).view(mx.uint16).item()
      expect(float16Bits(value), String(value)).toBe(want)
    }
  })
})

test("experts may be separate tensors, as in older files", async () => {
  const want = await lm.load(writeCheckpoint("mixtral", at("experts")))
  lm.save(want, at("stacked.gguf"))
  const [arrays, metadata] = mx.load(at("stacked.gguf") as "x.gguf", { returnMetadata: true })
  const apart = Object.entries(arrays).flatMap(([name, array]) => {
    const [, head, which] = /^(blk\.\d+\.ffn_(?:gate|up|down))_(exps)/.exec(name) ?? []
    return which
      ? mx.split(array, array.shape[0], 0).map((one, i) => [`${head}.${i}.weight`, one.squeeze(0)] as const)
      : [[name, array] as const]
  })
  mx.saveGguf(at("apart.gguf"), Object.fromEntries(apart), metadata)
  expect(apart.length).toBeGreaterThan(Object.keys(arrays).length)
  expect(distance(logits(want), logits(await lm.load(at("apart.gguf"))))).toBeLessThan(1e-5)
})

test("loading reports progress", async () => {
  const seen: number[] = []
  const file = await writeCase("llama-256", "Q4_0", scratch)
  await lm.load(file, { onProgress: (done, total) => seen.push(done / total) })
  expect(seen.length).toBeGreaterThan(10)
  expect(seen).toEqual(seen.toSorted((a, b) => a - b))
  expect([seen[0], seen[seen.length - 1]]).toEqual([0, 1])
})

test("BERT's vocabulary is unchanged by a GGUF file", async () => {
  const folder = writeCheckpoint("bert", at("words"))
  const vocab: Record<string, number> = { "[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3 }
  for (const word of ["the", "end", "begin", "##ning", "##s", ",", "[", "ä"])
    vocab[word] = Object.keys(vocab).length
  const special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"].map((content, id) => ({
    ...{ id, content, special: true, single_word: false },
    ...{ lstrip: false, rstrip: false, normalized: false },
  }))
  const token = (id: string, type_id: number): object => ({ SpecialToken: { id, type_id } })
  writeJson(folder, "tokenizer.json", {
    ...{ version: "1.0", truncation: null, padding: null, added_tokens: special },
    normalizer: {
      type: "BertNormalizer",
      ...{ clean_text: true, handle_chinese_chars: true, strip_accents: null, lowercase: true },
    },
    pre_tokenizer: { type: "BertPreTokenizer" },
    post_processor: {
      type: "TemplateProcessing",
      single: [token("[CLS]", 0), { Sequence: { id: "A", type_id: 0 } }, token("[SEP]", 0)],
      pair: [
        ...[token("[CLS]", 0), { Sequence: { id: "A", type_id: 0 } }, token("[SEP]", 0)],
        ...[{ Sequence: { id: "B", type_id: 1 } }, token("[SEP]", 1)],
      ],
      special_tokens: {
        "[CLS]": { id: "[CLS]", ids: [2], tokens: ["[CLS]"] },
        "[SEP]": { id: "[SEP]", ids: [3], tokens: ["[SEP]"] },
      },
    },
    decoder: { type: "WordPiece", prefix: "##", cleanup: true },
    model: {
      type: "WordPiece",
      ...{ unk_token: "[UNK]", continuing_subword_prefix: "##", max_input_chars_per_word: 100, vocab },
    },
  })
  writeJson(folder, "tokenizer_config.json", { cls_token: "[CLS]", sep_token: "[SEP]", unk_token: "[UNK]" })
  const want = await lm.load(folder)
  lm.save(want, at("words.gguf"))
  const { tokenizer } = await lm.load(at("words.gguf"))
  for (const text of ["The beginnings, the end", "unknown [ends"])
    expect(tokenizer?.encode(text)).toEqual(want.tokenizer?.encode(text))
  expect(tokenizer?.encodePair("the end", "begin")).toEqual(want.tokenizer?.encodePair("the end", "begin"))
})

describe("rejected are", () => {
  test("other architectures, by name", async () => {
    mx.saveGguf(at("other.gguf"), { x: mx.ones([1]) }, { "general.architecture": "mamba" })
    await expect(lm.load(at("other.gguf"))).rejects.toThrow(/"mamba" is not supported in GGUF/)
  })

  test.each([
    ["llama-dynamic", /do not support the rope_type "dynamic"/],
    ["gemma2", /"query_pre_attn_scalar" is 20, but would be 16 in a GGUF file of gemma2/],
    ["qwen3-moe", /"mlp_only_layers" is \[1\], but would be \[\] in a GGUF file of qwen3moe/],
    ["qwen2-window", /"use_sliding_window" is true, but would be false in a GGUF file of qwen2/],
  ] as const)("%s, for which llama.cpp would compute something else", async (name, reason) => {
    const model = await lm.load(writeCheckpoint(name, at(`refused-${name}`)))
    expect(() => lm.save(model, at("refused.gguf"))).toThrow(reason)
  })

  test.each([
    ["llama", { hidden_act: "gelu" }, /"hidden_act" is "gelu", but would be missing in a GGUF file of llama/],
    [
      "llama",
      { layer_types: ["sliding_attention", "full_attention"], sliding_window: 4 },
      /"layer_types" is \["sliding_attention","full_attention"\], but would be missing/,
    ],
    ["llama", { rope_scaling: { rope_type: "yarn", factor: 4, beta_fast: 8, attention_factor: 2 } }, /yarn/],
    [
      "gemma2-heads",
      { layer_types: ["full_attention", "full_attention"] },
      /"layer_types" is \["full_attention"/,
    ],
    [
      "gemma2-heads",
      { final_logit_softcapping: null },
      /"final_logit_softcapping" is missing, but would be 30 /,
    ],
    ["gemma3-heads", { final_logit_softcapping: 9 }, /"final_logit_softcapping" is 9, but would be missing/],
    [
      "gemma3-heads",
      { layer_types: ["full_attention", "full_attention", "sliding_attention"] },
      /"layer_types" is \["full_attention"/,
    ],
    ["gpt2", { activation_function: "relu" }, /"activation_function" is "relu", but would be missing/],
    ["gpt2", { scale_attn_by_inverse_layer_idx: true }, /"scale_attn_by_inverse_layer_idx" is true/],
    ["bert", { hidden_act: "relu" }, /"hidden_act" is "relu", but would be missing in a GGUF file of bert/],
  ] as [string, Config, RegExp][])(
    "%s with %j, which GGUF files would lose",
    async (name, values, reason) => {
      const model = await varied(name, values)
      expect(() => lm.save(model, at("refused.gguf"))).toThrow(reason)
    },
  )

  test("OLMo 3", async () => {
    const model = await varied("olmo2", {})
    const windows = { "olmo2.attention.sliding_window": mx.array(4, mx.uint32) }
    await expect(withMetadata(model, windows)).rejects.toThrow(
      /OLMo 3 is not supported in GGUF files. Load it from a folder/,
    )
  })

  test.each([1, 2 ** 32 - 2])("%i rotated features", async (dims) => {
    const model = await lm.load(writeCheckpoint("llama", at("rotated")))
    const file = withMetadata(model, { "llama.rope.dimension_count": mx.array(dims, mx.uint32) })
    await expect(file).rejects.toThrow(/RoPE cannot rotate \d+ of 16 features/)
  })

  test("numbers of heads that do not divide the rows", async () => {
    lm.save(await lm.load(writeCheckpoint("llama", at("heads"))), at("heads.gguf"))
    const bytes = readFileSync(at("heads.gguf"))
    const key = "llama.attention.head_count"
    bytes.writeUInt32LE(3, bytes.indexOf(key) + key.length + 4)
    writeFileSync(at("heads.gguf"), bytes)
    await expect(lm.load(at("heads.gguf"))).rejects.toThrow(/64 rows of queries or keys do not have 3 heads/)
  })

  test("a type for a folder, and adapters that are not fused", async () => {
    const model = await lm.load(writeCheckpoint("llama", at("adapted")))
    expect(() => lm.save(model, at("folder"), { type: "Q8_0" })).toThrow(/\.gguf/)
    lm.addAdapters(model.network, { rank: 2 })
    for (const place of ["adapted.gguf", "adapted"]) {
      const before = readdirSync(at("adapted"))
      expect(() => lm.save(model, at(place))).toThrow("[save] the model has adapters. Fuse adapters first")
      expect(readdirSync(at("adapted"))).toEqual(before)
    }
    expect(() => lm.quantize(model)).toThrow(/\[quantize\] the model has adapters/)
  })
})
