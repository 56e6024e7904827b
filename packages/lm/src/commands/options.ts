/**
 * Options that several subcommands share.
 */
import { existsSync, realpathSync } from "node:fs"
import type * as mx from "@lazuli/core"
import { ArgumentError, isPlainObject } from "@lazuli/core/engine"
import { type Command, InvalidArgumentError, Option } from "commander"
import { storedText } from "../formats/gguf-stored"
import { type LoadedModel, type LoadModelOptions, load } from "../formats/load"
import { checkOptions, type GenerateOptions } from "../generate/options"
import type { Network } from "../models/network"
import type { Tokenizer } from "../text/tokenizer"
import { loadAdapters } from "../tune/adapter-files"
import { type FuseOptions, fuseAdapters } from "../tune/lora"
import { progressBar, type Terminal } from "./terminal"

/** Parses a number. */
export function number(text: string): number {
  const value = Number(text)
  if (text.trim() === "" || !Number.isFinite(value)) throw new InvalidArgumentError("Not a number.")
  return value
}

/** Parses an integer. */
export function integer(text: string): number {
  const value = number(text)
  if (!Number.isSafeInteger(value)) throw new InvalidArgumentError("Not an integer.")
  return value
}

const collect = (value: string, before: string[] = []): string[] => [...before, value]

/** The generation options, as parsed by commander. */
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
  readonly cacheBits?: number
  readonly maxContext?: number
  readonly draft?: string
  readonly draftTokens?: number
}

/** Refuses a flag that is given twice, of which only the last one would count. */
export function refuseRepeats(command: Command): void {
  for (const option of command.options) {
    if (option.isBoolean() || option.variadic || option.parseArg === collect) continue
    let isGiven = false
    command.on(`option:${option.name()}`, () => {
      if (isGiven) command.error(`error: --${option.name()} is given twice`)
      isGiven = true
    })
  }
}

/** Adds the generation options to a command. */
export const addGeneration = (command: Command): Command =>
  command
    .option("-n, --max-tokens <n>", "maximum number of tokens to generate", integer, 256)
    .option("-t, --temperature <t>", "sampling temperature; 0 is greedy", number, 0)
    .option("--top-k <k>", "sample from the k most likely tokens", integer)
    .option("--top-p <p>", "sample from the most likely tokens with total probability p", number)
    .option("--min-p <p>", "sample from tokens at least p times as likely as the top one", number)
    .option("--repetition-penalty <x>", "penalize tokens in the prompt and output; 1 is none", number)
    .option("--presence-penalty <x>", "subtracted from the logits of generated tokens", number)
    .option("--frequency-penalty <x>", "subtracted once for each time a token was generated", number)
    .option("--stop <text>", "stop string; may be repeated", collect)
    .option("--seed <n>", "random seed", integer)
    .option("--ignore-eos", "continue after end-of-text tokens")
    .option("--cache-bits <n>", "quantize keys and values to 6 or 8 bits", integer)
    .option("--max-context <n>", "limit attention to the last n tokens", integer)
    .option("--draft <model>", "smaller model with the same tokenizer, for speculative decoding")
    .option("--draft-tokens <n>", "tokens to draft at a time", integer)

/** The options of `stream`, but for the draft model. @throws ArgumentError for those out of range */
export function checkedGeneration(flags: GenerationFlags): GenerateOptions {
  const options = generationOf(flags)
  checkOptions(options)
  return options
}

/** The draft model, if there is one. */
export async function draftOf(
  { draft }: GenerationFlags,
  terminal: Terminal,
): Promise<LoadedModel | undefined> {
  return draft === undefined ? undefined : loadShown({ model: draft }, terminal)
}

const generationOf = (flags: GenerationFlags): GenerateOptions => ({
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
  cacheBits: flags.cacheBits,
  maxContext: flags.maxContext,
  draftTokens: flags.draftTokens,
})

const TEMPLATE_HELP = "variables for the chat template, such as '{\"enable_thinking\": false}'"

/** Parses a JSON object. */
function jsonObject(text: string): Record<string, unknown> {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {}
  if (!isPlainObject(value)) throw new InvalidArgumentError("Not a JSON object.")
  return value as Record<string, unknown>
}

/** Adds the variables of the chat template to a command. */
export const addTemplateValues = (command: Command): Command =>
  command.option("--chat-template-kwargs <json>", TEMPLATE_HELP, jsonObject)

/** The variables of the chat template, as parsed by commander. */
export interface TemplateFlags {
  readonly chatTemplateKwargs?: Readonly<Record<string, unknown>>
}

/** Rejects an output that would replace the model it is made from. @throws ArgumentError */
export function refuseOwn(op: string, flag: string, out: string, model: string): void {
  if (!existsSync(out) || !existsSync(model) || realpathSync(out) !== realpathSync(model)) return
  throw new ArgumentError(op, `${flag} ${out} is the model itself, which it would replace`, {
    hint: "Choose another place",
  })
}

/** A model's tokenizer. @throws ArgumentError if it has none */
export function tokenizerOf({ tokenizer, source }: LoadedModel): Tokenizer {
  if (tokenizer) return tokenizer
  throw new ArgumentError("lora", `${source} has no tokenizer`)
}

/** The model options, as parsed by commander. */
export interface ModelFlags {
  readonly model: string
  readonly activations?: mx.ProductActivations
  readonly adapters?: string
}

export const MODEL_HELP = "folder, .gguf file or name on the Hugging Face Hub"

/** Adds the model options to a command. */
export const addModel = (command: Command): Command =>
  command
    .requiredOption("-m, --model <model>", MODEL_HELP)
    .addOption(
      new Option(
        "--activations <how>",
        "int8 quantizes the inputs of quantized layers: faster, less exact",
      ).choices(["exact", "int8"]),
    )
    .option("--adapters <folder>", "LoRA adapters to load")

export const REQUANTIZE_HELP =
  "quantize layers with fused adapters again, which loses small changes; without it they become dense"

/** Fuses adapters, and says what that changes. */
export function fuseShown(network: Network, { requantize }: FuseOptions, terminal: Terminal): void {
  const { layers, dequantized, lost } = fuseAdapters(network, { requantize })
  const dense = dequantized > 0 ? `, ${dequantized} quantized layers are dense now` : ""
  terminal.err(
    `${layers} adapters fused${dense}; rounding changes the weights by ${(100 * lost).toFixed(1)} % of what the adapters do\n`,
  )
}

/** Loads a model with its adapters, and shows a progress bar. */
export async function loadShown(
  { model, activations, adapters }: ModelFlags,
  terminal: Terminal,
  options: Pick<LoadModelOptions, "dtype"> = {},
): Promise<LoadedModel> {
  const onProgress = progressBar(terminal, "loading")
  const loaded = await load(model, { ...options, activations, onProgress })
  if (loaded.stored) terminal.err(`${storedText(loaded.stored)}\n`)
  if (adapters !== undefined) loadAdapters(loaded.network, adapters)
  return loaded
}
