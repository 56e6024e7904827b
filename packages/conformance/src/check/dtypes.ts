/**
 * The column `dtypes`: derivatives in float32, float16, bfloat16 and complex64, wherever a primitive takes them. The columns jvp and vjp
 * hold them to difference quotients in float64; here they are held to those in float64, to each other, and to the dtypes of what they
 * belong to.
 */
import * as mx from "@lazuli/core"
import { isInexact, type Primitive } from "@lazuli/core/engine"
import { jvp, vjp } from "@lazuli/transforms"
import { type Application, functionOf } from "./applications"
import type { Column } from "./column"
import { onReference, type Setting, settingOf, slopes } from "./derivatives"
import { converted } from "./layouts"
import { CheckFailure, dot, flat } from "./values"

/** The dtypes tried, and by how much of the largest number results may be off: rules round after each operation. */
const TRIED: readonly (readonly [mx.Dtype, number])[] = [
  [mx.float32, 3e-5],
  [mx.float16, 8e-3],
  [mx.bfloat16, 6e-2],
  [mx.complex64, 5e-5],
]

/** The application with its main floating inputs in another dtype, and null where the primitive does not take them. */
function inDtype(application: Application, dtype: mx.Dtype): Application | null {
  const { inputs } = application
  const first = inputs.find((x) => isInexact(x.dtype))?.dtype
  const replaced = inputs.map((x) => (x.dtype === first ? converted(x, dtype, "as given") : x))
  try {
    mx.eval(replaced, functionOf(application)(...replaced))
    return { ...application, inputs: replaced }
  } catch (error) {
    if (error instanceof mx.LazuliError) return null
    throw error
  }
}

const kind = (a: mx.Array): string => `${a.dtype.name}[${a.shape}]`

function expectKinds(got: readonly (mx.Array | null)[], like: readonly mx.Array[], what: string): void {
  got.forEach((g, i) => {
    if (g && isInexact(like[i].dtype) && kind(g) !== kind(like[i]))
      throw new CheckFailure(`${what} ${i} is ${kind(g)}, what it belongs to ${kind(like[i])}`)
  })
}

/**
 * Checks what the rules themselves give: transforms turn it into the dtype it should have had. Of elementwise ones they also fit the shape.
 */
function checkRules(primitive: Primitive, { params, inputs }: Application, setting: Setting): void {
  const { smooth, outputs, ts, cs } = setting
  const { rules, elementwise } = primitive
  const fits = (list: readonly (mx.Array | null)[], like: readonly mx.Array[]): (mx.Array | null)[] =>
    elementwise ? list.map((g, i) => (g ? mx.zeros(like[i].shape as number[], g.dtype) : null)) : [...list]
  if (rules.vjp) {
    const wanted = inputs.map((_, i) => smooth.includes(i))
    const given = rules.vjp({ inputs, outputs, cotangents: cs, params, wanted })
    const chosen = given.map((g, i) => (wanted[i] ? g : null))
    expectKinds(fits(chosen, inputs), inputs, "its vjp rule's cotangent")
  }
  if (rules.jvp) {
    const tangents = ts.map((t, i) => (smooth.includes(i) ? t : null))
    expectKinds(
      fits(rules.jvp({ inputs, outputs, tangents, params }), outputs),
      outputs,
      "its jvp rule's tangent",
    )
  }
  if (!rules.partials || outputs.length > 1) return
  for (const k of smooth) {
    const partial = rules.partials(inputs, outputs[0], params, k)
    // Of a real output by a complex input it is a complex gradient.
    if (!(partial instanceof mx.Array) || partial.dtype === mx.complex64) continue
    if (partial.dtype !== outputs[0].dtype)
      throw new CheckFailure(
        `its partial derivative w.r.t. input ${k} is ${partial.dtype.name} of an output in ${outputs[0].dtype.name}`,
      )
  }
}

/** The difference that two lists of numbers may have. */
const scaleOf = (list: readonly number[]): number => {
  let largest = 0
  for (const v of list) if (Math.abs(v) > largest && Number.isFinite(v)) largest = Math.abs(v)
  return largest
}

