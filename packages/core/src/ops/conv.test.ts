/** Convolutions on the reference backend: against a loop of their own, derivatives against differences, batches against loops. */
import fc from "fast-check"
import { describe, expect, test } from "vitest"
import type { primitiveByName } from "../graph/primitive"
import * as mx from "../index"
import { type ConvParams, conv } from "./conv"

const rules = conv.primitive.rules as unknown as Required<ReturnType<typeof primitiveByName>["rules"]>
const randn = (shape: number[], seed: number, dtype = mx.float64) =>
  mx.random.normal(shape, { key: mx.random.key(seed) }).astype(dtype)
const numbers = (a: mx.Array): number[] => Array.from(a.flatten().toTypedArray() as Float64Array)

interface Case {
  batch: number
  groups: number
  inGroup: number
  outGroup: number
  flip: boolean
  axes: {
    size: number
    kernel: number
    stride: number
    low: number
    high: number
    kernelDilation: number
    inputDilation: number
  }[]
}

const int = (min: number, max: number) => fc.integer({ min, max })
const axis = fc.record({
  size: int(1, 6),
  kernel: int(1, 3),
  stride: int(1, 3),
  low: int(-1, 3),
  high: int(-1, 3),
  kernelDilation: int(1, 3),
  inputDilation: int(1, 3),
})
const fits = ({ size, kernel, low, high, kernelDilation, inputDilation }: Case["axes"][number]) =>
  (size - 1) * inputDilation + 1 + low + high >= (kernel - 1) * kernelDilation + 1
const cases: fc.Arbitrary<Case> = fc.record({
  batch: int(1, 2),
  groups: int(1, 3),
  inGroup: int(1, 2),
  outGroup: int(1, 2),
  flip: fc.boolean(),
  axes: fc.array(axis.filter(fits), { minLength: 1, maxLength: 3 }),
})

const paramsOf = (c: Case): ConvParams => ({
  stride: c.axes.map((a) => a.stride),
  low: c.axes.map((a) => a.low),
  high: c.axes.map((a) => a.high),
  kernelDilation: c.axes.map((a) => a.kernelDilation),
  inputDilation: c.axes.map((a) => a.inputDilation),
  groups: c.groups,
  flip: c.flip,
})
const inputsOf = (c: Case, seed = 1): [mx.Array, mx.Array] => [
  randn([c.batch, ...c.axes.map((a) => a.size), c.groups * c.inGroup], seed),
  randn([c.groups * c.outGroup, ...c.axes.map((a) => a.kernel), c.inGroup], seed + 1),
]

/** All index vectors below `shape`. */
const indicesBelow = (shape: number[]): number[][] =>
  shape.reduce<number[][]>(
    (all, n) => all.flatMap((head) => Array.from({ length: n }, (_, i) => [...head, i])),
    [[]],
  )

/** Every input element meets every kernel element and adds to the output element where the two meet. */
function scattered(x: mx.Array, w: mx.Array, c: Case): Map<string, number> {
  const out = new Map<string, number>()
  const [xs, ws] = [numbers(x), numbers(w)]
  for (const [i, at] of indicesBelow(x.shape).entries())
    for (const [k, kernelAt] of indicesBelow(w.shape).entries()) {
      const [channel, output] = [at[at.length - 1], kernelAt[0]]
      if (Math.floor(channel / c.inGroup) !== Math.floor(output / c.outGroup)) continue
      if (channel % c.inGroup !== kernelAt[kernelAt.length - 1]) continue
      const landing = c.axes.map((a, axis) => {
        const tap = c.flip ? a.kernel - 1 - kernelAt[axis + 1] : kernelAt[axis + 1]
        return (at[axis + 1] * a.inputDilation - tap * a.kernelDilation + a.low) / a.stride
      })
      const key = [at[0], ...landing, output].join()
      out.set(key, (out.get(key) ?? 0) + xs[i] * ws[k])
    }
  return out
}

