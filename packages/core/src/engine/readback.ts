/**
 * Getting values out: eval, item, tolist, typed arrays. Each evaluates what it needs first.
 */
import { under } from "../graph/boundary"
import { calls } from "../graph/calls"
import { Complex } from "../graph/complex-number"
import { complex64, decoder, newStore, type TypedArray, viewStore } from "../graph/dtype"
import { ShapeError } from "../graph/errors"
import { Array, handles, type Node, withoutHandles } from "../graph/graph"
import type { Nested } from "../graph/members"
import type { Value } from "../graph/option-types"
import { format, sizeOf } from "../graph/shape"
import type { Storage } from "../graph/storage"
import { arraysOf } from "../graph/tree"
import { contiguous } from "../ops/view"
import { evaluate, evaluateAsync, evaluateOne } from "./evaluate"
import { lifetimes } from "./memory"

/**
 * Computes the arrays of the given trees now.
 * @throws the error of the first of the arrays that depends on work that failed; the arrays that depend on it keep the error
 * @example
 * const x = mx.ones([2]).add(1); mx.eval(x); x.tolist() // => [2, 2]
 */
export function evalTrees(...trees: unknown[]): void {
  if (trees.length === 1 && trees[0] instanceof Array) evaluateOne(trees[0].node)
  else evaluate(nodesIn("eval", trees))
}

/**
 * The nodes of the arrays of trees. Lists in hot code are filled by `push`: those that `map` gives become of another kind once V8 compiles
 * it, and what was compiled for the first is compiled again.
 */
export function nodesIn(op: string, trees: readonly unknown[]): Node[] {
  const nodes: Node[] = []
  for (const a of under(op, () => arraysOf(trees))) nodes.push(a.node)
  return nodes
}

/** The evaluated node itself, or one of the same elements that is row-major. */
function rowMajor(a: Array): Node {
  evaluateOne(a.node)
  if (a.node.strides === null) return a.node
  const copy = withoutHandles(() => contiguous(a)).node
  evaluateOne(copy)
  return copy
}

/** The elements as stored, row-major, in a fresh typed array (complex64 as pairs, float16 and bfloat16 as bits). */
export function copyOut(a: Array): TypedArray {
  if (calls.recorder !== null) calls.recorder.readValue(a.node)
  const source = rowMajor(a)
  const out = newStore(a.dtype, sizeOf(a.node.shape))
  const storage = source.storage as Storage
  if (out.byteLength > 0) storage.memory.read(storage, source.offset * a.dtype.size, out)
  return out
}

/** The same, once other threads have computed them: of what the handle shows now, which may be set or disposed meanwhile. */
export async function copyOutLater(a: Array): Promise<TypedArray> {
  const own = withoutScope(() => new Array(a.node))
  try {
    await evaluateAsync([own.node])
    return copyOut(own)
  } finally {
    lifetimes.disposeHandle(own)
  }
}

/** Runs `body` so that no {@link tidy} gives back what it makes. */
function withoutScope<T>(body: () => T): T {
  const { scope } = handles
  handles.scope = null
  try {
    return body()
  } finally {
    handles.scope = scope
  }
}

/**
 * The bytes that {@link partsOf} and arrayFromParts move at a time: they stay in the cache, and no second copy of a large array is ever
 * made.
 */
export const PART_BYTES: number = 2 ** 20

/** The bytes that {@link copyOut} gives, a part at a time; each part is overwritten by the next. */
export function* partsOf(a: Array): Generator<Uint8Array> {
  const source = rowMajor(a)
  const storage = source.storage as Storage
  const part = new Uint8Array(Math.min(a.nbytes, PART_BYTES))
  const offset = source.offset * a.dtype.size
  // The array may be given up, or updated, before the next part is asked for.
  storage.refs++
  try {
    for (let at = 0; at < a.nbytes; at += part.length) {
      const bytes = part.subarray(0, Math.min(part.length, a.nbytes - at))
      storage.memory.read(storage, offset + at, bytes)
      yield bytes
    }
  } finally {
    storage.drop()
  }
}

const scratch = new ArrayBuffer(16)

/** The value of an array of one element. @throws ShapeError */
export function item(a: Array): Value {
  const { node } = a
  if (sizeOf(node.shape) !== 1)
    throw new ShapeError("item", `needs an array of one element, received shape ${format(node.shape)}`, {
      hint: "tolist() gives all elements",
    })
  if (calls.recorder !== null) calls.recorder.readValue(node)
  evaluateOne(node)
  const out = viewStore(node.dtype, scratch, 0, 1)
  const storage = node.storage as Storage
  storage.memory.read(storage, node.offset * node.dtype.size, out)
  return node.dtype === complex64
    ? new Complex(out[0] as number, out[1] as number)
    : decoder(node.dtype)(out[0])
}

/** All values, nested like the axes; a plain value for a 0-d array. */
export function tolist(a: Array): Nested {
  const store = copyOut(a)
  const { dtype, shape } = a.node
  const decode = decoder(dtype)
  let i = 0
  const next = (): Value => {
    if (dtype !== complex64) return decode(store[i++])
    i += 2
    return new Complex(store[i - 2] as number, store[i - 1] as number)
  }
  const build = (axis: number): Nested => {
    if (axis === shape.length) return next()
    const list: Nested[] = []
    for (let k = 0; k < shape[axis]; k++) list.push(build(axis + 1))
    return list
  }
  return build(0)
}

/**
 * The elements in row-major order as a typed array: a copy, or, with `copy: false` and a contiguous array, a view of the array's own
 * memory, which keeps its values and must not be written to.
 */
export function toTypedArray(a: Array, options: { copy?: boolean } = {}): TypedArray {
  if (options.copy !== false) return copyOut(a)
  if (calls.recorder !== null) calls.recorder.readValue(a.node)
  evaluateOne(a.node)
  if (a.node.strides !== null) return copyOut(a)
  const storage = a.node.storage as Storage
  // Memory that the host does not see can only be copied.
  if (!storage.memory.host) return copyOut(a)
  // A lender has the same memory.
  for (let each: Storage | null = storage; each !== null; each = each.lender) each.isExposed = true
  return viewStore(a.dtype, storage.memory.host(storage), a.node.offset * a.dtype.size, sizeOf(a.node.shape))
}
