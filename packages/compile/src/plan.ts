/**
 * Planning: a simplified and fused graph becomes one recorded series of work. Every intermediate gets its place in one arena ahead
 * of time; places are reused as soon as their last reader has run.
 */
import {
  type Alignment,
  type Application,
  applicationOf,
  type Backend,
  DeviceError,
  type Donation,
  donorOf,
  format,
  isContiguous,
  type Layout,
  LazuliError,
  type Node,
  offsetIn,
  outputsOf,
  overlays,
  type Plan,
  type Plans,
  Storage,
  type Strides,
  sourceNode,
  stridesIn,
  viewOf,
  viewOfCopy,
  type World,
} from "@lazuli/core/engine"
import { layOut, type Place } from "./arena"
import { feeding, finishes, NOT_NEXT, obstacle } from "./finish"
import { fuse } from "./fuse"
import { isImmediate } from "./identities"
import { inOrder, isLeaf, primitiveOf } from "./order"
import { matrixLayout, onRows, type RowGroup, rowGroups } from "./rows"
import { schedule } from "./schedule"
import { simplify } from "./simplify"

/** A plan with what it takes. */
export interface Planned {
  readonly plan: Plan
  readonly stats: {
    readonly applications: number
    readonly kernels: number
    readonly arenaBytes: number
    readonly liveBytes: number
  }
  /** Positions in the schedule of applications that run block by block with their neighbours. */
  readonly byRows: ReadonlySet<number>
  /** The fate of elementwise work that reads a product, by position in the schedule: it runs on the product's pieces, or why not. */
  readonly finishing: ReadonlyMap<number, "joined" | "feeding" | string>
  release(): void
}

/** A block of memory of the program: a place in the arena, an output or an input. Views share the block of what they show. */
interface Block {
  readonly nbytes: number
  /** The last step that reads or writes it; -1 where none does. */
  lastUse: number
  /** Local slot for inputs and outputs; null for the arena. */
  slot: number | null
  /** In the arena: shared with what dies where this begins. */
  place: Place | null
}

const blockFor = (node: Node, slot: number | null): Block => ({
  nbytes: node.nbytes,
  lastUse: -1,
  slot,
  place: null,
})

/** Work looks this many steps back for the product that it reads. */
const FAR = 16
/** Memory that may wait for its end. */
const SMALL = 1 << 16

const ROW_MAJOR: Layout = { offset: 0, strides: null }

/** Thrown where the backend lacks a kernel after all. */
const NO_KERNEL = new Error("no kernel")

/** One thing to encode: an application, or a copy that a view or an output needs. */
type Step =
  | { readonly kind: "run"; readonly node: Application }
  | { readonly kind: "copy"; readonly from: Node; readonly to: Node }

/**
 * Plans a program for a backend, with the positions of inputs that callers give up and, unless all are row-major, how they lie; null where
 * the backend lacks a kernel or cannot record.
 */
export function makePlan(
  backend: Backend,
  inputs: readonly Node[],
  outputs: readonly Node[],
  donated: ReadonlySet<number>,
  strides: readonly (Strides | null)[] | null = null,
): Planned | null {
  if (!backend.plans) return null
  const fusedOutputs = optimize(backend, outputs)
  if (!fusedOutputs) return null
  const applications = inOrder(outputs, isLeaf).length
  return new Planner(backend, inputs, fusedOutputs, donated, applications, strides).finish()
}

/** The simplified and fused graph; null where the backend lacks a kernel for it. */
export function optimize(backend: Backend, outputs: readonly Node[]): Node[] | null {
  const simplified = simplify(backend, outputs)
  return simplified && fuse(simplified)
}

/** It keeps nothing of the program alive. */
const releaserOf =
  ({ plans }: Backend, plan: Plan) =>
  (): void =>
    plans?.release?.(plan)

const isElementwise = (application: Application): boolean => application.primitive.elementwise

