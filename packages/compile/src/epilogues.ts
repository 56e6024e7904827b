/**
 * Epilogues and prologues: elementwise work on each piece of a kernel's result as that is made, or of what a kernel reads just before it
 * does. That a kernel can do so is the backend's to say; here is which work fits which kernel, and which steps of a plan become such work.
 */
import {
  type Application,
  type Backend,
  type Layout,
  type Node,
  outputsOf,
  sizeOf,
} from "@lazuli/core/engine"
import { isImmediate } from "./identities"
import { primitiveOf } from "./order"
import { type Block, FAR, type PlanSteps, SMALL, type Step } from "./plan-steps"

/** Shorter rows are no work by themselves. */
const SHORT_ROW = 64
/** Operands that lie elsewhere may take this much in any case: they are in a cache. */
const LIGHT = 1 << 19

/** Why work does not run on the pieces of a kernel's result. */
const NOT_NEXT = "not on the pieces of a product: other work runs between them"
const NOT_WHOLE = "not on the pieces of a product: it does not read the product in its own layout"
const NOT_LIGHT =
  "not on the pieces of a product: it reads more memory elsewhere than of the product, which one long pass does better"
const NOT_BY_ROWS = "not on the pieces of a product: its operands are not laid out by the product's rows"

/** Fewer elements between elementwise work and a reduction stay in a cache, and reductions of fewer are not cut into pieces. */
const MIN_PROLOGUE = 1 << 18
/** Of longer rows, pieces that stay in a cache are parts, between which memory is read with jumps. */
const MAX_PROLOGUE_ROW = 1024
const NOT_SHORT =
  "not in pieces for the reduction after it: rows are long, and one long pass over memory is quicker"

/**
 * Tells if a reduction over all axes, or over the first ones, computes what it reduces piece by piece, or why not; null for other work.
 * Along the last axis both run by blocks of rows (see rows.ts).
 */
function prologueOf(backend: Backend, work: Node, reduction: Node): string | null {
  if (
    reduction.inputs[0] !== work ||
    work.outputs !== null ||
    backend.plans?.takesPrologue?.(reduction) !== true
  )
    return null
  if (sizeOf(work.shape) < MIN_PROLOGUE) return null
  const axes = new Set(reduction.params.axes as readonly number[])
  let kept = 1
  for (const [axis, length] of work.shape.entries()) {
    if (!axes.has(axis)) kept *= length
    else if (kept > 1 && length > 1) return null
  }
  return kept <= MAX_PROLOGUE_ROW ? "prologue" : NOT_SHORT
}

/** True if a kernel takes elementwise work behind it. */
const takesEpilogue = (backend: Backend, application: Application): boolean =>
  !application.primitive.elementwise &&
  outputsOf(application).length === 1 &&
  backend.plans?.takesEpilogue?.(application) === true

/**
 * Why elementwise work does not run on the pieces of a product; null where it does: it reads it as it lies, and everything else by the same
 * rows. `layoutOf` gives how an input lies in the product's memory, null for one in other memory.
 */
function obstacle(product: Node, work: Node, layoutOf: (input: Node) => Layout | null): string | null {
  const size = sizeOf(product.shape)
  if (size <= 1 || sizeOf(work.shape) !== size) return NOT_WHOLE
  // One of the results may take the product's memory.
  let elsewhere = 0
  for (const output of outputsOf(work).slice(1)) elsewhere += size * output.dtype.size
  for (const input of work.inputs) {
    const layout = layoutOf(input)
    if (!layout) {
      if (!isImmediate(input) && sizeOf(input.shape) === size) elsewhere += size * input.dtype.size
    } else if (layout.offset !== 0 || layout.strides !== null || input.dtype !== product.dtype)
      return NOT_WHOLE
    else if (sizeOf(input.shape) !== size) return NOT_WHOLE
  }
  if (elsewhere > Math.max(2 * size * product.dtype.size, LIGHT)) return NOT_LIGHT
  const columns = product.shape[product.shape.length - 1]
  const whole = work.inputs.every(
    (input) => isImmediate(input) || sizeOf(input.shape) === 1 || sizeOf(input.shape) === size,
  )
  return whole || (columns >= SHORT_ROW && work.shape[work.shape.length - 1] === columns) ? null : NOT_BY_ROWS
}

/** The fate of elementwise work beside a kernel: what it became, or why it did not become an epilogue or a prologue. */
export type Fate = "epilogue" | "prologue" | string

/** Those among a plan's steps. */
export class Epilogues {
  /** Steps whose work runs on the pieces of the step before, and what that one reads. */
  readonly epilogues = new Map<Step, ReadonlySet<Block>>()
  /** Steps whose work runs on the pieces that the next step reads. */
  readonly prologues = new Set<Step>()
  /** By position in the plan's order. */
  readonly fates = new Map<number, Fate>()

