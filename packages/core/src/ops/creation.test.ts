import { expect, test } from "vitest"
import { building, type Node } from "../graph/graph"
import * as mx from "../index"

test("what is no data says what would be", () => {
  const made = (data: unknown) => () => mx.array(data as number)
  expect(made(Promise.resolve([1]))).toThrow("[array] cannot create an array from a promise. Await it first")
  expect(made([1].values())).toThrow(
    /cannot create an array from .*iterator.*\. \[\.\.\.data\] makes a list/i,
  )
  expect(made(new Set([1]))).toThrow("a value of type Set. [...data] makes a list")
  expect(() => mx.array([300], mx.uint8)).toThrow(
    "[array] the value 300 does not fit uint8 (0 to 255). Name a dtype that holds it",
  )
  expect(() => mx.full([2], 2n ** 63n)).toThrow("Name a dtype that holds it")
})

test("an array of integers adds nothing to the graph, and each is in range", () => {
  const made: Node[] = []
  building.note = (node) => void made.push(node)
  try {
    expect(mx.array([1, 2, 4n], mx.int32).tolist()).toEqual([1, 2, 4])
  } finally {
    building.note = null
  }
  expect(made).toEqual([])
  const array =
    (values: (number | bigint)[], dtype: mx.Dtype): (() => unknown) =>
    () =>
      mx.array(values, dtype)
  expect(array([1, 256], mx.uint8)).toThrow("[array] the value 256 does not fit uint8 (0 to 255)")
  expect(array([1, -(2n ** 31n) - 1n], mx.int32)).toThrow("[array] the value -2147483649 does not fit int32")
  expect(array([2 ** 63], mx.int64)).toThrow("[array] the value 9223372036854776000 does not fit int64")
})
