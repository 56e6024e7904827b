/**
 * Complex functions at zero, infinities and NaN: what backends and the reference agree on.
 */
import "@lazuli/backend-cpu"
import * as mx from "@lazuli/core"
import { describe, expect, it } from "vitest"
import { onBackendNamed } from "./backend-choice"

const { NaN: nan, POSITIVE_INFINITY: inf } = Number
const z = mx.complex

describe.each(["cpu", "reference"])("complex64 on %s", (backend) => {
  const of = (f: (a: mx.Array, b: mx.Array) => mx.Array, x: mx.Complex, y: mx.Complex) =>
    onBackendNamed(backend, () => {
      const { re, im } = f(mx.array([x]), mx.array([y])).item() as mx.Complex
      return [re, im]
    })

  it("power of zero is 0, 1 to the power 0, and NaN to the power NaN", () => {
    const zero = z(0, 0)
    for (const y of [z(nan, 0), z(0, nan), z(2, nan), z(nan, nan)])
      expect(of(mx.power, zero, y)).toEqual([nan, nan])
    expect(of(mx.power, zero, z(2, 1))).toEqual([0, 0])
    expect(of(mx.power, zero, zero)).toEqual([1, 0])
    expect(of(mx.power, z(nan, 1), zero)).toEqual([1, 0])
  })

  it("logaddexp of two infinities of one sign is that infinity", () => {
    expect(of(mx.logaddexp, z(-inf, 0), z(-inf, 0))[0]).toBe(-inf)
    expect(of(mx.logaddexp, z(inf, 0), z(inf, 1))[0]).toBe(inf)
    expect(of(mx.logaddexp, z(-inf, 0), z(2, 1))).toEqual([2, 1])
  })
})
