/**
 * Types of the members of Array that are no operations; array-members.ts installs them.
 */
import type { inspect } from "node:util"
import type { TypedArray } from "./dtype"
import type { ArrayAt, IndexSpec, IntegerList, Scalar, Value, ValueIn } from "./option-types"

/** Values nested like the array's axes. */
export type Nested<V extends Value = Value> = V | Nested<V>[]

/** Reading, printing, iterating and giving back; `A` is the array class. */
export interface ArrayMembers<A> {
  /** The axes reversed. */
  readonly T: this
  /** The real part. */
  readonly real: A
  /** The imaginary part; zeros for real arrays. */
  readonly imag: A
  /**
   * Part of the array: `x.index(1, ':2', null, '...', [0, 2])`. Numbers, slices, new axes and `'...'` give a view; index arrays and
   * masks a copy.
   * @throws IndexError for an index out of bounds: at once for a number, when computed for an array
   * @example
   * mx.array([[1, 2], [3, 4]]).index(':', -1).tolist() // => [2, 4]
   */
  index(...specs: IndexSpec<A>[]): this
  /**
   * Replaces part of the array. Arrays are immutable: this handle then shows a changed copy, others keep what they show.
   * @throws IndexError for an index out of bounds; ShapeError when the value does not broadcast
   * @example
   * const x = mx.zeros([3]); x.set(['1:'], 5); x.tolist() // => [0, 5, 5]
   */
  set(specs: readonly IndexSpec<A>[], value: A | Scalar | IntegerList): void
  /**
   * Part of the array, to be combined with a value: a new array is made. Elements named twice are updated twice.
   * @example
   * mx.zeros([3]).at([0, 0]).add(1).tolist() // => [2, 0, 0]
   */
  at(...specs: IndexSpec<A>[]): ArrayAt<A>
  /** The value of an array of one element. @throws ShapeError when it has another number of elements */
  item<T>(this: T): ValueIn<T>
  /** All values, nested like the axes; a plain value for a 0-d array. */
  tolist<T>(this: T): Nested<ValueIn<T>>
  /**
   * The elements in row-major order: a copy, or, with `copy: false` and a row-major array, a view that must not be written to and is
   * valid while the array is. complex64 comes as pairs, float16 and bfloat16 as their bits in a Uint16Array.
   */
  toTypedArray(options?: { copy?: boolean }): TypedArray
  /** The elements, as {@link toTypedArray} copies them, once other threads have computed them. */
  data(): Promise<TypedArray>
  /** Gives the memory back now (up to 1 KB: with its neighbours), not when the handle is collected. The handle is unusable afterwards. */
  dispose(): void
  /** As MLX prints arrays. */
  toString(): string
  /**
   * The number that `+x`, `Number(x)` and `x > 0` see: the value of an array of one element. In templates and `"text" + x` it is the text.
   * @throws ShapeError when it has another number of elements; DTypeError for complex64
   * @example
   * Number(mx.array([1, 2]).sum()) // => 3
   */
  [Symbol.toPrimitive](hint: string): number | bigint | boolean | string
  /**
   * All values, for `JSON.stringify`; see {@link tolist}. JSON has no 64-bit integers: those throw a TypeError there.
   * @example
   * JSON.stringify({ loss: mx.array([0.5, 2]) }) // => '{"loss":[0.5,2]}'
   */
  toJSON(): Nested
  [Symbol.iterator](): Generator<this, void, undefined>
  [inspect.custom](): string
  [Symbol.dispose](): void
}
