/** Functions that change their arguments' handles, and functions that transforms cannot take. */
import * as mx from "@lazuli/core"
import { describe, expect, test } from "vitest"
import {
  checkpoint,
  customFunction,
  grad,
  hessian,
  jacfwd,
  jacrev,
  jvp,
  linearize,
  valueAndGrad,
  vjp,
  vmap,
} from "./index"

/** Changes both of its arguments, one of them in a list. */
function loss(x: mx.Array, [y]: readonly mx.Array[]): mx.Array {
  x.set([0], 5)
  y.set([0], x.index(0))
  return x.multiply(y).sum()
}
type Loss = typeof loss
const one =
  (f: (x: mx.Array, ys: readonly mx.Array[]) => unknown) => (x: mx.Array, ys: readonly mx.Array[]) =>
    f(x, ys)
const custom = customFunction(loss).vjp(([x, [y]], g) => {
  x.set([0], 7)
  y.set([0], 7)
  g.set([], 1)
  return [mx.zerosLike(x), [mx.zerosLike(y)]]
})
const batched = customFunction((x: mx.Array) => x.sum()).vmap((x) => {
  x.set([0], 7)
  return [mx.zeros([2]), 0]
})

const transforms: Record<string, (x: mx.Array, ys: readonly mx.Array[]) => unknown> = {
  grad: one(grad(loss)),
  valueAndGrad: one(valueAndGrad(loss, 1)),
  "a gradient by name": (x, ys) =>
    grad((a: mx.Array, { b }: { b: mx.Array }) => loss(a, [b]), { argnames: "b" })(x, { b: ys[0] }),
  vjp: (x, ys) => vjp(loss as Loss, [x, ys], [mx.array(1)]),
  jvp: (x, ys) => jvp(loss as Loss, [x, ys], [x, ys]),
  linearize: (x, ys) => linearize(loss as Loss, [x, ys])[1](x, ys),
  jacrev: one(jacrev(loss)),
  jacfwd: one(jacfwd(loss)),
  hessian: one(hessian(loss)),
  vmap: (x, ys) =>
    vmap((a: mx.Array, b: readonly mx.Array[]) => loss(a, b), [null, [0]])(x, [mx.stack([ys[0], ys[0]])]),
  "what vmap leaves alone": (x, ys) =>
    vmap((a: mx.Array, b: readonly mx.Array[], c: mx.Array) => loss(a, b).add(c), [null, null, 0])(
      x,
      ys,
      mx.ones([2]),
    ),
  checkpoint: one(checkpoint(loss)),
  "the gradient of a checkpoint": one(grad(checkpoint(loss))),
  customFunction: one(custom),
  "a rule of a customFunction": (x, ys) => vjp(custom as unknown as Loss, [x, ys], [mx.array(1)]),
  "a batching rule": (x) => vmap(batched)(mx.stack([x, x])),
}

describe("what a function does to its arguments", () => {
  test.each(Object.entries(transforms))("stays with it: %s", (_name, run) => {
    const [x, y] = [mx.array([1, 2, 3]), mx.array([4, 5, 6])]
    const pending = x.add(0)
    run(x, [y])
    run(pending, [y.add(0)])
    expect([x, pending, y].map((a) => a.tolist())).toEqual([
      [1, 2, 3],
      [1, 2, 3],
      [4, 5, 6],
    ])
  })

  test("a batching rule does not reach the batch", () => {
    const x = mx.ones([2, 3])
    vmap(batched)(x)
    expect(x.tolist()).toEqual(mx.ones([2, 3]).tolist())
  })
})

test("async functions are named as such", () => {
  const later = async (x: mx.Array): Promise<mx.Array> => x.sum()
  const x = mx.ones([2])
  const name = (run: () => unknown): string => {
    try {
      run()
    } catch (error) {
      return (error as Error).message
    }
    return "no error"
  }
  const runs: Record<string, () => unknown> = {
    grad: () => grad(later as never)(x as never),
    valueAndGrad: () => valueAndGrad(later as never)(x as never),
    vjp: () => vjp(later as never, [x] as never, [x] as never),
    jvp: () => jvp(later as never, [x] as never, [x] as never),
    linearize: () => linearize(later as never, [x] as never),
    jacrev: () => jacrev(later)(x),
    jacfwd: () => jacfwd(later)(x),
    hessian: () => hessian(later)(x),
    vmap: () => vmap(later)(x),
    checkpoint: () => checkpoint(later)(x),
    customFunction: () => customFunction(later)(x),
  }
  for (const [op, run] of Object.entries(runs))
    expect(name(run)).toBe(
      `[${op}] the function is async: it returned a promise. Transforms trace synchronous functions; await its inputs first`,
    )
})

test("the gradient by a tree without arrays is that tree", () => {
  const f = (_tree: unknown, x: mx.Array): mx.Array => x.sum()
  for (const tree of [{}, [], { layers: [{}, []], rate: 0.5 }]) {
    expect(grad(f)(tree, mx.ones([2]))).toEqual(tree)
    const [value, [none, ones]] = valueAndGrad(f, [0, 1])(tree, mx.ones([2])) as [
      mx.Array,
      [unknown, mx.Array],
    ]
    expect([value.item(), none, ones.tolist()]).toEqual([2, tree, [1, 1]])
  }
  expect(() => grad(f)(3, mx.ones([2]))).toThrow(
    "[grad] argument 0 contains no array to differentiate with respect to",
  )
})
