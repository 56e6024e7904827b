/**
 * What stands beside arrays among arguments and in captured state: values that are part of a program. Equal values make the same program;
 * other objects and functions are known by identity.
 */
import { Complex, Device, isDtype, Slice, Stream } from "@lazuli/core/engine"

/** Whether a leaf can be part of a program as it is: it never changes. */
export const isConstant = (leaf: unknown): boolean =>
  typeof leaf !== "object" || leaf === null || isDtype(leaf) || keyOfValue(leaf) !== null

/** Equal for equal values; null for objects that are known by identity. */
function keyOfValue(leaf: object): string | null {
  if (leaf instanceof Complex) return `complex ${keyOfNumber(leaf.re)} ${keyOfNumber(leaf.im)}`
  if (leaf instanceof Slice) return `slice ${leaf.start} ${leaf.stop} ${leaf.step}`
  if (leaf instanceof Device || leaf instanceof Stream) return String(leaf)
  return null
}

const keyOfNumber = (value: number): string => (Object.is(value, -0) ? "-0" : String(value))

/** Whether two constants make the same program. */
export function sameConstant(a: unknown, b: unknown): boolean {
  if (Object.is(a, b)) return true
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false
  const key = keyOfValue(a)
  return key !== null && key === keyOfValue(b)
}

let identities = 0
const identity = new WeakMap<object, number>()
const symbols = new Map<symbol, number>()

/** A string that is equal for constants that make the same program. */
export function keyOfConstant(leaf: unknown): string {
  switch (typeof leaf) {
    case "string":
      return JSON.stringify(leaf)
    case "number":
      return `number ${keyOfNumber(leaf)}`
    case "symbol":
      if (!symbols.has(leaf)) symbols.set(leaf, ++identities)
      return `@${symbols.get(leaf)}`
    case "object":
    case "function": {
      if (leaf === null) break
      const key = keyOfValue(leaf)
      if (key !== null) return key
      let id = identity.get(leaf)
      if (id === undefined) identity.set(leaf, (id = ++identities))
      return `#${id}`
    }
  }
  return `${typeof leaf} ${String(leaf)}`
}

/** Longer text is cut in messages. */
const MAX_SHOWN = 40

/** A constant in a message. */
export function showConstant(value: unknown): string {
  switch (typeof value) {
    case "string":
      return JSON.stringify(value.length > MAX_SHOWN ? `${value.slice(0, MAX_SHOWN)}…` : value)
    case "number":
      return keyOfNumber(value)
    case "bigint":
      return `${value}n`
    case "function":
      return value.name || "a function without a name"
    case "object":
      if (value instanceof Slice) return `${value.start ?? ""}:${value.stop ?? ""}:${value.step ?? ""}`
      if (value !== null && keyOfValue(value) === null && !isDtype(value))
        return `an instance of ${value.constructor?.name ?? "Object"}`
  }
  return String(value)
}
