/**
 * Functions on trees of arrays: flatten, unflatten, map, reduce and merge. The definition of a tree is in tree.ts.
 */
import { checkOptions, isList, isPlainObject } from "../graph/args"
import { ArgumentError, describe } from "../graph/errors"
import { Array } from "../graph/graph"
import { checkArguments, parametersOf } from "../graph/kinds"
import { checkLevel, childrenOf, getOwn, setOwn, withChildren } from "../graph/tree"

/** True for a subtree to treat as a leaf. */
export type IsLeaf = (value: unknown) => boolean

/** Options of {@link treeFlatten}. */
export interface FlattenOptions {
  prefix?: string
  isLeaf?: IsLeaf | null
}

/**
 * The leaves of a tree with their dotted names, in order, including those of modules. Empty lists and objects are omitted.
 * @param tree - arrays nested in plain objects, lists and registered classes
 * @param prefix - prepended to every name
 * @param isLeaf - true for subtrees to treat as leaves
 * @param destination - an object to store the leaves in, instead of a list
 * @example
 * mx.treeFlatten({ a: [1, 2], b: 3 }) // => [['a.0', 1], ['a.1', 2], ['b', 3]]
 */
export function treeFlatten<L = Array>(
  tree: unknown,
  prefix?: string,
  isLeaf?: IsLeaf | null,
): [name: string, leaf: L][]
export function treeFlatten<L = Array>(tree: unknown, options: FlattenOptions): [name: string, leaf: L][]
export function treeFlatten<L = Array>(
  tree: unknown,
  prefix: string,
  isLeaf: IsLeaf | null,
  destination: Record<string, L>,
): Record<string, L>
export function treeFlatten<L = Array>(
  tree: unknown,
  prefix: string | FlattenOptions = "",
  isLeaf: IsLeaf | null = null,
  destination?: Record<string, L>,
): [string, L][] | Record<string, L> {
  if (isPlainObject(prefix)) {
    checkOptions("treeFlatten", prefix, ["prefix", "isLeaf"])
    const { prefix: front, isLeaf: whole } = prefix as FlattenOptions
    return treeFlatten<L>(tree, front, whole)
  }
  checkArguments("treeFlatten", FLATTEN, [prefix, isLeaf, destination])
  // MLX's prefixes begin with a dot.
  const leaves = leavesOf<L>("treeFlatten", tree, (prefix as string | null)?.replace(/^\./, "") ?? "", isLeaf)
  if (!destination) return leaves
  for (const [name, leaf] of leaves) setOwn(destination, name, leaf)
  return destination
}
const FLATTEN = parametersOf({ prefix: "string?", isLeaf: "function?", destination: "record?" })

function leavesOf<L>(op: string, tree: unknown, prefix: string, isLeaf?: IsLeaf | null): [string, L][] {
  const leaves: [string, L][] = []
  const walk = (value: unknown, path: string, level: number): void => {
    const children = isLeaf?.(value) ? null : childrenOf(value)
    if (children === null) {
      leaves.push([path, value as L])
      return
    }
    checkLevel(level, op)
    for (const key of Object.keys(children))
      walk((children as Record<string, unknown>)[key], path === "" ? key : `${path}.${key}`, level + 1)
  }
  walk(tree, prefix, 0)
  return leaves
}

/**
 * Rebuilds a tree from its leaves: the inverse of {@link treeFlatten}. Children whose names are all distinct integers become a list, with
 * `{}` for missing indices.
 * @throws ArgumentError if a name is both a leaf and a prefix of another
 * @example
 * mx.treeUnflatten([['a.0', 1], ['a.1', 2], ['b', 3]]) // => { a: [1, 2], b: 3 }
 */
