/**
 * The memory that an evaluation takes on each device, and whether it fits under the limits, asked before anything of it is encoded: a
 * refused evaluation then leaves every array as it was. What it takes at least is found by walking the schedule without running it, with
 * the decisions of assignment.ts; what shows only on the way, such as memory that a kernel of another device borrows, is the backend's to
 * refuse. Nothing here frees or allocates; see memory.ts.
 */
import { type Backend, backendFor } from "../graph/backend"
import type { Stream } from "../graph/device"
import type { Application, Layout, Node, Plan } from "../graph/graph"
import type { Strides } from "../graph/shape"
import type { Memory, Storage } from "../graph/storage"
import {
  Crossing,
  crossingTo,
  donorFor,
  giftFor,
  isKeptForTrace,
  isStraightened,
  offsetIn,
  overlays,
  readingOf,
  readsAll,
  storages,
  stridesIn,
  viewOf,
  viewOfCopy,
  Way,
  type World,
  wayOf,
} from "./assignment"
import { Block } from "./memory-block"
import {
  bytesBeside,
  type Evaluation,
  type Former,
  type History,
  isFull,
  isWorthParting,
  overwritesFirst,
  undoOf,
  writesOver,
} from "./undo"
import { arePartsOf, bytesOfViews, viewsInTheWay } from "./views-in-the-way"

/** Bytes of several memories. */
export type Bytes = ReadonlyMap<Memory, number>

/** The bytes of a block for those that are asked for: a backend may give an eighth more, and not less than a cache line. */
const SPARE = 1.25
const LINE = 128

const withSpare = (nbytes: number, blocks: number): number => (nbytes + blocks * LINE) * SPARE

/** The most bytes that an application of one output can take which has no plan. */
export const mostOf = (nbytes: number): number => withSpare(nbytes, 1)

/** Bytes of a schedule's results. */
export interface Extent {
  /** Of all of them, and of what else plans take: the most it can take, but for copies on the way. */
  most: number
  /** Of those that a handle may still show: what a poll for dead handles could save. */
  shown: number
  /** Of copies for handles that may be dead: the same. */
  copied: number
  /** Of these, those that are worth less than a look at old handles. */
  shared: number
}
const extent: Extent = { most: 0, shown: 0, copied: 0, shared: 0 }

/** Copies of arrays of so many bytes are not worth looking for dead handles. */
const LARGE_UPDATE = 2 ** 18

/** Many former values of one memory are worth as much of a look as a copy of so many bytes. */
const MANY_VALUES = 16 * 2 ** 20

/** To keep so many bytes of a former value takes longer than a look, which may show that nobody wants them. */
const LARGE_PART = 4 * 2 ** 20

/** To keep them beside those of another one, which a look left, is worth as much as a copy of so many bytes: a look at old handles, too. */
const SECOND_PART = 64 * 2 ** 20

/** The number of views to go through for the node that they show. */
const MANY_VIEWS = 8

/** The node whose memory a pending node shows; null where that is there already: it takes nothing, and no poll would save it. */
function ownerOf(node: Node): Node | null {
  let shown = node
  for (let i = 0; i < MANY_VIEWS; i++) {
    if (shown.alias !== null || shown.primitive?.rules.view === undefined) return shown
    shown = shown.inputs[0]
    if (shown.storage !== null) return null
  }
  return shown
}

/** The plan that an application runs by; null where it has none. */
const planOf = (application: Application): Plan | null =>
  application.alias === null ? (application.primitive.rules.plan?.(application) ?? null) : null

/** Bytes of an application's outputs, and of what else its plan takes. */
function resultBytes(application: Application): number {
  const { outputs } = application
  let bytes = application.nbytes
  if (outputs !== null) for (let k = 1; k < outputs.length; k++) bytes += outputs[k].nbytes
  if (application.primitive.rules.plan === undefined) return bytes
  const plan = planOf(application)
  if (plan === null) return bytes
  return bytes + ((liesOtherwise(application) ? readingOf(found, application, plan).plan : plan).bytes ?? 0)
}

/** True if a plan finds an input that is not row-major. */
function liesOtherwise({ inputs }: Application): boolean {
  for (let i = 0; i < inputs.length; i++)
    if (inputs[i].strides !== null && found.stridesOf(inputs[i]) !== null) return true
  return false
}

/** Storages as plans find them: what is small was made row-major. */
const found: World = {
  ...storages,
  stridesOf: (node) => (isStraightened(storages, node, false) ? null : node.strides),
}

/**
 * Bytes of an application's result, or of what it writes into its first input, as far as that is evaluated. Adds to `extent` what it copies
 * for the sake of handles that may be dead.
 */
