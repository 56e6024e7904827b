import "./index"
import * as mx from "@lazuli/core"
import { expect, test } from "vitest"

/** The reference, in the same precision. */
function onReference(f: () => mx.Array): Float64Array {
  mx.setBackend("reference")
  try {
    return f().astype(mx.float64).toTypedArray() as Float64Array
  } finally {
    mx.setBackend("cpu")
  }
}

test("the kernel agrees with the reference in every size, dtype and layout", () => {
  for (const n of [
    1, 2, 4, 8, 16, 32, 64, 128, 512, 2048, 4096, 12, 24, 96, 768, 20, 80, 640, 1280, 28, 112, 1792,
  ]) {
    const data = Float32Array.from({ length: 6 * n }, (_, i) => Math.sin(i * i + 1))
    for (const dtype of [mx.float32, mx.float64, mx.float16, mx.bfloat16]) {
      const make = (): mx.Array => mx.array(data).astype(dtype)
      for (const f of [
        () => mx.hadamardTransform(make().reshape([3, 2, n]), 1.5),
        () =>
          mx.hadamardTransform(
            make()
              .reshape([2 * n, 3])
              .T.index(":", "::-2"),
          ),
      ]) {
        const got = f().astype(mx.float64).toTypedArray() as Float64Array
        const want = onReference(f)
        const size = want.reduce((m, v) => Math.max(m, Math.abs(v)), 0)
        const worst = want.reduce((m, v, i) => Math.max(m, Math.abs(v - got[i])), 0)
        const tolerance = { float32: 1e-6, float64: 1e-14, float16: 1e-3, bfloat16: 8e-3 }[
          dtype.name as "float32"
        ]
        expect(worst / size).toBeLessThanOrEqual(tolerance)
      }
    }
  }
  // float64 is among them: nothing fell back.
  mx.resetBackendStats()
  mx.eval(mx.hadamardTransform(mx.ones([70000, 16])))
  expect(mx.backendStats()).toEqual({})
})