/** Lays out the memory within a plan, which is the world of its assignment. */
class Planner implements World {
  private readonly steps: Step[] = []
  private readonly blocks = new Map<Node, Block>()
  private readonly layouts = new Map<Node, Layout>()
  /** Positions in the schedule of what runs by blocks of rows, and how many of its steps repeat others on other rows. */
  private readonly byRows = new Set<number>()
  private repeated = 0
  /** Steps whose work runs on the pieces of the step before, and what that one reads. */
  private readonly joined = new Map<Step, ReadonlySet<Block>>()
  /** Steps whose work runs on the pieces that the next step reads. */
  private readonly feeding = new Set<Step>()
  private readonly finishing = new Map<number, string>()
  private positions: ReadonlyMap<Node, number> = new Map()
  /** While places are given: the step, and the blocks that end with it. */
  private step: Step | null = null
  private dying: readonly Block[] = []

  constructor(
    private readonly backend: Backend,
    private readonly inputs: readonly Node[],
    private readonly outputs: readonly Node[],
    private readonly donated: ReadonlySet<number>,
    private readonly applications: number,
    strides: readonly (Strides | null)[] | null,
  ) {
    inputs.forEach((node, i) =>
      this.place(node, blockFor(node, i), { offset: 0, strides: strides?.[i] ?? null }),
    )
  }

  finish(): Planned | null {
    if (!this.addAll(schedule(this.outputs))) return null
    const copies = this.bindOutputs()
    this.steps.push(...copies)
    this.noteUses()
    if (this.delayProducts()) this.noteUses()
    this.join()
    this.feed()
    const { arenaBytes, liveBytes } = this.allocate()
    const alignments = this.alignments()
    const recorded = this.record(arenaBytes)
    if (!recorded) return null
    const plan = {
      ...recorded,
      bytes: arenaBytes,
      donations: this.donations(),
      ...(alignments.length > 0 && { alignments }),
    }
    const kernels = this.steps.length - this.repeated - this.joined.size - this.feeding.size
    return {
      plan,
      stats: { applications: this.applications, kernels, arenaBytes, liveBytes },
      byRows: this.byRows,
      finishing: this.finishing,
      release: releaserOf(this.backend, plan),
    }
  }

  /** Adds everything; what works by rows together with its neighbours, block by block. */
  private addAll(order: readonly Application[]): boolean {
    const readers = new Map<Node, Set<Node | null>>()
    const note = (node: Node, reader: Node | null): void => {
      readers.set(node, (readers.get(node) ?? new Set()).add(reader))
    }
    for (const application of order) for (const input of application.inputs) note(input, application)
    for (const node of this.outputs) note(node, null)
    const none: ReadonlySet<Node | null> = new Set()
    const groups = this.backend.plans?.whole ? [] : rowGroups(order, (node) => readers.get(node) ?? none)
    const groupOf = new Map(
      groups.flatMap((group) => group.members.map(({ application }) => [application, group] as const)),
    )
    const place = new Map(order.map((application, i) => [application, i]))
    this.positions = place
    for (let i = 0; i < order.length; i++) {
      const group = groupOf.get(order[i])
      if (!group) {
        if (!this.add(order[i])) return false
        continue
      }
      const end = place.get(group.members[group.members.length - 1].application) as number
      const span = order.slice(i, end + 1).filter((application) => groupOf.get(application) !== group)
      // Views of what the group reads come before it, views of what it makes after it.
      const made = new Set(group.members.flatMap(({ application }) => outputsOf(application)))
      const after: Application[] = []
      for (const application of span) {
        if (application.inputs.some((input) => made.has(input))) {
          after.push(application)
          for (const node of outputsOf(application)) made.add(node)
        } else if (!this.add(application)) return false
      }
      if (this.addRows(group)) for (let k = i; k <= end; k++) groupOf.has(order[k]) && this.byRows.add(k)
      else for (const { application } of group.members) if (!this.add(application)) return false
      for (const application of after) if (!this.add(application)) return false
      i = end
    }
    return true
  }