export function treeUnflatten(
  leaves: Iterable<readonly [name: string, leaf: unknown]> | Readonly<Record<string, unknown>>,
): unknown {
  if (typeof (leaves as unknown) !== "object" || leaves === null || leaves instanceof Array)
    throw new ArgumentError(
      "treeUnflatten",
      `leaves must be pairs of names and leaves, or an object of leaves by name, received ${describe(leaves)}`,
    )
  const entries = [
    ...(Symbol.iterator in leaves ? (leaves as Iterable<[string, unknown]>) : Object.entries(leaves)),
  ]
  entries.forEach((entry: unknown, i) => {
    if (isList(entry) && entry.length === 2 && typeof entry[0] === "string") return
    throw new ArgumentError(
      "treeUnflatten",
      `leaves must be pairs of a name and a leaf, received ${describe(entry)} as entry ${i}`,
    )
  })
  return build(entries, 0, 0)
}

function build(entries: readonly (readonly [string, unknown])[], start: number, level: number): unknown {
  if (entries.length === 1 && entries[0][0].length < start) return entries[0][1]
  if (entries.length === 1 && entries[0][0] === "") return entries[0][1]
  checkLevel(level, "treeUnflatten")
  const groups = new Map<string, (readonly [string, unknown])[]>()
  for (const entry of entries) {
    const [name] = entry
    if (name.length < start)
      throw new ArgumentError("treeUnflatten", `"${name}" is both a leaf and the prefix of other names`)
    const end = name.indexOf(".", start)
    const key = name.slice(start, end < 0 ? undefined : end)
    const group = groups.get(key)
    if (group) group.push(entry)
    else groups.set(key, [entry])
  }
  const children = [...groups].map(
    ([key, group]) => [key, build(group, start + key.length + 1, level + 1)] as const,
  )
  const indices = children.map(([key]) => (/^\d+$/.test(key) ? Number(key) : Number.NaN))
  if (indices.some(Number.isNaN) || new Set(indices).size < indices.length)
    return Object.fromEntries(children)
  const length = indices.reduce((last, index) => Math.max(last, index + 1), 0)
  if (length - children.length > MAX_GAPS)
    throw new ArgumentError(
      "treeUnflatten",
      `a list of length ${length} has only ${children.length} elements`,
    )
  const list: unknown[] = globalThis.Array.from({ length }, () => ({}))
  for (const [key, child] of children) list[Number(key)] = child
  return list
}

/** The number of indices that a list may lack: names from a file must not cause huge allocations. */
const MAX_GAPS = 65536

/** Maps the leaves of `tree`; `rest` are the subtrees of the other trees at the same path. */
function map(
  op: string,
  fn: (path: string, ...leaves: unknown[]) => unknown,
  tree: unknown,
  rest: readonly unknown[],
  isLeaf: IsLeaf | null,
  path: string,
  level = 0,
): unknown {
  const children = isLeaf?.(tree) ? null : childrenOf(tree)
  if (children === null) return fn(path, tree, ...rest)
  checkLevel(level, op)
  const others = rest.map(childrenOf) as (Record<string, unknown> | null)[]
  const mapped = Object.keys(children).map((key) => {
    const under = path === "" ? key : `${path}.${key}`
    const matching = others.map((other, i) => {
      if (other && Object.hasOwn(other, key)) return other[key]
      throw new ArgumentError(op, `tree ${i + 2} has no leaf "${under}"`)
    })
    return [
      key,
      map(op, fn, (children as Record<string, unknown>)[key], matching, isLeaf, under, level + 1),
    ] as const
  })
  if (isList(children)) return mapped.map(([, child]) => child)
  return withChildren(tree, Object.fromEntries(mapped))
}

const MAP = parametersOf({ fn: "function" })

/** A trailing function is `isLeaf`; a trailing plain object would be a tree. */
function leafTest(rest: readonly unknown[]): [trees: readonly unknown[], isLeaf: IsLeaf | null] {
  const last = rest[rest.length - 1]
  return typeof last === "function" ? [rest.slice(0, -1), last as IsLeaf] : [rest, null]
}

/**
 * Applies `fn` to each leaf, and to the leaves or subtrees of the other trees at the same path; returns a tree of the same structure. A
 * trailing function is `isLeaf`: true for subtrees to treat as leaves.
 * @throws ArgumentError if another tree lacks a path
 * @example
 * mx.treeMap((x, y) => x + y, { a: [1, 2] }, { a: [10, 20] }) // => { a: [11, 22] }
 */
