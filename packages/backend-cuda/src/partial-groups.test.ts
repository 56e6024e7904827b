/**
 * Groups and warps that are not full, as Metal has them: the grid's edge makes smaller groups, whose threads are numbered without gaps,
 * and exchanges are among the threads that take part.
 */
import * as mx from "@lazuli/core"
import { beforeAll, expect, it } from "vitest"
import "../test/double"
import "./index"

beforeAll(() => {
  mx.setBackend("cuda", "gpu")
  mx.setDefaultDevice(mx.gpu)
})

/** Runs a body that writes `y`, of one number a thread, over a grid. */
function run(
  source: string,
  grid: number[],
  threadgroup: number[],
  count = grid.reduce((a, b) => a * b),
): number[] {
  const kernel = mx.fast.metalKernel({ name: "partial", inputNames: [], outputNames: ["y"], source })
  const [y] = kernel({
    inputs: [],
    grid,
    threadgroup,
    outputShapes: [[count]],
    outputDtypes: [mx.int32],
    initValue: -1,
  })
  return y.tolist() as number[]
}
const each = (n: number, f: (i: number) => number): number[] => Array.from({ length: n }, (_, i) => f(i))

it("sums among the threads that are there", () => {
  const sums = run("uint i = thread_position_in_grid.x; y[i] = simd_sum(int(i));", [40], [64])
  expect(sums).toEqual(each(40, (i) => (i < 32 ? 496 : 32 + 33 + 34 + 35 + 36 + 37 + 38 + 39)))
})
it("scans, and takes the greatest, among the threads that are there", () => {
  const source = (call: string) => `uint i = thread_position_in_grid.x; y[i] = ${call};`
  expect(run(source("simd_prefix_inclusive_sum(1)"), [40], [64])).toEqual(each(40, (i) => (i % 32) + 1))
  expect(run(source("simd_prefix_exclusive_sum(1)"), [40], [64])).toEqual(each(40, (i) => i % 32))
  expect(run(source("simd_max(int(i))"), [40], [64])).toEqual(each(40, (i) => (i < 32 ? 31 : 39)))
})
it("exchanges among those of a branch", () => {
  const body =
    "uint i = thread_position_in_grid.x; y[i] = 0; if (i % 32 < 5) y[i] = simd_sum(int(i)); else y[i] = simd_min(int(i));"
  expect(run(body, [64], [64])).toEqual(
    each(64, (i) => (i % 32 < 5 ? 10 + (i < 32 ? 0 : 160) : i < 32 ? 5 : 37)),
  )
})
it("exchanges among those that have not returned", () => {
  const body = "uint i = thread_position_in_grid.x; if (i >= 7) return; y[i] = simd_sum(1);"
  expect(run(body, [32], [32])).toEqual(each(32, (i) => (i < 7 ? 7 : -1)))
})
it("numbers the threads of smaller groups without gaps, in three dimensions", () => {
  // 5 × 3 × 2 threads in groups of 4 × 2 × 2: the last ones are 1 × 1 × 2.
  const at = "uint3 p = thread_position_in_grid; uint at = p.x + 5 * (p.y + 3 * p.z);"
  const sizes = run(
    `${at} uint3 s = threads_per_threadgroup; y[at] = int(s.x * 100 + s.y * 10 + s.z);`,
    [5, 3, 2],
    [4, 2, 2],
  )
  expect(sizes).toEqual(each(30, (i) => (i % 5 < 4 ? 400 : 100) + (Math.floor(i / 5) % 3 < 2 ? 20 : 10) + 2))
  const indices = run(`${at} y[at] = int(thread_index_in_threadgroup);`, [5, 3, 2], [4, 2, 2])
  expect(indices).toEqual(
    each(30, (i) => {
      const [x, y, z] = [i % 5, Math.floor(i / 5) % 3, Math.floor(i / 15)]
      const [width, height] = [x < 4 ? 4 : 1, y < 2 ? 2 : 1]
      return (x % 4) + width * ((y % 2) + height * z)
    }),
  )
})
it("meets at barriers with the threads that are there", () => {
  const body = `threadgroup int t[64];
    uint i = thread_position_in_grid.x, k = thread_index_in_threadgroup;
    t[k] = int(i);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[i] = t[threads_per_threadgroup.x - 1 - k];`
  expect(run(body, [100], [64])).toEqual(each(100, (i) => (i < 64 ? 63 - i : 163 - i)))
})
