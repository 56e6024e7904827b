/**
 * The driver and NVRTC alone, on the test double: products and convolutions run by the kernels of gpu-kernels, and nothing falls back.
 */
import "../test/double"
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
