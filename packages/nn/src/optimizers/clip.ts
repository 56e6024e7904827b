/** Gradient clipping. */
import * as mx from "@lazuli/core"
import { forEachLeaf, mapLeaves, ofTrees } from "@lazuli/core/engine"
import { aTree, named } from "../arguments"

/** The sum of squares in at least float32: those of 16-bit gradients may overflow. */
const sumOfSquares = (x: mx.Array): mx.Array =>
  (x.dtype.size === 2 && mx.issubdtype(x.dtype, mx.floating) ? x.astype(mx.float32) : x).square().sum()

/**
 * Clips gradients by their global norm, the root of the sum of all squares: scales them so that it is at most maxNorm.
 * @returns the gradients and their original norm
 * @throws ArgumentError for a negative maxNorm
 * @example
 * const [clipped, norm] = optim.clipGradNorm({ w: mx.array([3, 4]) }, 10)
 * norm.item() // => 5
 */
export function clipGradNorm<G extends object>(
  grads: G,
  maxNorm: number | { maxNorm: number },
): [clipped: G, norm: mx.Array]
export function clipGradNorm(...args: unknown[]): [clipped: unknown, norm: mx.Array] {
  const [grads, maxNorm] = named<[object, number]>(
    "clipGradNorm",
    { grads: aTree, maxNorm: "nonNegative" },
    args,
  )
  return ofTrees("clipGradNorm", () => clipTo(grads, maxNorm, (squares) => squares))
}

/**
 * Clips gradients by their global norm, and returns the norm; `total` sums the squares over all shards.
 * @internal
 */
export function clipTo<G>(
  grads: G,
  maxNorm: number,
  total: (squares: mx.Array) => mx.Array,
): [clipped: G, norm: mx.Array] {
  let squares: mx.Array | null = null
  forEachLeaf(grads, (leaf) => {
    if (!(leaf instanceof mx.Array)) return
    const sum = sumOfSquares(leaf)
    squares = squares === null ? sum : squares.add(sum)
  })
  const norm = total((squares as mx.Array | null) ?? mx.array(0)).sqrt()
  const factor = mx.minimum(mx.divide(maxNorm, norm.add(1e-6)), 1)
  const scaled = (x: mx.Array): mx.Array => x.multiply(x.dtype.size === 2 ? factor.astype(x.dtype) : factor)
  const clipped = mapLeaves(grads, (leaf) => (leaf instanceof mx.Array ? scaled(leaf) : leaf))
  return [clipped as G, norm]
}
