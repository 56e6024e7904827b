/**
 * Array, Node and Primitive: an Array is a user's handle on a Node, a Node is one output of an application of a Primitive, and a
 * Primitive's rules operate on Arrays. Evaluation is in evaluate.ts. It is long because the three are interdependent.
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

/** Shape and dtype, on which `infer` operates. Every node is one. */
export interface Meta {
  readonly shape: Shape
  readonly dtype: Dtype
}

/** The location of an array's elements in its storage, in elements; null strides mean row-contiguous. */
export interface Layout {
  readonly offset: number
  readonly strides: Strides | null
}

/**
 * The elements that a reference implementation reads and writes: a typed array, of bigints for 64-bit integers.
 */
export interface HostData extends ArrayLike<number> {
  [index: number]: number
  fill(value: number): unknown
  set(values: ArrayLike<number>): void
}

/**
 * An operand of a reference implementation: row-major, float16 and bfloat16 as Float32Array (outputs: Float64Array), complex64 as (re, im)
 * pairs.
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
  /** For each input, true if its cotangent is needed; the others may be null. */
  readonly wanted: readonly boolean[]
}
/** The arguments of a jvp rule. */
export interface JvpContext<P> {
  readonly inputs: readonly Array[]
  readonly outputs: readonly Array[]
  /** One for each input, null if zero. At least one is not null. */
  readonly tangents: readonly (Array | null)[]
  readonly params: P
}
/** The arguments of a vmap rule. */
export interface VmapContext<P> {
  readonly inputs: readonly Array[]
  /** The batch axis of each input, or null. */
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
 * The partial derivative of an elementwise output with respect to one input; a number if constant. For a real output and a complex input,
 * the gradient ∂o/∂Re + i·∂o/∂Im.
 */
export type Partial = Array | number | null

/** The elements that an update overwrites, and an update that restores them. */
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
   * If each row (along the last axis) of the result depends only on the same row of the first input, and on the other inputs, which all
   * rows share: the parameters of the same application to a matrix. Otherwise null.
   */
  rows?(inputs: readonly Meta[], params: P): P | null
  /** For primitives that contain a whole program: the plan that the node's backend runs instead of the decomposition, or null. */
  plan?(node: Node): Plan | null
  /**
   * If inputs are not row-contiguous: a plan that reads them with the given strides (null for contiguous inputs), or null to copy them
   * first.
   */
  planForStrides?(node: Node, strides: readonly (Strides | null)[]): Plan | null
  /** Likewise, for backends without plans: the outputs in terms of other primitives. */
  expand?(node: Node): readonly Array[]
  /**
   * For updates, whose result equals the first input except for some elements: reading the old elements and restoring them are one
   * application each, and the old elements have at most as many bytes as all other inputs together. The restoring primitive has this rule,
   * too.
   */
  undo?(inputs: readonly Array[], params: P): Undoing
}

/** Recorded work that a backend runs as a unit; see backend.ts. */
export interface Plan {
  /** Its id in the backend. */
  readonly id: number
  /** Bytes of scratch memory per run. */
  readonly bytes?: number
  /** Inputs whose memory an output may reuse if they have no other readers. */
  readonly donations?: readonly Donation[]
  /** Inputs that it reads as wider elements, and that need a larger alignment. */
  readonly alignments?: readonly Alignment[]
}

/** The index of an input and its alignment in bytes. */
export interface Alignment {
  readonly input: number
  readonly bytes: number
}

/** The indices of an input and of the output that may reuse its memory. */
export interface Donation {
  readonly input: number
  readonly output: number
}

