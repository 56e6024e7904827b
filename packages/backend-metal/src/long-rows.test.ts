/**
 * Kernels whose form depends on sizes: several groups a row, rows that no thread can keep, columns by several passes, vectors beside odd
 * offsets. Against the reference backend.
 */
import { compile } from "@lazuli/compile"
import { noise } from "@lazuli/conformance/generator"
import * as mx from "@lazuli/core"
import { onStream } from "@lazuli/core/engine"
import { vjp } from "@lazuli/transforms"
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import "./index"

beforeAll(() => mx.setDefaultDevice(mx.gpu))
afterAll(() => mx.setDefaultDevice(mx.cpu))
beforeEach(() => mx.resetBackendStats())

function agree(make: () => mx.Array, tolerance: number): void {
  const values = make().flatten().tolist() as number[]
  expect(mx.backendStats().metal ?? {}).toEqual({})
  const wanted = onStream("cpu", () => make().flatten().tolist()) as number[]
  expect(values.length).toBe(wanted.length)
  values.forEach((value, i) => {
    const want = wanted[i]
    if (Object.is(value, want)) return
    if (!(Math.abs(value - want) <= tolerance * (1 + Math.abs(want))))
      expect.fail(`element ${i}: ${value} instead of ${want}`)
  })
}

const large = noise([40, 3001])
const inputs = (): mx.Array => onStream("cpu", () => large.add(0))

it.each([
  ["all axes, in several passes", (x: mx.Array) => x.sum()],
  ["rows of several thousand", (x: mx.Array) => x.sum(1)],
  ["columns of a long array", (x: mx.Array) => x.reshape([3001 * 5, 8]).sum(0)],
  ["columns of odd width", (x: mx.Array) => x.sum(0)],
  ["columns of a part at an odd offset", (x: mx.Array) => x.index(":", "3:2003").sum(0)],
  ["rows at an odd offset", (x: mx.Array) => x.index(":", "3:2003").max(1)],
  ["a middle axis", (x: mx.Array) => x.reshape([40, 3001, 1]).transpose([1, 0, 2]).min(1)],
  ["two axes apart", (x: mx.Array) => x.reshape([8, 5, 3001]).sum([0, 2])],
  ["the first and last of two", (x: mx.Array) => x.reshape([8, 5, 3001]).transpose([1, 0, 2]).sum([0, 1])],
])("sums and extremes over %s", (_, body) => agree(() => body(inputs()), 2e-4))

it.each<[string, readonly number[], (x: mx.Array) => mx.Array]>([
  ["a row of vectors", [2100, 128], (x) => x.add(noise([128], 2))],
  ["a row of odd width", [3, 701, 101], (x) => x.multiply(noise([3, 1, 101], 2))],
  ["a row at an odd offset", [1001, 260], (x) => x.add(noise([261], 2).index("1:"))],
  ["every other element", [2, 1001, 128], (x) => x.add(noise([2, 1, 256], 2).index("...", "::2"))],
  ["another one beside transposed rows", [260, 1001], (x) => x.T.subtract(noise([1, 260], 2))],
  [
    "rows, columns and single elements",
    [2, 1001, 128],
    compile((x: mx.Array) =>
      x
        .multiply(noise([2, 1, 128], 2))
        .add(noise([1001, 1], 3))
        .maximum(noise([2, 1, 1], 4)),
    ),
  ],
  ["copies of a row", [1, 130], (x) => mx.contiguous(mx.broadcastTo(x, [2000, 130]))],
  [
    "halves",
    [2100, 256],
    (x) =>
      x
        .astype(mx.float16)
        .add(noise([256], 2, mx.float16))
        .astype(mx.float32),
  ],
])("combines %s with many rows, several of a thread", (_, shape, body) => {
  agree(() => body(noise([...shape])), 1e-6)
})

it("finds positions over several passes, the first of equal ones", () => {
  agree(() => inputs().multiply(8).round().argmax().astype(mx.float32), 0)
  agree(() => inputs().multiply(8).round().argmin(0).astype(mx.float32), 0)
})

it("transforms lengths of any factors", () => {
  for (const n of [2 * 1021, 5005, 17 * 81, 1031])
    for (const f of [mx.fft.fft, mx.fft.ifft])
      agree(() => {
        const y = f(noise([2, n, 2]), { axis: 1 })
        return mx.stack([y.real, y.imag])
      }, 2e-4)
})

