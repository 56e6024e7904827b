import { jvp, vjp, vmap } from "@lazuli/transforms"
import { describe, expect, test } from "vitest"
import * as mx from "../index"

const { fft } = mx
const numbers = (a: mx.Array): number[] =>
  globalThis.Array.from(a.toTypedArray() as unknown as ArrayLike<number>)
const close = (a: mx.Array, b: mx.Array, atol = 1e-5): void => {
  expect([a.dtype.name, a.shape]).toEqual([b.dtype.name, b.shape])
  const [x, y] = [numbers(a), numbers(b)]
  const worst = x.reduce((w, v, i) => Math.max(w, Math.abs(v - y[i])), 0)
  expect(worst).toBeLessThan(atol)
}
/** The definition, as a product with the matrix of roots. */
function byMatrix(x: mx.Array, sign = -1): mx.Array {
  const n = x.shape[x.ndim - 1]
  const k = mx.arange(n)
  const angle = mx
    .outer(k, k)
    .remainder(n)
    .astype(mx.float32)
    .multiply((sign * 2 * Math.PI) / n)
  const matrix = angle
    .cos()
    .astype(mx.complex64)
    .add(angle.sin().multiply(mx.complex(0, 1)))
  return x.astype(mx.complex64).matmul(matrix)
}
/** Re Σ conj(a)·b. */
const inner = (a: mx.Array, b: mx.Array): number =>
  a.astype(mx.complex64).conjugate().multiply(b).real.sum().item() as number

const lengths = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 26, 37, 40, 64]
mx.random.seed(3)
const complex = (...shape: number[]): mx.Array => mx.random.normal(shape, mx.complex64)
const real = (...shape: number[]): mx.Array => mx.random.normal(shape)

describe("against the definition", () => {
  test.each(lengths)("length %i", (n) => {
    const [z, x] = [complex(3, n), real(3, n)]
    close(fft.fft(z), byMatrix(z), 1e-4)
    close(fft.ifft(z, { norm: "forward" }), byMatrix(z, 1), 1e-4)
    close(fft.rfft(x), byMatrix(x).index("...", mx.s(0, Math.floor(n / 2) + 1)), 1e-4)
    close(fft.ifft(fft.fft(z)), z)
    close(fft.irfft(fft.rfft(x), n), x)
  })
  test("two axes are one after the other, in any order and layout", () => {
    const z = complex(4, 5, 6)
    const rows = fft.fft(fft.fft(z, null, 0), null, 2)
    close(fft.fftn(z, null, [0, 2]), rows)
    close(fft.fftn(z, null, [2, 0]), rows)
    close(fft.fftn(z.transpose(), null, [2, 0]), rows.transpose())
    close(fft.fft2(z), fft.fftn(z, { axes: [1, 2] }))
    close(fft.fftn(z), fft.fft(fft.fft2(z), { axis: 0 }))
    close(fft.ifft2(fft.fft2(z)), z)
    close(fft.ifftn(fft.fftn(z)), z)
    const x = real(4, 5, 6)
    close(fft.rfft2(x), fft.fft2(x).index("...", ":4"))
    close(fft.rfftn(x, null, [2, 0]), fft.fftn(x, null, [2, 0]).index(":3"))
    close(fft.irfft2(fft.rfft2(x)), x)
    close(fft.irfftn(fft.rfftn(x, { axes: [0, 1] }), { s: [4, 5], axes: [0, 1] }), x)
  })
  test("Parseval's theorem", () => {
    const z = complex(2, 30)
    expect(inner(z, z)).toBeCloseTo(inner(fft.fft(z, { norm: "ortho" }), fft.fft(z, { norm: "ortho" })), 3)
  })
  test("only the real part of what must be real counts", () => {
    const x = complex(5)
    const y = mx.array(x)
    y.set([0], x.index(0).real.astype(mx.complex64))
    close(fft.irfft(x, 9), fft.irfft(y, 9))
  })
})

test("sizes and norms", () => {
  const x = mx.array([1, 2, 3])
  expect(numbers(fft.fft(x, 2))).toEqual([3, 0, -1, 0])
  expect(numbers(fft.fft(x, 4))).toEqual([6, 0, -2, -2, 2, 0, -2, 2])
  expect(fft.fft2(mx.ones([2, 3]), [4, 2]).shape).toEqual([4, 2])
  expect(fft.rfft2(mx.ones([2, 3]), { s: [4, 5] }).shape).toEqual([4, 3])
  expect(fft.irfft(x).shape).toEqual([4])
  expect(fft.irfft(x, 5).shape).toEqual([5])
  expect(numbers(fft.fft(mx.ones([4]), null, -1, "forward"))).toEqual([1, 0, 0, 0, 0, 0, 0, 0])
  expect(numbers(fft.fft(mx.ones([4]), null, -1, { norm: "ortho" }))[0]).toBe(2)
})

