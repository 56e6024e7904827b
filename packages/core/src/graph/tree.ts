/**
 * Trees (pytrees): arrays nested in plain objects, JavaScript arrays and registered classes, and their traversal.
 */
import { isList, isPlainObject } from "./args"
import { isForeign } from "./copies"
import { ArgumentError, describe, hintFor } from "./errors"
import { Array } from "./graph"

/** The rule by which instances of a class are flattened into named children and rebuilt. */
export interface TreeNodeRule<T> {
  /** The children that contain arrays, with keys in a fixed order. */
  flatten(value: T): Record<string, unknown>
  /** A copy of `value` with other children. */
  unflatten(value: T, children: Record<string, unknown>): T
}

type AnyClass = abstract new (...args: never[]) => unknown
const rules = new Map<AnyClass, TreeNodeRule<unknown>>()

/**
 * Registers a class as a tree node: its instances, including those of subclasses, are inner nodes of trees.
 * @example
 * class Pair { constructor(a, b) { this.a = a; this.b = b } }
 * mx.registerTreeNode(Pair, { flatten: (p) => ({ a: p.a, b: p.b }), unflatten: (p, c) => new Pair(c.a, c.b) })
 */
export function registerTreeNode<T>(type: abstract new (...args: never[]) => T, rule: TreeNodeRule<T>): void {
  if (typeof (type as unknown) !== "function")
    throw new ArgumentError("registerTreeNode", `type must be a class, received ${describe(type)}`)
  for (const name of ["flatten", "unflatten"] as const)
    if (typeof (rule as Partial<TreeNodeRule<T>> | null)?.[name] !== "function")
      throw new ArgumentError(
        "registerTreeNode",
        `rule must be an object with the functions flatten and unflatten, received ${describe(rule)}`,
      )
  rules.set(type, rule as TreeNodeRule<unknown>)
}

function ruleOf(value: object): TreeNodeRule<unknown> | undefined {
  if (rules.size === 0) return undefined
  for (
    let proto = Object.getPrototypeOf(value) as object | null;
    proto !== null;
    proto = Object.getPrototypeOf(proto) as object | null
  ) {
    const rule = rules.get(proto.constructor as AnyClass)
    if (rule) return rule
  }
  return undefined
}

/** The maximum depth of a tree. Names from files and cyclic trees must not overflow the stack. */
const MAX_LEVELS = 1000

/** Checks the depth of a traversal by the function `op`. @throws ArgumentError */
export function checkLevel(level: number, op = "tree"): void {
  if (level <= MAX_LEVELS) return
  throw new ArgumentError(op, `a tree has more than ${MAX_LEVELS} levels, or contains itself`)
}

/** The own property of a record; undefined for inherited ones such as `constructor`. */
export function getOwn(record: object | null | undefined, key: string | number): unknown {
  return record !== null && record !== undefined && Object.hasOwn(record, key)
    ? (record as Record<string | number, unknown>)[key]
    : undefined
}

/** Sets an own property of a record; assigning to `__proto__` would set the prototype. */
export function setOwn<T>(record: Record<string, T>, key: string, value: T): void {
  if (key === "__proto__")
    Object.defineProperty(record, key, { value, writable: true, enumerable: true, configurable: true })
  else record[key] = value
}

/** The children of an inner node of a tree, by key; null for a leaf. */
export function childrenOf(tree: unknown): Readonly<Record<string, unknown>> | readonly unknown[] | null {
  if (isList(tree) || isPlainObject(tree)) return tree
  if (typeof tree !== "object" || tree === null || tree instanceof Array) return null
  const rule = ruleOf(tree)
  return rule ? rule.flatten(tree) : null
}

/** An inner node like `tree` with other children: a list for a list, a record of the same keys otherwise. */
export function withChildren(
  tree: unknown,
  children: Readonly<Record<string, unknown>> | readonly unknown[],
): unknown {
  const rule = isList(tree) || isPlainObject(tree) ? undefined : ruleOf(tree as object)
  return rule ? rule.unflatten(tree, children as Record<string, unknown>) : children
}

/** Calls `visit` for every leaf: anything but plain objects, lists and registered classes. `path` is dotted. */
export function forEachLeaf(
  tree: unknown,
  visit: (leaf: unknown, path: string) => void,
  path = "",
  level = 0,
): void {
  const children = childrenOf(tree)
  if (children === null) {
    visit(tree, path)
    return
  }
  checkLevel(level)
  for (const key of Object.keys(children))
    forEachLeaf((children as Record<string, unknown>)[key], visit, below(path, key), level + 1)
}

