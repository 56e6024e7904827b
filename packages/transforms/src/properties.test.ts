/**
 * Laws that hold for any program: random graphs of a dozen operations that share their intermediates.
 */
import { values } from "@lazuli/conformance"
import * as mx from "@lazuli/core"
import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { type Program, patience, programs, runs } from "../test/random-programs"
import { checkpoint, grad, jacfwd, jacrev, jvp, vjp, vmap } from "./index"

const x = values([2, 3], -1, 1, 1)
const y = values([2, 3], -1, 1, 2)
const [tx, ty, c] = [values([2, 3], -1, 1, 3), values([2, 3], -1, 1, 4), values([2, 3], -1, 1, 5)]
const dot = (a: mx.Array, b: mx.Array): number => a.multiply(b).sum().item() as number
const far = (a: mx.Array, b: mx.Array): number => a.subtract(b).abs().max().item() as number

describe("random programs", { timeout: patience }, () => {
  it("⟨c, J·t⟩ = ⟨Jᵀ·c, t⟩, also of their gradients", () => {
    fc.assert(
      fc.property(programs, (f) => {
        const [, [t]] = jvp(f, [x, y], [tx, ty])
        const [, [gx, gy]] = vjp(f, [x, y], [c])
        expect(dot(gx, tx) + dot(gy, ty)).toBeCloseTo(dot(c, t), 8)
        const gradient = (a: mx.Array, b: mx.Array): mx.Array[] => vjp(f, [a, b], [c])[1]
        const [, [hx, hy]] = jvp(gradient, [x, y], [tx, ty])
        const [, [kx, ky]] = vjp(gradient, [x, y], [tx, ty])
        // The matrix of second derivatives is symmetric.
        expect(dot(hx, tx) + dot(hy, ty)).toBeCloseTo(dot(kx, tx) + dot(ky, ty), 6)
      }),
      runs(80),
    )
  })
  it("a batch is a loop, of values and of gradients", () => {
    fc.assert(
      fc.property(programs, fc.boolean(), (f, both) => {
        const xs = mx.stack([x, tx, c])
        const ys = both ? mx.stack([y, ty, tx]) : y
        const pick = (k: number): mx.Array => (both ? ys.index(k) : ys)
        const axes = { inAxes: [0, both ? 0 : null] }
        const loop = (g: Program): mx.Array => mx.stack([0, 1, 2].map((k) => g(xs.index(k), pick(k))))
        expect(far(vmap(f, axes)(xs, ys), loop(f))).toBeLessThan(1e-10)
        const g = grad((a: mx.Array, b: mx.Array) => f(a, b).multiply(c).sum())
        expect(far(vmap(g, axes)(xs, ys), loop(g))).toBeLessThan(1e-8)
        const whole = grad((a: mx.Array) => vmap(f, axes)(a, ys).multiply(c).sum())
        expect(far(whole(xs), loop(g))).toBeLessThan(1e-8)
      }),
      runs(80),
    )
  })
  it("both ways to a Jacobian agree, and checkpoints change nothing", () => {
    fc.assert(
      fc.property(programs, (f) => {
        const [rev, fwd] = [jacrev(f, 1)(x, y), jacfwd(f, 1)(x, y)]
        expect(rev.shape).toEqual([2, 3, 2, 3])
        expect(far(rev, fwd)).toBeLessThan(1e-8)
        expect(far(vjp(checkpoint(f), [x, y], [c])[1][0], vjp(f, [x, y], [c])[1][0])).toBeLessThan(1e-12)
      }),
      runs(40),
    )
  })
})
