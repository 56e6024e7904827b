/**
 * Checks that all public functions share: of models, and of the names of options. What commands and the server say of what they refuse.
 */
import { ArgumentError, checkOptions, describe, hintFor, type LazuliError } from "@lazuli/core/engine"
import { Module } from "@lazuli/nn"
import { checkKind, type Kind } from "./argument-kinds"
import { CausalNetwork, type Network } from "./models/network"
import type { Tokenizer } from "./text/tokenizer"

/** @throws ArgumentError unless it is a model that `load` or `fromConfig` made */
export function checkModel(op: string, model: unknown, name = "the model"): void {
  if ((model as { network?: unknown } | null | undefined)?.network instanceof Module) return
  throw new ArgumentError(
    op,
    `${name} must be one that load or fromConfig made, received ${describe(model)}`,
    {
      hint: hintFor(model),
    },
  )
}

/** A model in place of a part of it. */
const partHint = (value: unknown, part: "network" | "tokenizer"): string | undefined =>
  (value as { network?: unknown } | null | undefined)?.network instanceof Module
    ? `Pass the model's ${part}`
    : undefined

/** @throws ArgumentError unless it is the network of a model */
export function checkNetwork(op: string, network: Network): void {
  const expected = "the network of a model"
  const accepts = (value: unknown): boolean => value instanceof Module
  checkKind(op, "the network", network, { expected, accepts }, partHint(network, "network"))
}

/** @throws ArgumentError unless it is a network that generates text */
export function checkCausal(op: string, network: CausalNetwork): void {
  checkNetwork(op, network)
  const expected = "one that generates text"
  const accepts = (value: unknown): boolean => value instanceof CausalNetwork
  checkKind(op, "the network", network, { expected, accepts })
}

/** @throws ArgumentError unless it is a tokenizer */
export function checkTokenizer(op: string, tokenizer: Tokenizer): void {
  const expected = "a Tokenizer"
  // Those of other packages will do.
  const accepts = (value: unknown): boolean =>
    typeof (value as Partial<Tokenizer> | null | undefined)?.decode === "function"
  checkKind(op, "the tokenizer", tokenizer, { expected, accepts }, partHint(tokenizer, "tokenizer"))
}

/** @throws ArgumentError unless it is an AbortSignal */
export function checkSignal(op: string, signal: unknown): void {
  if (signal === undefined || signal instanceof AbortSignal) return
  throw new ArgumentError(op, `signal must be an AbortSignal, received ${describe(signal)}`)
}

/** The names of options, each with its kind, or true where another check follows. */
export type OptionKinds<O extends object> = { readonly [K in keyof O]-?: true | Kind }

/** A check that rejects options of other names, and those of other kinds. */
export function optionsNamed<O extends object>(names: OptionKinds<O>): (op: string, options: O) => void {
  const known = Object.keys(names)
  const kinds = Object.entries<true | Kind>(names)
  return (op, options) => {
    checkOptions(op, options, known)
    for (const [name, kind] of kinds) {
      const value = options[name as keyof O]
      if (kind !== true && value !== undefined) checkKind(op, name, value, kind)
    }
  }
}

/** An error's message without the name of the function, which users of commands and callers over HTTP do not call. */
export const factOf = ({ op, message }: LazuliError): string =>
  message.startsWith(`[${op}] `) ? message.slice(op.length + 3) : message