  /** Adds a group block by block; false, having done nothing, where its inputs do not lie by rows. */
  private addRows(group: RowGroup): boolean {
    const { members, rows, rowsPerBlock, inner } = group
    const made = new Set(members.flatMap(({ application }) => outputsOf(application)))
    for (const { application, roles } of members) {
      if (this.backend.queue.lower(application) === null) return false
      for (const [i, input] of application.inputs.entries()) {
        if (made.has(input) || isImmediate(input)) continue
        const layout = this.layouts.get(input)
        if (!layout || (roles[i] === "rows" && !matrixLayout(input, layout))) return false
      }
    }
    for (const node of made) if (!inner.has(node)) this.fresh(node)
    for (let at = 0; at < rows; at += rowsPerBlock) {
      const count = Math.min(rowsPerBlock, rows - at)
      const images = new Map<Node, Node>()
      for (const member of members) {
        const { application, roles } = member
        const inputs = application.inputs.map((input, i) => {
          if (isImmediate(input)) return input
          return (
            images.get(input) ??
            (roles[i] === "rows" ? this.slice(input, at, count) : this.row(application, input))
          )
        })
        const results = onRows(member, inputs, count)
        outputsOf(application).forEach((node, i) => {
          if (inner.has(node)) this.fresh(results[i])
          else this.place(results[i], this.blockOf(node), this.layoutOf(node, at, results[i]))
          images.set(node, results[i])
        })
        this.steps.push({ kind: "run", node: applicationOf(results[0]) })
        if (at > 0) this.repeated++
      }
    }
    return true
  }

  /** Some rows of a node that is in memory. */
  private slice(node: Node, at: number, count: number): Node {
    const rows = sourceNode([count, node.shape[node.shape.length - 1]], node.dtype, null)
    this.place(rows, this.blockOf(node), this.layoutOf(node, at, rows))
    return rows
  }
  private layoutOf(node: Node, at: number, rows: Node): Layout {
    const { offset, strides } = matrixLayout(node, this.layouts.get(node) as Layout) as Layout
    const steps = strides as readonly number[]
    return { offset: offset + at * steps[0], strides: isContiguous(rows.shape, steps) ? null : steps }
  }

  /** The node that serves all rows, without the leading axes of size 1 that a matrix does not have. */
  private row(application: Application, node: Node): Node {
    if (!application.primitive.elementwise || node.shape.length <= 1) return node
    const last = node.shape.length - 1
    const row = sourceNode([node.shape[last]], node.dtype, null)
    const { offset, strides } = this.layouts.get(node) as Layout
    const step = strides ? strides[last] : 1
    this.place(row, this.blockOf(node), { offset, strides: step === 1 ? null : [step] })
    return row
  }

  private noteUses(): void {
    for (let i = 0; i < this.steps.length; i++)
      for (const node of this.touched(this.steps[i])) this.blockOf(node).lastUse = i
  }

  /** Moves products next to the first elementwise work that reads them, where that keeps nothing large from ending. */
  private delayProducts(): boolean {
    const { steps } = this
    let moved = false
    for (let i = 2; i < steps.length; i++) {
      const work = steps[i]
      if (work.kind !== "run" || !primitiveOf(work.node).elementwise) continue
      const read = new Set(work.node.inputs.map((input) => this.blocks.get(input)))
      for (let k = i - 1; k >= Math.max(0, i - FAR); k--) {
        const step = steps[k]
        if (step.kind === "run" && finishes(this.backend, step.node) && read.has(this.blockOf(step.node))) {
          if (k < i - 1 && this.mayWait(k, i)) {
            steps.splice(i - 1, 0, ...steps.splice(k, 1))
            moved = true
          }
          break
        }
      }
    }
    return moved
  }

  /** True if a product may run just before step `to`: nothing before that reads it, and memory in use does not grow much. */
  private mayWait(from: number, to: number): boolean {
    const { node } = this.steps[from] as { node: Application }
    const made = this.blockOf(node)
    const between = this.steps.slice(from + 1, to)
    if (between.some((step) => this.touched(step).some((each) => this.blockOf(each) === made))) return false
    let ending = 0
    for (const block of new Set(node.inputs.flatMap((input) => this.blocks.get(input) ?? [])))
      if (block.lastUse < to && block.slot === null) ending += block.nbytes
    return ending <= made.nbytes || ending <= SMALL
  }

