/**
 * Evaluation: hands the pending nodes behind the requested ones to their backends, in the order of schedule.ts, and lets go of the graph
 * and of every intermediate that nothing can read any more.
 * It is long because its steps share the state of one evaluation, which is kept between evaluations so that none allocates it.
 */
import { type Backend, backendFor, backendOf, countFallback, listBackends, stage } from "../graph/backend"
import type { Stream } from "../graph/device"
import { DeviceError } from "../graph/errors"
import { withoutExchanges } from "../graph/exchanges"
import {
  type Application,
  handles,
  inTrace,
  Mark,
  Node,
  type Plan,
  type Primitive,
  tracing,
} from "../graph/graph"
import { NO_PARAMS } from "../graph/params"
import { lend, type Storage } from "../graph/storage"
import { runOnHost, runReference } from "../reference/reference"
import {
  Crossing,
  crossingTo,
  giftFor,
  isStraightened,
  readingOf,
  readsAll,
  storages,
  viewOf,
  viewOfCopy,
  Way,
  wayOf,
} from "./assignment"
import { isDebugging, nameSite } from "./debug"
import { computeAlone } from "./evaluate-alone"
import { hostKernel } from "./host-kernels"
import { lifetimes } from "./memory"
import { leastBytes, measure, mostBytes } from "./memory-budget"
import {
  allocate,
  areReady,
  assign,
  assignAll,
  awaitValue,
  encoding,
  failureOf,
  poison,
  runEncoder,
  share,
} from "./outputs"
import { detach, releaseIfDead, retain } from "./past-graphs"
import { schedule } from "./schedule"
import { Evaluation, isWorthParting } from "./undo"
import { runUpdate } from "./update-in-place"
import { viewsInTheWay } from "./views-in-the-way"

const NO_INPUTS: readonly Node[] = []
const NO_ORDER: readonly Application[] = []
/** The evaluation under way; null where it is within another one, or somebody else reads arrays meanwhile. */
let evaluation: Evaluation | null = null

/** Computes the given nodes. @throws the error of the first of them that depends on work that failed; arrays keep such errors. */
export function evaluate(roots: readonly Node[]): void {
  if (roots.length === 1) evaluateOne(roots[0])
  else if (compute(roots)) lookAround()
}

/** The same for one node. */
export function evaluateOne(root: Node): void {
  if ((root.storage === null && computeAlone(root)) || compute([root])) lookAround()
}

/** Watches what an evaluation left pending, and computes it where it holds too much. */
function lookAround(): void {
  if (tracing.depth > 0) return
  lifetimes.sweepRecent()
  if (lifetimes.isOverdue()) computePending(lifetimes.pendingNodes("small"))
}

/**
 * Computes what small arrays wait for, so that what it is computed from can be given back: a list of losses that nobody has read must not
 * keep a whole run. Errors stay on the arrays.
 */
function computePending(pending: readonly Node[]): void {
  const nodes = withoutExchanges(pending)
  if (nodes.length === 0) return
  try {
    // A caller may be about to read what an update would write over.
    for (const { queue } of encode(nodes, null)) {
      if (queue.begin) queue.begin()
      else queue.flush()
    }
  } catch {
    // The reader of the array meets the error.
  }
}

/** So many of the last handles show what a loop goes on with, whoever else reads it. */
const LAST_HANDLES = 4096

handles.overflow = () => {
  if (encoding.isUnderWay || !handles.tracking) return
  // A trace ends before its graph is too large, and is asked again.
  if (inTrace()) {
    lifetimes.watchRecent()
    return
  }
  if (!lifetimes.mayPressPending()) return
  lifetimes.sweepRecent(LAST_HANDLES)
  const nodes = lifetimes.pendingNodes("any")
  if (!lifetimes.pending.recount(nodes)) return
  lifetimes.pending.forget()
  computePending(nodes)
}