test("what goes in and what comes out", () => {
  for (const dtype of [
    mx.bool_,
    mx.uint8,
    mx.int64,
    mx.float16,
    mx.bfloat16,
    mx.float32,
    mx.float64,
    mx.complex64,
  ]) {
    const x = mx.array([1, 0, 1], mx.int32).astype(dtype)
    expect(fft.fft(x).dtype).toBe(mx.complex64)
    if (dtype !== mx.complex64) expect(numbers(fft.rfft(x))[0]).toBe(2)
    expect(fft.irfft(x).dtype).toBe(mx.float32)
  }
  // In double the cancellation is exact to the last bits of the input.
  const x = mx.array(new Float64Array([1, 1e-9, -1, 0]))
  expect(numbers(fft.rfft(x))[0]).toBeCloseTo(1e-9, 15)
  // Without axes nothing is done.
  expect(fft.fftn(mx.ones([2]), null, []).dtype).toBe(mx.float32)
  // Batches may be empty.
  expect(fft.fft(mx.zeros([0, 4])).shape).toEqual([0, 4])
  expect(fft.rfft(mx.zeros([3, 0, 4])).shape).toEqual([3, 0, 3])
  expect(fft.irfft2(mx.zeros([0, 4, 3], mx.complex64)).shape).toEqual([0, 4, 4])
  mx.eval(fft.fft(mx.zeros([0, 4])), fft.irfft2(mx.zeros([0, 4, 3], mx.complex64)))
})

test("frequencies and shifts", () => {
  expect(fft.fftfreq(5, 0.5).multiply(5).tolist()).toEqual([0, 2, 4, -4, -2])
  expect(fft.rfftfreq(5, { d: 2 }).multiply(10).tolist()).toEqual([0, 1, 2])
  const x = mx.arange(6).reshape([2, 3])
  expect(fft.fftshift(x).tolist()).toEqual([
    [5, 3, 4],
    [2, 0, 1],
  ])
  expect(fft.fftshift(x, 1).tolist()).toEqual([
    [2, 0, 1],
    [5, 3, 4],
  ])
  expect(fft.ifftshift(fft.fftshift(x, [-1])).shape).toEqual([2, 3])
  expect(fft.ifftshift(fft.fftshift(x)).tolist()).toEqual(x.tolist())
  expect(fft.fftshift(mx.array(1)).item()).toBe(1)
  expect(fft.fftshift(mx.zeros([0, 2])).shape).toEqual([0, 2])
})

describe("transforms", () => {
  const cases: [string, (x: mx.Array) => mx.Array, mx.Array, mx.Array][] = [
    ["fft", (x) => fft.fft(x), complex(3, 6), complex(3, 6)],
    ["fft of real numbers", (x) => fft.fft(x, { axis: 0 }), real(3, 6), real(3, 6)],
    ["ifft2", (x) => fft.ifft2(x), complex(3, 6), complex(3, 6)],
    ["rfft, even", (x) => fft.rfft(x), real(3, 6), real(3, 6)],
    ["rfft, odd", (x) => fft.rfft(x, { axis: 0, norm: "ortho" }), real(3, 6), real(3, 6)],
    ["rfft, cut", (x) => fft.rfft(x, 4), real(3, 6), real(3, 6)],
    ["rfft2", (x) => fft.rfft2(x), real(3, 6), real(3, 6)],
    ["irfft, even", (x) => fft.irfft(x), complex(3, 4), complex(3, 4)],
    ["irfft, odd", (x) => fft.irfft(x, 7), complex(3, 4), complex(3, 4)],
    ["irfft of one", (x) => fft.irfft(x, 1), complex(3, 1), complex(3, 1)],
    ["irfft2, padded", (x) => fft.irfft2(x, [4, 9]), complex(3, 4), complex(3, 4)],
  ]
  test.each(cases)("%s is linear, and its gradient is its transpose", (_, f, x, t) => {
    const y = f(x)
    const g = y.dtype === mx.complex64 ? complex(...y.shape) : real(...y.shape)
    const [, [tangent]] = jvp(f, [x], [t])
    close(tangent, f(t))
    const [, [gradient]] = vjp(f, [x], [g])
    expect(gradient.dtype).toBe(x.dtype)
    expect(inner(gradient, t)).toBeCloseTo(inner(g, tangent), 3)
  })
  test.each(cases)("%s under vmap", (_, f, x) => {
    const batch = mx.stack([x, x.multiply(2), x.add(1)], 1)
    const loop = mx.stack([f(x), f(x.multiply(2)), f(x.add(1))], 2)
    close(vmap(f, { inAxes: 1, outAxes: 2 })(batch), loop)
  })
  test("the gradient of float64 is float64", () => {
    const x = real(5).astype(mx.float64)
    const [, [g]] = vjp((a: mx.Array) => fft.rfft(a), [x], [complex(3)])
    expect(g.dtype).toBe(mx.float64)
  })
})

