/**
 * Captured state: the places in mutable trees (a Module, an optimizer's state, `mx.random.state`) that hold arrays, to be read and
 * replaced in place.
 */
import { Array, isList, isPlainObject } from "@lazuli/core/engine"

/** A place that holds an array. */
export interface Slot {
  readonly holder: Record<string | number, unknown>
  readonly key: string | number
}

/** The places of a tree that hold arrays, in a fixed order; objects met twice count once. */
export function slotsOf(tree: unknown): Slot[] {
  const slots: Slot[] = []
  const seen = new Set<object>()
  const visit = (value: unknown): void => {
    if (typeof value !== "object" || value === null || value instanceof Array || seen.has(value)) return
    seen.add(value)
    const holder = value as Record<string | number, unknown>
    if (!isList(value) && !isPlainObject(value) && !isModuleLike(value)) return
    for (const key of Object.keys(value)) {
      const child = holder[key]
      if (child instanceof Array) slots.push({ holder, key })
      else visit(child)
    }
  }
  visit(tree)
  return slots
}

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
