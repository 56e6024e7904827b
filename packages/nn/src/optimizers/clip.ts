/** Limits on gradients before an optimizer sees them. */
import * as mx from "@lazuli/core"
import { forEachLeaf, mapLeaves } from "@lazuli/core/engine"

/**
 * Scales all gradients by one factor so that their common norm, the root of the sum of all squares, is at most maxNorm.
 * @returns the gradients and the norm they had
 * @example
 * const [clipped, norm] = optim.clipGradNorm({ w: mx.array([3, 4]) }, 10)
 * norm.item() // => 5
 */
export function clipGradNorm<G extends object>(
  grads: G,
  maxNorm: number | { maxNorm: number },
): [clipped: G, norm: mx.Array] {
  const limit = typeof maxNorm === "number" ? maxNorm : maxNorm.maxNorm
  let squares: mx.Array | null = null
  forEachLeaf(grads, (leaf) => {
    if (!(leaf instanceof mx.Array)) return
    const sum = leaf.square().sum()
    squares = squares === null ? sum : squares.add(sum)
  })
  const norm = ((squares as mx.Array | null) ?? mx.array(0)).sqrt()
  const factor = mx.minimum(mx.divide(limit, norm.add(1e-6)), 1)
  const clipped = mapLeaves(grads, (leaf) => (leaf instanceof mx.Array ? leaf.multiply(factor) : leaf))
  return [clipped as G, norm]
}
