/**
 * Buffer assignment: whose memory a result takes, and which inputs are copied before. Views, results in place, donations to plans and
 * transfers between devices are decided here alone. Evaluation asks as it goes along, the memory budget asks ahead of it, and compile for
 * the memory within a plan: each knows memory in its own way, which is its {@link World}. Nothing here allocates or frees.
 */
import type { Encoder } from "../graph/backend"
import {
  type Application,
  type Layout,
  Mark,
  type Meta,
  type Node,
  type Plan,
  type Primitive,
  tracing,
} from "../graph/graph"
import { contiguousStrides, isContiguous, type Strides, sizeOf } from "../graph/shape"
import type { Memory, Storage } from "../graph/storage"

/** Where nodes lie in the memory that they show. */
export interface Located {
  /** Where the elements begin in the memory that the node shows. */
  offsetOf(node: Node): number
  /** Their strides; null for row-major order without gaps. */
  stridesOf(node: Node): Strides | null
}

/** The knowledge of an asker about the memory behind nodes. Nodes that it asks about have some, but for immediates. */
export interface World extends Located {
  /** Bytes of that memory. */
  bytesOf(node: Node): number
  /**
   * True if nothing but the application, which runs now, and that many `views` of it, none by default, can read that memory any more, and
   * if the application's stream may write to it.
   */
  isSpent(input: Node, application: Application, views?: number): boolean
}

/** The ways in which an application is evaluated. */
export enum Way {
  /** Its outputs are those of its decomposition. */
  Alias,
  /** It shows the memory of its input, or of a copy of it. */
  View,
  /** A recorded plan runs, where the backend has one; otherwise a kernel. */
  Work,
}

export function wayOf(application: Application): Way {
  if (application.alias !== null) return Way.Alias
  return application.primitive.rules.view === undefined ? Way.Work : Way.View
}

/** The layout of a view of its input, as its rule says; null where the input must be copied first. */
export function viewOf(world: Located, node: Application): Layout | null {
  const [input] = node.inputs
  return layoutOfView(node, world.offsetOf(input), world.stridesOf(input))
}

/** The same for a row-major copy of the input. */
export const viewOfCopy = (node: Application): Layout | null => layoutOfView(node, 0, null)

function layoutOfView(node: Application, offset: number, strides: Strides | null): Layout | null {
  if (strides === null && node.primitive.facts.keepsOrder) return { offset, strides }
  const { shape, dtype } = node.inputs[0]
  const view = node.primitive.rules.view as NonNullable<Primitive["rules"]["view"]>
  const from = { shape, dtype, offset, strides: strides ?? contiguousStrides(shape) }
  return view(from, node.params, node as Meta)
}

/** Where a view begins: what has no elements may begin anywhere, outside the memory too. */
export const offsetIn = ({ offset }: Layout, node: Node): number =>
  offset !== 0 && sizeOf(node.shape) === 0 ? 0 : offset

/** The strides of a view; null where it lies in row-major order. */
export const stridesIn = ({ strides }: Layout, node: Node): Strides | null =>
  strides !== null && isContiguous(node.shape, strides) ? null : strides

/** True if a node shows all of its memory, in order. */
const isWhole = (world: World, node: Node): boolean =>
  world.stridesOf(node) === null && world.offsetOf(node) === 0 && world.bytesOf(node) === node.nbytes

/** True if an elementwise application may write an output over an input: its elements lie at the same locations. */
export const overlays = (world: World, output: Node, input: Node): boolean =>
  input.nbytes === output.nbytes && input.dtype.size === output.dtype.size && isWhole(world, input)

/** The input whose memory an output of an elementwise application takes; null where it gets its own. */
export function donorOf(world: World, application: Application, output: Node): Node | null {
  const { inputs } = application
  for (let i = 0; i < inputs.length; i++) {
    const input = inputs[i]
    if (world.isSpent(input, application) && overlays(world, output, input)) return input
  }
  return null
}

/** The input whose memory output `index` of an application takes, which an encoder runs; null where it gets its own. */
export function donorFor(
  world: World,
  encoder: Encoder,
  application: Application,
  output: Node,
  index: number,
): Node | null {
  if (application.primitive.elementwise) return donorOf(world, application, output)
  if (encoder.overwrites === undefined) return null
  for (const i of encoder.overwrites(application, index)) {
    const input = application.inputs[i]
    if (world.isSpent(input, application) && overlays(world, output, input)) return input
  }
  return null
}

/** True if a plan may write over an input that it was given. */
export const isGiven = (world: World, application: Application, input: Node): boolean =>
  world.isSpent(input, application) && isWhole(world, input)