/** Properties that engines test instead of names. */
export interface PrimitiveFacts {
  /** Its parameters hold its value; kernels read it as an immediate. */
  readonly immediate?: boolean
  /** Broadcasts its input: an elementwise reader can read the input directly. */
  readonly broadcasts?: boolean
  /** A view of all elements of its input in their row-major order, in some shape. */
  readonly keepsOrder?: boolean
  /** Derivatives stop here. */
  readonly stopsGradient?: boolean
  /** Contains a JavaScript function; cannot be exported. */
  readonly opaque?: boolean
  /**
   * Its result is not unique (for example, up to the sign of a vector) and may differ between backends. Tests check the properties of any
   * correct result.
   */
  readonly ambiguous?: boolean
  /** Gathers or scatters at the indices in the second input along the axis `params.axis`. */
  readonly along?: boolean
  /** Replaces a part of the first input with the second or, with the mode "add", adds to it. */
  readonly places?: boolean
  /**
   * Communicates with other processes: evaluated in program order, and never automatically. "derivatives" if only its derivatives may.
   */
  readonly exchanges?: boolean | "derivatives"
  /** Runs for each example of a batch under vmap, also where no input is batched. */
  readonly perExample?: boolean
}

/** A registered primitive. */
export class Primitive {
  /** Cached scalar programs of an elementwise primitive without parameters, by input dtypes. */
  readonly programs: (ScalarProgram | undefined)[] = []
  /** Cached scalar programs of an elementwise primitive with parameters, by input dtypes and parameters. */
  readonly programsByParams = new Map<string, ScalarProgram>()
  /** Kernel ids, by backend index. */
  readonly kernels: (number | undefined)[] = []
  /** True if it is elementwise with broadcasting. */
  readonly elementwise: boolean
  constructor(
    readonly name: string,
    readonly id: number,
    readonly schema: ParamSchema,
    readonly rules: PrimitiveRules<AnyParams>,
    readonly facts: PrimitiveFacts,
    /** The package that registered it. */
    readonly source: string,
    /** The version of that package, if known. */
    readonly version: string | null = null,
  ) {
    this.elementwise = rules.scalar !== undefined
  }
}

/** Flags that nodes inherit from their inputs. */
export enum Mark {
  None = 0,
  /** Depends on an input of grad or jvp: evaluation keeps its graph while a trace is active. */
  Traced = 1,
  /** Depends on a placeholder of vmap or compile: it has no value, and evaluation throws. */
  Abstract = 2,
}

/** The state of tracing. */
export const tracing = {
  /** The number of active traces; while there are any, evaluation keeps the graph of marked nodes. */
  depth: 0,
  /** The number of active traces whose arrays have no values. */
  abstract: 0,
  /** The number of traces started so far. */
  begun: 0,
  /** Evaluated applications whose graph an active trace may need. */
  kept: [] as Application[],
}

/** True while there is a trace, with values or without. */
export const inTrace = (): boolean => tracing.depth + tracing.abstract > 0

/** Recovers a former value of a node's memory: `node` with the overwritten elements restored. See undo.ts. */
export interface Undo {
  /** Null at the start of the chain. */
  readonly node: Node | null
  /** Upper bounds of the number of former values of the same memory, and of the bytes kept for them. */
  count: number
  bytes: number
}

