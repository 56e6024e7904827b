/** Sums in an order of their own, where the same bits are asked for, on the test double. */
import * as mx from "@lazuli/core"
import { determinism } from "@lazuli/core/engine"
import { grad } from "@lazuli/transforms"
import { afterEach, beforeAll, expect, it, vi } from "vitest"
import { failing } from "../test/double"
import { cudaRuntime } from "./index"

let endDeterminism: () => void

beforeAll(() => {
  mx.setBackend("cuda", "gpu")
  mx.setDefaultDevice(mx.gpu)
  endDeterminism = determinism.ask()
})
afterEach(() => vi.restoreAllMocks())

const wave = (n: number, dtype: mx.Dtype): mx.Array =>
  mx.array(Float32Array.from({ length: n }, (_, i) => 1e4 ** Math.sin(7 * i))).astype(dtype)
const at = mx.array(
  Array.from({ length: 60 }, (_, i) => (i * i) % 7),
  mx.int32,
)
const columns = mx.array(
  Array.from({ length: 60 }, (_, i) => i % 4),
  mx.int32,
)

const sums: Record<string, (dtype: mx.Dtype) => mx.Array> = {
  "rows that meet": (dtype) =>
    mx
      .zeros([7, 5], dtype)
      .at(at)
      .add(wave(300, dtype).reshape([60, 5])),
  "elements that meet": (dtype) => mx.ones([7], dtype).at(at).multiply(wave(60, dtype).sign()),
  "sparse products": (dtype) =>
    mx.cooMatmul(wave(60, dtype), at, columns, wave(12, dtype).reshape([4, 3]), { numRows: 7 }),
}

it.each(Object.keys(sums))("%s are added in order", (name) => {
  for (const dtype of [mx.float32, mx.bfloat16]) {
    const run = (): number[] => (sums[name](dtype).astype(mx.float32).tolist() as number[][]).flat()
    const sources = vi.spyOn(cudaRuntime, "newLibrary")
    const got = run()
    for (const [source] of sources.mock.calls) expect(source).not.toMatch(/atomic_fetch_add|lz_update/)
    expect(sources).toHaveBeenCalled()
    const want = mx.stream(mx.cpu, run)
    got.forEach((x, i) => {
      expect(Math.abs(x - want[i])).toBeLessThanOrEqual(1e-2 * Math.abs(want[i]))
    })
  }
})

it("convolutions and their gradients run by deterministic algorithms", () => {
  const f = (x: mx.Array, w: mx.Array): mx.Array => mx.conv2d(x, w).sum()
  const gradients = grad(f, { argnums: [0, 1] })
  const run = (): number[] =>
    failing("any-order", () =>
      (
        gradients(
          wave(100, mx.float32).reshape([1, 5, 10, 2]),
          wave(36, mx.float32).reshape([2, 3, 3, 2]),
        ) as mx.Array[]
      ).flatMap((each) => [...(each.toTypedArray() as Float32Array)]),
    )
  const got = run()
  expect(mx.backendStats().cuda).toBeUndefined()
  const want = mx.stream(mx.cpu, run)
  got.forEach((x, i) => {
    expect(Math.abs(x - want[i])).toBeLessThanOrEqual(1e-4 * Math.abs(want[i]))
  })
  endDeterminism()
  expect(run).toThrow("[conv] the convolution failed: CUDNN_STATUS_EXECUTION_FAILED")
})
