/**
 * A backend's column: its kernel, or what it does for want of one, gives what the reference gives on the reference backend, over dtypes,
 * fillings and layouts, for empty arrays too.
 */
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { isInexact, type Primitive } from "@lazuli/core/engine"
import { backendNamed, onBackendNamed } from "../backend-choice"
import { type HostValues, hostOf } from "../golden/compare"
import { type Application, functionOf } from "./applications"
import type { Column } from "./column"
import { INVARIANTS, type Invariant, pairsOf, type Result } from "./invariants"
import { arrayFrom, broadcastable, type Filling, type HostInput, hostInput, LAYOUTS } from "./layouts"
import { CheckFailure } from "./values"
import { type VariantOptions, variants } from "./variants"

/** Options of the comparison of a backend with the reference. */
export interface KernelOptions extends VariantOptions {
  /** Names of {@link LAYOUTS}; all by default. */
  readonly layouts?: readonly string[]
  /** By name of a dtype: |got − want| ≤ tolerance · (1 + |want|). */
  readonly tolerances?: Readonly<Record<string, number>>
  /**
   * By name of a primitive with the fact `ambiguous`: what must hold of its results instead of being the reference's. Core's have theirs.
   */
  readonly invariants?: Readonly<Record<string, Invariant>>
  /** True to run what is compared through `compile`. */
  readonly compiled?: boolean
  /** Of the variants only those that this matches: `PRIMITIVE SAMPLE: VARIANT`. Asked of each before it runs. */
  readonly only?: Pick<RegExp, "test">
}

/** The differences that kernels may have for having added in another order. */
const TOLERANCES: Readonly<Record<string, number>> = {
  float16: 4e-3,
  bfloat16: 3e-2,
  float32: 3e-5,
  complex64: 6e-5,
  float64: 1e-11,
}

type Outputs = (...inputs: mx.Array[]) => mx.Array[]

function run(f: Outputs, inputs: readonly mx.Array[]): HostValues[] {
  const outputs = f(...inputs)
  mx.eval(outputs)
  return outputs.map(hostOf)
}

/**
 * The freedom of a kernel with NaN and infinities: of sums of products of several inputs, zeros that were added or left out decide whether
 * they are NaN. "where meant": what it likes, where the reference is not finite. "anywhere": NaN also where the reference leaves out
 * padding's zeros.
 */
type Leniency = "none" | "where meant" | "anywhere"

/** Primitives whose reference leaves out the zeros of padding, which kernels may multiply. */
const PADDED: ReadonlySet<string> = new Set(["conv"])
/** Primitives that divide by numbers of a matrix: a complex one by an infinity is 0, or NaN by the formula with |z|². */
const DIVIDING: ReadonlySet<string> = new Set(["solveTriangular"])

function leniencyOf({ primitive, inputs }: Application, filling: Filling, isComplex: boolean): Leniency {
  const sums = !primitive.elementwise && inputs.filter((x) => isInexact(x.dtype)).length > 1
  if (filling !== "special" || !sums) return "none"
  const isFree = PADDED.has(primitive.name) || (isComplex && DIVIDING.has(primitive.name))
  return isFree ? "anywhere" : "where meant"
}

/**
 * The signs and logarithms of determinants, the reference's where that finds a matrix singular and the kernel a determinant within its
 * tolerance of 0: rounding decides between the two.
 */
function withoutTinyDeterminants(
  [sign, log]: readonly HostValues[],
  [wantedSign, wantedLog]: readonly HostValues[],
  options: KernelOptions,
): HostValues[] {
  const tolerance = toleranceOf(sign.dtype, options)
  const isTiny = log.values.map(
    (v, i) => wantedLog.values[i] === Number.NEGATIVE_INFINITY && Math.exp(Number(v)) <= tolerance,
  )
  const parts = sign.dtype === "complex64" ? 2 : 1
  return [
    {
      ...sign,
      values: sign.values.map((v, i) => (isTiny[Math.floor(i / parts)] ? wantedSign.values[i] : v)),
    },
    { ...log, values: log.values.map((v, i) => (isTiny[i] ? wantedLog.values[i] : v)) },
  ]
}

/** The largest finite magnitude: a loop, because results may have more elements than a call has room for arguments. */
function largestOf(values: readonly (number | bigint)[]): number {
  let largest = 0
  for (const v of values) {
    const size = Math.abs(Number(v))
    if (size > largest && size < Infinity) largest = size
  }
  return largest
}

function expectKind(g: HostValues | undefined, w: HostValues, what: string, whose: string): void {
  if (g?.dtype !== w.dtype || g.shape.join() !== w.shape.join())
    throw new CheckFailure(`${what} is ${g?.dtype}[${g?.shape}], ${whose} ${w.dtype}[${w.shape}]`)
}

const toleranceOf = (dtype: string, options: KernelOptions): number =>
  options.tolerances?.[dtype] ?? TOLERANCES[dtype] ?? 0

/** Checks the invariants of an ambiguous primitive's result. Where the reference is not finite there is no choice to make. */
function compareInvariants(invariant: Invariant, result: Result, options: KernelOptions): void {
  const { outputs, reference } = result
  reference.forEach((w, k) => {
    expectKind(outputs[k], w, `output ${k}`, "the reference's")
  })
  if (!reference.every(({ values }) => values.every((v) => Number.isFinite(Number(v))))) {
    compare(outputs, reference, options, "none")
    return
  }
  let tolerance = 0
  for (const { dtype } of reference) tolerance = Math.max(tolerance, toleranceOf(dtype, options))
  for (const { what, got, want } of pairsOf(invariant, result)) {
    expectKind(got, want, what, "expected")
    const whole = toleranceOf(want.dtype, options) === 0
    const near = whole ? 0 : tolerance * (1 + largestOf(want.values))
    for (let i = 0; i < want.values.length; i++) {
      const [a, b] = [Number(got.values[i]), Number(want.values[i])]
      if (a !== b && !(Math.abs(a - b) <= near))
        throw new CheckFailure(`element ${i} of ${what} is ${a}, expected ${b}`)
    }
  }
}

