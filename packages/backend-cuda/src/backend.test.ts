/**
 * The backend on the test double of CUDA's driver: memory, order, kernels and failures, as the runtime's own code meets them on a GPU.
 */

import { backendSuite, formatChecks } from "@lazuli/conformance"
import * as mx from "@lazuli/core"
import type { MemoryStats } from "@lazuli/core/engine"
import { afterEach, beforeAll, describe, expect, it } from "vitest"
import { failing } from "../test/double"
import { compilerStats } from "./compiler"
import { cudaBackend } from "./index"

beforeAll(() => {
  mx.setBackend("cuda", "gpu")
  mx.setDefaultDevice(mx.gpu)
})
afterEach(() => mx.resetBackendStats())

describe("values", () => {
  it("come back from kernels of each kind", () => {
    const x = mx.arange(10).astype(mx.float32).reshape(2, 5)
    expect(x.add(1).tolist()).toEqual([
      [1, 2, 3, 4, 5],
      [6, 7, 8, 9, 10],
    ])
    expect(x.transpose().matmul(x).tolist()).toEqual(
      Array.from({ length: 5 }, (_, i) => Array.from({ length: 5 }, (_, j) => i * j + (i + 5) * (j + 5))),
    )
    // Threadgroup memory, barriers and exchanges between the threads of a warp.
    expect(mx.ones([3, 5000]).sum(1).tolist()).toEqual([5000, 5000, 5000])
    expect(mx.sort(mx.array([3, 1, 2, 0])).tolist()).toEqual([0, 1, 2, 3])
    expect(mx.backendStats().cuda).toBeUndefined()
  })
  it("are the reference's for a sample of primitives, in every layout", () => {
    const reports = backendSuite("cuda", {
      primitives: ["square", "argmax"],
      sizes: [33],
      dtypes: [mx.float32],
      fillings: ["as given"],
      layouts: ["transposed"],
    })
    expect(formatChecks(reports.filter(({ ok }) => !ok))).toBe(formatChecks([]))
    expect(reports).toHaveLength(2)
  }, 240_000)
  it("pass through more than one part of the page-locked memory, both ways", () => {
    const data = Float32Array.from({ length: 5_000_001 }, (_, i) => i % 1000)
    const back = mx.array(data).add(1).toTypedArray() as Float32Array
    expect(back.every((v, i) => v === (i % 1000) + 1)).toBe(true)
  })
  it("do not depend on when the work runs: what was uploaded last is read last", () => {
    const sums = Array.from({ length: 200 }, (_, i) => mx.array(new Float32Array(1000).fill(i)).add(1))
    mx.eval(sums)
    sums.forEach((sum, i) => {
      expect(sum.toTypedArray()[999]).toBe(i + 1)
    })
  })
  it("of grids with more rows of groups than the driver takes are all there", () => {
    const kernel = mx.fast.metalKernel({
      name: "tall",
      inputNames: ["x"],
      outputNames: ["y"],
      source: "uint i = thread_position_in_grid.y; y[i] = x[0] + i;",
    })
    const n = 70_000
    const [y] = kernel({
      inputs: [mx.array([1])],
      grid: [1, n, 1],
      threadgroup: [1, 1, 1],
      outputShapes: [[n]],
      outputDtypes: [mx.float32],
    })
    expect((y.toTypedArray() as Float32Array).every((v, i) => v === i + 1)).toBe(true)
  }, 60_000)
})

describe("kernels that somebody writes", () => {
  const call = { inputs: [mx.ones([4])], grid: [4, 1, 1], threadgroup: [4, 1, 1] } as const
  it("run as on Metal", () => {
    const square = mx.fast.metalKernel({
      name: "square",
      inputNames: ["x"],
      outputNames: ["y"],
      source: "uint i = thread_position_in_grid.x; y[i] = x[i] * x[i] + simd_sum(x[i]);",
    })
    const [y] = square({ ...call, outputShapes: [[4]], outputDtypes: [mx.float32] })
    expect(y.tolist()).toEqual([5, 5, 5, 5])
  })
  it("that do not compile are refused with what the compiler said", () => {
    const bad = mx.fast.metalKernel({
      name: "bad",
      inputNames: ["x"],
      outputNames: ["y"],
      source: "y[0] = nowhere;",
    })
    const [y] = bad({ ...call, outputShapes: [[1]], outputDtypes: [mx.float32] })
    expect(() => mx.eval(y)).toThrow(/^\[bad\] the source of a kernel does not compile:\n.*nowhere/s)
  })
})

describe("memory", () => {
  const { memory } = cudaBackend
  const statsOf = memory.stats as () => MemoryStats
  it("is counted, kept for reuse and given back", () => {
    memory.clearCache?.()
    const { active, buffers } = statsOf()
    const storage = memory.allocate(4_000_000)
    expect(statsOf()).toMatchObject({ active: active + 4_194_304, buffers: buffers + 1, cache: 0 })
    memory.release(storage)
    expect(statsOf()).toMatchObject({ active, buffers, cache: 4_194_304 })
    memory.release(memory.allocate(4_100_000))
    expect(statsOf()).toMatchObject({ cache: 4_194_304 })
    memory.clearCache?.()
    expect(statsOf()).toMatchObject({ active, buffers, cache: 0 })
  })
  it("that the device does not have is refused with what there is", () => {
    expect(() => failing("no-memory", () => memory.allocate(4_000_000))).toThrow(
      /^\[cuda\] no memory for 4194304 bytes: \d+ of 2147483648 bytes are free$/,
    )
    const limit = statsOf().limit
    memory.setLimit?.(statsOf().active)
    expect(() => memory.allocate(4_000_000)).toThrow(
      /^\[cuda\] 4194304 bytes more would exceed the memory limit/,
    )
    memory.setLimit?.(limit)
  })
  it("is copied where an operation elsewhere needs it, once", () => {
    const x = mx.stream(mx.cpu, () => mx.array([1, 2, 3]).multiply(2))
    expect(x.add(1).tolist()).toEqual([3, 5, 7])
    expect(mx.stream(mx.cpu, () => x.add(mx.stream(mx.gpu, () => x.add(x)))).tolist()).toEqual([6, 12, 18])
  })
})

describe("failures", () => {
  it("of a launch concern what it would have made, and what reads that", () => {
    const x = mx.ones([7])
    mx.eval(x)
    const failed = x.add(1)
    expect(() => failing("launch", () => mx.eval(failed))).toThrow(
      /^\[add\] the launch failed: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES/,
    )
    expect(() => failed.multiply(2).tolist()).toThrow(/CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES/)
    expect(x.add(1).tolist()).toEqual([2, 2, 2, 2, 2, 2, 2])
  })
})

it("a compiled kernel is read from disk by the next process that needs it", () => {
  const { compiled, fromDisk } = compilerStats
  expect(compiled + fromDisk).toBeGreaterThan(10)
})
