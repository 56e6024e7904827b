/**
 * Attention on the CPU: the kernel and the meaning agree where queries see nothing, and float64 keeps its precision.
 */
import "./index"
import * as mx from "@lazuli/core"
import { jvp, vjp } from "@lazuli/transforms"
import { expect, test } from "vitest"

const random = (seed: number, shape: number[]): mx.Array =>
  mx.random.normal(shape, { key: mx.random.key(seed) })
const [q, k, v] = [random(1, [1, 2, 3, 4]), random(2, [1, 1, 3, 4]), random(3, [1, 1, 3, 4])]
const c = random(4, [1, 2, 3, 4])
// The second query sees no key.
const mask = mx.array([
  [true, false, true],
  [false, false, false],
  [true, true, true],
])
const attend = (...[a, b, w]: mx.Array[]): mx.Array =>
  mx.fast.scaledDotProductAttention(a, b, w, { scale: 0.5, mask })
const wide = (xs: readonly mx.Array[]): mx.Array[] => xs.map((x) => x.astype(mx.float64))
const far = (a: mx.Array, b: mx.Array): number =>
  a.astype(mx.float64).subtract(b.astype(mx.float64)).abs().max().item() as number

test("a query that sees nothing gives zeros and passes no gradient, by the kernel and by the meaning", () => {
  const [[y], [dq, dk, dv]] = vjp(attend, [q, k, v], [c])
  expect(y.index(0, ":", 1).tolist()).toEqual(mx.zeros([2, 4]).tolist())
  expect(dq.index(0, ":", 1).tolist()).toEqual(mx.zeros([2, 4]).tolist())
  const [[exact], grads] = vjp(attend, wide([q, k, v]) as [mx.Array, mx.Array, mx.Array], [
    c.astype(mx.float64),
  ])
  expect(far(y, exact)).toBeLessThan(1e-6)
  ;[dq, dk, dv].forEach((g, i) => {
    expect(far(g, grads[i])).toBeLessThan(1e-5)
  })
})

test("float64 is computed in float64", () => {
  const [a, b, w] = wide([q, k, v])
  const along = (h: number): mx.Array => attend(a.add(b.sum().multiply(h)), b, w)
  const slope = along(1e-5).subtract(along(-1e-5)).divide(2e-5)
  const t = mx.ones(a.shape, mx.float64).multiply(b.sum())
  expect(far(jvp((x: mx.Array) => attend(x, b, w), [a], [t])[1][0], slope)).toBeLessThan(1e-6)
})
