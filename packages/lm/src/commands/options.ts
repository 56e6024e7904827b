/**
 * Arguments that several subcommands share.
 */

import type * as mx from "@lazuli/core"
import { ArgumentError } from "@lazuli/core/engine"
import { type Command, InvalidArgumentError, Option } from "commander"
import { type LoadedModel, type LoadModelOptions, load } from "../formats/load"
import type { GenerateOptions } from "../generate/stream"
import type { Tokenizer } from "../text/tokenizer"
import { progressBar, type Terminal } from "./terminal"

/** Reads a number. */
export function number(text: string): number {
  const value = Number(text)
  if (text.trim() === "" || !Number.isFinite(value)) throw new InvalidArgumentError("Not a number.")
  return value
}

/** Reads a whole number. */
export function whole(text: string): number {
  const value = number(text)
  if (!Number.isSafeInteger(value)) throw new InvalidArgumentError("Not a whole number.")
  return value
}

const several = (value: string, before: string[] = []): string[] => [...before, value]

/** The options of generation, as commander gives them. */
export interface GenerationFlags {
  readonly maxTokens: number
  readonly temperature: number
  readonly topK?: number
  readonly topP?: number
  readonly minP?: number
  readonly repetitionPenalty?: number
  readonly presencePenalty?: number
  readonly frequencyPenalty?: number
  readonly stop?: string[]
  readonly seed?: number
  readonly ignoreEos?: boolean
}

/** Adds the options of generation to a command. */
export const addGeneration = (command: Command): Command =>
  command
    .option("-n, --max-tokens <n>", "most tokens to generate", whole, 256)
    .option("-t, --temperature <t>", "0 always takes the likeliest token", number, 0)
    .option("--top-k <k>", "sample from the k likeliest tokens", whole)
    .option("--top-p <p>", "sample from the likeliest tokens whose probabilities reach p together", number)
    .option("--min-p <p>", "sample from tokens at least p times as likely as the likeliest", number)
    .option("--repetition-penalty <x>", "divide the logits of tokens seen so far by this", number)
    .option("--presence-penalty <x>", "subtract this from the logits of generated tokens", number)
    .option("--frequency-penalty <x>", "subtract this once for each time a token was generated", number)
    .option("--stop <text>", "text that ends the answer; may be repeated", several)
    .option("--seed <n>", "the same seed samples the same tokens", whole)
    .option("--ignore-eos", "continue after an end-of-text token")

/** The options for `stream`. */
export const generationOf = (flags: GenerationFlags): GenerateOptions => ({
  maxTokens: flags.maxTokens,
  temperature: flags.temperature,
  topK: flags.topK,
  topP: flags.topP,
  minP: flags.minP,
  repetitionPenalty: flags.repetitionPenalty,
  presencePenalty: flags.presencePenalty,
  frequencyPenalty: flags.frequencyPenalty,
  stop: flags.stop,
  seed: flags.seed,
  ignoreEos: flags.ignoreEos,
})

/** A model's tokenizer. @throws ArgumentError where it has none */
export function tokenizerOf({ tokenizer, source }: LoadedModel): Tokenizer {
  if (tokenizer) return tokenizer
  throw new ArgumentError("lora", `${source} has no tokenizer`)
}

/** The model that a command runs, as commander gives it. */
export interface ModelFlags {
  readonly model: string
  readonly activations?: mx.ProductActivations
}

/** Adds the options of the model that a command runs. */
export const addModel = (command: Command): Command =>
  command
    .requiredOption("-m, --model <model>", "a folder, a .gguf file or a name on the hub")
    .addOption(
      new Option("--activations <how>", "int8 rounds what meets packed weights: faster, less exact").choices([
        "exact",
        "int8",
      ]),
    )

/** Loads a model with a progress bar. */
export const loadShown = (
  source: string,
  terminal: Terminal,
  options: Pick<LoadModelOptions, "dtype" | "activations"> = {},
): Promise<LoadedModel> =>
  load(source, {
    ...options,
    onProgress: progressBar(terminal, "loading"),
  })
