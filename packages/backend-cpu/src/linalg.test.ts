/**
 * `mx.linalg` on the CPU and on the reference: what makes factors factors, in every dtype, for batches, views, empty, singular and
 * non-finite matrices, and that no backend falls back.
 */
import { generator } from "@lazuli/conformance/generator"
import * as mx from "@lazuli/core"
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest"
import "./index"

const { linalg } = mx
const dtypes = [mx.float32, mx.float64, mx.complex64]
const precision = (dtype: mx.Dtype): number => (dtype === mx.float64 ? 1e-12 : 2e-5)

/** Reproducible numbers in [-1, 1). */
function random(shape: readonly number[], dtype: mx.Dtype, seed = 1): mx.Array {
  const count = shape.reduce((a, b) => a * b, 1)
  const next = generator(seed)
  const part = (): mx.Array =>
    mx.array(Float64Array.from({ length: count }, () => 2 * next() - 1)).reshape(shape)
  if (dtype !== mx.complex64) return part().astype(dtype)
  return part()
    .astype(dtype)
    .add(part().astype(dtype).multiply(mx.complex(0, 1)))
}
const adjoint = (x: mx.Array): mx.Array => x.swapaxes(-1, -2).conjugate()
const identity = (n: number, like: mx.Array): mx.Array => mx.eye(n, { dtype: like.dtype })
const regular = (shape: readonly number[], dtype: mx.Dtype, seed = 1): mx.Array => {
  const n = shape[shape.length - 1]
  return random(shape, dtype, seed).add(mx.eye(n, { dtype }).multiply(2))
}
const definite = (shape: readonly number[], dtype: mx.Dtype): mx.Array => {
  const x = random(shape, dtype)
  return x.matmul(adjoint(x)).add(identity(shape[shape.length - 1], x))
}
/** Real and imaginary parts of the elements. */
const numbers = (x: mx.Array): number[] => Array.from(x.toTypedArray() as Float64Array, Number)
function expectNear(got: mx.Array, want: mx.Array, tolerance: number): void {
  expect([got.shape, got.dtype.name]).toEqual([want.shape, want.dtype.name])
  const [g, w] = [numbers(got), numbers(want)]
  const size = w.reduce((a, b) => Math.max(a, Math.abs(b)), 1)
  w.forEach((v, i) => {
    if (!(Math.abs(g[i] - v) <= tolerance * size)) expect.fail(`element ${i}: ${g[i]}, expected ${v}`)
  })
}
const same = (x: mx.Array, shape: number[]): mx.Array => x.broadcastTo(shape)
const expectUnitary = (x: mx.Array, tolerance: number): void => {
  const n = x.shape[x.ndim - 1]
  expectNear(adjoint(x).matmul(x), same(identity(n, x), [...x.shape.slice(0, -2), n, n]), tolerance)
}
const allNan = (x: mx.Array): boolean => numbers(x).every(Number.isNaN)
/** Matrices as they come: row-major, transposed, with gaps, reversed, repeated. */
const views: Record<string, (x: mx.Array) => mx.Array> = {
  "row-major": (x) => x,
  transposed: (x) => mx.contiguous(x.swapaxes(-1, -2)).swapaxes(-1, -2),
  "with gaps": (x) => mx.repeat(x, 2, -1).index("...", "::2"),
  reversed: (x) => mx.contiguous(x.index("...", "::-1", ":")).index("...", "::-1", ":"),
}
const shapes = [
  [1, 1],
  [3, 3],
  [5, 2],
  [2, 5],
  [2, 3, 4, 3],
  [3, 2, 4],
  [40, 33],
]

