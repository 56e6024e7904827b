/** Adapters in PEFT's format. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as mx from "@lazuli/core"
import * as lm from "@lazuli/lm"
import { afterAll, describe, expect, test } from "vitest"
import "@lazuli/backend-cpu"
import { addOnes } from "../../test/adapters"
import { writeCheckpoint } from "../../test/checkpoints"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-adapters-"))
afterAll(() => rmSync(scratch, { recursive: true }))
const at = (name: string): string => join(scratch, name)
const llama = writeCheckpoint("llama", at("llama"))
async function fresh(): Promise<{ network: lm.CausalNetwork }> {
  mx.random.seed(3)
  return { network: (await lm.load(llama)).network as lm.CausalNetwork }
}
const TOKENS = mx.array([[1, 50, 90, 20, 77]], mx.int32)
const distance = (a: mx.Array, b: mx.Array): number => a.subtract(b).abs().max().item() as number

describe("PEFT's adapters", () => {
  /** Rewrites values of a saved adapter's config. */
  const change = (folder: string, values: object): void => {
    const config = join(folder, "adapter_config.json")
    writeFileSync(config, JSON.stringify({ ...JSON.parse(readFileSync(config, "utf8")), ...values }))
  }

  test("have a scale and a rank for each layer", async () => {
    const { network } = await fresh()
    addOnes(network, 4)
    const folder = at("patterns")
    lm.saveAdapters(network, folder, "peft")
    change(folder, { alpha_pattern: { "layers.1.self_attn.q_proj": 32, "v_pro.": 2 } })
    const other = (await fresh()).network
    lm.loadAdapters(other, folder)
    const scales = (of: lm.CausalNetwork): number[] =>
      of.modules().flatMap((module) => (module instanceof lm.LoraLinear ? [module.scale] : []))
    expect(scales(other).sort((a, b) => a - b)).toEqual([1, 1, 4, 16])
    for (const form of ["mlx", "peft"] as const) {
      lm.saveAdapters(other, at(`again-${form}`), form)
      const again = (await fresh()).network
      lm.loadAdapters(again, at(`again-${form}`))
      expect(distance(again.forward(TOKENS), other.forward(TOKENS))).toBeLessThan(1e-5)
    }
    change(folder, { use_rslora: true, alpha_pattern: {} })
    lm.loadAdapters(other, folder)
    expect(scales(other)).toEqual([1, 1, 1, 1].map(() => 8 / Math.sqrt(2)))
    change(folder, { use_rslora: false, rank_pattern: { q_proj: 4 } })
    expect(() => lm.loadAdapters(other, folder)).toThrow(/q_proj" does not fit the model/)
    const layer = other.modules().find((module) => module instanceof lm.LoraLinear)!
    layer.loraA = mx.ones([layer.loraA.shape[0], 4])
    layer.loraB = mx.ones([4, layer.loraB.shape[1]]).multiply(0.01)
    lm.saveAdapters(other, at("ranks"), "peft")
    const again = (await fresh()).network
    lm.loadAdapters(again, at("ranks"))
    expect(distance(again.forward(TOKENS), other.forward(TOKENS))).toBeLessThan(1e-4)
  })

  test.each([
    [{ init_lora_weights: "pissa_niter_4" }, /"init_lora_weights" "pissa_niter_4" is not supported/],
    [{ init_lora_weights: "olora" }, /"init_lora_weights" "olora"/],
    [{ modules_to_save: ["lm_head"] }, /"modules_to_save" is not supported/],
    [{ bias: "lora_only" }, /"bias" "lora_only"/],
    [{ use_dora: true }, /"use_dora"/],
    [{ layer_replication: [[0, 1]] }, /"layer_replication"/],
    [{ peft_type: "IA3" }, /"peft_type" "IA3"/],
    [{ alpha_pattern: { "(": 2 } }, /"alpha_pattern" has the invalid pattern \(/],
  ])("with %j are refused", async (values, reason) => {
    const { network } = await fresh()
    addOnes(network, 4)
    lm.saveAdapters(network, at("refused"), "peft")
    change(at("refused"), values)
    expect(() => lm.loadAdapters(network, at("refused"))).toThrow(reason)
  })

  test("have transformers' names of GPT-2's layers", async () => {
    const gpt2 = writeCheckpoint("gpt2", at("gpt2"))
    const network = (await lm.load(gpt2)).network as lm.CausalNetwork
    addOnes(network, 4)
    lm.saveAdapters(network, at("gpt2-peft"), "peft")
    const names = Object.keys(mx.load(join(at("gpt2-peft"), "adapter_model.safetensors"), "safetensors"))
    expect(names).toContain("base_model.model.transformer.h.0.attn.c_attn.lora_A.weight")
    const other = (await lm.load(gpt2)).network as lm.CausalNetwork
    lm.loadAdapters(other, at("gpt2-peft"))
    expect(distance(network.forward(TOKENS), other.forward(TOKENS))).toBe(0)
  })
})

