/**
 * Attention and its derivative by cuDNN. A mask becomes a bias; queries that see nothing, and sinks, are seen to afterwards, row by row.
 */
import { broadcastStrides, float32, type Node, type Storage, sizeOf } from "@lazuli/core/engine"
import {
  type Argument,
  type DispatchQueue,
  isCountable,
  type Location,
  locationOf,
  type View,
  viewOf,
  withRowMajor,
} from "@lazuli/gpu-kernels"
import { type AttentionForm, backwardGraph, forwardGraph } from "./attention-graphs"
import { nativeSource, TYPE_DEFINITIONS } from "./native-source"
import { rowMajor, Type } from "./operation-graph"

/** The command's code; native/cuda/device.cc has the same. */
export const OPERATION_GRAPH = 35
const TYPES: Readonly<Record<string, Type>> = { float16: Type.Float16, bfloat16: Type.BFloat16 }
/** Elements of 16 bytes, in which rows are read. */
const CHUNK = 8
const [THREADS, WARP] = [256, 32]

/** The number of a graph of operations, or null where cuDNN does not take it. */
export type Prepare = (words: BigInt64Array) => number | null

/** The inputs that a graph reads: q, k, v, and for the derivative o and g. */
export function operandsOf(node: Node, backward: boolean): readonly Node[] {
  const { inputs } = node
  return backward
    ? [...inputs.slice(0, 3), inputs[inputs.length - 3], inputs[inputs.length - 1]]
    : inputs.slice(0, 3)
}
const maskOf = ({ inputs, params }: Node): Node | null => (params.hasMask ? inputs[3] : null)
const sinksOf = ({ inputs, params }: Node): Node | null =>
  params.hasSinks ? inputs[params.hasMask ? 4 : 3] : null

/** Rows at multiples of 16 bytes. */
export const isAligned = ({ offset, strides, shape }: View): boolean =>
  strides[3] === 1 &&
  offset % CHUNK === 0 &&
  strides.slice(0, 3).every((stride, i) => shape[i] === 1 || stride % CHUNK === 0)

/** A view as cuDNN takes it: features side by side, rows at multiples of 16 bytes, nothing repeated. */
const isPlain = (view: View): boolean =>
  isAligned(view) && view.shape.every((n, i) => n === 1 || view.strides[i] > 0)

/** Sizes and strides of the bias that a mask becomes; `direct` where it is one already. */
function biasOf(
  mask: Node,
  queries: number,
  keys: number,
): NonNullable<AttentionForm["bias"]> & { direct: boolean } {
  const sizes = [...mask.shape.slice(0, 2), queries, keys]
  const pitch = Math.ceil(keys / CHUNK) * CHUNK
  const view = viewOf(mask)
  const isWhole = mask.shape[2] === queries && mask.shape[3] === keys
  const direct = mask.dtype.kind !== "bool" && isWhole && isPlain(view)
  const packed = [mask.shape[1] * queries * pitch, queries * pitch, pitch, 1]
  return {
    sizes,
    strides: direct ? view.strides.map((n, i) => (sizes[i] === 1 ? packed[i] : n)) : packed,
    direct,
  }
}

/** The form of an application, its views as they lie or as copies of them would. */
function formOf(node: Node, backward: boolean): AttentionForm | null {
  const [q, k, v] = node.inputs
  const { scale, causal } = node.params as { scale: number; causal: boolean }
  const mask = maskOf(node)
  const operands = operandsOf(node, backward)
  const [, , queries, features] = q.shape
  const keys = k.shape[2]
  if (
    !Object.hasOwn(TYPES, q.dtype.name) ||
    operands.some((each) => each.dtype !== q.dtype || sizeOf(each.shape) === 0) ||
    (mask !== null && (sizeOf(mask.shape) === 0 || (mask.dtype.kind !== "bool" && mask.dtype !== q.dtype))) ||
    (backward && node.inputs[node.inputs.length - 2].dtype !== float32) ||
    features !== v.shape[3] ||
    features % CHUNK !== 0 ||
    // A query that sees nothing has zeros here, and is no number there.
    (causal && queries > keys) ||
    !isCountable(node)
  )
    return null
  const strides = operands.map((each) => {
    const view = viewOf(each)
    const packed = rowMajor(view.shape)
    return isPlain(view) ? view.strides.map((n, i) => (view.shape[i] === 1 ? packed[i] : n)) : packed
  })
  const bias = mask && biasOf(mask, queries, keys)
  return { type: TYPES[q.dtype.name], q: q.shape, k: k.shape, strides, scale, causal, bias }
}

