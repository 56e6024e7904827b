/**
 * Losses of classes and distributions: cross entropies, likelihoods, divergences and margins.
 */
import * as mx from "@lazuli/core"
import { format, normalizeAxis, ShapeError, sameShape } from "@lazuli/core/engine"
import { belowOne, optional } from "../arguments"
import { belowMaximum } from "../below-maximum"
import { operation } from "../operation"
import { checkShapes, type Loss, type Reduction, reduce, reductions, weighted } from "./reduction"

/** Checks that class indices have the shape of the predictions without the class axis. @throws ShapeError */
function checkIndices(
  op: string,
  name: string,
  predictions: mx.Array,
  targets: mx.Array,
  axis: number,
): void {
  const dropped = normalizeAxis(op, axis, predictions.ndim)
  const expected = predictions.shape.filter((_, i) => i !== dropped)
  if (!sameShape(targets.shape, expected))
    throw new ShapeError(
      op,
      `targets of shape ${format(targets.shape)} do not match ${name} of shape ${format(predictions.shape)}`,
      { hint: `Expected class indices of shape ${format(expected)}` },
    )
}

/** Takes the values at the targets' indices along the axis, which is removed. */
function pick(x: mx.Array, targets: mx.Array, axis: number): mx.Array {
  return mx.takeAlongAxis(x, targets.expandDims(axis), axis).squeeze(axis)
}

const crossEntropyArgs = operation(
  "crossEntropy",
  {
    logits: "array",
    targets: "array",
    weights: "array?",
    axis: "axis?",
    labelSmoothing: optional(belowOne),
    reduction: reductions,
  },
  (
    logits: mx.Array,
    targets: mx.Array,
    weights?: mx.Array | null,
    axis: number = -1,
    labelSmoothing: number = 0,
    reduction: Reduction = "none",
  ) => {
    const op = "crossEntropy"
    const probabilities = targets.ndim === logits.ndim
    const dropped = normalizeAxis(op, axis, logits.ndim)
    const expected = probabilities ? logits.shape : logits.shape.filter((_, i) => i !== dropped)
    if (!sameShape(targets.shape, expected))
      throw new ShapeError(
        op,
        `targets of shape ${format(targets.shape)} do not match logits of shape ${format(logits.shape)}`,
        {
          hint: `Expected class indices of shape ${format(logits.shape.filter((_, i) => i !== dropped))} or probabilities of the shape of the logits`,
        },
      )
    const loss = entropy(logits, targets, axis, labelSmoothing)
    // The position of the axis only matters for unreduced losses.
    if (reduction !== "none" && weights === undefined) return reduce(loss, reduction)
    return reduce(weighted(op, loss.squeeze(axis), weights), reduction)
  },
)
/** log Σ eᶻ − Σ targets · z with z shifted by its maximum, and the axis of size 1. As in MLX, also if the targets do not sum to 1. */
function entropy(logits: mx.Array, targets: mx.Array, axis: number, smoothing: number): mx.Array {
  const shifted = belowMaximum(logits, axis)
  const score =
    targets.ndim === logits.ndim
      ? shifted.multiply(targets).sum(axis, true)
      : mx.takeAlongAxis(shifted, targets.expandDims(axis), axis)
  const normalizer = mx.logsumexp(shifted, axis, true)
  if (smoothing === 0) return normalizer.subtract(score)
  return normalizer
    .subtract(score.multiply(1 - smoothing))
    .subtract(shifted.mean(axis, true).multiply(smoothing))
}

/** Options of {@link crossEntropy}. */
export interface CrossEntropyOptions {
  /** A weight for each example. */
  weights?: mx.Array | null
  /** The axis of the classes; the last by default. */
  axis?: number
  /** Label smoothing: the fraction of the target distributed over all classes; 0 by default. */
  labelSmoothing?: number
}
/**
 * −log softmax(logits)[target]. Targets are class indices (without the class axis) or probabilities of the shape of the logits.
 * @throws ShapeError if the shape of targets or weights does not match; ArgumentError for a smoothing outside [0, 1)
 * @example
 * nn.losses.crossEntropy(mx.array([[0, -1000]]), mx.array([0], mx.int32)).tolist() // => [0]
 */
export function crossEntropy(
  logits: mx.Array,
  targets: mx.Array,
  weights?: mx.Array | null,
  axis?: number,
  labelSmoothing?: number,
  reduction?: Reduction,
  options?: mx.StreamOptions,
): mx.Array
export function crossEntropy(
  logits: mx.Array,
  targets: mx.Array,
  weights: mx.Array | null,
  options: { reduction?: Reduction } & Omit<CrossEntropyOptions, "weights"> & mx.StreamOptions,
): mx.Array
export function crossEntropy(
  logits: mx.Array,
  targets: mx.Array,
  options: { reduction?: Reduction } & CrossEntropyOptions & mx.StreamOptions,
): mx.Array
export function crossEntropy(...args: unknown[]): mx.Array {
  return crossEntropyArgs(args)
}

const binaryCrossEntropyArgs = operation(
  "binaryCrossEntropy",
  { inputs: "array", targets: "array", weights: "array?", withLogits: "bool?", reduction: reductions },
  (
    inputs: mx.Array,
    targets: mx.Array,
    weights?: mx.Array | null,
    withLogits: boolean = true,
    reduction: Reduction = "mean",
  ) => {
    const op = "binaryCrossEntropy"
    checkShapes(op, ["inputs", "targets"], inputs, targets)
    const loss = (withLogits ? entropyOfLogits : clippedEntropy)(inputs, targets)
    return reduce(weighted(op, loss, weights), reduction)
  },
)
/** t log(1 + e⁻ˣ) + (1 − t) log(1 + eˣ), which has no cancellation. */
function entropyOfLogits(x: mx.Array, targets: mx.Array): mx.Array {
  const [hit, miss] = [mx.logaddexp(0, x.negative()), mx.logaddexp(0, x)]
  return targets.multiply(hit).add(mx.subtract(1, targets).multiply(miss))
}

