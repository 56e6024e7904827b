/**
 * The registry of model families.
 */
import { ArgumentError } from "@lazuli/core/engine"
import { Module } from "@lazuli/nn"
import { CALLBACK, checkKind, OBJECT, STRINGS } from "../argument-kinds"
import { bert } from "./families/bert"
import { gemma } from "./families/gemma"
import { gpt2 } from "./families/gpt2"
import { llama } from "./families/llama"
import { mixtral } from "./families/mixtral"
import { olmo } from "./families/olmo"
import { phi3 } from "./families/phi3"
import { qwen } from "./families/qwen"
import { roberta } from "./families/roberta"
import type { Family, Network } from "./network"
import type { Settings } from "./settings"

const families = new Map<string, Family>()

/**
 * Registers a model family, so that `load` supports its `model_type`s. It replaces earlier families with the same ones.
 * @example
 * class Bigram extends CausalNetwork {
 *   constructor(vocabulary) {
 *     super()
 *     this.vocabulary = vocabulary
 *     this.table = new nn.Embedding(vocabulary, vocabulary)
 *   }
 *   layerShapes() {
 *     return []
 *   }
 *   hidden(tokens) {
 *     return this.table.forward(tokens)
 *   }
 *   logits(hidden) {
 *     return hidden
 *   }
 * }
 * registerFamily({ modelTypes: ['mine'], make: (config) => new Bigram(config.count('vocab_size')) })
 * modelTypes().includes('mine') // => true
 */
export function registerFamily(family: Family): void {
  const op = "registerFamily"
  checkKind(op, "a family", family, OBJECT, "It has modelTypes and make")
  const { modelTypes, make, complete, sanitize, layerName } = family
  checkKind(op, "modelTypes", modelTypes, STRINGS)
  if (modelTypes.length === 0 || modelTypes.includes(""))
    throw new ArgumentError(op, "modelTypes must name at least one model_type")
  checkKind(op, "make", make, CALLBACK)
  for (const [name, value] of Object.entries({ complete, sanitize, layerName }))
    if (value !== undefined) checkKind(op, name, value, CALLBACK)
  for (const type of family.modelTypes) families.set(type, family)
}

for (const family of [bert, gemma, gpt2, llama, mixtral, olmo, phi3, qwen, roberta]) registerFamily(family)

/**
 * The supported `model_type`s, sorted.
 * @example
 * modelTypes().includes('llama') // => true
 */
export const modelTypes = (): string[] => [...families.keys()].sort()

/** A config with the values that its family knows it by. */
export const completed = (family: Family, config: Settings): Settings => family.complete?.(config) ?? config

/** A config's network by its family. @throws ArgumentError if that makes none */
export function networkOf(family: Family, config: Settings): Network {
  const network = family.make(completed(family, config))
  const accepts = (value: unknown): boolean => value instanceof Module
  const expected = "a CausalNetwork or an EncoderNetwork"
  checkKind("load", `what make of the family "${family.modelTypes[0]}" returns`, network, {
    expected,
    accepts,
  })
  return network
}

/** The family of a config. @throws ArgumentError if its model_type is not supported */
export function familyOf(config: Settings): Family {
  const type = config.string("model_type")
  const found = families.get(type)
  if (found) return found
  throw new ArgumentError("load", `the model_type "${type}" is not supported`, {
    hint: `Supported: ${modelTypes().join(", ")}; registerFamily adds others`,
  })
}