/**
 * Lets the given nodes be computed while this program goes on, where their backends can. The promise is rejected with the error of the
 * first node that has none of its values for it; what cannot be encoded is thrown.
 */
export function evaluateAsync(roots: readonly Node[]): Promise<void> {
  let used: readonly Backend[] = []
  for (const root of roots) if (root.storage?.failure) throw root.storage.failure
  if (roots.some((root) => root.storage === null)) {
    const body = (): void => {
      used = encode(roots)
    }
    const { handingOver } = backendFor(roots[0].stream.device).queue
    if (handingOver) handingOver(body)
    else body()
    if (tracing.depth === 0) lifetimes.sweepRecent()
  }
  // Work that an earlier call handed over may still run.
  const storages = roots.flatMap(({ storage }) => storage ?? [])
  const backends = new Set<Backend>(used)
  for (const { memory } of storages) backends.add(backendOf(memory))
  const work = [...backends].map(({ memory, queue }) => {
    const own = storages.filter((storage) => storage.memory === memory)
    if (queue.submit) return queue.submit(own)
    queue.flush()
    for (const { failure } of own) if (failure) throw failure
    return undefined
  })
  const waits = work.filter((each) => each !== undefined)
  if (waits.length <= 1) return waits[0] ?? Promise.resolve()
  // Functions made here would keep the nodes as long as the promise.
  const all = Promise.all(waits).then(nothing)
  all.catch(nothing)
  return all
}

const nothing = (): void => {}

/**
 * A promise that is rejected, and may be left alone: whoever awaits it gets the error, which also stays on the arrays. One that is to be
 * fulfilled gets no such handler: calls of handlers pile up in a loop that never yields.
 */
export function rejected(error: unknown): Promise<never> {
  const promise = Promise.reject(error)
  promise.catch(nothing)
  return promise
}

/** Computes nodes, and says whether there was something to do. */
function compute(roots: readonly Node[]): boolean {
  // Counted loops here and below: for one array, which most calls have, an iterator costs several times as much.
  let pending = false
  for (let i = 0; i < roots.length; i++) {
    const { storage } = roots[i]
    if (storage === null) pending = true
    else awaitValue(storage)
  }
  if (!pending) return false
  const used = encode(roots)
  for (let i = 0; i < used.length; i++) used[i].queue.flush()
  for (let i = 0; i < roots.length; i++) {
    const { storage } = roots[i]
    // It may have been under way, on a stream that this evaluation did not need.
    if (storage !== null) awaitValue(storage)
  }
  return true
}

/** Where results have more bytes than this, together, the roots' order is chosen by the memory that it needs. */
const LARGE_RESULTS = 32 * 2 ** 20

/**
 * The better of two orders of the roots. Gradients are listed from the first layer to the last, and can be computed from the last to the
 * first: taken as they are listed, the first one keeps what all others are computed from.
 */
function leanOrder(order: readonly Application[], roots: readonly Node[]): readonly Application[] {
  const backwards = schedule(roots.toReversed())
  return needOf(backwards, roots) < needOf(order, roots) ? backwards : order
}

function needOf(order: readonly Application[], roots: readonly Node[]): number {
  let bytes = 0
  for (const each of leastBytes(order, roots, evaluation).values()) bytes += each
  return bytes
}

const relieveOld = (order: readonly Application[], roots: readonly Node[]): void =>
  lifetimes.relieveOld(() => {
    const { shown, copied, shared } = measure(order, roots, evaluation)
    return shown + copied - shared
  })

