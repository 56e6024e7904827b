/** Arrays where JavaScript wants numbers, text or JSON. */
import { expect, test } from "vitest"
import * as mx from "../index"

test("one element is a number to JavaScript's own operators", () => {
  const loss = mx.array([0.25, 0.5]).sum()
  expect([+loss, Number(loss), Math.max(loss as never, 0.5)]).toEqual([0.75, 0.75, 0.75])
  expect((loss as unknown as number) < 1 && (loss as unknown as number) > 0.5).toBe(true)
  expect(Number(mx.array([[true]]))).toBe(1)
  expect(Number(mx.array(2n ** 53n))).toBe(2 ** 53)
  expect((mx.array(3n) as unknown as bigint) > 2n).toBe(true)
})

test("other arrays are none, and say what to write instead", () => {
  expect(() => Number(mx.ones([2]))).toThrow(
    /\[number\] needs an array of one element, received shape \(2,\).*x\.greater/s,
  )
  expect(() => (mx.ones([0]) as unknown as number) > 0).toThrow(mx.ShapeError)
  expect(() => +mx.array([mx.complex(1, 2)])).toThrow(mx.DTypeError)
})

test("text stays text", () => {
  const x = mx.array([1, 2])
  expect([`${x}`, `x: ${x}`, String(x)]).toEqual([x.toString(), `x: ${x.toString()}`, x.toString()])
})

test("JSON has the values", () => {
  expect(JSON.stringify({ a: mx.array([[1, 2.5]]), b: mx.array(true), c: mx.zeros([0, 2]) })).toBe(
    '{"a":[[1,2.5]],"b":true,"c":[]}',
  )
  expect(JSON.stringify(mx.array([Number.NaN]))).toBe("[null]")
  expect(() => JSON.stringify(mx.array([1n]))).toThrow(TypeError)
})