  /**
   * Finds elementwise work that runs on the pieces of the product before it. What the product reads is then in use as long as the work is.
   */
  private join(): void {
    const products = new Map<Block, Application>()
    this.steps.forEach((step, i) => {
      if (step.kind !== "run") return
      const { node } = step
      if (!primitiveOf(node).elementwise) {
        if (finishes(this.backend, node)) products.set(this.blockOf(node), node)
        return
      }
      const before = this.steps[i - 1]
      const read = node.inputs.flatMap((input) => products.get(this.blocks.get(input) as Block) ?? [])
      const position = this.positions.get(node)
      if (read.length === 0 || position === undefined) return
      const product = before?.kind === "run" && read.includes(before.node) ? before.node : null
      if (!product) {
        this.finishing.set(position, NOT_NEXT)
        return
      }
      const block = this.blockOf(product)
      const reason = obstacle(product, node, (input) =>
        this.blocks.get(input) === block ? (this.layouts.get(input) as Layout) : null,
      )
      this.finishing.set(position, reason ?? "joined")
      if (reason !== null) return
      const inputs = product.inputs.flatMap((input) => this.blocks.get(input) ?? [])
      for (const input of inputs) input.lastUse = Math.max(input.lastUse, i)
      this.joined.set(step, new Set(inputs))
      this.computeInPlace(product, node, i)
    })
  }

  /** Finds elementwise work for the reduction after it alone. What the work reads is then in use as long as the reduction is. */
  private feed(): void {
    this.steps.forEach((step, i) => {
      const next = this.steps[i + 1]
      if (step.kind !== "run" || next?.kind !== "run" || !primitiveOf(step.node).elementwise) return
      const { node } = step
      const position = this.positions.get(node)
      if (this.joined.has(step) || position === undefined || this.blocks.get(node)?.slot !== null) return
      if (this.blockOf(node).lastUse !== i + 1) return
      const fed = feeding(this.backend, node, next.node)
      if (fed !== null) this.finishing.set(position, fed)
      if (fed !== "feeding") return
      for (const input of node.inputs) {
        const block = this.blocks.get(input)
        if (block && !isImmediate(input)) block.lastUse = Math.max(block.lastUse, i + 1)
      }
      this.feeding.add(step)
    })
  }

  /**
   * Computes a product that ends with work which makes an output in that output's memory, unless a donated input is to become the output.
   */
  private computeInPlace(product: Application, work: Application, step: number): void {
    const from = this.blockOf(product)
    if (from.slot !== null || from.lastUse !== step) return
    const given = work.inputs.some((input) => {
      const slot = this.blocks.get(input)?.slot ?? null
      return slot !== null && this.donated.has(slot)
    })
    const output = outputsOf(work).find((node) => {
      const { slot, nbytes } = this.blockOf(node)
      return slot !== null && nbytes === from.nbytes && node.dtype.size === product.dtype.size
    })
    if (given || !output) return
    const to = this.blockOf(output)
    for (const [node, block] of this.blocks) if (block === from) this.blocks.set(node, to)
  }

  private place(node: Node, block: Block, layout: Layout): void {
    this.blocks.set(node, block)
    this.layouts.set(node, layout)
  }
  private fresh(node: Node): void {
    this.place(node, blockFor(node, null), ROW_MAJOR)
  }
  private blockOf(node: Node): Block {
    return this.blocks.get(node) as Block
  }

  /** Adds an application: a view moves nothing, a constant that a kernel reads is written first. */
  private add(application: Application): boolean {
    const primitive = application.primitive
    if (primitive.facts.immediate) return true
    for (const input of application.inputs) {
      if (this.blocks.has(input)) continue
      // Nodes from outside the trace were made inputs of the program; only immediates are left.
      if (isLeaf(input) || !primitiveOf(input).facts.immediate) return false
      if (!primitive.elementwise) this.run(applicationOf(input))
    }
    if (primitive.rules.view) return this.addView(application)
    if (this.backend.queue.lower(application) === null) return false
    this.run(application)
    return true
  }

  private run(application: Application): void {
    for (const node of outputsOf(application)) this.fresh(node)
    this.steps.push({ kind: "run", node: application })
  }

  private addView(node: Application): boolean {
    let [source] = node.inputs
    let layout = viewOf(this, node)
    if (layout === null) {
      layout = viewOfCopy(node)
      if (layout === null) return false
      source = this.copyOf(source)
    }
    const [offset, strides] = [offsetIn(layout, node), stridesIn(layout, node)]
    this.place(node, this.blockOf(source), { offset, strides })
    return true
  }

  private copyOf(node: Node): Node {
    const copy = sourceNode(node.shape, node.dtype, null)
    this.fresh(copy)
    this.steps.push({ kind: "copy", from: node, to: copy })
    return copy
  }

