/**
 * Applications without a kernel on the GPU or a library there run by the CPU's kernels on copies, counted, and never fail for that.
 */
import "../../backend-cuda/test/double"
import * as mx from "@lazuli/core"
import { expect, it } from "vitest"
import "@lazuli/backend-cpu"
import "@lazuli/backend-cuda"

it("runs by the CPU's kernels, with the GPU's arrays", () => {
  mx.setBackend("cuda", "gpu")
  mx.resetBackendStats()
  const a = mx.stream(mx.gpu, () =>
    mx
      .array([
        [4, 1],
        [1, 3],
      ])
      .multiply(2),
  )
  const [values, vectors] = mx.stream(mx.gpu, () => mx.linalg.eig(a))
  expect(values.shape).toEqual([2])
  const back = mx.stream(mx.gpu, () => vectors.multiply(values).matmul(mx.linalg.inv(vectors)).real)
  expect(mx.allclose(back, a, 1e-4, 1e-4).item()).toBe(true)
  expect(mx.backendStats().cuda.eig).toEqual({ decomposed: 0, reference: 0, borrowed: 1 })
  const singular = mx.stream(mx.gpu, () => mx.linalg.inv(mx.zeros([2, 2], { dtype: mx.float64 })))
  expect(() => mx.eval(singular)).toThrow(/singular/)
}, 60_000)
