/**
 * Loss functions. Each ends with a reduction: `none` gives one value an example, `mean` and `sum` one for all.
 * It is long because there are many: none needs another to be understood.
 */
import * as mx from "@lazuli/core"
import { format, normalizeAxis, ShapeError, sameShape } from "@lazuli/core/engine"

import { belowOne, optional } from "./arguments"
import { belowMaximum } from "./below-maximum"
import { operation } from "./operation"

const reductions = ["none", "mean", "sum"] as const
/** The reduction of the losses of single examples. */
export type Reduction = (typeof reductions)[number]

type Options<T = unknown> = T & { reduction?: Reduction } & mx.StreamOptions
/** A loss of predictions and targets. */
export interface Loss {
  (predictions: mx.Array, targets: mx.Array, reduction?: Reduction, options?: mx.StreamOptions): mx.Array
  (predictions: mx.Array, targets: mx.Array, options: Options): mx.Array
}

function reduce(loss: mx.Array, reduction: Reduction): mx.Array {
  if (reduction === "mean") return loss.mean()
  return reduction === "sum" ? loss.sum() : loss
}

function checkShapes(op: string, names: readonly string[], first: mx.Array, ...others: mx.Array[]): void {
  others.forEach((other, i) => {
    if (!sameShape(first.shape, other.shape))
      throw new ShapeError(
        op,
        `${names[0]} of shape ${format(first.shape)} and ${names[i + 1]} of shape ${format(other.shape)} must have the same shape`,
      )
  })
}

function weighted(op: string, loss: mx.Array, weights?: mx.Array | null): mx.Array {
  if (weights === undefined || weights === null) return loss
  if (!sameShape(weights.shape, loss.shape))
    throw new ShapeError(
      op,
      `weights of shape ${format(weights.shape)} must have the shape of the loss, ${format(loss.shape)}`,
    )
  return loss.multiply(weights)
}

/** A loss of two arrays of the same shape; `initial` is its default reduction. */
function pairwise(
  op: string,
  names: readonly [string, string],
  initial: Reduction,
  body: (predictions: mx.Array, targets: mx.Array) => mx.Array,
): Loss {
  const args = operation(
    op,
    { [names[0]]: "array", [names[1]]: "array", reduction: reductions },
    (predictions: mx.Array, targets: mx.Array, reduction?: Reduction) => {
      checkShapes(op, names, predictions, targets)
      return reduce(body(predictions, targets), reduction ?? initial)
    },
  )
  return (...rest: unknown[]) => args(rest)
}

/** Refuses class indices that do not have the shape of the predictions without the axis of the classes. @throws ShapeError */
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

/** The value at the target's index along the axis, which is dropped. */
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
          hint: `Expected class indices of shape ${format(logits.shape.filter((_, i) => i !== dropped))} or probabilities of the logits' shape`,
        },
      )
    const loss = entropy(logits, targets, axis, labelSmoothing)
    // Only single losses show the axis.
    if (reduction !== "none" && weights === undefined) return reduce(loss, reduction)
    return reduce(weighted(op, loss.squeeze(axis), weights), reduction)
  },
)
/** log Σ eᶻ − Σ targets · z with z below its maximum, and 1 on the axis: MLX's value also where the targets' sum is not 1. */
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
  /** A factor for each example. */
  weights?: mx.Array | null
  /** The axis of the classes; the last by default. */
  axis?: number
  /** Label smoothing: the share of the target that is spread over all classes; 0 by default. */
  labelSmoothing?: number
}
/**
 * −log softmax(logits)[target]. Targets are class indices, without the axis of the classes, or probabilities of the logits' shape.
 * @throws ShapeError when targets or weights do not fit; ArgumentError for a smoothing outside [0, 1)
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
/** t log(1 + e⁻ˣ) + (1 − t) log(1 + eˣ): nothing is subtracted from what it rounds away beside. */
function entropyOfLogits(x: mx.Array, targets: mx.Array): mx.Array {
  const [hit, miss] = [mx.logaddexp(0, x.negative()), mx.logaddexp(0, x)]
  return targets.multiply(hit).add(mx.subtract(1, targets).multiply(miss))
}

