/**
 * Types of common arguments that do not involve arrays.
 */
import type { Complex } from "./complex-number"
import type { StreamLike } from "./device"

/** A JavaScript scalar operand. */
export type Scalar = number | bigint | boolean | Complex
/** The JavaScript value of an element: bigint for 64-bit integers, {@link Complex} for complex64. */
export type Value = number | bigint | boolean | Complex

/** The key of a type-only property. */
export declare const HOLDS: unique symbol
/**
 * The value type of an array, for the type checker. It is bivariant, as with TypeScript's own arrays: an array of unknown value type may be
 * assigned where it is known, so that `let x = mx.zeros([2])` can later be any array.
 */
export interface Holds<V extends Value> {
  [HOLDS]?(value: V): void
}
/** The value type of an array or dtype. */
export type ValueIn<A> = A extends Holds<infer V> ? V : Value
/** The result of floating-point functions: arrays of numbers `N`, unless the values of `T` may be complex. */
export type Floating<T, N, A> = Complex extends ValueIn<T> ? A : N
/** The result of functions that map numbers to numbers: `N`, unless `T` may have other values. */
export type OfNumbers<T, N, A> = [ValueIn<T>] extends [number] ? N : A
/** The result of functions that map numbers and bools to numbers: `N`, unless `T` may have other values. */
export type Numeric<T, N, A> = [ValueIn<T>] extends [number | boolean] ? N : A

/** Options of all operations. */
export interface StreamOptions {
  /** The stream or device to run on; null for the current stream. */
  stream?: StreamLike
}
/** One axis, several, or null for all. */
export type Axes = number | readonly number[] | null

/** Segments given by the segment id of each row. */
export interface SegmentIdOptions {
  /** The number of segments; by default the largest id plus one, for which the ids are evaluated. */
  numSegments?: number | null
  /** Asserts that ids are ascending: each segment is then contiguous, and is reduced in row order on every device. */
  sorted?: boolean
}
/** Contiguous segments of rows, given by their lengths, or by the start of each with the number of rows appended. */
export type RowRuns<A> = { lengths: A | readonly number[] } | { offsets: A | readonly number[] }

/** The way in which updates combine with existing elements and each other. */
export type ScatterReduction = "set" | "sum" | "prod" | "max" | "min"

/** A slice along one axis, created by `mx.s`. Null means the default bound. */
export class Slice {
  constructor(
    readonly start: number | null,
    readonly stop: number | null,
    readonly step: number | null,
  ) {}
}
/** Nested lists of integers, as an index array. */
export type IntegerList = readonly (number | IntegerList)[]
/** Nested lists of booleans, as a mask. */
export type MaskList = readonly (boolean | MaskList)[]
/**
 * One item of an index expression: an integer, a slice (`mx.s(1, 3)` or the string `'1:3'`), `'...'`, null for a new axis, an integer
 * array or list, a boolean mask. `A` is the array class.
 */
export type IndexSpec<A> = number | string | Slice | null | A | IntegerList | MaskList

/**
 * The updates of `x.at(…)`; each returns a new array. Repeated indices are updated repeatedly. One `x.at(…)` makes one update: it then lets
 * go of `x`, so that the memory can be written over.
 */
export interface ArrayAt<A> {
  /** A copy with `value` added to the indexed elements. */
  add(value: A | Scalar): A
  /** A copy with `value` subtracted from the indexed elements. */
  subtract(value: A | Scalar): A
  /** A copy with the indexed elements multiplied by `value`. */
  multiply(value: A | Scalar): A
  /** A copy with the indexed elements divided by `value`. */
  divide(value: A | Scalar): A
  /** A copy with the indexed elements replaced by their maximum with `value`. */
  maximum(value: A | Scalar): A
  /** A copy with the indexed elements replaced by their minimum with `value`. */
  minimum(value: A | Scalar): A
}
