/**
 * Prompts of any form as token ids.
 */
import { ArgumentError, describe } from "@lazuli/core/engine"
import type { LoadedModel } from "../formats/load"
import { CausalNetwork } from "../models/network"
import { type ChatOptions, isMessage, type Message } from "../text/tokenizer"

/**
 * A text, a conversation, or token ids. A text gets special tokens such as the one at the beginning, unless it begins with that: a
 * conversation that `tokenizer.prompt` renders with variables of its own is one.
 */
export type Prompt = string | readonly Message[] | readonly number[]

/** The model's network. @throws ArgumentError if the model is an encoder */
export function causal(op: string, model: LoadedModel): CausalNetwork {
  const { network } = model
  if (network instanceof CausalNetwork) return network
  throw new ArgumentError(op, "the model is an encoder, which does not generate text", {
    hint: "Use embed or rerank",
  })
}

/**
 * The tokens of a prompt.
 * @param options - for the chat template of a conversation
 * @throws ArgumentError for a text if the model has no tokenizer, and for tokens outside the vocabulary
 */
export function promptTokens(model: LoadedModel, prompt: Prompt, options: ChatOptions = {}): number[] {
  const tokens = tokensOf(model, prompt, options)
  checkTokens(model, tokens)
  return tokens
}

/** The tokens that a generated text continues: none, if it begins anew. */
export const continued = (
  prompt: Prompt,
  tokens: readonly number[],
  { continues = typeof prompt === "string" }: { readonly continues?: boolean },
): readonly number[] => (continues ? tokens : [])

/** @throws ArgumentError for tokens outside the vocabulary */
export function checkTokens({ network, config }: LoadedModel, tokens: readonly number[]): void {
  const vocabulary =
    network instanceof CausalNetwork ? network.vocabulary : (config.optionalCount("vocab_size") ?? Infinity)
  const unknown = tokens.find((token) => !Number.isSafeInteger(token) || token < 0 || token >= vocabulary)
  if (unknown !== undefined)
    throw new ArgumentError("stream", `the vocabulary of ${vocabulary} has no token ${unknown}`)
}

function tokensOf({ tokenizer }: LoadedModel, prompt: Prompt, options: ChatOptions): number[] {
  const isList = (accepts: (item: unknown) => boolean): boolean =>
    Array.isArray(prompt) && prompt.every(accepts)
  if (typeof prompt !== "string" && !isList((item) => typeof item === "number") && !isList(isMessage))
    throw new ArgumentError(
      "stream",
      `the prompt must be a text, token ids, or messages with a role and a text as content, received ${describe(prompt)}`,
    )
  if (tokenizer) return tokenizer.tokensOf(prompt, options)
  if (typeof prompt !== "string" && prompt.every((item) => typeof item === "number")) return [...prompt]
  throw new ArgumentError(
    "stream",
    "the model has no tokenizer (tokenizer.json): the prompt must be a list of token ids",
  )
}
