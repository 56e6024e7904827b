/**
 * `linearize`: a function's outputs, and its derivative at one point as a linear function. The traversal of `jvp` runs once, on
 * placeholders of the tangents; every call copies the resulting linear graph with the actual tangents.
 */
import { type Array, zerosLike } from "@lazuli/core"
import {
  Array as ArrayClass,
  arraysOf,
  asCall,
  checkFunction,
  float32,
  isInexact,
  Mark,
  type Node,
  ofTrees,
  sourceNode,
  toDtype,
  withArrays,
} from "@lazuli/core/engine"
import { asOutputs, checkList, checkSeeds, checkSynchronous } from "./argument"
import { pushforward } from "./pushforward"
import { isArray, stored } from "./stored-calls"
import { newEpoch, replay, trace, traced } from "./trace"
import { freshHandles, type Outputs } from "./vjp"

/** A placeholder of the tangent of an array. */
const standIn: typeof tangentOf = asCall(
  "@lazuli/transforms/tangent",
  tangentOf,
  stored("tangent", isArray, tangentOf),
)

function tangentOf(x: Array, i: number): Array {
  const node = sourceNode(x.node.shape, x.dtype, null, Mark.Abstract)
  node.params = { name: `tangent ${i} of linearize` }
  return new ArrayClass(node)
}

/**
 * The outputs of `f` at `primals`, and its derivative there: a linear function from tangents, one for each argument, to the tangents of the
 * outputs. `f` runs only once, however often the linear function is called, which can be transformed like any other function.
 *
 * `primals` has one entry, an array or a tree, for each argument. The linear function keeps the values at `primals` that it needs. Tangents
 * of integer and bool arrays are ignored.
 *
 * @throws TransformError if a tangent does not have the shape of its primal
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
  return trace("linearize", (epoch) => {
    const given = arraysOf(primals)
    const copies = given.map((x) => traced(x))
    const nodes = copies.map((copy) => copy.node)
    const result = f(...(withArrays(primals, copies) as P))
    checkSynchronous("linearize", result)
    const outputs = arraysOf(result)
    const start = newEpoch()
    const standIns = given.map((x, i) => (isInexact(x.dtype) ? standIn(x, i) : null))
    const targets = pushforward(
      nodes,
      standIns,
      outputs.map((y) => y.node),
      epoch,
    )
    const varying = targets.flatMap((t) => (t ? [t.node] : []))
    const placeholders = standIns.flatMap((t) => (t ? [t.node] : []))
    // The arrays themselves are not kept, so that their memory can be released.
    const metas = given.map(({ node: { shape, dtype } }) => ({ shape: shape as number[], dtype }))
    const still = outputs.map((y, i) => (targets[i] ? null : zerosLike(y).node))
    const blank = new ArrayClass(sourceNode([], float32, null, Mark.Abstract))
    const template = asOutputs(
      withArrays(
        result,
        outputs.map(() => blank),
      ),
    )
    const linear = (...tangents: P): Outputs<R> => {
      const seeds = ofTrees("linearize", () => arraysOf(tangents))
      checkSeeds("linearize", "tangent", seeds, metas, "primal")
      const images = seeds.flatMap((seed, i): Node[] =>
        isInexact(metas[i].dtype) ? [toDtype(seed, metas[i].dtype).node] : [],
      )
      const moved = replay(varying, placeholders, images, start)
      let next = 0
      const arrays = still.map((zero) => new ArrayClass(zero ?? moved[next++]))
      return withArrays(template, arrays) as Outputs<R>
    }
    return [asOutputs(freshHandles(result)) as Outputs<R>, linear]
  })
}
