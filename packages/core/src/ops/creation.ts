/**
 * Creation of arrays: from JavaScript data and typed arrays, and filled with values.
 */

import { lifetimes } from "../engine/memory"
import { bytesIn } from "../engine/memory-budget"
import {
  checkOptions,
  isList,
  isPlainObject,
  type Operand,
  operation,
  type Scalar,
  type StreamOptions,
  withOwnHandles,
} from "../graph/args"
import { type Backend, backendFor, stage } from "../graph/backend"
import { Complex } from "../graph/complex-number"
import { currentStream } from "../graph/device"
import {
  asDtype,
  bool_,
  type Dtype,
  dtypeOfTypedArray,
  encoder,
  float32,
  isDtype,
  newStore,
  promote,
  setArrayConstructor,
  storeWidth,
  type TypedArray,
} from "../graph/dtype"
import { ArgumentError, DTypeError, describe, hintFor, ShapeError } from "../graph/errors"
import { Array, type ArrayOf, handles, PENDING_BYTES, sourceNode } from "../graph/graph"
import type { Value, ValueIn } from "../graph/option-types"
import { asShape, format, type Shape, sizeOf } from "../graph/shape"
import type { Storage } from "../graph/storage"
import { arange } from "./arange"
import { checkScalar, isScalar, scalarArray, scalarDtype, scalarOf, toDtype } from "./constant"
import { stack } from "./join"
import { broadcastTo } from "./reduce"

/** The data that {@link array} accepts: scalars, typed arrays, arrays, and nested lists of them. */
export type ArrayData = Operand | ArrayBufferView | ArrayBuffer | readonly ArrayData[]

/** The value type of an array created from data without a dtype. */
export type ValueOf<D> = [ArrayData] extends [D]
  ? Value
  : D extends number
    ? number
    : D extends bigint
      ? bigint
      : D extends boolean
        ? boolean
        : D extends Complex
          ? Complex
          : D extends readonly (infer E)[]
            ? ValueOf<E>
            : D extends Array
              ? ValueIn<D>
              : D extends BigInt64Array | BigUint64Array
                ? bigint
                : number

/** Sees to it that an array of JavaScript's data fits. */
function makeRoom(backend: Backend, nbytes: number): void {
  lifetimes.relieve(0)
  const { memory } = backend
  if (!lifetimes.admits(2 * nbytes))
    lifetimes.reserve(
      "array",
      new Map([[memory, 2 * nbytes]]),
      () => new Map([[memory, bytesIn(memory, nbytes)]]),
    )
  lifetimes.noteAllocation(memory, nbytes)
  // A pending node may keep it.
  handles.budget -= Math.min(nbytes, PENDING_BYTES)
}

/** Allocates memory that may be written immediately. */
function stageWithinBudget(backend: Backend, nbytes: number): Storage {
  makeRoom(backend, nbytes)
  return stage(backend, nbytes)
}

/** Memory with a copy of the stored elements. */
function storageOf(backend: Backend, store: TypedArray): Storage {
  const nbytes = store.byteLength
  makeRoom(backend, nbytes)
  const { memory } = backend
  const filled = memory.allocateFilled?.(store) ?? null
  if (filled !== null) return filled
  const storage = stage(backend, nbytes)
  if (nbytes > 0) memory.write(storage, 0, store)
  return storage
}

/** An array with a copy of the stored elements. */
export function arrayFromStore(store: TypedArray, shape: Shape, dtype: Dtype): Array {
  const backend = backendFor(currentStream().device)
  const made = new Array(sourceNode(shape, dtype, storageOf(backend, store)))
  lifetimes.keep(made.node)
  return made
}