const below = (path: string, key: string | number): string => (path === "" ? String(key) : `${path}.${key}`)

/** A tree of the same structure with every leaf replaced. */
export function mapLeaves(
  tree: unknown,
  replace: (leaf: unknown, path: string) => unknown,
  path = "",
  level = 0,
): unknown {
  const children = childrenOf(tree)
  if (children === null) return replace(tree, path)
  checkLevel(level)
  if (isList(children))
    return children.map((child, i) => mapLeaves(child, replace, below(path, i), level + 1))
  const out: Record<string, unknown> = {}
  for (const key of Object.keys(children))
    setOwn(
      out,
      key,
      mapLeaves((children as Record<string, unknown>)[key], replace, below(path, key), level + 1),
    )
  return withChildren(tree, out)
}

/** The arrays of a tree, in order. Promises are refused, as arrays that were not awaited, unless they are to be passed over. */
export function arraysOf(tree: unknown, promises: "refuse" | "pass" = "refuse"): Array[] {
  const out: Array[] = []
  addArrays(tree, out, 0, promises === "refuse")
  return out
}

function addArrays(tree: unknown, out: Array[], level: number, refuse: boolean): void {
  if (tree instanceof Array) {
    out.push(tree)
    return
  }
  const children = childrenOf(tree)
  if (children === null) {
    if (isForeign(tree) || (refuse && tree instanceof Promise)) refuseLeaf(tree)
    return
  }
  checkLevel(level)
  if (isList(children))
    for (let i = 0; i < children.length; i++) addArrays(children[i], out, level + 1, refuse)
  else
    for (const key of Object.keys(children))
      addArrays((children as Record<string, unknown>)[key], out, level + 1, refuse)
}

/** Reports a leaf that should be an array: one of another copy of this package, or a promise of one. */
function refuseLeaf(leaf: unknown): never {
  throw new ArgumentError("tree", `a leaf is ${describe(leaf)}`, { hint: hintFor(leaf) })
}

/** A tree of the same structure with every array replaced, in order; other leaves are unchanged. */
export function mapArrays(tree: unknown, replace: (array: Array) => unknown, level = 0): unknown {
  if (tree instanceof Array) return replace(tree)
  checkLevel(level)
  if (isList(tree)) return tree.map((child) => mapArrays(child, replace, level + 1))
  const children = childrenOf(tree)
  if (children === null) {
    if (isForeign(tree)) refuseLeaf(tree)
    return tree
  }
  const out: Record<string, unknown> = {}
  for (const key of Object.keys(children))
    setOwn(out, key, mapArrays((children as Record<string, unknown>)[key], replace, level + 1))
  return withChildren(tree, out)
}

/** The tree with new handles in place of those in `args`, for functions that may return their arguments. */
export function withOwnArrays<T>(tree: T, args: unknown): T {
  const given = new Set(arraysOf(args))
  return mapArrays(tree, (x) => (given.has(x) ? new Array(x.node) : x)) as T
}

/**
 * Arguments as a transform passes them on: new handles in new lists and plain objects, so that modifications (`x.set`) do not affect the
 * caller. Class instances are passed by reference and may be modified.
 */
export function withFreshHandles<T>(tree: T): T {
  return fresh(tree, 0) as T
}

function fresh(tree: unknown, level: number): unknown {
  if (tree instanceof Array) return new Array(tree.node)
  if (isList(tree)) {
    checkLevel(level)
    return tree.map((child) => fresh(child, level + 1))
  }
  if (!isPlainObject(tree)) return tree
  checkLevel(level)
  const out: Record<string, unknown> = {}
  for (const key of Object.keys(tree)) setOwn(out, key, fresh(tree[key], level + 1))
  return out
}

/** The tree with its arrays replaced, in order; other leaves are unchanged. */
export function withArrays(tree: unknown, arrays: readonly Array[]): unknown {
  let next = 0
  return mapArrays(tree, () => arrays[next++])
}

/** Replacements of trees, for compiled functions that captured the originals. */
const successors = new WeakMap<object, object>()
let replaced = false

/** Registers the replacement of a mutable tree: functions compiled with the original use the replacement from now on. */
export function replaceTree(before: object, after: object): void {
  successors.delete(after)
  if (before === after) return
  successors.set(before, after)
  replaced = true
}

/** The latest replacement of a tree, or the tree itself. */
export function currentTree<T extends object>(tree: T): T {
  if (!replaced) return tree
  let current: object = tree
  for (let next = successors.get(current); next; next = successors.get(current)) current = next
  return current as T
}
