/**
 * Kernels in files that packages bring, on the test double: their arguments, scratch memory, and what is refused.
 */
import "../test/double"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as mx from "@lazuli/core"
import { type CudaFileKernel, definePrimitive, provideKernels } from "@lazuli/core/plugin"
import { afterAll, beforeAll, expect, it } from "vitest"
import "./index"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-cuda-files-"))
afterAll(() => rmSync(scratch, { recursive: true }))
beforeAll(() => {
  mx.setBackend("cuda", "gpu")
  mx.setDefaultDevice(mx.gpu)
})

const library = join(scratch, "kernels.cu")
writeFileSync(
  library,
  `extern "C" __global__ void squares(const float* x, float* sums, Shape shape, Strides strides, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { const float v = x[elem_to_loc<int64_t>(i, shape.data(), strides.data(), 2)]; sums[i] = v * v; }
}
extern "C" __global__ void half_of(const float* sums, float* y, float factor, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = sums[i] * factor;
}
`,
)
const define = (name: string) =>
  definePrimitive({
    name: `@me/cuda/${name}`,
    api: 1,
    infer: ([x]) => x,
    decompose: ([x]) => x.square().multiply(-1),
  })
const kernel = (dispatches: unknown): CudaFileKernel => ({
  inputNames: ["x"],
  outputNames: ["y"],
  ensureRowContiguous: false,
  launch: () => ({ dispatches, scratch: { sums: 4 * 6 } }) as never,
})
const threads = { grid: [6], threadgroup: [32] }

it("launches see what those before them wrote, and inputs of any layout", () => {
  const op = define("steps")
  provideKernels({
    form: "cuda",
    package: "@me/cuda",
    library,
    kernels: {
      "@me/cuda/steps": kernel([
        {
          kernel: "squares",
          arguments: ["x", "sums", { shapeOf: "x" }, { stridesOf: "x" }, Int32Array.of(6)],
          ...threads,
        },
        { kernel: "half_of", arguments: ["sums", "y", Float32Array.of(0.5), Int32Array.of(6)], ...threads },
      ]),
    },
  })
  mx.resetBackendStats()
  const x = mx.array([
    [1, 2, 3],
    [4, 5, 6],
  ])
  expect(op([x]).tolist()).toEqual([
    [0.5, 2, 4.5],
    [8, 12.5, 18],
  ])
  expect(op([x.transpose()]).tolist()).toEqual([
    [0.5, 8],
    [2, 12.5],
    [4.5, 18],
  ])
  expect(mx.backendStats()).toEqual({})
}, 60_000)

it("says what cannot be", () => {
  const refusal = (name: string, dispatches: unknown): (() => void) => {
    const op = define(name)
    provideKernels({
      form: "cuda",
      package: "@me/cuda",
      library,
      kernels: { [`@me/cuda/${name}`]: kernel(dispatches) },
    })
    return () => op([mx.ones([2, 3])]).tolist()
  }
  expect(refusal("unbound", [{ kernel: "half_of", arguments: ["z"], ...threads }])).toThrow(
    'there is no "z"; there are y, x, sums',
  )
  expect(refusal("list", 3)).toThrow("launch must give { dispatches: […] }")
  expect(() =>
    provideKernels({ form: "cuda", package: "@me/cuda", library: join(scratch, "none.cu"), kernels: {} }),
  ).toThrow("[@me/cuda] there is no CUDA library")
  expect(() =>
    provideKernels({ form: "cuda", package: "@me/cuda", library, kernels: { "@me/cuda/x": {} as never } }),
  ).toThrow("a CUDA kernel needs inputNames, outputNames and launch")
})