const factorizations: Record<string, (x: mx.Array, tolerance: number) => void> = {
  lu(x, tolerance) {
    const [p, low, up] = linalg.lu(x)
    const rows = mx.takeAlongAxis(low, same(p.expandDims(-1), low.shape), -2)
    expectNear(rows.matmul(up), x, tolerance)
    expectNear(mx.tril(low), low, 0)
    expectNear(mx.triu(up), up, 0)
    // Pivots are the largest |re| + |im|.
    expect(numbers(low).every((v) => Math.abs(v) <= 1.415)).toBe(true)
    const [packed, pivots] = linalg.luFactor(x)
    expectNear(mx.triu(packed).index("...", `:${up.shape[up.ndim - 2]}`, ":"), up, 0)
    expect(pivots.dtype).toBe(mx.uint32)
  },
  qr(x, tolerance) {
    const [q, r] = linalg.qr(x)
    expectNear(q.matmul(r), x, tolerance)
    expectUnitary(q, tolerance)
    expectNear(mx.triu(r), r, 0)
  },
  svd(x, tolerance) {
    const [u, s, vt] = linalg.svd(x)
    const k = s.shape[s.ndim - 1]
    expectUnitary(u, tolerance)
    expectUnitary(adjoint(vt), tolerance)
    const scaled = u.index("...", `:${k}`).multiply(s.expandDims(-2).astype(u.dtype))
    expectNear(scaled.matmul(vt.index("...", `:${k}`, ":")), x, tolerance)
    expectNear(linalg.svd(x, false), s, tolerance)
    expectNear(mx.sort(s, -1).index("...", "::-1"), s, 0)
  },
  pinv(x, tolerance) {
    const y = linalg.pinv(x)
    expectNear(x.matmul(y).matmul(x), x, 10 * tolerance)
    const projection = x.matmul(y)
    expectNear(adjoint(projection), projection, 10 * tolerance)
  },
}
const ofSquares: Record<string, (shape: readonly number[], dtype: mx.Dtype, tolerance: number) => void> = {
  cholesky(shape, dtype, tolerance) {
    const x = definite(shape, dtype)
    const low = linalg.cholesky(x)
    expectNear(low.matmul(adjoint(low)), x, tolerance)
    expectNear(mx.tril(low), low, 0)
    // Only one triangle is read.
    expectNear(linalg.cholesky(mx.tril(x)), low, tolerance)
    expectNear(linalg.cholesky(mx.triu(x), { upper: true }), adjoint(low), tolerance)
    expectNear(
      linalg.choleskyInv(low).matmul(x),
      same(identity(shape[shape.length - 1], x), x.shape),
      20 * tolerance,
    )
  },
  eigh(shape, dtype, tolerance) {
    const x = definite(shape, dtype)
    const [w, v] = linalg.eigh(x)
    expectUnitary(v, tolerance)
    expectNear(v.multiply(w.expandDims(-2).astype(v.dtype)).matmul(adjoint(v)), x, tolerance)
    expectNear(mx.sort(w, -1), w, 0)
    expectNear(linalg.eigvalsh(mx.triu(x), "U"), w, tolerance)
    expectNear(linalg.eigvalsh(mx.tril(x)), w, tolerance)
  },
  eig(shape, dtype) {
    const x = random(shape, dtype)
    const [w, v] = linalg.eig(x)
    expect([w.dtype, v.dtype]).toEqual([mx.complex64, mx.complex64])
    const whole = x.astype(mx.complex64)
    expectNear(whole.matmul(v), v.multiply(w.expandDims(-2)), 1e-4)
    expectNear(v.abs().square().sum(-2), same(mx.array(1), w.shape), 1e-5)
    const sorted = (z: mx.Array): mx.Array => mx.sort(z.real.multiply(1000).add(z.imag.abs()), -1)
    expectNear(sorted(linalg.eigvals(x)), sorted(w), 1e-4)
    expectNear(w.sum(-1), mx.trace(whole, 0, -2, -1), 1e-4)
  },
  equations(shape, dtype, tolerance) {
    const x = regular(shape, dtype)
    const n = shape[shape.length - 1]
    const b = random([...shape.slice(0, -1), 3], dtype, 5)
    expectNear(x.matmul(linalg.solve(x, b)), b, 20 * tolerance)
    expectNear(linalg.inv(x).matmul(x), same(identity(n, x), x.shape), 20 * tolerance)
    expectNear(mx.tril(x).matmul(linalg.solveTriangular(x, b)), b, 50 * tolerance)
    expectNear(mx.triu(x).matmul(linalg.solveTriangular(x, b, { upper: true })), b, 50 * tolerance)
    expectNear(linalg.triInv(x, true).matmul(mx.triu(x)), same(identity(n, x), x.shape), 50 * tolerance)
    const vector = random([n], dtype, 6)
    expectNear(
      x.matmul(linalg.solve(x, vector).expandDims(-1)).squeeze(-1),
      same(vector, x.shape.slice(0, -1)),
      20 * tolerance,
    )
  },
  determinants(shape, dtype, tolerance) {
    const [x, y] = [regular(shape, dtype), regular(shape, dtype, 2)]
    expectNear(linalg.det(x.matmul(y)), linalg.det(x).multiply(linalg.det(y)), 20 * tolerance)
    const [sign, logabs] = linalg.slogdet(x)
    expectNear(sign.multiply(logabs.exp().astype(sign.dtype)), linalg.det(x), 20 * tolerance)
  },
}

