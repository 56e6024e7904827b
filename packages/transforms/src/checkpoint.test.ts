import * as mx from "@lazuli/core"
import { describe, expect, it } from "vitest"
import { checkpoint, grad, hessian, jvp, vmap } from "./index"

describe("checkpoint", () => {
  const f = (x: mx.Array) => x.sin().exp().multiply(x)
  const x = mx.array([0.3, -1.2, 2])
  const close = (a: mx.Array, b: mx.Array) =>
    expect(a.subtract(b).abs().max().item() as number).toBeLessThan(1e-5)

  it("has the derivatives of the function", () => {
    const c = checkpoint(f)
    close(c(x), f(x))
    close(grad((v: mx.Array) => c(v).sum())(x), grad((v: mx.Array) => f(v).sum())(x))
    close(jvp(c, [x], [x])[1][0], jvp(f, [x], [x])[1][0])
    close(hessian((v: mx.Array) => c(v).sum())(x), hessian((v: mx.Array) => f(v).sum())(x))
    close(vmap(grad(c))(x), grad((v: mx.Array) => f(v).sum())(x))
    close(grad((v: mx.Array) => vmap(c)(v).sum())(x), grad((v: mx.Array) => f(v).sum())(x))
    const nested = checkpoint((v: mx.Array) => checkpoint(f)(v.multiply(2)))
    close(grad((v: mx.Array) => nested(v).sum())(x), grad((v: mx.Array) => f(v.multiply(2)).sum())(x))
  })
  it("gives captured arrays their gradients", () => {
    const loss = (w: mx.Array) => {
      const scale = w.square()
      return checkpoint((v: mx.Array) => v.multiply(scale).multiply(w))(x).sum()
    }
    close(grad(loss)(mx.array(2)), x.sum().multiply(12))
  })
  it("computes again what the gradient needs", () => {
    let runs = 0
    const counted = mx.definePrimitive({
      name: "@lazuli/transforms-test/countedExp",
      infer: ([v]) => v,
      reference: ([v], [out]) => {
        runs++
        for (let i = 0; i < v.data.length; i++) out.data[i] = Math.exp(v.data[i])
      },
      vjp: ({ outputs: [y], cotangents: [g] }) => [g.multiply(y)],
    })
    const g = (v: mx.Array) =>
      counted([v.multiply(2)])
        .square()
        .sum()
    mx.eval(grad(g)(x))
    expect(runs).toBe(1)
    runs = 0
    let calls = 0
    const again = checkpoint((v: mx.Array) => {
      calls++
      return g(v)
    })
    const both = grad((v: mx.Array) => again(v).exp())(x)
    mx.eval(both)
    expect(runs).toBe(2)
    // The graph is rebuilt; the function does not run again.
    expect(calls).toBe(1)
  })
})