/** Encodes what the roots need, and gives the backends that have something to run. */
function encode(roots: readonly Node[], asked: readonly Node[] | null = roots): readonly Backend[] {
  let order: readonly Application[] = NO_ORDER
  let used: readonly Backend[] = []
  for (let i = 0; i < roots.length; i++) roots[i].handles++
  const [outer, outerEvaluation] = [encoding.isUnderWay, evaluation]
  encoding.isUnderWay = true
  evaluation = null
  try {
    order = schedule(roots)
    if (!outer && asked !== null && lifetimes.areHandlesWatched) evaluation = new Evaluation(asked, order)
    const { most, shown, copied, shared } = measure(order, roots, evaluation)
    lifetimes.relieve(shown, copied)
    if (lifetimes.mayHoldOld(shown + copied - shared)) relieveOld(order, roots)
    if (most > LARGE_RESULTS && roots.length > 1) order = leanOrder(order, roots)
    if (!lifetimes.admits(most))
      lifetimes.reserve("eval", mostBytes(order), () => leastBytes(order, roots, evaluation))
    const alone = isDebugging()
    let stream: Stream | null = null
    let backend: Backend | null = null
    for (let i = 0; i < order.length; i++) {
      const node = order[i]
      if (node.stream !== stream || backend === null) {
        stream = node.stream
        backend = backendFor(stream.device)
        // A list that is empty at first would have room made for many.
        if (!used.includes(backend)) used = used.length === 0 ? [backend] : [...used, backend]
      }
      if (alone) runAlone(node, backend)
      else run(node, backend)
    }
  } finally {
    encoding.isUnderWay = outer
    evaluation = outerEvaluation
    for (let i = 0; i < roots.length; i++) roots[i].handles--
    retain(order)
  }
  return used
}

/** Runs a node and waits for it, so that its error is known to be its own. */
function runAlone(application: Application, backend: Backend): void {
  // The graph behind it is gone afterwards, and so is what failed without it.
  const outputs = application.outputs ?? [application]
  const failedBefore = failureOf(application.inputs) !== null
  try {
    run(application, backend)
    if (failedBefore) return
    backend.queue.flush()
  } catch (error) {
    nameSite(error, application)
    throw error
  }
  for (const { storage } of outputs) if (storage?.failure) nameSite(storage.failure, application)
}

function run(application: Application, backend: Backend): void {
  const primitive = application.primitive
  const way = wayOf(application)
  if (way === Way.Alias) runAlias(application)
  else if (way === Way.View) runView(application, backend, primitive)
  else if (primitive.rules.undo !== undefined) runChange(application, backend, primitive)
  else if (areReady(backend, application.inputs)) runWork(application, backend, primitive)
  else runUnready(application, backend, primitive)
  detach(application)
}

/** In a function of its own, as a function made in {@link run} would cost every application. */
function runChange(application: Application, backend: Backend, primitive: Primitive): void {
  if (evaluation !== null && evaluation.views !== null && areReady(backend, application.inputs))
    for (const view of viewsInTheWay(application, backend, evaluation, evaluation.views))
      straighten(view, backend)
  runUpdate(application, backend, evaluation, () => {
    if (areReady(backend, application.inputs)) runWork(application, backend, primitive)
    else runUnready(application, backend, primitive)
  })
}

function runUnready(application: Application, backend: Backend, primitive: Primitive): void {
  const { inputs } = application
  const failure = failureOf(inputs)
  if (failure !== null) poison(application, backend, failure)
  else withInputsOn(backend, inputs, () => runWork(application, backend, primitive))
}

function runAlias(application: Application): void {
  for (const output of application.outputs ?? [application]) {
    const source = output.alias as Node
    share(output, source, source)
    output.alias = null
    source.uses--
    releaseIfDead(source)
  }
}

function runView(node: Application, backend: Backend, primitive: Primitive): void {
  const input = node.inputs[0]
  const layout = viewOf(storages, node)
  if (layout !== null) {
    share(node, input, layout)
    if (evaluation !== null && isWorthParting(input.storage as Storage)) evaluation.noteView(node)
    return
  }
  const copy = contiguousCopy(input, backend)
  const again = viewOfCopy(node)
  if (again === null) throw new DeviceError(primitive.name, "gave no view of a contiguous array")
  share(node, copy, again)
  lifetimes.releaseNode(copy)
}

