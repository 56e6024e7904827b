/**
 * The memory of outputs while they are computed: new, an input's, or none, with the error in its place; and the encoding of their work.
 * Whose memory an output takes is assignment.ts's to decide.
 */
import type { Backend, Encoder } from "../graph/backend"
import type { Application, Layout, Node } from "../graph/graph"
import type { Storage } from "../graph/storage"
import { donorFor, offsetIn, storages, stridesIn } from "./assignment"
import { lifetimes } from "./memory"

/** True under `isUnderWay` if work is being encoded or run: then nothing is evaluated automatically, nor by itself. */
export const encoding = { isUnderWay: false }

/** New memory for an output of the operation `op`, or for more than that. */
export function allocate(backend: Backend, meta: Node, op: string, nbytes: number = meta.nbytes): Storage {
  lifetimes.noteAllocation(backend.memory, nbytes)
  const storage = backend.memory.allocate(nbytes, meta.stream)
  storage.op = op
  storage.stream = meta.stream
  return storage
}

/** Lets a node show the memory of another in some layout. */
export function share(node: Node, source: Node, layout: Layout): void {
  const storage = source.storage as Storage
  storage.refs++
  node.storage = storage
  node.offset = offsetIn(layout, node)
  node.strides = stridesIn(layout, node)
}

/** Gives an output the memory of an input, or new memory. */
export function assign(output: Node, donor: Node | null, backend: Backend, op: string): void {
  if (donor === null) {
    output.storage = allocate(backend, output, op)
    return
  }
  const storage = donor.storage as Storage
  if (!lifetimes.handOver(donor, output)) storage.refs++
  storage.op = op
  if (storage.copies !== null) storage.dropCopies()
  output.storage = storage
}

/** The error of an input that has no value. */
export function failureOf(inputs: readonly Node[]): Error | null {
  for (let i = 0; i < inputs.length; i++) {
    const { storage } = inputs[i]
    if (storage !== null && storage.failure !== null) return storage.failure
  }
  return null
}

/** Gives an application's outputs the error of its input in place of values. */
export function poison(application: Application, backend: Backend, failure: Error): void {
  for (const output of application.outputs ?? [application]) {
    output.storage = allocate(backend, output, application.primitive.name)
    output.storage.failure = failure
  }
}

/** Waits for the value of a storage. @throws its error, where it has none */
export function awaitValue(storage: Storage): void {
  storage.memory.wait?.(storage)
  if (storage.failure) throw storage.failure
}

/** Tells that all evaluated inputs have their values, in memory that a backend sees; immediates have none. */
export function areReady(backend: Backend, inputs: readonly Node[]): boolean {
  const { memory } = backend
  for (let i = 0; i < inputs.length; i++) {
    const { storage } = inputs[i]
    if (storage !== null && (storage.failure !== null || storage.memory !== memory)) return false
  }
  return true
}

/** Gives all outputs of an application memory, or none of them. */
export function assignAll(outputs: readonly Node[], assignOne: (output: Node, i: number) => void): void {
  let i = 0
  try {
    for (; i < outputs.length; i++) assignOne(outputs[i], i)
  } catch (error) {
    // Without values they are still to be computed.
    while (i > 0) lifetimes.releaseNode(outputs[--i])
    throw error
  }
}

/** In a function of its own, so that what it closes over costs applications of one output nothing. */
function assignSeveral(
  outputs: readonly Node[],
  application: Application,
  encoder: Encoder | null,
  backend: Backend,
): void {
  assignAll(outputs, (output, i) => {
    const donor = encoder === null ? null : donorFor(storages, encoder, application, output, i)
    assign(output, donor, backend, application.primitive.name)
  })
}

/** Gives the outputs memory, and encodes the kernel if there is one. */
export function runEncoder(application: Application, backend: Backend, encoder: Encoder | null): void {
  const { outputs, primitive } = application
  if (outputs === null) {
    const donor = encoder === null ? null : donorFor(storages, encoder, application, application, 0)
    assign(application, donor, backend, primitive.name)
  } else assignSeveral(outputs, application, encoder, backend)
  if (encoder === null) return
  try {
    encoder.encode(application)
  } catch (error) {
    for (const output of outputs ?? [application]) (output.storage as Storage).failure = error as Error
    throw error
  }
}
