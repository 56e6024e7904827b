/** The kernels of quantized weights against the reference backend. */
import { noise } from "@lazuli/conformance/generator"
import * as mx from "@lazuli/core"
import { setBackend } from "@lazuli/core/engine"
import { afterEach, describe, expect, test } from "vitest"
import "./index"
import { native } from "./native"

// A primitive without a kernel would run by its decomposition, and be counted.
afterEach(() => expect(mx.backendStats()).toEqual({}))

/** The results of `body` on the reference backend. */
function meant(body: () => mx.Array[]): mx.Array[] {
  setBackend("reference", "cpu")
  try {
    const out = body()
    mx.eval(out)
    return out
  } finally {
    setBackend("cpu", "cpu")
    mx.resetBackendStats()
  }
}
const most = (a: mx.Array): number => (a.size === 0 ? 0 : (a.abs().max().item() as number))
const wide = (a: mx.Array): mx.Array => a.astype(mx.float32)

const formats = [
  ...[2, 3, 4, 5, 6, 8].flatMap((bits) =>
    [16, 32, 64, 128]
      .filter((groupSize) => (groupSize * bits) % 32 === 0)
      .map((groupSize) => ({ bits, groupSize, mode: "affine" as const })),
  ),
  { mode: "mxfp4" as const },
  { mode: "mxfp8" as const },
  { mode: "nvfp4" as const },
]

