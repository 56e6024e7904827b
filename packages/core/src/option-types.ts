/**
 * Types of arguments that many functions share and that mention no array.
 */
import type { Complex } from './complex-number'
import type { StreamLike } from './device'

/** A JavaScript scalar that may stand beside an array. */
export type Scalar = number | bigint | boolean | Complex
/** Options that every operation takes. */
export interface StreamOptions {
  /** Where to run: a stream, a device, or null for the current stream. */
  stream?: StreamLike
}
/** One axis, several, or null for all. */
export type Axes = number | readonly number[] | null
