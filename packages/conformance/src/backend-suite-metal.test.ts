/**
 * The suite, run for Metal's host runtime: here part of what has kernels, by `npm run conformance:ops -- --suite --backend metal` in full.
 */
import "@lazuli/backend-metal"
import * as mx from "@lazuli/core"
import { expect, test } from "vitest"
import { backendSuite } from "./backend-suite"
import { formatChecks } from "./check/op-check"

const KERNELS = {
  "of elements": "add bitwiseXor cast power select".split(" "),
  "of rows": ["max", "min", "softmax", "sum"],
  products: ["matmul"],
}

test.each(Object.entries(KERNELS))(
  "Metal's kernels %s",
  (_, primitives) => {
    const reports = backendSuite("metal", {
      primitives,
      sizes: [33],
      dtypes: [mx.float32],
      fillings: ["as given"],
      layouts: ["row-major", "transposed"],
    })
    expect(formatChecks(reports.filter(({ ok }) => !ok))).toBe(formatChecks([]))
    expect(reports.length).toBe(primitives.length)
  },
  120_000,
)