// Every format in float32, integers in one more dtype in turn, and floats in all.
const more = [mx.float16, mx.bfloat16, mx.float64]
const cases = formats.map((q, i) => ({
  q,
  dtypes: [mx.float32, ...(q.mode === "affine" ? [more[i % 3]] : more)],
}))
describe.each(cases)("$q", ({ q, dtypes }) => {
  test("quantize and dequantize give the same bits", () => {
    for (const dtype of dtypes) {
      const w = mx
        .concatenate([noise([5, 256], 3), mx.zeros([1, 256]), mx.full([1, 256], -2.5)])
        .astype(dtype)
      // Rows that do not follow each other in memory.
      const all = [w, w.index("::-2"), w.T.contiguous().T]
      const forms = all.map((x) => mx.quantize(x, q))
      const want = meant(() => all.flatMap((x) => mx.quantize(x, q)))
      forms.flat().forEach((got, i) => {
        expect([got.dtype, got.shape]).toEqual([want[i].dtype, want[i].shape])
        expect(got.equal(want[i]).all().item(), `${dtype.name}, output ${i}`).toBe(true)
      })
      const [packed, scales, biases] = forms[0]
      for (const to of dtypes) {
        const got = mx.dequantize(packed, scales, biases, { ...q, dtype: to })
        const [same] = meant(() => [mx.dequantize(packed, scales, biases, { ...q, dtype: to })])
        expect(got.equal(same).all().item(), `${dtype.name} to ${to.name}`).toBe(true)
      }
    }
  })

  // Several blocks of rows and of sums, and ends of both, beside the dense product of the same weights.
  test("products of many rows", () => {
    for (const dtype of dtypes.filter(({ size }) => size < 8)) {
      for (const [rows, k, n] of [
        [601, 1152, 37],
        [9, 2304, 300],
      ])
        for (const transpose of [true, false]) {
          const shape = transpose ? [n, k] : [k, Math.ceil(n / 128) * 128]
          const packed = mx.quantize(noise(shape, 5).astype(dtype), q)
          const x = noise([rows, k], 6).astype(dtype)
          const stored = mx.dequantize(packed[0], packed[1], packed[2], { ...q, dtype: mx.float32 })
          const w = transpose ? stored.T : stored
          const got = wide(mx.quantizedMatmul(x, packed[0], packed[1], packed[2], { transpose, ...q }))
          const want = wide(x).matmul(w)
          // A weight and a result are rounded once each, where they are halves.
          const each = dtype === mx.bfloat16 ? 2 ** -8 : dtype === mx.float16 ? 2 ** -11 : 2 ** -20
          const bound = wide(x).abs().matmul(w.abs()).multiply(each)
          expect(
            got.subtract(want).abs().lessEqual(bound).all().item(),
            `${dtype.name} ${rows} ${transpose}`,
          ).toBe(true)
        }
    }
  })

  // Rows are put in order part by part; what is not finite in a later one makes its row floats, and no other.
  test("few rows of several parts", () => {
    for (const dtype of dtypes.filter(({ size }) => size < 8)) {
      for (const k of [512, 640, 1152]) {
        const packed = mx.quantize(noise([19, k], 5).astype(dtype), q)
        const stored = mx.dequantize(packed[0], packed[1], packed[2], { ...q, dtype: mx.float32 })
        const x = noise([3, k], 6).astype(dtype)
        const last = mx
          .arange(3 * k)
          .reshape([3, k])
          .equal(2 * k - 1)
        const broken = mx.where(last, mx.array(Infinity, dtype), x)
        for (const activations of ["exact", "int8"] as const) {
          const run = (rows: mx.Array): mx.Array =>
            wide(mx.quantizedMatmul(rows, packed[0], packed[1], packed[2], { ...q, activations }))
          const got = [run(x), run(broken), run(x.index("1:2"))]
          // Rounding x moves each product by at most a 254th of the largest x of its block.
          const each = activations === "int8" ? 2 ** -6 : dtype === mx.float32 ? 2 ** -20 : 2 ** -8
          const most = activations === "int8" ? wide(x).abs().max() : wide(x).abs()
          const bound = mx
            .multiply(most, mx.ones([3, k]))
            .matmul(stored.abs().T)
            .multiply(each)
          const near = wide(x).matmul(stored.T).subtract(got[0]).abs().lessEqual(bound)
          expect(near.all().item(), `${dtype.name} ${k} ${activations}`).toBe(true)
          for (const row of [0, 2])
            expect(
              got[1].index(row).subtract(got[0].index(row)).abs().lessEqual(bound.index(row)).all().item(),
            ).toBe(true)
          expect(mx.isfinite(got[1].index(1)).any().item()).toBe(false)
          // One row may take another way than three.
          const alone = got[2].index(0).subtract(got[0].index(1)).abs()
          expect(alone.lessEqual(bound.index(1)).all().item()).toBe(true)
        }
      }
    }
  })

  // Rows so long that threads put their parts in order.
  test("few long rows, one of which becomes floats", () => {
    for (const dtype of dtypes.filter(({ size }) => size < 8)) {
      const k = 16384
      const packed = mx.quantize(noise([5, k], 5).astype(dtype), q)
      const x = noise([9, k], 6).astype(dtype)
      const spot = mx
        .arange(9 * k)
        .reshape([9, k])
        .equal(4 * k + 7001)
      const run = (rows: mx.Array): mx.Array =>
        wide(mx.quantizedMatmul(rows, packed[0], packed[1], packed[2], q))
      const got = run(mx.where(spot, mx.array(Infinity, dtype), x))
      const stored = mx.dequantize(packed[0], packed[1], packed[2], { ...q, dtype: mx.float32 })
      const each = dtype === mx.float32 ? 2 ** -18 : 2 ** -8
      const bound = wide(x).abs().matmul(stored.abs().T).multiply(each)
      const near = wide(x).matmul(stored.T).subtract(got).abs().lessEqual(bound).all(-1)
      const rows = [...Array(9).keys()]
      expect(near.tolist(), dtype.name).toEqual(rows.map((row) => row !== 4))
      expect(mx.isfinite(got.index(4)).any().item()).toBe(false)
    }
  })

  // Every number of few rows, of one group to several vectors of codes; matrices that end within a vector of columns.
  test("each number of few rows", () => {
    for (const dtype of dtypes.filter(({ size }) => size < 8))
      for (const k of [128, 384, 1024]) {
        const packed = mx.quantize(noise([37, k], 5).astype(dtype), q)
        const stored = mx.dequantize(packed[0], packed[1], packed[2], { ...q, dtype: mx.float32 })
        const each = dtype === mx.bfloat16 ? 2 ** -8 : dtype === mx.float16 ? 2 ** -10 : 2 ** -20
        for (let rows = 1; rows <= 17; rows++) {
          const x = noise([rows, k], 6).astype(dtype)
          const got = wide(mx.quantizedMatmul(x, packed[0], packed[1], packed[2], q))
          const bound = wide(x).abs().matmul(stored.abs().T).multiply(each)
          const near = wide(x).matmul(stored.T).subtract(got).abs().lessEqual(bound)
          expect(near.all().item(), `${dtype.name} ${rows} × ${k}`).toBe(true)
        }
      }
  })

  // Few rows, rows of one tile and of several, more columns than a vector has, and what the format's codes cannot.
  test("products of rows rounded to 8 bits agree with the reference", () => {
    for (const dtype of dtypes.filter(({ size }) => size < 8)) {
      for (const transpose of [true, false]) {
        const w = noise(transpose ? [35, 384] : [96, 256], 5).astype(dtype)
        const packed = mx.quantize(w, q)
        const k = transpose ? 384 : 96
        const stored = mx.dequantize(packed[0], packed[1], packed[2], { ...q, dtype: mx.float32 })
        for (const rows of transpose ? [1, 2, 3, 4, 13, 30] : [5]) {
          const x = noise([rows, k], 6)
            .multiply(mx.array([3]))
            .astype(dtype)
          const run = (activations: "int8" | "exact"): mx.Array =>
            mx.quantizedMatmul(x, packed[0], packed[1], packed[2], { transpose, ...q, activations })
          const got = wide(run("int8"))
          const [want] = meant(() => [wide(run("int8"))])
          const each = dtype === mx.float32 ? 2 ** -20 : dtype === mx.float16 ? 2 ** -10 : 2 ** -7
          const size = (a: mx.Array): mx.Array =>
            wide(a)
              .abs()
              .matmul(transpose ? stored.abs().T : stored.abs())
          const near = got.subtract(want).abs().lessEqual(size(x).multiply(each))
          expect(near.all().item(), `${dtype.name} ${rows} ${transpose}`).toBe(true)
          // The stated tolerance: half a 127th of the largest of 32.
          const blocks = wide(x).unflatten(-1, [k / 32, 32])
          const step = mx.broadcastTo(blocks.abs().max(-1, true).divide(254), blocks.shape).flatten(-2, -1)
          const bound = size(step).add(size(x).multiply(each))
          expect(
            got
              .subtract(wide(run("exact")))
              .abs()
              .lessEqual(bound)
              .all()
              .item(),
          ).toBe(true)
        }
      }
    }
  })

  test("products agree with the reference", () => {
    for (const dtype of dtypes.filter(({ size }) => size < 8)) {
      const w = noise([2, 19, 256], 5).astype(dtype)
      const packed = mx.quantize(w, q)
      for (const transpose of [true, false]) {
        const k = transpose ? 256 : 19
        for (const shape of [[k], [3, k], [2, 11, k], [2, 4, k], [3, 1, 1, k], [0, k]]) {
          const x = noise(shape, 6).astype(dtype)
          const use = shape.length > 2 ? packed : packed.map((a) => a.index(1))
          const run = (): mx.Array => mx.quantizedMatmul(x, use[0], use[1], use[2], { transpose, ...q })
          const got = run()
          const [want] = meant(() => [run()])
          expect([got.dtype, got.shape]).toEqual([want.dtype, want.shape])
          const bound = dtype === mx.float32 ? 2e-6 : dtype === mx.float16 ? 1e-3 : 8e-3
          expect(most(wide(got).subtract(wide(want)))).toBeLessThan(bound * (1 + most(wide(want))))
        }
      }
    }
  })
})

