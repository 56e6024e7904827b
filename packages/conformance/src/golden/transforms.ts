/**
 * Cases under a transform: derivatives, batches, second order, compiled functions.
 */
import type * as mx from "@lazuli/core"
import { arraysOf } from "@lazuli/core/engine"
import { checkpoint, grad, jvp, valueAndGrad, vjp, vmap } from "@lazuli/transforms"
import { invoke, type Spaces } from "./calls"
import { type GoldenCase, Missing, type TransformSpec } from "./format"
import { runThrough } from "./through"
import { arrayOf, leavesOf } from "./values"

type ArrayFunction = (...leaves: mx.Array[]) => mx.Array[]

const total = (arrays: readonly mx.Array[]): mx.Array => arrays.map((a) => a.sum()).reduce((a, b) => a.add(b))
const weighted = (a: mx.Array, weight: mx.Array): mx.Array => a.multiply(weight).sum()
const everything = (leaves: readonly mx.Array[]): { argnums: number[] } => ({
  argnums: leaves.map((_, i) => i),
})
const asList = (grads: unknown): mx.Array[] =>
  (globalThis.Array.isArray(grads) ? grads : [grads]) as mx.Array[]

/** Runs a case that has a transform. @throws Missing where a function does not exist */
export function runTransform(c: GoldenCase, spaces: Spaces): mx.Array[] {
  const { cotangents, tangents, tangents2, weights } = c.transform as TransformSpec
  const lists = [(c.args ?? []).flatMap(leavesOf), cotangents, tangents, tangents2, weights]
  const given = lists.map((list = []) => list.map(arrayOf))
  const transformed = (...xs: mx.Array[]): mx.Array[] => {
    let next = 0
    const [all, ...others] = given.map((list) => list.map(() => xs[next++]))
    return transform(c, spaces, all, others)
  }
  return runThrough(spaces.through, transformed, given.flat())
}

/** The transform of the call at `all`; the other arrays are its cotangents, tangents, second tangents and weights. */
function transform(
  c: GoldenCase,
  spaces: Spaces,
  all: readonly mx.Array[],
  [cotangents, tangents, tangents2, weights]: readonly (readonly mx.Array[])[],
): mx.Array[] {
  const spec = c.transform as TransformSpec
  const chosen = spec.argnums ?? all.map((_, i) => i)
  let f: ArrayFunction = (...xs) => {
    const full = all.slice()
    chosen.forEach((n, i) => {
      full[n] = xs[i]
    })
    let next = 0
    return arraysOf(invoke(c, spaces, () => full[next++]))
  }
  if (spec.wrap === "checkpoint") f = checkpoint(f)
  else if (spec.wrap === "compile" && spaces.compile) f = spaces.compile(f)
  else if (spec.wrap) throw new Missing(`wrap ${spec.wrap}`)
  const xs = chosen.map((n) => all[n])
  switch (spec.kind) {
    case "compile":
      if (!spaces.compile) throw new Missing("transform compile")
      return spaces.compile(f)(...xs)
    case "vjp":
      return vjp(f, xs, [...cotangents])[1]
    case "jvp":
      return jvp(f, xs, [...tangents])[1]
    case "vmap":
      return vmap(f, { inAxes: spec.in_axes as number[], outAxes: spec.out_axes as number })(...xs)
    case "vmap_vmap": {
      const [outer, inner] = spec.in_axes as number[][]
      const [outOuter, outInner] = spec.out_axes as number[]
      return vmap(vmap(f, { inAxes: inner, outAxes: outInner }), { inAxes: outer, outAxes: outOuter })(...xs)
    }
    case "value_and_grad": {
      const [value, grads] = valueAndGrad((...ys: mx.Array[]) => total(f(...ys)), everything(xs))(...xs)
      return [value, ...asList(grads)]
    }
    case "vmap_grad": {
      const gradients = (...ys: mx.Array[]): mx.Array[] =>
        asList(grad((...zs: mx.Array[]) => total(f(...zs)), everything(xs))(...ys))
      const axes = { inAxes: spec.in_axes as number[], outAxes: (spec.out_axes ?? 0) as number }
      return vmap(gradients, axes)(...xs)
    }
    case "grad_grad": {
      const [first, ...others] = weights
      const inner = grad((...zs: mx.Array[]) => weighted(f(...zs)[0], first), everything(xs))
      const outer = (...ys: mx.Array[]): mx.Array =>
        total(asList(inner(...ys)).map((g, i) => weighted(g, others[i])))
      return asList(grad(outer, everything(xs))(...xs))
    }
    case "jvp_of_vjp":
      return jvp((...ys: mx.Array[]) => vjp(f, ys, [...cotangents])[1], xs, [...tangents])[1]
    case "jvp_jvp":
      return jvp((...ys: mx.Array[]) => jvp(f, ys, [...tangents])[1], xs, [...tangents2])[1]
    default:
      throw new Missing(`transform ${spec.kind}`)
  }
}
