/**
 * The columns `compiled` and `memory`: a compiled call gives what the call gives, and what was used for a call is given back.
 */
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { backendFor, isInexact, lifetimes } from "@lazuli/core/engine"
import { jvp, vjp } from "@lazuli/transforms"
import { type Application, functionOf } from "./applications"
import type { Column } from "./column"
import { settingOf } from "./derivatives"
import { CheckFailure, expectClose, isExact } from "./values"

type Outputs = (...xs: mx.Array[]) => mx.Array[]

/** The functions to compile: the call, and where it has derivatives those too, with their directions as arguments. */
function* functionsOf(application: Application): Generator<[what: string, f: Outputs, inputs: mx.Array[]]> {
  const { inputs } = application
  const f = functionOf(application)
  yield ["", f, [...inputs]]
  const setting = settingOf(application, true)
  if (typeof setting === "string") return
  const { smooth, ts, cs } = setting
  // Every input is an argument, those without derivatives too: none is a constant of the trace.
  const along = (rule: (g: Outputs, xs: mx.Array[], seeds: mx.Array[]) => mx.Array[]): Outputs => {
    return (...all) => {
      const full = all.slice(0, inputs.length)
      const xs = smooth.map((k) => full[k])
      const g: Outputs = (...ys) => f(...full.map((x, k) => (smooth.includes(k) ? ys[smooth.indexOf(k)] : x)))
      return rule(g, xs, all.slice(inputs.length))
    }
  }
  yield [
    " of its jvp",
    along((g, xs, seeds) => jvp(g, xs, seeds)[1]),
    [...inputs, ...smooth.map((k) => ts[k])],
  ]
  yield [" of its vjp", along((g, xs, seeds) => vjp(g, xs, seeds)[1]), [...inputs, ...cs]]
}

/** Compiled against eager, from the first call on: the call, its jvp and its vjp by all floating inputs together. */
export const compiledColumn: Column = {
  name: "compiled",
  check(application: Application) {
    if (application.inputs.length === 0) return "no inputs"
    for (const [what, f, inputs] of functionsOf(application)) {
      const compiled = compile((...xs: mx.Array[]) => f(...xs))
      const want = f(...inputs)
      for (const call of ["first", "second"]) {
        compiled(...inputs).forEach((y, i) =>
          expectClose(`output ${i} of the ${call} call${what}`, y, want[i], isExact(want) ? 1e-12 : 1e-5),
        )
      }
    }
    return null
  },
}

const ROUNDS = 12
const LOOKS = 3

/** Bytes and blocks in use before a call and its gradient are in use after it, when nothing of it can be read any more. */
export const memoryColumn: Column = {
  name: "memory",
  check(application: Application) {
    const { memory } = backendFor(mx.defaultDevice())
    if (!memory.stats || !memory.tracker) return `${memory.name} does not tell what is in use`
    const { primitive } = application
    const inputs = [...application.inputs]
    const f = functionOf(application)
    const smooth = inputs.every((x) => isInexact(x.dtype)) && inputs.length > 0 && !primitive.facts.opaque
    const use = (): void => {
      const outputs = f(...inputs)
      mx.eval(outputs)
      if (!smooth || !outputs.every((y) => isInexact(y.dtype))) return
      const [, grads] = vjp(
        f,
        inputs,
        outputs.map((y) => mx.onesLike(y)),
      )
      mx.eval(grads)
    }
    const inUse = (): { active: number; buffers: number } => {
      lifetimes.collectGarbage()
      return memory.stats?.() ?? { active: 0, buffers: 0 }
    }
    use()
    let before = inUse()
    let after = before
    // A leak leaves something in each round, whenever one looks. A collector that is late leaves more once.
    for (let look = 0; look < LOOKS; look++) {
      before = after
      for (let i = 0; i < ROUNDS; i++) use()
      after = inUse()
      if (after.buffers < before.buffers + ROUNDS) return null
    }
    throw new CheckFailure(
      `${before.active} bytes in ${before.buffers} buffers were in use before, ${after.active} in ${after.buffers} after`,
    )
  },
}
