/**
 * Dtype queries: limits, categories and promotion. Also the constants.
 */
import {
  asDtype,
  bfloat16,
  type Dtype,
  float16,
  float32,
  float64,
  integerRange,
  isDtype,
  isInteger,
  type Kind,
  promote,
} from "../graph/dtype"
import { ArgumentError, DTypeError, describe } from "../graph/errors"
import { Array } from "../graph/graph"
import { checkLevel } from "../graph/tree"

/** π. */
export const pi: number = Math.PI
/** Euler's number. */
export const e: number = Math.E
/** +∞. */
export const inf: number = Number.POSITIVE_INFINITY
/** Not a number. */
export const nan: number = Number.NaN
/** The Euler–Mascheroni constant. */
export const eulerGamma = 0.5772156649015329
/** In an index: a new axis of size 1. */
export const newaxis: null = null

const float: [Dtype, max: number, eps: number, smallestNormal: number][] = [
  [float16, 65504, 2 ** -10, 2 ** -14],
  [bfloat16, 3.3895313892515355e38, 2 ** -7, 2 ** -126],
  [float32, 3.4028234663852886e38, 2 ** -23, 2 ** -126],
  [float64, Number.MAX_VALUE, Number.EPSILON, 2 ** -1022],
]
const floatInfo = new Map(
  float.map(([dtype, max, eps, smallestNormal]) => [
    dtype,
    { bits: 8 * dtype.size, min: -max, max, eps, smallestNormal, dtype },
  ]),
)

/** The largest finite number of a floating dtype. */
export const largest = (dtype: Dtype): number => finfo(dtype).max

/** Limits of a floating dtype. */
export interface FloatInfo {
  /** The number of bits of an element. */
  readonly bits: number
  readonly min: number
  readonly max: number
  /** The distance from 1 to the next larger number. */
  readonly eps: number
  /** The smallest positive normal number. */
  readonly smallestNormal: number
  /** The dtype described; float32 for complex64. */
  readonly dtype: Dtype
}
/**
 * Limits of a floating dtype; for complex64, those of its real and imaginary parts.
 * @throws DTypeError for other dtypes
 * @example
 * mx.finfo(mx.float16).max // => 65504
 */
export function finfo(dtype: Dtype): FloatInfo {
  const info = floatInfo.get(isDtype(dtype) && dtype.kind === "complex" ? float32 : dtype)
  if (info) return info
  throw new DTypeError(
    "finfo",
    `expected a floating dtype, received ${isDtype(dtype) ? dtype.name : describe(dtype)}`,
  )
}

/** Limits of an integer dtype; bigint for 64 bits. */
export interface IntegerInfo {
  readonly min: number | bigint
  readonly max: number | bigint
  readonly dtype: Dtype
}
/**
 * Limits of an integer dtype.
 * @throws DTypeError for other dtypes
 * @example
 * mx.iinfo(mx.int8).max // => 127
 */
export function iinfo(dtype: Dtype): IntegerInfo {
  if (!isDtype(dtype) || !isInteger(dtype))
    throw new DTypeError(
      "iinfo",
      `expected an integer dtype, received ${isDtype(dtype) ? dtype.name : describe(dtype)}`,
    )
  const { min, max } = integerRange(dtype)
  return dtype.size === 8 ? { min, max, dtype } : { min: Number(min), max: Number(max), dtype }
}

/** A category of dtypes, for {@link issubdtype}. */
export interface DtypeCategory {
  readonly category: string
  /** The kinds of dtypes it contains. */
  readonly kinds: readonly Kind[]
}
const category = (name: string, ...kinds: Kind[]): DtypeCategory =>
  Object.freeze({ category: name, kinds: Object.freeze(kinds) })
export const complexfloating: DtypeCategory = category("complexfloating", "complex")
export const floating: DtypeCategory = category("floating", "floating")
export const inexact: DtypeCategory = category("inexact", "complex", "floating")
export const signedinteger: DtypeCategory = category("signedinteger", "signed")
export const unsignedinteger: DtypeCategory = category("unsignedinteger", "unsigned")
export const integer: DtypeCategory = category("integer", "signed", "unsigned")
export const number: DtypeCategory = category("number", "complex", "floating", "signed", "unsigned")
export const generic: DtypeCategory = category("generic", "bool", "complex", "floating", "signed", "unsigned")

