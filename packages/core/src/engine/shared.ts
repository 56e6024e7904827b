/**
 * Arrays on their way to another thread of JavaScript, without a copy: what is posted is a note that says where the memory is.
 */

import { isList } from "../graph/args"
import { type Backend, listBackends } from "../graph/backend"
import { under } from "../graph/boundary"
import { type Dtype, dtypes } from "../graph/dtype"
import { DeviceError, DTypeError, FormatError } from "../graph/errors"
import { Array, sourceNode, withoutHandles } from "../graph/graph"
import { asShape, sizeOf } from "../graph/shape"
import type { Storage } from "../graph/storage"
import { arraysOf, checkLevel, mapLeaves } from "../graph/tree"
import { contiguous } from "../ops/view"
import { evaluate, evaluateOne } from "./evaluate"
import { lifetimes } from "./memory"

/** The stand-in for an array in a message: data that `postMessage` and `workerData` take. */
export interface SharedArray {
  /** The number of the memory; 0 marks nothing else. */
  readonly lazuliShared: number
  /** The backend whose memory it is. */
  readonly backend: string
  readonly shape: readonly number[]
  readonly dtype: string
  /** Elements before the first. */
  readonly offset: number
  /** Bytes of the memory. */
  readonly nbytes: number
}

/** A tree with notes where it had arrays. */
export type SharedTree<T> = T extends Array
  ? SharedArray
  : T extends object
    ? { [K in keyof T]: SharedTree<T[K]> }
    : T
/** The reverse of {@link SharedTree}. */
export type ReceivedTree<T> = T extends SharedArray
  ? Array
  : T extends object
    ? { [K in keyof T]: ReceivedTree<T[K]> }
    : T

/**
 * Prepares the arrays of a tree for another thread of this process: gives the tree with a {@link SharedArray} for each, to be posted and
 * then received there by {@link receive}. Nothing is copied: both threads see the same memory, which neither can change. The arrays are
 * computed first, and stay usable here. Each note can be received once. One that nobody receives keeps its memory until the process
 * ends: where a worker ended before it could, receive the note here, in the thread that made it.
 * @throws DeviceError for arrays of a backend whose memory threads cannot share
 * @example
 * const { w } = mx.receive(mx.share({ w: mx.array([1, 2]) }))
 * w.tolist() // => [1, 2]
 */
export function share<T>(tree: T): SharedTree<T> {
  const arrays = under("share", () => arraysOf(tree))
  evaluate(arrays.map((a) => a.node))
  return mapLeaves(tree, (leaf) => (leaf instanceof Array ? noteOf(leaf) : leaf)) as SharedTree<T>
}

function noteOf(a: Array): SharedArray {
  const { node } = a.node.strides === null ? a : withoutHandles(() => contiguous(a))
  evaluateOne(node)
  const storage = node.storage as Storage
  const { memory } = storage
  if (!memory.give)
    throw new DeviceError("share", `threads cannot share the memory of backend "${memory.name}"`, {
      hint: "Send toTypedArray(), or compute on mx.cpu",
    })
  return {
    lazuliShared: memory.give(storage),
    backend: memory.name,
    shape: node.shape.slice(),
    dtype: node.dtype.name,
    offset: node.offset,
    nbytes: storage.nbytes,
  }
}

const isNote = (value: unknown): value is SharedArray =>
  typeof value === "object" && value !== null && typeof (value as SharedArray).lazuliShared === "number"

/**
 * The tree that another thread prepared with {@link share}, with its arrays.
 * @throws DeviceError where a note was received before, or its backend is not loaded in this thread
 * @throws FormatError where a note is malformed
 */
export function receive<T>(tree: T): ReceivedTree<T> {
  const walk = (value: unknown, level: number): unknown => {
    if (isNote(value)) return arrayOf(value)
    const isRecord =
      typeof value === "object" && value !== null && Object.getPrototypeOf(value) === Object.prototype
    if (!isRecord && !isList(value)) return value
    checkLevel(level, "receive")
    if (isList(value)) return value.map((child) => walk(child, level + 1))
    return Object.fromEntries(Object.entries(value).map(([key, child]) => [key, walk(child, level + 1)]))
  }
  return walk(tree, 0) as ReceivedTree<T>
}

function arrayOf(note: SharedArray): Array {
  const dtype: Dtype | undefined = dtypes.find(({ name }) => name === note.dtype)
  if (!dtype) throw new DTypeError("receive", `there is no dtype "${note.dtype}"`)
  const shape = asShape("receive", note.shape as number[])
  const { offset, nbytes } = note
  const fits = [offset, nbytes].every((n) => Number.isSafeInteger(n) && n >= 0)
  if (!fits || (offset + sizeOf(shape)) * dtype.size > nbytes)
    throw new FormatError("receive", "the note does not describe an array within its memory")
  const backend: Backend | undefined = listBackends().find(({ name }) => name === note.backend)
  if (!backend?.memory.take)
    throw new DeviceError("receive", `backend "${note.backend}" is not loaded in this thread`)
  const node = sourceNode(shape, dtype, backend.memory.take(note.lazuliShared, nbytes))
  node.offset = offset
  const made = new Array(node)
  lifetimes.keep(node)
  return made
}