/** A row-major copy of an evaluated node, as a node of its own that nothing else knows. */
function contiguousCopy(source: Node, backend: Backend): Node {
  if ((source.storage as Storage).memory !== backend.memory) {
    return withInputsOn(backend, [source], () => contiguousCopy(source, backend))
  }
  // On the stream of its memory, whatever the current one is.
  const { shape, dtype, stream } = source
  const copy = new Node(shape, dtype, null, NO_INPUTS, NO_PARAMS, stream, Mark.None)
  copy.storage = allocate(backend, source, "copy")
  backend.queue.encodeCopy(source, copy)
  return copy
}

/** Gives a node row-major memory of its own. */
function straighten(node: Node, backend: Backend): void {
  const storage = contiguousCopy(node, backend).storage as Storage
  replaceStorage(node, storage)
  node.offset = 0
  node.strides = null
}

/** Gives an evaluated node other memory. Views of the old one keep it, and a guard stays with what it guards. */
function replaceStorage(node: Node, storage: Storage): void {
  const before = node.storage as Storage
  if (node.guard === 0) {
    node.storage = storage
    before.drop()
  } else {
    lifetimes.releaseNode(node)
    node.storage = storage
    lifetimes.keep(node)
  }
}

function runWork(application: Application, backend: Backend, primitive: Primitive): void {
  const { plan } = primitive.rules
  const recorded = plan !== undefined ? plan(application) : null
  if (recorded !== null) runPlan(application, backend, recorded)
  else runKernel(application, backend, primitive)
}

/** Runs a recorded program. */
function runPlan(application: Application, backend: Backend, recorded: Plan): void {
  const { inputs } = application
  for (let i = 0; i < inputs.length; i++) {
    const input = inputs[i]
    if (
      input.strides !== null &&
      isStraightened(storages, input, (input.storage as Storage).original !== null)
    )
      straighten(input, backend)
  }
  if (readsAll(storages, inputs, recorded)) {
    giveMemory(application, backend, recorded)
    backend.plans?.encode(recorded, application)
    return
  }
  const { plan, copied } = readingOf(storages, application, recorded)
  const copies: Node[] = []
  try {
    for (const input of inputs) copies.push(copied.includes(input) ? contiguousCopy(input, backend) : input)
    giveMemory(application, backend, plan)
    application.inputs = copies
    backend.plans?.encode(plan, application)
  } finally {
    application.inputs = inputs
    for (const copy of copies) if (!inputs.includes(copy)) lifetimes.releaseNode(copy)
  }
}

/** Gives a plan's outputs their memory: that of inputs which it may write over, or new memory. */
function giveMemory(application: Application, backend: Backend, plan: Plan): void {
  const { outputs } = application
  const { name } = application.primitive
  if (outputs === null) assign(application, giftFor(storages, application, plan, 0), backend, name)
  else
    assignAll(outputs, (output, i) => assign(output, giftFor(storages, application, plan, i), backend, name))
}

function runKernel(application: Application, backend: Backend, primitive: Primitive): void {
  const encoder = backend.queue.lower(application)
  runEncoder(application, backend, encoder)
  if (encoder !== null) return
  const outputs = application.outputs ?? [application]
  const brought = backend.name === "reference" ? null : hostKernel(application)
  const other = brought === null ? kernelElsewhere(application, backend) : null
  if (other !== null && runElsewhere(application, backend, other)) {
    countFallback(backend.name, primitive.name, "borrowed")
    return
  }
  countFallback(backend.name, primitive.name, brought === null ? "reference" : "borrowed")
  backend.queue.flush()
  // The work that just ran may have failed.
  let failure = failureOf(application.inputs)
  try {
    if (!failure) {
      if (brought === null) runReference(application)
      else runOnHost(application, brought.run)
    }
  } catch (error) {
    failure = error as Error
  }
  for (const output of outputs) (output.storage as Storage).failure = failure
}

/**
 * Another backend of the host's memory that has a kernel for the application; the best, if there are several. Where it does not see this
 * one's memory, it works on copies.
 */
