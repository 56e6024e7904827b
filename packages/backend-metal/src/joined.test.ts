/**
 * Work that `compile` joins into one kernel: rows with what comes before and behind, and products with what ends them, against the same
 * functions run operation by operation, and on the reference.
 */
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { onStream } from "@lazuli/core/engine"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import "./index"

beforeAll(() => mx.setDefaultDevice(mx.gpu))
afterAll(() => mx.setDefaultDevice(mx.cpu))

type Function = (...args: mx.Array[]) => mx.Array | mx.Array[]

function numbers(shape: readonly number[], dtype: mx.Dtype, seed: number): mx.Array {
  const n = shape.reduce((a, b) => a * b, 1)
  const values = Array.from({ length: n }, (_, i) => (((i * 37 + seed * 11) % 53) - 26) / 16)
  return mx
    .array(values)
    .astype(dtype)
    .reshape([...shape])
}

const flat = (x: mx.Array): number[] => ([x.astype(mx.float32).tolist()] as unknown[]).flat(9).map(Number)
const listed = (made: mx.Array | mx.Array[]): mx.Array[] => (Array.isArray(made) ? made : [made])

/** Compares a compiled function with the same one as written, there and on the CPU; gives what its plan says. */
function agree(f: Function, shapes: readonly (readonly number[])[], dtype: mx.Dtype = mx.float32) {
  const args = (): mx.Array[] => shapes.map((shape, i) => numbers(shape, dtype, i + 1))
  const compiled = compile(f)
  const got = listed(compiled(...args()) as mx.Array)
  const written = listed(f(...args()))
  const wanted = onStream("cpu", () => listed(f(...args())).map(flat))
  const tolerance = dtype === mx.float32 ? 2e-5 : dtype === mx.float16 ? 4e-3 : 3e-2
  got.forEach((out, k) => {
    expect(out.shape).toEqual(written[k].shape)
    expect(out.dtype).toBe(written[k].dtype)
    const [values, others] = [flat(out), flat(written[k])]
    values.forEach((value, i) => {
      for (const want of [others[i], wanted[k][i]])
        if (!(Math.abs(value - want) <= tolerance * Math.max(1, Math.abs(want))))
          expect.fail(`output ${k}, element ${i}: ${value} instead of ${want}`)
    })
  })
  const { kernels, steps } = compiled.explain(...args())
  return { kernels, reasons: steps.map(({ reason }) => reason) }
}

const keep = { keepdims: true, axis: -1 }
const composedSoftmax = (x: mx.Array): mx.Array => {
  const e = mx.exp(x.multiply(2).subtract(mx.max(x.multiply(2), keep)))
  return e.divide(mx.sum(e, keep))
}
const rows: [string, Function, (readonly number[])[], number][] = [
  ["a softmax composed of operations", composedSoftmax, [[6, 40]], 1],
  [
    "a norm composed of operations",
    (x, w) => {
      const d = x.subtract(mx.mean(x, keep))
      return d.multiply(mx.rsqrt(mx.mean(mx.square(d), keep).add(1e-5))).multiply(w)
    },
    [[5, 36], [36]],
    1,
  ],
  [
    "softmax with a mask and a scale around it",
    (x, m) => mx.softmax(x.multiply(0.5).add(m), -1).multiply(3),
    [
      [2, 3, 8, 24],
      [8, 24],
    ],
    1,
  ],
  [
    "a residual and a norm, which both are results",
    (x, y, w, b) => {
      const h = x.add(y)
      return [h, mx.fast.layerNorm(h, w, b, 1e-5).multiply(2)]
    },
    [[7, 33], [7, 33], [33], [33]],
    1,
  ],
  [
    "the root mean square's norm of a product of arrays",
    (x, y, w) => mx.fast.rmsNorm(x.multiply(y), w, 1e-5),
    [[4, 640], [4, 640], [640]],
    1,
  ],
  [
    "log-sum-exp of scaled rows, scaled",
    (x) => mx.logsumexp(x.multiply(3), -1, true).multiply(2),
    [[9, 50]],
    1,
  ],
  [
    "variance, greatest and least of rows",
    (x) => mx.var(x.add(1), keep).add(mx.max(x, keep)).subtract(mx.min(x, keep)),
    [[3, 2, 45]],
    1,
  ],
  [
    "rows of other strides",
    (x, y) => mx.softmax(x.T.add(y), -1),
    [
      [20, 6],
      [6, 20],
    ],
    1,
  ],
  ["long rows", (x) => mx.softmax(x.multiply(2), -1).add(1), [[2, 5000]], 1],
  ["two softmaxes in a row", (x) => mx.softmax(mx.softmax(x, -1).multiply(4), -1), [[3, 64]], 1],
]

