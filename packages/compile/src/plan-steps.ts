/**
 * The steps of a plan: what runs and what is copied, in order, and where each node lies: in which block of memory, and how. Which steps
 * work on each other's pieces is decided in epilogues.ts, which blocks share memory in plan-memory.ts.
 */
import {
  type Application,
  applicationOf,
  type Backend,
  isContiguous,
  type Layout,
  type Located,
  type Node,
  offsetIn,
  outputsOf,
  type Strides,
  sourceNode,
  stridesIn,
  viewOf,
  viewOfCopy,
} from "@lazuli/core/engine"
import type { Allocation } from "./arena"
import { type Group, grouped } from "./groups"
import { isImmediate } from "./identities"
import { isLeaf, primitiveOf } from "./order"
import { matrixLayout, onRows, type RowGroup, rowGroups } from "./rows"

/** A block of memory of the program: a part of the arena, an output or an input. Views share the block of what they show. */
export interface Block {
  readonly nbytes: number
  /** The last step that reads or writes it; -1 where none does. */
  lastUse: number
  /** The binding of inputs and outputs; null for the arena. */
  binding: number | null
  /** In the arena: shared with what dies where this begins. */
  allocation: Allocation | null
}

const blockFor = (node: Node, binding: number | null): Block => ({
  nbytes: node.nbytes,
  lastUse: -1,
  binding,
  allocation: null,
})

/** Steps look among this many before or behind them for others to run beside. */
export const FAR = 16
/** Bytes that may be in use for longer so that they do. */
export const SMALL = 1 << 16

const ROW_MAJOR: Layout = { offset: 0, strides: null }

/** One thing to encode: an application, a group as one kernel, or a copy that a view or an output needs. */
export type Step =
  | { readonly kind: "run"; readonly node: Application }
  | { readonly kind: "group"; readonly group: Group }
  | { readonly kind: "copy"; readonly from: Node; readonly to: Node }

/** The applications of a step that is no copy. */
export const applicationsOf = (step: Exclude<Step, { kind: "copy" }>): readonly Application[] =>
  step.kind === "group" ? step.group.members : [step.node]

export class PlanSteps implements Located {
  readonly list: Step[] = []
  /** Positions in the plan's order of what runs by blocks of rows, and how many of its steps repeat others on other rows. */
  readonly byRows = new Set<number>()
  repeated = 0
  /** By position in the plan's order: the primitives that are one kernel with an application. */
  readonly together = new Map<number, readonly string[]>()
  /** Positions in the plan's order. */
  positions: ReadonlyMap<Node, number> = new Map()
  private readonly blocks = new Map<Node, Block>()
  private readonly layouts = new Map<Node, Layout>()
  /** The nodes that each step touches, once all steps are there. */
  private readonly touches = new Map<Step, readonly Node[]>()

  constructor(
    readonly backend: Backend,
    readonly inputs: readonly Node[],
    readonly outputs: readonly Node[],
    strides: readonly (Strides | null)[] | null,
  ) {
    inputs.forEach((node, i) =>
      this.put(node, blockFor(node, i), { offset: 0, strides: strides?.[i] ?? null }),
    )
  }

  offsetOf = (node: Node): number => this.layoutOf(node).offset
  stridesOf = (node: Node): Strides | null => this.layoutOf(node).strides
  layoutOf = (node: Node): Layout => this.layouts.get(node) as Layout

  /** The block of a node that is in memory. */
  blockOf(node: Node): Block {
    return this.blocks.get(node) as Block
  }
  /** The block of a node; undefined where it is not in memory. */
  blockAt(node: Node): Block | undefined {
    return this.blocks.get(node)
  }
  allBlocks(): Iterable<Block> {
    return this.blocks.values()
  }

  /** Puts what lies in one block into another. */
  move(from: Block, to: Block): void {
    for (const [node, block] of this.blocks) if (block === from) this.blocks.set(node, to)
  }

