/**
 * Products by cuBLASLt, on its test double: every way that operands may lie, batches, addends, and the kernels that serve without it.
 */
import "../test/double"
import { compile } from "@lazuli/compile"
import { backendSuite, formatChecks } from "@lazuli/conformance"
import * as mx from "@lazuli/core"
import { expect, it } from "vitest"
import { cudaBackend } from "./index"
import { productFamilies } from "./products"

mx.setBackend("cuda", "gpu")

it("agree with the reference for what the suite has", () => {
  const reports = backendSuite("cuda", {
    primitives: ["matmul", "addmm"],
    sizes: [7],
    dtypes: [mx.float32, mx.bfloat16],
    layouts: ["row-major", "transposed"],
    fillings: ["as given"],
  })
  expect(formatChecks(reports.filter(({ ok }) => !ok))).toBe(formatChecks([]))
}, 120_000)

const values = (shape: number[], seed: number): mx.Array =>
  mx
    .arange(shape.reduce((a, b) => a * b, 1))
    .multiply(seed)
    .remainder(7)
    .subtract(3)
    .reshape(shape)
    .astype(mx.float32)

/** The same on both devices. */
function agrees(f: () => mx.Array): void {
  const [got, want] = [mx.gpu, mx.cpu].map((device) => mx.stream(device, f).tolist())
  expect(got).toEqual(want)
}

it("take every layout and batch", () => {
  const cases: (() => mx.Array)[] = [
    () => values([3, 5], 2).matmul(values([5, 4], 3)),
    () =>
      values([5, 3], 2)
        .transpose()
        .matmul(values([4, 5], 3).transpose()),
    // Columns that are no neighbours: a copy.
    () =>
      values([3, 10], 2)
        .index(":", "::2")
        .matmul(values([5, 4], 3)),
    // A part of a larger matrix, and rows at an odd location.
    () =>
      values([9, 9], 2)
        .index("1:4", "1:6")
        .matmul(values([9, 9], 3).index("2:7", "3:7")),
    () => values([1, 5], 2).matmul(values([5, 1], 3)),
    () => values([2, 3, 5], 2).matmul(values([2, 5, 4], 3)),
    () => values([2, 3, 5], 2).matmul(values([5, 4], 3)),
    () => values([3, 5], 2).matmul(values([2, 5, 4], 3)),
    () => values([2, 1, 3, 5], 2).matmul(values([1, 6, 5, 4], 3)),
    () =>
      values([3, 2, 5], 2)
        .transpose(1, 0, 2)
        .matmul(values([5, 4], 3)),
    () =>
      values([2, 3, 5], 2)
        .transpose(0, 2, 1)
        .matmul(values([3, 4], 3)),
  ]
  for (const f of cases) agrees(f)
}, 60_000)

it("add rows, matrices and what is neither", () => {
  for (const shape of [[4], [1, 4], [3, 4], [2, 3, 4], [3, 1], [2, 1, 4], [1]])
    for (const [alpha, beta] of [
      [1, 1],
      [2, 0.5],
    ])
      agrees(() => mx.addmm(values(shape, 5), values([2, 3, 5], 2), values([5, 4], 3), alpha, beta))
}, 120_000)

it("end with a clamp or a scale where that alone reads them", () => {
  const given = (): [mx.Array, mx.Array, mx.Array] => [
    values([2, 3, 5], 2),
    values([5, 4], 3),
    values([4], 5),
  ]
  const kernelsOf = (f: (a: mx.Array, b: mx.Array, c: mx.Array) => mx.Array[]): number | null => {
    const compiled = compile(f)
    const run = (): unknown[] => compiled(...given()).map((x) => x.tolist())
    const [got, want] = [mx.gpu, mx.cpu].map((device) => mx.stream(device, run))
    expect(got).toEqual(want)
    return mx.stream(mx.gpu, () => compiled.explain(...given()).kernels)
  }
  expect(kernelsOf((a, b, c) => [mx.maximum(mx.addmm(c, a, b), 0)])).toBe(1)
  expect(kernelsOf((a, b) => [a.matmul(b).multiply(0.25)])).toBe(1)
  expect(kernelsOf((a, b, c) => [mx.addmm(c, a, b).multiply(0.25)])).toBe(2)
  expect(kernelsOf((a, b) => [mx.maximum(a.matmul(b), 0), a.matmul(b)])).toBe(2)
  // By a constant as the dtype holds it, which is 0 for the last one.
  const halves = (by: number) => (a: mx.Array, b: mx.Array) => [
    a.astype(mx.float16).matmul(b.astype(mx.float16)).multiply(by),
  ]
  for (const by of [0.1, 0.7, 1e-8]) kernelsOf(halves(by))
  const nan = compile((a: mx.Array, b: mx.Array) => mx.maximum(a.matmul(b), 0))
  const infinite = mx.array([[Number.NaN, Infinity, -Infinity, -1, 2]])
  expect(
    mx.stream(mx.gpu, () => (nan(infinite.transpose(), mx.array([[1]])) as mx.Array).flatten().tolist()),
  ).toEqual([Number.NaN, Infinity, 0, 0, 2])
}, 60_000)

it("without the library run by kernels", () => {
  const { matmul } = productFamilies(
    () => false,
    () => false,
  )
  const node = { dtype: mx.float32, size: 4, shape: [2, 2], strides: null, storage: null, offset: 0 }
  expect(
    matmul.supports({ ...node, inputs: [node, node] } as unknown as Parameters<typeof matmul.supports>[0]),
  ).toBe(false)
  expect(cudaBackend.name).toBe("cuda")
})