/**
 * True if a dtype or category is equal to, or a subcategory of, another.
 * @example
 * mx.issubdtype(mx.float16, mx.floating) // => true
 */
export function issubdtype(arg1: Dtype | DtypeCategory, arg2: Dtype | DtypeCategory): boolean {
  const [given, wanted] = [kindsIn("arg1", arg1), kindsIn("arg2", arg2)]
  return isDtype(arg2) ? arg1 === arg2 : given.every((kind) => wanted.includes(kind))
}

const categories = new Set<unknown>([
  complexfloating,
  floating,
  inexact,
  signedinteger,
  unsignedinteger,
  integer,
  number,
  generic,
])
function kindsIn(name: string, value: Dtype | DtypeCategory): readonly Kind[] {
  if (isDtype(value)) return [value.kind]
  if (categories.has(value)) return value.kinds
  throw new ArgumentError(
    "issubdtype",
    `${name} must be a dtype or a category such as mx.floating, received ${describe(value)}`,
  )
}

const kindsOf: Record<string, readonly Kind[]> = {
  bool: ["bool"],
  "signed integer": ["signed"],
  "unsigned integer": ["unsigned"],
  integral: ["signed", "unsigned"],
  "real floating": ["floating"],
  "complex floating": ["complex"],
  numeric: ["signed", "unsigned", "floating", "complex"],
}
/** A kind of dtype as named by the array API standard, a dtype, or a list of these. */
export type DtypeKind =
  | "bool"
  | "signed integer"
  | "unsigned integer"
  | "integral"
  | "real floating"
  | "complex floating"
  | "numeric"
  | Dtype
  | readonly DtypeKind[]
/**
 * True if a dtype is of the given kind: one named by the array API standard, a dtype, or any of a list.
 * @throws ArgumentError for an unknown kind
 * @example
 * mx.isdtype(mx.int8, 'integral') // => true
 */
export function isdtype(dtype: Dtype, kind: DtypeKind): boolean {
  asDtype("isdtype", dtype)
  return isOfKind(dtype, kind, 0)
}
function isOfKind(dtype: Dtype, kind: DtypeKind, level: number): boolean {
  if (globalThis.Array.isArray(kind)) {
    checkLevel(level, "isdtype")
    return (kind as readonly DtypeKind[]).some((k) => isOfKind(dtype, k, level + 1))
  }
  if (isDtype(kind)) return dtype === kind
  const kinds = typeof kind === "string" && Object.hasOwn(kindsOf, kind) ? kindsOf[kind] : null
  if (!kinds)
    throw new ArgumentError(
      "isdtype",
      `the kind must be one of ${Object.keys(kindsOf).join(", ")}, received ${describe(kind)}`,
    )
  return kinds.includes(dtype.kind)
}

const dtypeFrom = (op: string, value: Array | Dtype): Dtype => {
  if (value instanceof Array) return value.dtype
  if (isDtype(value)) return value
  throw new ArgumentError(op, `expected arrays or dtypes, received ${describe(value)}`)
}
/**
 * The dtype that results from type promotion of arrays and dtypes.
 * @throws ArgumentError without arguments, or for values of other types
 * @example
 * mx.resultType(mx.int32, mx.float16) // => mx.float16
 */
export function resultType(...args: (Array | Dtype)[]): Dtype {
  if (args.length === 0) throw new ArgumentError("resultType", "needs at least one array or dtype")
  return args.map((value) => dtypeFrom("resultType", value)).reduce(promote)
}

/**
 * True if promoting `from` with `to` gives `to`.
 * @example
 * mx.canCast(mx.int8, mx.float32) // => true
 */
export function canCast(from: Array | Dtype, to: Dtype): boolean {
  return promote(dtypeFrom("canCast", from), asDtype("canCast", to)) === to
}
