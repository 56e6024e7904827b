/**
 * `jvp`: a function's outputs and its Jacobian–vector products, on trees. The traversal is in pushforward.ts.
 */
import { zerosLike } from "@lazuli/core"
import { arraysOf, checkFunction, isInexact, toDtype, withArrays } from "@lazuli/core/engine"
import { asOutputs, checkList, checkSeeds, checkSynchronous } from "./argument"
import { pushforward } from "./pushforward"
import { trace, traced } from "./trace"
import { freshHandles, type Outputs } from "./vjp"

/**
 * The outputs of `f` at `primals`, and the Jacobian–vector products J·t with `tangents`.
 *
 * `primals` and `tangents` have one entry, an array or a tree, for each argument; the products have the structure of the outputs.
 *
 * @throws TransformError if a tangent does not have the shape of its primal
 * @example
 * const [outputs, tangents] = jvp((x) => x.square(), [mx.array([2, 3])], [mx.array([1, 10])])
 * tangents[0].tolist() // => [4, 60]
 */
export function jvp<P extends readonly unknown[] | [], R>(
  f: (...primals: P) => R,
  primals: P,
  tangents: P,
): [outputs: Outputs<R>, tangents: Outputs<R>] {
  checkFunction("jvp", f)
  checkList("jvp", "primals", primals)
  checkList("jvp", "tangents", tangents)
  return trace("jvp", (epoch) => {
    const given = arraysOf(primals)
    const seeds = arraysOf(tangents)
    checkSeeds("jvp", "tangent", seeds, given, "primal")
    const copies = given.map((x) => traced(x))
    const nodes = copies.map((copy) => copy.node)
    const result = f(...(withArrays(primals, copies) as P))
    checkSynchronous("jvp", result)
    const outputs = arraysOf(result)
    const moved = pushforward(
      nodes,
      seeds.map((seed, i) => (isInexact(given[i].dtype) ? toDtype(seed, given[i].dtype) : null)),
      outputs.map((y) => y.node),
      epoch,
    ).map((t, i) => t ?? zerosLike(outputs[i]))
    const asList = (tree: unknown): Outputs<R> => asOutputs(tree) as Outputs<R>
    return [asList(freshHandles(result)), asList(withArrays(result, moved))]
  })
}
