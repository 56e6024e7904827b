/**
 * The memory of a plan: which blocks of the arena share bytes, which results are computed over an input, and what of the inputs' memory a
 * call may take over. It is the world of the plan's buffer assignment.
 */
import {
  type Alignment,
  type Application,
  type Donation,
  donorFor,
  type Encoder,
  type Node,
  outputsOf,
  overlays,
  type Strides,
  type World,
} from "@lazuli/core/engine"
import { ALIGNMENT, type Allocation, layOut } from "./arena"
import { primitiveOf } from "./order"
import { applicationsOf, type Block, type PlanSteps, type Step } from "./plan-steps"

type Run = Extract<Step, { kind: "run" }>

const NONE: readonly number[] = []
const isElementwise = (node: Node): boolean => primitiveOf(node).elementwise

export class PlanMemory implements World {
  private readonly inputs: readonly Node[]
  /** While memory is given: the step, and the blocks that end with it. */
  private step: Step | null = null
  private dying: readonly Block[] = []
  /** Blocks that are computed where they lie in another one, so many bytes from its beginning. */
  private readonly parts = new Map<Block, { readonly whole: Block; readonly at: number }>()

  /**
   * `epilogues` says what the step before each of them reads; `donated` are the positions of inputs that callers give up, `successors` by
   * output those that the outputs take the place of.
   */
  constructor(
    private readonly steps: PlanSteps,
    private readonly epilogues: ReadonlyMap<Step, ReadonlySet<Block>>,
    private readonly donated: ReadonlySet<number>,
    private readonly successors: ReadonlyMap<number, number>,
  ) {
    this.inputs = steps.inputs
  }

  offsetOf = (node: Node): number => this.steps.offsetOf(node)
  stridesOf = (node: Node): Strides | null => this.steps.stridesOf(node)
  bytesOf = (node: Node): number => this.steps.blockOf(node).nbytes

  /**
   * Puts arrays that are updated on the way to an output where the output lies: the updates then write what they change, and nothing is
   * copied there at the end.
   */
  private moveToOutputs(): void {
    const { list } = this.steps
    for (let i = list.length - 1; i >= 0; i--) {
      const step = list[i]
      if (step.kind !== "run" || isElementwise(step.node)) continue
      for (const output of outputsOf(step.node)) {
        const to = this.steps.blockOf(output)
        if (to.binding === null || to.binding < this.inputs.length) continue
        const from = this.updatedBy(step.node, output)
          .filter((input) => this.overwrites(step, output, input))
          .map((input) => this.steps.blockOf(input))
          .find((block) => block.binding === null && block.lastUse === i)
        if (from) this.steps.move(from, to)
      }
    }
  }

  /** Finds what is computed for one step that puts it together with more: nothing is then copied there. */
  private findParts(): void {
    this.steps.list.forEach((step, i) => {
      if (step.kind !== "run" || step.node.outputs !== null) return
      const whole = this.steps.blockOf(step.node)
      const starts = this.steps.backend.queue.lower(step.node)?.partsAt?.(step.node)
      if (whole.binding !== null || !starts) return
      step.node.inputs.forEach((input, k) => {
        const block = this.steps.blockAt(input)
        if (!block || block.binding !== null || block.lastUse !== i || this.parts.has(block)) return
        if (this.stridesOf(input) !== null || block.nbytes !== input.nbytes) return
        if (starts[k] % ALIGNMENT === 0) this.parts.set(block, { whole, at: starts[k] })
      })
    })
  }

  /** The input whose memory a step's output takes; null where it gets its own. */
  private donorIn(step: Step, output: Node): Node | null {
    const encoder = this.encoderOf(step)
    return encoder && donorFor(this, encoder, (step as Run).node, output, output.index)
  }

  /** The encoder of a step that is one application. */
  private encoderOf(step: Step): Encoder | null {
    return step.kind === "run" ? this.steps.backend.queue.lower(step.node) : null
  }

  /** Gives memory in the arena, so that copies are spared unless that takes more of it. */
  allocate(): { arenaBytes: number; liveBytes: number } {
    this.moveToOutputs()
    const apart = this.place()
    this.findParts()
    if (this.parts.size === 0) return apart
    const together = this.place()
    if (together.arenaBytes <= apart.arenaBytes) return together
    this.parts.clear()
    return this.place()
  }

  /** Walks the steps, giving memory and taking it back. */
  private place(): { arenaBytes: number; liveBytes: number } {
    const { list } = this.steps
    for (const step of list)
      for (const node of this.steps.touched(step)) this.steps.blockOf(node).allocation = null
    const allocations: Allocation[] = []
    const within: { readonly part: Allocation; readonly whole: Allocation; readonly at: number }[] = []
    const allocate = (block: Block, from: number): Allocation => {
      if (block.allocation !== null) return block.allocation
      const own = (block.allocation = { bytes: block.nbytes, from, to: block.lastUse, offset: 0 })
      const part = this.parts.get(block)
      if (part) within.push({ part: own, whole: allocate(part.whole, from), at: part.at })
      else allocations.push(own)
      return own
    }
    list.forEach((step, i) => {
      const dying: Block[] = []
      this.dying = dying
      this.step = step
      for (const node of this.steps.touched(step)) {
        const to = this.steps.blockOf(node)
        if (to.binding !== null) continue
        if (to.allocation !== null) {
          if (to.lastUse === i && !dying.includes(to)) dying.push(to)
          continue
        }
        const donor = this.parts.has(to) ? null : this.donorIn(step, node)
        if (donor !== null) {
          const from = this.steps.blockOf(donor)
          to.allocation = from.allocation as Allocation
          to.allocation.to = to.lastUse
          dying.splice(dying.indexOf(from), 1)
        } else allocate(to, i)
      }
    })
    const { size, peak } = layOut(allocations)
    // Blocks come after those that they lie in.
    for (const { part, whole, at } of within) part.offset = whole.offset + at
    return { arenaBytes: size, liveBytes: peak }
  }

