/**
 * Planning: a simplified and fused graph becomes one recorded series of work. Every intermediate gets its place in one arena ahead
 * of time; places are reused as soon as their last reader has run.
 */
import {
  type Backend,
  contiguousStrides,
  type Donation,
  isContiguous,
  type Layout,
  type Node,
  type Plan,
  Storage,
  sizeOf,
  sourceNode,
} from "@lazuli/core/engine"
import { layOut, type Place } from "./arena"
import { fuse } from "./fuse"
import { inOrder, isLeaf, outputsOf, primitiveOf } from "./order"
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
  nbytes: sizeOf(node.shape) * node.dtype.size,
  lastUse: -1,
  slot,
  place: null,
})

const ROW_MAJOR: Layout = { offset: 0, strides: null }

/** One thing to encode: an application, or a copy that a view or an output needs. */
type Step =
  | { readonly kind: "run"; readonly node: Node }
  | { readonly kind: "copy"; readonly from: Node; readonly to: Node }

/** Plans a program for a backend, with the positions of inputs that callers give up; null where the backend lacks a kernel or cannot record. */
export function makePlan(
  backend: Backend,
  inputs: readonly Node[],
  outputs: readonly Node[],
  donated: ReadonlySet<number>,
): Planned | null {
  if (!backend.record || !backend.encodePlan) return null
  const fusedOutputs = optimize(backend, outputs)
  if (!fusedOutputs) return null
  return new Planner(backend, inputs, fusedOutputs, donated, inOrder(outputs, isLeaf).length).finish()
}

/** The simplified and fused graph; null where the backend lacks a kernel for it. */
export function optimize(backend: Backend, outputs: readonly Node[]): Node[] | null {
  const simplified = simplify(backend, outputs)
  return simplified && fuse(simplified)
}

const isImmediate = (node: Node): boolean => !isLeaf(node) && primitiveOf(node).facts.immediate === true

class Planner {
  private readonly steps: Step[] = []
  private readonly blocks = new Map<Node, Block>()
  private readonly layouts = new Map<Node, Layout>()

  constructor(
    private readonly backend: Backend,
    private readonly inputs: readonly Node[],
    private readonly outputs: readonly Node[],
    private readonly donated: ReadonlySet<number>,
    private readonly applications: number,
  ) {
    inputs.forEach((node, i) => this.place(node, blockFor(node, i), ROW_MAJOR))
  }