/** The same in chunks of at most `part` bytes: `fill` writes the bytes at offset `at`. If it throws, the memory is released. */
export function arrayFromParts(
  shape: Shape,
  dtype: Dtype,
  part: number,
  fill: (bytes: Uint8Array, at: number) => void,
): Array {
  const backend = backendFor(currentStream().device)
  const nbytes = sizeOf(shape) * dtype.size
  const storage = stageWithinBudget(backend, nbytes)
  try {
    const buffer = new Uint8Array(Math.min(part, nbytes))
    for (let at = 0; at < nbytes; at += part) {
      const bytes = buffer.subarray(0, Math.min(part, nbytes - at))
      fill(bytes, at)
      backend.memory.write(storage, at, bytes)
    }
  } catch (error) {
    storage.drop()
    throw error
  }
  const made = new Array(sourceNode(shape, dtype, storage))
  lifetimes.keep(made.node)
  return made
}

function shapeOfList(data: unknown, depth = 0): number[] {
  if (!isList(data)) return data instanceof Array ? data.shape.slice() : []
  if (depth > 64) throw new ShapeError("array", "lists are nested more than 64 deep")
  if (data.length === 0) return [0]
  const inner = shapeOfList(data[0], depth + 1)
  for (let i = 1; i < data.length; i++) {
    const other = shapeOfList(data[i], depth + 1)
    if (other.length !== inner.length || other.some((n, k) => n !== inner[k])) {
      throw new ShapeError(
        "array",
        `the lists are ragged: element 0 has shape ${format(inner)} and element ${i} has shape ${format(other)}`,
      )
    }
  }
  return [data.length, ...inner]
}

function leaves(data: unknown, visit: (leaf: unknown) => void): void {
  if (isList(data)) for (const item of data) leaves(item, visit)
  else visit(data)
}

function fromList(data: unknown, dtype: Dtype | undefined): Array {
  const shape = shapeOfList(data)
  let found: Dtype | undefined
  let hasArrays = false
  let hasBigint = false
  leaves(data, (leaf) => {
    if (leaf instanceof Array) {
      hasArrays = true
      found = found ? promote(found, leaf.dtype) : leaf.dtype
    } else if (isScalar(leaf)) {
      if (typeof leaf === "bigint") hasBigint = true
      found = found ? promote(found, scalarDtype(leaf)) : scalarDtype(leaf)
    } else
      throw new ArgumentError(
        "array",
        `expected numbers, booleans, bigints, complex numbers or arrays, received ${describe(leaf)}`,
      )
  })
  const type = dtype ?? found ?? float32
  if (hasArrays) return fromMixed(data, type)
  const store = newStore(type, sizeOf(shape)) as unknown as { [i: number]: number | bigint }
  const encode = encoder(type)
  const width = storeWidth(type)
  let i = 0
  leaves(data, (leaf) => {
    if (leaf instanceof Complex) {
      if (width !== 2) throw new DTypeError("array", `a complex number does not fit ${type.name}`)
      store[i] = leaf.re
      store[i + 1] = leaf.im
    } else {
      if (hasBigint || typeof leaf === "number") checkFits(leaf as number | bigint | boolean, type)
      store[i] = encode(leaf as number | bigint | boolean)
    }
    i += width
  })
  return arrayFromStore(store as unknown as TypedArray, shape, type)
}

const WIDER = "Name a dtype that holds it"

/** Integers must be in range; fractions are truncated for integer dtypes, as in astype. */
function checkFits(value: number | bigint | boolean, dtype: Dtype): void {
  if (typeof value === "boolean" || (dtype.kind !== "signed" && dtype.kind !== "unsigned")) return
  checkScalar("array", value, dtype, WIDER)
}

/** Lists that contain arrays are stacked level by level. */
function fromMixed(data: unknown, dtype: Dtype): Array {
  if (!isList(data))
    return data instanceof Array ? toDtype(data, dtype) : scalarOf("array", data as Scalar, dtype, WIDER)
  return stack(data.map((item) => fromMixed(item, dtype)))
}

