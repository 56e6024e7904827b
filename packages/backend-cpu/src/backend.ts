/**
 * The CPU backend: encodes nodes as records of a tape and runs the tape with one native call.
 */
import { cpus, totalmem } from "node:os"
import { fileURLToPath } from "node:url"
import {
  type Application,
  type Backend,
  DeviceError,
  type Failure,
  IndexError,
  listPrimitives,
  type NativeKernels,
  type Node,
  NumericError,
  onKernels,
  type Primitive,
  primitiveByName,
  programOf,
  type ScalarProgram,
  Storage,
} from "@lazuli/core/engine"
import { collect } from "./collector"
import {
  isEncodable,
  mapWords,
  programWords,
  recordWords,
  writeMapInput,
  writeOperand,
  writeParams,
} from "./encode"
import { native } from "./native"
import { Op, Tape } from "./tape"

/** A tape longer than this runs before the graph is all encoded. */
const MAX_WORDS = 1 << 18

const main = new Tape(1 << 14)
native.attachTape(main.buffer)
/** Where records go: the main tape, or the tape of the plan being recorded. */
let tape = main

/** Ids by primitive; those of other packages come by {@link addLibrary}. */
const kernels = new Map<string, number>()
/** By id: a bit for each dtype that the first input may have. */
let kernelDtypes: readonly number[] = []
/** Of the kernels that other packages brought: which applications they take. */
const restrictions = new Map<string, (application: Application) => boolean>()
listKernels()

function listKernels(): void {
  for (const [id, name] of native.kernels().entries()) kernels.set(name, id)
  kernelDtypes = native.kernelDtypes()
}

/** Loads the kernels that another package brings. @throws DeviceError that names the package */
function addLibrary(offer: NativeKernels): void {
  const { library, supports } = offer
  let names: string[]
  try {
    names = native.loadKernels(typeof library === "string" ? library : fileURLToPath(library))
  } catch (cause) {
    const fact = (cause as Error).message.replace(/^\[\w+\] /, "")
    const hint = /was built for version/.test(fact)
      ? "Build it again against native/include of the installed @lazuli/backend-cpu"
      : /already$/.test(fact)
        ? undefined
        : `It must be a library for ${process.platform}-${process.arch}`
    throw new DeviceError("backend-cpu", `cannot load the kernels of ${offer.package}: ${fact}`, {
      cause,
      hint,
    })
  }
  listKernels()
  const brought = new Set(names)
  for (const name of names) if (supports) restrictions.set(name, (application) => supports(application))
  // Primitives that ran before this remember that they had none.
  for (const { name } of listPrimitives())
    if (brought.has(name)) primitiveByName(name).kernels[BACKEND] = undefined
}

function isTaken(node: Node, name: string): boolean {
  const restriction = restrictions.get(name)
  if (restriction === undefined) return true
  const { inputs, params } = node
  return restriction({ primitive: name, inputs, outputs: node.outputs ?? [node], params })
}

const scalarOps = new Map(native.scalarOps().map((name, code) => [name, code]))

/** This backend's place in {@link Primitive.kernels} and {@link ScalarProgram.ids}. */
const BACKEND = 0

/** Storages by slot, for naming what failed. A free slot keeps its storage, which has no references, for the next block. */
const storages: Storage[] = []
const freeSlots: number[] = []

/** A storage for a new block. */
function take(nbytes: number): Storage {
  const slot = freeSlots.pop()
  if (slot !== undefined) return storages[slot].renew(nbytes)
  const storage = new Storage(cpuBackend, storages.length, nbytes)
  storages.push(storage)
  return storage
}

/** Ids of registered scalar programs by key, -1 for programs the native side has no code for. */
const programs = new Map<string, number>()
let lastNode: Node | null = null
let lastId = -1

/** The native number of an elementwise node's program. Asked twice for every node, so the last answer is remembered. */
function programId(node: Node): number {
  if (node === lastNode) return lastId
  const program = programOf(node)
  let id = program.ids[BACKEND]
  if (id === undefined) {
    id = programs.get(program.key) ?? register(program)
    program.ids[BACKEND] = id
  }
  lastNode = node
  lastId = id
  return id
}

function register(program: ScalarProgram): number {
  const id = supported(program) ? native.registerProgram(programWords(program, scalarOps)) : -1
  programs.set(program.key, id)
  return id
}

function supported(program: ScalarProgram): boolean {
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

/** Room for a record on the current tape. */
function reserve(words: number): void {
  if (tape === main) reserveMain(words)
  else tape.reserve(words)
}

function reserveMain(words: number): void {
  if (main.length > MAX_WORDS) runTape()
  if (main.reserve(words)) native.attachTape(main.buffer)
}

const failed: Failure[] = []
const NONE: readonly Failure[] = []

/** By slot: whom to tell that memory of another backend is not used any more. */
const adopted = new Map<number, () => void>()
/** Those whose slots are freed on the main tape. */
const leaving: (() => void)[] = []

/** Runs what is on the main tape. */
function runTape(): void {
  if (main.length === 0) return
  const words = main.length
  main.length = 0
  const failures = native.run(words)
  if (leaving.length > 0) for (const done of leaving.splice(0)) done()
  if (failures === 0) return
  const errors = native.failures().map(({ message }) => errorOf(message))
  const poisoned = native.poisoned().flatMap((slot) => storages[slot] ?? [])
  for (const storage of poisoned) storage.failure ??= errors[0]
  failed.push({ error: errors[0], storages: poisoned })
}

/** An error that reads `[op] fact`, of the class that the fact asks for. */
function errorOf(message: string): Error {
  const [, op = "eval", fact = message] = /^\[([^\]]+)\] (.*)$/s.exec(message) ?? []
  if (/out of bounds/.test(fact)) return new IndexError(op, fact)
  if (/singular|positive definite|not converge/.test(fact)) return new NumericError(op, fact)
  return new DeviceError(op, fact)
}
function encodeMap(node: Node, program: number): void {
  const outputs = node.outputs
  const { inputs } = node
  reserve(mapWords(node))
  tape.begin(Op.Map)
  tape.pair(program, inputs.length | ((outputs ? outputs.length : 1) << 16))
  for (let i = 0; i < inputs.length; i++) writeMapInput(tape, inputs[i], i, node.shape)
  if (outputs) for (const output of outputs) writeOperand(tape, output)
  else writeOperand(tape, node)
  tape.end()
}

