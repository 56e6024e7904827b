/**
 * The part of the suite that tests run for every backend: all primitives, in seconds.
 */
import * as mx from "@lazuli/core"
import type { BackendSuiteOptions } from "../src/backend-suite"

/** Sizes around the widths of vectors, a dtype of each kind and width of accumulator, the values that break kernels, two layouts. */
export const QUICK: BackendSuiteOptions = {
  sizes: [7, 33],
  dtypes: [mx.float32, mx.bfloat16, mx.int32],
  fillings: ["as given", "special"],
  layouts: ["row-major", "transposed"],
}
