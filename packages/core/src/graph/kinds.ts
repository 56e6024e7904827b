/**
 * Kinds of arguments: predicates and their descriptions, by which arguments of public functions are validated before their bodies run. The
 * number and names of arguments are checked in args.ts.
 */
import { Complex } from "./complex-number"
import { Device, Stream, ThreadLocalStream } from "./device"
import { isDtype } from "./dtype"
import { ArgumentError, DTypeError, describe, hintFor, type LazuliError, nearest } from "./errors"
import { Array } from "./graph"

/** The kind of value that a parameter takes. */
export interface Kind {
  /** The expected value, as in "must be …". */
  readonly expected: string
  readonly accepts: (value: never) => boolean
  /** For lists: the predicate of their elements. */
  readonly element?: (value: unknown) => boolean
  readonly hint?: string
  readonly error?: new (op: string, fact: string, details?: { hint?: string }) => LazuliError
  /** True if it may be omitted. */
  readonly optional?: boolean
}

const isList = globalThis.Array.isArray as (value: unknown) => value is unknown[]
const isInteger = (v: unknown): boolean => Number.isSafeInteger(v)
const isNumber = (v: unknown): boolean => typeof v === "number"
const isScalar = (v: unknown): boolean =>
  typeof v === "number" || typeof v === "boolean" || typeof v === "bigint" || v instanceof Complex
const isSize = (v: unknown): boolean => Number.isSafeInteger(v) && (v as number) >= 0
const within = (v: unknown, low: number, high: number): boolean =>
  typeof v === "number" && v >= low && v <= high
/** True if a value is a list whose elements all satisfy `fits`. Includes holes, which `every` would skip. */
export function isListOf(value: unknown, fits: (element: unknown, i: number) => boolean): boolean {
  if (!isList(value)) return false
  for (let i = 0; i < value.length; i++) if (!fits(value[i], i)) return false
  return true
}
const listOf =
  (accepts: (v: unknown) => boolean) =>
  (v: unknown): boolean =>
    isListOf(v, accepts)
/** As {@link isListOf}, by loops of their own, into which V8 inlines what they call: most shapes and axes pass here. */
function areNumbers(v: unknown): boolean {
  if (!isList(v)) return false
  for (let i = 0; i < v.length; i++) if (!isNumber(v[i])) return false
  return true
}
function areIntegers(v: unknown): boolean {
  if (!isList(v)) return false
  for (let i = 0; i < v.length; i++) if (!isInteger(v[i])) return false
  return true
}
const isArray = (v: unknown): boolean => v instanceof Array
const isOperand = (v: unknown): boolean => v instanceof Array || isScalar(v)
const isProbability = (v: unknown): boolean => within(v, 0, 1)
const orNumbers = (v: unknown): boolean => v instanceof Array || isNumber(v) || areNumbers(v)
const MAKES = "mx.array(data) makes one"

const MOST_POINTS = 2 ** 28

const table = {
  any: { expected: "a value", accepts: (v: unknown) => v !== undefined },
  array: { expected: "an array", accepts: isArray, hint: MAKES },
  operand: {
    expected: "an array or a scalar",
    accepts: isOperand,
    hint: "mx.array(data) makes an array",
  },
  arrays: { expected: "a list of arrays", accepts: listOf(isArray), element: isArray, hint: MAKES },
  operands: {
    expected: "a list of arrays or scalars",
    accepts: listOf(isOperand),
    element: isOperand,
  },
  indices: {
    expected: "an array of integers, or integers in lists",
    accepts: (v: unknown) => v instanceof Array || isInteger(v) || isList(v),
  },
  number: { expected: "a number", accepts: isNumber },
  /** Bounds and parameters of distributions. */
  numbers: { expected: "a number, a list of numbers or an array", accepts: orNumbers },
  finite: { expected: "a finite number", accepts: (v: unknown) => Number.isFinite(v) },
  positive: { expected: "a number above 0", accepts: (v: unknown) => isNumber(v) && (v as number) > 0 },
  nonNegative: {
    expected: "a non-negative number",
    accepts: (v: unknown) => within(v, 0, Number.POSITIVE_INFINITY),
  },
  probability: { expected: "a number from 0 to 1", accepts: isProbability },
  probabilities: {
    expected: "a number from 0 to 1, a list of such numbers or an array",
    accepts: (v: unknown) => v instanceof Array || isProbability(v) || listOf(isProbability)(v),
    element: isProbability,
  },
  integer: { expected: "an integer", accepts: isInteger },
  size: { expected: "a non-negative integer", accepts: isSize },
  count: { expected: "an integer of at least 1", accepts: (v: unknown) => isSize(v) && v !== 0 },
  /** The number of points computed immediately in JavaScript. */
  points: {
    expected: `an integer of at most ${MOST_POINTS}`,
    accepts: (v: unknown) => isInteger(v) && (v as number) <= MOST_POINTS,
  },
  integers: {
    expected: "an integer or a list of integers",
    accepts: (v: unknown) => isInteger(v) || areIntegers(v),
    element: isInteger,
  },
  integerList: { expected: "a list of integers", accepts: areIntegers, element: isInteger },
  integerListOrNone: {
    expected: "a list of integers, or null for all",
    accepts: (v: unknown) => v === null || areIntegers(v),
  },
  axis: { expected: "an integer", accepts: isInteger },
  axes: {
    expected: "an integer or a list of integers",
    accepts: (v: unknown) => isInteger(v) || areIntegers(v),
    element: isInteger,
  },
  /** For parameters where null differs from the default. */
  axisOrNone: {
    expected: "an integer, or null for all",
    accepts: (v: unknown) => v === null || isInteger(v),
  },
  shape: {
    expected: "a shape (a size or a list of sizes)",
    accepts: (v: unknown) => isNumber(v) || areNumbers(v),
    element: isNumber,
  },
  bool: { expected: "a boolean", accepts: (v: unknown) => typeof v === "boolean" },
  string: { expected: "a string", accepts: (v: unknown) => typeof v === "string" },
  dtype: { expected: "a dtype such as mx.float32", accepts: isDtype, error: DTypeError },
  key: { expected: "a key (an array that mx.random.key makes)", accepts: (v: unknown) => v instanceof Array },
  function: { expected: "a function", accepts: (v: unknown) => typeof v === "function" },
  stream: {
    expected: "a device (mx.cpu or mx.gpu) or a stream",
    accepts: (v: unknown) =>
      v instanceof Stream ||
      v instanceof Device ||
      v instanceof ThreadLocalStream ||
      v === "cpu" ||
      v === "gpu",
  },
  record: {
    expected: "a plain object",
    accepts: (v: unknown) => typeof v === "object" && v !== null && !isList(v) && !(v instanceof Array),
  },
} as const satisfies Record<string, Kind>

