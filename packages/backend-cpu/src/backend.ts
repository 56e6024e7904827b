/**
 * The CPU backend: encodes nodes as records of a command buffer and runs the command buffer with one native call.
 * It is long because plans record the same encoders that the queue runs, and both write the memory's buffers.
 */
import {
  type Backend,
  collectorOf,
  DeviceError,
  type DeviceInformation,
  type Dtype,
  type Encoder,
  listPrimitives,
  type Memory,
  type NativeKernels,
  type Node,
  onKernels,
  type Plans,
  type Primitive,
  primitiveByName,
  programOf,
  registerBackend,
  type ScalarProgram,
  type Storage,
  sameShape,
  type WorkQueue,
} from "@lazuli/core/engine"
import { type CommandBuffer, Op } from "./command-buffer"
import {
  commonOrder,
  type Field,
  fieldsOf,
  isEncodable,
  mapWords,
  programWords,
  recordWords,
  writeDense,
  writeInOrder,
  writeMapInput,
  writeOperand,
  writeParams,
  writeRun,
} from "./encode"
import "./host-kernels"
import {
  addLibrary,
  applicationOf,
  isTaken,
  kernelDtypes,
  kernels,
  offered,
  restrictions,
} from "./kernel-ids"
import { loadFailure, native } from "./native"
import {
  allocateFilled,
  allocateOn,
  blockBytes,
  CROSSING,
  cross,
  crossExchange,
  drain,
  fillNow,
  handingOver,
  isCertain,
  isIdle,
  main,
  Queue,
  queueAt,
  queueOf,
  releaseLater,
  runAll,
  runIdle,
  runSoon,
  runWaiting,
  storages,
  submitAll,
  synchronize,
  waitForStorage,
  whenIdle,
} from "./queues"

/** The plan being recorded, as a queue that never runs. */
let recording: Queue | null = null

const scalarOps = new Map(native.scalarOps().map((name, code) => [name, code]))

/** The number of queues that are recorded. */
const RECORDING = -2

/** Ids of registered scalar programs by key, -1 for programs the native side has no code for. */
const programs = new Map<string, number>()
/** With so many, the older half is forgotten; who still uses one registers it again. */
const MAX_PROGRAMS = 1024
/** Added to ids where programs remember them: another number after programs were forgotten. */
let era = 0
const ERA = 2 ** 24

/** The native number of an elementwise node's program; -1 where the native side has no code for it. */
function programId(node: Node): number {
  const program = programOf(node)
  let id = (program.ids[BACKEND] ?? -ERA) - era
  if (id < -1) {
    id = programs.get(program.key) ?? register(program)
    program.ids[BACKEND] = id + era
  }
  return id
}

function register(program: ScalarProgram): number {
  // The words of a plan being recorded name programs by their ids.
  if (programs.size >= MAX_PROGRAMS && recording === null) forgetPrograms()
  const id = supported(program) ? native.registerProgram(programWords(program, scalarOps)) : -1
  programs.set(program.key, id)
  return id
}

function forgetPrograms(): void {
  era += ERA
  let left = MAX_PROGRAMS / 2
  for (const [key, id] of programs) {
    if (left-- === 0) break
    programs.delete(key)
    if (id >= 0) whenIdle(() => native.releaseProgram(id))
  }
}

/** Of scalar programs that the native side takes: see native/runtime/program.cc. */
const MAX_OPERANDS = 255
const MAX_INSTRUCTIONS = 10000

function supported(program: ScalarProgram): boolean {
  const { inputs, outputs, code } = program
  if (inputs.length > MAX_OPERANDS || outputs.length > MAX_OPERANDS || code.length > MAX_INSTRUCTIONS)
    return false
  return program.code.every((step) => {
    const [first] = step.args
    if (first === undefined) return scalarOps.has(step.op)
    const dtype =
      first < program.inputs.length
        ? program.inputs[first]
        : program.code[first - program.inputs.length].dtype
    return scalarOps.has(step.op) && native.scalarSupport(step.op, dtype.code)
  })
}

/** The kernel of a primitive; -1 where there is none. Remembered on the primitive. */
function kernelOf(primitive: Primitive): number {
  let id = primitive.kernels[BACKEND]
  if (id === undefined) {
    id = isEncodable(primitive) ? (kernels.get(primitive.name) ?? -1) : -1
    primitive.kernels[BACKEND] = id
  }
  return id
}

/** By buffer id: whom to tell that memory of another backend is not used any more. */
const adopted = new Map<number, () => void>()