  isSpent(input: Node): boolean {
    const block = this.steps.blockAt(input)
    return block !== undefined && this.dying.includes(block) && this.isReadAlone(this.step as Step, input)
  }

  /** True if others that a step reads at other positions would not see what it writes over an input of one of its applications. */
  private isReadAlone(step: Step, input: Node, writer?: Application): boolean {
    if (step.kind === "copy") return false
    const block = this.steps.blockAt(input) as Block
    if (this.epilogues.get(step)?.has(block)) return false
    // Elementwise work may read it twice: at the same positions.
    const isSame = (each: Application, other: Node, i: number): boolean =>
      (step.kind === "run" || each === writer) &&
      other === input &&
      (isElementwise(each) || each.inputs.indexOf(input) === i)
    return applicationsOf(step).every((each) =>
      each.inputs.every((other, i) => isSame(each, other, i) || this.steps.blockAt(other) !== block),
    )
  }

  /** True if a step may write an output over an input. */
  private overwrites(step: Step, output: Node, input: Node): boolean {
    if (step.kind === "copy" || !overlays(this, output, input)) return false
    const writer = applicationsOf(step).find((each) => outputsOf(each).includes(output))
    if (!writer || (step.kind === "group" && isElementwise(writer))) return false
    if (!isElementwise(writer) && !this.updatedBy(writer, output).includes(input)) return false
    return this.isReadAlone(step, input, writer)
  }

  /** The inputs that a step's kernel can write an output over, other than an elementwise one's. */
  private updatedBy(writer: Application, output: Node): Node[] {
    const over = this.steps.backend.queue.lower(writer)?.overwrites?.(writer, output.index) ?? NONE
    return over.map((i) => writer.inputs[i])
  }

  /** Inputs that a view inside reads as wider elements. */
  alignments(): Alignment[] {
    const least = this.steps.backend.plans?.alignment ?? 1
    const widest = this.inputs.map(({ dtype }) => Math.max(dtype.size, least))
    for (const step of this.steps.list)
      for (const node of this.steps.touched(step)) {
        const { binding } = this.steps.blockOf(node)
        if (binding !== null && binding < widest.length)
          widest[binding] = Math.max(widest[binding], node.dtype.size)
      }
    return widest.flatMap((bytes, input) => (bytes > this.inputs[input].dtype.size ? { input, bytes } : []))
  }

  /**
   * The donated inputs whose memory may become an output's, where a call finds that nobody else can read the input. A state's successor
   * gets the state's own where it can: a loop then finds everything where it was.
   */
  donations(): Donation[] {
    const pairs: Donation[] = []
    if (this.donated.size === 0) return pairs
    const free = new Map<number, Node[]>()
    for (const i of this.donated) {
      const node = this.inputs[i]
      const { nbytes } = this.steps.blockOf(node)
      if (nbytes > 0) free.set(nbytes, [...(free.get(nbytes) ?? []), node])
    }
    /** Inputs whose successors have not been met. */
    const reserved = new Set([...this.successors.values()].map((i) => this.inputs[i]))
    const met = new Set<Block>()
    this.steps.list.forEach((step, i) => {
      for (const node of this.steps.touched(step)) {
        const to = this.steps.blockOf(node)
        if (met.has(to)) continue
        met.add(to)
        if (to.binding === null || to.binding < this.inputs.length) continue
        const output = to.binding - this.inputs.length
        const own = this.inputs[this.successors.get(output) ?? -1]
        const all = free.get(to.nbytes) ?? []
        const read = step.kind === "copy" ? [] : applicationsOf(step).flatMap(({ inputs }) => inputs)
        /** The step itself turns the input into the output, or reads it no more. */
        const becomes = (input: Node): boolean =>
          this.steps.blockOf(input).lastUse === i &&
          read.some(
            (n) => this.steps.blockAt(n) === this.steps.blockOf(input) && this.overwrites(step, node, n),
          )
        const isOver = (input: Node): boolean => this.steps.blockOf(input).lastUse < i
        if (own) reserved.delete(own)
        const others = all.filter((input) => !reserved.has(input))
        const given =
          others.find((input) => input === own && (becomes(input) || isOver(input))) ??
          others.find(becomes) ??
          others.find(isOver)
        if (!given) continue
        all.splice(all.indexOf(given), 1)
        pairs.push({ input: this.steps.blockOf(given).binding as number, output })
      }
    })
    return pairs
  }
}