  /** Gives each output its own memory: the block it is computed in, or a copy where that block is shared or not its own. */
  private bindOutputs(): Step[] {
    const copies: Step[] = []
    const taken = new Set<Block>()
    this.outputs.forEach((node, i) => {
      if (!this.blocks.has(node)) this.run(applicationOf(node))
      const block = this.blockOf(node)
      const { offset, strides } = this.layouts.get(node) as Layout
      const slot = this.inputs.length + i
      const whole = offset === 0 && strides === null && block.nbytes === node.nbytes
      if (whole && block.slot === null && !taken.has(block)) {
        block.slot = slot
        taken.add(block)
        return
      }
      const target = sourceNode(node.shape, node.dtype, null)
      this.place(target, blockFor(target, slot), ROW_MAJOR)
      copies.push({ kind: "copy", from: node, to: target })
    })
    return copies
  }

  /** Walks the steps, giving places in the arena and taking them back. */
  private allocate(): { arenaBytes: number; liveBytes: number } {
    const places: Place[] = []
    this.steps.forEach((step, i) => {
      const dying: Block[] = []
      this.dying = dying
      this.step = step
      for (const node of this.touched(step)) {
        const to = this.blockOf(node)
        if (to.slot !== null) continue
        if (to.place !== null) {
          if (to.lastUse === i && !dying.includes(to)) dying.push(to)
          continue
        }
        const donor = step.kind === "run" && isElementwise(step.node) ? donorOf(this, step.node, node) : null
        if (donor !== null) {
          const from = this.blockOf(donor)
          to.place = from.place as Place
          to.place.to = to.lastUse
          dying.splice(dying.indexOf(from), 1)
        } else places.push((to.place = { bytes: to.nbytes, from: i, to: to.lastUse, offset: 0 }))
      }
    })
    const { size, peak } = layOut(places)
    return { arenaBytes: size, liveBytes: peak }
  }

  offsetOf = (node: Node): number => (this.layouts.get(node) as Layout).offset
  stridesOf = (node: Node): Strides | null => (this.layouts.get(node) as Layout).strides
  bytesOf = (node: Node): number => this.blockOf(node).nbytes
  isSpent(input: Node): boolean {
    const block = this.blocks.get(input)
    return block !== undefined && this.dying.includes(block) && this.isReadAlone(this.step as Step, input)
  }

  /** True if others that a step reads at other positions would not see what it writes over an input. */
  private isReadAlone(step: Step, input: Node): boolean {
    if (step.kind !== "run") return false
    const block = this.blocks.get(input) as Block
    if (this.joined.get(step)?.has(block)) return false
    return step.node.inputs.every((other) => other === input || this.blocks.get(other) !== block)
  }

  /** True if a step may write an output over an input. */
  private overwrites(step: Step, output: Node, input: Node): boolean {
    if (step.kind !== "run" || !isElementwise(step.node)) return false
    return this.isReadAlone(step, input) && overlays(this, output, input)
  }

  /** Inputs that a view inside reads as wider elements. */
  private alignments(): Alignment[] {
    const least = this.backend.plans?.alignment ?? 1
    const widest = this.inputs.map(({ dtype }) => Math.max(dtype.size, least))
    for (const step of this.steps)
      for (const node of this.touched(step)) {
        const { slot } = this.blockOf(node)
        if (slot !== null && slot < widest.length) widest[slot] = Math.max(widest[slot], node.dtype.size)
      }
    return widest.flatMap((bytes, input) => (bytes > this.inputs[input].dtype.size ? { input, bytes } : []))
  }

