/** Positions and offsets as users give them: checked as far as they are known, the rest when they are read. */
import * as mx from "@lazuli/core"
import { format, type HostArray } from "@lazuli/core/plugin"

/** An array of integers, or a list of them. */
export type Integers = mx.Array | readonly number[]

/** Integers of one axis, `count` of them unless that is null. @throws DTypeError, ShapeError, ArgumentError */
export function asLine(op: string, name: string, value: Integers, count: number | null = null): mx.Array {
  let line: mx.Array
  if (value instanceof mx.Array) {
    if (!mx.issubdtype(value.dtype, mx.integer))
      throw new mx.DTypeError(op, `${name} must be integers, received ${value.dtype.name}`)
    line = value
  } else {
    const wrong = value.find((each) => !Number.isInteger(each))
    if (wrong !== undefined)
      throw new mx.ArgumentError(op, `${name} must be integers, received ${String(wrong)}`)
    const wide = value.find((each) => Math.abs(each) >= 2 ** 31)
    if (wide !== undefined)
      throw new mx.ArgumentError(op, `${name} must fit 32 bits, received ${String(wide)}`)
    line = mx.array(value.slice(), mx.int32)
  }
  if (line.ndim !== 1)
    throw new mx.ShapeError(op, `${name} must have one dimension, received shape ${format(line.shape)}`)
  if (count !== null && line.shape[0] !== count)
    throw new mx.ShapeError(op, `expected ${count} ${name}, received ${line.shape[0]}`)
  return line
}

/** Positions in an axis of `size`, `count` of them unless that is null; lists are checked. @throws DTypeError, ShapeError, IndexError */
export function asPositions(
  op: string,
  name: string,
  value: Integers,
  size: number,
  count: number | null = null,
): mx.Array {
  const line = asLine(op, name, value, count)
  const outside = value instanceof mx.Array ? undefined : value.find((at) => at < 0 || at >= size)
  if (outside !== undefined)
    throw new mx.IndexError(op, `index ${outside} in ${name} is out of bounds for axis 0 with size ${size}`)
  return line
}

/** Positions as unsigned numbers, so that core counts none from the end: negative ones are too large. */
export const unsigned = (line: mx.Array): mx.Array =>
  mx.issubdtype(line.dtype, mx.unsignedinteger)
    ? line
    : line.astype(line.dtype.size === 8 ? mx.uint64 : mx.uint32)

/** Where each cloud begins, and the number of points at the end; one cloud where nothing is given. Lists are checked. */
export function asOffsets(op: string, name: string, value: Integers | null | undefined, n: number): mx.Array {
  if (value === null || value === undefined) return mx.array([0, n], mx.int32)
  const line = asLine(op, name, value)
  if (line.shape[0] === 0)
    throw new mx.ShapeError(op, `${name} must have at least one element, received none`)
  if (!(value instanceof mx.Array)) boundsOf(op, value, n)
  return line
}

/** The offsets of clouds, from 0 to n without a descent. @throws IndexError */
export function boundsOf(op: string, offsets: HostArray | readonly number[], n: number): number[] {
  const values = "data" in offsets ? (offsets.data as ArrayLike<number | bigint>) : offsets
  const bounds = globalThis.Array.from(values, Number)
  if (bounds[0] !== 0) throw new mx.IndexError(op, `offsets must begin with 0, received ${bounds[0]}`)
  for (let i = 1; i < bounds.length; i++)
    if (bounds[i] < bounds[i - 1])
      throw new mx.IndexError(op, `offsets must not descend, received ${bounds[i]} after ${bounds[i - 1]}`)
  const last = bounds[bounds.length - 1]
  if (last !== n) throw new mx.IndexError(op, `offsets must end with the ${n} rows, received ${last}`)
  return bounds
}

/** Every example's operand in front, the one of all repeated. */
export const inFront = (x: mx.Array, axis: number | null, size: number): mx.Array =>
  axis === null ? mx.broadcastTo(x, [size, ...x.shape]) : mx.moveaxis(x, axis, 0)

/** Positions of all examples in the stack of their rows, `count` each; those out of bounds stay so. */
export function stackPositions(line: mx.Array, axis: number | null, size: number, count: number): mx.Array {
  const given = inFront(line, axis, size)
  // Wider ones are compared before they are cut to 32 bits.
  const each = given.dtype.size < 4 ? given.astype(mx.int32) : given
  const inside = mx.logicalAnd(each.greaterEqual(0), each.less(count))
  const shift = mx.arange(size, { dtype: mx.int32 }).multiply(count).expandDims(1)
  return mx
    .where(inside, each.astype(mx.int32).add(shift), 2 ** 31 - 1)
    .astype(mx.uint32)
    .flatten()
}

/** Offsets of all examples in the stack of their rows, `count` each; those of an example that do not fit stay so. */
export function stackOffsets(offsets: mx.Array, axis: number | null, size: number, count: number): mx.Array {
  const given = inFront(offsets, axis, size)
  const each = given.dtype.size < 4 ? given.astype(mx.int32) : given
  const last = each.shape[1] - 1
  const [starts, ends] = [each.index(":", `:${last}`), each.index(":", "1:")]
  const ascends = mx.logicalAnd(starts.greaterEqual(0), starts.lessEqual(ends)).all(1)
  const fits = mx.logicalAnd(each.index(":", 0).equal(0), each.index(":", last).equal(count))
  const shift = mx.arange(size, { dtype: mx.int32 }).multiply(count).expandDims(1)
  const shifted = mx.where(mx.logicalAnd(ascends, fits).expandDims(1), starts.astype(mx.int32).add(shift), -1)
  return mx.concatenate([shifted.flatten(), mx.array([size * count], mx.int32)], 0)
}