it("computes variances over several passes", () => {
  agree(() => mx.var(inputs().add(1000)), 1e-2)
  agree(() => mx.var(inputs(), 1), 1e-5)
  agree(
    () =>
      mx.var(
        mx.array([
          [1, -Infinity, 2],
          [Infinity, 1, 1],
          [1, 2, 3],
        ]),
        1,
      ),
    0,
  )
})

it.each([
  ["kept in registers by a threadgroup", [7, 3000]],
  ["of odd length", [7, 3001]],
  ["too long to be kept", [2, 40_000]],
  ["too long and odd", [2, 40_001]],
])("computes along rows %s", (_, shape) => {
  const x = (): mx.Array => onStream("cpu", () => noise(shape))
  const w = (): mx.Array => onStream("cpu", () => noise(shape.slice(1), 5))
  agree(() => mx.softmax(x().multiply(8), -1), 1e-6)
  agree(() => mx.logsumexp(x(), -1), 1e-6)
  agree(() => mx.softmax(x(), 0), 1e-6)
  agree(() => mx.fast.layerNorm(x(), w(), w().add(1), 1e-5), 1e-5)
  agree(() => mx.fast.rmsNorm(x(), w(), 1e-5), 1e-5)
})

it("differentiates norms over many rows", () => {
  for (const shape of [
    [700, 33],
    [3, 2000],
  ])
    for (const k of [0, 1, 2])
      agree(() => {
        const parts: [mx.Array, mx.Array, mx.Array] = [
          noise(shape),
          noise(shape.slice(1), 2),
          noise(shape.slice(1), 3),
        ]
        const g = noise(shape, 4)
        const [, grads] = vjp(
          (x: mx.Array, w: mx.Array, b: mx.Array) => mx.fast.layerNorm(x, w, b, 1e-5),
          parts,
          [g],
        )
        return grads[k]
      }, 1e-4)
})

it.each([
  ["shared by several groups", [3, 40_000]],
  ["of odd length", [2, 30_001]],
  ["that a group takes in tiles", [5, 3000]],
])("runs folds along rows %s", (_, shape) => {
  for (const reverse of [false, true])
    for (const inclusive of [false, true]) {
      agree(() => noise(shape).multiply(10).round().cumsum(1, reverse, inclusive), 0)
      agree(() => noise(shape).cummax(-1, reverse, inclusive), 0)
    }
  agree(() => mx.logcumsumexp(noise(shape), 1), 1e-5)
  agree(() => noise(shape).multiply(10).round().cumsum(0), 0)
})

it.each([[[3, 7000]], [[5, 2048]], [[2, 2049]], [[1, 20_000]]])(
  "sorts rows of shape %o, equal elements in their order",
  (shape) => {
    const values = (): mx.Array => noise(shape).multiply(50).round()
    agree(() => mx.sort(values(), -1), 0)
    agree(() => mx.argsort(values(), -1).astype(mx.float32), 0)
    agree(() => mx.argsort(values().astype(mx.int32).transpose(), 0).astype(mx.float32), 0)
    agree(() => mx.topk(values(), 5, -1), 0)
    agree(() => mx.argpartition(values(), 1000, -1).astype(mx.float32), 0)
  },
)

it("sorts by digits in every dtype, NaN last", () => {
  const shape = [2, 5000]
  for (const dtype of [
    ...[mx.bool_, mx.uint8, mx.int8, mx.uint16, mx.int16, mx.uint32, mx.int32, mx.uint64, mx.int64],
    ...[mx.float16, mx.bfloat16, mx.float32, mx.complex64],
  ]) {
    const unsigned = /^(u|bool)/.test(dtype.name)
    const wide = (): mx.Array =>
      noise(shape)
        .multiply(unsigned ? 0.5 : 1)
        .add(unsigned ? 0.5 : 0)
    const scale = dtype.kind === "floating" || dtype.kind === "complex" ? 1e4 : dtype.size === 1 ? 120 : 3e4
    const plain = (): mx.Array => wide().multiply(scale).astype(dtype)
    const values = (): mx.Array =>
      dtype.kind === "floating"
        ? mx.where(
            noise(shape, 9).greater(0.9),
            NaN,
            mx.where(noise(shape, 8).greater(0.9), -Infinity, plain()),
          )
        : dtype.kind === "complex"
          ? mx.view(noise([2, 10_000]).multiply(3).round(), mx.complex64)
          : plain()
    agree(() => mx.argsort(values(), -1).astype(mx.float32), 0)
    agree(() => mx.sort(values(), -1).astype(mx.float32), 0)
  }
})

