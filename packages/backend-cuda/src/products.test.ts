/**
 * Products by cuBLASLt, on its test double: every way that operands may lie, batches, addends, and the kernels that serve without it.
 */
import "../test/double"
import { compile } from "@lazuli/compile"
import { backendSuite, formatChecks } from "@lazuli/conformance"
import * as mx from "@lazuli/core"
import { valueAndGrad } from "@lazuli/transforms"
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

const SCALE = Math.sqrt(2 / Math.PI)
const cubic = (x: mx.Array, c = 0.044715): mx.Array => x.square().multiply(x).multiply(c).add(x)
/** As `@lazuli/nn` writes geluApprox. */
const gelu = (x: mx.Array): mx.Array => x.multiply(0.5).multiply(mx.tanh(cubic(x).multiply(SCALE)).add(1))
/** Of the largest result, by dtype. */
const TOLERANCES = [
  [mx.float32, 1e-6],
  [mx.bfloat16, 1 / 128],
  [mx.float16, 1 / 1024],
] as const

it("end with a gelu by the hyperbolic tangent, as eager calls and the CPU have it", () => {
  const lies: ((a: mx.Array) => mx.Array)[] = [
    (a) => a,
    (a) => a.transpose(0, 2, 1).reshape([2, 6, 12]).transpose(0, 2, 1),
    (a) => a.index("0:1"),
    (a) => a.index(":", ":", "::2"),
  ]
  for (const [dtype, tolerance] of TOLERANCES)
    for (const lie of lies) {
      const a = lie(values([2, 12, 6], 2))
        .multiply(0.25)
        .astype(dtype)
      const b = values([a.shape[2], 20], 3).multiply(0.5).astype(dtype)
      const row = values([20], 5).astype(dtype)
      const whole = values([12, 20], 5).astype(dtype)
      mx.eval([row, whole])
      const forms: readonly (readonly [kernels: number, (a: mx.Array, b: mx.Array) => mx.Array])[] = [
        [1, (a, b) => gelu(a.matmul(b))],
        [1, (a, b) => gelu(mx.addmm(row, a, b))],
        // A matrix is added by the pass over memory.
        [2, (a, b) => gelu(mx.addmm(whole, a, b))],
      ]
      for (const [kernels, f] of forms) {
        const compiled = compile(f)
        const want = mx.stream(mx.cpu, () => f(a.astype(mx.float32), b.astype(mx.float32)))
        const [eager, got] = mx.stream(mx.gpu, () => [f(a, b), compiled(a, b) as mx.Array])
        const most = tolerance * (want.abs().max().item() as number)
        for (const each of [eager, got]) {
          expect(each.dtype).toBe(dtype)
          const difference = mx.stream(mx.cpu, () => each.astype(mx.float32).subtract(want).abs().max())
          expect(difference.item(), `${dtype.name} ${f}`).toBeLessThanOrEqual(most)
        }
        expect(
          mx.stream(mx.gpu, () => compiled.explain(a, b).kernels),
          `${dtype.name} ${f} ${lie}`,
        ).toBe(kernels)
      }
    }
}, 120_000)

it("end with a gelu however it is written, and with no other function for it", () => {
  const row = values([4], 5)
  mx.eval(row)
  const written: readonly (readonly [kernels: number, (x: mx.Array) => mx.Array])[] = [
    [
      1,
      (x) =>
        mx
          .tanh(x.add(x.power(3).multiply(0.044715)).multiply(SCALE))
          .add(1)
          .multiply(0.5)
          .multiply(x),
    ],
    [1, (x) => x.add(x.multiply(mx.tanh(cubic(x).multiply(0.7978845608)))).divide(2)],
    [
      1,
      (x) =>
        mx
          .tanh(x.multiply(x.square().multiply(0.044715).add(1)).multiply(SCALE))
          .add(1)
          .multiply(x)
          .multiply(0.5),
    ],
    // The exact form, other constants, other functions, and work that reads something else too.
    [2, (x) => x.multiply(mx.erf(x.divide(Math.SQRT2)).add(1)).divide(2)],
    [2, (x) => x.multiply(mx.sigmoid(x.multiply(1.702)))],
    [2, (x) => mx.tanh(x)],
    [2, (x) => x.multiply(mx.tanh(cubic(x).multiply(SCALE)).add(1))],
    [2, (x) => x.multiply(0.5).multiply(mx.tanh(cubic(x, 0.0447).multiply(SCALE)).add(1))],
    [2, (x) => x.multiply(0.5).multiply(mx.tanh(cubic(x).multiply(0.8)).add(1))],
    [2, (x) => x.multiply(0.5).multiply(mx.tanh(cubic(x).multiply(-SCALE)).add(1))],
    [2, (x) => gelu(x).add(x.subtract(x))],
    [2, (x) => gelu(x).multiply(row)],
    [2, (x) => gelu(gelu(x))],
  ]
  const [a, b] = [values([3, 5], 2), values([5, 4], 3).multiply(0.25)]
  for (const [kernels, f] of written) {
    const g = compile((a: mx.Array, b: mx.Array) => f(a.matmul(b)))
    const want = mx.stream(mx.cpu, () => f(a.matmul(b)).flatten().tolist()) as number[]
    const got = mx.stream(mx.gpu, () => (g(a, b) as mx.Array).flatten().tolist()) as number[]
    got.forEach((each, i) => {
      expect(each, `${f}`).toBeCloseTo(want[i], 5)
    })
    expect(
      mx.stream(mx.gpu, () => g.explain(a, b).kernels),
      `${f}`,
    ).toBe(kernels)
  }
}, 120_000)

it("end with a gelu of numbers of any size", () => {
  const numbers = [Number.NaN, Infinity, -Infinity, 300, -300, -0, 1e-6]
  for (const [dtype] of TOLERANCES) {
    const a = mx.array(numbers, dtype).reshape([7, 1])
    const f = (a: mx.Array, b: mx.Array): mx.Array => gelu(a.matmul(b))
    const g = compile(f)
    const one = mx.ones([1, 1], dtype)
    const [eager, got] = mx.stream(mx.gpu, () =>
      [f(a, one), g(a, one) as mx.Array].map((x) => x.astype(mx.float32).flatten().tolist() as number[]),
    )
    const expected = [Number.NaN, Infinity, Number.NaN, 300, expect.closeTo(0), expect.closeTo(0)]
    for (const each of [eager, got]) expect(each).toEqual([...expected, expect.closeTo(5e-7, 7)])
  }
}, 60_000)

it("keep what a gelu reads where its gradient reads it", () => {
  const f = (a: mx.Array, b: mx.Array): mx.Array => gelu(a.matmul(b)).sum()
  const step = (a: mx.Array, b: mx.Array): unknown => {
    const [value, slope] = compile(valueAndGrad(f))(a, b) as [mx.Array, mx.Array]
    return [value, ...slope.flatten().split(15)].map((x) => x.item())
  }
  const given = [values([3, 5], 2), values([5, 4], 3).multiply(0.25)] as const
  const [got, want] = [mx.gpu, mx.cpu].map((device) => mx.stream(device, () => step(...given) as number[]))
  got.forEach((each, i) => {
    expect(each).toBeCloseTo(want[i], 4)
  })
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