  /** The donated inputs whose memory may become an output's, where a call finds that nobody else can read the input. */
  private donations(): Donation[] {
    const pairs: Donation[] = []
    const free = new Map<number, Node[]>()
    for (const i of this.donated) {
      const node = this.inputs[i]
      const { nbytes } = this.blockOf(node)
      if (nbytes > 0) free.set(nbytes, [...(free.get(nbytes) ?? []), node])
    }
    const met = new Set<Block>()
    this.steps.forEach((step, i) => {
      for (const node of this.touched(step)) {
        const to = this.blockOf(node)
        if (met.has(to)) continue
        met.add(to)
        if (to.slot === null || to.slot < this.inputs.length) continue
        const candidates = free.get(to.nbytes) ?? []
        const read = step.kind === "run" ? step.node.inputs : []
        // An input that this very step turns into the output comes first: a state and its successor.
        const given =
          candidates.find(
            (input) =>
              this.blockOf(input).lastUse === i &&
              read.some((n) => this.blocks.get(n) === this.blockOf(input) && this.overwrites(step, node, n)),
          ) ?? candidates.find((input) => this.blockOf(input).lastUse < i)
        if (!given) continue
        candidates.splice(candidates.indexOf(given), 1)
        pairs.push({ input: this.blockOf(given).slot as number, output: to.slot - this.inputs.length })
      }
    })
    return pairs
  }

  /**
   * The placed nodes that a step reads, then those it writes. An immediate has a place only for kernels; elementwise work has it in its
   * record, and may come before the step that writes it.
   */
  private touched(step: Step): readonly Node[] {
    if (step.kind === "copy") return [step.from, step.to]
    const { inputs } = step.node
    const { elementwise } = primitiveOf(step.node)
    const placed = inputs.filter((n) => this.blocks.has(n) && !(elementwise && isImmediate(n)))
    return [...placed, ...outputsOf(step.node)]
  }

  /** Encodes the steps with local slots. */
  private record(arenaBytes: number): Plan | null {
    const arenaSlot = this.inputs.length + this.outputs.length
    const { memory, queue } = this.backend
    const plans = this.backend.plans as Plans
    const places = [...new Set([...this.blocks.values()].flatMap(({ place }) => place ?? []))]
    const slots = new Map(plans.whole ? places.map((place, i) => [place, arenaSlot + i]) : [])
    const show = (node: Node): void => {
      const block = this.blocks.get(node)
      if (!block) return
      const { slot, place, nbytes } = block
      const layout = this.layouts.get(node) as Layout
      const own = place === null ? undefined : slots.get(place)
      node.storage = new Storage(memory, slot ?? own ?? arenaSlot, nbytes)
      node.offset = layout.offset + (own === undefined && place !== null ? place.offset / node.dtype.size : 0)
      node.strides = layout.strides
    }
    const hide = (node: Node): void => {
      node.storage = null
      node.offset = 0
      node.strides = null
    }
    const encodeStep = (step: Step): void => {
      if (step.kind === "copy") {
        queue.encodeCopy(step.from, step.to)
        return
      }
      if (this.feeding.has(step)) plans.encodePrologue?.(step.node)
      else if (this.joined.has(step)) plans.encodeEpilogue?.(step.node)
      else {
        // A kernel may want to know where its operands lie, which was not known before.
        const encoder = queue.lower(step.node)
        if (encoder === null) throw NO_KERNEL
        encoder.encode(step.node)
      }
    }
    const encode = (): void => {
      for (const step of this.steps) {
        const nodes = this.touched(step)
        nodes.forEach(show)
        try {
          encodeStep(step)
        } finally {
          nodes.forEach(hide)
        }
      }
    }
    try {
      const offsets = places.map(({ offset }) => offset)
      return plans.record(this.inputs.length, this.outputs.length, arenaBytes, encode, offsets)
    } catch (cause) {
      if (cause === NO_KERNEL) return null
      throw cause instanceof LazuliError ? cause : this.refused(cause as Error)
    }
  }

  /** The backend's refusal, under the name of the operation with the largest result, which is what it cannot hold. */
  private refused(cause: Error): DeviceError {
    const made = this.steps.flatMap((step) =>
      step.kind === "copy"
        ? [{ node: step.to, of: step.from }]
        : outputsOf(step.node).map((node) => ({ node, of: step.node })),
    )
    const [largest, ...others] = made
    if (largest === undefined) return new DeviceError("compile", cause.message, { cause })
    const { node, of } = others.reduce((a, b) => (b.node.nbytes > a.node.nbytes ? b : a), largest)
    return new DeviceError(
      of.primitive?.name ?? "compile",
      `the ${this.backend.name} backend cannot run a compiled function whose result of shape ${format(node.shape)} takes ${node.nbytes} bytes: ${cause.message}`,
      { cause },
    )
  }
}
