/**
 * Copies from any layout to row-major. Only the size of an element matters.
 */
import { type Storage, sizeOf } from "@lazuli/core/engine"
import type { DispatchQueue, Place } from "../dispatch"
import { isRowMajor, type View } from "../layout"
import { dispatchMap } from "../map"
import { wordType } from "../metal-types"

/** Adds a copy of `from` to `target`. */
export function encodeCopy(queue: DispatchQueue, from: View, target: Place, op = "copy"): void {
  const { itemsize: size } = from
  const type = wordType(size)
  dispatchMap(
    queue,
    op,
    { key: `copy ${type}`, make: () => ({ inputs: [type], outputs: [type], text: "o0 = a0;" }) },
    [{ ...from, size }],
    [{ storage: target.storage, size, offset: target.offset / size }],
    from.shape,
  )
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