export function treeMap<T, L = Array>(fn: (...leaves: L[]) => unknown, tree: T, ...rest: unknown[]): T {
  const [others, isLeaf] = leafTest(rest)
  checkArguments("treeMap", MAP, [fn])
  return map("treeMap", (_path, ...leaves) => fn(...(leaves as L[])), tree, others, isLeaf, "") as T
}

/**
 * Like {@link treeMap}, with the leaf's dotted name as the first argument of `fn`.
 * @example
 * mx.treeMapWithPath((path, x) => `${path}=${x}`, { a: [1, 2] }) // => { a: ['a.0=1', 'a.1=2'] }
 */
export function treeMapWithPath<T, L = Array>(
  fn: (path: string, ...leaves: L[]) => unknown,
  tree: T,
  ...rest: unknown[]
): T {
  const [others, isLeaf] = leafTest(rest)
  checkArguments("treeMapWithPath", MAP, [fn])
  return map(
    "treeMapWithPath",
    fn as (path: string, ...leaves: unknown[]) => unknown,
    tree,
    others,
    isLeaf,
    "",
  ) as T
}

/**
 * Reduces the leaves from left to right, starting with `initial` or the first leaf.
 * @throws ArgumentError if there is neither
 * @example
 * mx.treeReduce((sum, x) => sum + x, { a: [1, 2], b: 3 }, 0) // => 6
 */
export function treeReduce<R, L = Array>(
  fn: (accumulated: R, leaf: L) => R,
  tree: unknown,
  initial?: R | null,
  isLeaf: IsLeaf | null = null,
): R {
  checkArguments("treeReduce", REDUCE, [fn, isLeaf])
  const leaves = leavesOf<L>("treeReduce", tree, "", isLeaf).map(([, leaf]) => leaf)
  let result = initial as R
  if (initial === undefined || initial === null) {
    if (leaves.length === 0)
      throw new ArgumentError("treeReduce", "the tree is empty and there is no initial value")
    result = leaves.shift() as unknown as R
  }
  for (const leaf of leaves) result = fn(result, leaf)
  return result
}

const REDUCE = parametersOf({ fn: "function", isLeaf: "function?" })

/**
 * Merges two trees: objects by key, lists by index, and leaves with `merge`.
 * @throws ArgumentError if both trees have a leaf at the same path and there is no `merge`
 * @example
 * mx.treeMerge({ a: 1 }, { b: { c: 2 } }) // => { a: 1, b: { c: 2 } }
 */
export function treeMerge(
  a: unknown,
  b: unknown,
  merge: ((a: unknown, b: unknown) => unknown) | null = null,
): unknown {
  checkArguments("treeMerge", MERGE, [merge])
  return mergeAt(a, b, merge, 0)
}
const MERGE = parametersOf({ merge: "function?" })

const isEmpty = (value: unknown): boolean =>
  value === null ||
  value === undefined ||
  ((isPlainObject(value) || isList(value)) && Object.keys(value).length === 0)

function mergeAt(
  a: unknown,
  b: unknown,
  merge: ((a: unknown, b: unknown) => unknown) | null,
  level: number,
): unknown {
  if (isEmpty(a)) return b ?? a
  if (isEmpty(b)) return a
  checkLevel(level, "treeMerge")
  if (isList(a) && isList(b)) {
    const longer = a.length >= b.length ? a : b
    return longer.map((_, i) => mergeAt(a[i], b[i], merge, level + 1))
  }
  if (isPlainObject(a) && isPlainObject(b)) {
    const keys = [...new Set([...Object.keys(a), ...Object.keys(b)])]
    return Object.fromEntries(
      keys.map((key) => [key, mergeAt(getOwn(a, key), getOwn(b, key), merge, level + 1)]),
    )
  }
  if (merge === null)
    throw new ArgumentError("treeMerge", "both trees have a value at the same path", {
      hint: "Pass a function that merges them",
    })
  return merge(a, b)
}