function encodeMap(node: Node, program: number, op = Op.Map): void {
  const outputs = node.outputs
  const { inputs } = node
  const queue = queueFor(node, inputs, mapWords(node))
  const { commands } = queue
  if (outputs === null && recording === null) {
    ;(node.storage as Storage).ticket = queue.open
    if (writeDense(commands, program, node)) return
  }
  commands.beginCall(op, program, inputs.length, outputs === null ? 1 : outputs.length)
  for (let i = 0; i < inputs.length; i++) writeMapInput(commands, inputs[i], i, node.shape)
  if (outputs) for (const output of outputs) writeOutput(queue, output)
  else writeOutput(queue, node)
  commands.end()
}

/** The queue that a record is written to, with room for it; it waits for what the record reads of others. */
function queueFor(node: Node, inputs: readonly Node[], words: number): Queue {
  const queue = recording ?? queueOfResult(node)
  queue.reserve(words + CROSSING * (inputs.length + 1))
  crossExchange(queue, node)
  for (let i = 0; i < inputs.length; i++) {
    const { storage } = inputs[i]
    if (storage !== null && storage.queue !== queue.id) cross(queue, storage)
  }
  return queue
}

/**
 * The stream's queue, but for memory that another queue took, such as what another backend's stream asked for: that one knows when it is
 * written.
 */
function queueOfResult({ outputs, storage, stream }: Node): Queue {
  const queue = queueOf(stream)
  const home = (outputs === null ? storage : outputs[0].storage)?.queue ?? queue.id
  return home === queue.id ? queue : (queueAt(home) ?? queue)
}

function writeOutput(queue: Queue, output: Node): void {
  ;(output.storage as Storage).ticket = queue.open
  writeOperand(queue.commands, output)
}

/** Where a plan finds an operand. */
function writeLocation(commands: CommandBuffer, { storage, offset, dtype }: Node): void {
  commands.bufferAt((storage as Storage).id, offset * dtype.size)
}

/** Begins a kernel's record, which its parameters end. */
function beginKernel(queue: Queue, id: number, inputs: readonly Node[], outputs: readonly Node[]): void {
  const { commands } = queue
  commands.beginCall(Op.Run, id, inputs.length, outputs.length)
  for (let i = 0; i < inputs.length; i++) writeOperand(commands, inputs[i])
  for (let i = 0; i < outputs.length; i++) writeOutput(queue, outputs[i])
}

/** Kernels that run the elementwise work after them on the parts of their result. */
const WITH_EPILOGUE = new Set(["matmul", "addmm", "quantizedMatmul", "gatherQmm"])
/** Kernels that read their operand piece by piece. */
const WITH_PROLOGUE = new Set(["sum", "prod", "max", "min", "all", "any"])
const isFloating = ({ kind }: Dtype): boolean => kind === "floating" || kind === "complex"

const collect = collectorOf(() => native.pressCollector())
/** The numbers of dead references. */
const dead = new Int32Array(1 << 17)
const copyKernel = kernels.get("copy") as number

/** The native side's number, which is whole, for no bound. */
const UNBOUNDED = 2 ** 53
const boundOf = (bytes: number): number => (bytes >= UNBOUNDED ? Infinity : bytes)

