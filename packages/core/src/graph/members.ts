/**
 * Types of the members of Array other than operations; array-members.ts installs them.
 */
import type { inspect } from "node:util"
import type { TypedArray } from "./dtype"
import type { ArrayAt, IndexSpec, IntegerList, Scalar, Value, ValueIn } from "./option-types"

/** Nested lists of values. */
export type Nested<V extends Value = Value> = V | Nested<V>[]

/** Indexing, reading, printing, iterating and disposing; `A` is the array class. */
export interface ArrayMembers<A> {
  /** The transpose: all axes reversed. */
  readonly T: this
  /** The real part. */
  readonly real: A
  /** The imaginary part; zeros for real arrays. */
  readonly imag: A
  /**
   * Indexing as in NumPy: `x.index(1, ':2', null, '...', [0, 2])`. Integers, slices, new axes and `'...'` give a view; index arrays and
   * masks a copy.
   * @throws IndexError for an index out of bounds: immediately for an integer, at evaluation for an array
   * @example
   * mx.array([[1, 2], [3, 4]]).index(':', -1).tolist() // => [2, 4]
   */
  index(...specs: IndexSpec<A>[]): this
  /**
   * Assigns to part of the array. The elements are immutable: this handle then refers to an updated copy, and others to the same values as
   * before.
   * @throws IndexError for an index out of bounds; ShapeError if the value does not broadcast
   * @example
   * const x = mx.zeros([3]); x.set(['1:'], 5); x.tolist() // => [0, 5, 5]
   */
  set(specs: readonly IndexSpec<A>[], value: A | Scalar | IntegerList): void
  /**
   * Selects part of the array for one update, which returns a new array. Repeated indices are updated repeatedly.
   * @example
   * mx.zeros([3]).at([0, 0]).add(1).tolist() // => [2, 0, 0]
   */
  at(...specs: IndexSpec<A>[]): ArrayAt<A>
  /** The value of an array of one element. @throws ShapeError if the size is not 1 */
  item<T>(this: T): ValueIn<T>
  /** All values as nested lists; a plain value for a 0-d array. */
  tolist<T>(this: T): Nested<ValueIn<T>>
  /**
   * The elements in row-major order: a copy or, with `copy: false` and a row-contiguous array, a view, which keeps its values and must not
   * be written to. complex64 is returned as (re, im) pairs, float16 and bfloat16 as bits in a Uint16Array.
   */
  toTypedArray(options?: { copy?: boolean }): TypedArray
  /** Like {@link toTypedArray}, evaluating on other threads. */
  data(): Promise<TypedArray>
  /**
   * Releases the memory now rather than when the handle is garbage-collected (arrays of up to 1 KB: together with neighbors). The handle is
   * unusable afterwards.
   */
  dispose(): void
  /** Formatted as in MLX. */
  toString(): string
  /**
   * Converts an array of one element to its value in `+x`, `Number(x)` and `x > 0`, and any array to text in templates and `"text" + x`.
   * @throws ShapeError if the size is not 1; DTypeError for complex64
   * @example
   * Number(mx.array([1, 2]).sum()) // => 3
   */
  [Symbol.toPrimitive](hint: string): number | bigint | boolean | string
  /**
   * All values, for `JSON.stringify`; see {@link tolist}. 64-bit integers, which JSON does not support, make it throw a TypeError.
   * @example
   * JSON.stringify({ loss: mx.array([0.5, 2]) }) // => '{"loss":[0.5,2]}'
   */
  toJSON(): Nested
  [Symbol.iterator](): Generator<this, void, undefined>
  [inspect.custom](): string
  [Symbol.dispose](): void
}