function largeBytes(application: Application, extent: Extent, evaluation: Evaluation | null): number {
  const { primitive, inputs, alias, stream, nbytes } = application
  const [first] = inputs
  if (alias !== null || primitive.elementwise || first === undefined || first.storage === null)
    return resultBytes(application)
  // From one memory to another it takes no longer.
  if (primitive.facts.exchanges === true) return resultBytes(application)
  const before = undoOf(first)
  // Where an update cannot be written over its first input, no poll saves the copy.
  if (first.uses !== (before === null ? 1 : 2) || !overlays(storages, application, first)) {
    if (primitive.rules.undo !== undefined && evaluation !== null) noteViews(first, extent, evaluation)
    return resultBytes(application)
  }
  const backend = backendFor(stream.device)
  const encoder = backend.queue.lower(application)
  if (!overwritesFirst(encoder, application)) return resultBytes(application)
  if (storages.isSpent(first, application)) return bytesBeside(application)
  if (writesOver(application, backend, encoder, evaluation)) {
    const part = bytesBeside(application)
    if (part >= LARGE_PART) {
      extent.copied += before === null ? MANY_VALUES : SECOND_PART
      if (before === null) extent.shared += MANY_VALUES
    }
    return part
  }
  // A handle of its own, of a view, or of a former value.
  if (first.handles === 0 && first.storage.refs === 1 && before === null) return resultBytes(application)
  if (before !== null && isFull(before)) {
    const bytes = Math.max(nbytes, MANY_VALUES)
    extent.copied += bytes
    extent.shared += bytes
  } else extent.copied += nbytes
  return resultBytes(application)
}

/** Notes what views that an evaluation makes of an array will cost an update of it, if their handles are alive. */
function noteViews(node: Node, extent: Extent, { order }: Evaluation): void {
  const views = order.filter((each) => each.handles > 0 && wayOf(each) === Way.View && shownBy(each) === node)
  if (!arePartsOf(node.nbytes, views)) extent.copied += node.nbytes
  else if (bytesOfViews(views) >= LARGE_PART) {
    extent.copied += MANY_VALUES
    extent.shared += MANY_VALUES
  }
}

/** Measures a schedule that takes memory of one device; the answer is good until the next call. For `evaluation` see {@link writesOver}. */
export function measure(
  order: readonly Application[],
  roots: readonly Node[],
  evaluation: Evaluation | null,
): Extent {
  let [most, shown] = [0, 0]
  extent.copied = extent.shared = 0
  for (let i = 0; i < order.length; i++) {
    const application = order[i]
    if (application.handles > 0) {
      const owner = ownerOf(application)
      // A view of what has a handle itself takes nothing more.
      if (owner === application || owner?.handles === 0) shown += application.nbytes
    }
    most +=
      application.nbytes > LARGE_UPDATE
        ? largeBytes(application, extent, evaluation)
        : resultBytes(application)
  }
  for (let i = 0; i < roots.length; i++) {
    const owner = ownerOf(roots[i])
    if (owner !== null) shown -= owner.handles > 0 ? owner.nbytes : roots[i].nbytes
  }
  extent.most = withSpare(most, order.length)
  extent.shown = shown
  return extent
}

const memoryOf = ({ stream }: Node): Memory => backendFor(stream.device).memory

/** The most bytes that a schedule can take of each memory, with what is copied from one to the other. */
export function mostBytes(order: readonly Application[]): Bytes {
  const most = new Map<Memory, number>()
  const take = (memory: Memory, nbytes: number): void => {
    most.set(memory, (most.get(memory) ?? 0) + (nbytes + LINE) * SPARE)
  }
  for (const application of order) {
    const memory = memoryOf(application)
    take(memory, resultBytes(application))
    for (const input of application.inputs) {
      const shown = shownBy(input)
      if ((shown.storage?.memory ?? memoryOf(shown)) !== memory)
        take(memory, shown.storage?.nbytes ?? shown.nbytes)
    }
  }
  return most
}

/** The node whose memory a pending view shows: as a whole it is copied to other devices. */
function shownBy(node: Node): Node {
  let shown = node
  while (shown.storage === null) {
    if (shown.alias !== null) shown = shown.alias
    else if (shown.primitive?.rules.view === undefined) return shown
    else shown = shown.inputs[0]
  }
  return shown
}

const ROW_MAJOR: Layout = { offset: 0, strides: null }

/** An evaluation without its work: who would show which memory, how, and how many bytes that comes to. */
class Estimate implements History {
  /** See {@link Evaluation.kept}. */
  static readonly kept = new Estimate([], null)

