/**
 * Without a GPU, a driver or a compiler: importing works, and the first use says what is missing.
 */

import * as mx from "@lazuli/core"
import { afterEach, expect, it, vi } from "vitest"
import { failing } from "../test/double"
import { checkProtocol } from "./native"
import "./index"

mx.setBackend("cuda", "gpu")
const add = (): unknown => mx.stream(mx.gpu, () => mx.ones([2]).add(1)).tolist()
afterEach(() => vi.unstubAllEnvs())

it("an addon of another version is refused", () => {
  expect(() => checkProtocol({ protocol: () => 0 }, "a.node")).toThrow(
    /^\[cuda\] a.node was built for protocol 0 of the CUDA backend, but this package writes protocol \d+\. Build it again/,
  )
})
it("without a driver the locations where it was looked for are named", () => {
  vi.stubEnv("LAZULI_CUDA_WITHOUT", "cuda,nvrtc")
  expect(add).toThrow(
    /^\[cuda\] there is no NVIDIA driver: it is not to be used\. Install NVIDIA's driver, or name the folder of libcuda.so.1 in LAZULI_CUDA_PATH/,
  )
  vi.stubEnv("LAZULI_CUDA_WITHOUT", "")
  vi.stubEnv("LAZULI_CUDA_PATH", "/nowhere")
  // Where a GPU is there, so is the driver.
  if (!process.env.LAZULI_CUDA_DEVICE) expect(add).toThrow(/there is no NVIDIA driver: .*libcuda\.so\.1/)
})
it("a driver without a GPU says so", () => {
  expect(() => failing("no-device", add)).toThrow(
    /^\[cuda\] no GPU can be used: cuInit failed: CUDA_ERROR_NO_DEVICE .*Use mx.cpu where there is none$/,
  )
})
it("a kernel that is not on disk needs a compiler, and says so", () => {
  vi.stubEnv("LAZULI_CUDA_WITHOUT", "nvrtc")
  const x = mx.stream(mx.gpu, () => mx.array([1, 2]))
  const kernel = mx.fast.metalKernel({
    name: "unheard_of",
    inputNames: ["x"],
    outputNames: ["y"],
    source: `y[0] = x[0] + ${Date.now() % 1e6};`,
  })
  const [y] = mx.stream(mx.gpu, () =>
    kernel({
      inputs: [x],
      grid: [1, 1, 1],
      threadgroup: [1, 1, 1],
      outputShapes: [[1]],
      outputDtypes: [mx.float32],
    }),
  )
  expect(() => mx.eval(y)).toThrow(
    /^\[cuda\] compiling a kernel needs NVRTC, which cannot be loaded: it is not to be used\. Install CUDA's toolkit/,
  )
  vi.unstubAllEnvs()
  expect(add()).toEqual([2, 2])
}, 60_000)