function compare(
  got: readonly HostValues[],
  want: readonly HostValues[],
  options: KernelOptions,
  leniency: Leniency,
): void {
  want.forEach((w, k) => {
    const g = got[k]
    expectKind(g, w, `output ${k}`, "the reference's")
    const tolerance = toleranceOf(w.dtype, options)
    const largest = largestOf(w.values)
    const complex = w.dtype === "complex64"
    for (let i = 0; i < w.values.length; i++) {
      const [a, b] = [g.values[i], w.values[i]]
      if (a === b || (Number.isNaN(a) && Number.isNaN(b))) continue
      if (tolerance > 0 && Math.abs(Number(a) - Number(b)) <= tolerance * (1 + largest)) continue
      if (leniency !== "none" && !Number.isFinite(Number(b))) continue
      if (leniency === "anywhere" && !Number.isFinite(Number(a))) continue
      // Of a complex number that is not finite, what its parts are is nobody's business.
      const pair = (h: HostValues): number[] => [
        Number(h.values[i - (i % 2)]),
        Number(h.values[i - (i % 2) + 1]),
      ]
      if (complex && !pair(w).every(Number.isFinite)) continue
      throw new CheckFailure(`element ${i} of output ${k} is ${a}, the reference's ${b}`)
    }
  })
}

/** The layouts of the inputs: all one, and mixed. */
function arrangements(count: number, names: readonly string[]): string[][] {
  const uniform = names.map((name) => globalThis.Array.from({ length: count }, () => name))
  if (count < 2) return uniform
  return [
    ...uniform,
    ...names.map((_, k) =>
      globalThis.Array.from({ length: count }, (__, i) => names[(k + i) % names.length]),
    ),
  ]
}

function invariantOf({ name }: Primitive, options: KernelOptions): Invariant {
  const own = options.invariants?.[name]
  if (own) return own
  if (Object.hasOwn(INVARIANTS, name)) return INVARIANTS[name]
  throw new CheckFailure(
    `its results are ambiguous, and invariants["${name}"] does not say what holds of them`,
  )
}

/** Compares a backend with the reference backend. */
export function kernelColumn(backend: string, options: KernelOptions = {}): Column {
  const names = options.layouts ?? Object.keys(LAYOUTS)
  return {
    name: backend,
    check(application) {
      const { primitive, params } = application
      const invariant = primitive.facts.ambiguous ? invariantOf(primitive, options) : null
      const f = functionOf(application)
      const candidate = options.compiled ? compile(f) : f
      let [compared, refused, native] = [0, "", false]
      const referenceOf = (inputs: readonly HostInput[]): HostValues[] | null => {
        try {
          return onBackendNamed("reference", () => run(f, inputs.map(arrayFrom)))
        } catch (error) {
          // Calls that the reference refuses are no matter for kernels.
          if (!(error instanceof mx.LazuliError)) throw error
          refused = error.message
          return null
        }
      }
      for (const { inputs, what, free, filling, layouts: own } of variants(application, options)) {
        if (options.only?.test(`${primitive.name} ${application.sample}: ${what}`) === false) continue
        const wanted = own ? names.filter((layout) => own.includes(layout)) : names
        const host = inputs.map(hostInput)
        const want = referenceOf(host)
        if (want === null) continue
        if (invariant) {
          try {
            const inputsOf = onBackendNamed("reference", () => host.map((h) => hostOf(arrayFrom(h))))
            compareInvariants(
              invariant,
              { inputs: inputsOf, outputs: want, reference: want, params },
              options,
            )
          } catch (error) {
            if (!(error instanceof CheckFailure)) throw error
            throw new CheckFailure(`${what}, the reference itself: ${error.message}`)
          }
        }
        for (const layouts of arrangements(inputs.length, wanted)) {
          const broadcasts = layouts.includes("broadcast")
          if (broadcasts && !free) continue
          const source = broadcasts
            ? host.map((h, i) => (layouts[i] === "broadcast" ? broadcastable(h) : h))
            : host
          const expected = broadcasts ? referenceOf(source) : want
          if (expected === null) continue
          onBackendNamed(backend, () => {
            const laidOut = source.map((h, i) => LAYOUTS[layouts[i]](arrayFrom(h)))
            if (laidOut.includes(null)) return
            const xs = laidOut as mx.Array[]
            mx.eval(xs)
            native ||= !primitive.rules.view && backendNamed(backend).queue.lower(f(...xs)[0].node) !== null
            try {
              const outputs = run(candidate, xs)
              if (invariant) {
                const result = { inputs: xs.map(hostOf), outputs, reference: expected, params }
                compareInvariants(invariant, result, options)
              } else {
                const got =
                  primitive.name === "slogdet" ? withoutTinyDeterminants(outputs, expected, options) : outputs
                const isComplex = host.some(({ dtype }) => dtype === mx.complex64)
                compare(got, expected, options, leniencyOf(application, filling, isComplex))
              }
              compared++
            } catch (error) {
              if (!(error instanceof CheckFailure || error instanceof mx.LazuliError)) throw error
              throw new CheckFailure(`${what}, ${[...new Set(layouts)].join(" and ")}: ${error.message}`)
            }
          })
        }
      }
      if (compared === 0) return refused || "nothing to compare"
      if (native) return null
      return primitive.rules.view ? null : "no kernel; what runs instead agrees"
    },
  }
}
