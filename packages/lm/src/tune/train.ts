/**
 * Training of a network's trainable parameters, such as adapters: deterministic order of examples, gradient accumulation, and saved states
 * from which a run continues exactly.
 */
import { createHash } from "node:crypto"
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import * as mx from "@lazuli/core"
import { ArgumentError, determinism, FormatError, isPlainObject } from "@lazuli/core/engine"
import * as nn from "@lazuli/nn"
import { AdamW } from "@lazuli/nn/optimizers"
import { CALLBACK, COUNT, checkKind, FLAG, INTEGER, SIZE, TEXT, TOKENS } from "../argument-kinds"
import { checkCausal, checkSignal, optionsNamed } from "../arguments"
import { notNumbers } from "../generate/sampler"
import { Pass } from "../models/attend"
import { fingerprintOf } from "../models/fingerprint"
import type { CausalNetwork } from "../models/network"
import { checkpointBlocks } from "./checkpointing"
import type { Example } from "./dataset"
import { adaptersOf } from "./lora"

/** Options of {@link train}. */
export interface TrainOptions {
  /** Total number of updates, including those of an earlier run. */
  readonly steps: number
  /** Examples per batch; 4 by default. */
  readonly batchSize?: number
  /** Batches per update; 1 by default. */
  readonly accumulate?: number
  /** 1e-5 by default. */
  readonly learningRate?: number
  /** Random seed for the order of examples and dropout; 0 by default. */
  readonly seed?: number
  /** Gradient checkpointing: less memory, more time. */
  readonly checkpointing?: boolean
  /**
   * Reproducible results on GPUs too, where sums may otherwise be in any order. Slower if embeddings are trained.
   */
  readonly deterministic?: boolean
  /** Folder for the training state. If it has one, the run continues from there. */
  readonly state?: string
  /** Number of updates between saved states; by default it is saved only at the end. */
  readonly saveEvery?: number
  /** Called after each update. */
  readonly onStep?: (report: StepReport) => void
  /** Stops the run after the current update, and saves its state. */
  readonly signal?: AbortSignal
}

const checkNames = optionsNamed<TrainOptions>({
  steps: COUNT,
  batchSize: COUNT,
  accumulate: COUNT,
  learningRate: SIZE,
  seed: INTEGER,
  checkpointing: FLAG,
  deterministic: FLAG,
  state: TEXT,
  saveEvery: COUNT,
  onStep: CALLBACK,
  signal: true,
})

/** @throws ArgumentError for unknown options, and those out of range */
export function checkTraining(options: TrainOptions): void {
  checkNames("train", options)
  checkKind("train", "steps", options.steps, COUNT)
  checkSignal("train", options.signal)
}

/** The result of an update. */
export interface StepReport {
  readonly step: number
  readonly loss: number
  readonly tokens: number
}

/** @throws ArgumentError unless these are examples for the network */
function checkExamples(
  op: string,
  { vocabulary, maxPositions }: CausalNetwork,
  examples: readonly Example[],
): void {
  checkKind(
    op,
    "examples",
    examples,
    { expected: "a list", accepts: Array.isArray },
    "readDataset reads them",
  )
  examples.forEach((example: Partial<Example> | null, i) => {
    const { tokens, from } = example ?? {}
    checkKind(op, `examples[${i}].tokens`, tokens, TOKENS)
    checkKind(op, `examples[${i}].from`, from, INTEGER)
    if (tokens!.length < 2) throw new ArgumentError(op, `examples[${i}] has fewer than two tokens`)
    // The last token is only a target.
    if (tokens!.length - 1 > maxPositions)
      throw new ArgumentError(
        op,
        `examples[${i}] has ${tokens!.length} tokens, the model supports ${maxPositions}`,
        { hint: "Pass maxTokens to readDataset" },
      )
    const unknown = tokens!.find((token) => token >= vocabulary)
    if (unknown !== undefined)
      throw new ArgumentError(op, `examples[${i}]: the vocabulary of ${vocabulary} has no token ${unknown}`)
  })
}

