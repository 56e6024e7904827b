/**
 * Array, Node and Primitive: an Array is a user's handle on a Node, a Node is one output of one application of a Primitive, and a
 * Primitive's rules speak of Arrays. Evaluation is in evaluate.ts. It is long because the three cannot be read apart.
 */

import type { FluentMethods } from "../fluent"
import { calls } from "./calls"
import { markCopy } from "./copies"
import { currentStream, type Stream } from "./device"
import type { Dtype } from "./dtype"
import { noteExchange } from "./exchanges"
import type { ArrayMembers } from "./members"
import type { HOLDS, Holds, StreamOptions, Value, ValueIn } from "./option-types"
import { type AnyParams, NO_PARAMS, type ParamSchema } from "./params"
import type { ScalarOps, ScalarProgram } from "./scalar-program"
import type { Shape, Strides } from "./shape"
import { MAX_RANK, refuseRank, sizeOf } from "./shape"
import type { Storage } from "./storage"

/** Shape and dtype: what `infer` works on. Every node is one. */
export interface Meta {
  readonly shape: Shape
  readonly dtype: Dtype
}

/** Where an array's elements lie in its storage, in elements; null strides mean row-major without gaps. */
export interface Layout {
  readonly offset: number
  readonly strides: Strides | null
}

/**
 * Elements as a reference implementation reads and writes them: a typed array, whose elements are bigints where the dtype is a 64-bit
 * integer.
 */
export interface HostData extends ArrayLike<number> {
  [index: number]: number
  fill(value: number): unknown
  set(values: ArrayLike<number>): void
}

/**
 * An array as a reference implementation sees it: row-major, float16 and bfloat16 as Float32Array (to write: Float64Array), complex64 as
 * (re, im) pairs.
 */
export interface HostArray {
  readonly shape: Shape
  readonly dtype: Dtype
  readonly data: HostData
}

/** The arguments of a vjp rule. */
export interface VjpContext<P> {
  readonly inputs: readonly Array[]
  readonly outputs: readonly Array[]
  /** One for each output, of its shape and dtype. */
  readonly cotangents: readonly Array[]
  readonly params: P
  /** For each input, true if its cotangent is asked for; the others may be null. */
  readonly wanted: readonly boolean[]
}
/** The arguments of a jvp rule. */
export interface JvpContext<P> {
  readonly inputs: readonly Array[]
  readonly outputs: readonly Array[]
  /** One for each input, null where the input does not vary. At least one is not null. */
  readonly tangents: readonly (Array | null)[]
  readonly params: P
}
/** The arguments of a vmap rule. */
export interface VmapContext<P> {
  readonly inputs: readonly Array[]
  /** The batch axis of each input, null where it has none. */
  readonly axes: readonly (number | null)[]
  readonly params: P
  /** The number of examples in the batch. */
  readonly size: number
}
/** The result of a vmap rule: the outputs and their batch axes. */
export interface VmapResult {
  readonly outputs: readonly Array[]
  readonly axes: readonly (number | null)[]
}

/**
 * The partial derivative of an elementwise output with respect to one input: a number where it is constant. Of a real output by a
 * complex input it is the gradient ∂o/∂Re + i·∂o/∂Im.
 */
export type Partial = Array | number | null

/** The elements that an update writes over, as they were, and an update that puts them back. */
export interface Undoing {
  readonly part: Array
  restore(changed: Array, part: Array): Array
}