describe("the reference", () => {
  test("agrees with elements scattered to where they land", () => {
    fc.assert(
      fc.property(cases, (c) => {
        const [x, w] = inputsOf(c)
        const y = conv([x, w], paramsOf(c))
        const want = scattered(x, w, c)
        const got = numbers(y)
        for (const [i, at] of indicesBelow(y.shape).entries())
          expect(got[i]).toBeCloseTo(want.get(at.join()) ?? 0, 9)
      }),
      { numRuns: 150, seed: 1 },
    )
  })
  test("of an empty batch and of no channels", () => {
    expect(mx.conv2d(mx.zeros([0, 4, 4, 2]), mx.zeros([3, 2, 2, 2])).shape).toEqual([0, 3, 3, 3])
    expect(mx.conv1d(mx.zeros([1, 3, 0]), mx.zeros([2, 2, 0])).tolist()).toEqual([[[0, 0], [0, 0]]]) // biome-ignore format: a matrix
    expect(mx.conv1d(mx.zeros([1, 3, 2]), mx.zeros([0, 2, 2])).shape).toEqual([1, 2, 0])
    expect(mx.conv1d(mx.zeros([1, 0, 1]), mx.ones([1, 2, 1]), { padding: 1 }).tolist()).toEqual([[[0]]])
  })
  test("rounds half dtypes once, after summing in float32", () => {
    const x = mx.full([1, 300, 1], 1, mx.bfloat16)
    expect(mx.conv1d(x, mx.full([1, 300, 1], 1, mx.bfloat16)).item()).toBe(300)
    const mixed = mx.conv1d(x.astype(mx.float16), mx.ones([1, 1, 1]))
    expect(mixed.dtype).toBe(mx.float32)
  })
})

describe("derivatives", () => {
  test("agree with the bilinear form's own differences, and with each other", () => {
    fc.assert(
      fc.property(cases, (c) => {
        const params = paramsOf(c)
        const inputs = inputsOf(c)
        const outputs = [conv(inputs, params)]
        const g = randn(outputs[0].shape, 5)
        const wanted = [true, true]
        const gradients = rules.vjp({ inputs, outputs, cotangents: [g], params, wanted })
        for (const which of [0, 1]) {
          const d = randn(inputs[which].shape, 7)
          const at = (step: number) =>
            conv(
              inputs.map((x, i) => (i === which ? x.add(d.multiply(step)) : x)),
              params,
            )
          const change = at(1).subtract(at(-1)).multiply(0.5)
          const want = change.multiply(g).sum().item() as number
          const gradient = gradients[which] as mx.Array
          expect(gradient.shape).toEqual(inputs[which].shape)
          expect(gradient.multiply(d).sum().item()).toBeCloseTo(want, 8)
          const tangents = [which === 0 ? d : null, which === 1 ? d : null]
          const [t] = rules.jvp({ inputs, outputs, tangents, params })
          expect(mx.allclose(t as mx.Array, change).item()).toBe(true)
        }
      }),
      { numRuns: 100, seed: 2 },
    )
  })
  test("of empty arrays are zero", () => {
    const params = { stride: [1], low: [1], high: [1], kernelDilation: [1], inputDilation: [1], groups: 1, flip: false } // biome-ignore format: one line
    const inputs = [mx.zeros([1, 0, 1]), mx.ones([1, 2, 1])]
    const cotangents = [mx.ones([1, 1, 1])]
    const [dx, dw] = rules.vjp({ inputs, outputs: [], cotangents, params, wanted: [true, true] })
    expect([(dx as mx.Array).shape, (dw as mx.Array).tolist()]).toEqual([[1, 0, 1], [[[0], [0]]]])
  })
})

