/**
 * Losses of similarity, distance and ranking.
 */
import * as mx from "@lazuli/core"
import { atLeastFloat } from "@lazuli/core/engine"
import { operation } from "../operation"
import { checkShapes, type Reduction, reduce, reductions } from "./reduction"

/** Squares of float16 overflow before their roots would. */
const wide = (x: mx.Array): mx.Array => (x.dtype === mx.float16 ? x.astype(mx.float32) : x)
/** Converts the result of {@link wide} inputs back to their dtype. */
const narrow = (y: mx.Array, dtype: mx.Dtype): mx.Array => (dtype === mx.float16 ? y.astype(dtype) : y)

const tripletLossArgs = operation(
  "tripletLoss",
  {
    anchors: "array",
    positives: "array",
    negatives: "array",
    axis: "axis?",
    p: "positive?",
    margin: "number?",
    eps: "nonNegative?",
    reduction: reductions,
  },
  (
    anchors: mx.Array,
    positives: mx.Array,
    negatives: mx.Array,
    axis: number = -1,
    p: number = 2,
    margin: number = 1,
    eps: number = 1e-6,
    reduction: Reduction = "none",
  ) => {
    const distance = (others: mx.Array): mx.Array => {
      const difference = anchors.subtract(others)
      const d = wide(difference)
      const powers = (p === 2 ? d.square() : d.abs().power(p)).sum(axis).add(eps)
      return narrow(p === 2 ? powers.sqrt() : powers.power(1 / p), difference.dtype)
    }
    const loss = mx.maximum(distance(positives).subtract(distance(negatives)).add(margin), 0)
    return reduce(loss, reduction)
  },
)
/** Options of {@link tripletLoss}. */
export interface TripletLossOptions {
  /** The axis of the features; the last by default. */
  axis?: number
  /** The exponent of differences; 2 by default. */
  p?: number
  /** The margin between the distances of positives and negatives; 1 by default. */
  margin?: number
  /** Added under the roots; 1e-6 by default. */
  eps?: number
}
/**
 * max(d(anchors, positives) − d(anchors, negatives) + margin, 0) with d(a, b) = (Σ |a − b|ᵖ + eps)^(1/p).
 * @example
 * nn.losses.tripletLoss(mx.array([[0]]), mx.array([[0]]), mx.array([[9]])).tolist() // => [0]
 */
export function tripletLoss(
  anchors: mx.Array,
  positives: mx.Array,
  negatives: mx.Array,
  axis?: number,
  p?: number,
  margin?: number,
  eps?: number,
  reduction?: Reduction,
  options?: mx.StreamOptions,
): mx.Array
export function tripletLoss(
  anchors: mx.Array,
  positives: mx.Array,
  negatives: mx.Array,
  axis: number,
  options: { reduction?: Reduction } & Omit<TripletLossOptions, "axis"> & mx.StreamOptions,
): mx.Array
export function tripletLoss(
  anchors: mx.Array,
  positives: mx.Array,
  negatives: mx.Array,
  options: { reduction?: Reduction } & TripletLossOptions & mx.StreamOptions,
): mx.Array
export function tripletLoss(...args: unknown[]): mx.Array {
  return tripletLossArgs(args)
}

const cosineSimilarityLossArgs = operation(
  "cosineSimilarityLoss",
  { x1: "array", x2: "array", axis: "axis?", eps: "nonNegative?", reduction: reductions },
  (x1: mx.Array, x2: mx.Array, axis: number = 1, eps: number = 1e-8, reduction: Reduction = "none") => {
    const [a, b] = [wide(x1), wide(x2)]
    const norm = (x: mx.Array): mx.Array => x.square().sum(axis).sqrt()
    const loss = a
      .multiply(b)
      .sum(axis)
      .divide(mx.maximum(norm(a).multiply(norm(b)), eps))
    // The norm of integers is float32.
    return reduce(narrow(loss, x1.dtype === x2.dtype ? x1.dtype : loss.dtype), reduction)
  },
)
/**
 * x₁·x₂ / max(‖x₁‖ ‖x₂‖, eps), along the axis.
 * @example
 * nn.losses.cosineSimilarityLoss(mx.array([[3, 4]]), mx.array([[3, 4]])).tolist() // => [1]
 */
export function cosineSimilarityLoss(
  x1: mx.Array,
  x2: mx.Array,
  axis?: number,
  eps?: number,
  reduction?: Reduction,
  options?: mx.StreamOptions,
): mx.Array
export function cosineSimilarityLoss(
  x1: mx.Array,
  x2: mx.Array,
  axis: number,
  options: { eps?: number; reduction?: Reduction } & mx.StreamOptions,
): mx.Array
export function cosineSimilarityLoss(
  x1: mx.Array,
  x2: mx.Array,
  options: { axis?: number; eps?: number; reduction?: Reduction } & mx.StreamOptions,
): mx.Array
export function cosineSimilarityLoss(...args: unknown[]): mx.Array {
  return cosineSimilarityLossArgs(args)
}

const marginRankingLossArgs = operation(
  "marginRankingLoss",
  { inputs1: "array", inputs2: "array", targets: "array", margin: "number?", reduction: reductions },
  (
    inputs1: mx.Array,
    inputs2: mx.Array,
    targets: mx.Array,
    margin?: number,
    reduction: Reduction = "none",
  ) => {
    const op = "marginRankingLoss"
    checkShapes(op, ["inputs1", "inputs2", "targets"], inputs1, inputs2, targets)
    const wrong = targets.negative().multiply(inputs1.subtract(inputs2))
    // MLX's default is 0.0, which makes integers float32.
    const loss = margin === undefined ? wrong.astype(atLeastFloat(wrong.dtype)) : wrong.add(margin)
    return reduce(mx.maximum(0, loss), reduction)
  },
)
/**
 * max(−targets · (inputs1 − inputs2) + margin, 0): targets are 1 where inputs1 should rank higher, otherwise −1.
 * @throws ShapeError if the shapes differ
 * @example
 * nn.losses.marginRankingLoss(mx.array([1]), mx.array([3]), mx.array([1])).tolist() // => [2]
 */
export function marginRankingLoss(
  inputs1: mx.Array,
  inputs2: mx.Array,
  targets: mx.Array,
  margin?: number,
  reduction?: Reduction,
  options?: mx.StreamOptions,
): mx.Array
export function marginRankingLoss(
  inputs1: mx.Array,
  inputs2: mx.Array,
  targets: mx.Array,
  margin: number,
  options: { reduction?: Reduction } & mx.StreamOptions,
): mx.Array
export function marginRankingLoss(
  inputs1: mx.Array,
  inputs2: mx.Array,
  targets: mx.Array,
  options: { margin?: number; reduction?: Reduction } & mx.StreamOptions,
): mx.Array
export function marginRankingLoss(...args: unknown[]): mx.Array {
  return marginRankingLossArgs(args)
}