/** One output of an application of a primitive; once evaluated, a location in a storage. */
export class Node {
  /** The memory of its elements, once evaluated. */
  storage: Storage | null = null
  offset = 0
  strides: Strides | null = null
  /** All outputs of the application, including this one; null if there is only one. */
  outputs: readonly Node[] | null = null
  /** The index of this output. */
  index = 0
  /** The number of edges from unevaluated nodes. */
  uses = 0
  /** The number of handles that may be alive and of evaluations that requested it. */
  handles = 0
  /** The id of the weak reference that holds `storage` while this node lives; 0 without one. */
  guard = 0
  /** Holds the storages of tiny nodes evaluated at about the same time; see memory.ts. */
  anchor: object | null = null
  /** The id of the last traversal that visited this node. */
  visit = 0
  /** Its index in the list of the last traversal that visited it, if that list has it there. */
  position = 0
  /** The number of traces started before its creation: a node older than a trace cannot depend on the trace's inputs. */
  readonly epoch: number = tracing.begun
  /** The node that evaluation computes instead: the decomposition. */
  alias: Node | null = null
  /** Set if a later value took over this node's memory although its handle may be alive; see undo.ts. */
  undo: Undo | null = null
  /** Bytes of all elements, without gaps. */
  readonly nbytes: number
  constructor(
    readonly shape: Shape,
    readonly dtype: Dtype,
    /** Null once evaluated, unless a trace needs the graph. */
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

/** An unevaluated application of a primitive, represented by the first of its outputs, which share inputs and parameters. */
export interface Application extends Node {
  primitive: Primitive
}

/** The application of which a node (with a primitive) is an output. */
export const applicationOf = (node: Node): Application =>
  (node.outputs === null ? node : node.outputs[0]) as Application

/** All outputs of an application. */
export const outputsOf = (application: Node): readonly Node[] => application.outputs ?? [application]

/** Detaches a node from its graph. */
export function forgetGraph(node: Node): void {
  node.primitive = null
  // A value without a graph no longer depends on any trace.
  node.mark = Mark.None
  node.inputs = NO_INPUTS
  node.params = NO_PARAMS
}

/**
 * Takes a pending node that nothing reads out of the graph, so that what it reads can be released and written over. With `since`, then also
 * what it alone read, unless that is older than the trace of this number or in `kept`.
 */
export function forsake(
  node: Node,
  since: number = Number.POSITIVE_INFINITY,
  kept: readonly (Node | undefined)[] = NO_INPUTS,
): void {
  const { primitive, inputs, outputs, storage, alias } = node
  if (primitive === null || storage !== null || alias !== null || kept.includes(node)) return
  const all = outputs ?? [node]
  if (all.some(({ uses, handles }) => uses > 0 || handles > 0)) return
  for (const output of all) forgetGraph(output)
  for (const input of inputs) {
    input.uses--
    if (input.epoch >= since) forsake(input, since, kept)
  }
}

/** The tracking of handles; see memory.ts. */
export const handles = {
  /** True if handles are counted, which they are not inside rules and engines. */
  tracking: true,
  /** Handles created since the last flush, which need weak references. */
  fresh: [] as Array[],
  /** Handles of small pending nodes created since the last evaluation; entries from `recentCount` on are null. */
  recent: [] as (Array | null)[],
  recentCount: 0,
  /** Bytes of nodes that may be created before the weight of pending arrays is measured again. */
  budget: 0,
  /** The value of `budget` below which {@link boundPending} calls `overflow`. */
  floor: 0,
  /** See {@link boundPending}. */
  overflow: (): void => {},
  /** Called when there are {@link MANY_FRESH}: short-lived handles are cheap to find. */
  flush: (): void => {},
  /** Called with every new handle while a {@link tidy} runs. */
  scope: null as ((handle: Array) => void) | null,
}

/** A pending graph of this weight (see pending-weight.ts) is evaluated automatically. */
export const PENDING_BYTES = 64 * 2 ** 20
handles.budget = PENDING_BYTES
/** The least bytes of nodes created between two measurements of pending arrays, to amortize their cost. */
export const LEAST_MADE = PENDING_BYTES / 8
/** The number of handles of large nodes that get weak references in one batch. */
const MANY_FRESH = 1024
/** The approximate size of a node in bytes. */
export const GRAPH_BYTES = 1024

/** The debug mode's hook: called with every new node. */
export const building = { note: null as ((node: Node) => void) | null }

/** The values of a handle's `ref` other than the id of a weak reference. */
export enum Ref {
  /** Created inside a rule or an engine: not counted; its memory may be reused once the graph no longer needs it. */
  Untracked = 0,
  /** Disposed by the user. */
  Disposed = -1,
  /** Counted, without a weak reference yet. */
  Fresh = -2,
  /** Counted, of a small node: a weak reference on the node releases the memory when the node is collected. */
  Counted = -3,
}

/** From this size on every handle has a weak reference, so that memory is reused as soon as the handle is known to be dead. */
const LARGE = 65536

/** True if a node's handles have weak references. */
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
 * An n-dimensional array: immutable elements of one dtype, lazily evaluated. `mx.array(data)` creates one; operations are functions
 * (`mx.add(a, b)`) and methods (`a.add(b)`).
 */
export class Array {
  /** The node this handle refers to. Engine-internal. */
  node: Node
  /** The id of its weak reference, or a {@link Ref}. Engine-internal. */
  ref: number

  // Short enough for V8 to inline into every operation.
  constructor(node: Node) {
    this.node = node
    this.ref = Ref.Untracked
    if (handles.tracking) track(this)
  }

  /** The size of each axis: a new list, which is the caller's to change. */
  get shape(): number[] {
    if (calls.recorder !== null) calls.recorder.readSizes()
    return this.node.shape.slice()
  }
  /** The type of the elements. */
  get dtype(): Dtype {
    return this.node.dtype
  }
  /** The number of axes. */
  get ndim(): number {
    if (calls.recorder !== null) calls.recorder.readRank()
    return this.node.shape.length
  }
  /** The number of elements. */
  get size(): number {
    if (calls.recorder !== null) calls.recorder.readSizes()
    return sizeOf(this.node.shape)
  }
  /** Bytes per element. */
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
 * An array whose value type is known to the type checker: number, bigint (64-bit integers), boolean or Complex.
 */
export interface ArrayOf<V extends Value> extends Array {
  [HOLDS]?(value: V): void
}

/** Runs `body` with untracked handles: the memory of arrays created in it is reused as soon as the graph no longer needs it. */
export function withoutHandles<T>(body: () => T): T {
  const before = handles.tracking
  handles.tracking = false
  try {
    return body()
  } finally {
    handles.tracking = before
  }
}

/** Tracks only the array that `body` returns, so that intermediate arrays do not hold memory. */
export function composed(body: () => Array): Array {
  // Nothing is evaluated while handles are not tracked.
  boundPending()
  return new Array(withoutHandles(body).node)
}

/** A node without a primitive: existing memory or, with `Mark.Abstract`, a placeholder. */
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

/** Evaluates pending arrays if they have grown too large. Called before adding to the graph. */
export function boundPending(): void {
  if (handles.budget < handles.floor) handles.overflow()
}

/**
 * Begins a trace, in which nothing is evaluated automatically; {@link handles}.overflow only flushes handles now and then. Returns the
 * `floor` to restore at its end.
 */
export function boundTrace(): number {
  boundPending()
  const { floor } = handles
  handles.floor = handles.budget - LEAST_MADE
  return floor
}

/** Runs the body of a trace whose arrays have no values; nothing is evaluated automatically in it. */
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

/** Adds an application with a single output to the graph. `infer` validates the inputs. */
export function applyNode(primitive: Primitive, inputs: readonly Node[], params: AnyParams): Node {
  boundPending()
  return addNode(primitive, inputs, params, primitive.rules.infer(inputs, params) as Meta)
}

/** The same for validated inputs, with the output's shape and dtype. */
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

/** Adds an application with any number of outputs. Never triggers evaluation, so that engines can rebuild graphs with it. */
export function applyNodes(primitive: Primitive, inputs: readonly Node[], params: AnyParams): Node[] {
  return addNodes(primitive, inputs, params, primitive.rules.infer(inputs, params))
}

/** The same for validated inputs. */
export function addNodes(
  primitive: Primitive,
  inputs: readonly Node[],
  params: AnyParams,
  metas: Meta | readonly Meta[],
): Node[] {
  const list = globalThis.Array.isArray(metas) ? (metas as readonly Meta[]) : [metas as Meta]
  // Indexed loops, for speed: a call of a compiled training step has dozens of both.
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