describe("rows", () => {
  it.each(rows)("join %s", (_, f, shapes, kernels) => {
    const plan = agree(f, shapes)
    expect(plan.kernels).toBe(kernels)
    expect(plan.reasons.filter((reason) => reason.startsWith("in one kernel with")).length).toBeGreaterThan(1)
  })
  it.each([mx.float16, mx.bfloat16])("join for %s", (dtype) => {
    for (const [, f, shapes, kernels] of rows.slice(1, 5))
      expect(agree(f, shapes, dtype).kernels).toBe(kernels)
  })
})

const products: [string, Function, (readonly number[])[]][] = [
  ["a bias and an activation", (x, w, b) => mx.tanh(mx.matmul(x, w).add(b)), [[70, 20], [20, 66], [66]]],
  [
    "a residual behind a batch of products",
    (x, w, r) => mx.matmul(x, w).multiply(0.5).add(r),
    [
      [2, 3, 9, 12],
      [12, 10],
      [2, 3, 9, 10],
    ],
  ],
  ["work on a few rows", (x, w, b) => mx.maximum(mx.matmul(x, w).add(b), 0), [[3, 40], [40, 50], [50]]],
  ["work on a few columns", (x, w, b) => mx.maximum(mx.matmul(x, w).add(b), 0), [[90, 40], [40, 4], [4]]],
  [
    "a product that is a result as well",
    (x, w) => {
      const y = mx.matmul(x, w)
      return [y, mx.exp(y.negative())]
    },
    [
      [12, 16],
      [16, 20],
    ],
  ],
  [
    "a column behind an added product",
    (x, w, c, d) => mx.addmm(c, x, w, 0.5, 2).multiply(d).add(1),
    [
      [11, 14],
      [14, 13],
      [11, 13],
      [11, 1],
    ],
  ],
]

describe("products", () => {
  it.each(products)("end with %s", (_, f, shapes) => {
    expect(agree(f, shapes).kernels).toBe(1)
  })
  it.each([mx.float16, mx.bfloat16])("end with work for %s", (dtype) => {
    expect(agree(products[0][1], products[0][2], dtype).kernels).toBe(1)
  })
  it("end with the same work, whether they are results or not", () => {
    const inside: Function = (x, w) => mx.exp(mx.matmul(x, w))
    const both: Function = (x, w) => {
      const y = mx.matmul(x, w)
      return [y, mx.exp(y)]
    }
    for (const f of [inside, both, inside])
      expect(
        agree(f, [
          [12, 16],
          [16, 20],
        ]).kernels,
      ).toBe(1)
  })
  it("of complex numbers end with work", () => {
    const f = (x: mx.Array, w: mx.Array): mx.Array => {
      const i = mx.sqrt(mx.array(-1).astype(mx.complex64))
      return mx.abs(mx.matmul(x.astype(mx.complex64), w.astype(mx.complex64)).multiply(i).add(1))
    }
    expect(
      agree(f, [
        [6, 7],
        [7, 8],
      ]).kernels,
    ).toBe(4)
  })
})

const folds: [string, Function, (readonly number[])[], number][] = [
  ["a mean of squares", (x) => mx.sum(mx.square(x.subtract(1))), [[40, 33]], 1],
  ["columns of weighted rows", (x, w) => mx.sum(x.multiply(w), 0), [[100, 36], [36]], 1],
  [
    "columns of rows with a factor each",
    (x, w) => mx.max(x.multiply(w), 0),
    [
      [100, 64],
      [100, 1],
    ],
    1,
  ],
  [
    "rows of products",
    (x, y) => mx.sum(x.multiply(y), -1),
    [
      [5, 130],
      [5, 130],
    ],
    1,
  ],
  ["long rows", (x, y) => mx.min(mx.exp(x).add(y), -1), [[3, 20000], [20000]], 1],
  [
    "an axis between",
    (x, y) => mx.prod(x.add(y).add(1), 1),
    [
      [4, 5, 8],
      [5, 1],
    ],
    1,
  ],
  [
    "transposed operands",
    (x, y) => mx.sum(x.T.multiply(y), 0),
    [
      [24, 70],
      [70, 24],
    ],
    1,
  ],
  ["truths", (x) => mx.any(mx.greater(x, 1.5), 0), [[30, 20]], 1],
  ["positions", (x) => mx.argmax(x.multiply(-1), 1), [[30, 21]], 1],
]

