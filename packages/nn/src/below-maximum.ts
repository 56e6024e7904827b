/** The common beginning of log-softmax and cross entropy. */
import * as mx from "@lazuli/core"

/**
 * x less its maximum along the axis, for functions that are alike for all shifts of x: beside a large maximum differences round away. No
 * derivative goes through the maximum.
 */
export const belowMaximum = (x: mx.Array, axis: number): mx.Array =>
  x.subtract(mx.stopGradient(mx.max(x, axis, true)))
