/** Arrays print as MLX's do. */
import { inspect } from "node:util"
import { expect, test } from "vitest"
import * as mx from "../index"

test("console.log(array) shows values, shape by nesting, and dtype", () => {
  const shown = [
    mx.array([
      [1, 2],
      [3, 4.5],
    ]),
    mx.array(3),
    mx.array([true, false]),
    mx.array([1n]),
    mx.array([mx.complex(1, -2)]),
    mx.zeros([0, 3]),
    mx.array([Number.NaN, Number.POSITIVE_INFINITY, 1e-7, 123456789]),
    mx.arange(2000),
  ]
  expect(shown.map((a) => inspect(a)).join("\n")).toMatchInlineSnapshot(`
    "array([[1, 2],
           [3, 4.5]], dtype=float32)
    array(3, dtype=float32)
    array([True, False], dtype=bool)
    array([1], dtype=int64)
    array([1-2j], dtype=complex64)
    array([], dtype=float32)
    array([nan, inf, 1e-07, 1.23457e+08], dtype=float32)
    array([0, 1, 2, ..., 1997, 1998, 1999], dtype=int32)"
  `)
})

test("axes longer than six show their ends, at every level", () => {
  expect(inspect(mx.arange(7))).toBe("array([0, 1, 2, ..., 4, 5, 6], dtype=int32)")
  expect(inspect(mx.arange(6))).toBe("array([0, 1, 2, 3, 4, 5], dtype=int32)")
  expect(inspect(mx.arange(14).reshape([7, 2]))).toMatchInlineSnapshot(`
    "array([[0, 1],
           [2, 3],
           [4, 5],
           ...,
           [8, 9],
           [10, 11],
           [12, 13]], dtype=int32)"
  `)
})

test("floats round as C's do", () => {
  // Each text is what printf("%g") and printf("%.1f") give.
  const cases: [number, string, string][] = [
    [0.25, "0.25", "0.2"],
    [0.75, "0.75", "0.8"],
    [-0, "-0", "-0.0"],
    [12345.25, "12345.2", "12345.2"],
    [12345.75, "12345.8", "12345.8"],
    [100000.5, "100000", "100000.5"],
    [999999.5, "1e+06", "999999.5"],
    [0.0001, "0.0001", "0.0"],
    [0.00001, "1e-05", "0.0"],
    [1e22, "1e+22", "10000000000000000000000.0"],
    [-2.5, "-2.5", "-2.5"],
    [1e300, "1e+300", `${BigInt(1e300)}.0`],
  ]
  for (const [value, general, fixed] of cases) {
    const a = mx.array(value, mx.float64)
    expect(String(a)).toBe(`array(${general}, dtype=float64)`)
    expect(mx.printoptions({ precision: 1 }, () => String(a))).toBe(`array(${fixed}, dtype=float64)`)
  }
})

test("print options", () => {
  const a = mx.array([1.23456, Number.NaN, -2])
  const z = mx.array([mx.complex(1, -2.5)])
  mx.setPrintoptions(3)
  expect(mx.getPrintoptions().precision).toBe(3)
  expect(String(a)).toBe("array([1.235, nan, -2.000], dtype=float32)")
  expect(String(z)).toBe("array([1.000-2.500j], dtype=complex64)")
  expect(String(mx.array([1n]))).toBe("array([1], dtype=int64)")
  {
    using _ = mx.printoptions({ precision: 0 })
    expect(String(a)).toBe("array([1, nan, -2], dtype=float32)")
  }
  expect(mx.getPrintoptions().precision).toBe(3)
  mx.setPrintoptions()
  expect(String(z)).toBe("array([1-2.5j], dtype=complex64)")
  for (const bad of [-2, 0.5, 1000, "3"])
    expect(() => mx.setPrintoptions(bad as number)).toThrow(mx.ArgumentError)
})