  /** Adds everything; what works by rows together with its neighbours, block by block. */
  addAll(order: readonly Application[]): boolean {
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
    const positions = new Map(order.map((application, i) => [application, i]))
    this.positions = positions
    const joins = this.backend.plans?.joins
    if (joins) return grouped(order, this.outputs, joins).every((each) => this.addOrJoin(each))
    for (let i = 0; i < order.length; i++) {
      const group = groupOf.get(order[i])
      if (!group) {
        if (!this.add(order[i])) return false
        continue
      }
      const end = positions.get(group.members[group.members.length - 1].application) as number
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

  /** Gives each output its own memory: the block it is computed in, or a copy where that block is shared or not its own. */
  bindOutputs(): void {
    const copies: Step[] = []
    const taken = new Set<Block>()
    this.outputs.forEach((node, i) => {
      if (!this.blocks.has(node)) this.run(applicationOf(node))
      const block = this.blockOf(node)
      const { offset, strides } = this.layoutOf(node)
      const binding = this.inputs.length + i
      const whole = offset === 0 && strides === null && block.nbytes === node.nbytes
      if (whole && block.binding === null && !taken.has(block)) {
        block.binding = binding
        taken.add(block)
        return
      }
      const target = sourceNode(node.shape, node.dtype, null)
      this.put(target, blockFor(target, binding), ROW_MAJOR)
      copies.push({ kind: "copy", from: node, to: target })
    })
    this.list.push(...copies)
  }

  /** Finds out when each block is read or written last. */
  noteUses(): void {
    for (let i = 0; i < this.list.length; i++)
      for (const node of this.touched(this.list[i])) this.blockOf(node).lastUse = i
  }

  /**
   * The nodes in memory that a step reads, then those it writes. An immediate is in memory only for kernels; elementwise work has it in its
   * record, and may come before the step that writes it. It is asked several times, once all steps are there.
   */
  touched(step: Step): readonly Node[] {
    let nodes = this.touches.get(step)
    if (nodes === undefined) this.touches.set(step, (nodes = this.findTouched(step)))
    return nodes
  }

  private findTouched(step: Step): readonly Node[] {
    if (step.kind === "copy") return [step.from, step.to]
    const applications = applicationsOf(step)
    const nodes: Node[] = []
    for (const { inputs, primitive } of applications)
      for (const node of inputs)
        if (this.blocks.has(node) && !(primitive.elementwise && isImmediate(node))) nodes.push(node)
    for (const application of applications)
      for (const node of outputsOf(application)) if (this.blocks.has(node)) nodes.push(node)
    return step.kind === "run" ? nodes : [...new Set(nodes)]
  }

  /** Adds an application, or a group of them as one kernel. */
  private addOrJoin(each: Application | Group): boolean {
    if (!("members" in each)) return this.add(each)
    const { members, inner } = each
    const made = new Set(members.flatMap((member) => outputsOf(member)))
    for (const member of members)
      for (const input of member.inputs) {
        if (made.has(input) || this.blocks.has(input)) continue
        if (!isImmediate(input)) return false
        if (!member.primitive.elementwise) this.run(applicationOf(input))
      }
    for (const member of members)
      if (!member.primitive.rules.view) {
        for (const node of outputsOf(member)) if (!inner.has(node)) this.fresh(node)
      } else if (!inner.has(member) && !this.addView(member)) return false
    this.list.push({ kind: "group", group: each })
    for (const member of members) {
      const others = members
        .filter((other) => other !== member && !other.primitive.rules.view)
        .map(({ primitive: { name } }) => name)
      this.together.set(this.positions.get(member) as number, others)
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
          else this.put(results[i], this.blockOf(node), this.layoutOfRows(node, at, results[i]))
          images.set(node, results[i])
        })
        this.list.push({ kind: "run", node: applicationOf(results[0]) })
        if (at > 0) this.repeated++
      }
    }
    return true
  }

  /** Some rows of a node that is in memory. */
  private slice(node: Node, at: number, count: number): Node {
    const rows = sourceNode([count, node.shape[node.shape.length - 1]], node.dtype, null)
    this.put(rows, this.blockOf(node), this.layoutOfRows(node, at, rows))
    return rows
  }

  private layoutOfRows(node: Node, at: number, rows: Node): Layout {
    const { offset, strides } = matrixLayout(node, this.layoutOf(node)) as Layout
    const both = strides as readonly number[]
    return { offset: offset + at * both[0], strides: isContiguous(rows.shape, both) ? null : both }
  }

  /** The node that serves all rows, without the leading axes of size 1 that a matrix does not have. */
  private row(application: Application, node: Node): Node {
    if (!application.primitive.elementwise || node.shape.length <= 1) return node
    const last = node.shape.length - 1
    const row = sourceNode([node.shape[last]], node.dtype, null)
    const { offset, strides } = this.layoutOf(node)
    const stride = strides ? strides[last] : 1
    this.put(row, this.blockOf(node), { offset, strides: stride === 1 ? null : [stride] })
    return row
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
    this.list.push({ kind: "run", node: application })
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
    this.put(node, this.blockOf(source), { offset, strides })
    return true
  }

  private copyOf(node: Node): Node {
    const copy = sourceNode(node.shape, node.dtype, null)
    this.fresh(copy)
    this.list.push({ kind: "copy", from: node, to: copy })
    return copy
  }

  private put(node: Node, block: Block, layout: Layout): void {
    this.blocks.set(node, block)
    this.layouts.set(node, layout)
  }

  private fresh(node: Node): void {
    this.put(node, blockFor(node, null), ROW_MAJOR)
  }
}