describe("reductions", () => {
  it.each(folds)("of %s compute them as they go", (_, f, shapes, kernels) => {
    expect(agree(f, shapes).kernels).toBe(kernels)
  })
  it.each([mx.float16, mx.bfloat16])("of work for %s", (dtype) => {
    for (const [, f, shapes] of folds.slice(1, 4)) expect(agree(f, shapes, dtype).kernels).toBe(1)
  })
  it("of complex numbers, whole numbers and truths compute them as they go", () => {
    const kinds: [Function, number][] = [
      [(x, y) => mx.abs(mx.sum(x.astype(mx.complex64).multiply(y.astype(mx.complex64)), 0)), 2],
      [(x, y) => mx.sum(x.multiply(8).astype(mx.int32).multiply(y.multiply(8).astype(mx.int32)), -1), 1],
      [(x, y) => mx.sum(mx.logicalAnd(mx.greater(x, 0), mx.less(y, 1))), 1],
    ]
    for (const [f, kernels] of kinds) {
      const shapes = [
        [40, 30],
        [40, 30],
      ]
      expect(agree(f, shapes).kernels).toBeLessThanOrEqual(kernels)
    }
  })
})

describe("random programs", () => {
  /** Values of a few shapes that broadcast together, made from earlier ones. */
  const program =
    (seed: number): Function =>
    (...inputs) => {
      let state = seed
      const draw = (n: number): number => {
        state = (Math.imul(state, 1664525) + 1013904223) >>> 0
        return Math.floor((state / 2 ** 32) * n)
      }
      const made = [...inputs]
      const pick = (): mx.Array => made[draw(made.length)]
      const square = (): mx.Array => mx.broadcastTo(pick(), [12, 12])
      const steps: (() => mx.Array)[] = [
        () => mx.tanh(pick().add(pick())),
        () => pick().multiply(pick()).multiply(0.5),
        () => mx.maximum(pick(), pick().negative()),
        () => mx.where(mx.greater(pick(), 0), pick(), 0.25),
        () => mx.softmax(square(), -1),
        () => mx.mean(square(), { axis: -1, keepdims: true }),
        () => mx.max(square().multiply(pick()), { axis: 0, keepdims: true }),
        () => mx.fast.rmsNorm(square(), null, 1e-3),
        () => mx.tanh(mx.matmul(square(), square())),
        () => mx.sum(mx.abs(pick())).multiply(0.01),
      ]
      for (let i = 0; i < 14; i++) made.push(steps[draw(steps.length)]())
      return made.slice(-3)
    }
  it.each([1, 2, 3, 4, 5, 6, 7, 8])(
    "number %s agrees, compiled, as written and on the reference",
    (seed) => {
      agree(program(seed * 7919), [[12, 12], [12], [12, 1]])
    },
    60_000,
  )
})

describe("rotary positions", () => {
  const turned = (x: mx.Array, offset: mx.Array | number, scale = 1): mx.Array =>
    mx.fast.rope(x, 6, { traditional: false, base: 1e4, scale, offset })
  const kernelsOf = (f: Function, ...args: mx.Array[]): number | null => {
    const compiled = compile(f)
    const got = listed(compiled(...args) as mx.Array).map(flat)
    expect(got).toEqual(listed(f(...args)).map(flat))
    return compiled.explain(...args).kernels
  }
  const [q, k, v, longer] = [
    [2, 5, 3, 8],
    [2, 2, 3, 8],
    [2, 9, 3, 8],
    [2, 2, 4, 8],
  ].map((shape, i) => numbers(shape, mx.float32, i))
  const at = mx.array([4, 7], mx.int32)

  it("of queries and keys take one kernel, with the same bits", () => {
    expect(kernelsOf((x, y, p) => [turned(x, p), turned(y, p)], q, k, at)).toBe(1)
    expect(kernelsOf((x, y, p) => [turned(y.add(1), p), turned(x.multiply(2), p)], q, k, at)).toBe(3)
    // Two at a time.
    expect(kernelsOf((x, y, z, p) => [x, y, z].map((each) => turned(each, p)), q, k, v, at)).toBe(2)
    const rates = mx.arange(1, 4).astype(mx.float32)
    const given = (x: mx.Array, p: mx.Array): mx.Array =>
      mx.fast.rope(x, 6, { traditional: true, base: null, scale: 1, offset: p, freqs: rates })
    expect(kernelsOf((x, y, p) => [given(x, p), given(y, p)], q, k, mx.array(3, mx.int32))).toBe(1)
  })
  it("stay apart where they differ in more than heads, or one needs the other", () => {
    expect(kernelsOf((x, y, p) => [turned(x, p), turned(y, p)], q, longer, at)).toBe(2)
    expect(kernelsOf((x, y, p) => [turned(x, p), turned(y, p, 0.5)], q, k, at)).toBe(2)
    expect(kernelsOf((x, p) => [turned(turned(x, p), p)], q, at)).toBe(2)
  })
})
