/** Products of one row with many rows of packed weights, on the test double as a Hopper GPU. */
import "../test/double"
import "../test/hopper"
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { beforeAll, expect, it, vi } from "vitest"
import { followPipelines, launchesInPlans } from "../test/launches"
import { valuesOf, wave } from "../test/waves"
import { cudaRuntime } from "./index"
import { cudaNative } from "./native"

const made = new Set<string>()
/** Of packed_row's kernels: stages, and tiles whose scales and biases are kept. */
const forms: number[][] = []
beforeAll(() => {
  mx.setBackend("cuda", "gpu")
  mx.setDefaultDevice(mx.gpu)
  const native = cudaNative()
  const make = native.newKernel.bind(native)
  vi.spyOn(native, "newKernel").mockImplementation((...call) => {
    made.add(call[1])
    return make(...call)
  })
  followPipelines((source, symbol) => {
    const [, norm, end] = /LZ_NORM (\d)\n#define LZ_END (\d)/.exec(source) ?? []
    const [, ...form] = /LZ_STAGES (\d+)\n#define LZ_TABLES (\d+)/.exec(source) ?? []
    if (form.length > 0) forms.push(form.map(Number))
    return norm ? `${symbol} ${norm} ${end}` : symbol
  })
})

/** Rows of weights with a last tile that is not whole, enough for the kernel whose blocks stay. */
const rowsFor = (): number => 4 * 16 * cudaRuntime.facts.processors + 9

it.each([
  [4, 64, mx.bfloat16, 512],
  [4, 64, mx.bfloat16, 2560],
  [4, 64, mx.float16, 4608],
  [4, 32, mx.bfloat16, 768],
  [4, 128, mx.bfloat16, 3072],
  [8, 64, mx.bfloat16, 1536],
  [8, 32, mx.float16, 256],
  [8, 128, mx.bfloat16, 2048],
] as const)(
  "of %d bits in groups of %d has the bits of the same row among others",
  (bits, groupSize, dtype, k) => {
    const packed = mx.quantize(wave([rowsFor(), k], dtype, 1), { groupSize, bits }) as mx.Array[]
    const [x, first] = [2, 1].map((rows) => wave([rows, k], dtype, 2))
    mx.eval(x, first, packed)
    const times = (rows: mx.Array): mx.Array => {
      const [w, scales, biases] = packed
      return mx.quantizedMatmul(rows, w, scales, biases, { groupSize, bits })
    }
    const both = valuesOf(times(x))
    const got = valuesOf(times(first))
    expect([...made]).toEqual(expect.arrayContaining(["few_rows", "packed_row"]))
    expect(got).toEqual(both.slice(0, got.length))
  },
  120_000,
)

it.each([-40, 54, 56, 110])(
  "of x times 2^%d is as many times as much",
  (power) => {
    const packed = mx.quantize(wave([rowsFor(), 512], mx.bfloat16, 1)) as [mx.Array, mx.Array, mx.Array]
    for (const rows of [1, 2]) {
      const x = wave([rows, 512], mx.bfloat16, 2)
      const times = (by: number): number[] =>
        valuesOf(mx.quantizedMatmul(x.multiply(by).astype(mx.bfloat16), ...packed))
      const want = times(1).map((each) => each * 2 ** power)
      expect(want.every(Number.isFinite)).toBe(true)
      expect(times(2 ** power)).toEqual(want)
    }
  },
  120_000,
)

it("keeps the numbers of all tiles that stages one after another are of", () => {
  const [k, groupSize, perTile, turns] = [4096, 32, 2, 12]
  const packed = mx.quantize(wave([turns * 16 * cudaRuntime.facts.processors, k], mx.float16, 1), {
    groupSize,
  }) as [mx.Array, mx.Array, mx.Array]
  const before = forms.length
  mx.eval(mx.quantizedMatmul(wave([1, k], mx.float16, 2), ...packed, { groupSize }))
  expect(forms.length).toBe(before + 1)
  const [stages, tables] = forms[before]
  // From the second stage of one tile on.
  const tiles = new Set(Array.from({ length: stages }, (_, i) => Math.floor((i + 1) / perTile)))
  expect(tables).toBe(Math.min(tiles.size, turns))
}, 120_000)

it("of several matrices is one launch of a compiled function", () => {
  const widths = [rowsFor(), 130, 40 * 16]
  const products = widths.map((rows, i) => {
    const packed = mx.quantize(wave([rows, 512], mx.bfloat16, i)) as [mx.Array, mx.Array, mx.Array]
    mx.eval(packed)
    return (x: mx.Array): mx.Array => mx.quantizedMatmul(x, ...packed)
  })
  const f = (x: mx.Array): mx.Array =>
    mx.concatenate(
      products.map((product) => product(x)),
      -1,
    )
  const g = compile(f)
  for (const phase of [1, 2, 3]) {
    const x = wave([1, 512], mx.bfloat16, phase)
    expect(valuesOf(g(x))).toEqual(
      valuesOf(f(wave([2, 512], mx.bfloat16, phase))).slice(
        0,
        widths.reduce((a, b) => a + b),
      ),
    )
  }
}, 120_000)

/** The sizes of packed_row's dispatches in plans that `body` makes: columns of x, 1 where weights are read early, rows of matrices. */
function sizesInPlans(k: number, body: () => void): number[][] {
  const plans = vi.spyOn(cudaRuntime, "newPlan")
  try {
    body()
    return plans.mock.calls.flatMap(([{ words, length }]) => {
      const found: number[][] = []
      for (let i = 0; i + 2 < length; i++)
        if (words[i] === k && words[i + 1] <= 1 && words[i + 2] >= 128) found.push([...words.slice(i, i + 3)])
      return found
    })
  } finally {
    plans.mockRestore()
  }
}

