/**
 * Transforms of transforms as programs use them: second derivatives of networks, per-example gradients, learned steps, nested batches.
 */
import { values } from "@lazuli/conformance"
import * as mx from "@lazuli/core"
import { describe, expect, it } from "vitest"
import {
  checkpoint,
  customFunction,
  grad,
  hessian,
  jacrev,
  jvp,
  linearize,
  valueAndGrad,
  vjp,
  vmap,
} from "./index"

const far = (a: mx.Array, b: mx.Array): number => a.subtract(b).abs().max().item() as number
const close = (a: mx.Array, b: mx.Array, tolerance = 1e-9): void => {
  expect(a.shape).toEqual(b.shape)
  expect(far(a, b)).toBeLessThan(tolerance)
}

/** A block of a transformer in small, with norms, attention and a layer that is computed again, and its loss for one example. */
type Weights = { q: mx.Array; norm: mx.Array; bias: mx.Array; out: mx.Array }
const weights: Weights = {
  q: values([4, 4], -1, 1, 1),
  norm: values([4], 0.5, 1.5, 2),
  bias: values([4], -1, 1, 3),
  out: values([4, 3], -1, 1, 4),
}
const labels = mx.array([2, 0, 1], mx.int32)
function loss(w: Weights, x: mx.Array): mx.Array {
  const h = mx.fast.layerNorm(x, w.norm, w.bias, 1e-5)
  const q = h.matmul(w.q).reshape([1, 1, 3, 4])
  const a = mx.fast.scaledDotProductAttention(q, h.reshape([1, 1, 3, 4]), q, { scale: 0.5, mask: "causal" })
  const mlp = checkpoint((v: mx.Array) => mx.tanh(mx.fast.rmsNorm(v, w.norm, 1e-5)).multiply(v))
  const logits = x.add(mlp(a.reshape([3, 4]))).matmul(w.out)
  return mx
    .logsumexp(logits, -1)
    .subtract(mx.takeAlongAxis(logits, labels.reshape([3, 1]), 1).squeeze(1))
    .mean()
}
const x = values([3, 4], -1, 1, 5)
const xs = values([2, 3, 4], -1, 1, 6)

describe("a network's loss", () => {
  it("has a Hessian that is symmetric and the derivative of its gradient", () => {
    const f = (q: mx.Array): mx.Array => loss({ ...weights, q }, x)
    const h = hessian(f)(weights.q).reshape([16, 16])
    close(h, h.T)
    const t = values([4, 4], -1, 1, 9)
    const step = 1e-5
    const slope = grad(f)(weights.q.add(t.multiply(step)))
      .subtract(grad(f)(weights.q.subtract(t.multiply(step))))
      .divide(2 * step)
    close(h.matmul(t.flatten()).reshape([4, 4]), slope, 1e-7)
    // Forward over reverse, reverse over reverse, and reverse over forward are the same product.
    const product = jvp(grad(f), [weights.q], [t])[1][0]
    close(product, slope, 1e-7)
    close(vjp(grad(f), [weights.q], [t])[1][0], product)
    close(grad((q: mx.Array) => jvp(f, [q], [t])[1][0])(weights.q), product)
    close(linearize(grad(f), [weights.q])[1](t)[0], product)
  })
  it("has a Hessian for each example", () => {
    const f = (w: mx.Array, v: mx.Array): mx.Array => loss({ ...weights, norm: w }, v)
    const all = vmap(hessian(f), { inAxes: [null, 0] })(weights.norm, xs)
    close(all, mx.stack([...xs].map((v) => hessian(f)(weights.norm, v))))
  })
  it("has gradients for each example, and of what is computed from them", () => {
    const each = vmap(grad(loss), { inAxes: [null, 0] })(weights, xs)
    const loop = [...xs].map((v) => grad(loss)(weights, v))
    for (const key of ["q", "norm", "bias", "out"] as const)
      close(each[key], mx.stack(loop.map((g) => g[key])))
    const spread = (w: Weights): mx.Array => {
      const g = vmap(grad(loss), { inAxes: [null, 0] })(w, xs)
      return g.q.square().sum().add(g.bias.square().sum())
    }
    const slow = (w: Weights): mx.Array => {
      const parts = [...xs].map((v) => grad(loss)(w, v))
      return parts.map((g) => g.q.square().sum().add(g.bias.square().sum())).reduce((a, b) => a.add(b))
    }
    const [fast, expected] = [grad(spread)(weights), grad(slow)(weights)]
    for (const key of ["q", "norm", "bias", "out"] as const) close(fast[key], expected[key])
  })
  it("is differentiated through the steps of an optimizer", () => {
    const trained = (rate: mx.Array): mx.Array => {
      let w = weights
      for (let i = 0; i < 3; i++) {
        const [, g] = valueAndGrad(loss)(w, x)
        w = {
          q: w.q.subtract(g.q.multiply(rate)),
          norm: w.norm.subtract(g.norm.multiply(rate)),
          bias: w.bias,
          out: w.out.subtract(g.out.multiply(rate)),
        }
      }
      return loss(w, x)
    }
    const at = (rate: number): mx.Array => mx.array(Float64Array.of(rate)).reshape([])
    const slope = trained(at(0.1 + 1e-5))
      .subtract(trained(at(0.1 - 1e-5)))
      .divide(2e-5)
    close(grad(trained)(at(0.1)), slope, 1e-7)
    const rates = mx.array(Float64Array.of(0.05, 0.1))
    close(vmap(grad(trained))(rates).index(1), slope, 1e-7)
  })
})

