import * as mx from "@lazuli/core"
import { describe, expect, it } from "vitest"
import { hessian, jacfwd, jacrev, vmap } from "./index"

describe("Jacobians", () => {
  const f = (x: mx.Array) => mx.stack([x.square().sum(), x.prod()])
  const x = mx.array([1, 2, 3])

  it("agree in both directions", () => {
    const want = [
      [2, 4, 6],
      [6, 3, 2],
    ]
    expect(jacrev(f)(x).tolist()).toEqual(want)
    expect(jacfwd(f)(x).tolist()).toEqual(want)
  })
  it("have the shape of the output, then of the argument", () => {
    const g = (_k: number, v: mx.Array) => v.matmul(mx.ones([3, 4]))
    expect(jacrev(g, 1)(1, mx.zeros([2, 3])).shape).toEqual([2, 4, 2, 3])
    expect(jacfwd(g, 1)(1, mx.zeros([2, 3])).shape).toEqual([2, 4, 2, 3])
  })
  it("are trees for trees", () => {
    const g = (p: { a: mx.Array; b: mx.Array }) => ({ s: p.a.multiply(p.b), t: [p.a.sum()] as [mx.Array] })
    const p = { a: mx.array([1, 2]), b: mx.array(3) }
    for (const jac of [jacrev, jacfwd]) {
      const j = jac(g)(p)
      expect(j.s.a.tolist()).toEqual([
        [3, 0],
        [0, 3],
      ])
      expect(j.s.b.tolist()).toEqual([1, 2])
      expect(j.t[0].a.tolist()).toEqual([1, 1])
      expect(j.t[0].b.tolist()).toBe(0)
    }
  })
  it("give Hessians, also of a batch", () => {
    const cubes = (v: mx.Array) => v.power(3).sum()
    expect(hessian(cubes)(mx.array([1, 2])).tolist()).toEqual([
      [6, 0],
      [0, 12],
    ])
    expect(vmap(hessian(cubes))(mx.array([[1, 2]])).tolist()).toEqual([
      [
        [6, 0],
        [0, 12],
      ],
    ])
    expect(hessian((v: mx.Array) => v.prod())(x).tolist()).toEqual([
      [0, 3, 2],
      [3, 0, 1],
      [2, 1, 0],
    ])
  })
  it("refuse arguments that are not there", () => {
    expect(() => jacrev(f, 1 as never)(x)).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [jacrev] argnum 1 is out of range: the function was called with 1 arguments]`,
    )
    expect(() => hessian(f, 1 as never)(x)).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [hessian] argnum 1 is out of range: the function was called with 1 arguments]`,
    )
    expect(() => jacfwd(f)(mx.array([1], mx.int32))).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [jacfwd] argument 0 is int32, which has no gradient. Convert it to a floating dtype with astype, or leave it out of argnums]`,
    )
  })
})
