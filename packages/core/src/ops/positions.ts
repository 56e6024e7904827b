/** Validation and normalization of indices. Negative ones count from the end. */
import { asArrayArgument, isList } from "../graph/args"
import { isInteger } from "../graph/dtype"
import { ArgumentError, DTypeError, describe, IndexError, ShapeError } from "../graph/errors"
import type { Array } from "../graph/graph"
import { arange } from "./arange"
import { toDtype } from "./constant"
import { array } from "./creation"
/** Normalizes a negative index element. @throws IndexError */
export function position(op: string, value: number | bigint, axis: number, size: number, span = 1): number {
  const index = Number(value)
  const normal = index < 0 ? index + size : index
  if (normal < 0 || normal + span > size)
    throw new IndexError(op, `index ${index} is out of bounds for axis ${axis} with size ${size}`)
  return normal
}

/** An index argument: an integer array, or a list of integers. */
export type Indices = Array | readonly number[]

/** @internal Converts an index argument to an integer array. @throws DTypeError */
export function asIndices(op: string, value: unknown): Array {
  const index = isList(value)
    ? array(value as number[], { dtype: value.length > 0 ? integerList(op, value) : null })
    : value
  const x = asArrayArgument(op, "indices", index)
  if (isList(value) && value.length === 0) return toDtype(x, arange(0).dtype)
  if (!isInteger(x.dtype)) throw new DTypeError(op, `indices must be integers, received ${x.dtype.name}`)
  return x
}

/** The maximum nesting of lists of indices. */
const MAX_AXES = 64

function integerList(op: string, list: readonly unknown[]): Array["dtype"] {
  const visit = (v: unknown, level: number): void => {
    if (isList(v)) {
      if (level > MAX_AXES) throw new ShapeError(op, `indices are nested more than ${MAX_AXES} levels deep`)
      for (const each of v) visit(each, level + 1)
    } else if (!Number.isInteger(v))
      throw new ArgumentError(op, `indices must be integers, received ${describe(v)}`)
  }
  visit(list, 0)
  return arange(0).dtype
}

/** @internal Normalizes an integer index. @throws IndexError */
export function staticIndex(op: string, index: number, axis: number, size: number): number {
  if (!Number.isInteger(index))
    throw new ArgumentError(op, `an index must be an integer, received ${describe(index)}`)
  return position(op, index, axis, size)
}
