/**
 * A backend's column: its kernel, or what it does for want of one, gives what the meaning gives on the reference backend, over dtypes,
 * fillings and layouts, for empty arrays too.
 */
import * as mx from "@lazuli/core"
import { isInexact } from "@lazuli/core/engine"
import { backendNamed, onBackendNamed } from "../backend-choice"
import { type HostValues, hostOf } from "../golden/compare"
import { type Application, functionOf } from "./applications"
import type { Column } from "./column"
import { arrayFrom, broadcastable, type Filling, type HostInput, hostInput, LAYOUTS } from "./layouts"
import { CheckFailure } from "./values"
import { type VariantOptions, variants } from "./variants"

/** How a backend is held to the meanings. */
export interface KernelOptions extends VariantOptions {
  /** Names of {@link LAYOUTS}; all by default. */
  readonly layouts?: readonly string[]
  /** By name of a dtype: |got − want| ≤ tolerance · (1 + |want|). */
  readonly tolerances?: Readonly<Record<string, number>>
}

/** What kernels may differ by for having added in another order. */
const TOLERANCES: Readonly<Record<string, number>> = {
  float16: 4e-3,
  bfloat16: 3e-2,
  float32: 3e-5,
  complex64: 6e-5,
  float64: 1e-11,
}

function run(application: Application, inputs: readonly mx.Array[]): HostValues[] {
  const outputs = functionOf(application)(...inputs)
  mx.eval(outputs)
  return outputs.map(hostOf)
}

/**
 * What a kernel may make of NaN and infinities: of sums of products of several inputs, zeros that were added or left out decide whether they
 * are NaN. "where meant": what it likes, where the meaning is not finite. "anywhere": NaN also where the meaning leaves out padding's zeros.
 */
type Leniency = "none" | "where meant" | "anywhere"

/** Primitives whose meaning leaves out the zeros of padding, which kernels may multiply. */
const PADDED: ReadonlySet<string> = new Set(["conv"])

/** Primitives whose result rows that repeat leave to rounding: the matrix has not its full rank then. */
const RANKED: ReadonlySet<string> = new Set(["lu"])

function leniencyOf({ primitive, inputs }: Application, filling: Filling): Leniency {
  const sums = !primitive.elementwise && inputs.filter((x) => isInexact(x.dtype)).length > 1
  if (filling !== "special" || !sums) return "none"
  return PADDED.has(primitive.name) ? "anywhere" : "where meant"
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

function compare(
  got: readonly HostValues[],
  want: readonly HostValues[],
  options: KernelOptions,
  leniency: Leniency,
): void {
  want.forEach((w, k) => {
    const g = got[k]
    if (g?.dtype !== w.dtype || g.shape.join() !== w.shape.join())
      throw new CheckFailure(`output ${k} is ${g?.dtype}[${g?.shape}], the meaning's ${w.dtype}[${w.shape}]`)
    const tolerance = options.tolerances?.[w.dtype] ?? TOLERANCES[w.dtype] ?? 0
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
      throw new CheckFailure(`element ${i} of output ${k} is ${a}, the meaning's ${b}`)
    }
  })
}

/** Which layout each input has: all one, and mixed. */
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

/** Compares a backend with the meanings on the reference backend. */
export function kernelColumn(backend: string, options: KernelOptions = {}): Column {
  const names = options.layouts ?? Object.keys(LAYOUTS)
  return {
    name: backend,
    check(application) {
      const { primitive } = application
      if (primitive.facts.ambiguous) return "unique only up to a choice, which a backend makes as it likes"
      let [compared, refused, native] = [0, "", false]
      const meaning = (inputs: readonly HostInput[]): HostValues[] | null => {
        try {
          return onBackendNamed("reference", () => run(application, inputs.map(arrayFrom)))
        } catch (error) {
          // What the meaning refuses is no matter for kernels.
          if (!(error instanceof mx.LazuliError)) throw error
          refused = error.message
          return null
        }
      }
      for (const { inputs, what, free, filling } of variants(application, options)) {
        const host = inputs.map(hostInput)
        const want = meaning(host)
        if (want === null) continue
        for (const layouts of arrangements(inputs.length, names)) {
          const broadcasts = layouts.includes("broadcast")
          if (broadcasts && (!free || RANKED.has(primitive.name))) continue
          const source = broadcasts
            ? host.map((h, i) => (layouts[i] === "broadcast" ? broadcastable(h) : h))
            : host
          const expected = broadcasts ? meaning(source) : want
          if (expected === null) continue
          onBackendNamed(backend, () => {
            const laidOut = source.map((h, i) => LAYOUTS[layouts[i]](arrayFrom(h)))
            if (laidOut.includes(null)) return
            const xs = laidOut as mx.Array[]
            mx.eval(xs)
            native ||=
              !primitive.rules.view && backendNamed(backend).supports(functionOf(application)(...xs)[0].node)
            try {
              compare(run(application, xs), expected, options, leniencyOf(application, filling))
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
