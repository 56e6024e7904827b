import * as mx from "@lazuli/core"
import { describe, expect, it } from "vitest"
import { customFunction, grad, jvp, vjp, vmap } from "./index"

describe("customFunction", () => {
  it("is the function itself where no transform looks", () => {
    const f = customFunction((x: mx.Array) => x.exp()).vjp((x, g) => g.multiply(x))
    expect(f(mx.array(0)).item()).toBe(1)
  })
  it("uses its vjp, and hands it what it needs", () => {
    const f = customFunction((x: mx.Array, y: mx.Array) => x.multiply(y)).vjp(([x, y], g, out) => [
      g.multiply(100),
      g.multiply(x).add(y).add(out),
    ])
    const [gx, gy] = grad(f, [0, 1])(mx.array(2), mx.array(3))
    expect([gx.item(), gy.item()]).toEqual([100, 2 + 3 + 6])
  })
  it("lets a vjp evaluate what it is given", () => {
    const f = customFunction((x: mx.Array) => x.square()).vjp((x, g) => {
      const scale = (g.item() as number) > 0 ? 1 : -1
      return x.multiply(2 * scale)
    })
    const h = (x: mx.Array) => f(x.multiply(3)).add(x).multiply(-1)
    expect(grad(h)(mx.array(2)).item()).toBe(12 * -1 * 3 - 1 + 2 * 12 * 3 - 12 * 3 * 2)
  })
  it("uses its jvp", () => {
    const f = customFunction((x: mx.Array) => x.sin()).jvp((_x, t) => t.multiply(7))
    expect(jvp(f, [mx.array(1)], [mx.array(2)])[1][0].item()).toBe(14)
    // Without a vjp rule the derivative is the function's own.
    expect(grad(f)(mx.array(0)).item()).toBe(1)
  })
  it("uses its vmap", () => {
    const f = customFunction((x: mx.Array) => x.sin()).vmap((x, axis) => [x.multiply(5), axis])
    expect(vmap(f)(mx.array([1, 2])).tolist()).toEqual([5, 10])
  })
  it("keeps a custom vjp under vmap, also with arguments that are not batched", () => {
    const f = customFunction((x: mx.Array, w: mx.Array) => x.multiply(w)).vjp(([x], g) => [
      g.multiply(1000),
      g.multiply(x),
    ])
    const loss = (x: mx.Array, w: mx.Array) => vmap(f, { inAxes: [0, null] })(x, w).sum()
    const [gx, gw] = grad(loss, [0, 1])(mx.array([1, 2, 3]), mx.array(10))
    expect(gx.tolist()).toEqual([1000, 1000, 1000])
    expect(gw.item()).toBe(6)
    expect(vmap(grad(f), { inAxes: [0, null] })(mx.array([1, 2]), mx.array(10)).tolist()).toEqual([
      1000, 1000,
    ])
  })
  it("differentiates its own vjp for second derivatives", () => {
    const f = customFunction((x: mx.Array) => x.exp()).vjp((x, g) => g.multiply(x.power(3)))
    expect(grad(grad(f))(mx.array(2)).item()).toBe(12)
  })
  it("takes and returns trees", () => {
    const f = customFunction((p: { a: mx.Array; k: number }) => ({ y: p.a.multiply(p.k) })).vjp((p, g) => ({
      a: g.y.multiply(p.k + 1),
      k: 0,
    }))
    const [out, grads] = vjp(f, [{ a: mx.array([1, 2]), k: 3 }], { y: mx.array([1, 1]) })
    expect(out.y.tolist()).toEqual([3, 6])
    expect(grads[0].a.tolist()).toEqual([4, 4])
  })
  it("says what a rule returned wrong", () => {
    const wrong = customFunction(function scale(x: mx.Array) {
      return x.multiply(2)
    }).vjp(() => mx.zeros([3]))
    expect(() => grad(wrong)(mx.array(1))).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [scale.vjp] must return shape [] for this array, it returned [3]]`,
    )
    const small = customFunction((x: mx.Array) => x.square()).vmap((x) => [x.sum(), 0])
    expect(() => vmap(small)(mx.zeros([3]))).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [customFunction.vmap] must return shape (3,) for a batch with axis 0, it returned ()]`,
    )
    const far = customFunction((x: mx.Array) => x.square()).vmap((x) => [x, 5])
    expect(() => vmap(far)(mx.zeros([3]))).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [customFunction.vmap] returned the axis 5 for a batch of shape (3,)]`,
    )
    const few = customFunction((x: mx.Array, y: mx.Array) => x.multiply(y)).vjp((() => [null]) as never)
    expect(() => grad(few)(mx.array(1), mx.array(1))).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [customFunction.vjp] must return a list of length 2, it returned a list of length 1]`,
    )
  })
})

