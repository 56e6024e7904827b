/**
 * Values along rows: the work of a joined kernel as a graph, which row-group-source.ts writes in Metal. A value is one number for each
 * element of a row, or one for the row.
 */
import { exchanged, type Fold } from "./fold"

/** Statements on the names of arguments; the names that they declare begin with `prefix`. */
export type Text = (names: readonly string[], prefix: string) => { lines: string[]; results: string[] }

/** Statements with their arguments. */
export interface Block {
  readonly args: readonly Value[]
  readonly text: Text
}

/** The origin of a value. */
export type Origin =
  /** An operand, by number. */
  | { readonly kind: "input"; readonly index: number }
  /** One result of statements, which several values may share. */
  | { readonly kind: "result"; readonly block: Block; readonly index: number }
  /** All elements of a row together. */
  | { readonly kind: "fold"; readonly fold: Fold; readonly of: Value; readonly scale: string }

export interface Value {
  readonly id: number
  /** One for each element. */
  readonly wide: boolean
  /** The type in which it is computed. */
  readonly type: string
  /** The number of folds, one after the other, that it waits for. */
  readonly level: number
  readonly origin: Origin
}

/** Makes values. */
export class Values {
  readonly all: Value[] = []

  input(index: number, wide: boolean, type: string): Value {
    return this.add(wide, type, 0, { kind: "input", index })
  }

  /** The results of statements, of these types. */
  block(args: readonly Value[], types: readonly string[], text: Text): Value[] {
    const block = { args, text }
    const wide = args.some((arg) => arg.wide)
    const level = Math.max(0, ...args.map((arg) => arg.level))
    return types.map((type, index) => this.add(wide, type, level, { kind: "result", block, index }))
  }

  /** One expression. */
  map(args: readonly Value[], type: string, expression: (...names: string[]) => string): Value {
    return this.block(args, [type], (names, prefix) => ({
      lines: [`${type} ${prefix}0 = ${expression(...names)};`],
      results: [`${prefix}0`],
    }))[0]
  }

  fold(fold: Fold, of: Value, type: string, scale = "1.0f"): Value {
    return this.add(false, type, of.level + 1, { kind: "fold", fold, of, scale })
  }

  private add(wide: boolean, type: string, level: number, origin: Origin): Value {
    const value = { id: this.all.length, wide, type, level, origin }
    this.all.push(value)
    return value
  }
}

const plain = (name: string, start: string, combine: string): Fold => ({
  key: name,
  acc: "float",
  accSize: 4,
  from: "float",
  to: "float",
  start,
  first: "x",
  combine,
  last: "a",
  exchange: exchanged("a", "float"),
})

/** Folds of numbers as they are computed. */
export const floatSum = plain("sum", "0.0f", "a + b")
export const floatMax = plain("max", "-INFINITY", "lz_maximum(a, b)")