/** Finds the graphs of applications, which are prepared once. */
export function graphFinder(library: () => Prepare | null): (node: Node, backward: boolean) => number | null {
  /** By form; null where cuDNN does not take it. */
  const known = new Map<string, number | null>()
  return (node, backward) => {
    const prepare = library()
    const form = prepare && formOf(node, backward)
    if (!form) return null
    const { type, q, k, strides, scale, causal, bias } = form
    const added = bias && `${bias.sizes} ${bias.strides}`
    const key = `${backward} ${type} ${q} ${k} ${strides.join(" ")} ${scale} ${causal} ${added}`
    let graph = known.get(key)
    if (graph === undefined) {
      graph = (prepare as Prepare)((backward ? backwardGraph(form) : forwardGraph(form)).words())
      known.set(key, graph)
    }
    return graph
  }
}

/** Runs `body` with locations of all views. */
function located(
  queue: DispatchQueue,
  views: readonly View[],
  body: (locations: readonly Location[]) => void,
  known: readonly Location[] = [],
): void {
  if (known.length === views.length) {
    body(known)
    return
  }
  const view = views[known.length]
  const next = (location: Location): void => located(queue, views, body, [...known, location])
  if (isPlain(view)) next(locationOf(view))
  else withRowMajor(queue, view, next)
}

/** The row by row work of one application. */
class RowWork {
  private readonly kept: Storage[] = []
  private readonly words: string

  constructor(
    private readonly queue: DispatchQueue,
    private readonly node: Node,
  ) {
    const mask = maskOf(node)
    const kind = mask === null ? 0 : mask.dtype.kind === "bool" ? 1 : 2
    this.words = `#define LZ_MASK ${kind}\n${TYPE_DEFINITIONS[node.inputs[0].dtype.name]}`
  }

  scratch(elements: number, size = 4): Location {
    const storage = this.queue.allocate(elements * size)
    this.kept.push(storage)
    return { storage, offset: 0 }
  }
  drop(): void {
    for (const storage of this.kept) storage.drop()
  }
  dispatch(name: string, args: readonly Argument[], written: readonly Location[], threads: number): void {
    this.queue.dispatch({
      op: this.node.primitive?.name as string,
      kernel: {
        key: `cuda attention rows ${name} ${this.words}`,
        name,
        source: () => nativeSource("attention-rows.cu", this.words),
        isNative: true,
      },
      arguments: args,
      writes: written.map(({ storage }) => storage),
      grid: [Math.ceil(threads / THREADS) * THREADS, 1, 1],
      threadgroup: [THREADS, 1, 1],
    })
  }

  /** The bias, and for each of its rows whether it hides every key; null without a mask. */
  mask(wantsRows: boolean): { bias: Location; hidden: Location | null } | null {
    const { node } = this
    const mask = maskOf(node)
    if (mask === null) return null
    const [queries, keys] = [node.inputs[0].shape[2], node.inputs[1].shape[2]]
    const view = viewOf(mask)
    const { sizes, strides, direct } = biasOf(mask, queries, keys)
    if (direct && !wantsRows) return { bias: locationOf(view), hidden: null }
    const rows = sizeOf(sizes.slice(0, 3))
    const hidden = this.scratch(rows)
    const bias = direct ? locationOf(view) : this.scratch(rows * strides[2], 2)
    const steps = broadcastStrides(view.shape, view.strides, sizes)
    const at = BigInt64Array.from([...steps, sizes[1], queries, keys, strides[2], rows], BigInt)
    const flags = [Number(node.params.causal), Number(!direct)].map((n) => Int32Array.of(n))
    // Nothing is written to a mask that is a bias already.
    const written = direct ? [hidden] : [bias, hidden]
    this.dispatch("mask_rows", [locationOf(view), bias, hidden, at, ...flags], written, rows * WARP)
    return { bias, hidden }
  }