/** The error of examples without a token in the loss. */
const noLoss = (op: string): ArgumentError =>
  new ArgumentError(op, "no example has a token in the loss", {
    hint: "Prompts may be masked and completions truncated",
  })

/** Examples as padded arrays, with weights of 1 for targets in the loss and 0 for others. */
function batchOf(examples: readonly Example[]): [inputs: mx.Array, targets: mx.Array, weights: mx.Array] {
  const length = Math.max(...examples.map(({ tokens }) => tokens.length)) - 1
  const make = (value: (example: Example, i: number) => number): Float32Array =>
    Float32Array.from(examples.flatMap((example) => Array.from({ length }, (_, i) => value(example, i))))
  const shape = [examples.length, length]
  const inputs = make(({ tokens }, i) => (i < tokens.length - 1 ? tokens[i] : 0))
  const targets = make(({ tokens }, i) => tokens[i + 1] ?? 0)
  const weights = make(({ tokens, from }, i) => (i + 1 < tokens.length && i + 1 >= from ? 1 : 0))
  return [
    mx.array(Int32Array.from(inputs)).reshape(shape),
    mx.array(Int32Array.from(targets)).reshape(shape),
    mx.array(weights).reshape(shape),
  ]
}

/** The sum of weighted losses. */
function lossOf(network: CausalNetwork, inputs: mx.Array, targets: mx.Array, weights: mx.Array): mx.Array {
  const logits = network.forward(inputs, null, new Pass()).astype(mx.float32)
  return nn.losses.crossEntropy(logits, targets, { reduction: "none" }).multiply(weights).sum()
}

/**
 * The mean loss per token over examples.
 * @example
 * const { network, tokenizer } = await load('my-model')
 * const loss = await evaluate(network, readDataset('train.jsonl', tokenizer))
 * loss > 0 // => true
 */
export async function evaluate(
  network: CausalNetwork,
  examples: readonly Example[],
  batchSize = 4,
): Promise<number> {
  checkCausal("evaluate", network)
  checkExamples("evaluate", network, examples)
  checkKind("evaluate", "batchSize", batchSize, COUNT)
  const training = network.training
  network.eval()
  let [sum, count] = [0, 0]
  try {
    for (let at = 0; at < examples.length; at += batchSize) {
      const [inputs, targets, weights] = batchOf(examples.slice(at, at + batchSize))
      const loss = lossOf(network, inputs, targets, weights)
      const tokens = weights.sum()
      await mx.asyncEval([loss, tokens])
      sum += loss.item() as number
      count += tokens.item() as number
    }
  } finally {
    network.train(training)
  }
  if (count === 0) throw noLoss("evaluate")
  if (Number.isNaN(sum)) throw notNumbers("evaluate", "losses")
  return sum / count
}

/** The examples of a batch, shuffled anew in each epoch. */
function batchAt(examples: readonly Example[], batch: number, size: number, seed: number): Example[] {
  const length = Math.min(size, examples.length)
  return Array.from({ length }, (_, i) => {
    const at = batch * length + i
    const order = orderOf(examples.length, seed, Math.floor(at / examples.length))
    return examples[order[at % examples.length]]
  })
}

let lastOrder: { readonly name: string; readonly order: readonly number[] } | null = null

/** The permutation of an epoch. */
function orderOf(n: number, seed: number, epoch: number): readonly number[] {
  const name = `${n},${seed},${epoch}`
  if (lastOrder?.name === name) return lastOrder.order
  const key = mx.random.split(mx.random.key(seed), epoch + 1).index(epoch)
  const order = Array.from(mx.random.permutation(n, { key }).toTypedArray() as Int32Array)
  lastOrder = { name, order }
  return order
}

/** Runs `body` with `random` in place of the global random state. */
function drawingFrom<T>(random: { key: mx.Array }, body: () => T): T {
  const { state } = mx.random
  const [before] = state
  state[0] = random.key
  try {
    return body()
  } finally {
    random.key = state[0]
    state[0] = before
  }
}