/** −(t log p + (1 − t) log(1 − p)), each logarithm at least −100. */
function clippedEntropy(p: mx.Array, targets: mx.Array): mx.Array {
  // The logarithm of 0 is left out before it is taken: its slope is infinite.
  const clipped = (q: mx.Array, isZero: mx.Array, log: (q: mx.Array) => mx.Array): mx.Array =>
    mx.where(isZero, -100, mx.maximum(log(mx.where(isZero, 0.5, q)), -100))
  const hit = clipped(p, p.equal(0), mx.log)
  const miss = clipped(p, p.equal(1), (q) => mx.log1p(q.negative()))
  return targets.multiply(hit).add(mx.subtract(1, targets).multiply(miss)).negative()
}
/**
 * −(t log p + (1 − t) log(1 − p)) with p = sigmoid(inputs), or with p = inputs when `withLogits` is false.
 * @throws ShapeError when targets or weights do not fit
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

/**
 * |predictions − targets|, averaged by default.
 * @throws ShapeError when the shapes differ
 * @example
 * nn.losses.l1Loss(mx.array([1, 2]), mx.array([1, 4])).item() // => 1
 */
export const l1Loss: Loss = pairwise("l1Loss", ["predictions", "targets"], "mean", (p, t) =>
  p.subtract(t).abs(),
)

/**
 * (predictions − targets)², averaged by default.
 * @throws ShapeError when the shapes differ
 * @example
 * nn.losses.mseLoss(mx.array([1, 2]), mx.array([1, 4])).item() // => 2
 */
export const mseLoss: Loss = pairwise("mseLoss", ["predictions", "targets"], "mean", (p, t) =>
  p.subtract(t).square(),
)

const nllLossArgs = operation(
  "nllLoss",
  { inputs: "array", targets: "array", axis: "axis?", reduction: reductions },
  (inputs: mx.Array, targets: mx.Array, axis: number = -1, reduction: Reduction = "none") => {
    checkIndices("nllLoss", "inputs", inputs, targets, axis)
    return reduce(pick(inputs, targets, axis).negative(), reduction)
  },
)
/**
 * −inputs[target]: the negative log-likelihood of class indices, from logarithms of probabilities.
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

const gaussianNllLossArgs = operation(
  "gaussianNllLoss",
  {
    inputs: "array",
    targets: "array",
    vars: "array",
    full: "bool?",
    eps: "nonNegative?",
    reduction: reductions,
  },
  (
    inputs: mx.Array,
    targets: mx.Array,
    vars: mx.Array,
    full: boolean = false,
    eps: number = 1e-6,
    reduction: Reduction = "mean",
  ) => {
    const op = "gaussianNllLoss"
    checkShapes(op, ["inputs", "targets", "vars"], inputs, targets, vars)
    const variance = mx.maximum(vars, eps)
    const loss = variance.log().add(targets.subtract(inputs).square().divide(variance)).multiply(0.5)
    return reduce(full ? loss.add(0.5 * Math.log(2 * Math.PI)) : loss, reduction)
  },
)
/**
 * ½ (log v + (targets − inputs)² / v) with v = max(vars, eps), and ½ log 2π more when `full`: the negative log-likelihood of normal
 * distributions.
 * @throws ShapeError when the shapes differ
 * @example
 * nn.losses.gaussianNllLoss(mx.array([1]), mx.array([3]), mx.array([1])).item() // => 2
 */
export function gaussianNllLoss(
  inputs: mx.Array,
  targets: mx.Array,
  vars: mx.Array,
  full?: boolean,
  eps?: number,
  reduction?: Reduction,
  options?: mx.StreamOptions,
): mx.Array
export function gaussianNllLoss(
  inputs: mx.Array,
  targets: mx.Array,
  vars: mx.Array,
  full: boolean,
  options: { eps?: number; reduction?: Reduction } & mx.StreamOptions,
): mx.Array
export function gaussianNllLoss(
  inputs: mx.Array,
  targets: mx.Array,
  vars: mx.Array,
  options: { full?: boolean; eps?: number; reduction?: Reduction } & mx.StreamOptions,
): mx.Array
export function gaussianNllLoss(...args: unknown[]): mx.Array {
  return gaussianNllLossArgs(args)
}

const klDivLossArgs = operation(
  "klDivLoss",
  { inputs: "array", targets: "array", axis: "axis?", reduction: reductions },
  (inputs: mx.Array, targets: mx.Array, axis: number = -1, reduction: Reduction = "none") =>
    reduce(targets.exp().multiply(targets.subtract(inputs)).sum(axis), reduction),
)
/**
 * Σ exp(targets) · (targets − inputs) over the axis: the Kullback–Leibler divergence, both given as logarithms.
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

const smoothL1LossArgs = operation(
  "smoothL1Loss",
  { predictions: "array", targets: "array", beta: "positive?", reduction: reductions },
  (predictions: mx.Array, targets: mx.Array, beta: number = 1, reduction: Reduction = "mean") => {
    checkShapes("smoothL1Loss", ["predictions", "targets"], predictions, targets)
    const error = predictions.subtract(targets).abs()
    const near = error.square().multiply(0.5).divide(beta)
    return reduce(mx.where(error.less(beta), near, error.subtract(0.5 * beta)), reduction)
  },
)
/**
 * ½ e² / beta for errors e below beta, |e| − ½ beta from there on.
 * @throws ShapeError when the shapes differ
 * @example
 * nn.losses.smoothL1Loss(mx.array([0, 0]), mx.array([1, 3])).item() // => 1.5
 */
