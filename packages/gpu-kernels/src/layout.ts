/**
 * Layouts of operands as kernels want them: as few axes as possible.
 */
import { contiguousStrides, isContiguous, type Node, type Storage, sizeOf } from "@lazuli/core/engine"
import type { Location } from "./dispatch"

/** Elements in a storage, in any layout. */
export interface View {
  readonly storage: Storage
  readonly itemsize: number
  readonly shape: readonly number[]
  /** In elements. */
  readonly strides: readonly number[]
  /** In elements. */
  readonly offset: number
}

/** Where a view's first element lies, as kernels take it. */
export const locationOf = ({ storage, offset, itemsize }: View): Location => ({
  storage,
  offset: offset * itemsize,
})

/** An evaluated node's elements. */
export function viewOf(node: Node): View {
  return {
    storage: node.storage as Storage,
    itemsize: node.dtype.size,
    shape: node.shape,
    strides: node.strides ?? contiguousStrides(node.shape),
    offset: node.offset,
  }
}

export const isRowMajor = (view: View): boolean => isContiguous(view.shape, view.strides)

/** The same elements in another order of axes. */
export function permuted(view: View, order: readonly number[]): View {
  return { ...view, shape: order.map((i) => view.shape[i]), strides: order.map((i) => view.strides[i]) }
}

/** Drops axes of size 1 and merges neighbours that all operands walk evenly. At least one axis is left. */
export function collapse(
  shape: readonly number[],
  strides: readonly (readonly number[])[],
): { shape: number[]; strides: number[][] } {
  const outShape: number[] = []
  const outStrides: number[][] = strides.map(() => [])
  for (let i = 0; i < shape.length; i++) {
    if (shape[i] === 1) continue
    const last = outShape.length - 1
    if (last >= 0 && strides.every((s, k) => outStrides[k][last] === s[i] * shape[i])) {
      outShape[last] *= shape[i]
      strides.forEach((s, k) => {
        outStrides[k][last] = s[i]
      })
    } else {
      outShape.push(shape[i])
      strides.forEach((s, k) => {
        outStrides[k].push(s[i])
      })
    }
  }
  if (outShape.length === 0) {
    outShape.push(sizeOf(shape))
    for (const s of outStrides) s.push(0)
  }
  return { shape: outShape, strides: outStrides }
}
