/**
 * What a program was traced for: the structure of the arguments, the shapes and dtypes of their arrays, and their constants. A signature is
 * a flat list, so that the arguments of the next call are compared with it in one walk that also finds their arrays.
 */
import {
  Array,
  Complex,
  childrenOf,
  Device,
  type Dtype,
  describe,
  isDtype,
  isList,
  isPlainObject,
  Mark,
  type Node,
  type Shape,
  Slice,
  Stream,
  sameShape,
  TransformError,
} from "@lazuli/core/engine"

/** One position of a signature, in the order of a walk from the top. */
type Token =
  | { readonly kind: "array"; readonly path: string; readonly dtype: Dtype; readonly shape: Shape }
  | { readonly kind: "list"; readonly path: string; readonly length: number }
  | {
      readonly kind: "object"
      readonly path: string
      readonly keys: readonly string[]
      readonly type: unknown
    }
  | { readonly kind: "constant"; readonly path: string; readonly value: unknown }

/** Describes arguments. */
export type Signature = readonly Token[]

/** Whether a leaf can be part of a program as it is: it never changes. */
const isConstant = (leaf: unknown): boolean =>
  typeof leaf !== "object" ||
  leaf === null ||
  isDtype(leaf) ||
  leaf instanceof Complex ||
  leaf instanceof Device ||
  leaf instanceof Stream ||
  leaf instanceof Slice

/** What distinguishes a registered class; plain objects are all alike. */
const typeOf = (value: unknown): unknown => (isPlainObject(value) ? null : (value as object).constructor)

/** The signature of arguments. */
export function signatureOf(args: readonly unknown[]): Signature {
  const tokens: Token[] = []
  const visit = (value: unknown, path: string): void => {
    if (value instanceof Array) {
      tokens.push({ kind: "array", path, dtype: value.node.dtype, shape: value.node.shape })
      return
    }
    if (isList(value)) {
      tokens.push({ kind: "list", path, length: value.length })
      value.forEach((child, i) => visit(child, `${path}[${i}]`))
      return
    }
    const children = childrenOf(value) as Readonly<Record<string, unknown>> | null
    if (children === null) {
      if (!isConstant(value))
        throw new TransformError(
          "compile",
          `${path} is ${describe(value)}: arguments are trees of arrays and constants, and what is in it could change unseen`,
          { hint: "Pass its arrays and numbers; let a class be part of trees with mx.registerTreeNode" },
        )
      tokens.push({ kind: "constant", path, value })
      return
    }
    const keys = Object.keys(children)
    tokens.push({ kind: "object", path, keys, type: typeOf(value) })
    for (const key of keys) visit(children[key], `${path}.${key}`)
  }
  tokens.push({ kind: "list", path: "the arguments", length: args.length })
  args.forEach((value, i) => visit(value, `argument ${i}`))
  return tokens
}

/** Where the comparison under way is. */
const walk = { at: 0 }

/**
 * Whether arguments have a signature. Their arrays' nodes are added to `found` on the way; those of a trace, which have no value, never fit.
 */
export function fits(signature: Signature, args: readonly unknown[], found: Node[]): boolean {
  walk.at = 0
  return fitsList(signature, args, found)
}

function fitsList(signature: Signature, list: readonly unknown[], found: Node[]): boolean {
  const token = signature[walk.at++]
  if (token === undefined || token.kind !== "list" || token.length !== list.length) return false
  for (let i = 0; i < list.length; i++) if (!fitsValue(signature, list[i], found)) return false
  return true
}

function fitsValue(signature: Signature, value: unknown, found: Node[]): boolean {
  if (value instanceof Array) {
    const token = signature[walk.at++]
    if (token === undefined || token.kind !== "array") return false
    const { node } = value
    if (node.dtype !== token.dtype || (node.mark & Mark.Abstract) !== 0) return false
    if (!sameShape(node.shape, token.shape)) return false
    found.push(node)
    return true
  }
  if (isList(value)) return fitsList(signature, value, found)
  const children = childrenOf(value) as Readonly<Record<string, unknown>> | null
  const token = signature[walk.at++]
  if (token === undefined) return false
  if (children === null) return token.kind === "constant" && Object.is(token.value, value)
  if (token.kind !== "object" || token.type !== typeOf(value)) return false
  const keys = Object.keys(children)
  if (keys.length !== token.keys.length) return false
  for (let i = 0; i < keys.length; i++) {
    if (keys[i] !== token.keys[i] || !fitsValue(signature, children[keys[i]], found)) return false
  }
  return true
}

let identities = 0
const identity = new WeakMap<object, number>()
const symbols = new Map<symbol, number>()

/** A string for a leaf that is no array: equal for the same primitive value, or the same object. */
function constantKey(leaf: unknown): string {
  if ((typeof leaf === "object" && leaf !== null) || typeof leaf === "function") {
    let id = identity.get(leaf)
    if (id === undefined) identity.set(leaf, (id = ++identities))
    return `#${id}`
  }
  if (typeof leaf === "symbol") {
    if (!symbols.has(leaf)) symbols.set(leaf, ++identities)
    return `@${symbols.get(leaf)}`
  }
  return typeof leaf === "string"
    ? JSON.stringify(leaf)
    : Object.is(leaf, -0)
      ? "-0"
      : `${typeof leaf} ${String(leaf)}`
}

/** Equal for equal signatures; for those that differ in sizes alone, where `sizes` is false. */
export function keyOf(signature: Signature, sizes: boolean): string {
  let key = ""
  for (const token of signature) {
    if (token.kind === "array") key += arrayKey(token.dtype, token.shape, sizes)
    else if (token.kind === "list") key += `(${token.length}`
    else if (token.kind === "object")
      key += `{${token.type === null ? "" : constantKey(token.type)}${JSON.stringify(token.keys)}`
    else key += `=${constantKey(token.value)}`
  }
  return key
}

/** A string for an array's dtype and rank, and its sizes if they count. */
export const arrayKey = (dtype: Dtype, shape: Shape, sizes: boolean): string =>
  `${dtype.code}[${sizes ? shape.join(",") : shape.length}]`

const show = (token: Token): string => {
  switch (token.kind) {
    case "array":
      return `${token.dtype.name}[${token.shape.join(", ")}]`
    case "list":
      return token.length === 1 ? "1 item" : `${token.length} items`
    case "object":
      return `{${token.keys.join(", ")}}`
    default:
      return typeof token.value === "string" ? JSON.stringify(token.value) : String(token.value)
  }
}

/** The first position where two signatures differ: which argument it is, and what it was and is now. */
export function difference(before: Signature, now: Signature): { path: string; reason: string } | null {
  for (let i = 0; i < Math.max(before.length, now.length); i++) {
    const [a, b] = [before[i], now[i]]
    const [was, is] = [a ? show(a) : "nothing", b ? show(b) : "nothing"]
    const kinds = a?.kind !== b?.kind
    const constants =
      a?.kind === "constant" && b?.kind === "constant" && !Object.is(a.value, b.value) && was === is
    if (was === is && !kinds && !constants) continue
    const path = (b ?? a)?.path ?? ""
    const what = constants ? `${is} is another object` : `${was} became ${is}`
    return { path, reason: `${path}: ${what}` }
  }
  return null
}
