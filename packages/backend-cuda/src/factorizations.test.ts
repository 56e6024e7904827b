/**
 * Factorizations and equations by cuSOLVER, on its test double: they give what the CPU gives, with its errors and its NaN; many small
 * matrices, and everything where the library is not there, are the CPU's, counted.
 */
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { afterAll, beforeAll, beforeEach, expect, it, vi } from "vitest"
import { callsOf } from "../test/calls"
import { failing } from "../test/double"
import "./index"

beforeAll(() => mx.setBackend("cuda", "gpu"))
beforeEach(() => mx.resetBackendStats())
afterAll(() => vi.unstubAllEnvs())

/** The command's code. */
const FACTORIZATION = 41
const { linalg } = mx
const DTYPES = [mx.float32, mx.float64, mx.complex64]

/** Matrices far from singular. */
function matrices(shape: number[], dtype: mx.Dtype, phase = 0): mx.Array {
  const numbers = (p: number): mx.Array =>
    mx
      .array(Float64Array.from({ length: shape.reduce((a, b) => a * b) }, (_, i) => Math.sin(i * i + i + p)))
      .reshape(shape)
  const real = numbers(phase)
  return dtype === mx.complex64
    ? real.astype(mx.complex64).add(
        numbers(phase + 1)
          .astype(mx.complex64)
          .multiply(mx.array(new mx.Complex(0, 1))),
      )
    : real.astype(dtype)
}
const adjoint = (x: mx.Array): mx.Array => x.conjugate().swapaxes(-1, -2)
const positive = (shape: number[], dtype: mx.Dtype): mx.Array => {
  const a = matrices(shape, dtype)
  return a.matmul(adjoint(a)).add(mx.eye(shape[shape.length - 1]).astype(dtype))
}
/** Made on the CPU, read by the GPU. */
const onCpu = <T>(body: () => T): T => mx.stream(mx.cpu, body)
const onGpu = <T>(body: () => T): T => mx.stream(mx.gpu, body)
const isClose = (a: mx.Array, b: mx.Array): boolean =>
  onCpu(() => mx.allclose(a, b, 1e-4, 1e-4, { equalNan: true }).item() as boolean)
const close = (a: mx.Array, b: mx.Array): void => {
  if (!isClose(a, b)) expect(onCpu(() => a.tolist())).toEqual(onCpu(() => b.tolist()))
}

it("gives what the CPU gives, of all dtypes and batches", () => {
  for (const dtype of DTYPES)
    for (const batch of [[], [2, 3]]) {
      const a = onCpu(() => matrices([...batch, 4, 4], dtype).add(mx.eye(4).astype(dtype).multiply(4)))
      const b = onCpu(() => matrices([...batch, 4, 2], dtype, 2))
      const p = onCpu(() => positive([...batch, 4, 4], dtype))
      const same: (() => mx.Array | mx.Array[])[] = [
        () => linalg.solve(a, b),
        () => linalg.solve(a.swapaxes(-1, -2), b),
        () => linalg.inv(a),
        () => linalg.solveTriangular(a, b),
        () => linalg.solveTriangular(a, b, { upper: true }),
        () => linalg.cholesky(p),
        () => linalg.cholesky(p, { upper: true }),
        () => linalg.eigvalsh(p),
        () => linalg.eigvalsh(p, { UPLO: "U" }),
        () => linalg.lu(a),
        () => linalg.lu(b),
        () => linalg.lu(b.swapaxes(-1, -2)),
        () => linalg.det(a),
        () => linalg.qr(a),
        () => linalg.qr(b),
        () => linalg.qr(b.swapaxes(-1, -2)),
        () => linalg.svd(b, { computeUv: false }) as unknown as mx.Array,
      ]
      for (const f of same) {
        const [got, want] = [onGpu(f), onCpu(f)].map((made) => [made].flat())
        got.forEach((each, i) => {
          close(each, want[i])
        })
      }
      // Vectors have signs of their own.
      for (const UPLO of ["L", "U"] as const) {
        const [w, v] = onGpu(() => linalg.eigh(p, { UPLO }))
        close(
          onCpu(() => v.multiply(w.expandDims(-2)).matmul(adjoint(v))),
          p,
        )
        close(
          onCpu(() => adjoint(v).matmul(v)),
          onCpu(() => mx.zeros(p.shape).add(mx.eye(4)).astype(dtype)),
        )
      }
      for (const x of [a, b, onCpu(() => b.swapaxes(-1, -2))]) {
        const [u, s, vt] = onGpu(() => linalg.svd(x)) as mx.Array[]
        const [m, n] = x.shape.slice(-2)
        const k = Math.min(m, n)
        expect([u.shape, s.shape, vt.shape]).toEqual([
          [...batch, m, m],
          [...batch, k],
          [...batch, n, n],
        ])
        const part = onCpu(() => u.index("...", `:${k}`).multiply(s.expandDims(-2)))
        close(
          onCpu(() => part.matmul(vt.index("...", `:${k}`, ":"))),
          x,
        )
        close(
          onCpu(() => u.matmul(adjoint(u))),
          onCpu(() => mx.zeros(u.shape).add(mx.eye(m)).astype(dtype)),
        )
        close(
          onGpu(() => linalg.pinv(x)),
          onCpu(() => linalg.pinv(x)),
        )
      }
    }
  // Those that are composed of others have no kernel of their own.
  const missing = Object.values(mx.backendStats().cuda ?? {}).filter(
    ({ reference, borrowed = 0 }) => reference + borrowed > 0,
  )
  expect(missing).toEqual([])
}, 300_000)

