/**
 * The reference backend: memory in JavaScript, every primitive by its reference implementation. Slow on purpose, always available, and what
 * other backends are compared with.
 */

import { type Backend, type Encoder, registerBackend } from "../graph/backend"
import { applicationOf } from "../graph/graph"
import { type Memory, Storage } from "../graph/storage"
import { copyElements, runReference } from "./reference"

const memory: Memory = {
  name: "reference",
  allocate(nbytes) {
    return new Storage(this, 0, nbytes, new ArrayBuffer(nbytes))
  },
  release() {
    // The garbage collector frees it.
  },
  read(storage, byteOffset, into) {
    const from = new Uint8Array(bytesOf(storage), byteOffset, into.byteLength)
    new Uint8Array(into.buffer, into.byteOffset, into.byteLength).set(from)
  },
  write(storage, byteOffset, from) {
    const bytes = new Uint8Array(from.buffer, from.byteOffset, from.byteLength)
    new Uint8Array(bytesOf(storage)).set(bytes, byteOffset)
  },
  host: bytesOf,
}

function bytesOf(storage: Storage): ArrayBuffer {
  return storage.bytes as ArrayBuffer
}

const encoder: Encoder = {
  encode(node) {
    const outputs = node.outputs ?? [node]
    const poisoned = node.inputs.find((n) => n.storage?.failure)?.storage?.failure
    try {
      if (poisoned) throw poisoned
      runReference(applicationOf(node))
    } catch (error) {
      for (const { storage } of outputs) (storage as Storage).failure = error as Error
    }
  },
}

/** Serves the CPU until a faster backend registers. */
export const referenceBackend: Backend = {
  name: "reference",
  device: "cpu",
  priority: 0,
  memory,
  queue: {
    lower(node) {
      const rules = node.primitive?.rules
      return rules?.scalar !== undefined || rules?.reference !== undefined ? encoder : null
    },
    encodeCopy: copyElements,
    flush() {
      // Everything has run.
    },
  },
}

registerBackend(referenceBackend)