/**
 * The kind of a parameter by name, where `?` marks an optional one, which may also be null; a list of the allowed strings; or an object,
 * for kinds of other packages.
 */
export type ParameterKind = keyof typeof table | `${keyof typeof table}?` | readonly string[] | Kind

/** The parameters of a public function, in order. */
export type Signature = Readonly<Record<string, ParameterKind>>

/** A parameter with its kind. */
export interface Parameter extends Kind {
  readonly name: string
  readonly optional: boolean
  readonly accepts: (value: unknown) => boolean
}

/** Parameters without a kind accept anything. */
const ANYTHING: Kind = { expected: "a value", accepts: () => true }

/** The parameters of a signature or of a list of names. */
export function parametersOf(signature: Signature | readonly string[]): readonly Parameter[] {
  if (isList(signature))
    return signature.map((name) => ({ ...(ANYTHING as Parameter), name: name as string, optional: true }))
  return Object.entries(signature as Signature).map(([name, kind]) => {
    if (typeof kind === "string") {
      const optional = kind.endsWith("?")
      const key = (optional ? kind.slice(0, -1) : kind) as keyof typeof table
      const { expected, accepts, element, hint, error } = table[key] as Kind
      return { name, optional, expected, accepts: accepts as Parameter["accepts"], element, hint, error }
    }
    if (!isList(kind)) return { ...(kind as Parameter), name, optional: (kind as Kind).optional ?? false }
    const quoted = kind.map((each) => `"${each}"`)
    const expected = [quoted.slice(0, -1).join(", "), quoted.at(-1)].filter(Boolean).join(" or ")
    return { name, optional: true, expected, accepts: (v) => kind.includes(v as string) }
  })
}

/**
 * Validates arguments. Null becomes undefined for optional parameters, like Python's None.
 * @throws ArgumentError, DTypeError
 */
export function checkArguments(op: string, parameters: readonly Parameter[], values: unknown[]): void {
  for (let i = 0; i < parameters.length; i++) {
    const parameter = parameters[i]
    const value = values[i]
    if (value === undefined ? parameter.optional : parameter.accepts(value)) continue
    if (value === null && parameter.optional) values[i] = undefined
    else refuse(op, parameter, value)
  }
}

function refuse(op: string, parameter: Parameter, value: unknown): never {
  const { name, expected, accepts, element, hint, error = ArgumentError } = parameter
  if (value === undefined) throw new error(op, `needs ${name}: expected ${expected}, received nothing`)
  const near =
    typeof value === "string" && value.length > 2
      ? nearest(value, expected.match(/(?<=")\w+(?=")/g) ?? [])
      : undefined
  const wrong = element && isList(value) ? value.findIndex((each) => !element(each)) : -1
  const refused = wrong < 0 ? value : (value as unknown[])[wrong]
  const what = wrong < 0 ? describe(value) : `a list whose element ${wrong} is ${describe(refused)}`
  const fits = wrong < 0 ? accepts : (element as Parameter["accepts"])
  const number =
    typeof refused === "bigint" && fits(Number(refused)) ? `Number(${refused}n) makes a number` : undefined
  const cure = near ? `Did you mean "${near}"?` : hintFor(refused, hint ?? number)
  throw new error(op, `${name} must be ${expected}, received ${what}`, cure ? { hint: cure } : {})
}
