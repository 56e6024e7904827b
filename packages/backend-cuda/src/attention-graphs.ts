/**
 * Attention and its derivative as graphs of operations for cuDNN, which recognizes them: the same operations in the order in which NVIDIA's
 * frontend (cudnn-frontend, its flash attention) writes them.
 */
import { Fold, Mode, OperationGraph, rowMajor, type Tensor, Type } from "./operation-graph"

/** An application's form: all that its graph depends on. */
export interface AttentionForm {
  readonly type: Type
  /** Batch, heads, queries, features. */
  readonly q: readonly number[]
  /** Batch, key heads, keys, features; of values as many features. */
  readonly k: readonly number[]
  /** Strides of the inputs in their order: q, k, v; for the derivative also o and g. */
  readonly strides: readonly (readonly number[])[]
  readonly scale: number
  readonly causal: boolean
  /** Sizes and strides of a bias, with the type of the queries. */
  readonly bias: { readonly sizes: readonly number[]; readonly strides: readonly number[] } | null
}

const swapped = ([a, b, c, d]: readonly number[]): number[] => [a, b, d, c]

/** Keys that the queries see, the ends of both aligned. */
function masked(graph: OperationGraph, scores: Tensor): Tensor {
  const [, , queries, keys] = scores.sizes
  let row = graph.positions(scores, 2)
  const column = graph.positions(scores, 3)
  if (queries !== keys) {
    const options = { type: Type.Int32, compute: Type.Int32 }
    row = graph.map(Mode.Add, row, graph.scalar(keys, Type.Int32), options)
    row = graph.map(Mode.Subtract, row, graph.scalar(queries, Type.Int32), options)
  }
  const seen = graph.map(Mode.GreaterEqual, row, column, { type: Type.Bool, compute: Type.Bool })
  return graph.select(seen, scores, graph.scalar(Number.NEGATIVE_INFINITY))
}

/** Arrays: q, k, v, bias?, o, log Σ exp. */
export function forwardGraph(form: AttentionForm): OperationGraph {
  const { type, q: sizes, k: keySizes, strides, scale, causal, bias } = form
  const graph = new OperationGraph()
  const [q, k, v] = [
    graph.array(type, sizes, strides[0]),
    graph.array(type, swapped(keySizes), swapped(strides[1])),
    graph.array(type, keySizes, strides[2]),
  ]
  const added = bias && graph.array(type, bias.sizes, bias.strides)
  const rows = [...sizes.slice(0, 3), 1]
  const [o, sums] = [graph.array(type, sizes), graph.array(Type.Float32, rows)]
  let scores = graph.map(Mode.Multiply, graph.matmul(q, k), graph.scalar(scale))
  if (added) scores = graph.map(Mode.Add, scores, added)
  if (causal) scores = masked(graph, scores)
  const top = graph.fold(Fold.Max, scores, rows)
  const powers = graph.map(Mode.Exp, graph.map(Mode.Subtract, scores, top))
  const sum = graph.fold(Fold.Sum, powers, rows)
  graph.map(Mode.Add, top, graph.map(Mode.Log, sum), { into: sums })
  graph.matmul(graph.map(Mode.Divide, powers, sum, { type }), v, o)
  return graph
}

/** Arrays: q, k, v, o, log Σ exp, g, bias?, dq, dk, dv, and scratch: Σ g·o of each query, and dq in float32. */
export function backwardGraph(form: AttentionForm): OperationGraph {
  const { type, q: sizes, k: keySizes, strides, scale, causal, bias } = form
  const graph = new OperationGraph()
  const rows = [...sizes.slice(0, 3), 1]
  const q = graph.array(type, sizes, strides[0])
  const k = graph.array(type, swapped(keySizes), swapped(strides[1]))
  const v = graph.array(type, swapped(keySizes), swapped(strides[2]))
  const o = graph.array(type, sizes, strides[3])
  const stats = graph.array(Type.Float32, rows)
  const g = graph.array(type, sizes, strides[4])
  const added = bias && graph.array(type, bias.sizes, bias.strides)
  const [dq, dk, dv] = [graph.array(type, sizes), graph.array(type, keySizes), graph.array(type, keySizes)]
  const shares = graph.array(Type.Float32, rows)
  const total = graph.array(Type.Float32, sizes)
  const factor = graph.scalar(scale)
  const [batch, heads, queries] = sizes
  const [, keyHeads, keys, features] = keySizes

  const share = graph.fold(Fold.Sum, graph.map(Mode.Multiply, g, o), rows)
  graph.map(Mode.Multiply, share, graph.scalar(1), { into: shares })
  let scores = graph.map(Mode.Multiply, graph.matmul(q, k), factor)
  if (added) scores = graph.map(Mode.Add, scores, added)
  scores = graph.map(Mode.Subtract, scores, stats)
  if (causal) scores = masked(graph, scores)
  const powers = graph.map(Mode.Exp, scores)
  const turned = [batch, heads, keys, queries]
  const turnedStrides = swapped(rowMajor(scores.sizes))
  const across = (x: Tensor): Tensor => graph.reshape(x, turned, turnedStrides, type)
  /** A gradient of keys or values; query heads that share a key head add up. */
  const gradient = (left: Tensor, right: Tensor, into: Tensor): void => {
    if (heads === keyHeads) graph.matmul(left, right, into)
    else graph.fold(Fold.Sum, graph.matmul(left, right, undefined, type), into)
  }
  gradient(across(powers), g, dv)
  let slopes = graph.map(Mode.Subtract, graph.matmul(g, v), shares)
  slopes = graph.map(Mode.Multiply, slopes, powers)
  slopes = graph.map(Mode.Multiply, slopes, factor)
  gradient(across(slopes), q, dk)
  const back = graph.reshape(k, [batch, keyHeads, keys, features], strides[1], Type.Float32)
  graph.matmul(slopes, back, total)
  graph.map(Mode.Identity, total, null, { into: dq })
  return graph
}