/** The input that a plan was given for an output; null where that gets memory of its own. */
export function giftFor(
  world: World,
  application: Application,
  { donations }: Plan,
  output: number,
): Node | null {
  if (donations === undefined) return null
  for (let i = 0; i < donations.length; i++) {
    const donation = donations[i]
    if (donation.output !== output) continue
    const input = application.inputs[donation.input]
    if (isGiven(world, application, input)) return input
  }
  return null
}

/** A strided array of at most this many bytes is made row-major for good where a plan reads it: the next call copies nothing. */
const SMALL_STRIDED = 4096

/** True if a plan's input is made row-major for good. What is a copy from another device is there for its other readers. */
export const isStraightened = (world: World, input: Node, isCopy: boolean): boolean =>
  !isCopy && input.nbytes <= SMALL_STRIDED && world.stridesOf(input) !== null

/** A plan, and the inputs of which it reads row-major copies. */
export interface Reading {
  readonly plan: Plan
  readonly copied: readonly Node[]
}

/** True if a plan reads all inputs as they are. */
export function readsAll(world: World, inputs: readonly Node[], plan: Plan): boolean {
  for (let i = 0; i < inputs.length; i++) if (world.stridesOf(inputs[i]) !== null) return false
  return plan.alignments === undefined || misaligned(world, inputs, plan).length === 0
}

/** The reading of inputs that a plan does not read as they are: by a plan for their strides, or as copies. */
export function readingOf(world: World, application: Application, plan: Plan): Reading {
  const { inputs } = application
  const strides = inputs.map((input) => world.stridesOf(input))
  if (strides.some((each) => each !== null)) {
    const suited = application.primitive.rules.planForStrides?.(application, strides) ?? null
    if (suited !== null && misaligned(world, inputs, suited).length === 0) return { plan: suited, copied: [] }
  }
  const apart = misaligned(world, inputs, plan)
  return { plan, copied: inputs.filter((input, i) => strides[i] !== null || apart.includes(input)) }
}

/** Inputs that begin between two of the elements that a plan reads. */
function misaligned(world: World, inputs: readonly Node[], { alignments = [] }: Plan): Node[] {
  const apart: Node[] = []
  // Every input of every call of a compiled function passes here.
  for (const { input, bytes } of alignments) {
    const node = inputs[input]
    if ((world.offsetOf(node) * node.dtype.size) % bytes !== 0) apart.push(node)
  }
  return apart
}

/** Memory of some device, as transfers see it; storages are such. */
export interface Held {
  readonly memory: Memory
  readonly nbytes: number
  /** The memory whose bytes it shows. */
  readonly lender: Held | null
  /** The memory that it is a copy of. */
  readonly original: Held | null
  /** Its copies on other devices. */
  readonly copies: readonly Held[] | null
}

/** The ways in which a device reads what lies in another one's memory. */
export enum Crossing {
  /** The device sees it too, and shows it from then on. */
  Lent,
  /** There is a copy already, or it is itself the copy of something there. */
  Known,
  /** It is copied once, for all readers. */
  Copied,
}

export function crossingTo(memory: Memory, held: Held): Crossing {
  const { lender, original, copies } = held
  if (lender !== null && lender.memory === memory) return Crossing.Lent
  if (held.nbytes > 0 && held.memory.address !== undefined && memory.adopt !== undefined) return Crossing.Lent
  if (original !== null && original.memory === memory) return Crossing.Known
  return copies?.some((copy) => copy.memory === memory) ? Crossing.Known : Crossing.Copied
}

/** True if an application's graph is kept for an open trace, which may read its inputs again. */
export const isKeptForTrace = (application: Application): boolean =>
  (application.mark & Mark.Traced) !== 0 && tracing.depth > 0

/**
 * True if one node alone shows a storage, besides so many views, JavaScript does not, and the application's stream made it and may write to
 * it.
 */
export const isOwn = (storage: Storage, { stream }: Application, views = 0): boolean =>
  storage.refs === 1 + views &&
  !storage.isExposed &&
  storage.lender === null &&
  // Another stream's memory is that stream's to give back.
  storage.stream === stream &&
  storage.uses === null

/** The world of evaluation: storages. */
export const storages: World = {
  offsetOf: (node) => node.offset,
  stridesOf: (node) => node.strides,
  bytesOf: (node) => node.storage?.nbytes ?? 0,
  isSpent(input, application, views) {
    if (input.handles !== 0 || input.uses !== 1) return false
    const { storage } = input
    return storage !== null && isOwn(storage, application, views) && !isKeptForTrace(application)
  },
}
