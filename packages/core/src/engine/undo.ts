/**
 * Writes in place where the old handle may be alive. Whether it is, only a garbage collection tells, which costs more than a small update.
 * So the update writes at once, and what it overwrites is kept: the old node is pending again, as the new one with that put back. Whoever
 * reads it computes it like any other pending node, and once its handle is found dead it is forgotten. Here is who may be written over, and
 * how much is kept; update-in-place.ts does it, memory.ts forgets, and views-in-the-way.ts tells what else has to give way.
 */
import type { Backend, Encoder } from "../graph/backend"
import { calls } from "../graph/calls"
import type { Stream } from "../graph/device"
import { type Application, inTrace, Mark, type Node, type Undo } from "../graph/graph"
import { isOwn, overlays, storages, type World } from "./assignment"

/** Copying smaller arrays costs less than a look for dead handles. */
const LEAST_BYTES = 2 ** 20
/** Former values of one memory, which share a look for dead handles. */
const MOST_VALUES = 256
/** The part of the array's bytes that may be kept for all of them, besides a few bytes of indices. */
export const SHARE = 1 / 8
const INDICES = 4096

/** A former value. */
export type Former = Undo & { readonly node: Node }

/** The mark of a former value that has none before it: every former value has some, so that others are told from it at a glance. */
export const OLDEST: Undo = { node: null, count: 0, bytes: 0 }

/** True if a node is a former value of the memory of its first input. */
export const isFormer = (node: Node): boolean =>
  node.undo !== null && node.storage === null && node.inputs.length > 0 && node.inputs[0].undo?.node === node

/** The former value of a node's memory; null where there is none any more. */
export function undoOf(node: Node): Former | null {
  const { undo } = node
  if (undo === null || undo.node === null) return null
  if (isFormer(undo.node)) return undo as Former
  forgetUndo(node)
  return null
}

/** Notes that a node's memory has no former values any more. */
export function forgetUndo(node: Node): void {
  node.undo = node.storage === null && node.undo !== null ? OLDEST : null
}

/** The knowledge of an asker about former values, and about who else may read the memory that an update would write over. */
export interface History extends World {
  /** Pending applications that read a node. */
  usesOf(node: Node): number
  /** The former value of a node's memory, as {@link undoOf} gives it. */
  formerOf(node: Node): Former | null
  /** True if a node's memory is its own and that of so many views, as {@link isOwn} says. */
  owns(node: Node, application: Application, views: number): boolean
  /** True if two nodes show the same memory. */
  shareMemory(a: Node, b: Node): boolean
}

/** The history of evaluation. */
export const evaluated: History = {
  ...storages,
  usesOf: (node) => node.uses,
  formerOf: undoOf,
  owns({ storage, primitive, mark }, application, views) {
    if (storage === null || !isOwn(storage, application, views)) return false
    return primitive === null && mark === Mark.None
  },
  shareMemory: (a, b) => a.storage === b.storage,
}

/** An evaluation under way, whose updates may write over what nothing in it reads. */
export class Evaluation {
  /**
   * An instance that stays. Where a garbage collection finds none, which is likely between two steps of a loop, V8 forgets the shape of
   * instances, and with it all code that is compiled for them.
   */
  static readonly kept = new Evaluation([], [])

  private readsFormers: boolean | null = null
  /** The views that it made of large arrays so far; null for none. */
  views: Node[] | null = null
  constructor(
    /** The nodes that it was asked for. */
    readonly roots: readonly Node[],
    /** All that it computes. */
    readonly order: readonly Application[],
  ) {}

  noteView(view: Node): void {
    if (this.views === null) this.views = [view]
    else this.views.push(view)
  }

  /**
   * True if it gives a node or a former value of it, or reads a former value: that may run after an update, and finds its memory taken.
   * Hardly any evaluation computes former values, so the long list of a node's own is looked through only then.
   */
  reads(node: Node, history: History): boolean {
    this.readsFormers ??= this.order.some(isFormer)
    return this.roots.includes(node) || (this.readsFormers && isRead(history, node, this.roots))
  }
}

