/**
 * Copies from any layout to row-major. Only the size of an element matters.
 */
import { type Storage, sizeOf } from "@lazuli/core/engine"
import type { Argument, DispatchQueue, Kernel, Place } from "../dispatch"
import { collapse, isRowMajor, type View } from "../layout"
import { METAL_HEADER, wordType } from "../metal-types"

const GROUP = 256

/** One thread an element; `layout` holds the axes' sizes, the offset and the strides. */
function source(type: string, ndim: number): string {
  const lines = [`long p = long(layout[${ndim}]);`, "uint rest = i;"]
  for (let axis = ndim - 1; axis >= 0; axis--) {
    if (axis === 0) lines.push(`p += long(rest) * layout[${ndim + 1}];`)
    else
      lines.push(
        `p += long(rest % uint(layout[${axis}])) * layout[${ndim + 1 + axis}];`,
        `rest /= uint(layout[${axis}]);`,
      )
  }
  return `${METAL_HEADER}kernel void copy(device const ${type}* x [[buffer(0)]], device ${type}* y [[buffer(1)]],
    constant int* layout [[buffer(2)]], uint i [[thread_position_in_grid]]) {
${lines.map((line) => `  ${line}\n`).join("")}  y[i] = x[p];
}
`
}

/** Adds a copy of `from` to `target`. */
export function encodeCopy(queue: DispatchQueue, from: View, target: Place, op = "copy"): void {
  const size = sizeOf(from.shape)
  if (size === 0) return
  const {
    shape,
    strides: [strides],
  } = collapse(from.shape, [from.strides])
  const ndim = shape.length
  const type = wordType(from.itemsize)
  const kernel: Kernel = { key: `copy ${type} ${ndim}`, source: () => source(type, ndim), name: "copy" }
  const args: Argument[] = [
    { storage: from.storage, offset: 0 },
    target,
    Int32Array.from([...shape, from.offset, ...strides]),
  ]
  queue.dispatch({
    op,
    kernel,
    arguments: args,
    writes: [target.storage],
    grid: [size, 1, 1],
    threadgroup: [Math.min(GROUP, size), 1, 1],
  })
}

/** Runs `body` with the elements row-major: where they are, or in a copy that lives as long as the work. */
export function withRowMajor(queue: DispatchQueue, view: View, body: (place: Place) => void): void {
  if (isRowMajor(view)) {
    body({ storage: view.storage, offset: view.offset * view.itemsize })
    return
  }
  const storage: Storage = queue.allocate(sizeOf(view.shape) * view.itemsize)
  encodeCopy(queue, view, { storage, offset: 0 })
  body({ storage, offset: 0 })
  storage.drop()
}
