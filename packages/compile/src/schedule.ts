/**
 * The order of a program's work: as it is needed, except that whatever lets go of more memory than it takes runs as soon as it can.
 * In a training step, a weight's gradient and the weight's update then follow what they read, instead of keeping it for the end.
 */
import type { Node } from "@lazuli/core/engine"
import { inOrder, isLeaf, leadOf, outputsOf, primitiveOf } from "./order"

const isView = (lead: Node): boolean => primitiveOf(lead).rules.view !== undefined

/** Applications that take memory, what they read of others' memory, and who still has to read it. */
class Work {
  /** Readers of a node's memory, itself or through views, that have not run. */
  private readonly waiting = new Map<Node, Set<Node>>()
  private readonly reads = new Map<Node, readonly Node[]>()
  private readonly missing = new Map<Node, number>()
  private readonly pinned: ReadonlySet<Node>
  readonly done = new Set<Node>()

  constructor(leads: readonly Node[], outputs: readonly Node[]) {
    this.pinned = new Set(outputs.map((node) => this.ownerOf(node)))
    for (const lead of leads) {
      const owners = [...new Set(lead.inputs.map((node) => this.ownerOf(node)))].filter((n) => !isLeaf(n))
      this.reads.set(lead, owners)
      this.missing.set(lead, new Set(owners.map(leadOf)).size)
      for (const owner of owners) this.readersOf(owner).add(lead)
    }
  }

  /** The node whose memory a node shows. */
  private ownerOf(node: Node): Node {
    let owner = node
    while (!isLeaf(owner) && isView(owner)) owner = owner.inputs[0]
    return owner
  }
  private readersOf(owner: Node): Set<Node> {
    let readers = this.waiting.get(owner)
    if (!readers) this.waiting.set(owner, (readers = new Set()))
    return readers
  }

  /** Bytes that running it now lets go of, less those that it takes. What leaves the program has its own memory all along. */
  gain(lead: Node): number {
    let bytes = 0
    for (const owner of this.reads.get(lead) ?? [])
      if (this.readersOf(owner).size === 1 && !this.pinned.has(owner)) bytes += owner.nbytes
    for (const node of outputsOf(lead)) if (!this.pinned.has(node)) bytes -= node.nbytes
    return bytes
  }

  isReady(lead: Node): boolean {
    return !this.done.has(lead) && this.missing.get(lead) === 0
  }

  /** Notes that an application ran; gives those that may have become worth running. */
  finish(lead: Node): Node[] {
    this.done.add(lead)
    const touched: Node[] = []
    const unblocked = new Set<Node>()
    for (const node of outputsOf(lead)) for (const reader of this.readersOf(node)) unblocked.add(reader)
    for (const reader of unblocked) this.missing.set(reader, (this.missing.get(reader) as number) - 1)
    touched.push(...unblocked)
    for (const owner of this.reads.get(lead) ?? []) {
      const readers = this.readersOf(owner)
      readers.delete(lead)
      if (readers.size === 1) touched.push(...readers)
    }
    return touched
  }
}

/** The applications that the outputs need, in the order in which they run; views stand before their first reader. */
export function schedule(outputs: readonly Node[]): Node[] {
  const needed = inOrder(outputs, isLeaf)
  const leads = needed.filter((lead) => !isView(lead))
  const work = new Work(leads, outputs)
  const order: Node[] = []
  const shown = new Set<Node>()
  const show = (node: Node): void => {
    const views: Node[] = []
    for (let view = node; !isLeaf(view) && isView(view) && !shown.has(view); view = view.inputs[0])
      views.push(view)
    for (const view of views.reverse()) {
      shown.add(view)
      order.push(view)
    }
  }
  const run = (lead: Node): Node[] => {
    for (const input of lead.inputs) show(input)
    order.push(lead)
    return work.finish(lead)
  }
  for (const next of leads) {
    if (work.done.has(next)) continue
    let candidates = run(next)
    while (candidates.length > 0) {
      const more: Node[] = []
      for (const lead of candidates) if (work.isReady(lead) && work.gain(lead) > 0) more.push(...run(lead))
      candidates = more
    }
  }
  for (const node of outputs) show(node)
  return order
}