function fromView(view: ArrayBufferView, dtype: Dtype | undefined): Array {
  const native = dtypeOfTypedArray(view)
  if (!native)
    throw new ArgumentError("array", `cannot read ${describe(view)}`, {
      hint: "Use a typed array such as Float32Array",
    })
  const data = view as unknown as TypedArray
  if (dtype === undefined || dtype === native) return arrayFromStore(data, [data.length], native)
  // There are no typed arrays of 16-bit floats: a Uint16Array contains their bits.
  if (data instanceof Uint16Array && dtype.size === 2 && dtype.kind === "floating")
    return arrayFromStore(data, [data.length], dtype)
  if (dtype === bool_ && native.size === 1)
    return arrayFromStore(
      Uint8Array.from(data as Uint8Array, (v) => (v ? 1 : 0)),
      [data.length],
      bool_,
    )
  return toDtype(arrayFromStore(data, [data.length], native), dtype)
}

/** The dtype argument of {@link array}, by position or by name. */
function dtypeOption(options: unknown): Dtype | undefined {
  if (options === undefined || options === null) return undefined
  if (isDtype(options)) return options
  if (isPlainObject(options)) {
    checkOptions("array", options, ["dtype"])
    const { dtype } = options
    return dtype === undefined || dtype === null ? undefined : asDtype("array", dtype)
  }
  if (isList(options))
    throw new DTypeError("array", `expected a dtype such as mx.float32, received ${describe(options)}`, {
      hint: "The shape is that of the data; use mx.array(data).reshape(shape) for another",
    })
  return asDtype("array", options)
}

/**
 * Creates an array from JavaScript data. The default dtype depends on the JavaScript type: number → float32, boolean → bool_, bigint →
 * int64, {@link Complex} → complex64, typed array → its element type. A Uint16Array with `dtype` float16 or bfloat16 is interpreted as
 * bits.
 *
 * @throws ShapeError if nested lists are ragged; DTypeError if a value is out of range, or `dtype` is not a dtype
 * @example
 * mx.array([[1, 2], [3, 4]]).shape // => [2, 2]
 */
export function array<D extends ArrayData>(data: D, dtype?: null | { dtype?: null }): ArrayOf<ValueOf<D>>
export function array<T extends Dtype>(data: ArrayData, dtype: T | { dtype: T }): ArrayOf<ValueIn<T>>
export function array(data: ArrayData, dtype?: Dtype | null | { dtype?: Dtype | null }): Array
export function array(data: ArrayData, options?: Dtype | null | { dtype?: Dtype | null }): Array {
  const dtype = dtypeOption(options)
  if (data instanceof Array) return withOwnHandles(toDtype(data, dtype ?? data.dtype), [data])
  if (ArrayBuffer.isView(data)) return fromView(data, dtype)
  if (data instanceof ArrayBuffer) return fromView(new Uint8Array(data), dtype)
  if (!isList(data) && !isScalar(data)) {
    const isIterable = typeof data === "object" && data !== null && Symbol.iterator in data
    throw new ArgumentError("array", `cannot create an array from ${describe(data)}`, {
      hint: hintFor(
        data,
        isIterable ? "[...data] makes a list" : "Pass a number, a list of numbers or a typed array",
      ),
    })
  }
  return fromList(data, dtype)
}
const asarrayArgs = operation(
  "asarray",
  { a: "any", dtype: "dtype?", copy: "bool?" },
  (a: ArrayData, dtype?: Dtype, copy?: boolean): Array => {
    if (copy === false && !(a instanceof Array && (dtype ?? a.dtype) === a.dtype))
      throw new ArgumentError("asarray", `copy is false, but ${describe(a)} must be copied`)
    return array(a, dtype)
  },
)
/**
 * Like {@link array}, but returns arrays of the right dtype as they are. JavaScript data is always copied; arrays need not be, since they
 * are immutable.
 * @throws ArgumentError with `copy: false`, unless `a` is an array of the dtype
 * @example
 * mx.asarray([1, 2], { copy: true }).tolist() // => [1, 2]
 */
