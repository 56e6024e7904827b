import type * as mx from "@lazuli/core"
import { expect } from "vitest"

/** Fails where a value is further off than a part of the expected one, or of 1. */
export const close = (got: mx.Array, want: ArrayLike<number>, tolerance = 1e-5): void => {
  const values = got.toTypedArray() as Float32Array
  expect(values.length).toBe(want.length)
  let worst = 0
  for (let i = 0; i < want.length; i++)
    worst = Math.max(worst, Math.abs(values[i] - want[i]) / Math.max(1, Math.abs(want[i])))
  expect(worst).toBeLessThan(tolerance)
}
/** Smooth numbers between -1 and 1. */
export const wave = (n: number, step: number): number[] =>
  Array.from({ length: n }, (_, i) => Math.sin(step * i + 1))
