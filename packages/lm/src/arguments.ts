/**
 * Checks that all public functions share: of models, and of the names of options. What commands and the server say of what they refuse.
 */
import { ArgumentError, checkOptions, describe, hintFor, type LazuliError } from "@lazuli/core/engine"
import { Module } from "@lazuli/nn"

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

/** @throws ArgumentError unless it is an AbortSignal */
export function checkSignal(op: string, signal: unknown): void {
  if (signal === undefined || signal instanceof AbortSignal) return
  throw new ArgumentError(op, `signal must be an AbortSignal, received ${describe(signal)}`)
}

/** A check that rejects options of other names. */
export function optionsNamed<O extends object>(
  names: {
    readonly [K in keyof O]-?: true
  },
): (op: string, options: O) => void {
  const known = Object.keys(names)
  return (op, options) => checkOptions(op, options, known)
}

/** An error's message without the name of the function, which users of commands and callers over HTTP do not call. */
export const factOf = ({ op, message }: LazuliError): string =>
  message.startsWith(`[${op}] `) ? message.slice(op.length + 3) : message
