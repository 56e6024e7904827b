/**
 * Shared by losses: validation of shapes, weights, and the final reduction.
 */
import type * as mx from "@lazuli/core"
import { format, ShapeError, sameShape } from "@lazuli/core/engine"
import { operation } from "../operation"

export const reductions = ["none", "mean", "sum"] as const
/** The reduction of a loss over examples. */
export type Reduction = (typeof reductions)[number]

type Options<T = unknown> = T & { reduction?: Reduction } & mx.StreamOptions
/** A loss of predictions and targets. */
export interface Loss {
  (predictions: mx.Array, targets: mx.Array, reduction?: Reduction, options?: mx.StreamOptions): mx.Array
  (predictions: mx.Array, targets: mx.Array, options: Options): mx.Array
}

export function reduce(loss: mx.Array, reduction: Reduction): mx.Array {
  if (reduction === "mean") return loss.mean()
  return reduction === "sum" ? loss.sum() : loss
}

/** Checks that arrays have the same shape. @throws ShapeError */
export function checkShapes(
  op: string,
  names: readonly string[],
  first: mx.Array,
  ...others: mx.Array[]
): void {
  others.forEach((other, i) => {
    if (!sameShape(first.shape, other.shape))
      throw new ShapeError(
        op,
        `${names[0]} of shape ${format(first.shape)} and ${names[i + 1]} of shape ${format(other.shape)} must have the same shape`,
      )
  })
}

/** The losses times their weights. @throws ShapeError */
export function weighted(op: string, loss: mx.Array, weights?: mx.Array | null): mx.Array {
  if (weights === undefined || weights === null) return loss
  if (!sameShape(weights.shape, loss.shape))
    throw new ShapeError(
      op,
      `weights of shape ${format(weights.shape)} must have the shape of the loss, ${format(loss.shape)}`,
    )
  return loss.multiply(weights)
}

/** A loss of two arrays of the same shape; `initial` is its default reduction. */
export function pairwise(
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