test("errors", () => {
  const x = mx.ones([3, 6])
  const thrown = (f: () => unknown): string => {
    try {
      f()
    } catch (error) {
      return String(error)
    }
    return "nothing was thrown"
  }
  expect([
    thrown(() => fft.fft(x, 0)),
    thrown(() => fft.fft(x, 1.5)),
    thrown(() => fft.fft(x, null, 2)),
    thrown(() => fft.fft(x, null, -1, "nope" as never)),
    thrown(() => fft.fft(mx.array(1))),
    thrown(() => fft.fftn(x, null, [0, -2])),
    thrown(() => fft.fftn(x, [2], [0, 1])),
    thrown(() => fft.fftn(x, [2])),
    thrown(() => fft.fft2(x, 2 as never)),
    thrown(() => fft.fft2(mx.ones([3]))),
    thrown(() => fft.fft(mx.zeros([3, 0]))),
    thrown(() => fft.irfft(mx.zeros([0]))),
    thrown(() => fft.irfft(mx.zeros([1]))),
    thrown(() => fft.fft([1, 2] as never)),
    thrown(() => fft.fft(x, { nn: 3 } as never)),
    thrown(() => fft.fftfreq(0)),
    thrown(() => fft.fftshift(x, 3)),
  ]).toMatchInlineSnapshot(`
    [
      "ShapeError: [fft.fft] the length of a transform must be positive, received 0",
      "ArgumentError: [fft.fft] n must be an integer, received the number 1.5",
      "ShapeError: [fft.fft] axis 2 is out of bounds for an array of 2 dimensions",
      "ArgumentError: [fft.fft] norm must be "backward", "ortho" or "forward", received the string "nope"",
      "ShapeError: [fft.fft] needs an array of at least one dimension, received a scalar",
      "ShapeError: [fft.fftn] the axes must be distinct, received (0, -2)",
      "ShapeError: [fft.fftn] 1 lengths are given for 2 axes",
      "ArgumentError: [fft.fftn] s is given without axes",
      "ArgumentError: [fft.fft2] s must be a list of integers, received the number 2",
      "ShapeError: [fft.fft2] axis -2 is out of bounds for an array of 1 dimension",
      "ShapeError: [fft.fft] the length of a transform must be positive, received 0",
      "ShapeError: [fft.irfft] the length of a transform must be positive, received -2",
      "ShapeError: [fft.irfft] the length of a transform must be positive, received 0",
      "ArgumentError: [fft.fft] a must be an array, received a list of length 2. mx.array(data) makes one",
      "ArgumentError: [fft.fft] has no parameter "nn"; it takes a, n, axis, norm, stream. Did you mean "n"?",
      "ArgumentError: [fft.fftfreq] n must be a positive integer, received the number 0",
      "ShapeError: [fft.fftshift] axis 3 is out of bounds for an array of 2 dimensions",
    ]
  `)
})

test("fftfreq and rfftfreq refuse samples without a distance", () => {
  for (const of of [fft.fftfreq, fft.rfftfreq])
    for (const d of [0, -0, Number.NaN]) expect(() => of(4, d)).toThrow("d must be a number other than 0")
})

test("transforms of real numbers refuse complex ones; their inverses take both", () => {
  const z = mx.ones([2, 2], mx.complex64)
  for (const name of ["rfft", "rfft2", "rfftn"] as const) {
    const f = mx.fft[name] as (a: mx.Array) => mx.Array
    expect(() => f(z)).toThrow(`[fft.${name}] expected real numbers, received complex64`)
    expect(() => f(z)).toThrow(`mx.fft.${name.slice(1)} takes complex numbers`)
  }
  expect(mx.fft.irfft(mx.array([1, 0])).tolist()).toEqual([0.5, 0.5])
})
