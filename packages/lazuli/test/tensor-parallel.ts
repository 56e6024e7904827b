/**
 * Greedy tokens of a Llama and of a Phi-3 whose weights are spread over the ranks, whole and quantized, beside those of one process; and
 * sampled ones, which must be the same on all ranks. What is spread cannot be saved as if it were whole.
 */
import "@lazuli/backend-cpu"
import * as mx from "@lazuli/core"
import "@lazuli/distributed"
import * as lm from "@lazuli/lm"
import * as nn from "@lazuli/nn"
import { llama } from "../../lm/src/models/families/llama"
import { phi3 } from "../../lm/src/models/families/phi3"

const ranks = mx.distributed.init().size()
const sizes = {
  hidden_size: 32 * ranks,
  num_attention_heads: 2 * ranks,
  num_key_value_heads: ranks,
  intermediate_size: 64 * ranks,
  num_hidden_layers: 2,
  vocab_size: 97,
  rope_theta: 10000,
  max_position_embeddings: 64,
}
const families = { llama, phi3 }

function greedy(network: lm.CausalNetwork): number[] {
  const tokens = [3, 14, 15]
  for (let i = 0; i < 12; i++) {
    const logits = network.forward(mx.array([tokens], mx.int32))
    tokens.push(mx.argmax(logits.index(0, -1), -1).item() as number)
  }
  return tokens
}

const modelOf = (network: lm.CausalNetwork, config: lm.Settings): lm.LoadedModel => ({
  network,
  tokenizer: null,
  config,
  name: "part",
  source: "part",
})
/** True if all ranks have the same numbers. */
const areAlike = (numbers: readonly number[]): boolean => {
  const own = mx.array([...numbers], mx.int32)
  return mx.distributed.allMax(own).equal(mx.distributed.allMin(own)).all().item() as boolean
}

async function tokensOf(pieces: AsyncIterable<lm.Piece>): Promise<number[]> {
  const tokens: number[] = []
  for await (const { token } of pieces) tokens.push(token)
  return tokens
}

/** True if all ranks sample the same tokens: several times, without a seed and with one of which only rank 0's holds. */
async function samplesAlike(model: lm.LoadedModel): Promise<boolean> {
  const rank = mx.distributed.init().rank()
  const common = { temperature: 1.5, maxTokens: 8, ignoreEos: true }
  const sampled: number[][] = []
  for (const compile of [true, false]) {
    for (const options of [common, { ...common, topK: 40 }, { ...common, draft: model }])
      sampled.push(await tokensOf(lm.stream(model, [3, 14, 15], { ...options, compile })))
    const batch = new lm.Batcher(model, { maxRows: 2, compile })
    const rows = [common, { ...common, seed: 100 + rank }].map((row) => batch.stream([7, 8], row))
    sampled.push(...(await Promise.all(rows.map(tokensOf))))
    batch.close()
  }
  const [seeded, again] = [sampled[4], sampled[9]]
  const texts = new Set(sampled.map(String))
  return (
    sampled.every((tokens) => tokens.length === 8 && areAlike(tokens)) &&
    String(seeded) === String(again) &&
    texts.size === sampled.length - 1
  )
}

function isSaved(network: lm.CausalNetwork, config: lm.Settings): boolean {
  try {
    lm.save(modelOf(network, config), "part.gguf")
    return true
  } catch (error) {
    if (!(error as Error).message.includes("this process has a part of the model")) throw error
    return false
  }
}

/** True if a network cannot be spread, for such a reason, and stays as it was. */
function isRefused(network: lm.CausalNetwork, why: RegExp): boolean {
  const before = greedy(network)
  try {
    lm.shardModel(network)
    return false
  } catch (error) {
    if (!(error instanceof mx.ArgumentError || error instanceof mx.ShapeError)) throw error
    if (!why.test(error.message)) throw error
  }
  return JSON.stringify(greedy(network)) === JSON.stringify(before)
}

const result: Record<string, boolean> = {}
for (const [type, family] of Object.entries(families))
  for (const quantized of [false, true]) {
    mx.random.seed(7)
    const config = new lm.Settings({ ...sizes, model_type: type })
    const network = family.make(config) as lm.CausalNetwork
    // Weights large enough for tokens that differ.
    network.update(mx.treeMap((x) => (x as mx.Array).multiply(3), network.parameters()) as never)
    if (quantized) nn.quantize(network, { groupSize: 32, bits: 8 })
    mx.eval(network.parameters())
    const alone = greedy(network)
    const before = network.layerShapes()[0].kvHeads
    lm.shardModel(network)
    const isSpread = network.layerShapes()[0].kvHeads === before / ranks
    result[`${type}${quantized ? ", quantized" : ""}`] =
      isSpread &&
      !isSaved(network, config) &&
      JSON.stringify(greedy(network)) === JSON.stringify(alone) &&
      new Set(alone).size > 4 &&
      isRefused(network, /the network has only a part of "/)
    if (!quantized) result[`${type}, sampled`] = await samplesAlike(modelOf(network, config))
  }
// Attention can be spread, and features cannot.
const made = (other: object): lm.CausalNetwork =>
  llama.make(new lm.Settings({ ...sizes, model_type: "llama", ...other })) as lm.CausalNetwork
result["odd features"] = isRefused(
  made({ intermediate_size: 33 }),
  /an axis of size 33, .* cannot be divided among/,
)
result["fewer key-value heads"] = isRefused(
  made({ num_key_value_heads: ranks / 2 }),
  new RegExp(
    `${2 * ranks} query heads and ${ranks / 2} key-value heads are not divisible by ${ranks} processes`,
  ),
)
console.log(JSON.stringify(result))
