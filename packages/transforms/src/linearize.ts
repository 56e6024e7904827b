/**
 * `linearize`: a function's outputs, and its derivative at one place as a function of its own. The walk of `jvp` runs once, on stand-ins
 * for the tangents; what it built from them is a linear graph, which every later call copies with tangents in their place.
 */
import { type Array, zeros } from "@lazuli/core"
import {
  Array as ArrayClass,
  arraysOf,
  float32,
  isInexact,
  Mark,
  type Node,
  sourceNode,
  toDtype,
  withArrays,
} from "@lazuli/core/engine"
import { asOutputs, checkFunction, checkList, checkSeeds, checkSynchronous } from "./argument"
import { pushforward } from "./pushforward"
import { newEpoch, replay, trace, traced } from "./trace"
import { freshHandles, type Outputs } from "./vjp"

/** A node that stands for the tangent of an array; null where that has none. */
function standIn(x: Array, i: number): Array | null {
  if (!isInexact(x.dtype)) return null
  const node = sourceNode(x.node.shape, x.dtype, null, Mark.Abstract)
  node.params = { name: `tangent ${i} of linearize` }
  return new ArrayClass(node)
}

/**
 * The outputs of `f` at `primals`, and its derivative there: a linear function from tangents, one for each argument, to the tangents of
 * the outputs. `f` runs once and its outputs are computed once, however often the linear function is called; it may be mapped over
 * with `vmap` and differentiated like any other.
 *
 * `primals` has one entry, an array or a tree, for each argument. What the linear function needs of the values at `primals` is kept as long
 * as it can be called. Tangents of integer and bool arrays are not looked at.
 *
 * @throws TransformError when a tangent does not have the shape of its primal
 * @example
 * const [outputs, linear] = linearize((x) => x.square(), [mx.array([2, 3])])
 * outputs[0].tolist() // => [4, 9]
 * linear(mx.array([1, 10]))[0].tolist() // => [4, 60]
 */
export function linearize<P extends readonly unknown[] | [], R>(
  f: (...primals: P) => R,
  primals: P,
): [outputs: Outputs<R>, linear: (...tangents: P) => Outputs<R>] {
  checkFunction("linearize", f)
  checkList("linearize", "primals", primals)
  return trace((epoch) => {
    const given = arraysOf(primals)
    const copies = given.map(traced)
    const result = f(...(withArrays(primals, copies) as P))
    checkSynchronous("linearize", result)
    const outputs = arraysOf(result)
    const start = newEpoch()
    const standIns = given.map(standIn)
    const targets = pushforward(
      copies.map((copy) => copy.node),
      standIns,
      outputs.map((y) => y.node),
      epoch,
    )
    const varying = targets.flatMap((t) => (t ? [t.node] : []))
    const varies = targets.map((t) => t !== null)
    const places = standIns.flatMap((t) => (t ? [t.node] : []))
    // Shapes and dtypes, so that the values themselves can go.
    const [metas, outMetas] = [given, outputs].map((xs) => xs.map(({ shape, dtype }) => ({ shape, dtype })))
    const blank = new ArrayClass(sourceNode([], float32, null, Mark.Abstract))
    const template = asOutputs(
      withArrays(
        result,
        outputs.map(() => blank),
      ),
    )
    const linear = (...tangents: P): Outputs<R> => {
      const seeds = arraysOf(tangents)
      checkSeeds("linearize", "tangent", seeds, metas, "primal")
      const images = seeds.flatMap((seed, i): Node[] =>
        isInexact(metas[i].dtype) ? [toDtype(seed, metas[i].dtype).node] : [],
      )
      const moved = replay(varying, places, images, start)
      let next = 0
      const arrays = outMetas.map(({ shape, dtype }, i) =>
        varies[i] ? new ArrayClass(moved[next++]) : zeros(shape, dtype),
      )
      return withArrays(template, arrays) as Outputs<R>
    }
    return [asOutputs(freshHandles(result)) as Outputs<R>, linear]
  })
}
