/**
 * Captured state: the leaves of mutable trees (a Module, an optimizer's state, `mx.random.state`) that are arrays, to be read and
 * replaced in place, and what else is in these trees.
 */
import {
  Array,
  checkLevel,
  currentTree,
  describe,
  getOwn,
  isList,
  lifetimes,
  type Node,
  setOwn,
  TransformError,
} from "@lazuli/core/engine"
import { Contents, isConstant, sameConstant } from "./constants"

/** The way from a tree's root to something in it. */
export type Path = readonly (string | number)[]
export type Holder = Record<string | number, unknown>

/** A leaf of a tree that is an array, and where it is. */
export interface ArrayLeaf {
  readonly holder: Holder
  readonly key: string | number
  readonly path: Path
}

/** A leaf that is no array; what the function sees there is part of its cached program. */
export interface Constant extends ArrayLeaf {
  readonly value: unknown
}

/** Numbers without a shape, which may change unseen. */
const isMemory = (value: unknown): boolean =>
  ArrayBuffer.isView(value) || value instanceof ArrayBuffer || value instanceof SharedArrayBuffer

/**
 * True if a value has leaves: lists, plain objects, and instances of user classes; the platform's own objects do not take part.
 */
export const isContainer = (value: unknown): value is object =>
  typeof value === "object" &&
  value !== null &&
  (Object.getPrototypeOf(value) === Object.prototype || isList(value) || !isOpaque(value))

/** The class that a cached program depends on; Object for lists and plain objects. */
export const classOf = (container: object): unknown => (isList(container) ? Object : container.constructor)

const PLATFORM = [Array, ArrayBuffer, SharedArrayBuffer, Map, Set, Date, RegExp, Promise]
/** By prototype: each call of a compiled function asks for every module in its state. */
const opaque = new WeakMap<object, boolean>()

/** True for an array, or an object of the platform. */
function isOpaque(value: object): boolean {
  if (ArrayBuffer.isView(value)) return true
  const prototype: object | null = Object.getPrototypeOf(value)
  if (prototype === null) return false
  let known = opaque.get(prototype)
  if (known === undefined) {
    known = PLATFORM.some((kind) => value instanceof kind)
    opaque.set(prototype, known)
  }
  return known
}

const NO_ELEMENTS = new Contents("Set", [])

/** The value of a leaf: the contents of a set, a map or a date; anything else itself. */
export function constantOf(value: unknown): unknown {
  if (typeof value !== "object") return value
  // Modules keep their frozen parameters' names in sets, most of which are empty.
  if (value instanceof Set) return value.size === 0 ? NO_ELEMENTS : new Contents("Set", [...value])
  if (value instanceof Map) return new Contents("Map", [...value].flat())
  if (value instanceof Date) return new Contents("Date", [value.getTime()])
  return value
}

/** True if what a leaf stands for says all that is in it. */
export function isSeen(value: unknown): boolean {
  const constant = constantOf(value)
  return constant instanceof Contents ? constant.elements.every(isConstant) : !isMemory(value)
}

type Visit = (holder: Holder, key: string | number, value: unknown, path: Path) => void

/**
 * Calls `visit` for every leaf of a tree, in a fixed order; for an instance of a class below the root with the class, too. Containers
 * met twice count once; `seen` gets them.
 */
function walk(
  tree: unknown,
  visit: Visit,
  seen: Set<object> = new Set(),
  path: (string | number)[] = [],
): void {
  const value = currentTree(tree as object)
  if (seen.has(value)) return
  checkLevel(path.length, "compile")
  seen.add(value)
  const holder = value as Holder
  const take = (key: string | number): void => {
    const child = holder[key]
    path.push(key)
    if (isContainer(child)) {
      const type = classOf(child)
      if (type !== Object) visit(holder, key, type, path)
      walk(child, visit, seen, path)
    } else visit(holder, key, child, path)
    path.pop()
  }
  if (isList(value)) for (let i = 0; i < value.length; i++) take(i)
  else for (const key of Object.keys(value)) take(key)
}

/** The leaves of a tree that are arrays. */
export function arrayLeaves(tree: unknown): ArrayLeaf[] {
  const held: ArrayLeaf[] = []
  if (isContainer(tree))
    walk(tree, (holder, key, child, path) => {
      if (child instanceof Array) held.push({ holder, key, path: [...path] })
      else if (holdsUnseen(child))
        throw new TransformError(
          "compile",
          `the captured ${leafName(path)} is a ${child.constructor.name} that holds arrays, which a compiled function cannot follow`,
          { hint: "Keep arrays in lists, plain objects or fields of a class" },
        )
    })
  return held
}