  /** `donated` are the positions of inputs that callers give up; steps with `companions` stay beside them. */
  constructor(
    private readonly steps: PlanSteps,
    private readonly companions: ReadonlySet<Step>,
    private readonly donated: ReadonlySet<number>,
  ) {}

  /** Finds them. The steps know their uses; products may move, and what they read is in use for longer. */
  find(): void {
    if (this.delayProducts()) this.steps.noteUses()
    this.findEpilogues()
    this.findPrologues()
  }

  /** Moves products next to the first elementwise work that reads them, where that keeps nothing large from ending. */
  private delayProducts(): boolean {
    const steps = this.steps.list
    let moved = false
    for (let i = 2; i < steps.length; i++) {
      const work = steps[i]
      if (work.kind !== "run" || !primitiveOf(work.node).elementwise) continue
      const read = new Set(work.node.inputs.map((input) => this.steps.blockAt(input)))
      for (let k = i - 1; k >= Math.max(0, i - FAR); k--) {
        const step = steps[k]
        if (
          step.kind === "run" &&
          takesEpilogue(this.steps.backend, step.node) &&
          read.has(this.steps.blockOf(step.node))
        ) {
          if (k < i - 1 && !this.companions.has(step) && this.mayWait(k, i)) {
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
    const { node } = this.steps.list[from] as { node: Application }
    const made = this.steps.blockOf(node)
    const between = this.steps.list.slice(from + 1, to)
    if (between.some((step) => this.steps.touched(step).some((each) => this.steps.blockOf(each) === made)))
      return false
    let ending = 0
    for (const block of new Set(node.inputs.flatMap((input) => this.steps.blockAt(input) ?? [])))
      if (block.lastUse < to && block.binding === null) ending += block.nbytes
    return ending <= made.nbytes || ending <= SMALL
  }

  /**
   * Finds elementwise work that runs on the pieces of the product before it. What the product reads is then in use as long as the work is.
   */
  private findEpilogues(): void {
    const products = new Map<Block, Application>()
    this.steps.list.forEach((step, i) => {
      if (step.kind !== "run") return
      const { node } = step
      if (!primitiveOf(node).elementwise) {
        if (takesEpilogue(this.steps.backend, node)) products.set(this.steps.blockOf(node), node)
        return
      }
      const before = this.steps.list[i - 1]
      const read = node.inputs.flatMap((input) => products.get(this.steps.blockAt(input) as Block) ?? [])
      const position = this.steps.positions.get(node)
      if (read.length === 0 || position === undefined) return
      const product = before?.kind === "run" && read.includes(before.node) ? before.node : null
      if (!product) {
        this.fates.set(position, NOT_NEXT)
        return
      }
      const block = this.steps.blockOf(product)
      const reason = obstacle(product, node, (input) =>
        this.steps.blockAt(input) === block ? this.steps.layoutOf(input) : null,
      )
      this.fates.set(position, reason ?? "epilogue")
      if (reason !== null) return
      const inputs = product.inputs.flatMap((input) => this.steps.blockAt(input) ?? [])
      for (const input of inputs) input.lastUse = Math.max(input.lastUse, i)
      this.epilogues.set(step, new Set(inputs))
      this.computeInPlace(product, node, i)
    })
  }

  /** Finds elementwise work for the reduction after it alone. What the work reads is then in use as long as the reduction is. */
  private findPrologues(): void {
    this.steps.list.forEach((step, i) => {
      const next = this.steps.list[i + 1]
      if (step.kind !== "run" || next?.kind !== "run" || !primitiveOf(step.node).elementwise) return
      const { node } = step
      const position = this.steps.positions.get(node)
      if (this.epilogues.has(step) || position === undefined || this.steps.blockAt(node)?.binding !== null)
        return
      if (this.steps.blockOf(node).lastUse !== i + 1) return
      const fate = prologueOf(this.steps.backend, node, next.node)
      if (fate !== null) this.fates.set(position, fate)
      if (fate !== "prologue") return
      for (const input of node.inputs) {
        const block = this.steps.blockAt(input)
        if (block && !isImmediate(input)) block.lastUse = Math.max(block.lastUse, i + 1)
      }
      this.prologues.add(step)
    })
  }

  /**
   * Computes a product whose epilogue makes an output in that output's memory, unless a donated input is to become the output.
   */
  private computeInPlace(product: Application, work: Application, step: number): void {
    const from = this.steps.blockOf(product)
    if (from.binding !== null || from.lastUse !== step) return
    const given = work.inputs.some((input) => {
      const binding = this.steps.blockAt(input)?.binding ?? null
      return binding !== null && this.donated.has(binding)
    })
    const output = outputsOf(work).find((node) => {
      const { binding, nbytes } = this.steps.blockOf(node)
      return binding !== null && nbytes === from.nbytes && node.dtype.size === product.dtype.size
    })
    if (given || !output) return
    const to = this.steps.blockOf(output)
    this.steps.move(from, to)
  }
}
