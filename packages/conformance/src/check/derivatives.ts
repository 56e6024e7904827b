/**
 * The columns `jvp`, `vjp` and `second order`: against finite differences, and against each other, by every subset of the arguments.
 */
import * as mx from "@lazuli/core"
import { isInexact } from "@lazuli/core/engine"
import { jvp, vjp } from "@lazuli/transforms"
import { onBackendNamed } from "../backend-choice"
import { type Application, functionOf } from "./applications"
import type { Column } from "./column"
import { CheckFailure, direction, dot, expectClose, flat, isExact } from "./values"

/** So many items have each of their subsets tried. */
const EVERY_SUBSET_OF = 6

/** All subsets but the empty one; of more than six items those of one, of two, all, and all but one. */
export function subsets(items: readonly number[]): number[][] {
  if (items.length > EVERY_SUBSET_OF) {
    const pairs = items.flatMap((i, at) => items.slice(at + 1).map((k) => [i, k]))
    const others = items.map((i) => items.filter((k) => k !== i))
    return [...items.map((i) => [i]), ...pairs, [...items], ...others]
  }
  const all: number[][] = []
  for (let bits = 1; bits < 2 ** items.length; bits++) all.push(items.filter((_, i) => (bits >> i) & 1))
  return all
}

/** The settings of a check of derivatives. */
export interface Setting {
  /** The function of some inputs, the others fixed. */
  by(which: readonly number[]): (...xs: mx.Array[]) => mx.Array[]
  /** The inputs that have derivatives. */
  readonly smooth: number[]
  /** The outputs whose differences say something. */
  readonly counted: number[]
  readonly outputs: mx.Array[]
  /** A direction for each input. */
  readonly ts: mx.Array[]
  /** A cotangent for each output. */
  readonly cs: mx.Array[]
  readonly exact: boolean
}

/**
 * A check of rules: they are held to the reference, so it runs on the reference backend. A kernel may make more of inputs that belong
 * together than the reference does.
 */
export function onReference(check: Column["check"]): Column["check"] {
  return (application) => onBackendNamed("reference", () => check(application))
}

/** The function to differentiate, or why there is none: what a user's own rules give is no matter unless they are `own`. */
export function settingOf(application: Application, own = false): Setting | string {
  const { inputs, primitive } = application
  if (primitive.facts.opaque && !own) return "a user's own rules need not match the function"
  const smooth = inputs.flatMap((x, i) => (isInexact(x.dtype) ? [i] : []))
  if (smooth.length === 0) return "no floating inputs"
  const all = functionOf(application)
  const outputs = all(...inputs)
  // Of outputs in float32 beside others in float64, the differences say nothing.
  const counted = outputs.flatMap(({ dtype }, i) =>
    isInexact(dtype) && (dtype === mx.float64 || !outputs.some((y) => y.dtype === mx.float64)) ? [i] : [],
  )
  if (counted.length === 0) return "no floating outputs"
  return {
    smooth,
    counted,
    outputs,
    by:
      (which) =>
      (...xs) => {
        const full = inputs.slice()
        which.forEach((k, i) => {
          full[k] = xs[i]
        })
        return all(...full)
      },
    ts: inputs.map((x, i) => (isInexact(x.dtype) ? direction(x, 7 + 2 * i) : x)),
    cs: outputs.map((y, i) => (counted.includes(i) ? direction(y, 31 + 2 * i) : mx.zerosLike(y))),
    exact: isExact([...inputs, ...outputs]),
  }
}

/** The slopes of f at 0, element by element; NaN where the slopes on both sides differ: at a kink, a jump, or beyond what is finite. */
export function slopes(f: (h: number) => mx.Array, step: number, kink = Math.sqrt(step)): number[] {
  const [before, here, after] = [f(-step), f(0), f(step)].map(flat)
  return here.map((v, i) => {
    const [left, right] = [(v - before[i]) / step, (after[i] - v) / step]
    return Math.abs(left - right) <= kink * (1 + Math.abs(left)) ? (left + right) / 2 : Number.NaN
  })
}