test("batches agree with a loop, for every combination of batched inputs and every axis", () => {
  fc.assert(
    fc.property(cases, int(0, 2), int(0, 9), int(0, 9), (c, which, first, second) => {
      const params = paramsOf(c)
      const size = 3
      const batched = [which !== 1, which !== 0]
      const examples = Array.from({ length: size }, (_, i) => inputsOf(c, 10 * i + 1))
      const at = [first, second].map((n, i) => (batched[i] ? n % (examples[0][i].ndim + 1) : null))
      const inputs = at.map((a, i) => (a === null ? examples[0][i] : mx.stack(examples.map((e) => e[i]), a))) // biome-ignore format: one line
      const { outputs, axes } = rules.vmap({ inputs, axes: at, params, size })
      const want = mx.stack(examples.map((e) => conv(e.map((x, i) => (batched[i] ? x : examples[0][i])), params))) // biome-ignore format: one line
      const got = outputs[0].moveaxis(axes[0] as number, 0)
      expect(got.shape).toEqual(want.shape)
      expect(mx.allclose(got, want).item()).toBe(true)
    }),
    { numRuns: 100, seed: 3 },
  )
})

test("an integer weight is converted to the dtype of the input", () => {
  for (const dtype of [mx.float32, mx.float16]) {
    const x = mx.array([1, 2, 4], dtype).reshape([1, 3, 1])
    const w = mx.array([1, 2], mx.int32).reshape([1, 2, 1])
    const results = [
      mx.conv1d(x, w),
      mx.convTranspose1d(x, w),
      mx.convGeneral(x, w),
      mx.convolve(x.flatten(), w.flatten()),
      mx.convolve(w.flatten(), x.flatten()),
    ]
    expect(results.map((y) => y.dtype)).toEqual(results.map(() => dtype))
    expect(results.map((y) => y.flatten().tolist())).toEqual([
      [5, 10],
      [1, 4, 8, 8],
      [5, 10],
      [1, 4, 8, 8],
      [1, 4, 8, 8],
    ])
  }
})

test("a list of one number is for all axes of a general convolution", () => {
  const [x, w] = [mx.arange(25, { dtype: mx.float32 }).reshape([1, 5, 5, 1]), mx.ones([1, 2, 2, 1])]
  for (const [options, shape, total] of [
    [{ stride: [2] }, [1, 2, 2, 1], 144],
    [{ padding: [1] }, [1, 6, 6, 1], 1200],
    [{ padding: [[1], [0]] }, [1, 5, 5, 1], 864],
    [{ padding: [[1], [0, 2]] }, [1, 5, 7, 1], 980],
    [{ kernelDilation: [2] }, [1, 3, 3, 1], 432],
    [{ inputDilation: [2] }, [1, 8, 8, 1], 768],
  ] as const) {
    const y = mx.convGeneral(x, w, options)
    expect([y.shape, y.sum().item()]).toEqual([shape, total])
  }
})

