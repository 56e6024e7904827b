import { describe, expect, it } from "vitest"
import * as mx from "../index"

describe("addmm", () => {
  const a = mx.array([
    [1, 2, 3],
    [4, 5, 6],
  ])
  const v = mx.array([1, 0, -1])
  it("takes a vector on either side, with c broadcast to the product", () => {
    expect(mx.addmm(mx.array([10, 20]), a, v).tolist()).toEqual([8, 18])
    expect(mx.addmm(mx.array(1), a, v, 2, 3).tolist()).toEqual([-1, -1])
    expect(mx.addmm(mx.array([5]), a, v).tolist()).toEqual([3, 3])
    expect(mx.addmm(mx.array([10, 20]), v, a.T).tolist()).toEqual([8, 18])
    expect(mx.addmm(mx.array(1), v, v).tolist()).toBe(3)
    const batched = mx.stack([a, a.multiply(2)])
    expect(mx.addmm(mx.array([10, 20]), batched, v).tolist()).toEqual([
      [8, 18],
      [6, 16],
    ])
    expect(mx.addmm(mx.array([[10], [20]]), batched, v).tolist()).toEqual([
      [8, 8],
      [16, 16],
    ])
  })
  it("promotes c with a and b, as MLX does", () => {
    const of = (dtype: mx.Dtype) => mx.array([1, 2, 3, 4], dtype).reshape([2, 2])
    for (const [c, product, result] of [
      [mx.float16, mx.int32, mx.float16],
      [mx.bfloat16, mx.int32, mx.bfloat16],
      [mx.int32, mx.float16, mx.float16],
      [mx.float32, mx.float16, mx.float32],
      [mx.int32, mx.int32, mx.float32],
    ]) {
      const y = mx.addmm(of(c), of(product), of(product), 0.5, 2)
      expect([y.dtype, y.flatten().tolist()]).toEqual([result, [5.5, 9, 13.5, 19]])
      const row = mx.addmm(mx.array([1, 2], c), of(product), of(product))
      expect([row.dtype, row.flatten().tolist()]).toEqual([result, [8, 12, 16, 24]])
    }
  })
  it("never broadcasts the product to c", () => {
    expect(() => mx.addmm(mx.zeros([4, 2, 2]), a, a.T)).toThrowErrorMatchingInlineSnapshot(
      `[ShapeError: [addmm] c of shape (4, 2, 2) does not broadcast to the product's shape (2, 2)]`,
    )
    expect(() => mx.addmm(mx.zeros([1, 2, 2]), a, a.T)).toThrow(mx.ShapeError)
    expect(() => mx.addmm(mx.zeros([3]), mx.ones([2, 1]), mx.ones([1, 1]))).toThrow(mx.ShapeError)
    expect(() => mx.addmm(mx.zeros([1]), v, v)).toThrow(mx.ShapeError)
    expect(() => mx.addmm(mx.zeros([2, 2]), a, v)).toThrow(mx.ShapeError)
    expect(() => mx.addmm(mx.zeros([2, 2], mx.int32), a, v)).toThrow(mx.ShapeError)
  })
})