/** True if pending work reads a former value, or a root is one. */
function isRead(history: History, node: Node, roots: readonly Node[]): boolean {
  let undo = history.formerOf(node)
  while (undo !== null) {
    const before = history.formerOf(undo.node)
    if (roots.includes(undo.node) || history.usesOf(undo.node) > (before === null ? 0 : 1)) return true
    undo = before
  }
  return false
}

/** The bytes that are kept for a former value, or would be for the input of an update. */
export function bytesBeside({ inputs }: Node): number {
  let bytes = 0
  for (let i = 1; i < inputs.length; i++) bytes += inputs[i].nbytes
  return bytes
}

/** True if an array is so large that copying it costs more than copying a part of it first. */
export const isWorthParting = ({ nbytes }: { readonly nbytes: number }): boolean => nbytes >= LEAST_BYTES

/** True if nothing but a handle, or a former value, can still read an update's first input. */
function mayUndo(application: Application, evaluation: Evaluation, history: History, views: number): boolean {
  const { primitive, inputs, stream } = application
  if (!isWorthParting(application) || primitive.rules.undo === undefined) return false
  // A trace may want the graphs of both.
  if (inTrace() || calls.recorder !== null || application.mark !== Mark.None) return false
  const [old] = inputs
  if (!history.owns(old, application, views) || old.outputs !== null || old.stream !== stream) return false
  const undo = history.formerOf(old)
  if (undo?.node === application || history.usesOf(old) !== (undo === null ? 1 : 2) || old.handles > 1)
    return false
  // It is given to the update without that.
  if (undo === null && old.handles === 0) return false
  return (
    overlays(history, application, old) &&
    !evaluation.reads(old, history) &&
    hasSpace(application, old, history)
  )
}

/** True if an encoder may write an update's result over its first input. */
export const overwritesFirst = (encoder: Encoder | null, application: Application): boolean =>
  encoder?.overwrites?.(application, 0).includes(0) === true

/**
 * True if a backend writes an update over its first input, though that has a handle, or a former value. `evaluation` is null where
 * somebody else reads arrays meanwhile.
 */
export function writesOver(
  application: Application,
  { queue }: Backend,
  encoder: Encoder | null,
  evaluation: Evaluation | null,
  history: History = evaluated,
  views = 0,
): boolean {
  if (evaluation === null || queue.isIdle?.(application.stream) !== true) return false
  if (!overwritesFirst(encoder, application) || !mayUndo(application, evaluation, history, views))
    return false
  return isOfStream(application.inputs, application.stream)
}

/** True if what fails to make the inputs is known to fail once the stream's work has run. */
function isOfStream(inputs: readonly Node[], stream: Stream): boolean {
  for (let i = 1; i < inputs.length; i++) {
    const { storage } = inputs[i]
    if (storage !== null && storage.stream !== null && storage.stream !== stream) return false
  }
  return true
}

function hasSpace(application: Application, old: Node, history: History): boolean {
  const bytes = bytesBeside(application)
  const undo = history.formerOf(old)
  return fits(application, bytes, undo) || (undo !== null && fits(application, bytes, recount(undo)))
}

/** True if there are so many former values that a look for dead handles is due. */
export const isFull = ({ count }: Undo): boolean => count >= MOST_VALUES

const fits = ({ nbytes }: Node, bytes: number, undo: Undo | null): boolean =>
  bytes + (undo?.bytes ?? 0) <= nbytes * SHARE + INDICES && (undo === null || !isFull(undo))

/** Counts the former values anew: some were forgotten. */
function recount(newest: Former): Undo {
  // Those of an estimate are counted already.
  if (!isFormer(newest.node)) return newest
  let [count, bytes] = [0, 0]
  for (let undo: Former | null = newest; undo !== null; undo = undoOf(undo.node)) {
    count++
    bytes += bytesBeside(undo.node)
  }
  newest.count = count
  newest.bytes = bytes
  return newest
}
