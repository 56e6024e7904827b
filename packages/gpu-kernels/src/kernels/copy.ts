/**
 * Copies from any layout to row-major. Only the size of an element matters.
 */
import { contiguousStrides, type Node, type Storage, sizeOf } from "@lazuli/core/engine"
import type { DispatchQueue, Location } from "../dispatch"
import { collapse, isRowMajor, locationOf, type View, viewOf } from "../layout"
import { dispatchMap } from "../map"
import { wordType } from "../metal-types"
import { TRANSPOSE_THREADS, tileSide, transposeSource } from "../transpose-source"

/** The least sides of what is worth a tile. */
const LEAST_SIDE = 16

/** Adds a copy of `from` to `target`. */
export function encodeCopy(queue: DispatchQueue, from: View, target: Location, op = "copy"): void {
  const { itemsize: size } = from
  const type = wordType(size)
  if (encodeTransposed(queue, from, target, op)) return
  dispatchMap(
    queue,
    op,
    { key: `copy ${type}`, make: () => ({ inputs: [type], outputs: [type], text: "o0 = a0;" }) },
    [{ ...from, size }],
    [{ storage: target.storage, size, offset: target.offset / size }],
    from.shape,
  )
}

/** Adds a copy in another type of Metal's, of two or four bytes. */
export function encodeCast(
  queue: DispatchQueue,
  from: View,
  target: Location,
  type: string,
  to: string,
  op: string,
): void {
  const size = to === "float" ? 4 : 2
  dispatchMap(
    queue,
    op,
    { key: `cast ${type} ${to}`, make: () => ({ inputs: [type], outputs: [to], text: `o0 = ${to}(a0);` }) },
    [{ ...from, size: from.itemsize }],
    [{ storage: target.storage, size, offset: target.offset / size }],
    from.shape,
  )
}

/** A copy by tiles, where the source runs along another axis than the target; whether it does. */
function encodeTransposed(queue: DispatchQueue, from: View, target: Location, op: string): boolean {
  if (from.strides[from.strides.length - 1] === 1 || sizeOf(from.shape) === 0) return false
  const {
    shape,
    strides: [walk],
  } = collapse(from.shape, [from.strides])
  const last = shape.length - 1
  const along = walk.indexOf(1)
  if (along < 0 || along === last || shape[along] < LEAST_SIDE || shape[last] < LEAST_SIDE) return false
  const targets = contiguousStrides(shape)
  const outer = [...shape.keys()].filter((axis) => axis !== along && axis !== last)
  const pick = (values: readonly number[]): number[] => outer.map((axis) => values[axis])
  const { itemsize: size } = from
  const type = wordType(size)
  const side = tileSide(size)
  const [across, down] = [Math.ceil(shape[last] / side), Math.ceil(shape[along] / side)]
  queue.dispatch({
    op,
    kernel: {
      key: `transpose ${type} ${outer.length}`,
      name: "transposed",
      source: () => transposeSource(type, size, outer.length),
    },
    arguments: [
      { storage: from.storage, offset: 0 },
      target,
      Int32Array.from([
        ...[across, down, shape[last], shape[along], walk[last], targets[along], from.offset],
        ...[...pick(shape), ...pick(walk), ...pick(targets)],
      ]),
    ],
    writes: [target.storage],
    grid: [across * down * sizeOf(pick(shape)) * TRANSPOSE_THREADS, 1, 1],
    threadgroup: [TRANSPOSE_THREADS, 1, 1],
  })
  return true
}

/** Runs `body` with the elements row-major: where they are, or in a copy that lives as long as the work. */
export function withRowMajor(queue: DispatchQueue, view: View, body: (location: Location) => void): void {
  if (isRowMajor(view)) {
    body(locationOf(view))
    return
  }
  const storage: Storage = queue.allocate(sizeOf(view.shape) * view.itemsize)
  encodeCopy(queue, view, { storage, offset: 0 })
  body({ storage, offset: 0 })
  storage.drop()
}

/** Row-major locations of several nodes' elements. Copies live until `body` returns. */
export function withAllRowMajor(
  queue: DispatchQueue,
  nodes: readonly Node[],
  body: (locations: readonly Location[]) => void,
  locations: readonly Location[] = [],
): void {
  if (locations.length === nodes.length) body(locations)
  else
    withRowMajor(queue, viewOf(nodes[locations.length]), (location) =>
      withAllRowMajor(queue, nodes, body, [...locations, location]),
    )
}