/**
 * Trains a network's trainable parameters with AdamW, on the examples that have a token in the loss. With a `state` folder, a stopped run
 * continues as if it had not stopped, bit for bit on the CPU, and with `deterministic` on GPUs. Does not use `mx.random.state`.
 * @throws ArgumentError if nothing is trainable; FormatError for the state of another run; NumericError once the loss is NaN
 * @example
 * const { network, tokenizer } = await load('my-model')
 * const examples = readDataset('train.jsonl', tokenizer)
 * addAdapters(network, { rank: 4 })
 * const before = await evaluate(network, examples)
 * await train(network, examples, { steps: 4, learningRate: 0.01 })
 * ;(await evaluate(network, examples)) < before // => true
 */
export async function train(
  network: CausalNetwork,
  dataset: readonly Example[],
  options: TrainOptions,
): Promise<void> {
  checkCausal("train", network)
  checkExamples("train", network, dataset)
  checkTraining(options)
  const { steps, batchSize = 4, accumulate = 1, learningRate = 1e-5, seed = 0, signal, saveEvery } = options
  if (dataset.length === 0) throw new ArgumentError("train", "there are no examples")
  const examples = dataset.filter(({ tokens, from }) => from < tokens.length)
  if (examples.length === 0) throw noLoss("train")
  if (mx.treeFlatten(network.trainableParameters()).length === 0)
    throw new ArgumentError("train", "the network has no trainable parameters", {
      hint: "Call addAdapters",
    })
  const optimizer = new AdamW(learningRate)
  optimizer.init(network.trainableParameters())
  const identity = {
    seed,
    batchSize,
    accumulate,
    learningRate,
    examples: examplesText(examples),
    adapters: adaptersText(network),
    weights: frozenText(network),
  }
  let step = options.state ? restore(options.state, network, optimizer, identity) : 0
  network.train()
  const gradient = nn.valueAndGrad(network, (...args: [mx.Array, mx.Array, mx.Array]) =>
    lossOf(network, ...args),
  )
  const uncheckpointed = options.checkpointing ? checkpointBlocks(network) : () => {}
  const save = (): void => {
    if (options.state) store(options.state, network, optimizer, { ...identity, step })
  }
  const endDeterminism = options.deterministic ? determinism.ask() : () => {}
  try {
    while (step < steps && !signal?.aborted) {
      // A key for each update, so that dropout is the same in a continued run.
      const random = { key: mx.random.key(seed + step) }
      let total: object | null = null
      let [sum, count] = [mx.array(0), mx.array(0)]
      for (let i = 0; i < accumulate; i++) {
        const [inputs, targets, weights] = batchOf(batchAt(examples, step * accumulate + i, batchSize, seed))
        const [value, grads] = drawingFrom(random, () => gradient(inputs, targets, weights))
        total =
          total === null
            ? grads
            : (mx.treeMap((a: mx.Array, b: mx.Array) => a.add(b), total, grads) as object)
        sum = sum.add(value)
        count = count.add(weights.sum())
        await mx.asyncEval([total, sum, count])
      }
      const tokens = count.item() as number
      const mean = mx.treeMap((g: mx.Array) => g.divide(tokens), total!) as object
      optimizer.update(network, mean)
      await mx.asyncEval([network.trainableParameters(), optimizer.state])
      step++
      const loss = (sum.item() as number) / tokens
      if (Number.isNaN(loss))
        throw notNumbers("train", `losses of step ${step}`, "A smaller learningRate may help")
      options.onStep?.({ step, loss, tokens })
      if (saveEvery && step % saveEvery === 0) save()
    }
  } finally {
    endDeterminism()
    uncheckpointed()
    network.eval()
  }
  save()
}

/** Properties that a continued run must share with the first one. */
interface Identity {
  readonly seed: number
  readonly batchSize: number
  readonly accumulate: number
  readonly learningRate: number
  readonly examples: string
  readonly adapters: string
  readonly weights: string
}

