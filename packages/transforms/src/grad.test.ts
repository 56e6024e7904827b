import * as mx from "@lazuli/core"
import { describe, expect, it } from "vitest"
import { grad, jvp, valueAndGrad, vjp } from "./index"

describe("grad", () => {
  it("differentiates a scalar function", () => {
    expect(grad((x: mx.Array) => x.square())(mx.array(3)).item()).toBe(6)
  })
  it("composes with itself to any depth", () => {
    const cube = (x: mx.Array) => x.multiply(x).multiply(x)
    const first = grad(cube)
    const second = grad(first)
    const third = grad(second)
    const fourth = grad(third)
    const x = mx.array(2)
    expect([first(x).item(), second(x).item(), third(x).item(), fourth(x).item()]).toEqual([12, 12, 6, 0])
  })
  it("gives the value and the gradient", () => {
    const [v, g] = valueAndGrad((w: mx.Array) => w.square().sum())(mx.array([1, 2]))
    expect(v.item()).toBe(5)
    expect(g.tolist()).toEqual([2, 4])
  })
  it("vjp and jvp", () => {
    const [o, g] = vjp((x: mx.Array) => x.square(), [mx.array([2, 3])], [mx.array([1, 10])])
    expect(o[0].tolist()).toEqual([4, 9])
    expect(g[0].tolist()).toEqual([4, 60])
    const [p, t] = jvp((x: mx.Array) => x.square(), [mx.array([2, 3])], [mx.array([1, 10])])
    expect(p[0].tolist()).toEqual([4, 9])
    expect(t[0].tolist()).toEqual([4, 60])
  })
  it("keeps the graph of what is evaluated inside", () => {
    const f = (x: mx.Array) => {
      const y = x.exp()
      y.item()
      const z = y.multiply(x)
      return (z.item() as number) > 0 ? z : z.negative()
    }
    expect(grad(f)(mx.array(1)).item()).toBeCloseTo(2 * Math.E, 5)
    expect(grad(grad(f))(mx.array(1)).item()).toBeCloseTo(3 * Math.E, 5)
  })
})

describe("held intermediates", () => {
  it("keep their values, whatever is evaluated when", () => {
    const held: mx.Array[] = []
    const f = (x: mx.Array) => {
      const y = x.exp()
      held.push(y, y.multiply(2))
      const z = y.multiply(x).sum()
      mx.eval(held[1])
      held.push(z)
      return z
    }
    const [value, g] = valueAndGrad(f)(mx.array([0, 1]))
    mx.eval(g)
    expect(held[0].tolist()).toEqual([1, expect.closeTo(Math.E, 5)])
    expect(held[1].tolist()).toEqual([2, expect.closeTo(2 * Math.E, 5)])
    expect(held[2].item()).toBe(value.item())
    expect(g.tolist()).toEqual([1, expect.closeTo(2 * Math.E, 5)])
  })
  it("do not hold the graph behind them when the trace is over", () => {
    let inside: mx.Array | undefined
    const g = grad((x: mx.Array) => {
      inside = x.exp().multiply(2)
      inside.item()
      return inside.square()
    })(mx.array(0))
    expect((inside as mx.Array).node.primitive).toBe(null)
    expect(g.item()).toBe(8)
    expect(g.node.mark).toBe(0)
  })
  it("may be used by a later trace", () => {
    let y = mx.array(2)
    const w = mx.array(3)
    for (let i = 0; i < 3; i++) y = grad((x: mx.Array) => x.square().multiply(w))(y)
    expect(y.item()).toBe(2 * 6 ** 3)
    const g = grad((x: mx.Array) => x.multiply(y))(w)
    expect(g.item()).toBe(2 * 6 ** 3)
  })
})