/** The rules of a primitive, as {@link definePrimitive} takes them. */
export interface PrimitiveRules<P> {
  infer(inputs: readonly Meta[], params: P): Meta | readonly Meta[]
  scalar?<V>(ops: ScalarOps<V>, inputs: readonly V[], params: P): V | readonly V[]
  decompose?(inputs: readonly Array[], params: P): Array | readonly Array[]
  reference?(inputs: readonly HostArray[], outputs: readonly HostArray[], params: P): void
  view?(
    input: Meta & { readonly offset: number; readonly strides: Strides },
    params: P,
    output: Meta,
  ): Layout | null
  partials?(inputs: readonly Array[], output: Array, params: P, which: number): Partial
  vjp?(context: VjpContext<P>): readonly (Array | null)[]
  jvp?(context: JvpContext<P>): readonly (Array | null)[]
  vmap?(context: VmapContext<P>): VmapResult
  /**
   * Where each row (the last axis) of the first input makes a row of the result alone, and other inputs serve all rows: the parameters with
   * which the application does so on a matrix. Null where rows do not stand alone.
   */
  rows?(inputs: readonly Meta[], params: P): P | null
  /** For primitives that hold a whole program: what the node's backend runs in place of the decomposition, or null. */
  plan?(node: Node): Plan | null
  /**
   * Where inputs do not lie in row-major order: the steps along each input's axes, null for those that do. Gives a plan that reads them as
   * they lie, or null where copies in order are to be read.
   */
  planForStrides?(node: Node, strides: readonly (Strides | null)[]): Plan | null
  /** Likewise, where its backend records no plans: the outputs, in terms of what it runs best. */
  expand?(node: Node): readonly Array[]
  /**
   * Where the result is the first input but for some elements: each side is one application, and the part has no more bytes than the other
   * inputs have together. What puts it back has this rule too.
   */
  undo?(inputs: readonly Array[], params: P): Undoing
}

/** A recorded series of work that a backend runs as one; see backend.ts. */
export interface Plan {
  /** The backend's number for it. */
  readonly id: number
  /** The bytes that a run takes besides its outputs. */
  readonly bytes?: number
  /** Inputs whose memory may become an output's, where nothing else can read them. */
  readonly donations?: readonly Donation[]
  /** Inputs that it reads as elements wider than their own: these must begin at multiples of `bytes`. */
  readonly alignments?: readonly Alignment[]
}

/** The position of an input, and where it may begin. */
export interface Alignment {
  readonly input: number
  readonly bytes: number
}

/** Positions of an input and of the output that may take its memory. */
export interface Donation {
  readonly input: number
  readonly output: number
}

/** Facts that engines ask for instead of names. */
export interface PrimitiveFacts {
  /** Holds its value in its parameters; kernels read it as an immediate. */
  readonly immediate?: boolean
  /** Repeats its input along axes: an elementwise reader can read the input itself. */
  readonly broadcasts?: boolean
  /** Derivatives stop here. */
  readonly stopsGradient?: boolean
  /** Holds a JavaScript function: not exportable. */
  readonly opaque?: boolean
  /**
   * Its results are unique only up to a choice, such as the sign of a vector, which backends may make differently. Checks hold them to what
   * holds of any right result.
   */
  readonly ambiguous?: boolean
  /** Reads or writes the second input's positions along the axis `params.axis`. */
  readonly along?: boolean
  /** Puts the second input in the place of a part of the first, or with the mode "add" adds it to that. */
  readonly places?: boolean
  /**
   * Talks to other processes: evaluated in the order in which programs apply such primitives, and never by itself. "derivatives" where
   * only its derivatives may.
   */
  readonly exchanges?: boolean | "derivatives"
}

/** A registered primitive: one definition that says what an operation means. */
export class Primitive {
  /** By input dtypes: the scalar program of an elementwise primitive without parameters. */
  readonly programs: (ScalarProgram | undefined)[] = []
  /** By input dtypes and parameters: the scalar programs of one that has parameters. */
  readonly programsByParams = new Map<string, ScalarProgram>()
  /** Backends keep their kernel's number here, by backend index. */
  readonly kernels: (number | undefined)[] = []
  /** True if it works element by element and its inputs broadcast. */
  readonly elementwise: boolean
  constructor(
    readonly name: string,
    readonly id: number,
    readonly schema: ParamSchema,
    readonly rules: PrimitiveRules<AnyParams>,
    readonly facts: PrimitiveFacts,
    /** The package that registered it. */
    readonly source: string,
    /** The version of that package, where it tells. */
    readonly version: string | null = null,
  ) {
    this.elementwise = rules.scalar !== undefined
  }
}

/** Marks a node carries from its inputs. */
export enum Mark {
  None = 0,
  /** Depends on an input of grad or jvp: evaluation keeps its graph while a trace is open. */
  Traced = 1,
  /** Depends on a placeholder of vmap or compile: it has no value and evaluation throws. */
  Abstract = 2,
}

