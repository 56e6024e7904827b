import * as mx from "@lazuli/core"
import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { runs } from "../test/random-programs"
import { grad, jvp, vjp, vmap, vmapLoops } from "./index"

const a = mx.arange(6, { dtype: mx.float32 }).reshape([2, 3])

describe("vmap", () => {
  it("maps over the first axis", () => {
    expect(vmap((x: mx.Array) => x.sum())(a).tolist()).toEqual([3, 12])
  })
  it("takes axes for each argument, null for none", () => {
    const f = (x: mx.Array, y: mx.Array) => x.multiply(y).sum()
    expect(vmap(f, { inAxes: [1, null] })(a, mx.array([1, 10])).tolist()).toEqual([30, 41, 52])
    expect(vmap(f, [0, null])(a, mx.array([1, 10, 100])).tolist()).toEqual([210, 543])
    expect(vmap((x: mx.Array) => x.exp(), { inAxes: -1, outAxes: 1 })(a).tolist()).toEqual(a.exp().tolist())
  })
  it("takes trees, and axes for parts of them", () => {
    const f = (p: { w: mx.Array; b: mx.Array }, xs: [mx.Array, number]) => ({
      y: p.w.multiply(xs[0]).add(p.b).multiply(xs[1]),
      b: p.b,
    })
    const p = { w: mx.array([1, 2]), b: mx.array(10) }
    const out = vmap(f, { inAxes: [{ w: 0, b: null }, 0], outAxes: { y: 0, b: null } })(p, [
      mx.array([3, 4]),
      2,
    ])
    expect(out.y.tolist()).toEqual([26, 36])
    expect(out.b.tolist()).toBe(10)
  })
  it("repeats results that do not depend on the batch", () => {
    expect(vmap((_x: mx.Array) => mx.array([1, 2]), { outAxes: 1 })(a).tolist()).toEqual([
      [1, 1],
      [2, 2],
    ])
  })
  it("keeps what is not batched unbatched, and lines up examples of different ranks", () => {
    const f = (x: mx.Array, y: mx.Array) => x.add(y)
    const x = mx.arange(2, { dtype: mx.float32 })
    const y = mx.arange(6, { dtype: mx.float32 }).reshape([3, 2])
    expect(vmap(f, { inAxes: [0, 1] })(x, y).tolist()).toEqual([
      [0, 2, 4],
      [2, 4, 6],
    ])
    expect(vmap(f, { inAxes: [0, null] })(x, y).shape).toEqual([2, 3, 2])
  })
  it("composes with itself and with derivatives", () => {
    const outer = vmap((x: mx.Array) => vmap((y: mx.Array) => x.multiply(y))(mx.array([1, 2, 3])))
    expect(outer(mx.array([1, 10])).tolist()).toEqual([
      [1, 2, 3],
      [10, 20, 30],
    ])
    const f = (x: mx.Array) => x.power(3).sum()
    expect(vmap(grad(f))(a).tolist()).toEqual(a.square().multiply(3).tolist())
    expect(grad((x: mx.Array) => vmap(f)(x).sum())(a).tolist()).toEqual(a.square().multiply(3).tolist())
    expect(
      vmap(grad((x: mx.Array) => grad((y: mx.Array) => y.power(3))(x)))(mx.array([1, 2])).tolist(),
    ).toEqual([6, 12])
    const [, t] = jvp(
      (x: mx.Array) => vjp((y: mx.Array) => y.power(3), [x], [mx.array(1)])[1][0],
      [mx.array(2)],
      [mx.array(1)],
    )
    expect(t[0].item()).toBe(12)
  })
  it("takes batches without examples", () => {
    const attend = (x: mx.Array) => mx.fast.scaledDotProductAttention(x, x, x, { scale: 1 })
    expect(vmap(attend)(mx.zeros([0, 1, 1, 2, 4])).shape).toEqual([0, 1, 1, 2, 4])
    expect(vmap((x: mx.Array) => mx.sort(x.matmul(x.T)))(mx.zeros([0, 3, 2])).shape).toEqual([0, 3, 3])
    expect(
      vmap(grad((x: mx.Array) => mx.fast.layerNorm(x, x, x, 1e-5).sum()))(mx.zeros([0, 4])).shape,
    ).toEqual([0, 4])
  })
  it("runs the function once, whatever the size of the batch", () => {
    let runs = 0
    vmap((x: mx.Array) => {
      runs++
      return x.add(1)
    })(mx.zeros([1000]))
    expect(runs).toBe(1)
  })
  it("runs what has no rule example by example, and counts it", () => {
    const noRule = mx.definePrimitive({
      name: "@lazuli/transforms-test/reverse",
      infer: ([x]) => x,
      reference: ([x], [out]) => {
        for (let i = 0; i < x.data.length; i++) out.data[i] = x.data[x.data.length - 1 - i]
      },
    })
    const before = vmapLoops()["@lazuli/transforms-test/reverse"] ?? 0
    expect(vmap((x: mx.Array) => noRule([x]))(a).tolist()).toEqual([
      [2, 1, 0],
      [5, 4, 3],
    ])
    expect(vmapLoops()["@lazuli/transforms-test/reverse"]).toBe(before + 1)
  })
  it("agrees with a loop for any axes", () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 1, max: 3 }), { minLength: 1, maxLength: 3 }),
        fc.nat(2),
        fc.nat(2),
        fc.boolean(),
        (shape, i, o, batchSecond) => {
          const size = 2
          const inAxis = i % (shape.length + 1)
          const outAxis = o % (shape.length + 1)
          const full = shape.slice()
          full.splice(inAxis, 0, size)
          const count = full.reduce((p, q) => p * q, 1)
          const x = mx.arange(count, { dtype: mx.float32 }).reshape(full)
          const y = mx.arange(shape.length > 0 ? shape[shape.length - 1] : 1, { dtype: mx.float32 }).add(1)
          const ys = mx.stack([y, y.multiply(2)])
          const f = (u: mx.Array, v: mx.Array) => u.multiply(v).add(u.sum()).divide(v.max())
          const got = vmap(f, { inAxes: [inAxis, batchSecond ? 0 : null], outAxes: outAxis })(
            x,
            batchSecond ? ys : y,
          )
          const front = x.moveaxis(inAxis, 0)
          const want = mx.stack(
            [...front].map((example, k) => f(example, batchSecond && k === 1 ? y.multiply(2) : y)),
            outAxis,
          )
          expect(got.shape).toEqual(want.shape)
          expect(got.tolist()).toEqual(want.tolist())
        },
      ),
      runs(60),
    )
  })
})

