/**
 * The columns `shapeless` and `export`: public calls are traced once, and made again for other sizes, or from a file.
 */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { compile, exportFunction, importFunction } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { callNamed, isInexact } from "@lazuli/core/engine"
import type { Application, PublicCall } from "./applications"
import type { Column } from "./column"
import { expectClose, isExact } from "./values"

type Outputs = (...xs: mx.Array[]) => mx.Array[]

/** The public call that an application was found in, as a list of outputs; that of the primitive itself where it was given directly. */
function callOf({
  call,
  primitive,
  params,
  inputs,
}: Application): [f: Outputs, inputs: readonly mx.Array[]] | null {
  if (call) return [(...xs) => [call.f(...xs)].flat(), call.inputs]
  const apply = callNamed(`primitive ${primitive.name}, all outputs`) as
    | ((xs: readonly mx.Array[], params: unknown) => mx.Array[])
    | null
    | undefined
  return apply ? [(...xs) => apply(xs, params), inputs] : null
}

/** A check of calls is done once for each of them: many primitives occur in one. */
function oncePerCall(check: (f: Outputs, inputs: readonly mx.Array[]) => string | null): Column["check"] {
  const known = new WeakMap<PublicCall, string | null>()
  return (application) => {
    const { call } = application
    const seen = call && known.get(call)
    if (seen !== undefined) return seen
    const made = callOf(application)
    if (made === null) return "has no call that programs may name"
    const [f, inputs] = made
    if (inputs.length === 0) return "no inputs"
    const said = check(f, inputs)
    if (call) known.set(call, said)
    return said
  }
}

function expectSame(what: string, got: readonly mx.Array[], want: readonly mx.Array[]): void {
  want.forEach((y, i) => expectClose(`output ${i} ${what}`, got[i], y, isExact(want) ? 1e-12 : 1e-5))
}

/** Other numbers of the same kind: floats moved a little, everything else reversed. */
const another = (x: mx.Array): mx.Array =>
  isInexact(x.dtype) ? x.multiply(0.9) : x.ndim > 0 ? x.index("::-1") : x

/** Two matrices along the diagonal of one: what must be square, symmetric or regular stays so. */
const blocks = (x: mx.Array): mx.Array => {
  const [rows, columns] = x.shape
  return mx
    .pad(x, [
      [0, rows],
      [0, columns],
    ])
    .add(
      mx.pad(another(x), [
        [rows, 0],
        [columns, 0],
      ]),
    )
}

/** Inputs twice as long along their first axes or their last ones, all of them or one beside the others; matrices along both. */
function* doubled(inputs: readonly mx.Array[]): Generator<{ inputs: mx.Array[]; what: string }> {
  const chosen = inputs.length > 1 ? [inputs.map((_, i) => i), ...inputs.map((_, i) => [i])] : [[0]]
  for (const axis of [0, -1])
    for (const which of chosen) {
      if (which.every((i) => inputs[i].ndim === 0)) continue
      yield {
        inputs: inputs.map((x, i) =>
          which.includes(i) && x.ndim > 0 ? mx.concatenate([x, another(x)], axis) : x,
        ),
        what: `inputs ${which} twice as long along axis ${axis}`,
      }
    }
  if (inputs.every((x) => x.ndim === 2))
    yield { inputs: inputs.map(blocks), what: "matrices twice as long along both axes" }
}

/** The function's results, or null where it does not take such arguments. */
function eagerly(f: Outputs, inputs: readonly mx.Array[]): mx.Array[] | null {
  try {
    const outputs = f(...inputs)
    mx.eval(outputs)
    return outputs
  } catch (error) {
    if (error instanceof mx.LazuliError) return null
    throw error
  }
}

/** One trace serves other sizes: the call is traced as it is, and made with inputs twice as long wherever it takes such. */
export const shapelessColumn: Column = {
  name: "shapeless",
  check: oncePerCall((f, inputs) => {
    const compiled = compile((...xs: mx.Array[]) => f(...xs), { shapeless: true })
    expectSame("as traced", compiled(...inputs), f(...inputs))
    let sizes = 0
    for (const other of doubled(inputs)) {
      const want = eagerly(f, other.inputs)
      if (want === null) continue
      sizes++
      expectSame(`with ${other.what}`, compiled(...other.inputs), want)
      // Calls that look at sizes outside of operations are right, but traced for each.
      if (compiled.stats().traces > 1) throw new Error(`is traced anew with ${other.what}`)
    }
    return sizes > 0 ? null : "takes no other sizes"
  }),
}

/** A call that comes back from a file gives for other numbers what the call gives. */
export const exportColumn: Column = {
  name: "export",
  check: oncePerCall((f, inputs) => {
    const folder = mkdtempSync(join(tmpdir(), "lazuli-conformance-"))
    try {
      const file = join(folder, "call.lazuli")
      exportFunction(file, (...xs: mx.Array[]) => f(...xs), [...inputs])
      const others = inputs.map(another)
      const imported = importFunction<mx.Array[], mx.Array[]>(file)
      expectSame("from a file", imported(...others), f(...others))
      return null
    } catch (error) {
      // Files hold no functions: custom functions, checkpoints and kernels from source are refused by design.
      if (error instanceof mx.TransformError && error.message.includes("It depends on code"))
        return error.message
      throw error
    } finally {
      rmSync(folder, { recursive: true, force: true })
    }
  }),
}