test("gatherQmm agrees with the reference, for neighbouring equal indices too", () => {
  for (const q of [{ bits: 4 }, { mode: "nvfp4" as const }, { bits: 3, groupSize: 32 }]) {
    const [w, scales, biases] = mx.quantize(noise([4, 10, 128], 2), q)
    const lhsIndices = mx.array([[5, 0, -1, 3, 3, 2, 1, 0, 4, 5]], mx.int32)
    const rhsIndices = mx.array([1, 1, 1, 1, 1, 1, 1, 1, 1, 3], mx.uint8)
    for (const rows of [1, 3]) {
      const x = noise([2, 3, rows, 128], 3)
      const run = (): mx.Array => mx.gatherQmm(x, w, scales, biases, { lhsIndices, rhsIndices, ...q })
      const got = run()
      const [want] = meant(() => [run()])
      expect(most(got.subtract(want))).toBeLessThan(2e-5)
      const back = (): mx.Array =>
        mx.gatherQmm(noise([6, rows, 10]), w, scales, biases, {
          lhsIndices,
          rhsIndices,
          transpose: false,
          ...q,
        })
      const [flat] = meant(() => [back()])
      expect(most(back().subtract(flat))).toBeLessThan(2e-5)
    }
    expect(() =>
      mx
        .gatherQmm(noise([1, 1, 128]), w, scales, biases, { rhsIndices: mx.array([4], mx.int32), ...q })
        .tolist(),
    ).toThrow("[gatherQmm] index 4 is out of bounds for axis 0 with size 4")
  }
})