describe("trees", () => {
  it("gradients look like the arguments", () => {
    const params = { layers: [{ w: mx.array([1, 2]), b: mx.array(3) }], name: "net" }
    const f = (p: typeof params, x: mx.Array) => p.layers[0].w.multiply(x).sum().add(p.layers[0].b.square())
    const g = grad(f)(params, mx.array([10, 20]))
    expect(g.name).toBe("net")
    expect(g.layers[0].w.tolist()).toEqual([10, 20])
    expect(g.layers[0].b.item()).toBe(6)
    const [gp, gx] = grad(f, [0, 1])(params, mx.array([10, 20]))
    expect(gp.layers[0].b.item()).toBe(6)
    expect(gx.tolist()).toEqual([1, 2])
  })
  it("take classes that are registered", () => {
    class Pair {
      constructor(
        readonly a: mx.Array,
        readonly b: mx.Array,
      ) {}
    }
    mx.registerTreeNode(Pair, {
      flatten: (p) => ({ a: p.a, b: p.b }),
      unflatten: (_p, c) => new Pair(c.a as mx.Array, c.b as mx.Array),
    })
    const g = grad((p: Pair) => p.a.multiply(p.b))(new Pair(mx.array(2), mx.array(3)))
    expect(g).toBeInstanceOf(Pair)
    expect([g.a.item(), g.b.item()]).toEqual([3, 2])
  })
  it("of parts of an array, apart or not, whatever else reads it", () => {
    const x = mx.arange(12).astype(mx.float32).reshape([3, 4])
    const apart = (v: mx.Array): mx.Array => v.index(0).square().sum().add(v.index(2).multiply(5).sum())
    const meeting = (v: mx.Array): mx.Array => v.index(0).sum().add(v.index(0).multiply(3).sum())
    const all = (v: mx.Array): mx.Array =>
      mx.split(v, 4, 1).reduce((sum, part, i) => sum.add(part.sum().multiply(i)), v.sum())
    expect(grad(apart)(x).tolist()).toEqual([
      [0, 2, 4, 6],
      [0, 0, 0, 0],
      [5, 5, 5, 5],
    ])
    expect(grad(meeting)(x).tolist()).toEqual([
      [4, 4, 4, 4],
      [0, 0, 0, 0],
      [0, 0, 0, 0],
    ])
    expect(grad(all)(x).tolist()).toEqual([0, 1, 2].map(() => [1, 2, 3, 4]))
    // No array of the whole size is added to another.
    const { node } = grad(apart)(x)
    expect([node, node.inputs[0]].map(({ primitive }) => primitive?.name)).toEqual([
      "sliceUpdate",
      "sliceUpdate",
    ])
  })
  it("by position, by name, with the value and with more than the loss", () => {
    const f = (x: mx.Array, options: { y: mx.Array; k?: number }) => x.multiply(options.y)
    const [x, y] = [mx.array(2), mx.array(5)]
    const [none, byName] = grad(f, { argnames: "y" })(x, { y })
    expect(none).toBe(null)
    expect(byName.y.item()).toBe(2)
    const [first, named] = grad(f, { argnums: 0, argnames: ["y"] })(x, { y })
    expect([first.item(), named.y.item()]).toEqual([5, 2])
    expect(grad(f, [0])(x, { y }).item()).toBe(5)
    const withAux = (v: mx.Array): [mx.Array, { doubled: mx.Array }] => [
      v.square(),
      { doubled: v.multiply(2) },
    ]
    const [g, aux] = grad(withAux, { hasAux: true })(x)
    expect([g.item(), aux.doubled.item()]).toEqual([4, 4])
    const [[loss, more], same] = valueAndGrad(withAux)(x)
    expect([loss.item(), more.doubled.item(), same.item()]).toEqual([4, 4, 4])
  })
  it("zeros where nothing depends", () => {
    const [gx, gy] = grad((x: mx.Array, _y: mx.Array) => x.multiply(2).sum(), [0, 1])(
      mx.ones([2]),
      mx.ones([2, 2]),
    )
    expect(gx.tolist()).toEqual([2, 2])
    expect(gy.tolist()).toEqual([
      [0, 0],
      [0, 0],
    ])
    expect(grad((x: mx.Array) => mx.stopGradient(x).multiply(x))(mx.array(3)).item()).toBe(3)
    expect(jvp((_x: mx.Array) => mx.array([1]), [mx.array(1)], [mx.array(1)])[1][0].tolist()).toEqual([0])
  })
  it("arrays that are assigned into are traced", () => {
    const f = (x: mx.Array) => {
      const y = mx.zeros([3])
      y.set([1], x.square())
      x.set([], x.multiply(3))
      return y.multiply(x).sum()
    }
    expect(grad(f)(mx.array(2)).item()).toBe(9 * 4)
  })
  it("the same array twice is two arguments", () => {
    const x = mx.array(3)
    const [a, b] = grad((u: mx.Array, v: mx.Array) => u.square().multiply(v), [0, 1])(x, x)
    expect([a.item(), b.item()]).toEqual([18, 9])
    expect(grad((u: mx.Array) => u.multiply(x))(x).item()).toBe(3)
  })
})