describe("a vjp with residuals", () => {
  const calls: string[] = []
  const forward = (x: mx.Array, o: { w: mx.Array }) => {
    calls.push("forward")
    const e = x.multiply(o.w).exp()
    return [e.log1p(), { e, x, w: o.w }] as const
  }
  const make = () =>
    customFunction((x: mx.Array, o: { w: mx.Array }) => x.multiply(o.w).exp().log1p()).vjp({
      forward,
      backward: ({ e, x, w }, g) => {
        calls.push("backward")
        const slope = g.multiply(e).divide(e.add(1))
        return [slope.multiply(w), { w: slope.multiply(x) }]
      },
    })
  const plain = (x: mx.Array, o: { w: mx.Array }): mx.Array => x.multiply(o.w).exp().log1p()
  const x = mx.array([0.5, -1, 2])
  const o = { w: mx.array([1, 2, -1]) }
  const near = (a: mx.Array, b: mx.Array): void => expect(mx.allclose(a, b, 1e-5, 1e-6).item()).toBe(true)

  it("computes them once, with the outputs", () => {
    calls.length = 0
    const f = make()
    const [gx, go] = grad((a: mx.Array, b: typeof o) => f(a, b).sum(), [0, 1])(x, o)
    const [hx, ho] = grad((a: mx.Array, b: typeof o) => plain(a, b).sum(), [0, 1])(x, o)
    near(gx, hx)
    near(go.w, ho.w)
    expect(calls).toEqual(["forward", "backward"])
    near(f(x, o), plain(x, o))
  })
  it("has derivatives of its own, batches, and the function's jvp", () => {
    const f = make()
    const slope = (h: typeof plain) => grad((a: mx.Array) => h(a, { w: a.multiply(2) }).sum())
    near(slope(f)(x), slope(plain)(x))
    const second = (h: typeof plain) => grad((a: mx.Array) => slope(h)(a).square().sum())
    near(second(f)(x), second(plain)(x))
    near(jvp((a: mx.Array) => f(a, o), [x], [x])[1][0], jvp((a: mx.Array) => plain(a, o), [x], [x])[1][0])
    const rows = mx.stack([x, x.add(1)])
    near(vmap(slope(f))(rows), vmap(slope(plain))(rows))
    const whole = (h: typeof plain) => grad((r: mx.Array) => vmap((a: mx.Array) => h(a, o))(r).sum())
    near(whole(f)(rows), whole(plain)(rows))
  })
  it("says what is wrong", () => {
    const f = customFunction((a: mx.Array) => a.exp())
    expect(() => f.vjp({ forward: (a: mx.Array) => [a, a] } as never)).toThrow(
      "[customFunction.vjp: backward] expected a function, received nothing",
    )
    expect(() =>
      f.vjp({ forward: (a: mx.Array) => [a, a], backward: (a: mx.Array) => a, both: 1 } as never),
    ).toThrow('has no option "both"')
    expect(() => f.vjp({} as never)).toThrow("expected a function, received a plain object")
    const bad = f.vjp({ forward: ((a: mx.Array) => a) as never, backward: (a: mx.Array) => a })
    expect(() => bad(x)).toThrow(
      "[customFunction] forward must return [outputs, residuals], it returned an mx.Array",
    )
  })
})
