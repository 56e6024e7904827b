/**
 * The fourteen dtypes of MLX, their kinds, limits and the type promotion table. A dtype is a function object, so that `mx.int32([1, 2])`
 * creates an array; ops/creation.ts supplies the constructor.
 */
import { markCopy } from "./copies"
import { DTypeError, describe } from "./errors"
import { fromBfloat16Bits, fromFloat16Bits, toBfloat16Bits, toFloat16Bits } from "./half"
import { INSPECT } from "./inspect"
import type { Holds, Value } from "./option-types"

/** The name of a dtype. */
export type DtypeName =
  | "bool_"
  | "uint8"
  | "uint16"
  | "uint32"
  | "uint64"
  | "int8"
  | "int16"
  | "int32"
  | "int64"
  | "float16"
  | "float32"
  | "bfloat16"
  | "float64"
  | "complex64"

/** The kind of a dtype; `complex` is complex64. */
export type Kind = "bool" | "unsigned" | "signed" | "floating" | "complex"

/** The type of an array's elements; `V` is the type of its values in JavaScript. */
export interface Dtype<V extends Value = Value> extends Holds<V> {
  /** MLX's name, `bool_` included. */
  readonly name: string
  /** Its index in {@link dtypes}, the same in every backend. */
  readonly code: number
  /** Bytes per element. */
  readonly size: number
  /** Its kind, such as `floating`. */
  readonly kind: Kind
}

/** A typed array that can hold elements of some dtype; float16 and bfloat16 are bits in a Uint16Array. */
export type TypedArray =
  | Uint8Array
  | Uint16Array
  | Uint32Array
  | BigUint64Array
  | Int8Array
  | Int16Array
  | Int32Array
  | BigInt64Array
  | Float32Array
  | Float64Array

type Make = (data: unknown, dtype: Dtype) => unknown
let makeArray: Make | undefined

/** Enables `mx.float32(data)`. Called once, by the module that defines `array`. */
export function setArrayConstructor(make: Make): void {
  makeArray = make
}

/** All dtypes, by code. */
export const dtypes: Dtype[] = []

/** The properties that dtypes inherit. Their own properties are few and uniform, so that the engine's reads stay monomorphic. */
const prototype: Dtype = Object.create(Function.prototype, {
  toString: {
    value(this: Dtype) {
      return this.name
    },
  },
  [INSPECT]: {
    value(this: Dtype) {
      return `mx.${this.name}`
    },
  },
})

markCopy(prototype)

/**
 * The class of dtypes: `mx.float32 instanceof mx.Dtype`. It cannot be constructed; the dtypes are those of {@link DtypeName}.
 * @example
 * mx.float32 instanceof mx.Dtype // => true
 */
export const Dtype: abstract new () => Dtype = Object.assign(
  function Dtype(): never {
    throw new DTypeError("Dtype", "cannot be constructed", {
      hint: "Use an existing dtype such as mx.float32",
    })
  },
  { prototype },
) as unknown as abstract new () => Dtype

function declare(name: DtypeName, size: number, kind: Kind): Dtype {
  const named = {
    [name]: (data: unknown) => {
      if (!makeArray) throw new DTypeError(name, "cannot create arrays before @lazuli/core is loaded")
      return makeArray(data, dtype)
    },
  }
  const dtype = named[name] as unknown as { -readonly [K in keyof Dtype]: Dtype[K] }
  Object.setPrototypeOf(dtype, prototype)
  dtype.code = dtypes.length
  dtype.size = size
  dtype.kind = kind
  dtypes.push(dtype)
  return dtype
}

export const bool_: Dtype = declare("bool_", 1, "bool")
export const uint8: Dtype = declare("uint8", 1, "unsigned")
export const uint16: Dtype = declare("uint16", 2, "unsigned")
export const uint32: Dtype = declare("uint32", 4, "unsigned")
export const uint64: Dtype = declare("uint64", 8, "unsigned")
export const int8: Dtype = declare("int8", 1, "signed")
export const int16: Dtype = declare("int16", 2, "signed")
export const int32: Dtype = declare("int32", 4, "signed")
export const int64: Dtype = declare("int64", 8, "signed")
export const float16: Dtype = declare("float16", 2, "floating")
export const float32: Dtype = declare("float32", 4, "floating")
export const bfloat16: Dtype = declare("bfloat16", 2, "floating")
export const float64: Dtype = declare("float64", 8, "floating")
export const complex64: Dtype = declare("complex64", 8, "complex")

/** True if `value` is a dtype. */
export function isDtype(value: unknown): value is Dtype {
  return typeof value === "function" && dtypes[(value as unknown as Dtype).code] === (value as unknown)
}

/** True for floating and complex dtypes. */
export function isInexact(dtype: Dtype): boolean {
  return dtype.kind === "floating" || dtype.kind === "complex"
}

/** True for signed and unsigned integer dtypes, not for bool. */
export function isInteger(dtype: Dtype): boolean {
  return dtype.kind === "signed" || dtype.kind === "unsigned"
}

const unsignedOf: Record<number, Dtype> = { 1: uint8, 2: uint16, 4: uint32, 8: uint64 }
const signedOf: Record<number, Dtype> = { 1: int8, 2: int16, 4: int32, 8: int64 }

