/**
 * Printing arrays as MLX's repr does: nested brackets, aligned columns, the middle of long axes left out.
 */
import { Complex } from "./complex-number"
import { bool_ } from "./dtype"
import { type Array, Mark } from "./graph"
import type { Nested, Value } from "./members"
import { tolist } from "./readback"
import { sizeOf } from "./shape"

/** Above this many elements the middle of each axis is left out. */
const THRESHOLD = 1000
/** How many elements stay at each end. */
const EDGE = 3

function formatValue(value: Value, floating: boolean): string {
  if (typeof value === "boolean") return value ? "True" : "False"
  if (value instanceof Complex) return value.toString()
  if (typeof value === "bigint" || !floating) return String(value)
  if (Number.isNaN(value)) return "nan"
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf"
  // Six significant digits without trailing zeros, as C++ streams print by default.
  const text = value.toPrecision(6)
  const [mantissa, exponent] = text.split("e")
  const short = mantissa.includes(".") ? mantissa.replace(/\.?0+$/, "") : mantissa
  if (exponent === undefined && value !== 0 && Math.abs(value) < 1e-4) return formatExponent(value)
  return exponent === undefined ? short : formatExponent(value)
}

function formatExponent(value: number): string {
  const [mantissa, exponent] = value.toExponential(5).split("e")
  const digits = Number(exponent)
  const short = mantissa.includes(".") ? mantissa.replace(/\.?0+$/, "") : mantissa
  return `${short}e${digits < 0 ? "-" : "+"}${String(Math.abs(digits)).padStart(2, "0")}`
}

/** `array([1, 2, 3], dtype=float32)`. */
export function formatArray(a: Array): string {
  const { shape, dtype } = a
  const name = dtype === bool_ ? "bool" : dtype.name
  if (a.node.mark & Mark.Abstract) {
    // Stand-ins carry their name as a parameter.
    const what = a.node.primitive === null ? (a.node.params.name ?? "being traced") : "being traced"
    return `array(<${what}>, shape=[${shape.join(", ")}], dtype=${name})`
  }
  if (sizeOf(shape) === 0) return `array([], dtype=${name})`
  const floating = dtype.kind === "floating"
  const summarize = sizeOf(shape) > THRESHOLD
  const indent = "array(".length
  const build = (value: Nested, depth: number): string => {
    if (!globalThis.Array.isArray(value)) return formatValue(value, floating)
    const parts =
      summarize && value.length > 2 * EDGE
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
