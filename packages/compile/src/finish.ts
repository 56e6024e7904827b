/**
 * Elementwise work that ends what a kernel does, on each piece of the kernel's result as that is made, or begins it, on each piece of what
 * the kernel reads. Whether a kernel can do so is the backend's to say; here is which work fits which kernel.
 */
import {
  type Application,
  type Backend,
  type Layout,
  type Node,
  outputsOf,
  sizeOf,
} from "@lazuli/core/engine"
import { isImmediate } from "./identities"

/** Shorter rows are no work by themselves. */
const SHORT_ROW = 64
/** Operands that lie elsewhere may take this much in any case: they are in a cache. */
const LIGHT = 1 << 19

/** Why work does not run on the pieces of a kernel's result. */
export const NOT_NEXT = "not on the pieces of a product: other work runs between them"
const NOT_WHOLE = "not on the pieces of a product: it does not read the product as it lies"
const NOT_LIGHT =
  "not on the pieces of a product: it reads more in other memory than there, which one long pass does better"
const NOT_BY_ROWS = "not on the pieces of a product: its operands do not lie by the product's rows"

/** Fewer elements between elementwise work and a reduction stay in a cache, and reductions of fewer are not cut into pieces. */
const MIN_FED = 1 << 18
/** Of longer rows, pieces that stay in a cache are parts, between which memory is read with jumps. */
const MAX_FED_ROW = 1024
const NOT_SHORT =
  "not in pieces for the reduction after it: rows are long, and one long pass over memory is quicker"

/**
 * Tells if a reduction over all axes, or over the first ones, computes what it reduces piece by piece, or why not; null for other work.
 * Along the last axis both run by blocks of rows (see rows.ts).
 */
export function feeding(backend: Backend, work: Node, reduction: Node): string | null {
  if (
    reduction.inputs[0] !== work ||
    work.outputs !== null ||
    backend.plans?.takesPrologue?.(reduction) !== true
  )
    return null
  if (sizeOf(work.shape) < MIN_FED) return null
  const axes = new Set(reduction.params.axes as readonly number[])
  let kept = 1
  for (const [axis, length] of work.shape.entries()) {
    if (!axes.has(axis)) kept *= length
    else if (kept > 1 && length > 1) return null
  }
  return kept <= MAX_FED_ROW ? "feeding" : NOT_SHORT
}

/** True if a kernel takes elementwise work behind it. */
export const finishes = (backend: Backend, application: Application): boolean =>
  !application.primitive.elementwise &&
  outputsOf(application).length === 1 &&
  backend.plans?.takesEpilogue?.(application) === true

/**
 * Why elementwise work does not run on the pieces of a product; null where it does: it reads it as it lies, and everything else by the same
 * rows. `layoutOf` gives how an input lies in the product's memory, null for one in other memory.
 */
export function obstacle(product: Node, work: Node, layoutOf: (input: Node) => Layout | null): string | null {
  const size = sizeOf(product.shape)
  if (size <= 1 || sizeOf(work.shape) !== size) return NOT_WHOLE
  // One of the results may take the product's memory.
  let elsewhere = 0
  for (const output of outputsOf(work).slice(1)) elsewhere += size * output.dtype.size
  for (const input of work.inputs) {
    const layout = layoutOf(input)
    if (!layout) {
      if (!isImmediate(input) && sizeOf(input.shape) === size) elsewhere += size * input.dtype.size
    } else if (layout.offset !== 0 || layout.strides !== null || input.dtype !== product.dtype)
      return NOT_WHOLE
    else if (sizeOf(input.shape) !== size) return NOT_WHOLE
  }
  if (elsewhere > Math.max(2 * size * product.dtype.size, LIGHT)) return NOT_LIGHT
  const columns = product.shape[product.shape.length - 1]
  const whole = work.inputs.every(
    (input) => isImmediate(input) || sizeOf(input.shape) === 1 || sizeOf(input.shape) === size,
  )
  return whole || (columns >= SHORT_ROW && work.shape[work.shape.length - 1] === columns) ? null : NOT_BY_ROWS
}