describe("nested batches", () => {
  const a = values([2, 3, 4, 5], -1, 1, 1)
  const f = (u: mx.Array, v: mx.Array): mx.Array => mx.softmax(u.multiply(v), 0).cumsum(0)

  it("take different axes on every level", () => {
    const v = values([5], -1, 1, 2)
    const rows = vmap(f, { inAxes: [0, null] })
    const planes = vmap(rows, { inAxes: [-2, null], outAxes: 1 })
    const mapped = vmap(planes, { inAxes: [1, null], outAxes: -1 })(a, v)
    close(mapped, mx.softmax(a.multiply(v), -1).cumsum(-1).transpose([0, 2, 3, 1]))
  })
  it("agree with loops, of gradients of batches too", () => {
    const g = (rows: mx.Array, v: mx.Array): mx.Array =>
      grad((r: mx.Array) =>
        vmap(f, { inAxes: [1, null] })(r, v)
          .square()
          .sum(),
      )(rows)
    const rows = a.index(0)
    const v = values([2, 3], -1, 1, 7)
    const batched = vmap(g, { inAxes: [1, 0], outAxes: 2 })(rows.index(":", ":2", ":"), v)
    const loop = [0, 1].map((i) => g(rows.index(":", i, ":"), v.index(i)))
    close(batched, mx.stack(loop, 2))
  })
  it("mix with every derivative", () => {
    const inner = vmap((u: mx.Array) => jacrev((r: mx.Array) => mx.sort(r).multiply(r))(u).sum(0))
    const outer = (m: mx.Array): mx.Array => jvp(inner, [m], [m])[1][0]
    const got = vmap(outer, { inAxes: 2, outAxes: 1 })(a.index(0))
    close(
      got,
      mx.stack(
        [0, 1, 2, 3, 4].map((i) => outer(a.index(0).index(":", ":", i))),
        1,
      ),
    )
  })
})

describe("custom functions", () => {
  // log(1 + eˣ), stated so that nothing overflows.
  const softplus = customFunction((v: mx.Array) => v.exp().add(1).log())
    .vjp((v, c) => c.multiply(v.sigmoid()))
    .jvp((v, t) => t.multiply(v.sigmoid()))
  const v = values([3], -2, 2, 1)
  const s = v.sigmoid()

  it("keep their rules under every other transform", () => {
    const huge = mx.array([1000])
    const sum = (u: mx.Array): mx.Array => softplus(u).sum()
    expect(grad(sum)(huge).item()).toBe(1)
    expect(jvp(softplus, [huge], [huge])[1][0].item()).toBe(1000)
    expect(vmap(grad(softplus))(huge).item()).toBe(1)
    expect(grad((u: mx.Array) => vmap(softplus)(u).sum())(huge).item()).toBe(1)
    expect(grad(checkpoint(sum))(huge).item()).toBe(1)
    expect(linearize(softplus, [huge])[1](huge)[0].item()).toBe(1000)
    close(hessian(sum)(v), mx.diag(s.multiply(s.multiply(-1).add(1))))
    close(
      vmap(vmap(grad(grad(softplus))))(v.reshape([1, 3])),
      s.multiply(s.multiply(-1).add(1)).reshape([1, 3]),
    )
  })
  it("derive what has no rule from the function", () => {
    const onlyJvp = customFunction((u: mx.Array) => u.sin()).jvp((u, t) => t.multiply(u.cos()))
    const onlyVjp = customFunction((u: mx.Array) => u.sin()).vjp((u, c) => c.multiply(u.cos()))
    const onlyVmap = customFunction((u: mx.Array) => u.sin()).vmap((u, axis) => [u.sin(), axis])
    for (const f of [onlyJvp, onlyVjp, onlyVmap]) {
      close(vjp(f, [v], [v])[1][0], v.multiply(v.cos()))
      close(jvp(f, [v], [v])[1][0], v.multiply(v.cos()))
      close(vmap(f)(v), v.sin())
      close(vmap(grad(f))(v), v.cos())
      close(vmap(grad(grad(f)))(v), v.sin().negative())
      close(grad((u: mx.Array) => vmap(f)(u).sum())(v), v.cos())
    }
  })
})

describe("integers and bools", () => {
  const n = mx.array([1, 2], mx.int32)
  it("are refused where a gradient is asked for by them, and have zeros elsewhere", () => {
    const f = (u: mx.Array, k: mx.Array): mx.Array => u.multiply(k)
    const u = mx.array([0.5, 2])
    expect(() => grad((k: mx.Array) => f(u, k).sum())(n)).toThrow(
      "argument 0 is int32, which has no gradient",
    )
    const [, [gu, gk]] = vjp(f, [u, n], [mx.ones([2])])
    expect([gu.tolist(), gk.tolist(), gk.dtype]).toEqual([[1, 2], [0, 0], mx.int32])
    const [, [t]] = jvp(f, [u, n], [mx.ones([2]), n])
    expect(t.tolist()).toEqual([1, 2])
    const [outputs, tangents] = jvp((w: mx.Array) => [w.greater(1), w.argmax(), w], [u], [u])
    expect(tangents.map(({ dtype }) => dtype)).toEqual(outputs.map(({ dtype }) => dtype))
    expect(tangents.map((a) => a.tolist())).toEqual([[false, false], 0, [0.5, 2]])
  })
  it("let derivatives pass by", () => {
    const f = (u: mx.Array): mx.Array => u.multiply(u.greater(1)).sum().add(mx.take(u, u.argsort()).index(0))
    expect(grad(f)(mx.array([3, 0.5, 2])).tolist()).toEqual([1, 1, 1])
    expect(
      grad((u: mx.Array) => u.astype(mx.int32).astype(mx.float32).sum())(mx.array([1.5])).tolist(),
    ).toEqual([0])
  })
})
