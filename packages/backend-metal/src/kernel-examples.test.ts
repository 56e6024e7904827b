/**
 * Kernels as users write them, by names and with a reference in ordinary operations: what MLX's utilities do in a body, strided reading,
 * segment sums, and products of scattered matrices and vectors that are each other's derivatives.
 */
import { noise } from "@lazuli/conformance/generator"
import * as mx from "@lazuli/core"
import { customFunction, grad, jvp, vjp, vmap } from "@lazuli/transforms"
import { beforeEach, expect, it } from "vitest"
import "./index"

beforeEach(() => mx.resetBackendStats())
const onGpu = <T>(body: () => T): T => mx.stream(mx.gpu, body)
const near = (got: mx.Array, wanted: mx.Array, tolerance = 1e-5): void => {
  expect(got.shape).toEqual(wanted.shape)
  expect(mx.abs(got.subtract(wanted)).max().item()).toBeLessThanOrEqual(tolerance)
}
const integers = (...values: number[]): mx.Array => mx.array(values, mx.int32)

const EXP =
  "uint i = thread_position_in_grid.x; out[i] = metal::exp(inp[elem_to_loc(i, inp_shape, inp_strides, inp_ndim)]);"
const expOf = (inp: mx.Array): mx.Array =>
  mx.fast.metalKernel({ name: "exp_strided", source: EXP })({
    inputs: { inp },
    grid: [inp.size],
    threadgroup: [64],
    outputShapes: { out: inp.shape },
    outputDtypes: { out: inp.dtype },
    ensureRowContiguous: false,
  }).out

it("takes inputs and gives outputs by name, and reads strided inputs where a call says so", () => {
  const x = noise([40, 30])
  near(expOf(x), mx.exp(x))
  near(expOf(x.T.index("::-1", "::2")), mx.exp(x.T.index("::-1", "::2")))
})