test("a block with what is not finite makes rows rounded to 8 bits NaN, and one of zeros nothing", () => {
  const packed = mx.quantize(noise([20, 128], 2))
  const ones = mx.ones([1, 64])
  const odd = [Number.NaN, Infinity, -Infinity].map((v) => mx.concatenate([mx.full([1, 64], v), ones], 1))
  const zero = mx.concatenate([mx.zeros([1, 64]), ones], 1)
  for (const repeat of [1, 4]) {
    const x = mx.concatenate([...odd, zero].slice(repeat === 1 ? 3 : 0))
    const y = mx.quantizedMatmul(x, packed[0], packed[1], packed[2], { activations: "int8" })
    const isNan = mx.isnan(y).all(-1).tolist() as boolean[]
    expect(isNan).toEqual(repeat === 1 ? [false] : [true, true, true, false])
    const want = mx.quantizedMatmul(zero, packed[0], packed[1], packed[2])
    expect(most(y.index("-1:").subtract(want))).toBeLessThan(1e-4)
  }
})

test("gatherQmm of rows rounded to 8 bits is the product of the chosen matrices", () => {
  const [w, scales, biases] = mx.quantize(noise([3, 20, 64], 2))
  const rhsIndices = mx.array([2, 2, 0, 1], mx.int32)
  const x = noise([4, 5, 64], 3)
  const got = mx.gatherQmm(x, w, scales, biases, { rhsIndices, activations: "int8" })
  const at = (a: mx.Array): mx.Array => mx.take(a, rhsIndices, 0)
  const want = mx.quantizedMatmul(x, at(w), at(scales), at(biases), { activations: "int8" })
  expect(most(got.subtract(want))).toBeLessThan(1e-5)
})

test("weights that are views, broadcast or larger than a block", () => {
  const packed = mx.quantize(noise([70, 2048], 4), { bits: 4 })
  const x = noise([2, 9, 2048], 5)
  const run = (use: mx.Array[], y = x): mx.Array => mx.quantizedMatmul(y, use[0], use[1], use[2])
  const check = (use: mx.Array[], y = x): void => {
    const got = run(use, y)
    const [want] = meant(() => [run(use, y)])
    expect(most(got.subtract(want))).toBeLessThan(1e-4)
  }
  check(packed)
  check(packed, noise([80, 2048], 6))
  check(packed.map((a) => a.index("::-3")))
  check(packed.map((a) => mx.broadcastTo(a, [2, ...a.shape])))
  check(packed.map((a) => a.T.contiguous().T))
  check(packed, x.index(":", "::4").swapaxes(0, 1))
})

// Scales that are copied and biases that are read where they lie have to be of one dtype, and the other way round.
test("operands in any order in memory give the same bits", () => {
  const strided = (a: mx.Array): mx.Array => a.swapaxes(-1, -2).contiguous().swapaxes(-1, -2)
  const bits = (a: mx.Array): mx.Array => a.view(a.dtype.size === 2 ? mx.uint16 : mx.uint32)
  for (const dtype of [mx.float16, mx.bfloat16, mx.float32])
    for (const q of [
      { bits: 8, groupSize: 32 },
      { bits: 4 },
      { bits: 6, groupSize: 16 },
      { mode: "mxfp4" as const },
    ]) {
      const packed = mx.quantize(noise([3, 64, 128], 5).astype(dtype), q)
      for (const transpose of [true, false])
        for (const rows of [1, 3, 9, 40]) {
          const x = noise([3, rows, transpose ? 128 : 64], 6).astype(dtype)
          const rhsIndices = mx.array([2, 0, 2], mx.int32)
          const plain = (y: mx.Array, [w, s, b]: mx.Array[]): mx.Array =>
            mx.quantizedMatmul(y.index(1), w.index(1), s.index(1), b?.index(1), { transpose, ...q })
          const gathered = (y: mx.Array, [w, s, b]: mx.Array[]): mx.Array =>
            mx.gatherQmm(y, w, s, b, { rhsIndices, transpose, ...q })
          for (const run of [plain, gathered]) {
            const all = [x, ...packed]
            const want = run(x, packed)
            for (let which = 1; which < 1 << all.length; which++) {
              const [y, ...use] = all.map((a, i) => (which & (1 << i) ? strided(a) : a))
              expect(
                mx.arrayEqual(bits(run(y, use)), bits(want)).item(),
                `${dtype.name} ${JSON.stringify(q)} ${rows} ${transpose} ${which}`,
              ).toBe(true)
            }
          }
        }
    }
})