/** @throws TransformError where something in a tree could change without the cached program's noticing */
export function checkSeen(tree: unknown): void {
  if (isContainer(tree))
    walk(tree, (_holder, _key, child, path) => {
      if (child instanceof Array || isSeen(child)) return
      throw new TransformError(
        "compile",
        `the captured ${leafName(path)} is ${describe(child)}, whose contents could change unnoticed`,
        {
          hint: isMemory(child)
            ? "Keep an mx.array there, or keep it out of the tree, in a private field (#name) or elsewhere"
            : "Keep objects in lists, plain objects or fields of a class; sets and maps may hold strings and numbers",
        },
      )
    })
}

const holdsUnseen = (value: unknown): value is Map<unknown, unknown> | Set<unknown> =>
  (value instanceof Map || value instanceof Set) && [...value.values()].some((v) => v instanceof Array)

/** The values in a tree that are not arrays. */
export function constantsOf(tree: unknown): Constant[] {
  const found: Constant[] = []
  if (isContainer(tree))
    walk(tree, (holder, key, child, path) => {
      if (!(child instanceof Array)) found.push({ holder, key, path: [...path], value: constantOf(child) })
    })
  return found
}

/** The class of a tree's root, which no walk visits; nothing for lists and plain objects. */
export function rootClass(tree: unknown): Constant[] {
  if (!isContainer(tree) || classOf(tree) === Object) return []
  return [{ holder: tree as Holder, key: "", path: [], value: classOf(tree) }]
}

/** The changes that a function made to values in a tree that are not arrays. */
export interface Left {
  /** Leaves that hold nothing any more, or another container. */
  readonly vacated: readonly Vacated[]
  /** Leaves that hold another constant. */
  readonly written: readonly { readonly path: Path; readonly value: unknown }[]
}

/** The contents of a tree, to be told from what a function leaves there. */
export interface Holdings {
  readonly arrays: readonly ArrayLeaf[]
  readonly constants: readonly Constant[]
}

export const holdingsOf = (tree: unknown): Holdings => ({
  arrays: arrayLeaves(tree),
  constants: constantsOf(tree),
})

const textOf = (path: Path): string => JSON.stringify(path)

/** The changes to a tree's constants, and to its containers. */
export function leftOf(tree: unknown, before: Holdings): Left {
  const now = holdingsOf(tree)
  const was = new Map(before.constants.map(({ path, value }) => [textOf(path), value]))
  const vacated = vacatedOf(tree, [...before.arrays, ...before.constants], [...now.arrays, ...now.constants])
  const written = now.constants.flatMap(({ holder, key, path, value }) => {
    const text = textOf(path)
    return was.has(text) && sameConstant(was.get(text), value) ? [] : [{ path, value: copyOf(holder[key]) }]
  })
  return { vacated, written }
}

/** A value that later changes do not reach. */
function copyOf(value: unknown): unknown {
  if (value instanceof Set) return new Set(value)
  if (value instanceof Map) return new Map(value)
  return value instanceof Date ? new Date(value) : value
}

/** Gives a set, a map or a date the contents of another; false for anything else, and for two that are no such pair. */
function refill(target: unknown, source: unknown): boolean {
  if (target instanceof Set && source instanceof Set) {
    target.clear()
    for (const element of source) target.add(element)
  } else if (target instanceof Map && source instanceof Map) {
    target.clear()
    for (const [key, value] of source) target.set(key, value)
  } else if (target instanceof Date && source instanceof Date) target.setTime(source.getTime())
  else return false
  return true
}

/** Leaves in a tree what the function left there. */
export function leave(tree: unknown, { vacated, written }: Left): void {
  for (const each of vacated) vacate(tree, each)
  for (const { path, value } of written) writePath(tree, path, value)
}

/** The name of a leaf of captured state. */
export const leafName = (path: Path): string =>
  `state${path.map((key) => (typeof key === "number" ? `[${key}]` : `.${key}`)).join("")}`

/** The contents of trees before a trace. */
export interface Snapshot {
  /** The node that an array showed; undefined for one that was not there. */
  nodeOf(array: Array): Node | undefined
  /** The entries that a container held; undefined for one that was not there. */
  entriesOf(holder: Holder): Holder | undefined
  /** Lets every array show what it showed: updates in place within a trace have no value outside. */
  restoreArrays(): void
  /** Puts everything back: of a trace that failed nothing may stay. */
  restore(): void
  /** Lets go of what the arrays showed: nothing is to be restored any more. */
  release(): void
}

