/**
 * The key of a trace: the structure of the arguments and of the captured state, the shapes and dtypes of their arrays, and their
 * constants. A signature is a flat list, so that the arguments of the next call are compared with it in one walk that also finds their
 * arrays.
 */
import {
  Array,
  checkLevel,
  childrenOf,
  type Dtype,
  describe,
  isList,
  isPlainObject,
  Mark,
  type Node,
  type Shape,
  sameShape,
  TransformError,
} from "@lazuli/core/engine"
import { isConstant, keyOfConstant, sameConstant, showConstant } from "./constants"
import { type ArrayLeaf, type Constant, constantOf, isSeen, leafName, type Path } from "./state"

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
  /** A leaf of captured state, which belongs to the token after it. */
  | { readonly kind: "leaf"; readonly path: string; readonly output: boolean }

/** Describes arguments, or captured state. */
export type Signature = readonly Token[]

/** The identity of a registered class; plain objects are all alike. */
const typeOf = (value: unknown): unknown => (isPlainObject(value) ? null : (value as object).constructor)

/** The fields of a registered class's instance that are no children: a module's training flag. Plain objects have none. */
const NONE: readonly string[] = []
const otherFields = (value: object, children: object): readonly string[] =>
  value === children ? NONE : Object.keys(value).filter((key) => !Object.hasOwn(children, key))
const fieldOf = (value: object, key: string): unknown => constantOf((value as Record<string, unknown>)[key])

const unseen = (path: string, value: unknown): TransformError =>
  new TransformError(
    "compile",
    `${path} is ${describe(value)}: arguments are trees of arrays and constants, and its contents could change unnoticed`,
    { hint: "Pass its arrays and numbers, or register the class with mx.registerTreeNode" },
  )

/** The signature of arguments. */
export function signatureOf(args: readonly unknown[]): Signature {
  const tokens: Token[] = []
  const open = new Set<unknown>()
  const visit = (value: unknown, path: string, level: number): void => {
    if (value instanceof Array) {
      tokens.push({ kind: "array", path, dtype: value.node.dtype, shape: value.node.shape })
      return
    }
    const children = childrenOf(value)
    if (children === null) {
      if (!isConstant(value)) throw unseen(path, value)
      tokens.push({ kind: "constant", path, value })
      return
    }
    if (open.has(value)) throw new TransformError("compile", `${path} contains itself`)
    checkLevel(level, "compile")
    open.add(value)
    if (isList(children)) {
      tokens.push({ kind: "list", path, length: children.length })
      for (let i = 0; i < children.length; i++) visit(children[i], `${path}[${i}]`, level + 1)
    } else {
      const keys = Object.keys(children)
      const others = otherFields(value as object, children)
      tokens.push({ kind: "object", path, keys: [...keys, ...others], type: typeOf(value) })
      for (const key of keys) visit((children as Record<string, unknown>)[key], `${path}.${key}`, level + 1)
      for (const key of others) {
        if (!isSeen((value as Record<string, unknown>)[key]))
          throw unseen(`${path}.${key}`, (value as Record<string, unknown>)[key])
        tokens.push({ kind: "constant", path: `${path}.${key}`, value: fieldOf(value as object, key) })
      }
    }
    open.delete(value)
  }
  tokens.push({ kind: "list", path: "the arguments", length: args.length })
  for (let i = 0; i < args.length; i++) visit(args[i], `argument ${i}`, 0)
  return tokens
}

const leafAt = (path: Path, output = false): Token => ({ kind: "leaf", path: leafName(path), output })

/** The signature of captured state's arrays. */
export const signatureOfLeaves = (held: readonly ArrayLeaf[]): Signature =>
  held.flatMap(({ holder, key, path }): Token[] => {
    const { dtype, shape } = (holder[key] as Array).node
    return [leafAt(path), { kind: "array", path: leafName(path), dtype, shape }]
  })

/** The signature of what else is in captured state. */
export const signatureOfConstants = (constants: readonly Constant[]): Signature =>
  constants.flatMap(({ path, value }): Token[] => [
    leafAt(path),
    { kind: "constant", path: leafName(path), value },
  ])

