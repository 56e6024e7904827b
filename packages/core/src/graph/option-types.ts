/**
 * Types of arguments that many functions share and that mention no array.
 */
import type { Complex } from "./complex-number"
import type { StreamLike } from "./device"

/** A JavaScript scalar that may stand beside an array. */
export type Scalar = number | bigint | boolean | Complex
/** A value of an array as JavaScript has it: bigint for 64-bit integers, {@link Complex} for complex64. */
export type Value = number | bigint | boolean | Complex

/** The key of what only types know. */
export declare const HOLDS: unique symbol
/**
 * Tells the type checker what the values of an array are. As with JavaScript's own arrays in TypeScript, an array of unknown values may be
 * assigned where the values are known, so that `let x = mx.zeros([2])` may become any array later.
 */
export interface Holds<V extends Value> {
  [HOLDS]?(value: V): void
}
/** The values of an array, or of a dtype. */
export type ValueIn<A> = A extends Holds<infer V> ? V : Value
/** Of functions that compute in floating point: arrays of numbers `N`, unless the values of `T` may be complex. */
export type Floating<T, N, A> = Complex extends ValueIn<T> ? A : N
/** Of functions of numbers that give numbers: `N`, unless there may be others. */
export type OfNumbers<T, N, A> = [ValueIn<T>] extends [number] ? N : A
/** Of functions of numbers and bools that give numbers: `N`, unless there may be others. */
export type Numeric<T, N, A> = [ValueIn<T>] extends [number | boolean] ? N : A

/** Options that every operation takes. */
export interface StreamOptions {
  /** Where to run: a stream, a device, or null for the current stream. */
  stream?: StreamLike
}
/** One axis, several, or null for all. */
export type Axes = number | readonly number[] | null

/** Segments by the number of the segment that each row belongs to. */
export interface SegmentIdOptions {
  /** The number of segments: one more than the largest id by default, which reads the ids. */
  numSegments?: number | null
  /** Promises ascending ids: each segment is then one run of rows, and is reduced in their order on every device. */
  sorted?: boolean
}
/** Segments that are runs of rows: by their lengths, or by the row at which each begins, with the number of rows at the end. */
export type RowRuns<A> = { lengths: A | readonly number[] } | { offsets: A | readonly number[] }

/** The way updates meet what is there, and each other. */
export type ScatterReduction = "set" | "sum" | "prod" | "max" | "min"

/** A slice along one axis; `mx.s` makes one. A null bound is open. */
export class Slice {
  constructor(
    readonly start: number | null,
    readonly stop: number | null,
    readonly step: number | null,
  ) {}
}
/** Integers, nested like the axes of an index array. */
export type IntegerList = readonly (number | IntegerList)[]
/** Booleans, nested like the axes of a mask. */
export type MaskList = readonly (boolean | MaskList)[]
/**
 * One item of an index expression: an integer, a slice (`mx.s(1, 3)` or the string `'1:3'`), `'...'`, null for a new axis, an integer
 * array or list, a boolean mask. `A` is the array class.
 */
export type IndexSpec<A> = number | string | Slice | null | A | IntegerList | MaskList

/** The updates of `x.at(…)`; each gives a new array. Elements named twice are updated twice. */
export interface ArrayAt<A> {
  /** A copy with `value` added to the indexed elements. */
  add(value: A | Scalar): A
  /** A copy with `value` subtracted from the indexed elements. */
  subtract(value: A | Scalar): A
  /** A copy with the indexed elements multiplied by `value`. */
  multiply(value: A | Scalar): A
  /** A copy with the indexed elements divided by `value`. */
  divide(value: A | Scalar): A
  /** A copy with the larger of the indexed elements and `value`. */
  maximum(value: A | Scalar): A
  /** A copy with the smaller of the indexed elements and `value`. */
  minimum(value: A | Scalar): A
}
