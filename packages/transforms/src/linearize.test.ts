import * as mx from "@lazuli/core"
import { describe, expect, it } from "vitest"
import { grad, jvp, linearize, vmap } from "./index"

describe("linearize", () => {
  const f = (x: mx.Array, y: mx.Array) =>
    x
      .sin()
      .multiply(y)
      .add(mx.fast.rmsNorm(x, y, 1e-5))
  const [x, y] = [mx.array([0.3, -1.2, 2]), mx.array([1, 2, 3])]

  it("gives the outputs, and jvp's tangents for any tangents", () => {
    const [outputs, linear] = linearize(f, [x, y])
    expect(outputs[0].tolist()).toEqual(f(x, y).tolist())
    for (const [tx, ty] of [
      [y, x],
      [x, mx.zeros([3])],
      [x.multiply(-3), y],
    ]) {
      const [t] = linear(tx, ty)
      expect(t.tolist()).toEqual(jvp(f, [x, y], [tx, ty])[1][0].tolist())
    }
    const [a, b] = [linear(x, y)[0], linear(y, x)[0]]
    const both = linear(x.add(y.multiply(2)), y.add(x.multiply(2)))[0]
    expect(mx.allclose(both, a.add(b.multiply(2)), 1e-5, 1e-5).item()).toBe(true)
  })
  it("runs the function once and computes its outputs once", () => {
    let [runs, computed] = [0, 0]
    const counted = mx.definePrimitive({
      name: "@lazuli/transforms-test/linearizedExp",
      infer: ([v]) => v,
      reference: ([v], [out]) => {
        computed++
        for (let i = 0; i < v.data.length; i++) out.data[i] = Math.exp(v.data[i])
      },
      vjp: ({ outputs: [o], cotangents: [g] }) => [g.multiply(o)],
    })
    const [[value], linear] = linearize(
      (v: mx.Array) => {
        runs++
        return counted([v.multiply(2)]).square()
      },
      [mx.array(0)],
    )
    const slopes = [1, 2, 3].map((t) => linear(mx.array(t))[0].item())
    expect([slopes, value.item()]).toEqual([[4, 8, 12], 1])
    expect([runs, computed]).toEqual([1, 1])
  })
  it("takes and returns trees, and zeros where nothing varies", () => {
    const p = { w: mx.array([1, 2]), k: 3, n: mx.array([1], mx.int32) }
    const [out, linear] = linearize(
      (q: typeof p) => ({ y: q.w.multiply(q.k), same: mx.array([1, 1]), n: q.n.add(1) }),
      [p],
    )
    expect(out.y.tolist()).toEqual([3, 6])
    const moved = linear({ ...p, w: mx.array([10, 20]) })
    expect(moved.y.tolist()).toEqual([30, 60])
    expect(moved.same.tolist()).toEqual([0, 0])
    expect([moved.n.tolist(), moved.n.dtype]).toEqual([[0], mx.int32])
    expect(linearize((v: mx.Array) => v, [x])[1](y)[0].tolist()).toEqual([1, 2, 3])
  })
  it("is a function like any other: it can be mapped, differentiated and linearized", () => {
    const cube = (v: mx.Array) => v.power(3)
    const [, linear] = linearize(cube, [x])
    const columns = vmap((t: mx.Array) => linear(t)[0])(mx.eye(3))
    expect(mx.allclose(columns, mx.diag(x.square().multiply(3))).item()).toBe(true)
    expect(grad((t: mx.Array) => linear(t)[0].sum())(y).tolist()).toEqual(x.square().multiply(3).tolist())
    const [, again] = linearize(linear, [y])
    expect(again(y)[0].tolist()).toEqual(linear(y)[0].tolist())
    // At the point where it was taken: d/dx 3x²·t.
    const along = (v: mx.Array) => linearize(cube, [v])[1](y)[0].sum()
    expect(mx.allclose(grad(along)(x), x.multiply(y).multiply(6)).item()).toBe(true)
    expect(
      mx
        .allclose(vmap((v: mx.Array) => linearize(cube, [v])[1](mx.array(1))[0])(x), x.square().multiply(3))
        .item(),
    ).toBe(true)
  })
  it("differentiates a function that sets parts of its argument", () => {
    const [[value], linear] = linearize(
      (v: mx.Array) => {
        v.set([0], 5)
        return v.multiply(v).sum()
      },
      [mx.array([1, 2, 3])],
    )
    expect([value.item(), linear(mx.array([10, 1, 1]))[0].item()]).toEqual([38, 10])
  })
  it("says what does not fit", () => {
    const [, linear] = linearize(f, [x, y])
    expect(() => linear(mx.zeros([2]), y)).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [linearize] tangent 0 has shape (2,), but primal 0 has shape (3,)]`,
    )
    expect(() => (linear as (...ts: unknown[]) => unknown)(x)).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [linearize] expected one array as the tangent of each primal: 2, received 1]`,
    )
    expect(() => linearize(3 as never, [x])).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [linearize] expected a function, received the number 3]`,
    )
    expect(() => linearize(f, x as never)).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [linearize] primals must be a list with one entry for each argument of the function, received an mx.Array]`,
    )
  })
})
