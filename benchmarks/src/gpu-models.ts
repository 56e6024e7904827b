/**
 * Language models on a GPU compared with themselves, bit for bit: what a row of an exact batch says, with others beside it, and training
 * of adapters that was stopped and goes on. And the loss that adapters reach, compared with the CPU's.
 */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as mx from "@lazuli/core"
import * as lm from "@lazuli/lm"

const CONFIG = {
  model_type: "llama",
  hidden_size: 256,
  intermediate_size: 320,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 64,
  vocab_size: 300,
  max_position_embeddings: 512,
  rms_norm_eps: 1e-5,
  rope_theta: 10_000,
  tie_word_embeddings: false,
}
/** Lengths of prompts. */
const LENGTHS = [3, 20, 9]
const TOKENS = 8

const promptOf = (length: number): number[] =>
  Array.from({ length }, (_, i) => (i * 37 + length * 11) % CONFIG.vocab_size)

function modelOf(dtype: mx.Dtype, bits?: 4): lm.LoadedModel<lm.CausalNetwork> {
  mx.random.seed(5)
  const model = lm.fromConfig(CONFIG, dtype)
  return (bits ? lm.quantize(model, { bits }) : model) as lm.LoadedModel<lm.CausalNetwork>
}

type Pieces = AsyncIterable<lm.Piece>
async function saidBy(pieces: Pieces): Promise<string[]> {
  const said: string[] = []
  for await (const { token, top } of pieces)
    said.push(`${token} of ${top.map((each) => `${each.token} at ${each.logprob}`)}`)
  return said
}

/** The first difference of an exact batch's rows to what each prompt gives alone, or null. */
async function rowsDiffer(model: lm.LoadedModel): Promise<string | null> {
  const batch = new lm.Batcher(model, { exact: true })
  let most = 0
  try {
    for (const logprobs of [20, undefined]) {
      const options = { maxTokens: TOKENS, ignoreEos: true, logprobs }
      const alone: string[][] = []
      for (const length of LENGTHS) alone.push(await saidBy(lm.stream(model, promptOf(length), options)))
      const run = async (length: number): Promise<string[]> => {
        const said = saidBy(batch.stream(promptOf(length), options))
        most = Math.max(most, batch.stats().active + batch.stats().waiting)
        return said
      }
      const together = await Promise.all(LENGTHS.map(run))
      for (const [row, said] of together.entries())
        for (const [at, what] of said.entries())
          if (what !== alone[row][at] || said.length !== alone[row].length)
            return `token ${at} of row ${row} is ${what}, and alone ${alone[row][at]}`
    }
  } finally {
    batch.close()
  }
  return most === LENGTHS.length ? null : `there were ${most} rows at once`
}

/** The first difference of training that goes on from its state to the same without a stop, or null. */
async function resumedDiffers(model: () => lm.LoadedModel<lm.CausalNetwork>): Promise<string | null> {
  const examples = LENGTHS.map((length) => ({ tokens: promptOf(length), from: 1 }))
  const folder = mkdtempSync(join(tmpdir(), "lazuli-gpu-models-"))
  const run = async (state: string, parts: readonly number[]): Promise<string[]> => {
    const said: string[] = []
    for (const steps of parts) {
      const { network } = model()
      lm.addAdapters(network, { rank: 8, scale: 4, dropout: 0.1 })
      await lm.train(network, examples, {
        ...{ steps, batchSize: 2, learningRate: 0.01, deterministic: true, state: join(folder, state) },
        onStep: ({ loss }) => said.push(String(loss)),
      })
      if (steps !== parts.at(-1)) continue
      const trained = mx.treeFlatten(network.trainableParameters()) as [string, mx.Array][]
      for (const [name, x] of trained) said.push(`${name} ${x.astype(mx.float32).toTypedArray()}`)
    }
    return said
  }
  try {
    const [whole, stopped] = [await run("whole", [6]), await run("stopped", [2, 6])]
    const at = whole.findIndex((what, i) => what !== stopped[i])
    if (at < 0 && whole.length === stopped.length) return null
    return `${at}: ${whole[at]?.slice(0, 100)}, and resumed ${stopped[at]?.slice(0, 100)}`
  } finally {
    rmSync(folder, { recursive: true })
  }
}

/** Null if adapters halve the loss on the CPU and on a GPU, or else both losses before and after. */
async function learnsLess(model: () => lm.LoadedModel<lm.CausalNetwork>): Promise<string | null> {
  const examples = LENGTHS.map((length) => ({ tokens: promptOf(length), from: 1 }))
  const gpu = mx.defaultDevice()
  const losses: number[][] = []
  try {
    for (const device of [mx.cpu, gpu]) {
      mx.setDefaultDevice(device)
      const { network } = model()
      lm.addAdapters(network, { rank: 8, scale: 4 })
      const before = await lm.evaluate(network, examples)
      await lm.train(network, examples, { steps: 40, batchSize: 3, learningRate: 0.01 })
      losses.push([before, await lm.evaluate(network, examples)])
    }
  } finally {
    mx.setDefaultDevice(gpu)
  }
  const [[begun, reached], [begunHere, reachedHere]] = losses
  const isAlike = Math.abs(begunHere - begun) < 0.02 * begun
  return isAlike && Math.max(reached, reachedHere) < 0.5 * begun ? null : JSON.stringify(losses)
}

const FORMATS = [
  ["bfloat16", mx.bfloat16, undefined],
  ["float32", mx.float32, undefined],
  ["4-bits", mx.bfloat16, 4],
] as const

/** Checks of the default device, by name: each gives what is wrong, or null. */
export const modelChecks: Readonly<Record<string, () => Promise<string | null>>> = Object.fromEntries(
  FORMATS.flatMap(([name, dtype, bits]) => [
    [`rows-${name}`, () => rowsDiffer(modelOf(dtype, bits))],
    [`resumed-${name}`, () => resumedDiffers(() => modelOf(dtype, bits))],
    [`learns-${name}`, () => learnsLess(() => modelOf(dtype, bits))],
  ]),
)
