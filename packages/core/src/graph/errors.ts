/**
 * The errors that Lazuli throws. Each class has a stable `code`, so that programs can distinguish them without parsing messages, which have
 * the form `[op] fact: expected, received. Hint`.
 */

import { CORE_COPY, copyOf, copyText } from "./copies"

/** The parts of an error message. */
export interface ErrorDetails {
  /** The remedy, if known. */
  hint?: string
  /** The underlying error. */
  cause?: unknown
}

/**
 * The base of all errors thrown by Lazuli.
 *
 * @example
 * let code = ''
 * try { mx.zeros([2]).reshape([3]) } catch (error) { if (error instanceof mx.LazuliError) code = error.code }
 * code // => 'SHAPE'
 */
export class LazuliError extends Error {
  /** A stable identifier of the class. */
  readonly code: string = "LAZULI"
  /** The public function that failed. */
  readonly op: string
  constructor(op: string, fact: string, details: ErrorDetails = {}) {
    const name = bounded(op, MAX_NAME)
    const hint = details.hint ? `. ${bounded(details.hint, MAX_TEXT)}` : ""
    super(
      `[${name}] ${bounded(fact, MAX_TEXT)}${hint}`,
      details.cause === undefined ? undefined : { cause: details.cause },
    )
    this.op = name
    this.name = new.target.name
  }
}

/** The most characters of a fact or hint, and of a name: messages that quote input must stay bounded. */
const MAX_TEXT = 900
const MAX_NAME = 100

/** Elides the middle of a text of more than `most` characters. */
function bounded(text: string, most: number): string {
  if (text.length <= most) return text
  const end = most >> 2
  const start = most - end
  return `${text.slice(0, start)}… (${text.length - most} more characters) …${text.slice(-end)}`
}

/** Incompatible shapes, axes or sizes. */
export class ShapeError extends LazuliError {
  override readonly code = "SHAPE"
}
/** A dtype that an operation does not support. */
export class DTypeError extends LazuliError {
  override readonly code = "DTYPE"
}
/** An index out of bounds. */
export class IndexError extends LazuliError {
  override readonly code = "INDEX"
}
/** An argument of the wrong type, an unknown option, or a value out of range. */
export class ArgumentError extends LazuliError {
  override readonly code = "ARGUMENT"
}
/** A device or backend is missing, out of memory, or cannot do what was requested. */
export class DeviceError extends LazuliError {
  override readonly code = "DEVICE"
}
/** An invalid use of a transform, such as reading the value of a traced array. */
export class TransformError extends LazuliError {
  override readonly code = "TRANSFORM"
}
/** Values for which an operation is undefined, such as a singular matrix. */
export class NumericError extends LazuliError {
  override readonly code = "NUMERIC"
}
/** A malformed file. */
export class FormatError extends LazuliError {
  override readonly code = "FORMAT"
}
/** An invalid registration of a primitive or backend. */
export class RegistryError extends LazuliError {
  override readonly code = "REGISTRY"
}

/** Another process of a job failed, was lost, or ran a different operation; see `mx.distributed`. */
export class DistributedError extends LazuliError {
  override readonly code = "DISTRIBUTED"
  /** The rank that the message names. */
  readonly rank: number
  constructor(op: string, fact: string, details?: ErrorDetails) {
    super(op, fact, details)
    this.rank = Number(/^rank (\d+)/.exec(fact)?.[1] ?? -1)
  }
}

/** Describes a received value in an error: `a value of type Date`, `the string "abc"`, … */
export function describe(value: unknown): string {
  if (value === undefined) return "nothing"
  if (value === null) return "null"
  if (typeof value === "string")
    return `the string ${JSON.stringify(value.length > 40 ? `${value.slice(0, 40)}…` : value)}`
  if (typeof value === "number" || typeof value === "boolean") return `the ${typeof value} ${value}`
  if (typeof value === "bigint") return `the bigint ${value}n`
  if (typeof value === "symbol") return "a symbol"
  if (typeof value === "function") {
    const copy = copyOf(value)
    return copy !== undefined && copy !== CORE_COPY
      ? copyText(value, copy)
      : `the function ${bounded(value.name || "(anonymous)", MAX_NAME)}`
  }
  if (globalThis.Array.isArray(value)) return `a list of length ${value.length}`
  const copy = copyOf(value)
  if (copy !== undefined && copy !== CORE_COPY) return copyText(value, copy)
  const { dtype, shape, constructor } = value as Record<string, unknown>
  if (dtype !== undefined && globalThis.Array.isArray(shape)) return "an mx.Array"
  if (value instanceof Promise) return "a promise"
  const name = (constructor as { name?: string } | undefined)?.name
  if (name && name !== "Object") return `a value of type ${name}`
  return Symbol.iterator in (value as object) ? "an iterator" : "a plain object"
}

/** The hint for a refused value: to await it where it is a promise, else the given one. */
export function hintFor(value: unknown, hint?: string): string | undefined {
  return value instanceof Promise ? "Await it first" : hint
}

/** The candidate nearest to `word` by edit distance, if near enough to be a likely typo. */
export function nearest(word: string, candidates: Iterable<string>): string | undefined {
  let best: string | undefined
  let bestDistance = Math.max(2, Math.floor(word.length / 3)) + 1
  for (const candidate of candidates) {
    const distance = editDistance(word.toLowerCase(), candidate.toLowerCase())
    if (distance < bestDistance) {
      best = candidate
      bestDistance = distance
    }
  }
  return best
}

function editDistance(a: string, b: string): number {
  let previous = globalThis.Array.from({ length: b.length + 1 }, (_, j) => j)
  for (let i = 1; i <= a.length; i++) {
    const row = [i]
    for (let j = 1; j <= b.length; j++) {
      const substitution = previous[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1)
      row.push(Math.min(substitution, previous[j] + 1, row[j - 1] + 1))
    }
    previous = row
  }
  return previous[b.length]
}
