/**
 * Captured state: the places in mutable trees (a Module, an optimizer's state, `mx.random.state`) that hold arrays, to be read and
 * replaced in place.
 */
import { Array, currentTree, isList, isPlainObject } from "@lazuli/core/engine"

/** How to get from a tree's root to something in it. */
export type Path = readonly (string | number)[]
type Holder = Record<string | number, unknown>

/** A place that holds an array. */
export interface Slot {
  readonly holder: Holder
  readonly key: string | number
  readonly path: Path
}

/** The places of a tree that hold arrays, in a fixed order; objects met twice count once. */
export function slotsOf(tree: unknown): Slot[] {
  const slots: Slot[] = []
  const seen = new Set<object>()
  const visit = (tree: unknown, path: Path): void => {
    if (typeof tree !== "object" || tree === null || tree instanceof Array) return
    const value = currentTree(tree)
    if (seen.has(value)) return
    seen.add(value)
    const holder = value as Holder
    if (!isList(value) && !isPlainObject(value) && !isModuleLike(value)) return
    for (const name of Object.keys(value)) {
      const child = holder[name]
      const key = isList(value) ? Number(name) : name
      const below = [...path, key]
      if (child instanceof Array) slots.push({ holder, key, path: below })
      else visit(child, below)
    }
  }
  visit(tree, [])
  return slots
}

/** The places of a tree that hold arrays, without their paths, for comparing quickly; in the same order as {@link slotsOf}. */
export class Places {
  readonly holders: Record<string | number, unknown>[] = []
  readonly keys: (string | number)[] = []
  readonly arrays: Array[] = []

  /** Finds the places anew. */
  read(tree: unknown): void {
    this.holders.length = 0
    this.keys.length = 0
    this.arrays.length = 0
    if (typeof tree === "object" && tree !== null) this.visit(tree, new Set())
  }

  /** Lets go of the arrays: they must not live longer than their owners let them. */
  forget(): void {
    this.arrays.length = 0
  }

  private visit(tree: object, seen: Set<object>): void {
    if (tree instanceof Array) return
    const value = currentTree(tree)
    if (seen.has(value)) return
    seen.add(value)
    const list = isList(value)
    if (!list && !isPlainObject(value) && !isModuleLike(value)) return
    const holder = value as unknown as Record<string | number, unknown>
    if (list) {
      for (let i = 0; i < value.length; i++) this.take(holder, i, value[i], seen)
    } else for (const key of Object.keys(value)) this.take(holder, key, holder[key], seen)
  }

  private take(
    holder: Record<string | number, unknown>,
    key: string | number,
    child: unknown,
    seen: Set<object>,
  ): void {
    if (child instanceof Array) {
      this.holders.push(holder)
      this.keys.push(key)
      this.arrays.push(child)
    } else if (typeof child === "object" && child !== null) this.visit(child, seen)
  }
}

/** What every container of a tree holds, to be put back when a trace fails: nothing of it may stay. */
export function snapshot(tree: unknown): () => void {
  const containers = new Map<Record<string, unknown>, Record<string, unknown>>()
  const visit = (inner: unknown): void => {
    if (typeof inner !== "object" || inner === null || inner instanceof Array) return
    const value = currentTree(inner)
    const holder = value as Record<string, unknown>
    if (containers.has(holder) || (!isList(value) && !isPlainObject(value) && !isModuleLike(value))) return
    containers.set(holder, { ...holder })
    for (const key of Object.keys(holder)) visit(holder[key])
  }
  visit(tree)
  return () => {
    for (const [holder, entries] of containers) {
      for (const key of Object.keys(holder)) if (!(key in entries)) delete holder[key]
      if (isList(holder)) (holder as unknown as unknown[]).length = Object.keys(entries).length
      Object.assign(holder, entries)
    }
  }
}

/** Puts an array at a path of a tree, making the containers that are missing. */
export function writePath(tree: unknown, path: Path, array: Array): void {
  let holder = currentTree(tree as Holder)
  for (let i = 0; i + 1 < path.length; i++) {
    const key = path[i]
    if (!isHolder(holder[key])) holder[key] = typeof path[i + 1] === "number" ? [] : {}
    holder = currentTree(holder[key] as Holder)
  }
  holder[path[path.length - 1]] = array
}

/** What became of a place that held an array and holds none any more: it is gone, or holds another value. */
export interface Vacated {
  readonly path: Path
  readonly gone: boolean
  readonly value: unknown
}

/** The places of `before` that hold no array of the tree any more; of a container that went as a whole, its own place. */
export function vacatedOf(tree: unknown, before: readonly Slot[], now: readonly Slot[]): Vacated[] {
  const kept = new Set(now.map(({ path }) => JSON.stringify(path)))
  const found = new Map<string, Vacated>()
  for (const { path } of before) {
    if (kept.has(JSON.stringify(path))) continue
    let value: unknown = tree
    let depth = 0
    while (depth < path.length && isHolder(value) && path[depth] in value)
      value = (currentTree(value) as Holder)[path[depth++]]
    const gone = depth < path.length && isHolder(value)
    const at = path.slice(0, gone ? depth + 1 : depth)
    found.set(JSON.stringify(at), { path: at, gone, value: gone ? undefined : value })
  }
  return [...found.values()]
}

/** Makes a place of a tree as it was left. */
export function vacate(tree: unknown, { path, gone, value }: Vacated): void {
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

/** Instances of user classes hold arrays in their fields; the platform's own objects do not take part. */
function isModuleLike(value: object): boolean {
  return !(
    ArrayBuffer.isView(value) ||
    value instanceof Map ||
    value instanceof Set ||
    value instanceof Date ||
    value instanceof RegExp ||
    value instanceof Promise
  )
}

/** What the places hold now. */
export const readSlots = (slots: readonly Slot[]): Array[] =>
  slots.map(({ holder, key }) => holder[key] as Array)

/** Puts arrays into the places. */
export function writeSlots(slots: readonly Slot[], arrays: readonly Array[]): void {
  slots.forEach(({ holder, key }, i) => {
    holder[key] = arrays[i]
  })
}