test("errors name the function, the sizes and the cause", () => {
  const [x, w] = [mx.zeros([1, 5, 5, 3]), mx.zeros([2, 3, 3, 3])]
  const said = (f: () => unknown): string => {
    try {
      f()
    } catch (error) {
      return `${(error as Error).name}: ${(error as Error).message}`
    }
    return "nothing"
  }
  expect(
    [
      () => mx.conv1d(mx.zeros([1, 5, 3]), mx.zeros([2, 3, 4])),
      () => mx.conv1d(mx.zeros([5, 3]), mx.zeros([2, 3, 3])),
      () => mx.conv1d(mx.zeros([1, 2, 3]), mx.zeros([2, 5, 3])),
      () => mx.conv2d(x, w, { groups: 2 }),
      () => mx.conv2d(mx.zeros([1, 5, 5, 4]), mx.zeros([3, 3, 3, 2]), { groups: 2 }),
      () => mx.conv2d(x, w, { groups: 0 }),
      () => mx.conv2d(x, w, { stride: 0 }),
      () => mx.conv2d(x, w, { stride: [1, 2, 3] }),
      () => mx.conv2d(x, w, { padding: -1 }),
      () => mx.conv2d(x, w, { dilation: 1.5 }),
      () => mx.conv2d(x, mx.zeros([2, 3, 3])),
      () => mx.conv2d(x, mx.zeros([2, 0, 3, 3])),
      () => mx.conv2d(x.astype(mx.int32), w),
      () => mx.conv2d(x, w.astype(mx.complex64)),
      () => mx.conv2d(x, w, { paddding: 1 } as object),
      () => mx.convTranspose1d(mx.zeros([1, 2, 1]), mx.zeros([1, 1, 1]), { padding: 1 }),
      () => mx.convGeneral(mx.zeros([2, 2]), w),
      () => mx.convGeneral(x, w, { padding: [[1], [1, 1, 1]] }),
      () => mx.convGeneral(x, w, { padding: [[1, 1], [1, 1], [1, 1]] as never }), // biome-ignore format: one line
      () => mx.convGeneral(x, w, { padding: -2 }),
      () => mx.convolve(mx.zeros([2, 2]), mx.zeros([3])),
      () => mx.convolve(mx.zeros([0]), mx.zeros([3])),
      () => mx.convolve(mx.zeros([4]), mx.zeros([3]), { mode: "nope" as never }),
      () => mx.convolve(mx.zeros([4], mx.int32), mx.zeros([3])),
    ].map(said),
  ).toMatchInlineSnapshot(`
    [
      "ShapeError: [conv1d] the weight takes 4 channels, but the input has 3: input (1, 5, 3), weight (2, 3, 4). Channels are the last axis of both",
      "ShapeError: [conv1d] the input must be [batch, one axis, channels], of 3 dimensions, received shape (5, 3)",
      "ShapeError: [conv1d] the kernel spans 5 along axis 1, more than the input's 2 with padding: input (1, 2, 3), weight (2, 5, 3)",
      "ShapeError: [conv2d] 3 input channels cannot be divided into 2 groups: input (1, 5, 5, 3)",
      "ShapeError: [conv2d] 3 output channels cannot be divided into 2 groups: weight (3, 3, 3, 2)",
      "ArgumentError: [conv2d] groups must be an integer of at least 1, received the number 0",
      "ArgumentError: [conv2d] stride must be an integer of at least 1, or a list of 2, received the number 0",
      "ArgumentError: [conv2d] stride must be an integer of at least 1, or a list of 2, received [1, 2, 3]",
      "ArgumentError: [conv2d] padding must be an integer of at least 0, or a list of 2, received the number -1",
      "ArgumentError: [conv2d] dilation must be an integer or a list of integers, received the number 1.5",
      "ShapeError: [conv2d] the weight must be [output channels, two axes, channels / groups], of 4 dimensions, received shape (2, 3, 3)",
      "ShapeError: [conv2d] the kernel is empty along axis 1: weight (2, 0, 3, 3)",
      "DTypeError: [conv2d] the input must be floating, received int32",
      "DTypeError: [conv2d] the weight must be real, received complex64",
      "ArgumentError: [conv2d] has no parameter "paddding"; it takes input, weight, stride, padding, dilation, groups, stream. Did you mean "padding"?",
      "ShapeError: [convTranspose1d] the kernel spans 1 along axis 1, more than the input's 0 with padding: input (1, 2, 1), weight (1, 1, 1)",
      "ShapeError: [convGeneral] the input must be [batch, one to three axes, channels], received shape (2, 2)",
      "ArgumentError: [convGeneral] padding must be an integer, or a list of 2, received [1, 1, 1]",
      "ArgumentError: [convGeneral] padding must be a number, a list of 2, or a pair of such lists for the low and the high ends, received a list of 3",
      "ShapeError: [convGeneral] the kernel spans 3 along axis 1, more than the input's 1 with padding: input (1, 5, 5, 3), weight (2, 3, 3, 3)",
      "ShapeError: [convolve] a must have one dimension, received shape (2, 2)",
      "ShapeError: [convolve] a is empty",
      "ArgumentError: [convolve] mode must be "full", "valid" or "same", received the string "nope"",
      "DTypeError: [convolve] a, or v if it is longer, must be floating, received int32",
    ]
  `)
})
