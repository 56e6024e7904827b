/** Results do not depend on the number of threads: calls that threads share, cut as for some and as for others, to the last bit. */
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { grad } from "@lazuli/transforms"
import { afterAll, beforeEach, describe, expect, test } from "vitest"
import "./index"
import { native } from "./native"

type Result = mx.Array | mx.Array[]
type Calls = Record<string, () => Result>

const before = native.threads()
afterAll(() => native.setThreads(before))

let seed = 0
beforeEach(() => {
  seed = 0
})
const onCpu = (f: () => Result): Result => mx.stream(mx.cpu, f as () => mx.Array)
const normal = (shape: number[], dtype: mx.Dtype = mx.float32): mx.Array =>
  mx.stream(mx.cpu, () => mx.random.normal(shape, { key: mx.random.key(++seed) }).astype(dtype))
const below = (high: number, shape: number[]): mx.Array =>
  mx.random.randint(0, high, shape, { key: mx.random.key(++seed) })
/** The same values, with the last two axes stored the other way round. */
const turned = (x: mx.Array): mx.Array =>
  mx.stream(mx.cpu, () => mx.contiguous(x.swapaxes(-1, -2)).swapaxes(-1, -2))

const bytesOf = (x: mx.Array): Buffer => {
  const { buffer, byteOffset, byteLength } = x.reshape([-1]).contiguous().view(mx.uint8).toTypedArray()
  return Buffer.from(buffer as ArrayBuffer, byteOffset, byteLength)
}

/** Fails for calls of which some number of threads gives other bits than one. */
function expectSame(calls: Calls): void {
  const different = Object.entries(calls).flatMap(([name, f]) => {
    const all = [1, 2, 3, 4, 7, 16].map((threads) => {
      native.setThreads(threads)
      return Buffer.concat([onCpu(f)].flat().map(bytesOf))
    })
    return all.every((one) => one.equals(all[0])) ? [] : [name]
  })
  expect(different).toEqual([])
}

const floats = [mx.float32, mx.bfloat16, mx.float16]