function promotePair(a: Dtype, b: Dtype): Dtype {
  if (a === b) return a
  if (a.kind === "bool") return b
  if (b.kind === "bool") return a
  if (a.kind === "complex" || b.kind === "complex") return complex64
  if (a.kind === "floating" && b.kind === "floating") {
    if (a.size === 2 && b.size === 2) return float32
    return a.size >= b.size ? a : b
  }
  if (a.kind === "floating") return a
  if (b.kind === "floating") return b
  if (a.kind === b.kind) return a.size >= b.size ? a : b
  const signed = a.kind === "signed" ? a : b
  const unsigned = a.kind === "signed" ? b : a
  if (signed.size > unsigned.size) return signed
  // uint64 and a signed type have no common integer type: float32 in MLX's table.
  return unsigned.size === 8 ? float32 : signedOf[unsigned.size * 2]
}

const promotion: Dtype[] = []
for (const a of dtypes) for (const b of dtypes) promotion.push(promotePair(a, b))

/** The dtype that two dtypes promote to, by MLX's table. */
export function promote(a: Dtype, b: Dtype): Dtype {
  return a === b ? a : promotion[a.code * 14 + b.code]
}

/** The unsigned integer dtype of that many bytes. */
export function unsignedOfSize(size: number): Dtype {
  return unsignedOf[size]
}

/** float32 for bool and integers, otherwise the dtype itself: the result dtype of floating-point functions such as `exp`. */
export function atLeastFloat(dtype: Dtype): Dtype {
  return isInexact(dtype) ? dtype : float32
}

/** A dtype argument, checked. */
export function asDtype(op: string, value: unknown): Dtype {
  if (isDtype(value)) return value
  throw new DTypeError(op, `expected a dtype such as mx.float32, received ${describe(value)}`)
}

type ArrayConstructor = {
  new (length: number): TypedArray
  new (buffer: ArrayBufferLike, byteOffset: number, length: number): TypedArray
}
const stores = [
  Uint8Array,
  Uint8Array,
  Uint16Array,
  Uint32Array,
  BigUint64Array,
  Int8Array,
  Int16Array,
  Int32Array,
  BigInt64Array,
  Uint16Array,
  Float32Array,
  Uint16Array,
  Float64Array,
  Float32Array,
] as unknown as ArrayConstructor[]

/** Typed-array elements per array element: 2 for complex64, otherwise 1. */
export function storeWidth(dtype: Dtype): number {
  return dtype === complex64 ? 2 : 1
}

/** A typed array over memory that holds `count` elements of `dtype` (complex64: pairs). */
export function viewStore(
  dtype: Dtype,
  buffer: ArrayBufferLike,
  byteOffset: number,
  count: number,
): TypedArray {
  return new stores[dtype.code](buffer, byteOffset, count * storeWidth(dtype))
}

/** A zero-filled store for `count` elements of `dtype`. */
export function newStore(dtype: Dtype, count: number): TypedArray {
  return new stores[dtype.code](count * storeWidth(dtype))
}

/** The dtype whose elements a typed array holds. */
export function dtypeOfTypedArray(data: ArrayBufferView): Dtype | undefined {
  if (data instanceof Float32Array) return float32
  if (data instanceof Float64Array) return float64
  if (data instanceof Int32Array) return int32
  if (data instanceof Uint32Array) return uint32
  if (data instanceof Uint8Array || data instanceof Uint8ClampedArray) return uint8
  if (data instanceof Int8Array) return int8
  if (data instanceof Uint16Array) return uint16
  if (data instanceof Int16Array) return int16
  if (data instanceof BigInt64Array) return int64
  if (data instanceof BigUint64Array) return uint64
  return undefined
}

/** A function from stored elements to JavaScript values. Not for complex64. */
export function decoder(dtype: Dtype): (stored: number | bigint) => number | bigint | boolean {
  if (dtype === bool_) return (v) => v !== 0
  if (dtype === float16) return (v) => fromFloat16Bits(v as number)
  if (dtype === bfloat16) return (v) => fromBfloat16Bits(v as number)
  return (v) => v
}

/** A function from JavaScript values to stored elements. Integers wrap. */
export function encoder(dtype: Dtype): (value: number | bigint | boolean) => number | bigint {
  switch (dtype) {
    case bool_:
      return (v) => (v ? 1 : 0)
    case float16:
      return (v) => toFloat16Bits(typeof v === "boolean" ? Number(v) : v)
    case bfloat16:
      return (v) => toBfloat16Bits(typeof v === "boolean" ? Number(v) : v)
    case int64:
      return (v) => BigInt.asIntN(64, toBigInt(v))
    case uint64:
      return (v) => BigInt.asUintN(64, toBigInt(v))
    case float32:
    case float64:
    case complex64:
      return Number
    default:
      return (v) => (typeof v === "bigint" ? Number(BigInt.asIntN(32, v)) : Number(v) | 0)
  }
}

function toBigInt(v: number | bigint | boolean): bigint {
  if (typeof v === "bigint") return v
  const n = Number(v)
  return Number.isFinite(n) ? BigInt(Math.trunc(n)) : 0n
}

const ranges = new Map<Dtype, { readonly min: bigint; readonly max: bigint }>()

/** The smallest and largest value of an integer dtype. */
export function integerRange(dtype: Dtype): { readonly min: bigint; readonly max: bigint } {
  const known = ranges.get(dtype)
  if (known !== undefined) return known
  const bits = dtype.kind === "bool" ? 1n : BigInt(dtype.size * 8)
  const range =
    dtype.kind === "signed"
      ? { min: -(1n << (bits - 1n)), max: (1n << (bits - 1n)) - 1n }
      : { min: 0n, max: (1n << bits) - 1n }
  ranges.set(dtype, range)
  return range
}