/** −(t log p + (1 − t) log(1 − p)), each logarithm at least −100. */
function clippedEntropy(p: mx.Array, targets: mx.Array): mx.Array {
  // Excludes log 0 before it is computed, since its gradient is infinite.
  const clipped = (q: mx.Array, isZero: mx.Array, log: (q: mx.Array) => mx.Array): mx.Array =>
    mx.where(isZero, -100, mx.maximum(log(mx.where(isZero, 0.5, q)), -100))
  const hit = clipped(p, p.equal(0), mx.log)
  const miss = clipped(p, p.equal(1), (q) => mx.log1p(q.negative()))
  return targets.multiply(hit).add(mx.subtract(1, targets).multiply(miss)).negative()
}
/**
 * −(t log p + (1 − t) log(1 − p)) with p = sigmoid(inputs), or p = inputs if `withLogits` is false.
 * @throws ShapeError if the shape of targets or weights does not match
 * @example
 * nn.losses.binaryCrossEntropy(mx.array([1000, -1000]), mx.array([1, 0])).item() // => 0
 */
export function binaryCrossEntropy(
  inputs: mx.Array,
  targets: mx.Array,
  weights?: mx.Array | null,
  withLogits?: boolean,
  reduction?: Reduction,
  options?: mx.StreamOptions,
): mx.Array
export function binaryCrossEntropy(
  inputs: mx.Array,
  targets: mx.Array,
  weights: mx.Array | null,
  options: { withLogits?: boolean; reduction?: Reduction } & mx.StreamOptions,
): mx.Array
export function binaryCrossEntropy(
  inputs: mx.Array,
  targets: mx.Array,
  options: { weights?: mx.Array | null; withLogits?: boolean; reduction?: Reduction } & mx.StreamOptions,
): mx.Array
export function binaryCrossEntropy(...args: unknown[]): mx.Array {
  return binaryCrossEntropyArgs(args)
}

const nllLossArgs = operation(
  "nllLoss",
  { inputs: "array", targets: "array", axis: "axis?", reduction: reductions },
  (inputs: mx.Array, targets: mx.Array, axis: number = -1, reduction: Reduction = "none") => {
    checkIndices("nllLoss", "inputs", inputs, targets, axis)
    return reduce(pick(inputs, targets, axis).negative(), reduction)
  },
)
/**
 * −inputs[target]: the negative log-likelihood of class indices, given log-probabilities.
 * @example
 * nn.losses.nllLoss(mx.array([[-1, -2]]), mx.array([1], mx.int32)).tolist() // => [2]
 */
export function nllLoss(
  inputs: mx.Array,
  targets: mx.Array,
  axis?: number,
  reduction?: Reduction,
  options?: mx.StreamOptions,
): mx.Array
export function nllLoss(
  inputs: mx.Array,
  targets: mx.Array,
  axis: number,
  options: { reduction?: Reduction } & mx.StreamOptions,
): mx.Array
export function nllLoss(
  inputs: mx.Array,
  targets: mx.Array,
  options: { axis?: number; reduction?: Reduction } & mx.StreamOptions,
): mx.Array
export function nllLoss(...args: unknown[]): mx.Array {
  return nllLossArgs(args)
}

const klDivLossArgs = operation(
  "klDivLoss",
  { inputs: "array", targets: "array", axis: "axis?", reduction: reductions },
  (inputs: mx.Array, targets: mx.Array, axis: number = -1, reduction: Reduction = "none") =>
    reduce(targets.exp().multiply(targets.subtract(inputs)).sum(axis), reduction),
)
/**
 * Σ exp(targets) · (targets − inputs) over the axis: the Kullback–Leibler divergence of log-probabilities.
 * @example
 * nn.losses.klDivLoss(mx.array([[0, 0]]), mx.array([[0, 0]])).tolist() // => [0]
 */
export function klDivLoss(
  inputs: mx.Array,
  targets: mx.Array,
  axis?: number,
  reduction?: Reduction,
  options?: mx.StreamOptions,
): mx.Array
export function klDivLoss(
  inputs: mx.Array,
  targets: mx.Array,
  axis: number,
  options: { reduction?: Reduction } & mx.StreamOptions,
): mx.Array
export function klDivLoss(
  inputs: mx.Array,
  targets: mx.Array,
  options: { axis?: number; reduction?: Reduction } & mx.StreamOptions,
): mx.Array
export function klDivLoss(...args: unknown[]): mx.Array {
  return klDivLossArgs(args)
}

const hingeLossArgs = operation(
  "hingeLoss",
  { inputs: "array", targets: "array", reduction: reductions },
  (inputs: mx.Array, targets: mx.Array, reduction: Reduction = "none") =>
    reduce(mx.maximum(mx.subtract(1, inputs.multiply(targets)), 0), reduction),
)
/**
 * max(1 − inputs · targets, 0), for targets −1 and 1.
 * @example
 * nn.losses.hingeLoss(mx.array([2, 0.5]), mx.array([1, 1])).tolist() // => [0, 0.5]
 */
export const hingeLoss: Loss = (...args: unknown[]) => hingeLossArgs(args)