/** The number of examples, and a digest: with others, as with other masks of prompts, a run would not be the same. */
function examplesText(examples: readonly Example[]): string {
  const hash = createHash("sha256")
  for (const { tokens, from } of examples) hash.update(Int32Array.from([tokens.length, from, ...tokens]))
  return `${examples.length} (${hash.digest("hex").slice(0, 16)})`
}

/** A network's adapters in words. */
function adaptersText(network: CausalNetwork): string {
  const adapters = [...adaptersOf(network)]
  const names = new Set(adapters.map(([name]) => name.replace(/\.\d+\./, ".*.")))
  const forms = new Set(
    adapters.map(
      ([, { rank, scale, dropout }]) => `rank ${rank}, scale ${scale}, dropout ${dropout?.p ?? 0}`,
    ),
  )
  return `${adapters.length} in ${[...names].join(", ")}: ${[...forms].join("; ")}`
}

/** A digest of the weights that training does not change. */
function frozenText(network: CausalNetwork): string {
  const trainable = flat(network.trainableParameters())
  const all = Object.entries(flat(network.parameters()))
  return fingerprintOf(Object.fromEntries(all.filter(([name]) => !(name in trainable)))).slice(0, 16)
}

const flat = (tree: object): Record<string, mx.Array> =>
  Object.fromEntries(mx.treeFlatten(tree) as [string, mx.Array][])

/** Saves parameters and optimizer state, then run.json, which refers to them, and removes earlier states. */
function store(
  folder: string,
  network: CausalNetwork,
  optimizer: AdamW,
  run: Identity & { step: number },
): void {
  mkdirSync(folder, { recursive: true })
  const arrays: Record<string, mx.Array> = {}
  for (const [name, array] of Object.entries(flat(network.trainableParameters())))
    arrays[`parameters.${name}`] = array
  for (const [name, array] of Object.entries(flat(optimizer.state))) arrays[`optimizer.${name}`] = array
  const state = `state-${run.step}.safetensors`
  mx.saveSafetensors(join(folder, state), arrays)
  const temporary = join(folder, `run.json.${process.pid}.tmp`)
  writeFileSync(temporary, `${JSON.stringify(run)}\n`)
  renameSync(temporary, join(folder, "run.json"))
  for (const name of readdirSync(folder))
    if (/^state-\d+\.safetensors$/.test(name) && name !== state) rmSync(join(folder, name))
}

/** Restores a saved state. Returns its step, 0 if there is none. */
function restore(folder: string, network: CausalNetwork, optimizer: AdamW, identity: Identity): number {
  const file = join(folder, "run.json")
  if (!existsSync(file)) return 0
  let run: Partial<Identity> & { step?: number }
  try {
    run = JSON.parse(readFileSync(file, "utf8")) as typeof run
  } catch (cause) {
    throw new FormatError("train", `${file} is not valid JSON`, { cause })
  }
  if (!isPlainObject(run) || !Number.isSafeInteger(run.step))
    throw new FormatError("train", `${file} is not the state of a run`)
  const keys = Object.keys(identity) as (keyof Identity)[]
  const missing = keys.filter((key) => typeof run[key] !== typeof identity[key])
  if (missing.length > 0)
    throw new FormatError(
      "train",
      `${file} was written by another version of Lazuli, which does not say ${missing.join(", ")} as this one does: the run cannot be continued`,
      { hint: "Start again in another folder" },
    )
  for (const key of keys)
    if (run[key] !== identity[key])
      throw new FormatError("train", `${file} is from a run with ${key} ${run[key]}, not ${identity[key]}`)
  const arrays = mx.load(join(folder, `state-${run.step}.safetensors`), "safetensors")
  const part = (prefix: string): [string, mx.Array][] =>
    Object.entries(arrays)
      .filter(([name]) => name.startsWith(prefix))
      .map(([name, array]) => [name.slice(prefix.length), array])
  network.update(mx.treeUnflatten(part("parameters.")) as object)
  optimizer.state = mx.treeUnflatten(part("optimizer.")) as typeof optimizer.state
  return run.step!
}