describe.each(["reference", "cpu"])("on %s", (backend) => {
  beforeAll(() => mx.setBackend(backend))
  afterAll(() => mx.setBackend(null))

  describe.each(dtypes.map((dtype) => ({ name: dtype.name, dtype })))("$name", ({ dtype }) => {
    const tolerance = precision(dtype)
    test.each(Object.keys(factorizations))("%s of any shape, however it lies in memory", (name) => {
      for (const shape of shapes) {
        // The reference is slow, and sees row-major copies alone.
        for (const [kind, view] of Object.entries(views)) {
          if (backend === "reference" && kind !== "transposed") continue
          factorizations[name](view(random(shape, dtype, 3)), tolerance * 4)
        }
      }
    })
    test.each(Object.keys(ofSquares))("%s of square matrices", (name) => {
      for (const shape of [
        [1, 1],
        [3, 3],
        [2, 2, 4, 4],
        [7, 5, 5],
      ])
        ofSquares[name](shape, dtype, tolerance * 4)
      // The determinant of a large matrix overflows.
      if (backend === "cpu" && name !== "determinants") ofSquares[name]([40, 40], dtype, tolerance * 20)
    })
    test("matrices without rows or columns", () => {
      const empty = (...shape: number[]): mx.Array => mx.zeros(shape, dtype)
      for (const shape of [
        [0, 0],
        [0, 3],
        [3, 0],
        [0, 2, 3],
        [2, 3, 0],
      ]) {
        const x = empty(...shape)
        const [rows, cols] = shape.slice(-2)
        const leading = shape.slice(0, -2)
        const [u, s, vt] = linalg.svd(x)
        expect([u.shape, s.shape, vt.shape]).toEqual([
          [...leading, rows, rows],
          [...leading, Math.min(rows, cols)],
          [...leading, cols, cols],
        ])
        expectUnitary(u, 0)
        expectUnitary(vt, 0)
        mx.eval(...linalg.qr(x), ...linalg.lu(x), ...linalg.luFactor(x), linalg.svd(x, false))
        expect(linalg.lu(x)[0].tolist()).toEqual(
          mx.broadcastTo(mx.arange(rows).astype(mx.uint32), [...leading, rows]).tolist(),
        )
        expect(linalg.pinv(x).shape).toEqual([...leading, cols, rows])
        expectNear(linalg.norm(x), mx.array(0).astype(dtype === mx.float64 ? dtype : mx.float32), 0)
      }
      for (const x of [empty(0, 0), empty(2, 0, 0), empty(0, 3, 3)]) {
        const n = x.shape[x.ndim - 1]
        const b = empty(...x.shape.slice(0, -2), n, 2)
        mx.eval(
          ...linalg.eigh(x),
          ...linalg.eig(x),
          linalg.eigvals(x),
          linalg.eigvalsh(x),
          linalg.cholesky(x),
        )
        expect(linalg.solve(x, b).shape).toEqual(b.shape)
        expect(linalg.solveTriangular(x, b).shape).toEqual(b.shape)
        expect(linalg.inv(x).shape).toEqual(x.shape)
        expectNear(linalg.det(x), mx.ones(x.shape.slice(0, -2), dtype), 0)
        const [sign, logabs] = linalg.slogdet(x)
        expect(numbers(sign.real).every((v) => v === 1)).toBe(true)
        expect(numbers(logabs).every((v) => v === 0)).toBe(true)
      }
      expect(linalg.solve(mx.eye(3, { dtype }), empty(3, 0)).shape).toEqual([3, 0])
    })
    test("matrices with a NaN or an infinity give NaN, and their neighbours in the batch do not", () => {
      for (const bad of [Number.NaN, Number.POSITIVE_INFINITY]) {
        const good = definite([4, 4], dtype)
        const spoiled = mx.array(good)
        spoiled.set([2, 1], bad)
        const x = mx.stack([spoiled, good])
        const b = mx.ones([2, 4, 2], dtype)
        const results: Record<string, mx.Array[]> = {
          lu: [linalg.luFactor(x)[0]],
          qr: linalg.qr(x),
          svd: linalg.svd(x),
          values: [linalg.svd(x, false), linalg.eigvalsh(x), linalg.eigvals(x)],
          eigh: linalg.eigh(x),
          eig: linalg.eig(x),
          solve: [linalg.solve(x, b), linalg.inv(x)],
        }
        for (const [name, outputs] of Object.entries(results)) {
          for (const y of outputs) {
            const parts = y.dtype === mx.complex64 ? y.real : y
            expect(allNan(parts.index(0)), name).toBe(true)
            expect(numbers(y.index(1)).every(Number.isFinite), name).toBe(true)
          }
        }
        const low = linalg.cholesky(x)
        expect(allNan(low.index(0, 3).real)).toBe(true)
        expect(numbers(low.index(1)).every(Number.isFinite)).toBe(true)
        // The triangle that is not read may hold anything.
        expectNear(linalg.cholesky(x, true).index(0), linalg.cholesky(good, true), tolerance)
      }
    })
    test("singular matrices", () => {
      const x = mx.array([1, 2, 2, 4]).reshape([2, 2]).astype(dtype)
      const b = mx.ones([2], dtype)
      expect(() => mx.eval(linalg.inv(x))).toThrow(
        new mx.NumericError("linalg.inv", "the matrix is singular"),
      )
      expect(() => linalg.solve(x, b).tolist()).toThrow("[linalg.solve] the matrix is singular")
      expect(() => linalg.solveTriangular(mx.triu(x.subtract(x)), b).tolist()).toThrow(
        "[linalg.solveTriangular] the matrix is singular",
      )
      expect(() => linalg.cholesky(x.negative()).tolist()).toThrow(
        "[linalg.cholesky] the matrix is not positive definite",
      )
      const four = mx.ones([4, 4], dtype)
      expectNear(linalg.det(four), mx.array(0).astype(dtype), tolerance)
      const [sign, logabs] = linalg.slogdet(mx.zeros([4, 4], dtype))
      expectNear(sign, mx.array(0).astype(dtype), 0)
      expect(logabs.item()).toBe(Number.NEGATIVE_INFINITY)
      factorizations.lu(four, tolerance)
      factorizations.qr(four, tolerance)
      factorizations.svd(four, tolerance)
      factorizations.pinv(four, tolerance)
      factorizations.svd(mx.zeros([3, 2], dtype), tolerance)
    })
    test("extreme sizes of numbers", () => {
      for (const scale of dtype === mx.float64 ? [1e150, 1e-150] : [1e15, 1e-15]) {
        const x = random([4, 4], dtype, 8).multiply(scale)
        expectNear(linalg.svd(x, false).divide(scale), linalg.svd(x.divide(scale), false), tolerance * 4)
        const [q, r] = linalg.qr(x)
        expectNear(q.matmul(r).divide(scale), x.divide(scale), tolerance * 4)
        const [w, v] = linalg.eigh(definite([3, 3], dtype).multiply(scale))
        expectUnitary(v, tolerance * 4)
        expect(numbers(w).every((value) => value > 0 && Number.isFinite(value))).toBe(true)
      }
    })
  })

  test("a failing matrix poisons its result alone", () => {
    const x = mx.array([0, 0, 0, 0]).reshape([2, 2])
    const bad = linalg.inv(x)
    const good = linalg.inv(mx.eye(2))
    expect(() => mx.eval(bad, good)).toThrow(mx.NumericError)
    expectNear(good, mx.eye(2), 0)
    expect(() => bad.add(1).tolist()).toThrow(mx.NumericError)
  })
  test("a defective matrix has eigenvalues and unit vectors", () => {
    const x = mx.array([1, 1, 0, 0, 1, 1, 0, 0, 1]).reshape([3, 3])
    const [w, v] = linalg.eig(x)
    expectNear(w.real, mx.ones([3]), 2e-2)
    expectNear(v.abs().square().sum(0), mx.ones([3]), 1e-5)
  })
})