  /** The most bytes of each memory at once so far, on top of what was in use before. */
  readonly most = new Map<Memory, number>()
  private readonly now = new Map<Memory, number>()
  private readonly blocks = new Map<Node | Storage, Block>()
  private readonly layouts = new Map<Node, Layout>()
  /** The number of pending applications that read a node, where some were walked. */
  private readonly readers = new Map<Node, number>()
  private readonly roots: ReadonlySet<Node>
  /** Outputs that took the memory of a node in a group. */
  private readonly grouped = new Set<Node>()
  /** The former values of what was written over. */
  private readonly formers = new Map<Node, Former>()
  /** Views of large arrays. */
  private readonly views: Node[] = []

  constructor(
    roots: readonly Node[],
    /** See {@link writesOver}. */
    private readonly evaluation: Evaluation | null,
  ) {
    this.roots = new Set(roots)
  }

  offsetOf = (node: Node): number => this.layoutOf(node).offset
  stridesOf = (node: Node): Strides | null => this.layoutOf(node).strides
  bytesOf = (node: Node): number => this.blockOf(node)?.nbytes ?? 0

  isSpent(input: Node, application: Application, views = 0): boolean {
    return this.isLast(input) && this.owns(input, application, views) && !isKeptForTrace(application)
  }

  owns(node: Node, application: Application, views = 0): boolean {
    const block = this.blockOf(node)
    if (block === null || block.shown !== 1 + views || block.memory !== memoryOf(application)) return false
    if (block.stream !== application.stream || block.lender !== null) return false
    return block.storage === null || (block.storage.uses === null && !block.storage.isExposed)
  }

  shareMemory = (a: Node, b: Node): boolean => this.blockOf(a) === this.blockOf(b)
  usesOf = (node: Node): number => this.readers.get(node) ?? node.uses
  formerOf = (node: Node): Former | null => this.formers.get(node) ?? undoOf(node)

  /** Walks one application. */
  add(application: Application): void {
    const outputs = application.outputs ?? [application]
    const way = wayOf(application)
    if (way === Way.Alias) for (const output of outputs) this.share(output, output.alias as Node)
    else if (way === Way.View) this.view(application)
    else this.work(application, outputs, backendFor(application.stream.device))
    if (way === Way.Alias) for (const { alias } of outputs) this.release(alias as Node)
    // An open trace keeps what it may want.
    if (isKeptForTrace(application)) return
    for (const output of outputs) if (this.isUnread(output)) this.drop(output)
    for (const input of application.inputs) this.release(input)
  }

  private work(application: Application, outputs: readonly Node[], backend: Backend): void {
    const { memory } = backend
    for (const input of application.inputs) this.reach(memory, input)
    if (this.views.length > 0 && this.evaluation !== null)
      for (const view of viewsInTheWay(application, backend, this.evaluation, this.views, this))
        this.straighten(view, memory)
    const plan = planOf(application)
    if (plan === null) {
      const encoder = backend.queue.lower(application)
      outputs.forEach((output, i) => {
        const donor = encoder && donorFor(this, encoder, application, output, i)
        if (donor === null && writesOver(application, backend, encoder, this.evaluation, this))
          this.writeOver(application)
        else this.assign(output, donor)
      })
      return
    }
    for (const input of application.inputs)
      if (isStraightened(this, input, this.isCopy(input, memory))) this.straighten(input, memory)
    const { plan: chosen, copied } = readsAll(this, application.inputs, plan)
      ? { plan, copied: [] }
      : readingOf(this, application, plan)
    let extra = 0
    for (const input of application.inputs)
      if (copied.includes(input)) extra += this.take(memory, input.nbytes)
    outputs.forEach((output, i) => this.assign(output, giftFor(this, application, chosen, i)))
    if (chosen.bytes) extra += this.take(memory, chosen.bytes)
    this.change(memory, -extra)
  }

  /** An update in the memory of its first input, which becomes a former value and reads it. */
  private writeOver(application: Application): void {
    const [old] = application.inputs
    const bytes = bytesBeside(application)
    const before = this.formerOf(old)
    this.take(memoryOf(application), bytes)
    const block = this.blockOf(old) as Block
    this.share(application, old)
    block.shown--
    this.readers.set(application, this.usesOf(application) + 1)
    this.formers.set(application, {
      node: old,
      count: (before?.count ?? 0) + 1,
      bytes: (before?.bytes ?? 0) + bytes,
    })
  }

  /** A view shows its input's memory, or, where it cannot, that of a copy. */
  private view(application: Application): void {
    const [input] = application.inputs
    const layout = viewOf(this, application)
    if (layout !== null) {
      this.share(application, input)
      this.lay(application, layout)
      const block = this.blockOf(input)
      if (block !== null && isWorthParting(block)) this.views.push(application)
      return
    }
    const memory = memoryOf(application)
    this.reach(memory, input)
    this.make(application, memory, input.nbytes, input.stream)
    this.lay(application, viewOfCopy(application) ?? ROW_MAJOR)
  }