function encodeKernel(
  id: number,
  inputs: readonly Node[],
  outputs: readonly Node[],
  node: Node | null,
): void {
  tape.begin(Op.Run)
  tape.pair(id, inputs.length | (outputs.length << 16))
  for (const input of inputs) writeOperand(tape, input)
  for (const output of outputs) writeOperand(tape, output)
  if (node) writeParams(tape, (node.primitive as Primitive).schema, node.params)
  tape.end()
}

/** The numbers of dead references. */
const dead = new Int32Array(1 << 17)
const copyKernel = kernels.get("copy") as number

/** Serves `mx.cpu`. */
export const cpuBackend: Backend = {
  name: "cpu",
  device: "cpu",
  priority: 100,

  allocate(nbytes) {
    const storage = take(nbytes)
    reserveMain(3)
    main.alloc(storage.slot, nbytes)
    return storage
  },
  release(storage) {
    reserveMain(2)
    main.free(storage.slot)
    if (storage.lender !== null) {
      leaving.push(adopted.get(storage.slot) as () => void)
      adopted.delete(storage.slot)
    }
    freeSlots.push(storage.slot)
  },
  read(storage, byteOffset, into) {
    runTape()
    if (storage.failure) throw storage.failure
    native.read(storage.slot, byteOffset, into)
  },
  write(storage, byteOffset, from) {
    runTape()
    if (storage.failure) throw storage.failure
    native.write(storage.slot, byteOffset, from)
  },
  host(storage) {
    // A view keeps the memory of its own backend.
    if (storage.lender !== null) return storage.lender.memory.host(storage.lender)
    runTape()
    if (storage.failure) throw storage.failure
    return native.hostView(storage.slot)
  },
  address(storage) {
    runTape()
    if (storage.failure) throw storage.failure
    return native.address(storage.slot)
  },
  adopt(address, nbytes, done) {
    // The slot may have been freed on the tape.
    runTape()
    const storage = take(nbytes)
    native.adopt(storage.slot, address, nbytes)
    adopted.set(storage.slot, done)
    return storage
  },

  supports(node) {
    const primitive = node.primitive as Primitive
    if (primitive.elementwise) return programId(node) >= 0
    const kernel = kernelOf(primitive)
    if (kernel < 0) return false
    const [first] = node.inputs
    if (restrictions.size > 0 && !isTaken(node, primitive.name)) return false
    return first === undefined || ((kernelDtypes[kernel] >> first.dtype.code) & 1) === 1
  },
  encode(node) {
    const primitive = node.primitive as Primitive
    if (primitive.elementwise) {
      encodeMap(node, programId(node))
      return
    }
    reserve(recordWords(node))
    encodeKernel(kernelOf(primitive), node.inputs, node.outputs ?? [node], node)
  },
  encodeCopy(source, target) {
    reserve(16 + 4 * source.shape.length)
    encodeKernel(copyKernel, [source], [target], null)
  },
  flush() {
    lastNode = null
    runTape()
    return failed.length === 0 ? NONE : failed.splice(0)
  },

  record(inputs, outputs, arenaBytes, body) {
    const before = tape
    const recording = new Tape(1 << 10)
    tape = recording
    try {
      body()
    } finally {
      tape = before
    }
    return {
      id: native.registerPlan(recording.buffer.slice(0, recording.length * 8), inputs, outputs, arenaBytes),
    }
  },
  encodePlan(plan, node) {
    const outputs = node.outputs ?? [node]
    reserve(4 + 2 * (node.inputs.length + outputs.length))
    tape.begin(Op.Plan)
    tape.pair(plan.id, Math.min(node.inputs.length, 0xffff) | (Math.min(outputs.length, 0x7fff) << 16))
    for (const list of [node.inputs, outputs]) {
      for (const operand of list) {
        tape.int((operand.storage as Storage).slot)
        tape.int(operand.offset * operand.dtype.size)
      }
    }
    tape.end()
  },
  releasePlan: (plan) => native.releasePlan(plan.id),

  tracker: {
    track: (objects, count, ids) => native.track(objects as object[], count, ids),
    untrack: (id) => native.untrack(id),
    isAlive: (id) => native.isAlive(id),
    poll(all) {
      const count = native.poll(all ? 1 : 0, dead)
      // What does not fit now is found by the next poll.
      return dead.subarray(0, count)
    },
    collect,
  },
  memory() {
    // What was released is only given back when the tape has run.
    runTape()
    return native.memory()
  },
  *storages() {
    for (const storage of storages) if (storage.refs > 0) yield storage
  },
  setMemoryLimit: (bytes) => native.setMemoryLimit(bytes),
  setCacheLimit: (bytes) => native.setCacheLimit(bytes),
  clearCache: () => native.clearCache(),
  resetPeakMemory: () => native.resetPeakMemory(),
  info: () => ({
    deviceName: cpus()[0]?.model.trim() || process.arch,
    architecture: `${process.arch} ${native.simdTarget()}`,
    memorySize: totalmem(),
    threads: native.threads(),
    machineCode: native.machineCode().state,
  }),
}

onKernels("native", addLibrary)
