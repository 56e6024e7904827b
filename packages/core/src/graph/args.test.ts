/** Arguments: positional, by name, and the errors for what is neither. */
import { expect, test } from "vitest"
import * as mx from "../index"

const x = mx.array([
  [1, 2],
  [3, 4],
])

test("positional and named arguments mean the same", () => {
  const expected = [[3], [7]]
  expect(mx.sum(x, 1, true).tolist()).toEqual(expected)
  expect(mx.sum(x, { axis: 1, keepdims: true }).tolist()).toEqual(expected)
  expect(x.sum({ axis: 1, keepdims: true }).tolist()).toEqual(expected)
  expect(mx.sum(x, { axis: null }).item()).toBe(10)
  expect(mx.add(x, 1, { stream: mx.cpu }).tolist()).toEqual([
    [2, 3],
    [4, 5],
  ])
})

test("unknown names point to the nearest known one", () => {
  expect(() => mx.sum(x, { axes: 1 } as never)).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [sum] has no parameter "axes"; it takes a, axis, keepdims, stream. Did you mean "axis"?]`,
  )
  expect(() => mx.sum(x, { keepDims: true } as never)).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [sum] has no parameter "keepDims"; it takes a, axis, keepdims, stream. Did you mean "keepdims"?]`,
  )
})

test("a promise is to be awaited, and a bigint may be made a number", async () => {
  const later = Promise.resolve(x)
  expect(() => mx.add(x, later as never)).toThrow(
    "[add] b must be an array or a scalar, received a promise. Await it first",
  )
  expect(() => mx.eval({ a: [later] })).toThrow("[eval] a leaf is a promise. Await it first")
  await expect(mx.asyncEval(later)).rejects.toThrow("[asyncEval] a leaf is a promise. Await it first")
  expect(() => mx.sum(x, 0n as never)).toThrow("received the bigint 0n. Number(0n) makes a number")
  expect(() => mx.zeros([2n] as never)).toThrow("element 0 is the bigint 2n. Number(2n) makes a number")
  expect(() => mx.zeros([2], 1n as never)).not.toThrow("makes a number")
})

test("wrong values say what was expected and received", () => {
  expect(() => mx.sum(x, 2)).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [sum] axis 2 is out of bounds for an array of 2 dimensions]`,
  )
  expect(() => mx.add(x, "one" as never)).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [add] b must be an array or a scalar, received the string "one". mx.array(data) makes an array]`,
  )
  expect(() => mx.add(x, mx.zeros([3]))).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [add] shapes (2, 2) and (3,) cannot be broadcast: 2 and 3 differ and neither is 1]`,
  )
  expect(() => mx.matmul(x, mx.zeros([3, 2]))).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [matmul] the last axis of a has size 2 and the matching axis of b has size 3: shapes (2, 2) and (3, 2)]`,
  )
  expect(() => mx.reshape(x, [3, -1])).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [reshape] cannot infer the size -1 in (3, -1): 4 elements are not a multiple of 3]`,
  )
  expect(() => mx.array([[1], [1, 2]])).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [array] the lists are ragged: element 0 has shape (1,) and element 1 has shape (2,)]`,
  )
  expect(() => mx.array([1, 2, 3, 4], [2, 2] as never)).toThrowErrorMatchingInlineSnapshot(
    `[DTypeError: [array] expected a dtype such as mx.float32, received a list of length 2. The shape is that of the data; use mx.array(data).reshape(shape) for another]`,
  )
  expect(() => mx.array([1], "float32" as never)).toThrowErrorMatchingInlineSnapshot(
    `[DTypeError: [array] expected a dtype such as mx.float32, received the string "float32"]`,
  )
  expect(() => mx.array([1], { dtype: "int32" as never })).toThrowErrorMatchingInlineSnapshot(
    `[DTypeError: [array] expected a dtype such as mx.float32, received the string "int32"]`,
  )
  expect(() => mx.array([1], { type: mx.int32 } as never)).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [array] has no option "type"; it takes dtype. Did you mean "dtype"?]`,
  )
  expect(mx.array([1], { dtype: null }).dtype).toBe(mx.float32)
  expect(() => mx.zeros([-1])).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [zeros] a shape must consist of non-negative integers, received the number -1]`,
  )
  expect(() => x.item()).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [item] needs an array of one element, received shape (2, 2). tolist() gives all elements]`,
  )
})

test("errors have stable codes", () => {
  const code = (body: () => unknown): string => {
    try {
      body()
    } catch (error) {
      return (error as mx.LazuliError).code
    }
    return "none"
  }
  expect([
    code(() => mx.sum(x, 9)),
    code(() => mx.add(x, "a" as never)),
    code(() => mx.array([1], mx.uint8).add(-1)),
  ]).toEqual(["SHAPE", "ARGUMENT", "DTYPE"])
})