it("has the CPU's errors, which nothing else is lost by", () => {
  const zeros = onCpu(() => mx.zeros([2, 3, 3]))
  const good = onGpu(() => mx.ones([2]).add(1))
  const cases: (() => mx.Array)[] = [
    () => linalg.inv(zeros),
    () => linalg.solve(zeros, zeros),
    () => linalg.solveTriangular(zeros, zeros),
    () => linalg.cholesky(zeros),
  ]
  for (const f of cases) {
    let error: unknown
    try {
      onCpu(() => f().tolist())
    } catch (cause) {
      error = cause
    }
    expect(error).toBeInstanceOf(mx.NumericError)
    expect(() => onGpu(() => mx.eval(f().add(1), good))).toThrow(error as Error)
    const lost = onGpu(f)
    expect(() => onGpu(() => lost.add(1).tolist())).toThrow(mx.NumericError)
  }
  expect(good.tolist()).toEqual([2, 2])
  const a = onCpu(() => positive([3, 3], mx.float32))
  failing("no-convergence", () => {
    expect(() => onGpu(() => linalg.eigvalsh(a).tolist())).toThrow(
      new mx.NumericError("linalg.eigvalsh", "the eigenvalues did not converge"),
    )
    expect(() => onGpu(() => linalg.svd(a)[1].tolist())).toThrow(
      new mx.NumericError("linalg.svd", "the singular values did not converge"),
    )
  })
}, 120_000)

it("gives NaN for what is not finite, matrix by matrix", () => {
  const x = onCpu(() => {
    const p = positive([3, 4, 4], mx.float32)
    return p.at([1, 2, 1]).add(Number.NaN)
  })
  const tall = onCpu(() => x.index("...", ":3"))
  const cases: (() => mx.Array | mx.Array[])[] = [
    () => linalg.inv(x),
    () => linalg.solve(x, tall),
    () => linalg.cholesky(x),
    () => linalg.cholesky(x, { upper: true }),
    () => linalg.eigvalsh(x),
    () => linalg.qr(tall),
    () => linalg.svd(tall, { computeUv: false }) as unknown as mx.Array,
  ]
  for (const f of cases) {
    const [got, want] = [onGpu(f), onCpu(f)].map((made) => [made].flat())
    got.forEach((each, i) => {
      close(each, want[i])
    })
  }
}, 120_000)

it("runs beside a compiled function's other work, and says when it fails", () => {
  const calls = callsOf(FACTORIZATION)
  const a = onCpu(() => positive([3, 3], mx.float32))
  const f = compile((x: mx.Array) => linalg.inv(x.add(1)).multiply(2))
  const want = onCpu(() => linalg.inv(a.add(1)).multiply(2))
  for (let call = 0; call < 3; call++)
    close(
      onGpu(() => f(a) as mx.Array),
      want,
    )
  expect(calls()).toBe(6)
  expect(() => failing("factorization", () => onGpu(() => linalg.inv(a).tolist()))).toThrow(
    "[linalg.inv] the factorization failed with status 5 of cuSOLVER",
  )
  close(
    onGpu(() => linalg.inv(a)),
    onCpu(() => linalg.inv(a)),
  )
}, 120_000)

it("leaves many small matrices to the CPU, visibly", () => {
  const calls = callsOf(FACTORIZATION)
  const a = onCpu(() => positive([40, 3, 3], mx.float32))
  close(
    onGpu(() => linalg.inv(a)),
    onCpu(() => linalg.inv(a)),
  )
  expect(calls()).toBe(0)
  expect(mx.backendStats().cuda).toHaveProperty("inv")
}, 60_000)
