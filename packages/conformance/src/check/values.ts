/**
 * Numbers for samples, and comparing results: elements in double precision, inner products, directions to differentiate along.
 */
import * as mx from "@lazuli/core"
import { isInexact } from "@lazuli/core/engine"

/** Numbers that look random and are the same every time. */
export function numbers(count: number, low = 0.2, high = 0.9, seed = 1): number[] {
  let state = seed * 7919 + 17
  return globalThis.Array.from({ length: count }, () => {
    state = (state * 1103515245 + 12345) % 2147483648
    return low + ((high - low) * state) / 2147483648
  })
}

/** A float64 array of such numbers. */
export function values(shape: readonly number[], low = 0.2, high = 0.9, seed = 1): mx.Array {
  const count = shape.reduce((a, b) => a * b, 1)
  return mx.array(Float64Array.from(numbers(count, low, high, seed))).reshape(shape)
}

/** An array's elements as numbers, complex ones as pairs. */
export function flat(a: mx.Array): number[] {
  const parts = a.dtype === mx.complex64 ? mx.stack([a.real, a.imag], -1) : a
  return globalThis.Array.from(parts.astype(mx.float64).toTypedArray() as Float64Array)
}

/** Re ⟨a, b⟩; zeros count as zeros even beside infinities. */
export function dot(a: mx.Array, b: mx.Array): number {
  const [x, y] = [flat(a), flat(b)]
  return x.reduce((sum, v, i) => sum + (v === 0 || y[i] === 0 ? 0 : v * y[i]), 0)
}

/** True if a matrix is its own conjugate transpose: factorizations that take such matrices read one triangle. */
export function isHermitian(x: mx.Array): boolean {
  return x.ndim === 2 && x.shape[0] === x.shape[1] && mx.arrayEqual(x, x.T.conjugate()).item() === true
}

/** An array like `x` that points somewhere; a Hermitian one where `x` is Hermitian. */
export function direction(x: mx.Array, seed: number): mx.Array {
  const real = values(x.shape, -1, 1, seed)
  const any =
    x.dtype === mx.complex64
      ? real.astype(x.dtype).add(values(x.shape, -1, 1, seed + 1).multiply(mx.complex(0, 1)))
      : real
  return (isHermitian(x) ? any.add(any.T.conjugate()).multiply(0.5) : any).astype(x.dtype)
}

/** An error that a check found. */
export class CheckFailure extends Error {}

/** @throws CheckFailure unless shapes and dtypes are equal and elements close */
export function expectClose(what: string, got: mx.Array, want: mx.Array, tolerance: number): void {
  const kind = (a: mx.Array): string => `${a.dtype.name}[${a.shape}]`
  if (kind(got) !== kind(want)) throw new CheckFailure(`${what}: ${kind(got)}, expected ${kind(want)}`)
  const [g, w] = [flat(got), flat(want)]
  w.forEach((v, i) => {
    if (Object.is(g[i], v) || g[i] === v) return
    if (Number.isFinite(v) && Math.abs(g[i] - v) <= tolerance * (1 + Math.abs(v))) return
    throw new CheckFailure(`${what}: element ${i} is ${g[i]}, expected ${v}`)
  })
}

/** True if every floating array is float64, so that differences and products are exact to many digits. */
export function isExact(arrays: readonly mx.Array[]): boolean {
  return arrays.every((x) => !isInexact(x.dtype) || x.dtype === mx.float64)
}