describe("products of", () => {
  // Rows, columns and depth: cut by rows, by columns and not at all; few rows, and parts that have few.
  const shapes = [
    [300, 128, 1024],
    [100, 120, 1000],
    [600, 64, 4000],
    [200, 100, 2000],
    [1000, 40, 3000],
    [49, 700, 513],
    [97, 31, 4100],
    [1000, 70, 300],
    [300, 300, 700],
    [256, 320, 512],
    [131, 1197, 97],
    // Its threads pack apart where they are eight or more.
    [640, 512, 512],
    // Their tasks pack for themselves.
    [512, 500, 300],
    [2, 3000, 700],
    [17, 900, 600],
    [30, 2801, 270],
    [1, 3000, 700],
    [3000, 1, 700],
  ]
  test.each([...floats, mx.float64])("%s", { timeout: 120_000 }, (dtype) => {
    for (const [m, n, k] of shapes) {
      const [a, b, c] = [normal([m, k], dtype), normal([k, n], dtype), normal([n], dtype)]
      const [at, bt] = [turned(a), turned(b)]
      const finished = compile((x: mx.Array, y: mx.Array) => mx.maximum(mx.addmm(c, x, y), 0).multiply(2))
      mx.eval(a, b, c, at, bt)
      const name = `${m}×${n}×${k}`
      expectSame({
        [name]: () => a.matmul(b),
        [`${name}, a transposed`]: () => at.matmul(b),
        [`${name}, b transposed`]: () => a.matmul(bt),
        [`${name}, added`]: () => mx.addmm(c, at, bt, 0.5, 2),
        [`${name}, finished`]: () => finished(a, b),
        [`${name}, in a batch`]: () => mx.stack([a, a.negative()]).matmul(mx.stack([b, b.multiply(3)])),
      })
    }
  })
  test.each([
    [9, 128, 128, 128],
    [33, 61, 97, 130],
    [5, 100, 65, 300],
    [7, 250, 130, 131],
  ])("a batch of %i of %i × %i × %i have the bits of each alone", (count, m, n, k) => {
    const [a, b] = [normal([count, m, k]), normal([count, k, n])]
    const alone = () => mx.stack(Array.from({ length: count }, (_, i) => a.index(i).matmul(b.index(i))))
    for (const threads of [1, 2, 7]) {
      native.setThreads(threads)
      const together = bytesOf(onCpu(() => a.matmul(b)) as mx.Array)
      expect(together.equals(bytesOf(onCpu(alone) as mx.Array)), `${threads} threads`).toBe(true)
    }
  })
  test.each(floats)("chosen matrices of %s", { timeout: 120_000 }, (dtype) => {
    const rows = normal([900, 600], dtype)
    const experts = mx.sort(below(4, [900]))
    for (const [m, n, k] of [
      [60, 300, 1000],
      [300, 64, 4000],
    ]) {
      const [a, b, c] = [normal([4, m, k], dtype), normal([4, k, n], dtype), normal([4, 600, n], dtype)]
      const some = mx.array([3, 0, 2, 2, 1], mx.int32)
      const kept = mx.random
        .uniform({ shape: [Math.ceil(m / 32), Math.ceil(n / 32)], key: mx.random.key(5) })
        .less(0.7)
      const parts = mx.array([
        [0, 100],
        [100, k],
      ])
      const name = `${m}×${n}×${k}`
      expectSame({
        [`gathered ${name}`]: () => mx.gatherMm(a, b, { lhsIndices: some, rhsIndices: some }),
        [`rows of experts ${name}`]: () =>
          mx.gatherMm(rows.expandDims(1), c, { rhsIndices: experts, sortedIndices: true }),
        [`segments ${name}`]: () => mx.segmentedMm(a.index(0), b.index(0), parts.astype(mx.uint32)),
        [`blocks ${name}`]: () => mx.blockMaskedMm(a.index(0), b.index(0), 32, { maskOut: kept }),
        [`einsum ${name}`]: () => mx.einsum("bij,bjk->ik", a, b),
      })
    }
  })
  test.each(floats)("packed weights by %s", { timeout: 120_000 }, (dtype) => {
    for (const [mode, groupSize, bitsEach] of [
      ["affine", 64, 4],
      ["affine", 32, 5],
      ["mxfp8", 32, 8],
      ["nvfp4", 16, 4],
    ] as const)
      for (const [m, n, k] of [
        [1, 2048, 640],
        [3, 1500, 640],
        [8, 1500, 640],
        [33, 700, 640],
        [300, 257, 1280],
        [9, 40, 16384],
      ]) {
        const format = { mode, groupSize, bits: bitsEach }
        const [w, scales, biases] = mx.quantize(normal([n, k], dtype), format)
        const [x, c] = [normal([m, k], dtype), normal([m, n], dtype)]
        const finished = compile((a: mx.Array) =>
          mx
            .quantizedMatmul(a, w, scales, { biases, ...format })
            .add(c)
            .square(),
        )
        const name = `${m}×${n}×${k}, ${mode} of ${bitsEach} bits`
        expectSame({
          [name]: () => mx.quantizedMatmul(x, w, scales, { biases, ...format }),
          [`${name}, finished`]: () => finished(x),
          [`${name}, bytes`]: () =>
            mx.quantizedMatmul(x, w, scales, { biases, ...format, activations: "int8" }),
        })
      }
  })
})

test.each(floats)("convolutions of %s", { timeout: 120_000 }, (dtype) => {
  const cases: [number[], number[], object][] = [
    [[2, 30, 43, 33], [65, 3, 3, 33], { padding: 1 }],
    [[2, 56, 56, 64], [128, 1, 1, 64], {}],
    [[1, 100, 100, 3], [40, 7, 7, 3], { stride: 2, padding: 3 }],
    [[3, 30, 30, 48], [48, 7, 7, 1], { padding: 3, groups: 48 }],
    [[2, 30, 30, 24], [48, 5, 5, 12], { padding: 2, groups: 2 }],
    [[2, 17, 17, 24], [40, 4, 4, 24], { padding: 2, inputDilation: 2 }],
    [[1, 9, 9, 300], [200, 3, 3, 300], { padding: 1 }],
  ]
  for (const [xs, ws, options] of cases) {
    const [x, w] = [normal(xs, dtype), normal(ws, dtype)]
    const conv = (a: mx.Array, b: mx.Array): mx.Array => mx.convGeneral(a, b, options)
    const finished = compile((a: mx.Array, b: mx.Array) => mx.maximum(conv(a, b), 0))
    const slopes = grad((a: mx.Array, b: mx.Array) => conv(a, b).square().sum(), [0, 1])
    const name = `[${xs}] by [${ws}]`
    expectSame({
      [name]: () => conv(x, w),
      [`${name}, finished`]: () => finished(x, w),
      [`${name}, gradients`]: () => slopes(x, w) as mx.Array[],
    })
  }
})