export function smoothL1Loss(
  predictions: mx.Array,
  targets: mx.Array,
  beta?: number,
  reduction?: Reduction,
  options?: mx.StreamOptions,
): mx.Array
export function smoothL1Loss(
  predictions: mx.Array,
  targets: mx.Array,
  beta: number,
  options: { reduction?: Reduction } & mx.StreamOptions,
): mx.Array
export function smoothL1Loss(
  predictions: mx.Array,
  targets: mx.Array,
  options: { beta?: number; reduction?: Reduction } & mx.StreamOptions,
): mx.Array
export function smoothL1Loss(...args: unknown[]): mx.Array {
  return smoothL1LossArgs(args)
}

/** Squares of float16 overflow long before their root does. */
const wide = (x: mx.Array): mx.Array => (x.dtype === mx.float16 ? x.astype(mx.float32) : x)
/** Results of {@link wide} numbers, in the dtype of these. */
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
  /** The margin by which positives should be nearer; 1 by default. */
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

const huberLossArgs = operation(
  "huberLoss",
  { inputs: "array", targets: "array", delta: "positive?", reduction: reductions },
  (inputs: mx.Array, targets: mx.Array, delta: number = 1, reduction: Reduction = "none") => {
    const error = inputs.subtract(targets).abs()
    const quadratic = mx.minimum(error, delta)
    const loss = quadratic.square().multiply(0.5).add(error.subtract(quadratic).multiply(delta))
    return reduce(loss, reduction)
  },
)
/**
 * ½ e² for errors e up to delta, delta · (|e| − ½ delta) from there on.
 * @example
 * nn.losses.huberLoss(mx.array([0, 0]), mx.array([1, 3])).tolist() // => [0.5, 2.5]
 */
export function huberLoss(
  inputs: mx.Array,
  targets: mx.Array,
  delta?: number,
  reduction?: Reduction,
  options?: mx.StreamOptions,
): mx.Array
export function huberLoss(
  inputs: mx.Array,
  targets: mx.Array,
  delta: number,
  options: { reduction?: Reduction } & mx.StreamOptions,
): mx.Array
export function huberLoss(
  inputs: mx.Array,
  targets: mx.Array,
  options: { delta?: number; reduction?: Reduction } & mx.StreamOptions,
): mx.Array
export function huberLoss(...args: unknown[]): mx.Array {
  return huberLossArgs(args)
}

const logCoshLossArgs = operation(
  "logCoshLoss",
  { inputs: "array", targets: "array", reduction: reductions },
  (inputs: mx.Array, targets: mx.Array, reduction: Reduction = "none") => {
    const error = inputs.subtract(targets)
    // log cosh e = log(1 + 2 sinh² ½e) keeps small errors; of large ones e⁻²ᵉ is nothing beside |e| − log 2.
    const size = error.abs()
    const limit = error.dtype.size > 4 ? 20 : 10
    const near = mx.clip(error, -limit, limit).multiply(0.5).sinh().square().multiply(2).log1p()
    return reduce(mx.where(size.less(limit), near, size.subtract(Math.LN2)), reduction)
  },
)
/**
 * log cosh(inputs − targets): quadratic near 0, linear far from it.
 * @example
 * nn.losses.logCoshLoss(mx.array([1]), mx.array([1])).tolist() // => [0]
 */
export const logCoshLoss: Loss = (...args: unknown[]) => logCoshLossArgs(args)

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
    return reduce(narrow(loss, mx.resultType(x1, x2)), reduction)
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
    margin: number = 0,
    reduction: Reduction = "none",
  ) => {
    const op = "marginRankingLoss"
    checkShapes(op, ["inputs1", "inputs2", "targets"], inputs1, inputs2, targets)
    const differences = inputs1.subtract(inputs2)
    return reduce(mx.maximum(0, targets.negative().multiply(differences).add(margin)), reduction)
  },
)
/**
 * max(−targets · (inputs1 − inputs2) + margin, 0): targets are 1 where inputs1 should rank higher, −1 where inputs2 should.
 * @throws ShapeError when the shapes differ
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
