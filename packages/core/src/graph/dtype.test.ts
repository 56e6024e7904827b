/** Element types: promotion, conversion, sixteen-bit floats, and how JavaScript values choose a dtype. */
import fc from "fast-check"
import { describe, expect, test } from "vitest"
import * as mx from "../index"
import { dtypes, promote } from "./dtype"
import { fromBfloat16Bits, fromFloat16Bits, toBfloat16Bits, toFloat16Bits } from "./half"

test("promotion is symmetric, and a dtype promotes to itself", () => {
  for (const a of dtypes) {
    expect(promote(a, a)).toBe(a)
    for (const b of dtypes) expect(promote(a, b)).toBe(promote(b, a))
  }
})

describe("sixteen-bit floats", () => {
  const kinds = [
    { name: "float16", to: toFloat16Bits, from: fromFloat16Bits, infinity: 0x7c00 },
    { name: "bfloat16", to: toBfloat16Bits, from: fromBfloat16Bits, infinity: 0x7f80 },
  ]
  for (const { name, to, from, infinity } of kinds) {
    test(`${name}: every value survives the round trip`, () => {
      const wrong: number[] = []
      for (let bits = 0; bits < 65536; bits++) {
        const back = to(from(bits))
        // One expectation for all 65,536, which would take seconds one by one.
        if ((bits & 0x7fff) > infinity ? !Number.isNaN(from(back)) : back !== bits) wrong.push(bits)
      }
      expect(wrong).toEqual([])
    })
    test(`${name}: rounds to the nearest, ties to even`, () => {
      fc.assert(
        fc.property(fc.nat(infinity - 2), fc.double({ min: 0, max: 1, noNaN: true }), (bits, t) => {
          const [low, high] = [from(bits), from(bits + 1)]
          const x = Math.fround(low + (high - low) * t)
          const [down, up] = [x - low, high - x]
          const expected = down < up ? bits : down > up ? bits + 1 : bits + (bits & 1)
          expect(to(x)).toBe(expected)
          expect(to(-x)).toBe(expected | 0x8000)
        }),
        { seed: 7 },
      )
    })
  }
})

test("the JavaScript type decides the dtype", () => {
  const name = (data: Parameters<typeof mx.array>[0]): string => mx.array(data).dtype.name
  expect([
    name(1),
    name([1, 2.5]),
    name(true),
    name(1n),
    name(mx.complex(1, 2)),
    name(new Float64Array(2)),
    name(new BigInt64Array(1)),
  ]).toEqual(["float32", "float32", "bool_", "int64", "complex64", "float64", "int64"])
  expect(mx.int32([1, 2]).dtype).toBe(mx.int32)
  expect(mx.array(new Uint16Array([0x3c00]), mx.float16).item()).toBe(1)
})

test("scalars beside arrays are weak", () => {
  const name = (x: mx.Array): string => x.dtype.name
  const i = mx.array([1, 2], mx.int8)
  expect([name(i.add(1)), name(i.add(1.5)), name(i.add(1n)), name(i.add(true))]).toEqual([
    "int8",
    "float32",
    "int8",
    "int8",
  ])
  expect([
    name(mx.array([true]).add(1)),
    name(mx.ones([1], mx.float16).multiply(2.5)),
    name(i.add(mx.complex(0, 1))),
  ]).toEqual(["int32", "float16", "complex64"])
  expect(() => i.add(1000)).toThrowErrorMatchingInlineSnapshot(
    `[DTypeError: [add] the value 1000 does not fit int8 (-128 to 127). Convert the array first, or pass mx.array(1000, dtype)]`,
  )
})

test("scalars outside of a dtype are refused wherever they are given", () => {
  const refused = (f: () => mx.Array): string => {
    try {
      return JSON.stringify(f().tolist())
    } catch (error) {
      return (error as Error).message.replace(/\. (Convert|Name).*/, "")
    }
  }
  const bytes = mx.array([1, 2], mx.uint8)
  const z = mx.complex(1, 2)
  expect([
    refused(() => mx.full([2], 300, mx.uint8)),
    refused(() => mx.fullLike(bytes, 300)),
    refused(() => mx.array([mx.array(1, mx.uint8), 300], mx.uint8)),
    refused(() => mx.full([2], z, mx.float32)),
    refused(() => mx.fullLike(mx.ones([2]), z)),
    refused(() => mx.array([mx.array(1), z], mx.float32)),
    refused(() => mx.array([1n]).add(2 ** 63)),
  ]).toMatchInlineSnapshot(`
    [
      "[full] the value 300 does not fit uint8 (0 to 255)",
      "[fullLike] the value 300 does not fit uint8 (0 to 255)",
      "[array] the value 300 does not fit uint8 (0 to 255)",
      "[full] a complex number does not fit float32",
      "[fullLike] a complex number does not fit float32",
      "[array] a complex number does not fit float32",
      "[add] the value 9223372036854776000 does not fit int64 (-9223372036854775808 to 9223372036854775807)",
    ]
  `)
})

test("fullLike fills integers exactly", () => {
  expect(mx.fullLike(mx.array([1], mx.int32), 2 ** 24 + 1).tolist()).toEqual([2 ** 24 + 1])
  expect(mx.fullLike(mx.array([1n]), 2n ** 62n + 1n).tolist()).toEqual([2n ** 62n + 1n])
})

test("64-bit integers are exact", () => {
  const big = 2n ** 62n + 1n
  expect(mx.array([big]).add(1).tolist()).toEqual([big + 1n])
  expect(
    mx
      .array([2n ** 63n - 1n])
      .add(1n)
      .tolist(),
  ).toEqual([-(2n ** 63n)])
})

test("dtypes print and call as MLX spells them", () => {
  expect(String(mx.float32)).toBe("float32")
  expect(mx.bool).toBe(mx.bool_)
})