test.each(floats)("attention of %s", { timeout: 120_000 }, (dtype) => {
  for (const [heads, groups, n, m, features] of [
    [4, 2, 300, 300, 64],
    [4, 4, 40, 1000, 80],
    [32, 8, 1, 2000, 64],
    [8, 2, 5, 2000, 64],
    [1, 1, 500, 500, 33],
  ]) {
    const q = normal([1, heads, n, features], dtype)
    const [k, v] = [normal([1, groups, m, features], dtype), normal([1, groups, m, features], dtype)]
    const sinks = normal([heads], dtype)
    const kept = mx.random.uniform({ shape: [n, m], key: mx.random.key(9) }).less(0.8)
    const name = `${heads}/${groups}×${n}×${m}×${features}`
    expectSame({
      [name]: () => mx.fast.scaledDotProductAttention(q, k, v, { scale: 0.1 }),
      [`${name}, causal`]: () =>
        mx.fast.scaledDotProductAttention(q, k, v, { scale: 0.1, mask: "causal", sinks }),
      [`${name}, masked`]: () => mx.fast.scaledDotProductAttention(q, k, v, { scale: 0.1, mask: kept }),
    })
  }
})

test.each([...floats, mx.float64])(
  "reductions, scans, sorts and chains of %s",
  { timeout: 240_000 },
  (dtype) => {
    for (const shape of [[200_007], [300, 301], [3, 60_003], [60_003, 3]]) {
      const x = mx.stream(mx.cpu, () => normal(shape).multiply(0.1).add(1).astype(dtype))
      const views = shape.length > 1 ? { "": x, " of turned": turned(x) } : { "": x }
      const row = normal([shape[shape.length - 1]], dtype)
      const chain = (a: mx.Array): mx.Array => a.multiply(3).exp().add(row).sin().tanh().add(mx.erf(a))
      const compiled = {
        chain: compile(chain),
        "sum of a chain": compile((a: mx.Array) => chain(a).sum(-1)),
        "columns of a chain": compile((a: mx.Array) => chain(a).sum(0)),
        "softmax of a chain": compile((a: mx.Array) => mx.softmax(chain(a), -1).multiply(2)),
      }
      for (const [view, a] of Object.entries(views)) {
        for (const axis of shape.length > 1 ? [undefined, 0, -1] : [0]) {
          const name = `[${shape}]${view} along ${axis}`
          expectSame({
            [`sum ${name}`]: () => a.sum(axis),
            [`prod ${name}`]: () => a.prod(axis),
            [`max ${name}`]: () => a.max(axis),
            [`argmin ${name}`]: () => a.argmin(axis),
            [`var ${name}`]: () => a.var(axis),
            [`logsumexp ${name}`]: () => mx.logsumexp(a, axis),
            [`softmax ${name}`]: () => mx.softmax(a, axis),
            [`cumsum ${name}`]: () => mx.cumsum(a, axis),
            [`logcumsumexp ${name}`]: () => mx.logcumsumexp(a, axis),
            [`argsort ${name}`]: () => mx.argsort(a, axis),
          })
        }
        expectSame(
          Object.fromEntries(
            Object.entries(compiled).map(([name, f]) => [`${name} [${shape}]${view}`, () => f(a)]),
          ),
        )
      }
    }
  },
)

test.each(floats)("indices, segments, transforms and norms of %s", { timeout: 120_000 }, (dtype) => {
  const [x, many, line] = [normal([5000, 70], dtype), normal([20_000, 70], dtype), normal([20_000], dtype)]
  const [few, ids] = [below(300, [20_000]), mx.sort(below(300, [20_000]))]
  const wide = many.flatten().index("0:1048576").reshape([-1, 1024])
  const slopes = grad(
    (a: mx.Array, w: mx.Array) => mx.fast.layerNorm(a, w, w, 1e-5).square().astype(mx.float32).sum(),
    [0, 1],
  )
  expectSame({
    "at add": () => x.at(few).add(many),
    "at multiply": () => x.at(few).multiply(many),
    "at add of elements": () => x.flatten().at(few).add(line),
    "segment sums": () => mx.segmentSum(many, ids, { numSegments: 300 }),
    "segment sums by any ids": () => mx.segmentSum(many, few, { numSegments: 300 }),
    "segment softmax": () => mx.segmentSoftmax(many, ids, { numSegments: 300 }),
    "sparse product": () => mx.cooMatmul(line, few, few, x, { numRows: 300 }),
    distances: () => mx.cdist(x.index("0:400"), many.index("0:700"), 2),
    hadamard: () => mx.hadamardTransform(wide),
    fft: () => mx.fft.fft(many),
    "fft of columns": () => mx.fft.fft(many, null, 0),
    "fft of a long line": () => mx.fft.fft(wide.flatten()),
    layerNorm: () => mx.fast.layerNorm(many, many.index(0), many.index(1), 1e-5),
    "gradients of layerNorm": () => slopes(many, many.index(0)) as mx.Array[],
    quantize: () => mx.quantize(wide),
    "random numbers": () => mx.random.normal([300_001], { key: mx.random.key(3), dtype }),
  })
})