export function asarray<D extends ArrayData>(
  a: D,
  dtype?: null,
  options?: { copy?: boolean | null },
): ArrayOf<ValueOf<D>>
export function asarray<D extends ArrayData>(
  a: D,
  options: { dtype?: null; copy?: boolean | null },
): ArrayOf<ValueOf<D>>
export function asarray<T extends Dtype>(
  a: ArrayData,
  dtype: T,
  options?: { copy?: boolean | null },
): ArrayOf<ValueIn<T>>
export function asarray<T extends Dtype>(
  a: ArrayData,
  options: { dtype: T; copy?: boolean | null },
): ArrayOf<ValueIn<T>>
// By hand: the value type depends on the dtype.
export function asarray(...args: unknown[]): Array {
  return asarrayArgs(args)
}
setArrayConstructor((data, dtype) => array(data as ArrayData, dtype))

const fullArgs = operation(
  "full",
  { shape: "shape", vals: "operand", dtype: "dtype?" },
  (shape: unknown, vals: Operand, dtype?: Dtype | null): Array => {
    const to = asShape("full", shape)
    const type = dtype ? asDtype("full", dtype) : undefined
    if (isScalar(vals)) return broadcastTo(scalarOf("full", vals, type ?? scalarDtype(vals), WIDER), to)
    const x = array(vals)
    return broadcastTo(type ? toDtype(x, type) : x, to)
  },
)
/**
 * An array filled with a value, or with an array broadcast to the shape.
 * @example
 * mx.full([2, 2], 7).tolist() // => [[7, 7], [7, 7]]
 */
export function full<D extends Operand>(
  shape: number | readonly number[],
  vals: D,
  dtype?: null,
  options?: StreamOptions,
): ArrayOf<ValueOf<D>>
export function full<T extends Dtype>(
  shape: number | readonly number[],
  vals: Operand,
  dtype: T,
  options?: StreamOptions,
): ArrayOf<ValueIn<T>>
export function full<T extends Dtype>(
  shape: number | readonly number[],
  vals: Operand,
  options: { dtype: T } & StreamOptions,
): ArrayOf<ValueIn<T>>
export function full(
  shape: number | readonly number[],
  vals: Operand,
  options: { dtype?: Dtype | null } & StreamOptions,
): Array
export function full(
  shape: number | readonly number[],
  vals: Operand,
  dtype?: Dtype | null,
  options?: StreamOptions,
): Array
// By hand: the value type depends on the dtype.
export function full(...args: unknown[]): Array {
  return fullArgs(args)
}

/** The body of `zeros` and `ones`. */
const filled = (op: string, value: number): ((args: readonly unknown[]) => Array) =>
  operation(op, { shape: "shape?", dtype: "dtype?" }, (shape: unknown, dtype?: Dtype | null) =>
    broadcastTo(scalarArray(value, dtype ? asDtype(op, dtype) : float32), asShape(op, shape)),
  )
/** The body of `zerosLike` and `onesLike`. */
const filledLike = (op: string, value: number): ((args: readonly unknown[]) => Array) =>
  operation(op, { a: "array", dtype: "dtype?" }, (a: Array, dtype?: Dtype | null) => {
    const { shape, dtype: own } = a
    return broadcastTo(scalarArray(value, dtype ? asDtype(op, dtype) : own), shape)
  })

const zerosArgs = filled("zeros", 0)
/**
 * An array of zeros, float32 by default.
 * @example
 * mx.zeros([2]).tolist() // => [0, 0]
 */
export function zeros<D extends Dtype = Dtype<number>>(
  shape: number | readonly number[],
  dtype?: D | null,
  options?: StreamOptions,
): ArrayOf<ValueIn<D>>
export function zeros<D extends Dtype = Dtype<number>>(
  shape: number | readonly number[],
  options: { dtype?: D | null } & StreamOptions,
): ArrayOf<ValueIn<D>>
// By hand: the value type depends on the dtype.
export function zeros(...args: unknown[]): Array {
  return zerosArgs(args)
}

const onesArgs = filled("ones", 1)
/**
 * An array of ones, float32 by default.
 * @example
 * mx.ones([2]).tolist() // => [1, 1]
 */