  /** Sees to it that a device can read a node: what it does not see is copied there, once. */
  private reach(memory: Memory, node: Node): void {
    const block = this.blockOf(node)
    if (block === null || block.memory === memory || crossingTo(memory, block) !== Crossing.Copied) return
    this.take(memory, block.nbytes)
    block.copies = [...(block.copies ?? []), new Block(memory, block.nbytes, null, 1, null)]
  }

  private isCopy(node: Node, memory: Memory): boolean {
    const block = this.blockOf(node)
    return block !== null && (block.original !== null || block.memory !== memory)
  }

  private straighten(node: Node, memory: Memory): void {
    const before = this.blockOf(node)
    this.make(node, memory, node.nbytes, node.stream)
    this.lay(node, ROW_MAJOR)
    if (before !== null) this.unshow(before)
  }

  private assign(output: Node, donor: Node | null): void {
    if (donor === null) {
      this.make(output, memoryOf(output), output.nbytes, output.stream)
      return
    }
    this.share(output, donor)
    this.lay(output, ROW_MAJOR)
    const block = this.blockOf(output) as Block
    // The group keeps it for the output from here on.
    if (this.isGrouped(donor)) {
      block.shown--
      this.grouped.add(output)
    }
    this.dropCopies(block)
  }

  private share(node: Node, source: Node): void {
    const block = this.blockOf(source)
    if (block === null) return
    block.shown++
    this.blocks.set(node, block)
    this.layouts.set(node, this.layoutOf(source))
  }

  private make(node: Node, memory: Memory, nbytes: number, stream: Stream): void {
    this.take(memory, nbytes)
    this.blocks.set(node, new Block(memory, nbytes, stream, 1, null))
  }

  private lay(node: Node, layout: Layout): void {
    this.layouts.set(node, { offset: offsetIn(layout, node), strides: stridesIn(layout, node) })
  }

  private layoutOf(node: Node): Layout {
    return this.layouts.get(node) ?? (node.storage === null ? ROW_MAJOR : node)
  }

  /** The memory behind a node; null for immediates, which kernels read from their records. */
  private blockOf(node: Node): Block | null {
    const { storage } = node
    const known = this.blocks.get(node) ?? (storage === null ? undefined : this.blocks.get(storage))
    if (known !== undefined || storage === null) return known ?? null
    const block = new Block(storage.memory, storage.nbytes, storage.stream, storage.refs, storage)
    this.blocks.set(storage, block)
    return block
  }

  private isGrouped = (node: Node): boolean =>
    (node.storage !== null && node.anchor !== null) || this.grouped.has(node)
  private isLast = (node: Node): boolean =>
    this.usesOf(node) === 1 && node.handles === 0 && !this.roots.has(node)
  private isUnread = (node: Node): boolean =>
    this.usesOf(node) === 0 && node.handles === 0 && !this.roots.has(node)

  /** One reader less. */
  private release(node: Node): void {
    this.readers.set(node, this.usesOf(node) - 1)
    if (this.isUnread(node)) this.drop(node)
  }

  private drop(node: Node): void {
    const block = this.blockOf(node)
    // The storages of a group of nodes are given back together, later.
    if (block !== null && !this.isGrouped(node)) this.unshow(block)
  }

  private unshow(block: Block): void {
    if (--block.shown > 0) return
    this.change(block.memory, -bytesIn(block.memory, block.nbytes))
    this.dropCopies(block)
  }

  private dropCopies(block: Block): void {
    for (const { memory, nbytes } of block.copies ?? []) this.change(memory, -bytesIn(memory, nbytes))
    block.copies = null
  }

  private take(memory: Memory, nbytes: number): number {
    const bytes = bytesIn(memory, nbytes)
    this.change(memory, bytes)
    return bytes
  }

  private change(memory: Memory, bytes: number): void {
    const now = (this.now.get(memory) ?? 0) + bytes
    this.now.set(memory, now)
    if (bytes > 0) this.most.set(memory, Math.max(this.most.get(memory) ?? now, now))
  }
}

/** The bytes that a block of so many counts for under the limit. */
export const bytesIn = (memory: Memory, nbytes: number): number => memory.blockBytes?.(nbytes) ?? nbytes

/** The most bytes that a schedule needs at once of each memory, on top of what is in use before: at least so many. */
export function leastBytes(
  order: readonly Application[],
  roots: readonly Node[],
  evaluation: Evaluation | null,
): Bytes {
  // Work of several streams may keep one of them busy by the time of an update, which copies then.
  const isOfOneStream = order.every(({ stream }) => stream === order[0].stream)
  const estimate = new Estimate(roots, isOfOneStream ? evaluation : null)
  for (const application of order) estimate.add(application)
  return estimate.most
}