/** Remembers what every container of some trees holds, and what every array shows. */
export function snapshot(trees: readonly unknown[]): Snapshot {
  const seen = new Set<object>()
  // By handles: what an array showed would be written over where no handle shows it.
  const shown = new Map<Array, Array>()
  const copies = new Map<unknown, unknown>()
  const take: Visit = (_holder, _key, child) => {
    if (child instanceof Array) shown.set(child, shown.get(child) ?? new Array(child.node))
    else if (copyOf(child) !== child) copies.set(child, copyOf(child))
  }
  for (const tree of trees) if (isContainer(tree)) walk(tree, take, seen)
  const contents = new Map([...seen].map((holder) => [holder as Holder, { ...holder } as Holder]))
  const restoreArrays = (): void => {
    for (const [array, { node }] of shown) if (array.node !== node) lifetimes.rebind(array, node)
  }
  return {
    nodeOf: (array) => shown.get(array)?.node,
    entriesOf: (holder) => contents.get(holder),
    restoreArrays,
    restore: () => {
      restoreArrays()
      for (const [value, copy] of copies) refill(value, copy)
      for (const [holder, entries] of contents) {
        for (const key of Object.keys(holder)) if (!(key in entries)) delete holder[key]
        if (isList(holder)) (holder as unknown as unknown[]).length = Object.keys(entries).length
        // An entry that cannot be written was not.
        for (const key of Object.keys(entries))
          if (holder[key] !== entries[key]) Reflect.set(holder, key, entries[key])
      }
    },
    release: () => {
      for (const handle of shown.values()) lifetimes.disposeHandle(handle)
    },
  }
}

/** Puts a value at a path of a tree, making the containers that are missing. */
export function writePath(tree: unknown, path: Path, value: unknown): void {
  let holder = currentTree(tree as Holder)
  for (let i = 0; i + 1 < path.length; i++) {
    const key = path[i]
    if (!isHolder(heldBy(holder, key)))
      setOwn(holder as Record<string, unknown>, key as string, typeof path[i + 1] === "number" ? [] : {})
    holder = currentTree(heldBy(holder, key) as Holder)
  }
  const key = path[path.length - 1]
  // A getter follows what it reads.
  if (refill(heldBy(holder, key), value)) return
  if (key === "__proto__") setOwn(holder as Record<string, unknown>, key, copyOf(value))
  else Reflect.set(holder, key, copyOf(value))
}

/** The value of a holder at a key, by a getter too, but not its prototype. */
const heldBy = (holder: Holder, key: string | number): unknown =>
  key === "__proto__" ? getOwn(holder, key) : holder[key]

/** A leaf that was an array and is none any more: it is gone, or another value. */
export interface Vacated {
  readonly path: Path
  readonly gone: boolean
  readonly value: unknown
}

/** The leaves of `before` that are no arrays of the tree any more; of a container that went as a whole, the container. */
function vacatedOf(tree: unknown, before: readonly ArrayLeaf[], now: readonly ArrayLeaf[]): Vacated[] {
  const kept = new Set(now.map(({ path }) => textOf(path)))
  const found = new Map<string, Vacated>()
  for (const { path } of before) {
    if (kept.has(textOf(path))) continue
    let value: unknown = tree
    let depth = 0
    while (depth < path.length && isHolder(value) && path[depth] in value)
      value = heldBy(currentTree(value) as Holder, path[depth++])
    const gone = depth < path.length && isHolder(value)
    const at = path.slice(0, gone ? depth + 1 : depth)
    found.set(textOf(at), { path: at, gone, value: gone ? undefined : value })
  }
  return [...found.values()]
}

/** Makes a leaf of a tree as it was left. */
function vacate(tree: unknown, { path, gone, value }: Vacated): void {
  let holder: unknown = tree
  for (const key of path.slice(0, -1)) {
    if (!isHolder(holder)) return
    holder = (currentTree(holder) as Holder)[key]
  }
  if (!isHolder(holder)) return
  const at = currentTree(holder)
  const key = path[path.length - 1]
  if (!gone) at[key] = value
  else if (isList(at)) (at as unknown as unknown[]).length = Math.min(at.length, key as number)
  else delete at[key]
}

const isHolder = (value: unknown): value is Holder =>
  typeof value === "object" && value !== null && !(value instanceof Array)

/** The arrays that the leaves are now. */
export const readLeaves = (held: readonly ArrayLeaf[]): Array[] =>
  held.map(({ holder, key }) => holder[key] as Array)

/** Replaces the leaves by arrays. @throws TransformError for one that cannot be written */
export function writeLeaves(held: readonly ArrayLeaf[], arrays: readonly Array[]): void {
  held.forEach(({ holder, key, path }, i) => {
    if (!Reflect.set(holder, key, arrays[i]))
      throw new TransformError(
        "compile",
        `the captured ${leafName(path)} cannot be replaced, which a trace has to do`,
        {
          hint: "It is a getter or belongs to a frozen object",
        },
      )
  })
}
