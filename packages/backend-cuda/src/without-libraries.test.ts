/**
 * The driver and NVRTC alone, on the test double: products and convolutions run by the kernels of gpu-kernels, and nothing falls back.
 */
import "../test/double"
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { afterAll, expect, it, vi } from "vitest"
import "./index"

vi.stubEnv("LAZULI_CUDA_WITHOUT", "cublasLt, cudnn")
afterAll(() => vi.unstubAllEnvs())

it("products and convolutions are right without cuBLASLt and cuDNN", () => {
  mx.setBackend("cuda", "gpu")
  mx.resetBackendStats()
  const f = (): unknown[] => {
    const a = mx.arange(12).astype(mx.float32).reshape([3, 4])
    const x = mx.arange(50).astype(mx.float32).reshape([1, 5, 5, 2])
    return [a.matmul(a.transpose()).tolist(), mx.conv2d(x, mx.ones([2, 3, 3, 2]), { padding: 1 }).tolist()]
  }
  expect(mx.stream(mx.gpu, f)).toEqual(mx.stream(mx.cpu, f))
  expect(mx.backendStats().cuda).toBeUndefined()
}, 60_000)

it("compiled products of a few rows are followed by a clamp or a scale", () => {
  mx.setBackend("cuda", "gpu")
  const wave = (shape: number[], phase: number): mx.Array =>
    mx
      .arange(shape.reduce((a, b) => a * b))
      .multiply(0.7)
      .add(phase)
      .sin()
      .astype(mx.bfloat16)
      .reshape(shape)
  const [w, row, rows] = [wave([130, 136], 1), wave([130], 2), wave([260], 3)]
  mx.eval(w, row, rows)
  for (const f of [
    (x: mx.Array) => mx.maximum(x.matmul(w.T), 0),
    (x: mx.Array) => x.matmul(w.T).multiply(0.25),
    (x: mx.Array) => mx.maximum(mx.addmm(row, x, w.T), 0),
    (x: mx.Array) => mx.maximum(mx.addmm(rows.index("::2"), x, w.T), 0),
  ])
    for (const count of [1, 8]) {
      const [got, want] = [mx.gpu, mx.cpu].map((device) =>
        mx.stream(device, () => {
          const g = compile(f)
          return [0, 5].map((phase) =>
            g(wave([count, 136], phase))
              .astype(mx.float32)
              .toTypedArray(),
          )
        }),
      )
      got.forEach((values, i) => {
        const most = Math.max(...Array.from(want[i] as Float32Array, Math.abs))
        values.forEach((x, k) => {
          expect(Math.abs(Number(x) - Number(want[i][k]))).toBeLessThanOrEqual(0.02 * most)
        })
      })
    }
}, 120_000)