export function ones<D extends Dtype = Dtype<number>>(
  shape: number | readonly number[],
  dtype?: D | null,
  options?: StreamOptions,
): ArrayOf<ValueIn<D>>
export function ones<D extends Dtype = Dtype<number>>(
  shape: number | readonly number[],
  options: { dtype?: D | null } & StreamOptions,
): ArrayOf<ValueIn<D>>
// By hand: the value type depends on the dtype.
export function ones(...args: unknown[]): Array {
  return onesArgs(args)
}

const zerosLikeArgs = filledLike("zerosLike", 0)
/**
 * An array of zeros of the shape and, by default, the dtype of `a`.
 * @example
 * mx.zerosLike(mx.array([1, 2])).tolist() // => [0, 0]
 */
export function zerosLike(a: Array, dtype?: Dtype | null, options?: StreamOptions): Array
export function zerosLike(a: Array, options: { dtype?: Dtype | null } & StreamOptions): Array
export function zerosLike(...args: unknown[]): Array {
  return zerosLikeArgs(args)
}

const onesLikeArgs = filledLike("onesLike", 1)
/**
 * An array of ones of the shape and, by default, the dtype of `a`.
 * @example
 * mx.onesLike(mx.array([5, 2])).tolist() // => [1, 1]
 */
export function onesLike(a: Array, dtype?: Dtype | null, options?: StreamOptions): Array
export function onesLike(a: Array, options: { dtype?: Dtype | null } & StreamOptions): Array
export function onesLike(...args: unknown[]): Array {
  return onesLikeArgs(args)
}

/** The body of `eye` and `tri`: an n×m matrix (n×n by default) of ones where `isOne(row + k, column)`, zeros elsewhere. */
const banded = (
  op: string,
  isOne: (row: Array, column: Array) => Array,
): ((args: readonly unknown[]) => Array) =>
  operation(
    op,
    { n: "integer", m: "integer?", k: "integer?", dtype: "dtype?" },
    (n: number, m?: number | null, k: number = 0, dtype?: Dtype | null) => {
      const [rows, columns] = asShape(op, [n, m ?? n])
      const row = arange(rows).reshape([rows, 1]).add(k)
      return toDtype(isOne(row, arange(columns)), dtype ? asDtype(op, dtype) : float32)
    },
  )

const eyeArgs = banded("eye", (row, column) => row.equal(column))
/**
 * An n×m matrix (n×n by default) with ones on the k-th diagonal and zeros elsewhere.
 * @throws ShapeError for a negative size
 * @example
 * mx.eye(2).tolist() // => [[1, 0], [0, 1]]
 */
export function eye<D extends Dtype = Dtype<number>>(
  n: number,
  m?: number | null,
  k?: number,
  dtype?: D | null,
  options?: StreamOptions,
): ArrayOf<ValueIn<D>>
export function eye<D extends Dtype = Dtype<number>>(
  n: number,
  options: { m?: number | null; k?: number; dtype?: D | null } & StreamOptions,
): ArrayOf<ValueIn<D>>
// By hand: the value type depends on the dtype.
export function eye(...args: unknown[]): Array {
  return eyeArgs(args)
}

const triArgs = banded("tri", (row, column) => row.greaterEqual(column))
/**
 * An n×m matrix (n×n by default) with ones on and below the k-th diagonal and zeros above.
 * @example
 * mx.tri(2).tolist() // => [[1, 0], [1, 1]]
 */
export function tri<D extends Dtype = Dtype<number>>(
  n: number,
  m?: number | null,
  k?: number,
  dtype?: D | null,
  options?: StreamOptions,
): ArrayOf<ValueIn<D>>
export function tri<D extends Dtype = Dtype<number>>(
  n: number,
  options: { m?: number | null; k?: number; dtype?: D | null } & StreamOptions,
): ArrayOf<ValueIn<D>>
// By hand: the value type depends on the dtype.
export function tri(...args: unknown[]): Array {
  return triArgs(args)
}