describe("both backends", () => {
  const on = <T>(backend: string, body: () => T): T => {
    mx.setBackend(backend)
    try {
      return body()
    } finally {
      mx.setBackend(null)
    }
  }
  beforeEach(() => mx.resetBackendStats())
  test.each(dtypes.map((dtype) => ({ name: dtype.name, dtype })))(
    "agree on what is unique, $name",
    ({ dtype }) => {
      const functions: ((x: mx.Array) => mx.Array)[] = [
        (x) => linalg.luFactor(x)[0],
        (x) => linalg.luFactor(x)[1].astype(mx.float32),
        (x) => linalg.qr(x)[0],
        (x) => linalg.qr(x)[1],
        (x) => linalg.svd(x, false),
        (x) => linalg.inv(x),
        (x) => linalg.solveTriangular(x, x),
        (x) => linalg.cholesky(x.matmul(adjoint(x))),
        (x) => linalg.det(x),
        (x) => linalg.norm(x, "nuc", [-2, -1]),
      ]
      for (const f of functions) {
        const got = on("cpu", () => mx.contiguous(f(regular([3, 6, 6], dtype))).toTypedArray())
        const want = on("reference", () => mx.contiguous(f(regular([3, 6, 6], dtype))).toTypedArray())
        const size = Math.max(...Array.from(want as Float64Array, Math.abs))
        Array.from(want as Float64Array).forEach((v, i) => {
          if (!(Math.abs((got[i] as number) - v) <= 20 * precision(dtype) * size))
            expect.fail(`${f}: element ${i}: ${got[i]}, expected ${v}`)
        })
      }
    },
  )
  test("the CPU has a kernel for every factorization", () => {
    on("cpu", () => {
      for (const dtype of dtypes) {
        const x = definite([3, 3], dtype)
        mx.eval(
          linalg.lu(x),
          linalg.qr(x),
          linalg.svd(x),
          linalg.svd(x, false),
          linalg.eigh(x),
          linalg.eig(x),
        )
        mx.eval(
          linalg.eigvalsh(x),
          linalg.eigvals(x),
          linalg.cholesky(x),
          linalg.solve(x, x),
          linalg.triInv(x),
        )
      }
    })
    expect(mx.backendStats()).toEqual({})
  })
})