const memory: Memory = {
  name: "cpu",

  allocate: (nbytes, stream) => allocateOn(stream ? queueOf(stream) : main, memory, nbytes),
  stage(nbytes) {
    if (main.isBusy()) return fillNow(this, nbytes, (id) => native.allocate(id, nbytes))
    const storage = allocateOn(main, this, nbytes)
    waitForStorage(storage)
    return storage
  },
  allocateFilled: (bytes) => allocateFilled(memory, bytes),
  release(storage) {
    const { id } = storage
    if (storage.lender === null) releaseLater(storage)
    else {
      releaseLater(storage, adopted.get(id))
      adopted.delete(id)
    }
  },
  wait: waitForStorage,
  read(storage, byteOffset, into) {
    waitForStorage(storage)
    if (storage.failure) throw storage.failure
    native.read(storage.id, byteOffset, into)
  },
  write(storage, byteOffset, from) {
    waitForStorage(storage)
    if (storage.failure) throw storage.failure
    native.write(storage.id, byteOffset, from)
  },
  host(storage) {
    // A view keeps the memory of its own backend.
    if (storage.lender !== null) return hostOf(storage.lender)
    waitForStorage(storage)
    runWaiting()
    if (storage.failure) throw storage.failure
    return native.hostView(storage.id)
  },
  address(storage) {
    waitForStorage(storage)
    runWaiting()
    if (storage.failure) throw storage.failure
    return native.address(storage.id)
  },
  adopt(address, nbytes, done) {
    const storage = fillNow(this, nbytes, (id) => native.adopt(id, address, nbytes))
    adopted.set(storage.id, done)
    return storage
  },
  give(storage) {
    waitForStorage(storage)
    if (storage.failure) throw storage.failure
    // Nobody may write to it in place any more.
    storage.stream = null
    return native.give(storage.id)
  },
  take: (number, nbytes) => fillNow(memory, nbytes, (id) => native.take(id, number, nbytes)),

  tracker: {
    track: (objects, count, ids) => native.track(objects as object[], count, ids),
    untrack: (id) => native.untrack(id),
    isAlive: (id) => native.isAlive(id),
    poll(all) {
      const count = native.poll(all ? 1 : 0, dead)
      // A pointer that does not fit now is found by the next poll.
      return dead.subarray(0, count)
    },
    collect,
  },
  stats() {
    // Released memory is only given back when the command buffer has run.
    runIdle()
    const { limit, cacheLimit, ...counts } = native.memory()
    return { ...counts, limit: boundOf(limit), cacheLimit: boundOf(cacheLimit) }
  },
  free() {
    runIdle()
    return native.freeMemory()
  },
  *storages() {
    for (const storage of storages) if (storage.refs > 0) yield storage
  },
  blockBytes,
  setLimit: (bytes) => native.setMemoryLimit(Math.min(bytes, UNBOUNDED)),
  setCacheLimit: (bytes) => native.setCacheLimit(Math.min(bytes, UNBOUNDED)),
  clearCache: () => native.clearCache(),
  resetPeak: () => native.resetPeakMemory(),
}

function hostOf(storage: Storage): ArrayBuffer {
  const { memory } = storage
  if (!memory.host)
    throw new DeviceError("backend-cpu", `the host cannot access the memory of ${memory.name}`)
  return memory.host(storage)
}

/** Runs a kernel. */
class KernelEncoder implements Encoder {
  constructor(
    protected readonly id: number,
    protected readonly fields: readonly Field[],
  ) {}
  encode(node: Node): void {
    const { inputs, outputs } = node
    const queue = queueFor(node, inputs, recordWords(node, this.fields))
    const { commands } = queue
    if (outputs === null) {
      ;(node.storage as Storage).ticket = queue.open
      if (writeRun(commands, this.id, this.fields, node)) return
    }
    beginKernel(queue, this.id, inputs, outputs ?? [node])
    writeParams(commands, this.fields, node.params)
    commands.end()
  }
}

/** Kernels whose result is their first input but for some elements: over that input they write these alone. */
const UPDATES = new Set(["sliceUpdate", "scatter", "putAlongAxis"])
const FIRST: readonly number[] = [0]

/** Runs such a kernel. */
class UpdateEncoder extends KernelEncoder {
  overwrites(): readonly number[] {
    return FIRST
  }
}

/** Runs a kernel that a package brought. */
class OfferedEncoder extends KernelEncoder {
  constructor(
    id: number,
    fields: readonly Field[],
    private readonly offer: NativeKernels,
  ) {
    super(id, fields)
  }
  overwrites(node: Node, output: number): readonly number[] {
    return this.offer.overwrites?.(applicationOf(node))[output] ?? NONE
  }
  override encode(node: Node): void {
    // A plan has laid its results out already.
    const keeps = recording === null && this.offer.keepsLayout?.(applicationOf(node))
    const order = keeps ? commonOrder(node.inputs, node.shape) : null
    const outputs = node.outputs ?? [node]
    if (order === null || outputs.some(({ shape }) => !sameShape(shape, node.shape))) super.encode(node)
    else this.encodeInOrder(node, outputs, order)
  }
  /** Encodes it on operands with their axes in another order, in which its outputs lie from then on. */
  private encodeInOrder(node: Node, outputs: readonly Node[], order: readonly number[]): void {
    const { inputs, params } = node
    const shape = order.map((axis) => node.shape[axis])
    const queue = queueFor(node, inputs, recordWords(node, this.fields))
    const { commands } = queue
    commands.beginCall(Op.Run, this.id, inputs.length, outputs.length)
    for (const input of inputs) writeInOrder(commands, input, shape)
    for (const output of outputs) {
      ;(output.storage as Storage).ticket = queue.open
      writeInOrder(commands, output, shape)
      output.strides = inputs[0].strides
    }
    writeParams(commands, this.fields, params)
    commands.end()
  }
}
const NONE: readonly number[] = []

/** Runs a scalar program. */
class ProgramEncoder implements Encoder {
  constructor(private readonly id: number) {}
  encode(node: Node): void {
    encodeMap(node, this.id)
  }
}

