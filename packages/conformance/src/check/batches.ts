/**
 * The column `vmap`: a batch gives what a loop over its examples gives, whichever inputs have a batch axis and wherever it is.
 */
import * as mx from "@lazuli/core"
import { isInexact } from "@lazuli/core/engine"
import { vmap, vmapLoops } from "@lazuli/transforms"
import { functionOf } from "./applications"
import type { Column } from "./column"
import { onReference, subsets } from "./derivatives"
import { CheckFailure, expectClose, isExact } from "./values"

/** Another example like `x`: numbers moved a little, everything else reversed. */
const another = (x: mx.Array): mx.Array =>
  isInexact(x.dtype) ? x.multiply(0.9) : x.ndim > 0 ? x.index("::-1") : x

/** The inputs, with those others that are not refused alone, as offsets that descend are. */
const unrefused = (
  f: (...xs: mx.Array[]) => mx.Array[],
  inputs: readonly mx.Array[],
  others: readonly mx.Array[],
): mx.Array[] =>
  others.map((other, i) => {
    try {
      mx.eval(f(...inputs.map((x, k) => (k === i ? other : x))))
      return other
    } catch (error) {
      if (error instanceof mx.IndexError) return inputs[i]
      throw error
    }
  })

/** Where the batch axis may stand. */
const BATCH_AXES: Readonly<Record<string, (x: mx.Array, i: number) => number>> = {
  first: () => 0,
  last: (x) => x.ndim,
  "first and last in turn": (x, i) => (i % 2 ? 0 : x.ndim),
  second: (x) => Math.min(1, x.ndim),
}

/** Runs a batch; an error says which, but for indices, which may not be meant for each other. */
function batch<T>(run: () => T, what: string): T {
  try {
    return run()
  } catch (error) {
    if (error instanceof mx.IndexError) throw error
    if (!(error instanceof CheckFailure || error instanceof mx.LazuliError)) throw error
    throw new CheckFailure(`${what}: ${error.message}`)
  }
}

/** Compares batches of the inputs and the others with a loop, over every subset of the inputs. */
function compareWithLoops(
  f: (...xs: mx.Array[]) => mx.Array[],
  inputs: readonly mx.Array[],
  others: readonly mx.Array[],
  exact: boolean,
): void {
  for (const batched of subsets(inputs.map((_, i) => i))) {
    const examples = [0, 1, 0].map((k) =>
      f(...inputs.map((x, i) => (k === 1 && batched.includes(i) ? others[i] : x))),
    )
    const want = examples[0].map((_, i) => mx.stack(examples.map((example) => example[i])))
    const tried = new Set<string>()
    for (const [name, axisOf] of Object.entries(BATCH_AXES)) {
      const inAxes = inputs.map((x, i) => (batched.includes(i) ? axisOf(x, i) : null))
      if (tried.has(inAxes.join())) continue
      tried.add(inAxes.join())
      const stacked = inputs.map((x, i) => (inAxes[i] === null ? x : mx.stack([x, others[i], x], inAxes[i])))
      const got = batch(
        () => vmap(f, { inAxes, outAxes: 0 })(...stacked),
        `over inputs ${batched}, batch axis ${name}`,
      )
      got.forEach((y, i) =>
        expectClose(
          `over inputs ${batched}, batch axis ${name}`,
          y,
          want[i],
          exact && y.dtype === mx.float64 ? 1e-10 : 1e-4,
        ),
      )
    }
  }
}

/** `vmap` against a loop. */
export const vmapColumn: Column = {
  name: "vmap",
  check: onReference((application) => {
    const { inputs, primitive } = application
    if (primitive.facts.opaque) return "a user's own rules need not match the function"
    if (inputs.length === 0) return "no inputs"
    const f = functionOf(application)
    const others = inputs.map(another)
    const exact = isExact(inputs)
    const before = vmapLoops()[primitive.name]
    try {
      compareWithLoops(f, inputs, others, exact)
    } catch (error) {
      if (!(error instanceof mx.IndexError)) throw error
      compareWithLoops(f, inputs, unrefused(f, inputs, others), exact)
    }
    if (vmapLoops()[primitive.name] !== before)
      throw new CheckFailure("has no rule: it runs example by example")
    return null
  }),
}
