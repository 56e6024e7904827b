/**
 * Kernels in files that packages bring, on the test double: their arguments, scratch memory, and what is refused.
 */

import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { type CudaFileKernel, definePrimitive, provideKernels } from "@lazuli/core/plugin"
import { afterAll, beforeAll, expect, it } from "vitest"
import { failing } from "../test/double"
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

it("read many bytes in every run of a plan, also after one in which they did not arrive", () => {
  const table = Float32Array.from({ length: 1000 }, (_, i) => i / 8)
  const metal = join(scratch, "table.metal")
  writeFileSync(
    metal,
    `#include <metal_stdlib>
using namespace metal;
kernel void from_table(device const float* x [[buffer(0)]], constant float* table [[buffer(1)]], device float* y [[buffer(2)]],
    uint i [[thread_position_in_grid]]) { y[i] = x[i] + table[i + 990]; }
`,
  )
  const op = define("table")
  provideKernels({
    form: "metal",
    package: "@me/cuda",
    library: metal,
    kernels: {
      "@me/cuda/table": {
        inputNames: ["x"],
        outputNames: ["y"],
        launch: () => ({
          dispatches: [{ kernel: "from_table", buffers: ["x", table, "y"], grid: [6], threadgroup: [32] }],
        }),
      },
    },
  })
  const expected = Array.from({ length: 6 }, (_, i) => 1 + (6 * (990 + i)) / 8)
  const x = mx.zeros([6]).add(1)
  mx.eval(x)
  let failures = 0
  for (const failed of [0, 1, 2]) {
    const f = compile((x: mx.Array) => {
      let y = x
      for (let i = 0; i < 6; i++) y = op([y])
      return y
    })
    const run = (): unknown => (f(x) as mx.Array).tolist()
    for (let i = 0; i < 5; i++) {
      if (i === failed)
        try {
          failing("upload", run)
        } catch (error) {
          failures++
          expect((error as Error).message).toContain("cuMemcpyHtoDAsync")
        }
      expect(run(), `run ${i}, after a failure of run ${failed}`).toEqual(expected)
    }
  }
  expect(failures).toBeGreaterThan(0)
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
