/** Adapters of some layers only, and those of experts, embeddings and heads. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as mx from "@lazuli/core"
import * as lm from "@lazuli/lm"
import { afterAll, describe, expect, test } from "vitest"
import "@lazuli/backend-cpu"
import { writeCheckpoint } from "../../test/checkpoints"
import { VOCABULARY } from "../../test/tokenizer"
import { adaptersOf } from "./lora"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-lora-"))
afterAll(() => rmSync(scratch, { recursive: true }))
const at = (name: string): string => join(scratch, name)
const folder = writeCheckpoint("llama", at("llama"))
const file = at("data.jsonl")
const TEXTS = ["the beginning in the end", "in", "the end"]
writeFileSync(file, TEXTS.map((text) => JSON.stringify({ text })).join("\n"))
const TOKENS = mx.array([[1, 50, 90, 20, 77]], mx.int32)
const distance = (a: mx.Array, b: mx.Array): number => a.subtract(b).abs().max().item() as number

async function fresh(bits?: number): Promise<{ network: lm.CausalNetwork }> {
  mx.random.seed(3)
  const model = await lm.load(folder)
  return { network: (bits ? lm.quantize(model, { bits }) : model).network as lm.CausalNetwork }
}

describe("adapters of some layers", () => {
  const names = (network: lm.CausalNetwork): string[] => [...adaptersOf(network).keys()].sort()
  const NAMES = ["model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj"]

  test.each(["mlx", "peft"] as const)("stay those of these layers in %s's format", async (form) => {
    const { network } = await fresh(4)
    lm.addAdapters(network, { rank: 2, keys: NAMES })
    for (const layer of adaptersOf(network).values()) layer.loraB = mx.full(layer.loraB.shape, 0.01)
    const want = network.forward(TOKENS)
    lm.saveAdapters(network, at(`some-${form}`), form)
    const { network: other } = await fresh(4)
    // Earlier ones are replaced.
    lm.addAdapters(other, { rank: 3, keys: ["o_proj", "down_proj"] })
    lm.loadAdapters(other, at(`some-${form}`))
    expect(names(other)).toEqual(NAMES)
    expect(distance(want, other.forward(TOKENS))).toBeLessThan(1e-5)
    expect(mx.treeFlatten(other.trainableParameters()).length).toBe(4)
    lm.saveAdapters(other, at(`some-again-${form}`), form)
    const [config, again] = [`some-${form}`, `some-again-${form}`].map((name) =>
      readFileSync(join(at(name), "adapter_config.json"), "utf8"),
    )
    expect(again).toBe(config)
    expect(lm.fuseAdapters(other)).toMatchObject({ layers: 2, dequantized: 2 })
  })

  test("are in the last blocks, of which mlx-lm needs the number", async () => {
    const blocks = async (options: lm.LoraOptions): Promise<number> => {
      const { network } = await fresh()
      lm.addAdapters(network, options)
      lm.saveAdapters(network, at("blocks"))
      return JSON.parse(readFileSync(join(at("blocks"), "adapter_config.json"), "utf8")).num_layers
    }
    expect(await blocks({})).toBe(2)
    expect(await blocks({ layers: 1 })).toBe(1)
    expect(await blocks({ keys: ["model.layers.0.self_attn.q_proj"] })).toBe(2)
  })

  test("that change nothing leave quantized weights as they are", async () => {
    const { network } = await fresh(4)
    lm.addAdapters(network)
    expect(lm.fuseAdapters(network)).toEqual({ layers: 4, dequantized: 0, lost: 0 })
  })
})

describe.each([
  ["qwen2-moe", ["switch_mlp.gate_proj", "switch_mlp.down_proj", "lm_head", "model.embed_tokens"], 6],
  ["mixtral", ["switch_mlp.up_proj", "block_sparse_moe.gate"], 4],
  // The embeddings are the head too.
  ["gemma", ["model.embed_tokens"], 1],
] as const)("adapters of experts, embeddings and heads: %s", (name, keys, count) => {
  const loaded = async (bits: number | undefined) => {
    mx.random.seed(3)
    const model = await lm.load(writeCheckpoint(name, at(name)))
    const { network, tokenizer } = bits ? lm.quantize(model, { bits }) : model
    return { network: network as lm.CausalNetwork, examples: lm.readDataset(file, tokenizer!) }
  }

  test.each([undefined, 8])("are trained, saved and fused with weights of %s bits", async (bits) => {
    const { network, examples } = await loaded(bits)
    const before = network.forward(TOKENS)
    expect(lm.addAdapters(network, { rank: 2, scale: 4, dropout: 0.1, keys }).length).toBe(count)
    expect(distance(before, network.forward(TOKENS))).toBe(0)
    const first = await lm.evaluate(network, examples)
    await lm.train(network, examples, { steps: 20, learningRate: 0.02 })
    expect(await lm.evaluate(network, examples)).toBeLessThan(first * 0.9)
    const want = network.forward(TOKENS)
    lm.saveAdapters(network, at(`${name}-adapters`))
    const { network: other } = await loaded(bits)
    lm.loadAdapters(other, at(`${name}-adapters`))
    expect(distance(want, other.forward(TOKENS))).toBe(0)
    expect(() => lm.saveAdapters(other, at(`${name}-none`), "peft")).toThrow(
      /adapters of experts and embeddings, such as model\..*, are not supported in PEFT's format. Save them in mlx-lm's/,
    )
    expect(lm.fuseAdapters(other)).toMatchObject({ layers: count, dequantized: bits ? count : 0 })
    expect(distance(want, other.forward(TOKENS))).toBeLessThan(2e-3)
  })

  test("have mlx-lm's shapes", async () => {
    const { network } = await loaded(undefined)
    lm.addAdapters(network, { rank: 2, keys })
    lm.saveAdapters(network, at(`${name}-shapes`))
    const arrays = mx.load(join(at(`${name}-shapes`), "adapters.safetensors"), "safetensors")
    const shapes = Object.fromEntries(Object.entries(arrays).map(([key, { shape }]) => [key, shape]))
    const block = "model.layers.0"
    const want = {
      "qwen2-moe": {
        [`${block}.mlp.switch_mlp.gate_proj.lora_a`]: [4, 2, 64],
        [`${block}.mlp.switch_mlp.down_proj.lora_b`]: [4, 64, 2],
        "lm_head.lora_a": [64, 2],
        "lm_head.lora_b": [2, VOCABULARY],
      },
      mixtral: {
        [`${block}.block_sparse_moe.switch_mlp.up_proj.lora_a`]: [4, 2, 64],
        [`${block}.block_sparse_moe.gate.lora_b`]: [2, 4],
      },
      gemma: { "model.embed_tokens.lora_a": [VOCABULARY, 2], "model.embed_tokens.lora_b": [2, 64] },
    }[name]
    expect(shapes).toMatchObject(want)
    const config = JSON.parse(readFileSync(join(at(`${name}-shapes`), "adapter_config.json"), "utf8"))
    // Names within a block, and whole ones outside of blocks.
    for (const key of config.lora_parameters.keys)
      expect(key).toMatch(/^(mlp|block_sparse_moe|lm_head$|model\.e)/)
  })
})

test("PEFT's adapters of experts and embeddings are refused by name", async () => {
  const { network } = await fresh()
  lm.addAdapters(network)
  lm.saveAdapters(network, at("peft-others"), "peft")
  const saved = join(at("peft-others"), "adapter_model.safetensors")
  for (const [name, reason] of [
    ["model.layers.0.mlp.experts.3.gate_proj.lora_A.weight", /of experts, such as .*, are not supported/],
    ["model.embed_tokens.lora_embedding_A", /of embeddings, such as .*, are not supported/],
    ["model.layers.0.mlp.gate_proj.weight", /"base_model.*" is not an adapter's weight/],
  ] as const) {
    mx.saveSafetensors(saved, { [`base_model.model.${name}`]: mx.zeros([2, 64]) })
    expect(() => lm.loadAdapters(network, at("peft-others"))).toThrow(reason)
  }
})
