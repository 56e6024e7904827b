/** The order of sorted elements, and the primitive argsort. Sorting is stable, and NaN comes last. */
import { complex64, uint32 } from "../graph/dtype"
import type { HostArray } from "../graph/graph"
import { type Apply, definePrimitive } from "../graph/primitive"
import { sizeOf } from "../graph/shape"
import { moveToFront } from "./view"

type Values = { [i: number]: number | bigint; readonly length: number }

/** Less than 0 where element p comes before element q. */
function orderOf(x: HostArray): (p: number, q: number) => number {
  const data = x.data as Values
  const compare = (a: number | bigint, b: number | bigint): number => {
    if (a < b) return -1
    if (a > b) return 1
    return Number(Number.isNaN(a)) - Number(Number.isNaN(b))
  }
  if (x.dtype !== complex64) return (p, q) => compare(data[p], data[q])
  // A complex number with NaN in either part comes last.
  const isNaNPair = (p: number): number => Number(Number.isNaN(data[2 * p]) || Number.isNaN(data[2 * p + 1]))
  return (p, q) => {
    const [a, b] = [isNaNPair(p), isNaNPair(q)]
    if (a || b) return a - b
    return compare(data[2 * p], data[2 * q]) || compare(data[2 * p + 1], data[2 * q + 1])
  }
}

/** Calls `visit(k, position, source)`: the k-th smallest element of a line is at `source` and moves to `position`. */
export function eachSorted(
  x: HostArray,
  axis: number,
  visit: (k: number, position: number, source: number) => void,
): void {
  const n = x.shape[axis]
  const outer = sizeOf(x.shape.slice(0, axis))
  const inner = sizeOf(x.shape.slice(axis + 1))
  const order = orderOf(x)
  for (let o = 0; o < outer; o++) {
    for (let i = 0; i < inner; i++) {
      const at = (k: number): number => (o * n + k) * inner + i
      const line = globalThis.Array.from({ length: n }, (_, k) => k).sort((j, k) => order(at(j), at(k)))
      for (let k = 0; k < n; k++) visit(line[k], at(k), at(line[k]))
    }
  }
}

/** The places that the sorted elements of each line come from. */
export const argsortAlong: Apply<{ axis: number }> = definePrimitive({
  name: "argsort",
  params: { axis: "i64" },
  infer: ([x]) => ({ shape: x.shape, dtype: uint32 }),
  reference: ([x], [out], { axis }) =>
    eachSorted(x, axis, (k, position) => {
      out.data[position] = k
    }),
  vjp: () => [null],
  jvp: () => [null],
  vmap: ({ inputs: [x], axes: [batch], params: { axis } }) => ({
    outputs: [argsortAlong([moveToFront(x, batch as number)], { axis: axis + 1 })],
    axes: [0],
  }),
})