describe("errors of vmap", () => {
  const f = (x: mx.Array, y: mx.Array) => x.add(y)
  it("says what does not fit", () => {
    expect(() => vmap(f)(mx.zeros([2]), mx.zeros([3]))).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [vmap] the batched axes differ in size: 2 in array 0 of the arguments and 3 in array 1]`,
    )
    expect(() => vmap(f, { inAxes: 1 })(mx.zeros([2]), mx.zeros([2]))).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [vmap] array 0 of the arguments, of shape (2,), has no axis 1]`,
    )
    expect(() => vmap(f, { inAxes: null })(mx.zeros([2]), mx.zeros([2]))).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [vmap] nothing is batched: inAxes is null for every array. Call the function itself, or pass an axis]`,
    )
    expect(() => vmap(f, { inAxis: 1 } as never)).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [vmap] has no option "inAxis"; it takes inAxes, outAxes. Did you mean "inAxes"?]`,
    )
    expect(() => vmap(f, { outAxes: 3 })(mx.zeros([2]), mx.zeros([2]))).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [vmap] output 0 of 0 dimensions, with the batch, has no axis 3]`,
    )
    expect(() => vmap(f, { outAxes: null })(mx.zeros([2]), mx.zeros([2]))).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [vmap] output 0 depends on the batch, but outAxes is null for it]`,
    )
    expect(() => vmap(f, { inAxes: [0] })(mx.zeros([2]), mx.zeros([2]))).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [vmap] inAxes has 1 entries, but the function was called with 2 arguments]`,
    )
    expect(() =>
      vmap((p: { a: mx.Array }) => p.a, { inAxes: [{ b: 0 }] })({ a: mx.zeros([2]) }),
    ).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [vmap] inAxes names "b", which the tree does not have]`,
    )
    expect(() => vmap((x: mx.Array) => x.item())(mx.zeros([2]))).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [eval] an array that is being traced by vmap or compile has no value yet. Return it from the function, or move what needs its value (item, tolist, printing, if) out of the traced function. One that a compiled function left in a variable never gets a value: name the tree that holds it in \`outputs\`]`,
    )
    expect(() => vmap(async (x: mx.Array) => x)(mx.zeros([2]))).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [vmap] the function is async: it returned a promise. Transforms trace synchronous functions; await its inputs first]`,
    )
  })
  it("shows a stand-in by its name", () => {
    let text = ""
    vmap((x: mx.Array) => {
      text = String(x)
      return x
    })(mx.zeros([2, 3]))
    expect(text).toMatchInlineSnapshot(`"array(<vmap input 0>, shape=[3], dtype=float32)"`)
  })
})