it("reads weights before earlier work has ended where that cannot write them", () => {
  const [k, rows, groupSize] = [1280, 144, 32]
  const packed = mx.quantize(wave([rows, k], mx.bfloat16, 1), { groupSize }) as mx.Array[]
  const [x, one] = [wave([1, k], mx.bfloat16, 2), mx.array(1).astype(mx.bfloat16)]
  mx.eval(x, one, packed)
  const times = (scales: mx.Array): mx.Array =>
    mx.quantizedMatmul(x, packed[0], scales, packed[2], { groupSize })
  const want = valuesOf(times(packed[1]))
  const given = compile((scales: mx.Array) => times(scales))
  const computed = compile((scales: mx.Array) => times(scales.multiply(one)))
  for (const [f, early] of [
    [given, 1],
    [computed, 0],
  ] as const)
    expect(
      sizesInPlans(k, () => {
        for (let i = 0; i < 2; i++) expect(valuesOf(f(packed[1]))).toEqual(want)
      }),
    ).toEqual([[k, early, rows]])
}, 120_000)

const silu = (x: mx.Array): mx.Array => x.multiply(x.sigmoid())
const weightsOf = (rows: number, k: number, dtype: mx.Dtype, phase: number): ((x: mx.Array) => mx.Array) => {
  const packed = mx.quantize(wave([rows, k], dtype, phase)) as [mx.Array, mx.Array, mx.Array]
  mx.eval(packed)
  return (x) => mx.quantizedMatmul(x, ...packed)
}

it.each([
  [mx.bfloat16, 1024, 137],
  [mx.float16, 1536, 72],
  [mx.bfloat16, 4608, 24],
] as const)(
  "a norm before them and what ends them have the bits of kernels of their own: %s",
  (dtype, k, inner) => {
    const [q, key, v, gate, up, down] = [136, 32, 40, inner, inner, k].map((rows, i) =>
      weightsOf(rows, i === 5 ? 1024 : k, dtype, i),
    )
    const scales = wave([k], dtype, 7).multiply(0.1).add(1).astype(dtype)
    const x = wave([1, k], dtype, 3)
    const h = wave([1, 1024], dtype, 4)
    mx.eval(scales, x, h)
    const layer = (x: mx.Array, h: mx.Array): mx.Array[] => {
      const normed = mx.fast.rmsNorm(x, scales, 1e-5)
      const y = silu(gate(normed)).multiply(up(normed))
      const sum = x.add(down(h))
      return [q(normed), key(normed), v(normed), y, sum, q(mx.fast.rmsNorm(sum, scales, 1e-5))]
    }
    const want = layer(x, h).map(valuesOf)
    const f = compile((a: mx.Array, b: mx.Array) => layer(a, b))
    const launches = launchesInPlans(() => expect(f(x, h).map(valuesOf)).toEqual(want))
    expect(launches.filter((each) => !each.endsWith("0 0") && each !== "map")).toEqual([
      "packed_row 2 0",
      "packed_row 0 2",
      "packed_row 0 1",
      "packed_row 1 0",
    ])
    for (let i = 0; i < 2; i++) expect(f(x, h).map(valuesOf)).toEqual(want)
  },
  240_000,
)

it("silu(gate) · up ends two products", () => {
  const [gate, up] = [1, 2].map((phase) => weightsOf(77, 1024, mx.bfloat16, phase))
  const scales = wave([1024], mx.bfloat16, 7)
  const x = wave([1, 1, 1024], mx.bfloat16, 3)
  mx.eval(scales, x)
  const layer = (x: mx.Array): mx.Array => {
    const normed = mx.fast.rmsNorm(x, scales, 1e-5)
    return up(normed).multiply(silu(gate(normed)))
  }
  const want = valuesOf(layer(x))
  const f = compile(layer)
  expect(launchesInPlans(() => expect(valuesOf(f(x))).toEqual(want))).toEqual(["packed_row 1 2"])
}, 120_000)

it("a norm that other work reads is written", () => {
  const product = weightsOf(48, 1024, mx.bfloat16, 1)
  const scales = wave([1024], mx.bfloat16, 7)
  const x = wave([1, 1024], mx.bfloat16, 3)
  mx.eval(scales, x)
  const both = (x: mx.Array): mx.Array[] => {
    const normed = mx.fast.rmsNorm(x, scales, 1e-5)
    return [product(normed), normed]
  }
  const want = both(x).map(valuesOf)
  const f = compile(both)
  expect(launchesInPlans(() => expect(f(x).map(valuesOf)).toEqual(want))).toEqual(["packed_row 2 0"])
}, 120_000)

it("a norm that is added to the product as well is written before", () => {
  const product = weightsOf(1024, 1024, mx.bfloat16, 1)
  const scales = wave([1024], mx.bfloat16, 7)
  const x = wave([1, 1024], mx.bfloat16, 3)
  mx.eval(scales, x)
  const sum = (x: mx.Array): mx.Array => {
    const normed = mx.fast.rmsNorm(x, scales, 1e-5)
    return normed.add(product(normed))
  }
  const want = valuesOf(sum(x))
  const f = compile(sum)
  for (let i = 0; i < 3; i++) expect(valuesOf(f(x))).toEqual(want)
}, 120_000)
