/** Arrays print as MLX's do. */
import { inspect } from "node:util"
import { expect, test } from "vitest"
import * as mx from "./index"

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
