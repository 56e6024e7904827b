/**
 * The test kit on the primitive: what infer promises, each backend's kernel against the reference, derivatives by every subset of the
 * arguments, batches, compiled calls, memory given back.
 */
import "@lazuli/backend-cpu"
import "@lazuli/backend-cuda"
import { canCompileKernels } from "@lazuli/backend-metal"
import { formatChecks, opCheck } from "@lazuli/conformance"
import * as mx from "@lazuli/core"
import { expect, test } from "vitest"
import { axpby } from "./index"
import { nativeLibrary } from "./libraries"

const wave = (shape: number[], step: number): mx.Array =>
  mx
    .array(Float64Array.from({ length: shape.reduce((n, m) => n * m, 1) }, (_, i) => Math.sin(i * step + 1)))
    .reshape(shape)

const backends = ["cpu"]
if (canCompileKernels()) backends.push("metal")
if (mx.cuda.isAvailable()) backends.push("cuda")
/** Those that have a kernel, which must run: without one the backend's cell is "not applicable", since what runs instead agrees. */
const withKernel = backends

test("the native kernels are built", () => {
  expect(nativeLibrary, "npm run build:native makes them").not.toBeNull()
})

test("opCheck", () => {
  const samples = [
    {
      name: "alike",
      inputs: [wave([3, 4], 1), wave([3, 4], 2)],
      f: (x: mx.Array, y: mx.Array) => axpby(x, y, 2, -0.5),
    },
    {
      name: "broadcast",
      inputs: [wave([3, 1], 1), wave([4], 2)],
      f: (x: mx.Array, y: mx.Array) => axpby(x, y, 0, 3),
    },
  ]
  const report = opCheck("@lazuli/ext-axpby/axpby", samples, { backends })
  expect(report.ok, formatChecks([report])).toBe(true)
  for (const { column, status, reason } of report.results)
    if (withKernel.includes(column)) expect(status, `${column}: ${reason}`).toBe("ok")
}, 120_000)