/** The traces of transforms. */
export const tracing = {
  /** The number of open traces; while there are any, evaluation keeps the graph of marked nodes. */
  depth: 0,
  /** The number of open traces whose arrays have no values. */
  abstract: 0,
  /** The number of traces ever begun. */
  begun: 0,
  /** Evaluated applications whose graph an open trace may want. */
  kept: [] as Application[],
}

/** A former value of a node's memory: pending again, as the node with what was overwritten put back. See undo.ts. */
export interface Undo {
  /** Null for a former value that has none before it. */
  readonly node: Node | null
  /** The number of former values of the same memory, and the bytes that are kept for them: at most these. */
  count: number
  bytes: number
}

/** One output of one application of a primitive; once evaluated, a location in some storage. */
export class Node {
  /** Evaluated: where the elements are. */
  storage: Storage | null = null
  offset = 0
  strides: Strides | null = null
  /** All outputs of the application, this one included; null when there is one. */
  outputs: readonly Node[] | null = null
  /** The position of this output. */
  index = 0
  /** Edges from nodes that were built and not yet evaluated. */
  uses = 0
  /** Handles that may be alive, and evaluations that were asked for it. */
  handles = 0
  /** The number of the weak reference that keeps `storage` while this node lives; 0 without one. */
  guard = 0
  /** Keeps the storages of the tiny nodes that were evaluated about the same time; see memory.ts. */
  anchor: object | null = null
  /** The number of the last traversal that met this node. */
  visit = 0
  /** Its position in the list of the walk that met it last; it belongs to a walk whose list has it there. */
  position = 0
  /** The number of traces that had begun when it was made: a node older than a trace cannot depend on the trace's inputs. */
  readonly epoch: number = tracing.begun
  /** The node that evaluation computes instead: the decomposition. */
  alias: Node | null = null
  /** The node whose memory this one took although its handle may be alive; see undo.ts. */
  undo: Undo | null = null
  /** Bytes of all elements, laid out without gaps. */
  readonly nbytes: number
  constructor(
    readonly shape: Shape,
    readonly dtype: Dtype,
    /** Null once evaluated (and no trace wants the graph). */
    public primitive: Primitive | null,
    public inputs: readonly Node[],
    public params: AnyParams,
    readonly stream: Stream,
    public mark: number,
  ) {
    if (shape.length > MAX_RANK) refuseRank(primitive === null ? "array" : primitive.name, shape)
    this.nbytes = sizeOf(shape) * dtype.size
  }

  get size(): number {
    return sizeOf(this.shape)
  }
}

/** An application of a primitive that was not evaluated yet, by the first of its outputs: these share inputs and parameters. */
export interface Application extends Node {
  primitive: Primitive
}

/** The application that a node is an output of; the node has a primitive. */
export const applicationOf = (node: Node): Application =>
  (node.outputs === null ? node : node.outputs[0]) as Application

/** All outputs of an application. */
export const outputsOf = (application: Node): readonly Node[] => application.outputs ?? [application]

/** Lets go of the graph behind a node. */
export function forgetGraph(node: Node): void {
  node.primitive = null
  // A value without a graph depends on no trace any more.
  node.mark = Mark.None
  node.inputs = NO_INPUTS
  node.params = NO_PARAMS
}

/** The knowledge of handles; see memory.ts. */
export const handles = {
  /** True if handles are counted: not inside rules and engines. */
  tracking: true,
  /** Handles made since the last flush, for the backend's weak references. */
  fresh: [] as Array[],
  /** Handles of small pending nodes made since the last evaluation; entries from `recentCount` on are null. */
  recent: [] as (Array | null)[],
  recentCount: 0,
  /** Bytes of nodes that may still be made before somebody looks at what pending arrays come to. */
  budget: 0,
  /** The budget below which {@link boundPending} has somebody look. */
  floor: 0,
  /** See {@link boundPending}. */
  overflow: (): void => {},
  /** Called when there are {@link MANY_FRESH}: those that die young are cheap to find. */
  flush: (): void => {},
  /** Told of every handle while a {@link tidy} runs. */
  scope: null as ((handle: Array) => void) | null,
}