describe("PEFT's adapters of encoders", () => {
  const encoderAt = async (name: string): Promise<lm.EncoderNetwork> =>
    (await lm.load(writeCheckpoint(name, at(`${name}-checkpoint`)))).network as lm.EncoderNetwork
  const namesIn = (folder: string): string[] =>
    Object.keys(mx.load(join(folder, "adapter_model.safetensors"), "safetensors"))
  const KEYS = ["attention.query", "attention.output", "intermediate", "output"]
  /** Adapters that change the output. */
  const adapt = (network: lm.EncoderNetwork): void => {
    lm.addAdapters(network, { rank: 2, keys: KEYS })
    for (const layer of network.modules())
      if (layer instanceof lm.LoraLinear) layer.loraB = mx.full(layer.loraB.shape, 0.01)
  }

  test.each([
    ["bert", "", "FEATURE_EXTRACTION"],
    ["bert-reranker", "bert.", null],
    ["roberta", "", "FEATURE_EXTRACTION"],
    ["roberta-reranker", "roberta.", null],
  ])("have transformers' names: %s", async (name, prefix, task) => {
    const network = await encoderAt(name)
    adapt(network)
    const folder = at(`${name}-peft`)
    lm.saveAdapters(network, folder, "peft")
    const block = `base_model.model.${prefix}encoder.layer.1`
    const parts = ["attention.self.query", "attention.output.dense", "intermediate.dense", "output.dense"]
    expect(
      namesIn(folder)
        .filter((key) => key.startsWith(block))
        .sort(),
    ).toEqual(
      parts.flatMap((part) => ["A", "B"].map((letter) => `${block}.${part}.lora_${letter}.weight`)).sort(),
    )
    const config = JSON.parse(readFileSync(join(folder, "adapter_config.json"), "utf8"))
    expect([config.task_type, config.fan_in_fan_out]).toEqual([task, false])
    const other = await encoderAt(name)
    lm.loadAdapters(other, folder)
    expect(distance(network.forward(TOKENS), other.forward(TOKENS))).toBe(0)
    lm.saveAdapters(network, at(`${name}-mlx`))
    const third = await encoderAt(name)
    lm.loadAdapters(third, at(`${name}-mlx`))
    expect(distance(network.forward(TOKENS), third.forward(TOKENS))).toBe(0)
  })

  test("fit an encoder with or without a head", async () => {
    const reranker = await encoderAt("bert-reranker")
    adapt(reranker)
    lm.saveAdapters(reranker, at("with-head"), "peft")
    const encoder = await encoderAt("bert")
    lm.loadAdapters(encoder, at("with-head"))
    expect(encoder.modules().filter((module) => module instanceof lm.LoraLinear).length).toBe(8)
    lm.saveAdapters(encoder, at("without-head"), "peft")
    expect(namesIn(at("without-head")).every((key) => key.startsWith("base_model.model.encoder."))).toBe(true)
    lm.loadAdapters(await encoderAt("bert-reranker"), at("without-head"))
  })

  test("of layers that the network does not need are passed over", async () => {
    const encoder = await encoderAt("bert")
    adapt(encoder)
    lm.saveAdapters(encoder, at("pooler"), "peft")
    const file = join(at("pooler"), "adapter_model.safetensors")
    const pooler = { A: mx.ones([2, 64]), B: mx.ones([64, 2]) }
    mx.saveSafetensors(file, {
      ...mx.load(file, "safetensors"),
      ...Object.fromEntries(
        Object.entries(pooler).map(([letter, x]) => [
          `base_model.model.pooler.dense.lora_${letter}.weight`,
          x,
        ]),
      ),
    })
    const other = await encoderAt("bert")
    lm.loadAdapters(other, at("pooler"))
    expect(distance(encoder.forward(TOKENS), other.forward(TOKENS))).toBe(0)
  })

  test("name the layers that have adapters, and no others", async () => {
    const targets = (folder: string): string[] =>
      JSON.parse(readFileSync(join(folder, "adapter_config.json"), "utf8")).target_modules
    const encoder = await encoderAt("bert")
    lm.addAdapters(encoder, { rank: 2 })
    lm.saveAdapters(encoder, at("default"), "peft")
    expect(targets(at("default")).sort()).toEqual(["query", "value"])
    const other = await encoderAt("bert")
    lm.addAdapters(other, { rank: 2, keys: ["intermediate"] })
    lm.saveAdapters(other, at("dense"), "peft")
    expect(targets(at("dense")).sort()).toEqual(
      [0, 1].map((block) => `encoder.layer.${block}.intermediate.dense`),
    )
    // The pooler is a dense layer too, which the network does not need.
    const all = await encoderAt("bert")
    adapt(all)
    lm.saveAdapters(all, at("all"), "peft")
    expect(targets(at("all"))).toContain("encoder.layer.0.attention.output.dense")
    const reranker = await encoderAt("roberta-reranker")
    adapt(reranker)
    lm.saveAdapters(reranker, at("reranker"), "peft")
    expect(targets(at("reranker"))).toContain("roberta.encoder.layer.0.attention.output.dense")
    // Experts have the names of dense layers.
    const mixed = (await lm.load(writeCheckpoint("qwen3-moe", at("mixed")))).network
    lm.addAdapters(mixed, { rank: 2, keys: ["mlp.up_proj"] })
    lm.saveAdapters(mixed, at("beside-experts"), "peft")
    expect(targets(at("beside-experts"))).toEqual(["model.layers.1.mlp.up_proj"])
    const { network } = await fresh()
    lm.addAdapters(network, { rank: 2, layers: 1 })
    lm.saveAdapters(network, at("last"), "peft")
    expect(targets(at("last")).sort()).toEqual(
      ["q_proj", "v_proj"].map((name) => `model.layers.1.self_attn.${name}`),
    )
  })
})
