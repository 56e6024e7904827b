/**
 * Updates in the memory of their first input, which a handle may still show, and reads of former values; undo.ts says which updates, and
 * why. What is overwritten is copied and waited for first, so that an update that fails leaves the array as it was.
 */
import type { Backend, Encoder } from "../graph/backend"
import { currentStream, onStream } from "../graph/device"
import { type Application, Array, forgetGraph, handles, Mark, Node, withoutHandles } from "../graph/graph"
import { NO_PARAMS } from "../graph/params"
import type { Storage } from "../graph/storage"
import { storages, viewOf, Way, wayOf } from "./assignment"
import { lifetimes } from "./memory"
import { allocate, areReady, assign, failureOf, poison, share } from "./outputs"
import { bytesBeside, type Evaluation, forgetUndo, isFormer, OLDEST, undoOf, writesOver } from "./undo"

const NO_INPUTS: readonly Node[] = []

/**
 * Runs an update: by `run`, where it gets memory like any other application. `wanted` are the nodes that the evaluation was asked for; see
 * {@link writesOver}.
 */
export function runUpdate(
  application: Application,
  backend: Backend,
  evaluation: Evaluation | null,
  run: () => void,
): void {
  if (isFormer(application)) restore(application, backend, run)
  else if (!writeOver(application, backend, evaluation)) run()
}

/**
 * Restores a former value. The memory that it is in has it also where the work that was to change it failed: then nothing else was written
 * there.
 */
function restore(application: Application, backend: Backend, run: () => void): void {
  const { inputs } = application
  const storage = inputs[0].storage as Storage
  storage.memory.wait?.(storage)
  const { failure } = storage
  if (failure !== null) {
    storage.failure = null
    // Memory has a value for its backend once it was written to, be it by no element.
    backend.queue.encodeCopy(emptyIn(inputs[1].storage, inputs[1]), emptyIn(storage, inputs[1]))
  }
  try {
    run()
    forgetUndo(inputs[0])
  } finally {
    if (application.storage !== storage) storage.failure = failure
  }
}

/** An array without elements in some memory. */
function emptyIn(storage: Storage | null, { dtype, stream }: Node): Node {
  const node = new Node([0], dtype, null, NO_INPUTS, NO_PARAMS, stream, Mark.None)
  node.storage = storage
  return node
}

/** Runs an update in the memory of its first input, and says whether it did. */
function writeOver(application: Application, backend: Backend, evaluation: Evaluation | null): boolean {
  const { inputs, stream } = application
  const encoder = backend.queue.lower(application)
  if (
    encoder === null ||
    !writesOver(application, backend, encoder, evaluation) ||
    !areReady(backend, inputs)
  )
    return false
  const { budget } = handles
  try {
    const body = (): boolean => withoutHandles(() => saveAndWrite(application, encoder, backend))
    return currentStream() === stream ? body() : onStream(stream, body)
  } finally {
    handles.budget = budget
  }
}

function saveAndWrite(application: Application, encoder: Encoder, backend: Backend): boolean {
  const { primitive, inputs, params } = application
  const [old] = inputs
  const undoing = primitive.rules.undo?.(
    inputs.map((input) => new Array(input)),
    params,
  )
  if (undoing === undefined) return false
  const part = copyPart(undoing.part.node as Application, backend)
  if (part === null) return false
  const saved = part.storage as Storage
  backend.memory.wait?.(saved)
  // Work that waited to run before may have failed; nothing that is known to have no value is read.
  const failure = failureOf(inputs)
  if (failure !== null || saved.failure !== null) {
    lifetimes.releaseNode(part)
    if (failure !== null) poison(application, backend, failure)
    return failure !== null
  }
  assign(application, old, backend, primitive.name)
  try {
    encoder.encode(application)
  } catch (error) {
    lifetimes.releaseNode(application)
    lifetimes.releaseNode(part)
    poison(application, backend, error as Error)
    throw error
  }
  const before = undoOf(old)
  lifetimes.releaseNode(old)
  const restored = undoing.restore(new Array(application), new Array(part)).node
  old.primitive = restored.primitive
  old.inputs = restored.inputs
  old.params = restored.params
  old.undo ??= OLDEST
  application.undo = {
    node: old,
    count: (before?.count ?? 0) + 1,
    bytes: (before?.bytes ?? 0) + bytesBeside(old),
  }
  lifetimes.keep(part)
  return true
}

/** A copy of what an application gives, which reads evaluated nodes and is let go of; null where its backend has no kernel for it. */
function copyPart(application: Application, backend: Backend): Node | null {
  const { inputs, shape, dtype, stream, primitive } = application
  const isView = wayOf(application) === Way.View
  const part = isView
    ? new Node(shape, dtype, null, NO_INPUTS, NO_PARAMS, stream, Mark.None)
    : (application as Node)
  try {
    const layout = isView ? viewOf(storages, application) : null
    const encoder = isView ? null : backend.queue.lower(application)
    if (layout === null && encoder === null) return null
    part.storage = allocate(backend, part, primitive.name)
    if (layout !== null) share(application, inputs[0], layout)
    if (encoder === null) backend.queue.encodeCopy(application, part)
    else encoder.encode(application)
    return part
  } catch (error) {
    lifetimes.releaseNode(part)
    throw error
  } finally {
    if (isView) lifetimes.releaseNode(application)
    for (const input of inputs) input.uses--
    forgetGraph(application)
  }
}
