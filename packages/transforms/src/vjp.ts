/**
 * `vjp`: a function's outputs and its vector–Jacobian products, on trees. The traversal is in pullback.ts.
 */
import { type Array, zerosLike } from "@lazuli/core"
import {
  Array as ArrayClass,
  arraysOf,
  checkFunction,
  isInexact,
  mapArrays,
  toDtype,
  withArrays,
} from "@lazuli/core/engine"
import { asOutputs, checkList, checkSeeds, checkSynchronous } from "./argument"
import { pullback } from "./pullback"
import { trace, traced } from "./trace"

/** The result of a transform: a single array is a list of one; lists and other trees are unchanged. */
export type Outputs<R> = R extends Array ? [R] : R

/**
 * The outputs of `f` at `primals`, and the vector–Jacobian products Jᵀ·c with `cotangents`.
 *
 * `primals` has one entry, an array or a tree, for each argument, and so do the products. Cotangents have the shapes of the outputs. For
 * complex arrays, the products are the gradient of Re(Σ conj(c)·o).
 *
 * @throws TransformError if a cotangent does not have the shape of its output
 * @example
 * const [outputs, grads] = vjp((x) => x.square(), [mx.array([2, 3])], [mx.array([1, 10])])
 * grads[0].tolist() // => [4, 60]
 */
export function vjp<P extends readonly unknown[] | [], R>(
  f: (...primals: P) => R,
  primals: P,
  cotangents: Outputs<R>,
): [outputs: Outputs<R>, grads: P] {
  checkFunction("vjp", f)
  checkList("vjp", "primals", primals)
  return trace("vjp", (epoch) => {
    const given = arraysOf(primals)
    const copies = given.map((x) => traced(x))
    const nodes = copies.map((copy) => copy.node)
    const result = f(...(withArrays(primals, copies) as P))
    checkSynchronous("vjp", result)
    const outputs = arraysOf(result)
    const seeds = arraysOf(asOutputs(cotangents))
    checkSeeds("vjp", "cotangent", seeds, outputs, "output")
    const sums = pullback(
      nodes,
      outputs.map((y) => y.node),
      seeds.map((seed, i) => (isInexact(outputs[i].dtype) ? toDtype(seed, outputs[i].dtype) : null)),
      epoch,
    )
    const grads = sums.map((sum, i) => sum ?? zerosLike(given[i]))
    return [asOutputs(freshHandles(result)) as Outputs<R>, withArrays(primals, grads) as P]
  })
}

/** The same tree with new handles. */
export const freshHandles = (tree: unknown): unknown => mapArrays(tree, ({ node }) => new ArrayClass(node))
