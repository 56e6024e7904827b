/**
 * The memory that an evaluation takes, and whether it fits under the limit, asked before anything of it is encoded: a refused evaluation
 * then leaves every array as it was. What it takes at least is found by walking the schedule without running it; what shows only on the
 * way, such as a copy that a kernel needs, is the backend's to refuse. Nothing here frees or allocates; see memory.ts.
 */
import { type Layout, Mark, type Meta, type Node, type Plan, type Primitive, tracing } from "../graph/graph"
import { contiguousStrides, isContiguous } from "../graph/shape"
import type { Storage } from "../graph/storage"

/** Memory that nodes share: what it takes, and how many of them show it. */
interface Block {
  readonly bytes: number
  shown: number
}

/** A strided array of at most this many bytes is made row-major for good where a plan reads it: the next call copies nothing. */
export const SMALL_STRIDED = 4096

/** The plan that will run, and the bytes of the inputs that are copied for it; null for what has none. */
function planOf(
  lead: Node,
  stridesOf: (input: Node) => Layout["strides"],
): { readonly plan: Plan; readonly copied: readonly Node[] } | null {
  const { rules } = lead.primitive as Primitive
  const plan = lead.alias === null ? (rules.plan?.(lead) ?? null) : null
  if (plan === null) return null
  const { inputs } = lead
  let copied = NONE
  for (let i = 0; i < inputs.length; i++)
    if (stridesOf(inputs[i]) !== null && inputs[i].nbytes > SMALL_STRIDED) copied = [...copied, inputs[i]]
  if (copied === NONE) return { plan, copied }
  const strides = inputs.map((input) => (copied.includes(input) ? stridesOf(input) : null))
  const suited = rules.planAsTheyLie?.(lead, strides)
  return suited ? { plan: suited, copied: NONE } : { plan, copied }
}
const NONE: readonly Node[] = []
const ownStrides = ({ strides }: Node): Layout["strides"] => strides

/** The bytes of a block for those that are asked for: a backend may give an eighth more, and not less than a cache line. */
const SPARE = 1.25
const LINE = 128

/** Bytes of a schedule's results. */
export interface Extent {
  /** Of all of them, and of what plans take besides: the most it can take, but for copies on the way. */
  most: number
  /** Of those that a handle may still show: what a poll for dead handles could save. */
  shown: number
}
const extent: Extent = { most: 0, shown: 0 }

/** The number of views to go through for the node that they show. */
const MANY_VIEWS = 8

/** True if a node is a view of what is there already: it takes nothing, and no poll would save it. */
function showsOld(node: Node): boolean {
  let shown = node
  for (let i = 0; i < MANY_VIEWS; i++) {
    if (shown.alias !== null || shown.primitive?.rules.view === undefined) return false
    shown = shown.inputs[0]
    if (shown.storage !== null) return true
  }
  return false
}

/** Measures a schedule; the answer is good until the next call. */
export function measure(order: readonly Node[], roots: readonly Node[]): Extent {
  let [most, shown] = [0, 0]
  for (let i = 0; i < order.length; i++) {
    const lead = order[i]
    const { outputs } = lead
    let bytes = lead.nbytes
    if (lead.handles > 0 && !showsOld(lead)) shown += bytes
    if (outputs !== null) for (let k = 1; k < outputs.length; k++) bytes += outputs[k].nbytes
    if ((lead.primitive as Primitive).rules.plan !== undefined)
      bytes += planOf(lead, ownStrides)?.plan.bytes ?? 0
    most += bytes
  }
  for (let i = 0; i < roots.length; i++) if (!showsOld(roots[i])) shown -= roots[i].nbytes
  extent.most = (most + order.length * LINE) * SPARE
  extent.shown = shown
  return extent
}

const ROW_MAJOR: Layout = { offset: 0, strides: null }