describe("arguments", () => {
  const x = mx.ones([3, 3])
  test.each([
    [
      () => linalg.inv(mx.ones([3])),
      "[linalg.inv] needs an array of at least 2 dimensions, received shape (3,)",
    ],
    [
      () => linalg.inv(mx.ones([3, 2])),
      "[linalg.inv] needs square matrices, received matrices of shape (3, 2)",
    ],
    [
      () => linalg.qr(mx.ones([3, 3], mx.int32)),
      "[linalg.qr] needs float32, float64 or complex64, received int32. Convert the array with astype first",
    ],
    [
      () => linalg.inv(mx.ones([3, 3], mx.float16)),
      "[linalg.inv] needs float32, float64 or complex64, received float16. Convert the array with astype first",
    ],
    [() => linalg.eigh(x, "X" as "L"), '[linalg.eigh] UPLO must be "L" or "U", received the string "X"'],
    [
      () => linalg.solve(x, mx.ones([2])),
      "[linalg.solve] b must have 3 rows for matrices of shape (3, 3), received shape (2,)",
    ],
    [
      () => linalg.norm(x, 3),
      '[linalg.norm] the number 3 is not the order of a matrix norm. Matrices have the norms 1, -1, 2, -2, Infinity, -Infinity, "fro", "f" and "nuc"',
    ],
    [
      () => linalg.cross(mx.ones([4]), mx.ones([3])),
      "[linalg.cross] the vectors must have 2 or 3 components, received shapes (4,) and (3,) with axis -1",
    ],
  ])("%s", (f, message) => {
    expect(f).toThrow(new mx.LazuliError("", "").constructor as never)
    try {
      f()
    } catch (error) {
      expect((error as Error).message).toBe(message)
    }
  })
  test("integers have determinants, and dtypes promote in equations", () => {
    expect(linalg.det(mx.array([2, 1, 1, 2], mx.int32).reshape([2, 2])).item()).toBe(3)
    for (const dtype of [mx.float16, mx.bfloat16])
      for (const [n, value] of [
        [2, 8],
        [4, 48],
      ]) {
        const x = mx.eye(n).multiply(2).add(1).astype(dtype)
        const results = [linalg.det(x), ...linalg.slogdet(x)]
        expect(results.map((y) => y.dtype)).toEqual([dtype, dtype, dtype])
        expect(results.map((y) => y.item())).toEqual([
          value,
          1,
          mx.array(Math.log(value)).astype(dtype).item(),
        ])
      }
    const y = linalg.solve(mx.eye(2), mx.array([1, 2], mx.int32))
    expect([y.dtype, y.tolist()]).toEqual([mx.float32, [1, 2]])
  })
  test("samples of a normal distribution have its mean and covariance", () => {
    const cov = mx.array([2, 0.5, 0.5, 1]).reshape([2, 2])
    const samples = mx.random.multivariateNormal(mx.array([1, -1]), cov, {
      shape: [20_000],
      key: mx.random.key(1),
    })
    expect(samples.shape).toEqual([20_000, 2])
    const centered = samples.subtract(samples.mean(0))
    expectNear(samples.mean(0), mx.array([1, -1]), 0.03)
    expectNear(centered.T.matmul(centered).divide(20_000), cov, 0.03)
    expect(mx.random.multivariateNormal(mx.zeros([3, 2]), mx.eye(2)).shape).toEqual([3, 2])
    expect(mx.random.multivariateNormal(mx.zeros([3, 2]), mx.eye(2), [1]).shape).toEqual([3, 2])
    expect(mx.random.multivariateNormal(mx.zeros([3, 2]), mx.eye(2), [4, 1]).shape).toEqual([4, 3, 2])
    expect(() => mx.random.multivariateNormal(mx.zeros([3, 2]), mx.eye(2), [4])).toThrow(mx.ShapeError)
  })
})