const kernelEncoders: Encoder[] = []
const programEncoders: Encoder[] = []

/** A kernel takes some dtypes and, where a package brought it, some applications only. */
function lowerKernel(node: Node): Encoder | null {
  const primitive = node.primitive as Primitive
  const id = kernelOf(primitive)
  if (id < 0 || (restrictions.size > 0 && !isTaken(node, primitive.name))) return null
  const [first] = node.inputs
  if (first !== undefined && ((kernelDtypes[id] >> first.dtype.code) & 1) === 0) return null
  return (kernelEncoders[id] ??= encoderFor(id, primitive))
}

function encoderFor(id: number, { name, schema }: Primitive): Encoder {
  const offer = offered.get(name)
  const fields = fieldsOf(schema)
  if (offer?.overwrites || offer?.keepsLayout) return new OfferedEncoder(id, fields, offer)
  return UPDATES.has(name) ? new UpdateEncoder(id, fields) : new KernelEncoder(id, fields)
}

const workQueue: WorkQueue = {
  lower(node) {
    if (!(node.primitive as Primitive).elementwise) return lowerKernel(node)
    const id = programId(node)
    return id < 0 ? null : (programEncoders[id] ??= new ProgramEncoder(id))
  },
  encodeCopy(source, target) {
    const queue = queueFor(target, [source], 16 + 4 * source.shape.length)
    beginKernel(queue, copyKernel, [source], [target])
    queue.commands.end()
  },
  flush: runAll,
  isCertain,
  flushSoon: runSoon,
  submit: submitAll,
  handingOver,
  synchronize,
  isIdle,
  drain,
}

const plans: Plans = {
  record(inputs, outputs, arenaBytes, body) {
    const before = recording
    const queue = new Queue(RECORDING, 1 << 10)
    recording = queue
    try {
      body()
    } finally {
      recording = before
    }
    const { buffer, length } = queue.commands
    return { id: native.registerPlan(buffer.slice(0, length * 8), inputs, outputs, arenaBytes) }
  },
  encode(plan, node) {
    const { inputs, outputs } = node
    const count = outputs === null ? 1 : outputs.length
    const queue = queueFor(node, inputs, 4 + 2 * (inputs.length + count))
    const { commands } = queue
    commands.begin(Op.Plan)
    commands.pair(plan.id, 0)
    for (let i = 0; i < inputs.length; i++) writeLocation(commands, inputs[i])
    for (let i = 0; i < count; i++) {
      const output = outputs === null ? node : outputs[i]
      ;(output.storage as Storage).ticket = queue.open
      writeLocation(commands, output)
    }
    commands.end()
  },
  release: (plan) => whenIdle(() => native.releasePlan(plan.id)),
  takesEpilogue(node) {
    const primitive = node.primitive as Primitive
    return WITH_EPILOGUE.has(primitive.name) && isFloating(node.dtype) && kernelOf(primitive) >= 0
  },
  encodeEpilogue: (node) => encodeMap(node, programId(node), Op.Epilogue),
  takesPrologue: ({ primitive }) =>
    primitive !== null && WITH_PROLOGUE.has(primitive.name) && kernelOf(primitive) >= 0,
  takesCompanions: ({ primitive }) => primitive?.name === "quantizedMatmul" && kernelOf(primitive) >= 0,
  encodePrologue: (node) => encodeMap(node, programId(node), Op.Prologue),
}

const information: DeviceInformation = {
  facts() {
    const { cpus, totalmem } = process.getBuiltinModule("node:os")
    return {
      deviceName: cpus()[0]?.model.trim() || process.arch,
      architecture: `${process.arch} ${native.simdTarget()}`,
      memorySize: totalmem(),
      threads: native.threads(),
      machineCode: native.machineCode().state,
    }
  },
}

/** Serves `mx.cpu`. */
export const cpuBackend: Backend = {
  name: "cpu",
  device: "cpu",
  priority: 100,
  memory,
  queue: workQueue,
  plans,
  information,
}

/** This backend's index in {@link Primitive.kernels} and {@link ScalarProgram.ids}. */
const BACKEND = loadFailure === null ? registerBackend(cpuBackend) : -1

if (loadFailure === null)
  onKernels("native", (offer) => {
    const brought = new Set(addLibrary(offer))
    for (const name of brought) delete kernelEncoders[kernels.get(name) as number]
    // Primitives that ran before this remember that they had none.
    for (const { name } of listPrimitives())
      if (brought.has(name)) primitiveByName(name).kernels[BACKEND] = undefined
  })