/** A pending graph of this weight (see pending-weight.ts) is computed by itself. */
export const PENDING_BYTES = 64 * 2 ** 20
handles.budget = PENDING_BYTES
/** Looking at what pending arrays come to must pay: at least so many bytes of nodes are made in between. */
export const LEAST_MADE = PENDING_BYTES / 8
/** So many handles of large nodes wait for their weak references together. */
const MANY_FRESH = 1024
/** The bytes that a node of a pending graph takes, roughly. */
export const GRAPH_BYTES = 1024

/** The debug mode's hook: told of every node that is built. */
export const building = { note: null as ((node: Node) => void) | null }

/** The states of a handle's `ref` that are not the number of a weak reference. */
export enum Ref {
  /** Made inside a rule or an engine: not counted, its memory may be reused once the graph lets go of it. */
  Untracked = 0,
  /** Given up by the user. */
  Disposed = -1,
  /** Counted, and waiting for its weak reference. */
  Fresh = -2,
  /** Counted, on a small node: its memory goes when the node is collected, which a weak reference on the node tells. */
  Counted = -3,
}

/** From this many bytes on every handle has a weak reference, so that memory is reused as soon as the handle is known to be dead. */
const LARGE = 65536

/** True if a node's handles are watched one by one. */
export const isLarge = (node: Node): boolean => node.nbytes >= LARGE

/** Counts a handle that a user may hold. */
function track(handle: Array): void {
  const { node } = handle
  node.handles++
  if (isLarge(node)) {
    handle.ref = Ref.Fresh
    if (handles.fresh.push(handle) > MANY_FRESH) handles.flush()
  } else {
    handle.ref = Ref.Counted
    if (node.storage === null) handles.recent[handles.recentCount++] = handle
  }
  if (handles.scope !== null) handles.scope(handle)
}

/**
 * An n-dimensional array: immutable elements of one dtype, computed when they are needed.
 * `mx.array(data)` makes one; operations are functions (`mx.add(a, b)`) and methods (`a.add(b)`).
 */
export class Array {
  /** The node this handle shows. Engine-internal. */
  node: Node
  /** The number of its weak reference, or a {@link Ref}. Engine-internal. */
  ref: number

  // Short enough for V8 to inline wherever an operation makes its result.
  constructor(node: Node) {
    this.node = node
    this.ref = Ref.Untracked
    if (handles.tracking) track(this)
  }

  /** Sizes of the axes. */
  get shape(): number[] {
    if (calls.recorder !== null) calls.recorder.readSizes()
    return this.node.shape as number[]
  }
  /** Element type. */
  get dtype(): Dtype {
    return this.node.dtype
  }
  /** Number of axes. */
  get ndim(): number {
    if (calls.recorder !== null) calls.recorder.readRank()
    return this.node.shape.length
  }
  /** Number of elements. */
  get size(): number {
    if (calls.recorder !== null) calls.recorder.readSizes()
    return sizeOf(this.node.shape)
  }
  /** Bytes an element. */
  get itemsize(): number {
    return this.node.dtype.size
  }
  /** The size of the first axis; 0 for a 0-d array. */
  get length(): number {
    if (calls.recorder !== null) calls.recorder.readSizes()
    return this.node.shape[0] ?? 0
  }
  /** Bytes of all elements. */
  get nbytes(): number {
    if (calls.recorder !== null) calls.recorder.readSizes()
    return this.node.nbytes
  }
}

markCopy(Array.prototype)

/** The methods are installed by methods.ts; their types are generated into fluent.ts. */
export interface Array
  extends FluentMethods<Array, ArrayOf<number>, ArrayOf<boolean>>,
    ArrayMembers<Array>,
    Holds<Value> {
  /**
   * See `mx.astype`.
   */
  astype<D extends Dtype>(dtype: D, options?: StreamOptions): ArrayOf<ValueIn<D>>
}

/**
 * An array whose dtype is known to the type checker, by what `item()` and `tolist()` give: number, bigint (of 64 bits), boolean or Complex.
 */
export interface ArrayOf<V extends Value> extends Array {
  [HOLDS]?(value: V): void
}

