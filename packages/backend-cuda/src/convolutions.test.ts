/**
 * Convolutions by cuDNN, on its test double: one to three axes, groups, strides and dilations, both gradients, and the kernels that serve
 * for what the library does not take or where it is not there.
 */
import { backendSuite, formatChecks } from "@lazuli/conformance"
import * as mx from "@lazuli/core"
import { determinism } from "@lazuli/core/engine"
import { grad } from "@lazuli/transforms"
import { beforeAll, expect, it, onTestFinished, vi } from "vitest"
import { failing } from "../test/double"
import { convolutionFamilies } from "./convolutions"
import { cudaRuntime } from "./index"
import { candidatesFor } from "./libraries"

beforeAll(() => mx.setBackend("cuda", "gpu"))

it("agree with the reference for what the suite has", () => {
  const reports = backendSuite("cuda", {
    primitives: ["conv"],
    sizes: [3],
    dtypes: [mx.float32],
    layouts: ["row-major", "transposed"],
    fillings: ["as given"],
  })
  expect(formatChecks(reports.filter(({ ok }) => !ok))).toBe(formatChecks([]))
}, 240_000)

const values = (shape: number[], seed: number): mx.Array =>
  mx
    .arange(shape.reduce((a, b) => a * b, 1))
    .multiply(seed)
    .remainder(7)
    .subtract(3)
    .reshape(shape)
    .astype(mx.float32)

/** The same on both devices: a convolution of x and w with both gradients. */
function agrees(
  f: (x: mx.Array, w: mx.Array) => mx.Array,
  x: number[],
  w: number[],
  dtype = mx.float32,
): void {
  const [got, want] = [mx.gpu, mx.cpu].map((device) =>
    mx.stream(device, () => {
      const of = [values(x, 3).astype(dtype), values(w, 5).astype(dtype)] as const
      const weighted = (a: mx.Array, b: mx.Array): mx.Array => {
        const y = f(a, b)
        return y.multiply(values([...y.shape], 2).astype(dtype)).sum()
      }
      const gradients = grad(weighted as (...args: mx.Array[]) => mx.Array, [0, 1])(...of) as mx.Array[]
      return [f(...of), ...gradients].map((y) => y.tolist())
    }),
  )
  expect(got).toEqual(want)
}

it("and their gradients agree for one to three axes, strides, dilations and groups", () => {
  agrees((x, w) => mx.conv2d(x, w, { padding: 1 }), [2, 10, 9, 3], [4, 3, 3, 3])
  agrees((x, w) => mx.conv2d(x, w, { stride: 2, padding: 1 }), [1, 21, 20, 2], [3, 3, 3, 2])
  agrees((x, w) => mx.conv2d(x, w, { dilation: 2, padding: 2 }), [1, 10, 10, 2], [3, 3, 3, 2])
  agrees((x, w) => mx.conv2d(x, w, { groups: 2 }), [1, 5, 5, 4], [6, 3, 3, 2])
  agrees((x, w) => mx.conv1d(x, w, { stride: 3 }), [2, 230, 3], [4, 5, 3])
  agrees((x, w) => mx.conv3d(x, w, { padding: 1 }), [1, 5, 6, 5, 2], [3, 3, 3, 3, 2])
  agrees((x, w) => mx.convTranspose2d(x, w, { stride: 2, padding: 1 }), [1, 10, 10, 2], [3, 3, 3, 2])
  agrees((x, w) => mx.conv2d(x, w), [1, 4, 4, 2], [2, 2, 2, 2], mx.float64)
}, 240_000)

/** The number of times that the kernel for many channels is made ready while `body` runs. */
function exactly(body: () => void): number {
  const asked = vi.spyOn(cudaRuntime, "newPipeline")
  body()
  const count = asked.mock.calls.filter(([, name]) => name === "convolve").length
  asked.mockRestore()
  return count
}

it("of many channels agree with strides, dilations, read backwards, and where a number is infinite", () => {
  const count = exactly(() => {
    agrees((x, w) => mx.conv2d(x, w, { padding: 1 }), [2, 9, 8, 32], [32, 3, 3, 32])
    agrees((x, w) => mx.conv2d(x, w, { stride: [2, 1], dilation: [1, 2] }), [1, 9, 10, 64], [70, 2, 3, 64])
    const infinite = (): mx.Array => {
      const x = mx.where(mx.arange(288).equal(133), Infinity, values([288], 3)).reshape([1, 3, 3, 32])
      return mx.conv2d(x, values([2, 3, 3, 32], 5), { padding: 1 })
    }
    const [got, want] = [mx.gpu, mx.cpu].map((device) => mx.stream(device, () => infinite().tolist()))
    expect(got).toEqual(want)
  })
  expect(count).toBe(1)
}, 240_000)

it("of many channels have the precision of float32", () => {
  const wave = (shape: number[], phase: number): mx.Array =>
    mx
      .sin(
        mx
          .arange(shape.reduce((a, b) => a * b))
          .multiply(0.7)
          .add(phase),
      )
      .reshape(shape)
  const f = (): mx.Array => mx.conv2d(wave([1, 6, 7, 96], 1), wave([4, 3, 3, 96], 2), { padding: 1 })
  const got = mx.stream(mx.gpu, () => f().toTypedArray())
  const want = mx.stream(mx.cpu, () => f().toTypedArray())
  const most = Math.max(...(want as Float32Array).map(Math.abs))
  got.forEach((x, i) => {
    expect(Math.abs((x as number) - (want[i] as number))).toBeLessThan(1e-6 * most)
  })
}, 120_000)

it("without an algorithm run by kernels", () => {
  const f = (): unknown =>
    mx
      .stream(mx.gpu, () => mx.conv2d(mx.ones([1, 7, 7, 1]), mx.ones([1, 3, 3, 1])))
      .sum()
      .item()
  expect(failing("no-algorithm", f)).toBe(225)
})

it("are looked for where the settings say", () => {
  vi.stubEnv("LAZULI_CUDA_WITHOUT", "cudnn")
  expect(candidatesFor("cudnn")).toEqual([])
  vi.unstubAllEnvs()
  expect(candidatesFor("cudnn")).toContain("libcudnn.so.9")
})

it("are asked of the library anew where the same bits are asked for", () => {
  const asked: number[] = []
  const test = (words: Int32Array): boolean => asked.push(words[5]) > 0
  const { conv } = convolutionFamilies(
    () => test,
    () => false,
    () => 1,
  )
  const { node } = mx.conv2d(values([1, 5, 5, 2], 3), values([2, 3, 3, 2], 5))
  expect(conv.supports(node)).toBe(true)
  onTestFinished(determinism.ask())
  for (let i = 0; i < 2; i++) expect(conv.supports(node)).toBe(true)
  expect(asked).toEqual([0, 1])
})