it("keeps zeros of both signs in their order", () => {
  const zeros = (): mx.Array => mx.where(noise([4000]).greater(0), 0, -0)
  agree(() => mx.divide(1, mx.sort(zeros())), 0)
})

it("gathers rows by vectors, and keeps the last of several updates", () => {
  const table = (): mx.Array => noise([100, 64])
  const rows = (): mx.Array => noise([500], 7).multiply(60).floor().astype(mx.int32)
  agree(() => mx.take(table(), rows(), 0), 0)
  agree(() => mx.take(table().index(":", "1:"), rows(), 0), 0)
  const updates = (): mx.Array => noise([500, 64], 9)
  agree(() => table().at(rows()).add(updates()), 1e-4)
  agree(() => table().at(rows()).maximum(updates()), 0)
  agree(
    () =>
      mx.putAlongAxis(noise([8, 300]), rows().reshape([1, 500]).broadcastTo([8, 500]), noise([8, 500], 3), 1),
    0,
  )
})

it.each([
  [0, mx.float32],
  [1, mx.float16],
  [[0, 2], mx.complex64],
  [[0, 1, 2], mx.float32],
])("shares a cell's cotangent among its extremes along %o in %o", (axes, dtype) => {
  const x = (): mx.Array => noise([7, 33, 5]).multiply(2).round().astype(dtype)
  const slope = (y: mx.Array): mx.Array =>
    vjp((x: mx.Array) => mx.max(x, axes), [y], [noise(mx.max(y, axes).shape, 3).astype(dtype)])[1][0]
  agree(() => slope(x()).astype(mx.float32), 1e-6)
  agree(() => slope(x().transpose([2, 0, 1])).astype(mx.float32), 1e-6)
  if (axes === 0) agree(() => slope(mx.where(noise([7, 33, 5]).greater(0.9), NaN, x())), 1e-6)
})

it.each([
  ["a matrix", [100, 70], [1, 0]],
  ["of odd sides", [67, 129], [1, 0]],
  ["a stack of matrices", [3, 65, 33], [0, 2, 1]],
  ["the outer axes too", [3, 40, 2, 33], [2, 3, 0, 1]],
  ["all axes", [17, 18, 19], [2, 1, 0]],
])("transposes %s", (_, shape, axes) => {
  for (const dtype of [mx.uint8, mx.float16, mx.float32, mx.complex64])
    agree(() => mx.contiguous(noise(shape).multiply(100).astype(dtype).transpose(axes)).astype(mx.float32), 0)
  // Behind an offset, and at its end.
  agree(() => mx.contiguous(noise(shape).index("...", "1:").transpose(axes)), 0)
})

it.each([
  ["one part", [130, 5]],
  ["several parts", [1030, 3]],
  ["an outer axis", [2, 400, 7]],
  ["a few elements", [7, 3]],
])("runs folds down lines of %s", (_, shape) => {
  const axis = shape.length - 2
  for (const reverse of [false, true])
    for (const inclusive of [false, true]) {
      agree(() => noise(shape).multiply(10).round().cumsum(axis, reverse, inclusive), 0)
      agree(() => noise(shape).cummin(axis, reverse, inclusive), 0)
    }
})

it.each([[[200, 40]], [[65, 33]], [[7, 300]], [[3, 90, 5]]])(
  "softmax down columns of shape %o, which may begin with −∞",
  (shape) => {
    const axis = shape.length - 2
    const masked = (): mx.Array => mx.where(noise(shape, 3).greater(0.5), noise(shape).multiply(8), -Infinity)
    agree(() => mx.softmax(noise(shape).multiply(8), axis), 1e-6)
    agree(() => mx.softmax(masked(), axis), 1e-6)
    agree(() => mx.logsumexp(masked(), axis), 1e-5)
    agree(() => mx.softmax(mx.full(shape, -Infinity), axis), 0)
  },
)

it("reads along an axis and across rows, a few words a thread", () => {
  for (const n of [1, 7, 1000, 2049]) {
    const rows = (): mx.Array => noise([n, 3], 7).multiply(30).floor().astype(mx.int32)
    agree(() => mx.takeAlongAxis(noise([n, 64]), rows().abs(), 1), 0)
    agree(() => mx.take(noise([40, 3]), rows().flatten(), 0), 0)
    agree(() => mx.take(noise([40]), rows(), 0), 0)
  }
})