/** Runs `body` so that the arrays it makes are not handles: their memory is reused as soon as the graph lets go of it. */
export function withoutHandles<T>(body: () => T): T {
  const before = handles.tracking
  handles.tracking = false
  try {
    return body()
  } finally {
    handles.tracking = before
  }
}

/** The array that `body` gives, as a handle, where those on the way are none: a handle on them would keep their memory. */
export const composed = (body: () => Array): Array => new Array(withoutHandles(body).node)

/** A node without a primitive: it shows memory, or, with `Mark.Abstract`, stands for a value that is not known. */
export function sourceNode(
  shape: Shape,
  dtype: Dtype,
  storage: Storage | null,
  mark: number = Mark.None,
): Node {
  const node = new Node(shape, dtype, null, NO_INPUTS, NO_PARAMS, currentStream(), mark)
  node.storage = storage
  return node
}

const NO_INPUTS: readonly Node[] = []

/** Computes what is pending where that has come to too much; before an operation adds to the graph. */
export function boundPending(): void {
  if (handles.budget < handles.floor) handles.overflow()
}

/**
 * Begins a trace, in which nothing is computed of itself: {@link handles}.overflow looks after its handles now and then. Returns the floor
 * to put back at its end.
 */
export function boundTrace(): number {
  boundPending()
  const { floor } = handles
  handles.floor = handles.budget - LEAST_MADE
  return floor
}

/** Runs the body of a trace whose arrays have no values: nothing is computed of itself meanwhile. */
export function abstractly<T>(body: () => T): T {
  const floor = boundTrace()
  tracing.abstract++
  try {
    return body()
  } finally {
    tracing.abstract--
    handles.floor = floor
  }
}

/** Adds one node for an application with a single output. Inputs are nodes; `infer` validates them. */
export function applyNode(primitive: Primitive, inputs: readonly Node[], params: AnyParams): Node {
  boundPending()
  return addNode(primitive, inputs, params, primitive.rules.infer(inputs, params) as Meta)
}

/** The same for inputs that were validated: the output's shape and dtype are known. */
export function addNode(
  primitive: Primitive,
  inputs: readonly Node[],
  params: AnyParams,
  { shape, dtype }: Meta,
): Node {
  const node = new Node(shape, dtype, primitive, inputs, params, currentStream(), Mark.None)
  handles.budget -= GRAPH_BYTES + node.nbytes
  for (let i = 0; i < inputs.length; i++) {
    const input = inputs[i]
    input.uses++
    node.mark |= input.mark
  }
  if (building.note !== null) building.note(node)
  return node
}

/** Adds the nodes of an application with any number of outputs. Engines rebuild graphs with it: it computes nothing. */
export function applyNodes(primitive: Primitive, inputs: readonly Node[], params: AnyParams): Node[] {
  return addNodes(primitive, inputs, params, primitive.rules.infer(inputs, params))
}

/** The same for inputs that were validated. */
export function addNodes(
  primitive: Primitive,
  inputs: readonly Node[],
  params: AnyParams,
  metas: Meta | readonly Meta[],
): Node[] {
  const list = globalThis.Array.isArray(metas) ? (metas as readonly Meta[]) : [metas as Meta]
  // Counted loops: a call of a compiled training step has dozens of both.
  let mark = Mark.None as number
  for (let i = 0; i < inputs.length; i++) mark |= inputs[i].mark
  const stream = currentStream()
  const outputs: Node[] = []
  for (let i = 0; i < list.length; i++)
    outputs.push(new Node(list[i].shape, list[i].dtype, primitive, inputs, params, stream, mark))
  for (let i = 0; i < inputs.length; i++) inputs[i].uses++
  handles.budget -= GRAPH_BYTES * outputs.length
  if (outputs.length === 1) handles.budget -= outputs[0].nbytes
  else {
    for (let i = 0; i < outputs.length; i++) {
      handles.budget -= outputs[i].nbytes
      outputs[i].outputs = outputs
      outputs[i].index = i
    }
  }
  if (primitive.facts.exchanges) noteExchange(outputs[0], primitive.facts.exchanges)
  if (building.note !== null) for (const node of outputs) building.note(node)
  return outputs
}