  /** Zeros where a query sees nothing, and the shares of sinks. */
  finish(results: readonly Location[], hidden: Location | null): void {
    const { node } = this
    const sinks = sinksOf(node)
    if (hidden === null && sinks === null) return
    const [batch, heads, queries, features] = node.inputs[0].shape
    const mask = maskOf(node)
    const [batches, several] = mask ? mask.shape : [1, 1]
    const rows = batch * heads * queries
    const hiddenSteps = [batches > 1 ? several * queries : 0, several > 1 ? 1 : 0]
    const run = (sink: Location | null): void => {
      const sinkSteps = sinks ? [sinks.shape[0] > 1 ? heads : 0, 1] : [0, 0]
      const at = BigInt64Array.from([heads, queries, features, rows, ...hiddenSteps, ...sinkSteps], BigInt)
      const flags = [hidden, sink].map((each) => Int32Array.of(Number(each !== null)))
      // The kernel does not read what is not there.
      const args = [...results, hidden ?? results[1], sink ?? results[1], at, ...flags]
      this.dispatch("finish_rows", args, results, rows * WARP)
    }
    if (sinks) withRowMajor(this.queue, viewOf(sinks), run)
    else run(null)
  }

  sinkSlopes(sums: Location, shares: Location, to: Location): void {
    const { node } = this
    const sinks = sinksOf(node) as Node
    const [batch, heads, queries] = node.inputs[0].shape
    const batches = sinks.shape[0] === 1 ? batch : 1
    withRowMajor(this.queue, viewOf(sinks), (at) => {
      const sizes = [heads, queries, batches].map((n) => BigInt64Array.of(BigInt(n)))
      const blocks = sizeOf(sinks.shape)
      this.dispatch("sink_slopes", [sums, shares, at, to, ...sizes], [to], blocks * THREADS)
    })
  }
}

export function encodeGraph(node: Node, queue: DispatchQueue, graph: number, backward: boolean): void {
  const outputs = (node.outputs as readonly Node[]).map(({ storage, offset, dtype }) => ({
    storage: storage as Storage,
    offset: offset * dtype.size,
  }))
  const operands = operandsOf(node, backward).map(viewOf)
  const work = new RowWork(queue, node)
  const call = (locations: readonly Location[], written: readonly Location[]): void =>
    queue.call({
      op: node.primitive?.name as string,
      code: OPERATION_GRAPH,
      words: Int32Array.of(graph),
      arguments: [...locations, ...written],
      writes: written.map(({ storage }) => storage),
    })
  const masked = work.mask(!backward)
  const bias = masked ? [masked.bias] : []
  if (!backward) {
    located(queue, operands, (locations) => call([...locations, ...bias], outputs))
    work.finish(outputs, masked?.hidden ?? null)
    work.drop()
    return
  }
  const sums = viewOf(node.inputs[node.inputs.length - 2])
  const { shape } = node.inputs[0]
  const [dq, dk, dv, dsinks] = outputs
  located(queue, operands, ([q, k, v, o, g]) =>
    withRowMajor(queue, sums, (lse) => {
      const rows = sizeOf(shape.slice(0, 3))
      const [shares, total] = [work.scratch(rows), work.scratch(sizeOf(shape))]
      let closed = lse
      if (masked) {
        closed = work.scratch(rows)
        work.dispatch("close_rows", [lse, closed, BigInt64Array.of(BigInt(rows))], [closed], rows)
      }
      // The library adds to what is there.
      const quarters = sizeOf(shape) / 4
      work.dispatch("set_zero", [total, BigInt64Array.of(BigInt(quarters))], [total], quarters)
      call([q, k, v, o, closed, g, ...bias], [dq, dk, dv, shares, total])
      if (dsinks) work.sinkSlopes(lse, shares, dsinks)
    }),
  )
  work.drop()
}
