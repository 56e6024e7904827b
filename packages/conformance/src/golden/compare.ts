/**
 * Compares an answer with the recorded one: shapes and dtypes exactly, integers exactly, the rest within tolerances. What is
 * unique only up to a choice is compared in unique.ts.
 */
import * as mx from "@lazuli/core"
import { fromBfloat16Bits, fromFloat16Bits } from "@lazuli/core/engine"
import { type EncodedArray, isEncodedArray, type Json, type JsonObject, Mismatch, type Tolerance } from "./format"
import { arrayOf, dtypeNamed, storeOf, toInteger, toNumber } from "./values"

/** Elements as JavaScript values: complex numbers as pairs, half types as numbers. */
export interface HostValues {
  readonly dtype: string
  readonly shape: readonly number[]
  readonly values: readonly (number | bigint)[]
}

/** A stored element as a number: half types are stored as their bits. */
function fromBits(value: number | bigint, dtype: mx.Dtype): number | bigint {
  if (dtype === mx.float16) return fromFloat16Bits(value as number)
  return dtype === mx.bfloat16 ? fromBfloat16Bits(value as number) : value
}

/** An array's elements. */
export function hostOf(a: mx.Array): HostValues {
  const store = a.toTypedArray() as unknown as ArrayLike<number | bigint>
  return {
    dtype: a.dtype.name,
    shape: a.shape,
    values: globalThis.Array.from(store, (v) => fromBits(v, a.dtype)),
  }
}

/** A recorded array's elements; of a view, those of the view. */
export function expectedOf(v: EncodedArray): HostValues {
  if (v.view) return hostOf(arrayOf(v))
  const dtype = dtypeNamed(v.dtype)
  const values = globalThis.Array.from(storeOf(v), (x) => fromBits(x, dtype))
  return { dtype: dtype.name, shape: v.shape, values }
}

/** True if one number is near enough. */
export function isClose(got: number, want: number, { rtol, atol, exact }: Tolerance): boolean {
  if (Number.isNaN(want)) return Number.isNaN(got)
  if (exact || !Number.isFinite(want)) return got === want
  return Math.abs(got - want) <= atol + rtol * Math.abs(want)
}

/** @throws Mismatch unless shapes and dtypes are equal and every element is near enough */
export function compareHost(got: HostValues, want: HostValues, tolerance: Tolerance, what: string): void {
  if (got.dtype !== want.dtype) throw new Mismatch(`${what}: dtype ${got.dtype}, expected ${want.dtype}`)
  if (got.shape.join() !== want.shape.join())
    throw new Mismatch(`${what}: shape [${got.shape}], expected [${want.shape}]`)
  const integral = !/float|complex/.test(want.dtype)
  const complex = want.dtype === "complex64"
  for (let i = 0; i < want.values.length; i++) {
    const [g, w] = [got.values[i], want.values[i]]
    if (integral ? g === w : isClose(g as number, w as number, tolerance)) continue
    // A small part next to a large one is not held to its own size.
    if (complex && !tolerance.exact) {
      const k = i - (i % 2)
      const [a, b, x, y] = [got.values[k], got.values[k + 1], want.values[k], want.values[k + 1]] as number[]
      if (Math.hypot(a - x, b - y) <= tolerance.atol + tolerance.rtol * Math.hypot(x, y)) continue
    }
    const { rtol, atol } = tolerance
    throw new Mismatch(`${what}, element ${i}: ${g}, expected ${w} (rtol ${rtol}, atol ${atol})`)
  }
}

/** Compares any value with a recorded one. @throws Mismatch */
export function compareValue(got: unknown, want: Json, tolerance: Tolerance, what: string): void {
  const fail = (expected: string): never => {
    throw new Mismatch(`${what}: got ${String(got)}, expected ${expected}`)
  }
  if (isEncodedArray(want)) {
    if (!(got instanceof mx.Array)) return fail("an array")
    return compareHost(hostOf(got), expectedOf(want), tolerance, what)
  }
  if (globalThis.Array.isArray(want)) {
    if (!globalThis.Array.isArray(got) || got.length !== want.length)
      return fail(`a list of ${want.length} items`)
    for (let i = 0; i < want.length; i++) compareValue(got[i], want[i], tolerance, `${what}.${i}`)
    return
  }
  if (want === null || typeof want !== "object") {
    if (got !== want) fail(JSON.stringify(want))
    return
  }
  if ("int" in want) {
    if (Number(got) !== Number(toInteger(want.int))) fail(String(want.int))
  } else if ("float" in want) {
    if (!isClose(Number(got), toNumber(want.float), { rtol: Math.max(1e-7, tolerance.rtol), atol: tolerance.atol }))
      fail(String(want.float))
  } else if ("re" in want) {
    const z = got as mx.Complex
    if (!isClose(z.re, toNumber(want.re), tolerance) || !isClose(z.im, toNumber(want.im), tolerance))
      fail(`${want.re} + ${want.im}i`)
  } else if ("dtype" in want) {
    if (got !== dtypeNamed(want.dtype as string)) fail(want.dtype as string)
  } else if ("dict" in want) {
    const dict = want.dict as JsonObject
    const keys = Object.keys((got ?? {}) as object).sort()
    if (keys.join() !== Object.keys(dict).sort().join())
      throw new Mismatch(`${what}: keys ${keys}, expected ${Object.keys(dict).sort()}`)
    for (const key of keys)
      compareValue((got as Record<string, unknown>)[key], dict[key], tolerance, `${what}.${key}`)
  } else fail(JSON.stringify(want))
}
