/**
 * The types that transforms infer; the type checker is the test.
 */
import * as mx from "@lazuli/core"
import { expectTypeOf, it } from "vitest"
import { customFunction, grad, hessian, jacrev, jvp, linearize, valueAndGrad, vjp, vmap } from "./index"

type Params = { w: mx.Array; layers: { b: mx.Array }[]; name: string }
const f = (p: Params, x: mx.Array, _k: number): mx.Array => p.w.multiply(x).sum()
const aux = (p: Params): [mx.Array, { hits: mx.Array }] => [p.w.sum(), { hits: p.w }]
const options = (x: mx.Array, _o: { y: mx.Array; train?: boolean }): mx.Array => x.sum()

it("follows arguments and results", () => {
  expectTypeOf(grad(f)).toEqualTypeOf<(p: Params, x: mx.Array, k: number) => Params>()
  expectTypeOf(grad(f, 1)).returns.toEqualTypeOf<mx.Array>()
  expectTypeOf(grad(f, [0, 1])).returns.toEqualTypeOf<[Params, mx.Array]>()
  expectTypeOf(grad(f, [1])).returns.toEqualTypeOf<mx.Array>()
  expectTypeOf(grad(f, { argnums: [0, 1] })).returns.toEqualTypeOf<[Params, mx.Array]>()
  expectTypeOf(grad(aux, { hasAux: true })).returns.toEqualTypeOf<[grads: Params, aux: { hits: mx.Array }]>()
  expectTypeOf(valueAndGrad(aux)).returns.toEqualTypeOf<
    [value: [mx.Array, { hits: mx.Array }], grads: Params]
  >()
  expectTypeOf(valueAndGrad(f, { argnums: 1 })).returns.toEqualTypeOf<[value: mx.Array, grads: mx.Array]>()
  expectTypeOf(grad(options, { argnames: "y" })).returns.toEqualTypeOf<[null, { y: mx.Array }]>()
  expectTypeOf(grad(options, 0, ["y"])).returns.toEqualTypeOf<[mx.Array, { y: mx.Array }]>()
  expectTypeOf(grad(grad((x: mx.Array) => x.square()))).returns.toEqualTypeOf<mx.Array>()

  const x: mx.Array = mx.array(1)
  expectTypeOf(vjp((a: mx.Array) => a, [x], [x])).toEqualTypeOf<[outputs: [mx.Array], grads: [mx.Array]]>()
  expectTypeOf(vjp((a: mx.Array) => [a, a], [x], [x, x])[0]).toEqualTypeOf<mx.Array[]>()
  expectTypeOf(
    jvp((p: Params) => ({ y: p.w }), [{ w: x, layers: [], name: "" }], [{ w: x, layers: [], name: "" }])[1],
  ).toEqualTypeOf<{
    y: mx.Array
  }>()
  const [value, linear] = linearize(
    (a: mx.Array, p: Params) => ({ y: a.add(p.w) }),
    [x, { w: x, layers: [], name: "" }],
  )
  expectTypeOf(value).toEqualTypeOf<{ y: mx.Array }>()
  expectTypeOf(linear).toEqualTypeOf<(a: mx.Array, p: Params) => { y: mx.Array }>()
  expectTypeOf(linearize((a: mx.Array) => a, [x])[1]).returns.toEqualTypeOf<[mx.Array]>()
  expectTypeOf(vjp(mx.exp, [x], [x])[1]).toEqualTypeOf<[mx.Array]>()
  expectTypeOf(vmap(f, { inAxes: [null, 0, null] })).toEqualTypeOf<
    (p: Params, x: mx.Array, k: number) => mx.Array
  >()
  expectTypeOf(jacrev((a: mx.Array, _b: number) => ({ y: a }))).returns.toEqualTypeOf<{ y: mx.Array }>()
  expectTypeOf(hessian((a: mx.Array) => a.sum())).returns.toEqualTypeOf<mx.Array>()
  expectTypeOf(customFunction((a: mx.Array, b: mx.Array) => a.add(b)).vjp)
    .parameter(0)
    .parameter(0)
    .toEqualTypeOf<[a: mx.Array, b: mx.Array]>()
  expectTypeOf(customFunction((a: mx.Array) => a).jvp)
    .parameter(0)
    .parameter(1)
    .toEqualTypeOf<mx.Array>()
})

it("refuses what does not fit", () => {
  // @ts-expect-error a cotangent for each output
  expectTypeOf(() => vjp((a: mx.Array) => a, [mx.array(1)], [])).toBeFunction()
  // @ts-expect-error tangents look like the primals
  expectTypeOf(() => jvp((a: mx.Array) => a, [mx.array(1)], [1])).toBeFunction()
  // @ts-expect-error the gradient takes what the function takes
  expectTypeOf(() => grad(f)(mx.array(1))).toBeFunction()
})
