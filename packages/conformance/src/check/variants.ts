/**
 * Applications like a given one: in other dtypes, with other numbers, of empty arrays.
 */
import * as mx from "@lazuli/core"
import { dtypes as allDtypes, type Dtype, decompose, isInexact, type Node } from "@lazuli/core/engine"
import { type Application, functionOf } from "./applications"
import { converted, type Filling } from "./layouts"
import { isHermitian } from "./values"

/** Options of the variants to make. */
export interface VariantOptions {
  /** All by default. */
  readonly dtypes?: readonly Dtype[]
  readonly fillings?: readonly Filling[]
  /** Sizes of axes to try besides the inputs' own; 1 and 7 by default. */
  readonly drawnSizes?: readonly number[]
}

/** Other inputs for an application. */
export interface Variant {
  readonly inputs: readonly mx.Array[]
  readonly what: string
  /** The numbers that stand in the inputs. */
  readonly filling: Filling
  /** True if the inputs may be anything: what a layout repeats may be repeated. */
  readonly free: boolean
  /** The layouts to try it in; all by default. */
  readonly layouts?: readonly string[]
}

/**
 * True if the reference leaves an input out. Then it holds what follows from the others, saved for kernels (the log-sum-exps of attention),
 * and other numbers in its place would be nonsense.
 */
function hasSavedInputs({ primitive, params, inputs }: Application): boolean {
  if (!primitive.rules.decompose) return false
  const fresh = inputs.map((x) => mx.contiguous(x))
  const seen = new Set<Node>()
  const stack = [...decompose(primitive, fresh, params)].map(({ node }) => node)
  for (let node = stack.pop(); node !== undefined; node = stack.pop()) {
    if (seen.has(node)) continue
    seen.add(node)
    stack.push(...node.inputs)
  }
  return fresh.some(({ node }) => !seen.has(node))
}

const shapesOf = (outputs: readonly mx.Array[]): string => outputs.map(({ shape }) => `[${shape}]`).join()

/** Variants of an application, the one that is given first. */
export function* variants(application: Application, options: VariantOptions = {}): Generator<Variant> {
  const { inputs } = application
  const {
    dtypes = allDtypes,
    fillings = ["as given", "of both signs", "special"],
    drawnSizes = FEW,
  } = options
  const free = !hasSavedInputs(application)
  yield { inputs, what: "as given", filling: "as given", free }
  const first = inputs.find((x) => isInexact(x.dtype))?.dtype
  const floats = inputs.flatMap((x, i) => (x.dtype === first ? [i] : []))
  // An operand beside floats that is an index, a mask, or always of another float dtype stays.
  const main = floats.length > 0 ? floats : inputs.map((_, i) => i)
  for (const dtype of dtypes) {
    if (!free && !isInexact(dtype)) continue
    for (const filling of fillings) {
      if (filling !== "as given" && (!free || (filling === "special" && dtype.kind === "bool"))) continue
      const replaced = inputs.map((x, i) => (main.includes(i) ? converted(x, dtype, filling) : x))
      yield { inputs: replaced, what: `${dtype.name}, ${filling}`, filling, free }
    }
  }
  const isIndex = (x: mx.Array): boolean =>
    floats.length > 0 && !isInexact(x.dtype) && x.dtype.kind !== "bool"
  for (const dtype of inputs.some(isIndex) ? dtypes : []) {
    if (isInexact(dtype) || dtype.kind === "bool") continue
    yield {
      inputs: inputs.map((x) => (isIndex(x) ? x.astype(dtype) : x)),
      what: `indices in ${dtype.name}`,
      filling: "as given",
      free,
    }
  }
  yield* empty(application)
  if (free)
    yield* resized(application, main, dtypes.includes(mx.float32) ? mx.float32 : dtypes[0], drawnSizes)
}

/** Elements at which kernels are not made of whole vectors, and operands may be passed in other ways than large ones. */
const FEW = [1, 7]
const FEW_LAYOUTS = ["row-major", "strided", "offset"]

/** An input whose axes have other sizes: its elements again and again, a little smaller each time. */
function withSizes(x: mx.Array, sizeOf: (size: number) => number): mx.Array {
  let y = x
  let grows = false
  x.shape.forEach((n, axis) => {
    const size = sizeOf(n)
    if (size === n) return
    grows ||= size > n
    y = mx.take(y, mx.arange(size).remainder(n).astype(mx.int32), axis)
  })
  if (!grows || !isInexact(x.dtype)) return y
  const shrunk = mx.arange(y.size).multiply(7).remainder(13).multiply(-0.05).add(1).reshape(y.shape)
  return y.multiply(shrunk.astype(x.dtype))
}

/** Inputs whose axes of one size have so many elements, one after the other of `few`, and all others one. */
function* resized(
  application: Application,
  main: readonly number[],
  dtype: Dtype,
  few: readonly number[],
): Generator<Variant> {
  const { inputs } = application
  const f = functionOf(application)
  const shapes = shapesOf(f(...inputs))
  const sizes = [...new Set(inputs.flatMap(({ shape }) => shape))].filter((n) => n > 0)
  if (inputs.some(({ size }) => size === 0)) return
  for (const each of sizes)
    for (const size of few) {
      const to = (n: number): number => (n === each ? size : 1)
      if (size > each && inputs.some(isHermitian)) continue
      const changed = inputs.map((x, i) => {
        const small = withSizes(x, to)
        return main.includes(i) ? converted(small, dtype, "as given") : small
      })
      try {
        // Where the result's shape is a parameter's, other sizes do not go with it.
        if (shapesOf(f(...changed)) === shapes) continue
      } catch (error) {
        if (error instanceof mx.LazuliError) continue
        throw error
      }
      const what = `${dtype.name}, axes of ${each} with ${size}, others with 1`
      yield { inputs: changed, what, filling: "as given", free: false, layouts: FEW_LAYOUTS }
    }
}

function* empty(application: Application): Generator<Variant> {
  const { inputs } = application
  const f = functionOf(application)
  const shapes = shapesOf(f(...inputs))
  const rank = Math.max(0, ...inputs.map((x) => x.ndim))
  for (let axis = 0; axis < rank; axis++) {
    const emptied = inputs.map((x) =>
      x.ndim > axis ? x.index(...x.shape.map((_, i) => (i === axis ? "0:0" : ":"))) : x,
    )
    try {
      // Where the result's shape is a parameter's, empty inputs do not go with it.
      if (shapesOf(f(...emptied)) === shapes) continue
    } catch (error) {
      if (error instanceof mx.LazuliError) continue
      throw error
    }
    yield { inputs: emptied, what: `empty along axis ${axis}`, filling: "as given", free: true }
  }
}