/** J·t against finite differences in float64 where the inputs are, for every subset of the inputs. */
export const jvpColumn: Column = {
  name: "jvp",
  check: onReference((application) => {
    const setting = settingOf(application)
    if (typeof setting === "string") return setting
    if (application.primitive.facts.stopsGradient) return "derivatives stop here"
    const { by, smooth, counted, ts, exact } = setting
    const [step, tolerance] = exact ? [1e-6, 1e-6] : [1e-2, 3e-2]
    let compared = 0
    for (const which of subsets(smooth)) {
      const f = by(which)
      const xs = which.map((k) => application.inputs[k])
      const [outputs, tangents] = jvp(
        f,
        xs,
        which.map((k) => ts[k]),
      )
      for (const i of counted) {
        const [y, t] = [outputs[i], tangents[i]]
        if (t.dtype !== y.dtype || t.shape.join() !== y.shape.join())
          throw new CheckFailure(
            `w.r.t. inputs ${which}: the tangent is ${t.dtype.name}[${t.shape}] of an output ${y.dtype.name}[${y.shape}]`,
          )
        const got = flat(t)
        const at = (h: number): mx.Array => f(...xs.map((x, k) => x.add(ts[which[k]].multiply(h))))[i]
        slopes(at, step).forEach((slope, k) => {
          if (Number.isNaN(slope)) return
          compared++
          if (!(Math.abs(got[k] - slope) <= tolerance * (1 + Math.abs(slope))))
            throw new CheckFailure(
              `w.r.t. inputs ${which}: element ${k} of output ${i} is ${got[k]}, the difference quotient ${slope}`,
            )
        })
      }
    }
    return compared > 0 ? null : "no element has a slope here"
  }),
}

/** ⟨c, J·t⟩ = ⟨Jᵀ·c, t⟩ for every subset of the inputs, and each cotangent is its input's in shape and dtype. */
export const vjpColumn: Column = {
  name: "vjp",
  check: onReference((application) => {
    const setting = settingOf(application)
    if (typeof setting === "string") return setting
    const { by, smooth, counted, ts, cs, exact } = setting
    const near = exact ? 1e-9 : 1e-4
    const whole = vjp(
      by(smooth),
      smooth.map((k) => application.inputs[k]),
      cs,
    )[1]
    for (const which of subsets(smooth)) {
      const xs = which.map((k) => application.inputs[k])
      const directions = which.map((k) => ts[k])
      const [, tangents] = jvp(by(which), xs, directions)
      const [, grads] = vjp(by(which), xs, cs)
      grads.forEach((g, i) => {
        if (g.dtype !== xs[i].dtype || g.shape.join() !== xs[i].shape.join())
          throw new CheckFailure(
            `w.r.t. inputs ${which}: the cotangent is ${g.dtype.name}[${g.shape}] of an input ${xs[i].dtype.name}[${xs[i].shape}]`,
          )
        expectClose(`w.r.t. inputs ${which} of ${smooth}`, g, whole[smooth.indexOf(which[i])], near)
      })
      const forward = counted.reduce((sum, i) => sum + dot(cs[i], tangents[i]), 0)
      const back = grads.reduce((sum, g, k) => sum + dot(g, directions[k]), 0)
      if (Number.isFinite(forward) && !(Math.abs(forward - back) <= near * (1 + Math.abs(forward))))
        throw new CheckFailure(`w.r.t. inputs ${which}: ⟨c, J·t⟩ is ${forward}, ⟨Jᵀ·c, t⟩ ${back}`)
    }
    return null
  }),
}

/** The derivative of the gradients: against finite differences of them, forward over reverse and reverse over reverse. */
export const secondOrderColumn: Column = {
  name: "second order",
  check: onReference((application) => {
    const setting = settingOf(application)
    if (typeof setting === "string") return setting
    const { by, smooth, ts, cs, exact } = setting
    if (!exact) return "not in float64"
    if (application.primitive.facts.stopsGradient) return "derivatives stop here"
    const xs = smooth.map((k) => application.inputs[k])
    const directions = smooth.map((k) => ts[k])
    const gradients = (...ys: mx.Array[]): mx.Array[] => vjp(by(smooth), ys, cs)[1]
    const [, curved] = jvp(gradients, xs, directions)
    curved.forEach((t, i) => {
      const at = (h: number): mx.Array => gradients(...xs.map((x, k) => x.add(directions[k].multiply(h))))[i]
      const got = flat(t)
      slopes(at, 1e-6).forEach((slope, k) => {
        if (Number.isNaN(slope) || Math.abs(got[k] - slope) <= 3e-5 * (1 + Math.abs(slope))) return
        throw new CheckFailure(
          `forward over reverse: element ${k} w.r.t. input ${smooth[i]} is ${got[k]}, the difference quotient ${slope}`,
        )
      })
    })
    const twice = vjp(gradients, xs, directions)[1]
    const [a, b] = [twice, curved].map((list) => list.reduce((sum, g, i) => sum + dot(g, directions[i]), 0))
    if (Number.isFinite(b) && !(Math.abs(a - b) <= 1e-7 * (1 + Math.abs(b))))
      throw new CheckFailure(`reverse over reverse gives ${a} along a direction, forward over reverse ${b}`)
    return null
  }),
}
