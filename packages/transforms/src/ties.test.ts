/**
 * Where several elements are the extreme, MLX says who has the derivative: of two arguments the second, of a reduction's elements each an
 * equal share. Updates at an index follow the two arguments.
 */
import * as mx from "@lazuli/core"
import { expect, test } from "vitest"
import { grad } from "./grad"
import { jvp } from "./jvp"
import { vjp } from "./vjp"

const x = mx.array([1, 2, 3, Number.NaN])
const v = mx.array([1, 5, 0, 1])
const seed = mx.ones([4])
const slopes = (f: (x: mx.Array, v: mx.Array) => mx.Array): unknown => {
  const both = vjp(f, [x, v], [seed])[1].map((g) => g.tolist())
  const alone = [jvp(f, [x, v], [seed, mx.zeros([4])]), jvp(f, [x, v], [mx.zeros([4]), seed])].map(
    ([, [t]]) => t.tolist(),
  )
  expect(alone).toEqual(both)
  return both
}

test("extremes with an update go to the update at ties, by index and by slice", () => {
  const positions = mx.arange(4)
  for (const name of ["maximum", "minimum"] as const) {
    const want =
      name === "maximum"
        ? [
            [0, 0, 1, 0],
            [1, 1, 0, 0],
          ]
        : [
            [0, 1, 0, 0],
            [1, 0, 1, 0],
          ]
    expect(slopes((a, b) => a[name](b))).toEqual(want)
    expect(slopes((a, b) => a.at(":")[name](b))).toEqual(want)
    expect(slopes((a, b) => a.at(positions)[name](b))).toEqual(want)
  }
})

test("extremes of a reduction share", () => {
  const [, [g]] = vjp((a: mx.Array) => a.max(), [mx.array([2, 5, 5])], [mx.array(1)])
  expect(g.tolist()).toEqual([0, 0.5, 0.5])
})

test.each([
  ["arctanh", mx.arctanh, Infinity],
  ["arcsin", mx.arcsin, Infinity],
  ["arccos", mx.arccos, -Infinity],
] as const)("the slope of %s at the ends of its domain", (_, f, slope) => {
  for (const end of [1, -1]) expect(grad((x: mx.Array) => f(x))(mx.array(end, mx.float32)).item()).toBe(slope)
})
