/**
 * The calls that a function made while it was traced, to be made again for other shapes without running the function. A call holds numbers
 * in place of the arrays that the trace computed.
 */
import {
  Array,
  type CallRecorder,
  calls,
  cast,
  currentStream,
  implicitState,
  isDtype,
  isList,
  isPlainObject,
  lifetimes,
  Mark,
  Node,
  onStream,
  primitiveNameOf,
  type StreamLike,
  TransformError,
  withoutHandles,
} from "@lazuli/core/engine"

/** Stands for an array, or for a node, that an earlier call gave or that is an input. */
export class ValueRef {
  constructor(
    readonly id: number,
    readonly isHandle: boolean,
  ) {}
}

/** One call: arguments with references in them, and the numbers of the arrays that it gave. */
export interface RecordedCall {
  readonly name: string
  readonly run: (...args: never[]) => unknown
  readonly args: readonly unknown[]
  readonly results: readonly number[]
  /** The form of its result: see {@link formOf}. Null where it is not known. */
  readonly form: string | null
  /** Where it was made; null stands for the current stream, as where nothing named another. */
  readonly stream: StreamLike
}

/** Copies lists and plain data objects; `replace` decides about everything else. */
function mapValues(value: unknown, replace: (leaf: unknown) => unknown): unknown {
  if (isList(value)) return value.map((child) => mapValues(child, replace))
  if (isPlainObject(value) && !Object.values(value).some((child) => typeof child === "function"))
    return Object.fromEntries(Object.entries(value).map(([key, child]) => [key, mapValues(child, replace)]))
  return replace(value)
}

/** Adds the nodes in a result, in order. */
function addNodesIn(result: unknown, nodes: Node[]): Node[] {
  mapValues(result, (leaf) => {
    if (leaf instanceof Array) nodes.push(leaf.node)
    else if (leaf instanceof Node) nodes.push(leaf)
    return leaf
  })
  return nodes
}

function stateNodes(): Node[] {
  const nodes: Node[] = []
  for (const list of implicitState) for (const value of list) addNodesIn(value, nodes)
  return nodes
}

/** The results of a call: their nodes, and of the implicit state what differs from `before`. */
function resultsOf(result: unknown, before: readonly Node[], after: readonly Node[]): Node[] {
  const nodes = addNodesIn(result, [])
  for (let i = 0; i < after.length; i++) if (after[i] !== before[i]) nodes.push(after[i])
  return nodes
}

/**
 * Numbers in a result, and null where there is no array, as of a gradient that is zero; nothing for arrays alone. A function may go by
 * them, so they must be the same for other sizes.
 */
function formOf(result: unknown): string {
  if (result instanceof Array) return ""
  const parts: string[] = []
  mapValues(result, (leaf) => {
    const isData = leaf === null || (typeof leaf !== "object" && typeof leaf !== "function")
    if (leaf !== undefined) parts.push(isData ? String(leaf) : leaf instanceof Array ? "array" : "object")
    return leaf
  })
  return parts.every((part) => part === "array") ? "" : parts.join()
}

/** The number of call sites of shape reads that are kept for messages. */
const MAX_READS = 4

/** Lines that messages pass over where a function saw sizes through one of ours. */
const OWN = /[\\/](@lazuli|node_modules[\\/]lazuli|packages)[\\/]/

/** The lines of the call stack, whatever the program around does with stacks; none where it has frozen that. */
function callSites(): string[] {
  const { stackTraceLimit, prepareStackTrace } = Error
  Reflect.set(Error, "stackTraceLimit", 16)
  Reflect.set(Error, "prepareStackTrace", undefined)
  try {
    const lines = String(new Error().stack).split("\n")
    return lines.slice(4).map((line) => line.trim().replace(/^at /, ""))
  } finally {
    Reflect.set(Error, "stackTraceLimit", stackTraceLimit)
    Reflect.set(Error, "prepareStackTrace", prepareStackTrace)
  }
}

/** Remembers a trace's calls. */
export class Recorder implements CallRecorder {
  readonly recorded: RecordedCall[] = []
  /** True if the function itself looked at sizes, or at what depends on them, or caught an error: its calls are those for these sizes. */
  isSized = false
  /** The call whose error it caught, if one threw. */
  caught: string | null = null
  /** Where it looked: lines of the call stack, for messages. */
  readonly reads: string[] = []
  /** True if it looked at sizes or at numbers of axes: its calls may be others for arrays with more of these, or fewer. */
  readShapes = false
  /** Why the calls are not all there is to the function, if they are not. */
  gap: string | null = null
  private readonly ids = new Map<Node, number>()
  /** Those of them that calls made of nothing that other sizes change. */
  private readonly constants = new Set<Node>()
  private readonly home = currentStream()

  constructor(inputs: readonly Node[]) {
    for (const node of inputs) this.ids.set(node, this.ids.size)
  }

