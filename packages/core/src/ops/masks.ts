/** The values of masks: where their true elements are, and how many. */
import { copyOut } from "../engine/readback"
import { asArrayArgument } from "../graph/args"
import { bool_ } from "../graph/dtype"
import { TransformError } from "../graph/errors"
import type { Array } from "../graph/graph"
import { toDtype } from "./constant"
import { array } from "./creation"

/** The index arrays of the true elements of a mask, which is evaluated and thus cannot be traced by vmap or compile. */
export function positionsOf(mask: Array): Array[] {
  const data = copyOut(mask)
  const { shape } = mask
  const found: number[][] = shape.map(() => [])
  for (let i = 0; i < data.length; i++) {
    if (!data[i]) continue
    let rest = i
    for (let axis = shape.length - 1; axis >= 0; axis--) {
      found[axis].push(rest % shape[axis])
      rest = Math.floor(rest / shape[axis])
    }
  }
  return found.map((list) => array(Int32Array.from(list)))
}

/**
 * The indices of the nonzero elements, as one int32 array per axis. Its shape depends on values, so it cannot be traced by vmap or compile.
 * @throws TransformError inside vmap and compile
 * @example
 * mx.nonzero(mx.array([0, 3, 5]))[0].tolist() // => [1, 2]
 */
export function nonzero(a: Array): Array[] {
  return positionsOf(toDtype(asArrayArgument("nonzero", "a", a), bool_))
}

/** The number of true elements; 0 for a mask that vmap or compile traces. */
export function countIfKnown(mask: Array): number {
  try {
    return Number(copyOut(mask.sum())[0])
  } catch (error) {
    if (error instanceof TransformError) return 0
    throw error
  }
}
