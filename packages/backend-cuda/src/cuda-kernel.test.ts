/**
 * Kernels in CUDA's own language on the test double: signatures, layouts, templates, groups, shared memory and what is refused.
 */
import "../test/double"
import * as mx from "@lazuli/core"
import { grad } from "@lazuli/transforms"
import { beforeAll, describe, expect, it } from "vitest"
import "./index"

beforeAll(() => {
  mx.setBackend("cuda", "gpu")
  mx.setDefaultDevice(mx.gpu)
})

const call = {
  grid: [4, 1, 1],
  threadgroup: [4, 1, 1],
  outputShapes: [[4]],
  outputDtypes: [mx.float32],
} as const

describe("kernels in CUDA's language", () => {
  it("take arrays, and template parameters as constants and types", () => {
    const kernel = mx.fast.cudaKernel({
      name: "scaled",
      inputNames: ["x"],
      outputNames: ["y"],
      source: "auto i = cg::this_grid().thread_rank(); if (i < 4) y[i] = T(x[i] * T(N)) + (FLAG ? 1 : 0);",
    })
    const x = mx.array([1, 2, 3, 4])
    for (const dtype of [mx.float32, mx.float16, mx.bfloat16, mx.float64, mx.int32]) {
      const [y] = kernel({
        ...call,
        inputs: [x.astype(dtype)],
        template: { T: dtype, N: 3, FLAG: true },
        outputDtypes: [dtype],
      })
      expect(y.tolist()).toEqual([4, 7, 10, 13])
    }
  }, 120_000)
  it("find elements in any layout", () => {
    const kernel = mx.fast.cudaKernel({
      name: "strided",
      inputNames: ["a"],
      outputNames: ["y"],
      source:
        "auto i = cg::this_grid().thread_rank(); y[i] = a[elem_to_loc<int64_t>(i, a_shape.data(), a_strides.data(), a_ndim)];",
      ensureRowContiguous: false,
    })
    const a = mx.array([
      [1, 2],
      [3, 4],
    ])
    expect(kernel({ ...call, inputs: [a.transpose()] })[0].tolist()).toEqual([1, 3, 2, 4])
  }, 60_000)
  it("share memory and exchange between the threads of a block, which is whole", () => {
    const kernel = mx.fast.cudaKernel({
      name: "sums",
      inputNames: ["x", "bias"],
      outputNames: ["y", "count"],
      header: "__device__ float twice(float v) { return 2 * v; }",
      source: `extern __shared__ float parts[];
auto block = cg::this_thread_block();
auto tile = cg::tiled_partition<32>(block);
const unsigned i = threadIdx.x;
float sum = cg::reduce(tile, i < 48 ? twice(x[i]) : 0.0f, cg::plus<float>());
if (tile.thread_rank() == 0) parts[tile.meta_group_rank()] = sum;
block.sync();
if (i == 0) y[0] = parts[0] + parts[1] + bias[0];
atomicAdd(count, 1u);`,
      sharedMemory: 8,
    })
    const { y, count } = kernel({
      inputs: { x: mx.arange(48).astype(mx.float32), bias: mx.array(0.5) },
      grid: [48, 1, 1],
      threadgroup: [64, 1, 1],
      outputShapes: { y: [], count: [1] },
      outputDtypes: { y: mx.float32, count: mx.uint32 },
      initValue: 0,
    })
    expect(y.item()).toBe(47 * 48 + 0.5)
    expect(count.tolist()).toEqual([64])
  }, 60_000)
  it("have derivatives by their reference", () => {
    const square = mx.fast.cudaKernel({
      name: "squared",
      inputNames: ["x"],
      outputNames: ["y"],
      source: "auto i = cg::this_grid().thread_rank(); y[i] = x[i] * x[i];",
      reference: ({ x }) => x.multiply(x),
    })
    const f = (x: mx.Array): mx.Array => square({ ...call, inputs: [x] })[0].sum()
    expect(f(mx.array([1, 2, 3, 4])).item()).toBe(30)
    expect((grad(f)(mx.array([1, 2, 3, 4])) as mx.Array).tolist()).toEqual([2, 4, 6, 8])
  }, 60_000)
  it("that do not compile are refused with the lines of what was written", () => {
    const bad = mx.fast.cudaKernel("bad", [], ["y"], "\ny[0] = nowhere;")
    expect(() => mx.eval(bad({ ...call, inputs: [] }))).toThrow(
      /^\[bad\] the source of a kernel does not compile:\n.*source:2.*nowhere/s,
    )
  })
  it("are checked before anything is compiled", () => {
    const of =
      (options: object): (() => unknown) =>
      () =>
        mx.fast.cudaKernel({
          name: "k",
          inputNames: ["x"],
          outputNames: ["y"],
          source: "",
          ...options,
        } as never)
    expect(of({ sharedMemory: -1 })).toThrow(/^\[cudaKernel\] sharedMemory must be a number of bytes/)
    expect(of({ inputNames: ["a b"] })).toThrow("must be a name that CUDA accepts, received")
    expect(of({ name: "float" })).toThrow(`cannot be "float", which is a reserved word of CUDA`)
    expect(of({ atomicOutputs: true })).toThrow(/has no parameter "atomicOutputs"/)
    const kernel = mx.fast.cudaKernel("k", ["x"], ["y"], "y[0] = x[0];")
    expect(() => kernel({ ...call, inputs: [] })).toThrow("[k] takes 1 inputs (x), received 0")
    expect(() => kernel({ ...call, inputs: [mx.ones([4])], stream: "cpu" })).toThrow(
      "[k] is a CUDA kernel and runs on the GPU only, received a stream of the CPU",
    )
    const [tall] = kernel({ ...call, inputs: [mx.ones([4])], grid: [1, 70_000, 1], threadgroup: [1, 1, 1] })
    expect(() => mx.eval(tall)).toThrow(
      "[k] a grid of 70000 and 1 blocks along y and z is too large: there are 65535",
    )
  }, 60_000)
})