  call<A extends readonly unknown[], R>(name: string, f: (...args: A) => R, args: A): R {
    let isConstant = true
    const frozen = mapValues(args, (leaf) => {
      isConstant &&= this.isConstant(leaf)
      return this.freeze(leaf, name)
    }) as readonly unknown[]
    const before = stateNodes()
    calls.recorder = null
    let result: R
    try {
      result = f(...args)
      this.renew(result, args)
    } catch (error) {
      // For other sizes it may succeed.
      this.isSized = true
      this.caught ??= primitiveNameOf(name)
      throw error
    } finally {
      calls.recorder = this
    }
    const nodes = resultsOf(result, before, stateNodes())
    const results = nodes.map((node) => this.number(node))
    if (isConstant) for (const node of nodes) this.constants.add(node)
    const stream = currentStream() === this.home ? null : currentStream()
    const run = f as RecordedCall["run"]
    // For other sizes a list may hold arrays that is empty for these.
    if (results.length > 0 || result !== undefined)
      this.recorded.push({ name, run, args: frozen, results, form: formOf(result), stream })
    return result
  }

  readRank(): void {
    this.readShapes = true
  }

  readValue(node: Node): void {
    if (this.ids.has(node) && !this.constants.has(node)) this.readSizes(true)
  }

  readSizes(isShown = false): void {
    this.readShapes = true
    this.isSized = true
    if (this.reads.length >= MAX_READS) return
    const stack = callSites()
    const line = (isShown ? stack.find((each) => !OWN.test(each)) : undefined) ?? stack[0]
    if (line && !this.reads.includes(line)) this.reads.push(line)
  }

  /** The number of a node that the function gave; null for one from outside the trace. */
  idOf(node: Node): number | null {
    const id = this.ids.get(node)
    if (id === undefined && (node.mark & Mark.Abstract) !== 0) this.gap ??= "a result"
    return id ?? null
  }

  /**
   * Gives results that are arguments for these sizes, as a roll of one element is, nodes of their own: for other sizes they are something
   * else than the arguments, and have their own numbers.
   */
  private renew(result: unknown, args: readonly unknown[]): void {
    const given = new Set<unknown>()
    mapValues(args, (leaf) => given.add(leaf))
    mapValues(result, (leaf) => {
      if (leaf instanceof Array && this.ids.has(leaf.node) && !given.has(leaf))
        lifetimes.rebind(leaf, withoutHandles(() => cast([leaf], { dtype: leaf.node.dtype })).node)
      return leaf
    })
  }

  private isConstant(leaf: unknown): boolean {
    const node = leaf instanceof Array ? leaf.node : leaf
    if (node instanceof Node) return !this.ids.has(node) || this.constants.has(node)
    // Functions and objects of classes may hold anything.
    return leaf === null || isDtype(leaf) || (typeof leaf !== "object" && typeof leaf !== "function")
  }

  private number(node: Node): number {
    let id = this.ids.get(node)
    if (id === undefined) this.ids.set(node, (id = this.ids.size))
    return id
  }

  private freeze(leaf: unknown, name: string): unknown {
    const isHandle = leaf instanceof Array
    if (!isHandle && !(leaf instanceof Node)) return leaf
    const node = isHandle ? leaf.node : leaf
    const id = this.ids.get(node)
    if (id !== undefined) return new ValueRef(id, isHandle)
    if ((node.mark & Mark.Abstract) !== 0) this.gap ??= name
    // The value that x.set rebinds later must stay what it was.
    return isHandle ? new Array(node) : node
  }
}

/** Makes the calls again on other inputs, and gives the nodes by number. `failed` makes of an error what is thrown in its place. */
export function repeat(
  recorded: readonly RecordedCall[],
  inputs: readonly Node[],
  failed: (error: unknown, at: number) => unknown = (error) => error,
): (Node | undefined)[] {
  const values: (Node | undefined)[] = [...inputs]
  const thaw = (leaf: unknown): unknown => {
    if (!(leaf instanceof ValueRef)) return leaf
    const node = values[leaf.id] as Node
    return leaf.isHandle ? new Array(node) : node
  }
  let state = stateNodes()
  const make = ({ name, run, args, results, form, stream }: RecordedCall): void => {
    const given = mapValues(args, thaw) as never[]
    // A trace that makes the calls of a file is a trace of these calls.
    const again = (): unknown =>
      calls.recorder === null ? run(...given) : calls.recorder.call(name, run, given)
    const result = stream === null ? again() : onStream(stream, again)
    const after = stateNodes()
    const nodes = resultsOf(result, state, after)
    state = after
    if (nodes.length !== results.length)
      throw new TransformError(
        name,
        `gave ${results.length} arrays when it was traced and gives ${nodes.length} for these shapes`,
      )
    if (form !== null && formOf(result) !== form)
      throw new TransformError(name, "gave other numbers when it was traced than it gives for these shapes")
    results.forEach((id, i) => {
      values[id] = nodes[i]
    })
  }
  recorded.forEach((call, i) => {
    try {
      make(call)
    } catch (error) {
      throw failed(error, i)
    }
  })
  return values
}

/** Runs `body`, and puts the implicit state back that it changes: traces draw no random numbers. */
export function withoutEffects<T>(body: () => T): T {
  const before = implicitState.map((list) => [...list])
  try {
    return body()
  } finally {
    implicitState.forEach((list, i) => (list as unknown[]).splice(0, list.length, ...before[i]))
  }
}
