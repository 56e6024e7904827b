/** The graph through public entries: what applying a primitive promises and refuses before anything runs. */
import { describe, expect, test } from "vitest"
import * as mx from "../index"

const halves = mx.definePrimitive({
  name: "@lazuli/test/halves",
  params: { at: "i64" },
  infer([x], { at }) {
    if (x.shape[0] < at) throw new mx.ShapeError("halves", `cannot cut ${x.shape[0]} elements at ${at}`)
    return [
      { shape: [at], dtype: x.dtype },
      { shape: [x.shape[0] - at], dtype: x.dtype },
    ]
  },
  decompose: ([x], { at }) => [x.index(mx.s(0, at)), x.index(mx.s(at))],
})

test("sizes that an array tells are the caller's to change", () => {
  const x = mx.ones([2, 3])
  const sizes = x.shape
  sizes[1] = 1
  sizes.pop()
  expect([x.shape, x.size, x.tolist()]).toEqual([[2, 3], 6, mx.ones([2, 3]).tolist()])
})

describe("an application", () => {
  test("knows shape and dtype of each output, and has as many handles", () => {
    const [a, b] = halves.all([mx.arange(5)], { at: 2 })
    expect([a.shape, b.shape, a.dtype]).toEqual([[2], [3], mx.int32])
    expect([a.tolist(), b.tolist()]).toEqual([
      [0, 1],
      [2, 3, 4],
    ])
  })

  test("is refused where it is made, by infer", () => {
    expect(() => halves.all([mx.arange(5)], { at: 6 })).toThrow("[halves] cannot cut 5 elements at 6")
  })

  test("of one output can be read when the other's handle is gone", () => {
    const second = (() => halves.all([mx.arange(4)], { at: 1 })[1])()
    expect(second.tolist()).toEqual([1, 2, 3])
  })
})

describe("a handle", () => {
  test("is an array's own: setting one does not change another on the same value", () => {
    const x = mx.array([1, 2])
    const same = x.astype(x.dtype)
    x.set([0], 9)
    expect([x.tolist(), same.tolist()]).toEqual([
      [9, 2],
      [1, 2],
    ])
  })

  test("throws once it is disposed, and others on the value do not", () => {
    const x = mx.array([1, 2])
    const y = x.add(1)
    mx.eval(y)
    x.dispose()
    expect(() => x.tolist()).toThrow(/disposed/)
    expect(y.tolist()).toEqual([2, 3])
  })

  test("has sizes without being evaluated", () => {
    const x = mx.ones([2, 3], mx.float16).T
    expect([x.shape, x.ndim, x.size, x.nbytes, x.itemsize]).toEqual([[3, 2], 2, 6, 12, 2])
  })
})