describe("errors", () => {
  const x = mx.array([1, 2])
  it("say what does not fit", () => {
    const square = (v: mx.Array) => v.square()
    expect(() => grad(square)(x)).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [grad] the loss must be a scalar, it has shape (2,). Reduce it with sum or mean, or use vjp with a cotangent of its shape]`,
    )
    expect(() => grad(square)(mx.array(1, mx.int32))).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [grad] argument 0 is int32, which has no gradient. Convert it to a floating dtype with astype, or leave it out of argnums]`,
    )
    expect(() =>
      grad((p: { w: mx.Array[] }) => p.w[0])({ w: [mx.array(true)] }),
    ).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [grad] argument 0 at "w.0" is bool_, which has no gradient. Convert it to a floating dtype with astype, or leave it out of argnums]`,
    )
    expect(() => grad(square, 1 as never)(mx.array(1))).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [grad] argnums names argument 1, but the function was called with 1]`,
    )
    expect(() => grad(square, -1 as never)(mx.array(1))).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [grad] argnums must be positions of arguments, counted from 0, received the number -1]`,
    )
    expect(() => grad(square, true as never)(mx.array(1))).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [grad] argnums must be positions of arguments, counted from 0, received the boolean true]`,
    )
    expect(() => grad(square, { argnum: 1 } as never)(mx.array(1))).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [grad] has no option "argnum"; it takes argnums, argnames, hasAux. Did you mean "argnums"?]`,
    )
    expect(() => grad(square, [0, 0])(mx.array(1))).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [grad] argnums names an argument twice]`,
    )
    expect(() => grad((v: mx.Array) => v.argmax())(x)).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [grad] the loss is uint32, which has no gradient. Compute it in a floating dtype]`,
    )
    expect(() => grad((v: mx.Array) => [v.sum()])(x)).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [grad] the function must return only the loss, it returned a list of length 1. Pass hasAux: true, or use valueAndGrad]`,
    )
    expect(() => grad((v: mx.Array) => v.sum(), { hasAux: true })(x)).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [grad] with hasAux the function must return [loss, aux], it returned an mx.Array]`,
    )
    expect(() => grad(() => 1)(...([x] as unknown as []))).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [grad] the function must return a scalar array, the loss, it returned the number 1]`,
    )
    expect(() => grad(async (v: mx.Array) => v.sum())(x)).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [grad] the function is async: it returned a promise. Transforms trace synchronous functions; await its inputs first]`,
    )
    expect(() => grad((k: number) => x.sum().multiply(k))(2)).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [grad] argument 0 contains no array to differentiate with respect to, received the number 2. mx.array(value) makes one]`,
    )
    expect(() => grad(3 as never)).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [grad] expected a function, received the number 3]`,
    )
    expect(() => grad({ forward: square } as never)).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [grad] expected a function, received a plain object. Call the model in one: (x) => model.forward(x)]`,
    )
    expect(() => grad(square, { argnames: "k" })(x)).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [grad] argnames names "k", but the last argument has no such property]`,
    )
    expect(() => vjp(square, [x], [mx.ones([3])])).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [vjp] cotangent 0 has shape (3,), but output 0 has shape (2,)]`,
    )
    expect(() => vjp(square, [x], [] as never)).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [vjp] expected one array as the cotangent of each output: 1, received 0]`,
    )
    expect(() => vjp(square, x as never, [x])).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [vjp] primals must be a list with one entry for each argument of the function, received an mx.Array]`,
    )
    expect(() => jvp(square, [x], [mx.ones([3])])).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [jvp] tangent 0 has shape (3,), but primal 0 has shape (2,)]`,
    )
  })
  it("name the primitive that has no derivative, or a wrong one", () => {
    const opaque = mx.definePrimitive({
      name: "@lazuli/transforms-test/opaque",
      infer: ([v]) => v,
      reference: ([v], [out]) => out.data.set(v.data),
    })
    const wrong = mx.definePrimitive({
      name: "@lazuli/transforms-test/wrong",
      infer: ([v]) => v,
      reference: ([v], [out]) => out.data.set(v.data),
      vjp: ({ cotangents: [g] }) => [g.sum()],
    })
    expect(() => grad((v: mx.Array) => opaque([v]).sum())(x)).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [@lazuli/transforms-test/opaque] has no derivative: it defines no vjp and no decomposition. Define one of them, or wrap it in a customFunction with a rule]`,
    )
    expect(() => jvp((v: mx.Array) => opaque([v]), [x], [x])).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [@lazuli/transforms-test/opaque] has no derivative: it defines no jvp, no vjp and no decomposition. Define one of them, or wrap it in a customFunction with a rule]`,
    )
    expect(() => grad((v: mx.Array) => wrong([v]).sum())(x)).toThrowErrorMatchingInlineSnapshot(
      `[TransformError: [@lazuli/transforms-test/wrong] its vjp gave a cotangent of shape () for an input of shape (2,)]`,
    )
  })
  it("leave no trace open", () => {
    expect(() =>
      grad((_v: mx.Array): mx.Array => {
        throw new Error("mine")
      })(x),
    ).toThrow("mine")
    const y = x.add(1)
    y.tolist()
    expect(y.node.primitive).toBe(null)
  })
})

describe("derived rules", () => {
  it("differentiate a third party through what its primitive means", () => {
    const cubed = mx.definePrimitive({
      name: "@lazuli/transforms-test/cubed",
      infer: ([v]) => v,
      scalar: (s, [v]) => s.multiply(s.multiply(v, v), v),
    })
    const mixed = mx.definePrimitive({
      name: "@lazuli/transforms-test/mixed",
      infer: ([v]) => [v, v],
      decompose: ([v]) => [v.sin(), cubed([v])],
    })
    const f = (v: mx.Array) => mixed.all([v]).reduce((a, b) => a.add(b))
    expect(grad(f)(mx.array(2)).item()).toBeCloseTo(Math.cos(2) + 12, 4)
    expect(jvp(f, [mx.array(2)], [mx.array(1)])[1][0].item()).toBeCloseTo(Math.cos(2) + 12, 4)
    expect(grad(grad(f))(mx.array(2)).item()).toBeCloseTo(-Math.sin(2) + 12, 4)
    // Only the second output is used: the cotangent of the first is zeros.
    expect(grad((v: mx.Array) => mixed.all([v])[1])(mx.array(2)).item()).toBe(12)
  })
  it("transpose a vjp where there is no jvp", () => {
    const scaled = mx.definePrimitive({
      name: "@lazuli/transforms-test/scaled",
      infer: ([v]) => v,
      reference: ([v, w], [out]) => {
        for (let i = 0; i < v.data.length; i++) out.data[i] = v.data[i] ** 2 * w.data[0]
      },
      vjp: ({ inputs: [v, w], cotangents: [g] }) => [
        g.multiply(v).multiply(w).multiply(2),
        g.multiply(v.square()).sum(),
      ],
    })
    const f = (v: mx.Array, w: mx.Array) => scaled([v, w])
    const [, [t]] = jvp(f, [mx.array([1, 2]), mx.array(3)], [mx.array([1, 10]), mx.array(100)])
    expect(t.tolist()).toEqual([6 + 100, 120 + 400])
  })
})