it("names what is missing from a dictionary, and what is too much", () => {
  const kernel = mx.fast.metalKernel({ name: "k", inputNames: ["a"], outputNames: ["b"], source: "" })
  const said = (call: object): string => {
    try {
      kernel({
        grid: [1],
        threadgroup: [1],
        outputShapes: { b: [1] },
        outputDtypes: [mx.float32],
        ...call,
      } as never)
      return "nothing"
    } catch (error) {
      return String(error)
    }
  }
  expect([
    said({ inputs: { c: 1 } }),
    said({ inputs: {} }),
    said({ inputs: { a: 1 }, outputDtypes: { a: mx.float32 } }),
    said({ inputs: { a: 1 }, ensureRowContiguous: 1 }),
  ]).toMatchInlineSnapshot(`
    [
      "ArgumentError: [k] inputs has no "c"; the names are a",
      "ArgumentError: [k] inputs needs "a", received nothing",
      "ArgumentError: [k] outputDtypes has no "a"; the names are b",
      "ArgumentError: [k] ensureRowContiguous must be a boolean, received the number 1",
    ]
  `)
  expect(() =>
    mx.fast.metalKernel({ name: "k", source: "" })({
      inputs: [1],
      grid: [1],
      threadgroup: [1],
      outputShapes: {},
      outputDtypes: {},
    } as never),
  ).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [k] inputs must be an object keyed by name, because the kernel names none, received a list of length 1]`,
  )
})

it("brings MLX's utilities to the bodies that name them", () => {
  const kernel = mx.fast.metalKernel({
    name: "utilities",
    source: `
      uint i = thread_position_in_grid.x;
      LoopedElemToLoc<2> walk(2);
      for (uint k = 0; k < i; k++) walk.next(x_shape, x_strides);
      LoopedElemToLoc<2> jump(2);
      jump.next(int(i), x_shape, x_strides);
      complex64_t z = complex64_t(1.0f, 2.0f) * complex64_t(float(i)) + complex64_t(0.0f, 1.0f);
      locations[i] = float(walk.location() == jump.location()) * float(walk.location());
      seconds[i] = float(elem_to_loc_2(uint2(i % 3, i / 3), x_strides)) + float(elem_to_loc_1(i, x_strides[1]));
      numbers[i] = z.imag + log1p(0.0f) + float(ceildiv(i, 2u)) + (Limits<float>::max > 1.0f && Limits<int>::min < 0 ? 100.0f : 0.0f);
      complexes[i] = z / complex64_t(0.0f, 1.0f);`,
  })
  const f = mx.float32
  const { locations, seconds, numbers, complexes } = kernel({
    inputs: { x: noise([3, 4]).T.index(":2", ":") },
    grid: [6],
    threadgroup: [6],
    outputShapes: { locations: [6], seconds: [6], numbers: [6], complexes: [6] },
    outputDtypes: { locations: f, seconds: f, numbers: f, complexes: mx.complex64 },
    ensureRowContiguous: false,
  })
  expect(locations.tolist()).toEqual([0, 4, 8, 1, 5, 9])
  expect(seconds.tolist()).toEqual([0, 8, 16, 13, 21, 29])
  expect(numbers.tolist()).toEqual([101, 104, 106, 109, 111, 114])
  expect(mx.real(complexes).tolist()).toEqual([1, 3, 5, 7, 9, 11])
  expect(mx.imag(complexes).tolist()).toEqual([0, -1, -2, -3, -4, -5])
})

const cube = mx.fast.metalKernel({
  name: "cube",
  inputNames: ["x"],
  outputNames: ["y"],
  source: "uint i = thread_position_in_grid.x; y[i] = x[i] * x[i] * x[i];",
  reference: ({ x }) => x.multiply(x).multiply(x),
})
const cubed = (x: mx.Array): mx.Array =>
  cube({
    inputs: [x],
    grid: [x.size],
    threadgroup: [32],
    outputShapes: [x.shape],
    outputDtypes: [x.dtype],
  })[0]

it("runs the reference where there is no Metal, and takes derivatives and batches from it", () => {
  const x = mx.array([1, 2, 3])
  expect(onGpu(() => cubed(x)).tolist()).toEqual([1, 8, 27])
  expect(mx.backendStats()).toEqual({})
  expect(mx.stream(mx.cpu, () => cubed(x)).tolist()).toEqual([1, 8, 27])
  for (const device of [mx.cpu, mx.gpu])
    mx.stream(device, () => {
      expect(grad((x: mx.Array) => cubed(x).sum())(x).tolist()).toEqual([3, 12, 27])
      expect(jvp(cubed, [x], [mx.ones([3])])[1][0].tolist()).toEqual([3, 12, 27])
      expect(vmap(cubed)(mx.stack([x, x])).tolist()).toEqual([
        [1, 8, 27],
        [1, 8, 27],
      ])
    })
})

it("refuses a reference of another shape or dtype", () => {
  const wrong = (y: mx.Array): string => {
    const kernel = mx.fast.metalKernel({
      name: "wrong",
      source: "",
      reference: () => y,
    })
    try {
      const call = {
        inputs: { x: 1 },
        grid: [1],
        threadgroup: [1],
        outputShapes: { y: [2] },
        outputDtypes: { y: mx.float32 },
      }
      return String(mx.stream(mx.cpu, () => kernel(call)).y.tolist())
    } catch (error) {
      return String(error)
    }
  }
  expect([
    wrong(mx.zeros([3])),
    wrong(mx.zeros([2], mx.int32)),
    wrong("no array" as never),
  ]).toMatchInlineSnapshot(`
    [
      "ShapeError: [wrong.reference] "y" must have shape (2,), received (3,)",
      "DTypeError: [wrong.reference] "y" must be float32, received int32",
      "ArgumentError: [wrong.reference] must give y, received the string "no array"",
    ]
  `)
})

/** Sums of the rows of each segment: rows of one segment lie side by side. */
const segmentSum = (x: mx.Array, starts: mx.Array): mx.Array =>
  mx.fast.metalKernel({
    name: "segment_sum",
    source: `
      uint column = thread_position_in_grid.x, segment = thread_position_in_grid.y, n = uint(x_shape[1]);
      float total = 0.0f;
      for (int row = starts[segment]; row < starts[segment + 1]; row++) total += x[uint(row) * n + column];
      out[segment * n + column] = total;`,
  })({
    inputs: { x, starts },
    grid: [x.shape[1], starts.size - 1],
    threadgroup: [32, 1],
    outputShapes: { out: [starts.size - 1, x.shape[1]] },
    outputDtypes: { out: x.dtype },
  }).out

it("sums segments", () => {
  const x = noise([10, 70])
  const parts = [x.index("0:3"), x.index("3:3"), x.index("3:10")]
  near(segmentSum(x, integers(0, 3, 3, 10)), mx.stack(parts.map((part) => part.sum(0))))
})

type Indices = { o: mx.Array; x: mx.Array }
/** out[o[t]] += a[t] · b[x[t]] in each group: a [T, G, M, C], b [B, G, C], out [count, G, M]. */
const matrixVectors = (a: mx.Array, b: mx.Array, { o, x }: Indices, count: number): mx.Array => {
  const [terms, groups, m, c] = a.shape
  return mx.fast.metalKernel({
    name: "mvmr",
    atomicOutputs: true,
    source: `
      uint row = thread_position_in_grid.x, g = thread_position_in_grid.y, t = thread_position_in_grid.z;
      float total = 0.0f;
      for (uint k = 0; k < C; k++) total += a[((t * G + g) * M + row) * C + k] * b[(uint(x[t]) * G + g) * C + k];
      atomic_fetch_add_explicit(&out[(uint(o[t]) * G + g) * M + row], total, memory_order_relaxed);`,
  })({
    inputs: { a, b, o, x },
    template: { G: groups, M: m, C: c },
    grid: [m, groups, terms],
    threadgroup: [Math.min(m, 32), 1, 1],
    outputShapes: { out: [count, groups, m] },
    outputDtypes: { out: a.dtype },
    initValue: 0,
  }).out
}
/** out[o[t]] += y[i[t]] ⊗ b[x[t]] in each group: y [Y, G, M], b [B, G, C], out [count, G, M, C]. */
const outerProducts = (y: mx.Array, i: mx.Array, b: mx.Array, { o, x }: Indices, count: number): mx.Array => {
  const [, groups, m] = y.shape
  const c = b.shape[2]
  return mx.fast.metalKernel({
    name: "vvor",
    atomicOutputs: true,
    source: `
      uint k = thread_position_in_grid.x, row = thread_position_in_grid.y % M, g = thread_position_in_grid.y / M, t = thread_position_in_grid.z;
      float product = y[(uint(i[t]) * G + g) * M + row] * b[(uint(x[t]) * G + g) * C + k];
      atomic_fetch_add_explicit(&out[((uint(o[t]) * G + g) * M + row) * C + k], product, memory_order_relaxed);`,
  })({
    inputs: { y, i, b, o, x },
    template: { G: groups, M: m, C: c },
    grid: [c, groups * m, o.size],
    threadgroup: [Math.min(c, 32), 1, 1],
    outputShapes: { out: [count, groups, m, c] },
    outputDtypes: { out: y.dtype },
    initValue: 0,
  }).out
}

it("multiplies scattered matrices and vectors, each part of the other's derivative", () => {
  const [a, b] = [noise([5, 2, 3, 4]), noise([6, 2, 4], 2)]
  const [o, x, terms] = [integers(0, 2, 0, 1, 2), integers(5, 0, 3, 3, 1), integers(0, 1, 2, 3, 4)]
  const composed = (a: mx.Array, b: mx.Array): mx.Array =>
    mx
      .zeros([3, 2, 3])
      .at(o)
      .add(mx.einsum("tgmc,tgc->tgm", a, mx.take(b, x, 0)))
  const mvmr = customFunction((a: mx.Array, b: mx.Array) => matrixVectors(a, b, { o, x }, 3))
  mvmr.vjp(([a, b]: [mx.Array, mx.Array], g: mx.Array) => [
    outerProducts(g, o, b, { o: terms, x }, 5),
    matrixVectors(a.swapaxes(2, 3), g, { o: x, x: o }, 6),
  ])
  near(mvmr(a, b), composed(a, b))
  const g = noise([3, 2, 3], 7)
  const [got, wanted] = [vjp(mvmr, [a, b], [g])[1], vjp(composed, [a, b], [g])[1]]
  got.forEach((slope, i) => {
    near(slope, wanted[i])
  })

  const y = noise([3, 2, 3], 4)
  const [k, i] = [integers(1, 0, 1, 1, 0), o]
  const composedOuter = (y: mx.Array, b: mx.Array): mx.Array =>
    mx
      .zeros([2, 2, 3, 4])
      .at(k)
      .add(
        mx
          .take(y, i, 0)
          .expandDims(-1)
          .multiply(mx.take(b, x, 0).expandDims(-2)),
      )
  const vvor = customFunction((y: mx.Array, b: mx.Array) => outerProducts(y, i, b, { o: k, x }, 2))
  vvor.vjp(([y, b]: [mx.Array, mx.Array], g: mx.Array) => {
    const chosen = mx.take(g, k, 0)
    return [
      matrixVectors(chosen, b, { o: i, x }, 3),
      matrixVectors(chosen.swapaxes(2, 3), y, { o: x, x: i }, 6),
    ]
  })
  near(vvor(y, b), composedOuter(y, b))
  const h = noise([2, 2, 3, 4], 8)
  const slopes = vjp(composedOuter, [y, b], [h])[1]
  vjp(vvor, [y, b], [h])[1].forEach((slope, n) => {
    near(slope, slopes[n])
  })
})
