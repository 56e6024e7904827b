/** The shift shared by log-softmax and cross entropy. */
import * as mx from "@lazuli/core"

/**
 * x minus its maximum along the axis, for shift-invariant functions: next to a large maximum, differences would be rounded away. The
 * gradient does not flow through the maximum.
 */
export const belowMaximum = (x: mx.Array, axis: number): mx.Array =>
  x.subtract(mx.stopGradient(mx.max(x, axis, true)))