  finish(): Planned | null {
    for (const lead of schedule(this.outputs)) if (!this.add(lead)) return null
    const copies = this.bindOutputs()
    this.steps.push(...copies)
    for (let i = 0; i < this.steps.length; i++)
      for (const node of this.touched(this.steps[i])) this.blockOf(node).lastUse = i
    const { arenaBytes, liveBytes } = this.allocate()
    const plan = { ...this.record(arenaBytes), donations: this.donations() }
    const kernels = this.steps.length
    return {
      plan,
      stats: { applications: this.applications, kernels, arenaBytes, liveBytes },
      release: () => this.backend.releasePlan?.(plan),
    }
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
  private add(lead: Node): boolean {
    const primitive = primitiveOf(lead)
    if (primitive.facts.immediate) return true
    for (const input of lead.inputs) {
      if (this.blocks.has(input)) continue
      // What comes from outside the trace was made an input of the program; only immediates are left.
      if (isLeaf(input) || !primitiveOf(input).facts.immediate) return false
      if (!primitive.elementwise) this.run(input)
    }
    if (primitive.rules.view) return this.addView(lead)
    if (!this.backend.supports(lead)) return false
    this.run(lead)
    return true
  }

  private run(lead: Node): void {
    for (const node of outputsOf(lead)) this.fresh(node)
    this.steps.push({ kind: "run", node: lead })
  }

  private addView(node: Node): boolean {
    const [input] = node.inputs
    const view = primitiveOf(node).rules.view as NonNullable<ReturnType<typeof primitiveOf>["rules"]["view"]>
    const { offset, strides } = this.layouts.get(input) as Layout
    const meta = { shape: input.shape, dtype: input.dtype }
    let source = input
    let layout = view(
      { ...meta, offset, strides: strides ?? contiguousStrides(input.shape) },
      node.params,
      node,
    )
    if (!layout) {
      source = this.copyOf(input)
      layout = view({ ...meta, offset: 0, strides: contiguousStrides(input.shape) }, node.params, node)
      if (!layout) return false
    }
    const rowMajor = layout.strides === null || isContiguous(node.shape, layout.strides)
    this.place(node, this.blockOf(source), {
      // A view of nothing may begin past the end of its block.
      offset: sizeOf(node.shape) === 0 ? 0 : layout.offset,
      strides: rowMajor ? null : layout.strides,
    })
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
      if (!this.blocks.has(node)) this.run(node)
      const block = this.blockOf(node)
      const { offset, strides } = this.layouts.get(node) as Layout
      const slot = this.inputs.length + i
      const whole = offset === 0 && strides === null && block.nbytes === sizeOf(node.shape) * node.dtype.size
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
      for (const node of this.touched(step)) {
        const to = this.blockOf(node)
        if (to.slot !== null) continue
        if (to.place !== null) {
          if (to.lastUse === i && !dying.includes(to)) dying.push(to)
          continue
        }
        const heir = this.heir(step, node, dying)
        if (heir) {
          to.place = heir.place as Place
          to.place.to = to.lastUse
          dying.splice(dying.indexOf(heir), 1)
        } else places.push((to.place = { bytes: to.nbytes, from: i, to: to.lastUse, offset: 0 }))
      }
    })
    const { size, peak } = layOut(places)
    return { arenaBytes: size, liveBytes: peak }
  }

  /** The dying input whose place a result may take. */
  private heir(step: Step, output: Node, dying: readonly Block[]): Block | undefined {
    if (step.kind !== "run") return undefined
    const heir = step.node.inputs.find((input) => {
      const from = this.blocks.get(input)
      return from !== undefined && dying.includes(from) && this.overwrites(step, output, input)
    })
    return heir && this.blockOf(heir)
  }

  /** Whether a step may write a result over an input: elementwise, of the same size, read row-major at the same positions. */
  private overwrites(step: Step, output: Node, input: Node): boolean {
    if (step.kind !== "run" || !primitiveOf(step.node).elementwise) return false
    const from = this.blocks.get(input)
    if (!from || from.nbytes !== this.blockOf(output).nbytes) return false
    const { offset, strides } = this.layouts.get(input) as Layout
    // Others that read the same block at other positions in this step would see what was written.
    const alone = step.node.inputs.every((other) => other === input || this.blocks.get(other) !== from)
    return (
      alone &&
      offset === 0 &&
      strides === null &&
      input.dtype.size === output.dtype.size &&
      sizeOf(input.shape) === sizeOf(output.shape)
    )
  }

  /** Which donated inputs' memory may become an output's, where a call finds that nobody else can read the input. */
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
        // What this very step turns into the output comes first: a state and its successor.
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
  private record(arenaBytes: number): Plan {
    const arenaSlot = this.inputs.length + this.outputs.length
    const show = (node: Node): void => {
      const block = this.blocks.get(node)
      if (!block) return
      const layout = this.layouts.get(node) as Layout
      node.storage = new Storage(this.backend, block.slot ?? arenaSlot, block.nbytes)
      node.offset = layout.offset + (block.place?.offset ?? 0) / node.dtype.size
      node.strides = layout.strides
    }
    const hide = (node: Node): void => {
      node.storage = null
      node.offset = 0
      node.strides = null
    }
    const record = this.backend.record as NonNullable<Backend["record"]>
    return record(this.inputs.length, this.outputs.length, arenaBytes, () => {
      for (const step of this.steps) {
        const nodes = this.touched(step)
        nodes.forEach(show)
        if (step.kind === "copy") this.backend.encodeCopy(step.from, step.to)
        else this.backend.encode(step.node)
        nodes.forEach(hide)
      }
    })
  }
}
