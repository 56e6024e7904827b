/**
 * Checkpoints: everything that decides how a run goes on, in one safetensors file. It is written beside and renamed, so that there is
 * always a whole one.
 */
import { existsSync, mkdirSync, renameSync, rmSync } from "node:fs"
import { join } from "node:path"
import { mx } from "lazuli"
import type { Corpus } from "./data"
import { CONFIG_KEYS, type Config, type Options } from "./options"
import type { Progress, Trainer } from "./train"
import { UserError } from "./user-error"

const FORMAT = "lazuli-gpt-1"
const FILE = "checkpoint.safetensors"

/** A run as a file holds it. */
export interface Checkpoint {
  readonly config: Config
  /** The length of the schedule. */
  readonly steps: number
  readonly progress: Progress
  readonly dataHash: string
  readonly arrays: Record<string, mx.Array>
}

type Points = [number, number][]

/** Everything that a step reads and changes, by name. */
function stateOf({ model, optimizer }: Trainer): [string, mx.Array][] {
  const state = { model: model.parameters(), optimizer: optimizer.state, random: mx.random.state }
  return mx.treeFlatten(state)
}

const flat = (points: Points): mx.Array => mx.array(new Float64Array(points.flat())).reshape([-1, 2])
const points = (a: mx.Array): Points => (a.size === 0 ? [] : (a.tolist() as Points))

/** Writes a checkpoint into a folder and gives its path. */
export function saveCheckpoint(folder: string, trainer: Trainer, progress: Progress, corpus: Corpus): string {
  mkdirSync(folder, { recursive: true })
  const file = join(folder, FILE)
  const beside = join(folder, `partial-${FILE}`)
  const { history, step, seconds } = progress
  const arrays = Object.fromEntries(stateOf(trainer))
  arrays["history.train"] = flat(history.train)
  arrays["history.validation"] = flat(history.validation)
  try {
    mx.saveSafetensors(beside, arrays, {
      format: FORMAT,
      step: String(step),
      steps: String(trainer.steps),
      seconds: String(seconds),
      seed: String(trainer.config.seed),
      config: JSON.stringify(trainer.config),
      data: corpus.hash,
    })
    renameSync(beside, file)
  } catch (error) {
    rmSync(beside, { force: true })
    throw error
  }
  return file
}

/** Reads a folder's checkpoint. @throws UserError when there is none, or it is no checkpoint of this program */
export function readCheckpoint(folder: string): Checkpoint {
  const file = join(folder, FILE)
  if (!existsSync(file)) throw new UserError(`there is no checkpoint to resume in ${folder}`)
  try {
    const [arrays, metadata] = mx.load(file, { returnMetadata: true }) as [
      Record<string, mx.Array>,
      Record<string, string>,
    ]
    if (metadata.format !== FORMAT) throw new Error(`its format is ${metadata.format}, not ${FORMAT}`)
    return {
      config: JSON.parse(metadata.config) as Config,
      steps: Number(metadata.steps),
      progress: {
        step: Number(metadata.step),
        seconds: Number(metadata.seconds),
        history: { train: points(arrays["history.train"]), validation: points(arrays["history.validation"]) },
      },
      dataHash: metadata.data,
      arrays,
    }
  } catch (error) {
    throw new UserError(`${file} is no checkpoint of this program: ${(error as Error).message}`)
  }
}

/** Refuses to continue with another text or other settings than the run began with. @throws UserError */
export function checkCompatible(checkpoint: Checkpoint, corpus: Corpus, options: Options): void {
  for (const key of CONFIG_KEYS) {
    if (!options.given.has(key) || options[key] === checkpoint.config[key]) continue
    const flag = key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)
    throw new UserError(
      `cannot resume: the checkpoint has --${flag} ${checkpoint.config[key]}, not ${options[key]}`,
    )
  }
  if (checkpoint.dataHash !== corpus.hash)
    throw new UserError(`cannot resume: the checkpoint was trained on another text than ${corpus.name}`)
}

/** Puts a checkpoint's arrays in place. @throws UserError when they do not fit */
export function restore(trainer: Trainer, { arrays }: Checkpoint): void {
  const state = stateOf(trainer)
  for (const [name, { shape }] of state) {
    const found = arrays[name]
    if (found && String(found.shape) === String(shape)) continue
    const what = found ? `shape [${found.shape}] where the model has [${shape}]` : "nothing"
    throw new UserError(`cannot resume: the checkpoint has ${what} for ${name}`)
  }
  for (const [name] of state) {
    if (name.startsWith("optimizer."))
      replaceLeaf(trainer.optimizer.state, name.split(".").slice(1), arrays[name])
  }
  const { model, random } = mx.treeUnflatten(state.map(([name]) => [name, arrays[name]] as const)) as {
    model: object
    random: mx.Array[]
  }
  trainer.model.update(model)
  mx.random.state[0] = random[0]
}

/** Compiled functions hold the optimizer's tree itself, so its leaves are replaced and not the tree. */
function replaceLeaf(tree: object, [key, ...rest]: string[], array: mx.Array): void {
  const holder = tree as Record<string, unknown>
  if (rest.length === 0) holder[key] = array
  else replaceLeaf(holder[key] as object, rest, array)
}
