/**
 * Kinds of arguments: what they must be, in words, and the test of it.
 */
import { ArgumentError, describe, hintFor } from "@lazuli/core/engine"

export interface Kind {
  /** After "must be". */
  readonly expected: string
  accepts(value: unknown): boolean
}

const isNumber = (value: unknown): value is number => typeof value === "number"
const isText = (value: unknown): boolean => typeof value === "string" && value !== ""

export const FLAG: Kind = { expected: "true or false", accepts: (value) => typeof value === "boolean" }
export const CALLBACK: Kind = { expected: "a function", accepts: (value) => typeof value === "function" }
export const STRING: Kind = { expected: "a string", accepts: (value) => typeof value === "string" }
/** A name or a path. */
export const TEXT: Kind = { expected: "a string that is not empty", accepts: isText }
export const STRINGS: Kind = {
  expected: "a list of strings",
  accepts: (value) => Array.isArray(value) && value.every((item) => typeof item === "string"),
}
export const OBJECT: Kind = {
  expected: "an object",
  accepts: (value) => typeof value === "object" && value !== null && !Array.isArray(value),
}
export const COUNT: Kind = {
  expected: "a positive integer",
  accepts: (value) => Number.isSafeInteger(value) && (value as number) >= 1,
}
export const INTEGER: Kind = { expected: "an integer", accepts: Number.isSafeInteger }
export const FINITE: Kind = { expected: "a finite number", accepts: Number.isFinite }
/** A size or a limit, which may be Infinity. */
export const SIZE: Kind = {
  expected: "a non-negative number",
  accepts: (value) => isNumber(value) && value >= 0,
}
export const POSITIVE: Kind = {
  expected: "a positive number",
  accepts: (value) => isNumber(value) && value > 0,
}
export const FRACTION: Kind = {
  expected: "a number in [0, 1)",
  accepts: (value) => isNumber(value) && value >= 0 && value < 1,
}
export const TOKENS: Kind = {
  expected: "a list of token ids",
  accepts: (value) =>
    Array.isArray(value) && value.every((token) => Number.isSafeInteger(token) && token >= 0),
}

/** @throws ArgumentError unless a value is of a kind */
export function checkKind(
  op: string,
  name: string,
  value: unknown,
  { expected, accepts }: Kind,
  hint?: string,
): void {
  if (accepts(value)) return
  throw new ArgumentError(op, `${name} must be ${expected}, received ${describe(value)}`, {
    hint: hintFor(value, hint),
  })
}