/** Where captured outputs hold arrays. */
export const signatureOfOutputs = (paths: readonly Path[]): Signature =>
  paths.map((path) => leafAt(path, true))

/** Where the comparison under way is. */
const walk = { at: 0 }

/**
 * True if arguments have a signature. Their arrays' nodes are added to `found` on the way; those of a trace, which have no value, never
 * fit.
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
  if (children === null) return token.kind === "constant" && sameConstant(token.value, value)
  if (token.kind !== "object" || token.type !== typeOf(value)) return false
  const keys = Object.keys(children)
  const others = otherFields(value as object, children)
  if (keys.length + others.length !== token.keys.length) return false
  for (let i = 0; i < keys.length; i++) {
    if (keys[i] !== token.keys[i] || !fitsValue(signature, children[keys[i]], found)) return false
  }
  for (let i = 0; i < others.length; i++) {
    const field = signature[walk.at++]
    if (others[i] !== token.keys[keys.length + i] || field?.kind !== "constant") return false
    if (!sameConstant(field.value, fieldOf(value as object, others[i]))) return false
  }
  return true
}

/** The part of an array's shape that counts: its sizes, the number of its axes, or nothing. */
export type ShapeDetail = "sizes" | "rank" | "none"

const isNumber = (token: Token): boolean => token.kind === "constant" && typeof token.value === "number"

export const hasNumbers = (signature: Signature): boolean => signature.some(isNumber)

/** Equal for signatures that are equal but for what does not count of shapes, and for the numbers unless they count. */
export function keyOf(signature: Signature, detail: ShapeDetail, numbers = true): string {
  const shapeOf = (shape: Shape): string | number =>
    detail === "sizes" ? shape.join(",") : detail === "rank" ? shape.length : ""
  let key = ""
  for (const token of signature) {
    switch (token.kind) {
      case "array":
        key += `:${token.dtype.code}[${shapeOf(token.shape)}]`
        break
      case "list":
        key += `(${token.length}`
        break
      case "object":
        key += `{${token.type === null ? "" : keyOfConstant(token.type)}${JSON.stringify(token.keys)}`
        break
      case "constant":
        key += !numbers && isNumber(token) ? "=" : `=${keyOfConstant(token.value)}`
        break
      case "leaf":
        key += `${token.output ? ">" : "|"}${JSON.stringify(token.path)}`
    }
  }
  return key
}

const show = (token: Token | undefined): string => {
  switch (token?.kind) {
    case undefined:
      return "nothing"
    case "array":
      return `${token.dtype.name}[${token.shape.join(", ")}]`
    case "list":
      return token.length === 1 ? "1 item" : `${token.length} items`
    case "object":
      return `{${token.keys.join(", ")}}`
    case "constant":
      return token.value === undefined ? "nothing" : showConstant(token.value)
    case "leaf":
      return token.path
  }
}

/**
 * The first position where two signatures differ: which argument or part of the state it is, and what it was and is now. Sizes count
 * unless `sizes` is false.
 */
export function difference(
  before: Signature,
  now: Signature,
  sizes = true,
): { path: string; reason: string } | null {
  for (let i = 0; i < Math.max(before.length, now.length); i++) {
    const [a, b] = [before[i], now[i]]
    if (!sizes && a?.kind === "array" && b?.kind === "array")
      if (a.dtype === b.dtype && a.shape.length === b.shape.length) continue
    const [was, is] = [show(a), show(b)]
    const constants = a?.kind === "constant" && b?.kind === "constant" && !sameConstant(a.value, b.value)
    const path = (b ?? a)?.path ?? ""
    if (a?.kind === "leaf" || b?.kind === "leaf") {
      if (a?.kind === b?.kind && was === is) continue
      return { path, reason: `the structure of the captured state changed at ${path}` }
    }
    if (was === is && a?.kind === b?.kind && !constants) continue
    const what = was === is ? `${is} is another object` : `${was} became ${is}`
    return { path, reason: `${path}: ${what}` }
  }
  return null
}
