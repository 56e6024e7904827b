/**
 * Types of arguments that many functions share and that mention no array.
 */
import type { Complex } from "./complex-number"
import type { StreamLike } from "./device"

/** A JavaScript scalar that may stand beside an array. */
export type Scalar = number | bigint | boolean | Complex
/** Options that every operation takes. */
export interface StreamOptions {
  /** Where to run: a stream, a device, or null for the current stream. */
  stream?: StreamLike
}
/** One axis, several, or null for all. */
export type Axes = number | readonly number[] | null

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
