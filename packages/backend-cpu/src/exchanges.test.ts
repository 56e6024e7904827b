/** Exchanges with other processes under transforms: as many, and in the same order, whether a function is compiled or not. */

import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { definePrimitive } from "@lazuli/core/plugin"
import { checkpoint, grad, jvp, valueAndGrad, vmap } from "@lazuli/transforms"
import { afterEach, expect, test } from "vitest"
import "./index"

let log: number[] = []
afterEach(() => {
  log = []
})
type Exchange = (inputs: readonly mx.Array[], params: { number: number }) => mx.Array
/** Notes its number when it runs. Its derivatives exchange as well, under numbers that are larger by 10. */
const exchange: Exchange = definePrimitive({
  name: "@me/transforms/exchange",
  api: 1,
  params: { number: "i64" },
  facts: { exchanges: true },
  infer: ([x]) => x,
  reference: ([x], [y], { number }) => {
    log.push(number)
    y.data.set(x.data)
  },
  vjp: ({ cotangents: [g], params: { number } }) => [exchange([g], { number: number + 10 })],
  jvp: ({ tangents: [t], params: { number } }) => [t && exchange([t], { number: number + 10 })],
  vmap: ({ inputs, axes, params }) => ({ outputs: [exchange(inputs, params)], axes }),
})
/** Only its derivative exchanges something. */
const backward: Exchange = definePrimitive({
  name: "@me/transforms/backward",
  api: 1,
  params: { number: "i64" },
  facts: { exchanges: "derivatives" },
  infer: ([x]) => x,
  reference: ([x], [y]) => {
    y.data.set(x.data)
  },
  vjp: ({ cotangents: [g], params: { number } }) => [exchange([g], { number: number + 10 })],
  jvp: ({ tangents: [t] }) => [t],
  vmap: ({ inputs, axes, params }) => ({ outputs: [backward(inputs, params)], axes }),
})

type F = (x: mx.Array) => mx.Array
/** Made in the order of their numbers, and read in another one. */
const several: F = (x) => {
  const [a, b, c] = [1, 2, 3].map((number) => exchange([x.multiply(number)], { number }).square())
  const d = backward([x], { number: 4 })
  const e = backward([x], { number: 5 })
  return c.add(e).add(a.multiply(b)).add(d)
}
const sum =
  (f: F): F =>
  (x) =>
    f(x).sum()

const cases: Record<string, [transform: (f: F) => (x: mx.Array) => unknown, order: number[]]> = {
  valueAndGrad: [(f) => valueAndGrad(sum(f)), [1, 2, 3, 15, 14, 13, 12, 11]],
  grad: [(f) => grad(sum(f)), [1, 2, 3, 15, 14, 13, 12, 11]],
  jvp: [(f) => (x) => jvp(f, [x], [x]), [1, 2, 3, 11, 12, 13]],
  vmap: [(f) => vmap(f), [1, 2, 3]],
  "vmap of grad": [(f) => vmap(grad(sum(f))), [1, 2, 3, 15, 14, 13, 12, 11]],
  "grad of vmap": [(f) => grad(sum(vmap(f))), [1, 2, 3, 15, 14, 13, 12, 11]],
  checkpoint: [(f) => grad(sum(checkpoint(f))), [1, 2, 3, 15, 14, 13, 12, 11]],
}

// Must stay the first test: a process knows of no exchanges until it has made one.
test("exchanges of a first backward pass follow the calls, compiled or not", () => {
  const inner: F = (x) => {
    const a = backward([x], { number: 1 })
    return backward([x], { number: 2 }).multiply(a)
  }
  const around =
    (f: F): F =>
    (x) => {
      const y = f(x.multiply(2))
      return backward([x], { number: 3 }).multiply(y).sum()
    }
  const x = mx.array([1, 2])
  for (const f of [compile(inner), compile(inner), inner]) {
    log = []
    mx.eval(grad(around(f))(x))
    expect(log).toEqual([13, 12, 11])
  }
})

test.each(Object.entries(cases))(
  "%s runs exchanges in the order of their calls, compiled or not",
  (_, [transform, order]) => {
    const x = mx.array([1, 2])
    for (const f of [several, compile(several)])
      for (const g of [transform(f), compile(transform(f) as F)]) {
        log = []
        mx.eval(g(x))
        expect(log).toEqual(order)
      }
  },
)
