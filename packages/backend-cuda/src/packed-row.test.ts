/** Products of one row with many rows of packed weights, on the test double as a Hopper GPU. */
import "../test/double"
import "../test/hopper"
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { beforeAll, expect, it, vi } from "vitest"
import { cudaRuntime } from "./index"
import { cudaNative } from "./native"

const made = new Set<string>()
beforeAll(() => {
  mx.setBackend("cuda", "gpu")
  mx.setDefaultDevice(mx.gpu)
  const native = cudaNative()
  const make = native.newKernel.bind(native)
  vi.spyOn(native, "newKernel").mockImplementation((...call) => {
    made.add(call[1])
    return make(...call)
  })
})

const wave = (shape: number[], dtype: mx.Dtype, phase: number): mx.Array =>
  mx
    .array(Float32Array.from({ length: shape.reduce((a, b) => a * b) }, (_, i) => Math.sin(i * 0.7 + phase)))
    .reshape(shape)
    .astype(dtype)
const valuesOf = (x: mx.Array): number[] => [...(x.astype(mx.float32).toTypedArray() as Float32Array)]
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
