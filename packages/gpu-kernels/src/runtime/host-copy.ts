/**
 * Copies by the processor, for a device that has no kernel for one and cannot compile it.
 */
import { backendFor, countFallback, cpu, type Node, type Storage } from "@lazuli/core/engine"

/** Copies `source`, of any layout, to `target`, row-major, and counts that. @throws the failure of what `source` is made of */
export function copyOnHost(source: Node, target: Node): void {
  const [from, to] = [source.storage as Storage, target.storage as Storage]
  const { memory, queue } = backendFor(cpu)
  countFallback(from.memory.name, "copy", "borrowed")
  const given = new Uint8Array(from.nbytes)
  from.memory.read(from, 0, given)
  const read = memory.allocate(from.nbytes)
  const made = memory.allocate(to.nbytes)
  try {
    queue.flush()
    memory.write(read, 0, given)
    source.storage = read
    target.storage = made
    queue.encodeCopy(source, target)
    queue.flush()
    if (made.failure) throw made.failure
    const bytes = new Uint8Array(to.nbytes)
    memory.read(made, 0, bytes)
    to.memory.write(to, 0, bytes)
  } finally {
    source.storage = from
    target.storage = to
    read.drop()
    made.drop()
  }
}
