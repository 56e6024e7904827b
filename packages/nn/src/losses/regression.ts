/**
 * Regression losses.
 */
import * as mx from "@lazuli/core"
import { operation } from "../operation"
import { checkShapes, type Loss, pairwise, type Reduction, reduce, reductions } from "./reduction"

/**
 * |predictions − targets|, averaged by default.
 * @throws ShapeError if the shapes differ
 * @example
 * nn.losses.l1Loss(mx.array([1, 2]), mx.array([1, 4])).item() // => 1
 */
export const l1Loss: Loss = pairwise("l1Loss", ["predictions", "targets"], "mean", (p, t) =>
  p.subtract(t).abs(),
)

/**
 * (predictions − targets)², averaged by default.
 * @throws ShapeError if the shapes differ
 * @example
 * nn.losses.mseLoss(mx.array([1, 2]), mx.array([1, 4])).item() // => 2
 */
export const mseLoss: Loss = pairwise("mseLoss", ["predictions", "targets"], "mean", (p, t) =>
  p.subtract(t).square(),
)

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
 * ½ (log v + (targets − inputs)² / v) with v = max(vars, eps), plus ½ log 2π if `full`: the negative log-likelihood of normal
 * distributions.
 * @throws ShapeError if the shapes differ
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
 * ½ e² / beta for errors |e| < beta, otherwise |e| − ½ beta.
 * @throws ShapeError if the shapes differ
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
 * ½ e² for errors |e| ≤ delta, otherwise delta · (|e| − ½ delta).
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
    // log cosh e = log(1 + 2 sinh² ½e) is accurate for small errors; for large ones it equals |e| − log 2 up to rounding.
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
