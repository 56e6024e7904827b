/** The reference backend with its work edited: for tests of what the kit finds. */
import { type Backend, listBackends, type Node, registerBackend } from "@lazuli/core/engine"

const reference = listBackends().find(({ name }) => name === "reference") as Backend

/** Runs an application as the reference does. */
export const encodeReference = (node: Node): void => reference.queue.lower(node)?.encode(node)

/** A backend that calls `encode` for what the reference would run. */
export function editedBackend(name: string, encode: (node: Node) => void): Backend {
  const encoder = { encode }
  const { queue } = reference
  const lower = (node: Node) => queue.lower(node) && encoder
  return { ...reference, name, priority: -1, queue: { ...queue, lower } }
}

/** The same, registered. */
export function registerEdited(name: string, encode: (node: Node) => void): void {
  registerBackend(editedBackend(name, encode))
}