function checkDtype(application: Application, setting: Setting, dtype: mx.Dtype, tolerance: number): void {
  const { primitive, inputs } = application
  const { smooth, by, counted, outputs, ts, cs } = setting
  const xs = smooth.map((k) => inputs[k])
  const directions = smooth.map((k) => ts[k])
  const [, tangents] = jvp(by(smooth), xs, directions)
  const [, grads] = vjp(by(smooth), xs, cs)
  expectKinds(tangents, outputs, "tangent")
  expectKinds(grads, xs, "cotangent")
  checkRules(primitive, application, setting)
  // ⟨c, J·t⟩ = ⟨Jᴴ·c, t⟩
  const norm = (list: readonly mx.Array[]): number => Math.hypot(...list.map((a) => Math.sqrt(dot(a, a))))
  const forward = counted.reduce((sum, i) => sum + dot(cs[i], tangents[i]), 0)
  const back = grads.reduce((sum, g, k) => sum + dot(g, directions[k]), 0)
  const size = norm(counted.map((i) => cs[i])) * norm(counted.map((i) => tangents[i]))
  const allowed = tolerance * Math.max(1e-3, Math.min(size, norm(grads) * norm(directions)))
  if (Number.isFinite(forward) && !(Math.abs(forward - back) <= allowed))
    throw new CheckFailure(`⟨c, J·t⟩ is ${forward}, ⟨Jᴴ·c, t⟩ ${back}`)
  // A result with a choice to make changes as it likes under small changes; in real numbers the choice is a sign, which stays.
  if (primitive.facts.stopsGradient || (primitive.facts.ambiguous && dtype === mx.complex64)) return
  const wants =
    dtype === mx.complex64 ? quotients(setting, xs, directions) : wideTangents(application, setting)
  counted.forEach((i, at) => {
    const [got, want] = [flat(tangents[i]), wants[at]]
    const near = (dtype === mx.complex64 ? 3e-2 : tolerance) * (1e-3 + scaleOf(want))
    want.forEach((v, k) => {
      if (Number.isFinite(v) && !(Math.abs(got[k] - v) <= near))
        throw new CheckFailure(`element ${k} of tangent ${i} is ${got[k]}, expected ${v}`)
    })
  })
}

/** The tangents of the counted outputs in float64, at the very numbers that stand in the inputs. */
function wideTangents(application: Application, { smooth, counted, ts }: Setting): number[][] {
  const { inputs } = application
  const first = inputs.find((x) => isInexact(x.dtype))?.dtype
  const wide = (x: mx.Array): mx.Array => (x.dtype === first ? x.astype(mx.float64) : x)
  const xs = inputs.map(wide)
  const f = functionOf(application)
  const g = (...ys: mx.Array[]): mx.Array[] =>
    f(...xs.map((x, k) => (smooth.includes(k) ? ys[smooth.indexOf(k)] : x)))
  const [, tangents] = jvp(
    g,
    smooth.map((k) => xs[k]),
    smooth.map((k) => wide(ts[k])),
  )
  return counted.map((i) => flat(tangents[i]))
}

/** Difference quotients of the counted outputs, in single precision. */
function quotients({ by, smooth, counted }: Setting, xs: mx.Array[], directions: mx.Array[]): number[][] {
  const f = by(smooth)
  return counted.map((i) =>
    slopes((h) => f(...xs.map((x, k) => x.add(directions[k].multiply(h).astype(x.dtype))))[i], 1e-2, 2e-2),
  )
}

/** Derivatives in the dtypes that are not float64. */
export const dtypesColumn: Column = {
  name: "dtypes",
  check: onReference((application) => {
    const whole = settingOf(application)
    if (typeof whole === "string") return whole
    checkRules(application.primitive, application, whole)
    let checked = 0
    for (const [dtype, tolerance] of TRIED) {
      const variant = inDtype(application, dtype)
      const found = variant && settingOf(variant)
      if (!variant || !found || typeof found === "string") continue
      // An output that is saved for kernels alone, of a dtype of its own, says nothing in this dtype either.
      const counted = found.counted.filter((i) => whole.counted.includes(i))
      const cs = found.cs.map((c, i) => (counted.includes(i) ? c : mx.zerosLike(c)))
      const setting = { ...found, counted, cs }
      checked++
      try {
        checkDtype(variant, setting, dtype, tolerance)
      } catch (error) {
        if (!(error instanceof CheckFailure || error instanceof mx.LazuliError)) throw error
        throw new CheckFailure(`in ${dtype.name}: ${error.message}`)
      }
    }
    return checked > 0 ? null : "takes no other floating dtype"
  }),
}