/** The most bytes that a schedule needs at once, on top of what is in use before it: at least so many. */
export function leastBytes(
  order: readonly Node[],
  roots: readonly Node[],
  blockBytes: (nbytes: number) => number,
): number {
  const blocks = new Map<Node | Storage, Block>()
  const readers = new Map<Node, number>()
  const layouts = new Map<Node, Layout>()
  const wanted = new Set(roots)
  let [now, most] = [0, 0]

  const blockOf = (node: Node): Block => {
    const key = node.storage ?? node
    let block = blocks.get(key)
    if (block === undefined) {
      // Immediates and such, which take nothing here, or memory that is in use already.
      block = { bytes: node.storage ? blockBytes(node.storage.nbytes) : 0, shown: node.storage?.refs ?? 1 }
      blocks.set(key, block)
    }
    return block
  }
  const isLast = (node: Node): boolean =>
    (readers.get(node) ?? node.uses) === 1 && node.handles === 0 && !wanted.has(node)
  const leave = (node: Node): void => {
    const block = blockOf(node)
    if (--block.shown === 0) now -= block.bytes
  }
  const take = (node: Node, block: Block): void => {
    if (node.storage === null) blocks.set(node, block)
  }
  const layoutOf = (node: Node): Layout => (node.storage === null ? (layouts.get(node) ?? ROW_MAJOR) : node)
  const make = (node: Node): void => {
    const bytes = blockBytes(node.nbytes)
    now += bytes
    take(node, { bytes, shown: 1 })
  }
  /** An output takes the memory of an input that dies here, where there is one of its size: nothing more is needed. */
  const replace = (lead: Node): boolean => {
    const bytes = blockBytes(lead.nbytes)
    for (const input of lead.inputs) {
      if (lead.mark & Mark.Traced && tracing.depth > 0) return false
      if (!isLast(input) || input.dtype.size !== lead.dtype.size || input.stream !== lead.stream) continue
      const { storage } = input
      if (storage !== null && (input.guard !== 0 || storage.lender !== null || storage.uses !== null))
        continue
      if (storage !== null && storage.stream !== lead.stream) continue
      const block = blockOf(input)
      const { offset, strides } = layoutOf(input)
      if (block.bytes !== bytes || block.shown !== 1 || offset !== 0 || strides !== null) continue
      block.shown++
      take(lead, block)
      return true
    }
    return false
  }
  /** A view shows its input's memory, or, where it cannot, that of a copy. */
  const view = (lead: Node): void => {
    const [input] = lead.inputs
    const { shape, dtype } = input
    const { rules } = lead.primitive as Primitive
    const { offset, strides } = layoutOf(input)
    const straight = contiguousStrides(shape)
    const direct = rules.view?.(
      { shape, dtype, offset, strides: strides ?? straight },
      lead.params,
      lead as Meta,
    )
    const layout =
      direct ?? rules.view?.({ shape, dtype, offset: 0, strides: straight }, lead.params, lead as Meta)
    let block = blockOf(input)
    if (direct) block.shown++
    else {
      block = { bytes: blockBytes(input.nbytes), shown: 1 }
      now += block.bytes
    }
    take(lead, block)
    if (!layout) return
    const isStraight = layout.strides === null || isContiguous(lead.shape, layout.strides)
    layouts.set(lead, { offset: layout.offset, strides: isStraight ? null : layout.strides })
  }

  for (const lead of order) {
    const { rules, elementwise } = lead.primitive as Primitive
    const outputs = lead.outputs ?? [lead]
    const planned = planOf(lead, (input) => layoutOf(input).strides)
    if (lead.alias !== null) {
      for (const output of outputs) {
        const source = output.alias as Node
        const block = blockOf(source)
        block.shown++
        take(output, block)
        layouts.set(output, layoutOf(source))
      }
    } else if (rules.view !== undefined) view(lead)
    else if (planned !== null) {
      const { plan, copied } = planned
      const given = plan.donations?.filter(({ input }) => isLast(lead.inputs[input])) ?? []
      for (let i = 0; i < outputs.length; i++) {
        const gift = given.find(({ output }) => output === i)
        if (gift === undefined) make(outputs[i])
        else {
          const block = blockOf(lead.inputs[gift.input])
          block.shown++
          take(outputs[i], block)
        }
      }
      const copies = copied.reduce((bytes, input) => bytes + blockBytes(input.nbytes), 0)
      most = Math.max(most, now + copies + (plan.bytes ? blockBytes(plan.bytes) : 0))
    } else if (!(elementwise && lead.outputs === null && replace(lead)))
      for (const output of outputs) make(output)
    most = Math.max(most, now)
    // An open trace keeps what it may want.
    if (lead.mark & Mark.Traced && tracing.depth > 0) continue
    const read = lead.alias === null ? lead.inputs : outputs.map(({ alias }) => alias as Node)
    for (const input of read) {
      if (isLast(input)) leave(input)
      readers.set(input, (readers.get(input) ?? input.uses) - 1)
    }
    for (const output of outputs)
      if (output.uses === 0 && output.handles === 0 && !wanted.has(output)) leave(output)
  }
  return most
}
