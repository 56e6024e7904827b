/** Values of 32 and 64 bits become float16 and bfloat16 by one rounding, to nearest, ties to even: held to exact rationals. */

import * as mx from "@lazuli/core"
import { integers } from "./generator"
import "@lazuli/backend-cpu"
import { compile } from "@lazuli/compile"
import { describe, expect, test } from "vitest"
import { onBackendNamed } from "./backend-choice"

/** The nearest number of `p` significant bits whose smallest unit is 2^`least` and whose overflow starts at 2^`limit`. */
function nearest(value: number | bigint, p: number, least: number, limit: number): number {
  if (typeof value === "number" && (!Number.isFinite(value) || value === 0)) return value
  const negative = value < 0
  let [size, exponent] = typeof value === "bigint" ? [value, 0] : scaled(Math.abs(value))
  if (size < 0n) size = -size
  if (size === 0n) return 0
  const drop = Math.max(size.toString(2).length - p, least - exponent)
  if (drop > 0) {
    const unit = 1n << BigInt(drop)
    const rest = size % unit
    size /= unit
    if (2n * rest > unit || (2n * rest === unit && size % 2n === 1n)) size++
    exponent += drop
  }
  const rounded = size.toString(2).length + exponent > limit ? Infinity : Number(size) * 2 ** exponent
  return negative ? -rounded : rounded
}

/** A positive number as an integer and the exponent of its unit. */
function scaled(value: number): [bigint, number] {
  let exponent = 0
  while (!Number.isInteger(value)) {
    value *= 2
    exponent--
  }
  return [BigInt(value), exponent]
}

const halves = [
  { half: mx.float16, p: 11, least: -24, limit: 16 },
  { half: mx.bfloat16, p: 8, least: -133, limit: 128 },
]

const random = integers(1)

/** Numbers of a half type, midpoints between neighbours, and either with a little added or taken away. */
function doublesNearTies(p: number, least: number, limit: number): Float64Array {
  const fixed = [0, -0, NaN, Infinity, -Infinity, Number.MAX_VALUE, Number.MIN_VALUE, 2 ** 128, 2 ** -150]
  const drawn = Array.from({ length: 6000 }, () => {
    const exponent = least - 3 + random(limit + 2 - least)
    const tie = (2 ** p + random(2 ** p)) * 2 ** (Math.max(exponent, least + p - 1) - p)
    const low = random(4) === 0 ? random(2 ** (p + 1)) * 2 ** (least - 1) : tie
    const shift = 2 ** -(1 + random(53 - p)) * 2 ** -(p + 1)
    return (random(2) ? 1 : -1) * low * (1 + [0, shift, -shift][random(3)])
  })
  return Float64Array.from([...fixed, ...fixed.map((v) => -v), ...drawn])
}

/** Integers of up to `bits` bits: a multiple of a power of two, or one beside it. */
function integersNearTies(bits: number, signed: boolean): bigint[] {
  const wrap = (v: bigint): bigint => (signed ? BigInt.asIntN(bits, v) : BigInt.asUintN(bits, v))
  const fixed = [0n, 1n, -1n, 65519n, 65520n, 65521n, 1n << BigInt(bits - 1), (1n << BigInt(bits - 1)) - 1n]
  const drawn = Array.from({ length: 6000 }, () => {
    const length = 1 + random(bits)
    const kept = BigInt(256 + random(256)) * (random(2) ? 8n : 1n) + BigInt(random(2))
    const top = (kept << 64n) >> BigInt(64 + kept.toString(2).length - length)
    const beside = BigInt(random(3) - 1) << BigInt(random(Math.max(1, length - 9)))
    return (signed && random(2) ? -1n : 1n) * (top + beside)
  })
  return [...fixed, ...drawn].map(wrap)
}

describe.each(["reference", "cpu"])("%s", (backend) => {
  const here = (body: () => void) => () => onBackendNamed(backend, body)

  /** Compares all at once: one expectation a value would take seconds. */
  const check = (got: mx.Array, from: ArrayLike<number | bigint>, h: (typeof halves)[number]): void => {
    const values = (got.astype(mx.float32).tolist() as number[]).flat()
    const wrong: unknown[] = []
    for (let i = 0; i < from.length; i++) {
      const want = nearest(from[i], h.p, h.least, h.limit)
      if (!Object.is(values[i], want)) wrong.push([from[i], values[i], want])
    }
    expect(got.dtype).toBe(h.half)
    expect(wrong.slice(0, 5)).toEqual([])
  }

  describe.each(halves)("$half", (h) => {
    const doubles = doublesNearTies(h.p, h.least, h.limit)
    const sources: [string, Float64Array | BigInt64Array | BigUint64Array | Int32Array | Uint32Array][] = [
      ["float64", doubles],
      ["int32", Int32Array.from(integersNearTies(32, true), Number)],
      ["uint32", Uint32Array.from(integersNearTies(32, false), Number)],
      ["int64", BigInt64Array.from(integersNearTies(64, true))],
      ["uint64", BigUint64Array.from(integersNearTies(64, false))],
    ]
    test.each(sources)("%s arrays", (_, from) =>
      onBackendNamed(backend, () => {
        const x = mx.array(from)
        check(x.astype(h.half), from, h)
        // Strided, single elements, and inside a larger program.
        const every = [...(from as Float64Array)].filter((_, i) => i % 3 === 0)
        check(x.index("::3").astype(h.half), every, h)
        for (let i = 0; i < 40; i++) check(x.index(i).astype(h.half).reshape(1), [from[i]], h)
        const compiled = compile((a: mx.Array) => mx.abs(mx.negative(a.astype(h.half))))
        check(
          compiled(x),
          [...(from as Float64Array)].map((v) => (v < 0 ? -v : Math.abs(Number(v)) === 0 ? 0 : v)),
          h,
        )
      }),
    )

    test(
      "lists, scalars and arange",
      here(() => {
        const some = [...doubles.slice(0, 200)]
        check(mx.array(some, h.half), some, h)
        const integers = integersNearTies(64, true).slice(0, 200)
        check(mx.array(integers, h.half), integers, h)
        check(
          mx.array([2n ** 100n + 2n ** 92n + 1n, -(2n ** 2000n)], h.half),
          [2n ** 100n + 2n ** 92n + 1n, -Infinity],
          h,
        )
        const one = mx.ones([1], h.half)
        for (const v of some.filter((v) => Number.isFinite(v)).slice(0, 60)) {
          check(one.multiply(v), [v], h)
          check(mx.full([1], v, h.half), [v], h)
        }
        const step = 2 ** -h.p + 2 ** -40
        check(
          mx.arange(1, 1 + 40 * step, step, h.half),
          Array.from({ length: 40 }, (_, i) => 1 + i * step),
          h,
        )
      }),
    )
  })

  test(
    "the examples that double rounding gets wrong",
    here(() => {
      const cast = (data: Float64Array | Int32Array | BigInt64Array, half: mx.Dtype): unknown =>
        mx.array(data).astype(half).item()
      expect(cast(new Float64Array([1 + 2 ** -11 + 2 ** -40]), mx.float16)).toBe(1 + 2 ** -10)
      expect(cast(new Float64Array([1 + 2 ** -8 + 2 ** -40]), mx.bfloat16)).toBe(1 + 2 ** -7)
      expect(cast(new Int32Array([16842753]), mx.bfloat16)).toBe(16908288)
      expect(cast(new BigInt64Array([2n ** 40n + 2n ** 32n + 1n]), mx.bfloat16)).toBe(2 ** 40 + 2 ** 33)
    }),
  )
})
