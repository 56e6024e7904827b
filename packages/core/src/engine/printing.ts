/**
 * Formatting of arrays as in MLX's repr, with long axes abbreviated, and its options.
 */
import { checkOptions, isPlainObject } from "../graph/args"
import { under } from "../graph/boundary"
import { Complex } from "../graph/complex-number"
import { bool_ } from "../graph/dtype"
import { ArgumentError, describe } from "../graph/errors"
import { type Array, Mark } from "../graph/graph"
import type { Nested } from "../graph/members"
import type { Value } from "../graph/option-types"
import { sizeOf } from "../graph/shape"
import { tolist } from "./readback"

/** The number of elements shown at each end of an abbreviated axis. */
const EDGE = 3
/** Extra digits, to detect ties. */
const BEYOND = 30

/** Print options. */
export class PrintOptions {
  /**
   * @param precision digits after the point of floating and complex elements; -1 for six significant digits
   * @throws ArgumentError unless it is an integer from -1 to 60
   */
  constructor(readonly precision: number = -1) {
    if (!Number.isInteger(precision) || precision < -1 || precision > 60)
      throw new ArgumentError(
        "PrintOptions",
        `precision must be an integer from -1 to 60, received ${describe(precision)}`,
      )
  }
}

let options = new PrintOptions()

type PrintSettings = { readonly precision?: number }
const asOptions = (op: string, settings: number | PrintSettings): PrintOptions =>
  under(op, () => {
    if (!isPlainObject(settings) && !((settings as unknown) instanceof PrintOptions))
      return new PrintOptions(settings as number)
    checkOptions(op, settings as PrintSettings, ["precision"])
    return new PrintOptions((settings as PrintSettings).precision)
  })

/** The current settings of printing. */
export function getPrintoptions(): PrintOptions {
  return options
}

/**
 * Sets the print options.
 * @example
 * mx.setPrintoptions({ precision: 2 }); const text = String(mx.array([1.005, 2])); mx.setPrintoptions()
 * text // => 'array([1.00, 2.00], dtype=float32)'
 */
export function setPrintoptions(precision: number | PrintSettings = -1): void {
  options = asOptions("setPrintoptions", precision)
}

/** Print options that are active until this object is disposed. */
class PrintOptionsContext implements Disposable {
  private readonly before: PrintOptions = options;
  [Symbol.dispose](): void {
    options = this.before
  }
}

/**
 * Sets the print options while `body` runs and returns its result or, without a body, until the end of the block: `using _ =
 * mx.printoptions({ precision: 3 })`.
 * @example
 * mx.printoptions({ precision: 1 }, () => String(mx.array([0.25]))) // => 'array([0.2], dtype=float32)'
 */
export function printoptions(precision?: number | PrintSettings): Disposable
export function printoptions<T>(precision: number | PrintSettings, body: () => T): T
export function printoptions<T>(precision: number | PrintSettings = -1, body?: () => T): T | Disposable {
  const next = asOptions("printoptions", precision)
  if (body !== undefined && typeof body !== "function")
    throw new ArgumentError("printoptions", `body must be a function, received ${describe(body)}`)
  const context = new PrintOptionsContext()
  options = next
  if (body === undefined) return context
  try {
    return body()
  } finally {
    context[Symbol.dispose]()
  }
}

function formatValue(value: Value, floating: boolean): string {
  if (typeof value === "boolean") return value ? "True" : "False"
  if (value instanceof Complex) {
    const sign = value.im >= 0 || Number.isNaN(value.im) ? "+" : "-"
    return `${formatFloat(value.re)}${sign}${formatFloat(sign === "-" ? -value.im : value.im)}j`
  }
  return floating ? formatFloat(value as number) : String(value)
}

function formatFloat(value: number): string {
  if (Number.isNaN(value)) return "nan"
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf"
  const { precision } = options
  const sign = value < 0 || Object.is(value, -0) ? "-" : ""
  const size = Math.abs(value)
  return sign + (precision < 0 ? sixDigits(size) : fixed(size, precision))
}

/**
 * Emulates C's rounding: ties go to even in C, but up in JavaScript.
 */
function tieToEven(value: number, exact: string, decimals: number): number {
  const [mantissa, exponent = "0"] = exact.split("e")
  const cut = mantissa.indexOf(".") + 1 + decimals
  const kept = mantissa.slice(0, cut)
  if (!/^50*$/.test(mantissa.slice(cut)) || !/[02468]\.?$/.test(kept)) return value
  return Number(`${kept}e${exponent}`)
}

function fixed(value: number, decimals: number): string {
  // Beyond this, toFixed uses an exponent, and there is no fraction.
  if (value >= 1e21) return decimals > 0 ? `${BigInt(value)}.${"0".repeat(decimals)}` : String(BigInt(value))
  return tieToEven(value, value.toFixed(decimals + BEYOND), decimals).toFixed(decimals)
}

/** Six significant digits without trailing zeros, as C++ streams print by default. */
function sixDigits(value: number): string {
  if (value === 0) return "0"
  const rounded = tieToEven(value, value.toExponential(5 + BEYOND), 5)
  const [mantissa, exponent] = rounded.toExponential(5).split("e")
  const power = Number(exponent)
  if (power < -4 || power > 5) {
    const short = mantissa.replace(/\.?0+$/, "")
    return `${short}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`
  }
  const text = rounded.toFixed(5 - power)
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text
}

/** `array([1, 2, 3], dtype=float32)`. */
export function formatArray(a: Array): string {
  const { shape, dtype } = a
  const name = dtype === bool_ ? "bool" : dtype.name
  if (a.node.mark & Mark.Abstract) {
    // Placeholders have their name as a parameter.
    const what = a.node.primitive === null ? (a.node.params.name ?? "being traced") : "being traced"
    return `array(<${what}>, shape=[${shape.join(", ")}], dtype=${name})`
  }
  if (sizeOf(shape) === 0) return `array([], dtype=${name})`
  const floating = dtype.kind === "floating"
  const indent = "array(".length
  const build = (value: Nested, depth: number): string => {
    if (!globalThis.Array.isArray(value)) return formatValue(value, floating)
    const parts =
      value.length > 2 * EDGE
        ? [
            ...value.slice(0, EDGE).map((v) => build(v, depth + 1)),
            "...",
            ...value.slice(-EDGE).map((v) => build(v, depth + 1)),
          ]
        : value.map((v) => build(v, depth + 1))
    const inner = depth === shape.length - 1
    return `[${parts.join(inner ? ", " : `,\n${" ".repeat(indent + depth + 1)}`)}]`
  }
  return `array(${build(tolist(a), 0)}, dtype=${name})`
}
