/**
 * Arrays that nobody has asked for yet: what they weigh together (see pending-weight.ts), and which of their handles must be known. Who
 * computes them is evaluate.ts's to decide.
 */
import { type Array, handles, inTrace, LEAST_MADE, Mark, type Node, PENDING_BYTES, Ref } from "../graph/graph"
import { newRecount, weigh } from "./pending-weight"
import { isFormer } from "./undo"

/** A node without inputs, such as a number beside an array, keeps nothing alive. */
const isPending = (node: Node): boolean =>
  node.storage === null && node.inputs.length > 0 && (node.mark & Mark.Abstract) === 0 && !isFormer(node)

/** The small pending node of a handle; null where there is none. */
const pendingOf = ({ node, ref }: Array): Node | null =>
  ref === Ref.Counted && isPending(node) ? node : null

export class PendingArrays {
  /** Their weight, as far as they were weighed since the last {@link recount}; what was computed since is in it. */
  private weight = 0
  /** Of `handles.recent`, so many were weighed. */
  private weighedCount = 0
  /** Nodes of a trace, which is weighed once it is over: what reads them twice is not there before. */
  private later: Node[] = []

  /** Weighs a node, if it is pending and was not weighed. */
  add(node: Node): void {
    if (!inTrace()) this.weight += isFormer(node) ? 0 : weigh(node)
    else if (isPending(node)) this.later.push(node)
  }

  /** Weighs small arrays made since the last time. Returns true if there may be too much by now. */
  weighRecent(): boolean {
    this.weighLater()
    const { recent, recentCount } = handles
    for (let i = this.weighedCount; i < recentCount; i++) {
      const node = pendingOf(recent[i] as Array)
      if (node !== null) this.add(node)
    }
    this.weighedCount = recentCount
    return this.isTooMuch()
  }

  /**
   * Looks through the handles of small nodes made since the last time: those that are pending, and that no other pending node reads, get a
   * weak reference of their own, so that they are known. So do the last `some`, also where others read them: those may be dead.
   */
  sweep(some: number): void {
    if (this.later.length > 0) this.weighLater()
    const { recent, fresh, recentCount } = handles
    for (let i = 0; i < recentCount; i++) {
      const handle = recent[i] as Array
      recent[i] = null
      const node = pendingOf(handle)
      if (node === null) continue
      if (i >= this.weighedCount) this.add(node)
      if (node.uses > 0 && i < recentCount - some) continue
      handle.ref = Ref.Fresh
      fresh.push(handle)
    }
    handles.recentCount = 0
    this.weighedCount = 0
    // In a trace its floor goes with the budget, and the weight is asked once it is over.
    if (!inTrace()) handles.budget = PENDING_BYTES - this.weight
  }

  private weighLater(): void {
    const pending = this.later.filter((node) => node.storage === null)
    this.later = []
    for (const node of pending) this.add(node)
  }

  /** Weighs pending nodes anew, by what is known to be alive now. Returns true if they are too much. */
  recount(nodes: readonly Node[]): boolean {
    const round = newRecount()
    this.weight = 0
    for (const node of nodes) this.weight += weigh(node, round)
    return this.isTooMuch()
  }

  /** Forgets the weight of those that are computed now. */
  forget(): void {
    this.weight = 0
    handles.budget = PENDING_BYTES
  }

  private isTooMuch(): boolean {
    handles.budget = Math.max(PENDING_BYTES - this.weight, LEAST_MADE)
    return this.weight > PENDING_BYTES
  }
}