test("NaN, infinities and a global scale", () => {
  const w = mx.concatenate(
    [mx.array([[Number.NaN, Infinity, -Infinity, 1e-40, 3e38, -0]]), noise([1, 122])],
    1,
  )
  for (const q of [...formats.filter(({ mode }, i) => mode !== "affine" || i % 5 === 0)]) {
    const [rows, mixed] = [w.reshape([1, 128]), mx.where(mx.isfinite(w), w, 1).reshape([1, 128])]
    for (const x of [rows, mixed]) {
      const got = mx.quantize(x, q)
      const want = meant(() => mx.quantize(x, q))
      got.forEach((a, i) => {
        expect(mx.arrayEqual(a, want[i], { equalNan: true }).item(), `${JSON.stringify(q)} ${i}`).toBe(true)
      })
    }
  }
  const globalScale = mx.array(0.37)
  const x = noise([3, 64])
  const got = mx.quantize(x, { mode: "nvfp4", globalScale })
  const want = meant(() => mx.quantize(x, { mode: "nvfp4", globalScale }))
  got.forEach((a, i) => expect(a.tolist()).toEqual(want[i].tolist()))
  const back = mx.dequantize(got[0], got[1], { mode: "nvfp4", globalScale })
  const [same] = meant(() => [mx.dequantize(got[0], got[1], { mode: "nvfp4", globalScale })])
  expect(back.tolist()).toEqual(same.tolist())
})

test("results of large elements are finite where they can be", () => {
  // Vectors of AVX2 and AVX-512 have codes of E4M3 that are 2^8 times too small.
  const isWide = native.simdTarget().startsWith("avx")
  const w = mx.concatenate([mx.zeros([4, 1]), mx.full([4, 127], 0.02)], 1)
  for (const q of [
    ...formats.filter(({ mode }) => mode !== "affine"),
    { bits: 6, groupSize: 32, mode: "affine" as const },
  ])
    for (const [activations, bound] of [
      ["exact", 1e-6],
      ["int8", 0.02],
    ] as const) {
      const [packed, scales, biases] = mx.quantize(w, q)
      const size = q.mode === "mxfp8" && !isWide ? 1e34 : 2e36
      const x = mx.full([1, 128], size)
      const got = mx.quantizedMatmul(x, packed, scales, biases, { ...q, activations })
      const want = mx.dequantize(packed, scales, biases, q).astype(mx.float64).sum(1).multiply(size)
      const error = most(got.astype(mx.float64).subtract(want).divide(want))
      expect(error, `${JSON.stringify(q)}, ${activations}`).toBeLessThan(bound)
    }
})

test("a few rows of any magnitude", () => {
  for (const [k, groupSize, bits] of [
    [1024, 64, 4],
    [512, 32, 4],
    [448, 64, 4],
    [128, 128, 4],
    [336, 16, 2],
    [352, 32, 3],
    [416, 32, 5],
    [400, 16, 6],
    [208, 16, 8],
  ]) {
    const [w, scales, biases] = mx.quantize(noise([21, k], 8), { groupSize, bits })
    const change = (f: (v: number, i: number) => number): mx.Array =>
      mx.array(Float32Array.from(noise([2 * k], 9).toTypedArray() as Float32Array, f)).reshape([2, k])
    for (const [name, x] of Object.entries({
      plain: change((v) => v),
      "some zero": change((v, i) => (i % 200 < 130 ? 0 : v)),
      "groups far apart": change((v, i) => v * 10 ** (((i >> 6) % 7) * 4 - 12)),
      tiny: change((v) => v * 1e-33),
      huge: change((v) => v * 1e33),
      "one alone": change((v, i) => (i === 70 ? 1e4 * v : v)),
      infinite: change((v, i) => (i === k + 3 ? Number.POSITIVE_INFINITY : v)),
      "not a number": change((v, i) => (i === 5 ? Number.NaN : v)),
    })) {
      const run = (): mx.Array => mx.quantizedMatmul(x, w, scales, biases, { groupSize, bits })
      const got = [...(run().toTypedArray() as Float32Array)]
      const want = [...(meant(() => [run()])[0].toTypedArray() as Float32Array)]
      for (const row of [0, 1]) {
        const part = (list: number[]): number[] => list.slice(row * 21, row * 21 + 21)
        const size = Math.max(...part(want).map(Math.abs))
        part(got).forEach((v, i) => {
          const exact = part(want)[i]
          if (Number.isFinite(exact)) expect(Math.abs(v - exact), name).toBeLessThanOrEqual(3e-6 * size)
          else expect(Number.isFinite(v), name).toBe(false)
        })
      }
    }
  }
  // Whole numbers stay exact.
  const whole = (count: number, most: number): mx.Array => mx.arange(count).remainder(most).astype(mx.float32)
  const [w, scales, biases] = mx.quantize(whole(16 * 256, 16).reshape([16, 256]))
  const x = whole(256, 37).subtract(18).reshape([1, 256])
  const exact = x.matmul(mx.dequantize(w, scales, biases).T)
  expect(mx.quantizedMatmul(x, w, scales, biases).tolist()).toEqual(exact.tolist())
})