function kernelElsewhere(application: Application, backend: Backend): Backend | null {
  let best: Backend | null = null
  for (const other of listBackends()) {
    if (other === backend || !other.memory.adopt || other.emulated) continue
    if ((best === null || best.priority < other.priority) && other.queue.lower(application) !== null)
      best = other
  }
  return best
}

/**
 * Runs an application by another backend's kernel, on this one's memory or on copies. Outputs have storage. Returns whether that worked:
 * where it did not, the reference gives the values or the error.
 */
function runElsewhere(application: Application, backend: Backend, other: Backend): boolean {
  backend.queue.flush()
  if (failureOf(application.inputs) !== null) return false
  const outputs = application.outputs ?? [application]
  const moved: { node: Node; storage: Storage; theirs: Storage }[] = []
  let failed = false
  try {
    for (const node of [...application.inputs, ...outputs]) {
      const { storage } = node
      // Immediates have none, and an input may come twice.
      if (storage === null || storage.memory === other.memory) continue
      const theirs =
        lend(other.memory, storage) ??
        (outputs.includes(node) ? other.memory.allocate(storage.nbytes) : copyTo(other, storage))
      moved.push({ node, storage, theirs })
      node.storage = theirs
    }
    other.queue.lower(application)?.encode(application)
    other.queue.flush()
    failed = failureOf(outputs) !== null
  } catch {
    failed = true
  }
  for (const { node, storage } of moved) node.storage = storage
  // The reference implementation, which gives the values instead, writes them row-major.
  if (failed) for (const output of outputs) output.strides = null
  for (const { node, storage, theirs } of moved) {
    if (!failed && theirs.lender !== storage && outputs.includes(node))
      backend.memory.write(storage, 0, bytesOf(theirs))
    theirs.drop()
  }
  return !failed
}

function bytesOf(storage: Storage): Uint8Array {
  const bytes = new Uint8Array(storage.nbytes)
  storage.memory.read(storage, 0, bytes)
  return bytes
}

/** A copy of a storage on another backend. */
function copyTo(backend: Backend, storage: Storage): Storage {
  const bytes = bytesOf(storage)
  const copy = stage(backend, storage.nbytes)
  if (storage.nbytes > 0) backend.memory.write(copy, 0, bytes)
  return copy
}

/**
 * Runs `body` with memory of the backend behind evaluated nodes. Where both can see the same memory, it becomes the backend's and stays so.
 * Otherwise the nodes keep theirs, and a copy stands in for it; the storage keeps the copy for the next reader.
 */
function withInputsOn<T>(backend: Backend, inputs: readonly Node[], body: () => T): T {
  const swapped: { node: Node; storage: Storage; copy: Storage }[] = []
  try {
    for (const node of inputs) {
      const { storage } = node
      if (storage === null || storage.memory === backend.memory) continue
      const isLent = crossingTo(backend.memory, storage) === Crossing.Lent
      const lent = isLent ? lend(backend.memory, storage) : null
      if (lent !== null) {
        replaceStorage(node, lent)
        continue
      }
      const copy = copyOn(backend, storage)
      // Nobody takes its memory for a result meanwhile.
      copy.refs++
      swapped.push({ node, storage, copy })
      node.storage = copy
    }
    return body()
  } finally {
    for (const { node, storage, copy } of swapped) {
      node.storage = storage
      copy.drop()
    }
  }
}

/** The copy of a storage on a backend that does not see its memory, made once. */
function copyOn(backend: Backend, storage: Storage): Storage {
  const known = storage.copies?.find(({ memory }) => memory === backend.memory)
  if (known !== undefined) return known
  // Memory copied from there may have its value there already.
  if (storage.original !== null && storage.original.memory === backend.memory) return storage.original
  const copy = copyTo(backend, storage)
  copy.original = storage
  storage.copies = [...(storage.copies ?? []), copy]
  return copy
}
