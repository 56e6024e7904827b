/**
 * Applications that come again with other arrays of the same shapes in the same layouts: the second one is recorded, and later ones run
 * what was recorded, so that a family works its dispatches out twice. Names and views are the recordings' own; nothing here keeps an array.
 */
import {
  type AnyParams,
  type Dtype,
  type Memory,
  type Node,
  type Primitive,
  Storage,
  sameShape,
} from "@lazuli/core/engine"
import type { GpuQueue } from "./queue"
import type { Recorded } from "./recording"

/** All that dispatches depend on of an operand, but for where its memory is. */
interface Operand {
  readonly shape: readonly number[]
  readonly strides: readonly number[] | null
  readonly dtype: Dtype
  readonly offset: number
  /** The first operand in the same memory; of an immediate −1. */
  readonly first: number
  /** Of an immediate. */
  readonly value: unknown
}

interface Known {
  readonly params: AnyParams
  readonly operands: readonly Operand[]
  /** Null before the second time. */
  recorded: Recorded | null
}

/** The known applications of a primitive. */
interface Kept {
  readonly list: Known[]
  /** Where the next one goes once the list is full. */
  next: number
  /** Applications in a row that were none of the list. */
  misses: number
}

/** Applications of a primitive that are known at a time, and misses after which looking does not pay. */
const MOST = 8
const MOST_MISSES = 64

const IMMEDIATE = -1

/** Equal for what a parameter may be: plain values, lists and objects of them, and what has a key. */
function same(a: unknown, b: unknown): boolean {
  if (Object.is(a, b)) return true
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false
  if (globalThis.Array.isArray(a)) {
    if (!globalThis.Array.isArray(b) || a.length !== b.length) return false
    for (let i = 0; i < a.length; i++) if (!same(a[i], b[i])) return false
    return true
  }
  if (Object.getPrototypeOf(a) !== Object.prototype || Object.getPrototypeOf(b) !== Object.prototype)
    return false
  const [x, y] = [a as Record<string, unknown>, b as Record<string, unknown>]
  if (typeof x.key === "string") return x.key === y.key
  let count = 0
  for (const name in x) {
    if (!same(x[name], y[name])) return false
    count++
  }
  for (const _ in y) count--
  return count === 0
}

const sameStrides = (a: readonly number[] | null, b: readonly number[] | null): boolean =>
  a === b || (a !== null && b !== null && sameShape(a, b))

/** The operands of an application: inputs, then outputs. */
const operandCount = ({ inputs, outputs }: Node): number =>
  inputs.length + (outputs === null ? 1 : outputs.length)
function operandAt(node: Node, i: number): Node {
  const { inputs, outputs } = node
  if (i < inputs.length) return inputs[i]
  return outputs === null ? node : outputs[i - inputs.length]
}

/** The first operand in the memory of number `i`. */
function firstOf(node: Node, i: number): number {
  const { storage } = operandAt(node, i)
  if (storage === null) return IMMEDIATE
  for (let k = 0; k < i; k++) if (operandAt(node, k).storage === storage) return k
  return i
}

function fits(known: Known, node: Node): boolean {
  const { operands } = known
  const count = operandCount(node)
  if (operands.length !== count) return false
  for (let i = 0; i < count; i++) {
    const { shape, strides, dtype, offset, storage, params } = operandAt(node, i)
    const was = operands[i]
    if (dtype !== was.dtype || !sameShape(shape, was.shape)) return false
    if (storage === null) {
      if (was.first !== IMMEDIATE || !Object.is(params.value, was.value)) return false
    } else if (offset !== was.offset || !sameStrides(strides, was.strides) || firstOf(node, i) !== was.first)
      return false
  }
  return same(node.params, known.params)
}

function knownOf(node: Node): Known {
  const operands = globalThis.Array.from({ length: operandCount(node) }, (_, i): Operand => {
    const { shape, strides, dtype, offset, storage, params } = operandAt(node, i)
    const value = storage === null ? params.value : undefined
    return { shape, strides, dtype, offset, first: firstOf(node, i), value }
  })
  return { params: node.params, operands, recorded: null }
}

export class Replays {
  private readonly known = new Map<Primitive, Kept>()

  constructor(
    private readonly queue: GpuQueue,
    private readonly memory: Memory,
  ) {}

  /** Adds an application's work, which `encode` would add; true where it was recorded before or is now. */
  run(node: Node, mayRecord: () => boolean, encode: () => void): boolean {
    const primitive = node.primitive as Primitive
    let kept = this.known.get(primitive)
    if (kept === undefined) this.known.set(primitive, (kept = { list: [], next: 0, misses: 0 }))
    if (kept.misses > MOST_MISSES) return false
    for (const known of kept.list) {
      if (!fits(known, node)) continue
      kept.misses = 0
      known.recorded ??= this.record(node, encode)
      this.replay(known.recorded, node)
      return true
    }
    kept.misses++
    if (!mayRecord()) return false
    const before = kept.list[kept.next]
    if (before?.recorded) this.queue.forget(before.recorded)
    kept.list[kept.next] = knownOf(node)
    kept.next = (kept.next + 1) % MOST
    return false
  }

  /** Records an application, its operands in memory that stands for a binding each. */
  private record(node: Node, encode: () => void): Recorded {
    const count = operandCount(node)
    const operands = globalThis.Array.from({ length: count }, (_, i) => operandAt(node, i))
    const storages = operands.map(({ storage }) => storage)
    // A storage's id is the number of a binding while it is recorded; nothing releases it.
    const bindings = storages.map((storage, i) => storage && new Storage(this.memory, i, storage.nbytes))
    operands.forEach((operand, i) => {
      const first = storages.indexOf(storages[i])
      operand.storage = bindings[first]
    })
    try {
      return this.queue.record(count, 0, 0, [], encode)
    } finally {
      operands.forEach((operand, i) => {
        operand.storage = storages[i]
      })
    }
  }

  private replay(recorded: Recorded, node: Node): void {
    const count = operandCount(node)
    const storages: (Storage | null)[] = []
    for (let i = 0; i < count; i++) storages.push(operandAt(node, i).storage)
    this.queue.replay(recorded, storages, node.inputs.length)
  }
}
