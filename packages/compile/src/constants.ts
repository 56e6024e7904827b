/**
 * Values beside arrays among arguments and in captured state: they are part of a cached program. Equal values make the same cached program;
 * other objects and functions are known by identity.
 */
import { Complex, Device, isDtype, Slice, Stream } from "@lazuli/core/engine"

/** True if a leaf can be part of a cached program as it is: it never changes. */
export const isConstant = (leaf: unknown): boolean =>
  typeof leaf !== "object" || leaf === null || isDtype(leaf) || keyOfValue(leaf) !== null

/** Equal for equal values; null for objects that are known by identity. */
function keyOfValue(leaf: object): string | null {
  if (leaf instanceof Complex) return `complex ${keyOfNumber(leaf.re)} ${keyOfNumber(leaf.im)}`
  if (leaf instanceof Slice) return `slice ${leaf.start} ${leaf.stop} ${leaf.step}`
  if (leaf instanceof Device || leaf instanceof Stream) return String(leaf)
  if (leaf instanceof Contents) return leaf.key
  return null
}

/** The contents of a Set, a Map or a Date when it was looked at, in place of the thing itself. */
export class Contents {
  constructor(
    readonly kind: "Set" | "Map" | "Date",
    /** Of a map, keys and values in turn. */
    readonly elements: readonly unknown[],
  ) {}

  get key(): string {
    return `${this.kind}(${this.elements.length}) ${this.elements.map(keyOfConstant).join()}`
  }

  equals({ kind, elements }: Contents): boolean {
    if (kind !== this.kind || elements.length !== this.elements.length) return false
    for (let i = 0; i < elements.length; i++) if (!sameConstant(elements[i], this.elements[i])) return false
    return true
  }
}

const keyOfNumber = (value: number): string => (Object.is(value, -0) ? "-0" : String(value))

/** True if two constants make the same cached program. */
export function sameConstant(a: unknown, b: unknown): boolean {
  if (Object.is(a, b)) return true
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false
  if (a instanceof Contents) return b instanceof Contents && a.equals(b)
  const key = keyOfValue(a)
  return key !== null && key === keyOfValue(b)
}

let identities = 0
const identity = new WeakMap<WeakKey, number>()

function identityOf(leaf: WeakKey): number {
  let id = identity.get(leaf)
  if (id === undefined) identity.set(leaf, (id = ++identities))
  return id
}

/** A string that is equal for constants that make the same cached program. */
export function keyOfConstant(leaf: unknown): string {
  switch (typeof leaf) {
    case "string":
      return JSON.stringify(leaf)
    case "number":
      return `number ${keyOfNumber(leaf)}`
    case "symbol": {
      const name = Symbol.keyFor(leaf)
      return name === undefined ? `@${identityOf(leaf)}` : `@${JSON.stringify(name)}`
    }
    case "object":
    case "function": {
      if (leaf === null) break
      const key = keyOfValue(leaf)
      if (key !== null) return key
      return `#${identityOf(leaf)}`
    }
  }
  return `${typeof leaf} ${String(leaf)}`
}

/** Longer text is cut in messages. */
const MAX_SHOWN = 40

const cut = (text: string): string => (text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}…` : text)

/** A constant in a message. */
export function showConstant(value: unknown): string {
  switch (typeof value) {
    case "string":
      return JSON.stringify(cut(value))
    case "number":
      return keyOfNumber(value)
    case "bigint":
      return `${value}n`
    case "function":
      return value.name || "a function without a name"
    case "object":
      if (value instanceof Contents)
        return `${value.kind === "Set" ? "" : `${value.kind} `}{${cut(value.elements.map(showConstant).join(", "))}}`
      if (value instanceof Slice) return `${value.start ?? ""}:${value.stop ?? ""}:${value.step ?? ""}`
      if (value !== null && keyOfValue(value) === null && !isDtype(value))
        return `an instance of ${value.constructor?.name ?? "Object"}`
  }
  return String(value)
}
