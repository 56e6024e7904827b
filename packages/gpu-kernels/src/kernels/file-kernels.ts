/**
 * Primitives whose kernels are in a `.metal` file of their package: binds what their dispatches name to the buffers that the kernels
 * declare, and says what does not fit.
 */
import { basename } from "node:path"
import {
  ArgumentError,
  contiguousStrides,
  DeviceError,
  describe,
  isList,
  isPlainObject,
  type MetalArgument,
  type MetalDispatch,
  type MetalFileKernel,
  type MetalSteps,
  type Node,
  type Storage,
} from "@lazuli/core/engine"
import {
  type Argument,
  type DispatchQueue,
  type FunctionConstants,
  isLocation,
  type Location,
  MAX_INLINE_BYTES,
  type Wording,
} from "../dispatch"
import type { Family } from "../family"
import { type MetalFile, readMetalFile } from "../msl/metal-file"
import {
  type BufferParameter,
  type KernelSignature,
  type SourceSignature,
  signaturesOf,
} from "../msl/signatures"
import { gridSize, groupSize, hasTypes } from "./custom"
import { offeredFamily, offeredPath, withOperands } from "./offered"

/** A package's `.metal` file, read and scanned when a kernel of it is first needed. */
export interface FileLibrary {
  open(): OpenLibrary
}

interface OpenLibrary {
  readonly file: MetalFile
  readonly signature: SourceSignature
  readonly wording: Wording
}

/** The library that a package names. @throws ArgumentError where there is no such file */
export function libraryOf(from: string, library: unknown): FileLibrary {
  const path = offeredPath(from, "Metal", library)
  let opened: OpenLibrary | undefined
  const open = (): OpenLibrary => {
    let file: MetalFile
    try {
      file = readMetalFile(path)
    } catch (cause) {
      throw new DeviceError(from, `${basename(path)} cannot be read: ${(cause as Error).message}`, { cause })
    }
    const wording: Wording = {
      name: from,
      location: file.location,
      buffer: (kernel, index) =>
        signature.kernels.get(kernel)?.buffers.find((buffer) => buffer.index === index)?.name,
      namesKernels: true,
    }
    const signature = signaturesOf({ text: file.text, file: file.name, wording })
    return { file, signature, wording }
  }
  return {
    open() {
      opened ??= open()
      return opened
    },
  }
}

/** The family of a primitive whose kernels are in a file. @throws ArgumentError for names that are none of its operands' */
export function fileKernel(primitive: string, kernel: MetalFileKernel, library: FileLibrary): Family {
  const overwrites = overwritesOf(primitive, kernel)
  const family = offeredFamily(primitive, "Metal", kernel, (node, queue, steps) => {
    if (!isPlainObject(steps) || !isList(steps.dispatches))
      throw new ArgumentError(primitive, `launch must give { dispatches: […] }, received ${describe(steps)}`)
    encodeSteps(primitive, kernel, library.open(), node, queue, steps)
  })
  return {
    ...family,
    supports: (node) => hasTypes(node) && family.supports(node),
    overwrites: overwrites && ((_, output) => overwrites[output]),
  }
}

/** By output, the indices of the inputs that it may be written over. */
function overwritesOf(
  op: string,
  { overwrites, inputNames, outputNames }: MetalFileKernel,
): readonly (readonly number[])[] | undefined {
  if (overwrites === undefined) return undefined
  for (const [output, inputs] of Object.entries(overwrites)) {
    const known =
      outputNames.includes(output) && isList(inputs) && inputs.every((name) => inputNames.includes(name))
    if (!known)
      throw new ArgumentError(
        op,
        `overwrites must give lists of inputs (${inputNames.join(", ")}) by outputs (${outputNames.join(", ")}), received ${describe(inputs)} for "${output}"`,
      )
  }
  return outputNames.map((name) => (overwrites[name] ?? []).map((input) => inputNames.indexOf(input)))
}

/** Adds the dispatches. */
function encodeSteps(
  op: string,
  kernel: MetalFileKernel,
  library: OpenLibrary,
  node: Node,
  queue: DispatchQueue,
  steps: MetalSteps,
): void {
  withOperands(op, kernel, node, queue, steps, (named) => {
    const binder = new Binder(op, library, kernel, node, named)
    for (const dispatch of steps.dispatches) binder.encode(queue, dispatch)
  })
}

const NOTHING = new Uint8Array(16)

/** Binds the dispatches of one application. */
class Binder {
  constructor(
    private readonly op: string,
    private readonly library: OpenLibrary,
    private readonly kernel: MetalFileKernel,
    private readonly node: Node,
    /** Operands and scratch memory. */
    private readonly named: ReadonlyMap<string, Location>,
  ) {}

  encode(queue: DispatchQueue, dispatch: MetalDispatch): void {
    const { op, library } = this
    const { file, signature, wording } = library
    const found = signature.kernels.get(dispatch?.kernel)
    if (!found) {
      const names = [...signature.kernels.keys()]
      throw new ArgumentError(
        op,
        `${file.name} has no kernel ${typeof dispatch?.kernel === "string" ? `"${dispatch.kernel}"` : describe(dispatch?.kernel)}; it has ${names.slice(0, 12).join(", ") || "none"}${names.length > 12 ? ", …" : ""}`,
        { hint: 'A kernel is called by its [[host_name("…")]], or by the name of its function' },
      )
    }
    const constants = this.constantsOf(found, dispatch.constants ?? {})
    const threadgroupMemory = this.threadgroupMemoryOf(found, dispatch, queue.limits.maxThreadgroupMemory)
    const { args, writes } = this.argumentsOf(found, dispatch)
    const grid = gridSize(op, dispatch.grid)
    const threadgroup = groupSize(op, dispatch.threadgroup)
    if (grid.includes(0)) return
    queue.dispatch({
      op,
      kernel: {
        key: `file ${file.digest} ${found.name} ${JSON.stringify(constants)}`,
        name: found.name,
        source: () => file.text,
        file: file.name,
        compiled: file.compiled ?? undefined,
        constants,
        wording,
      },
      arguments: args,
      writes,
      grid,
      threadgroup,
      threadgroupMemory,
    })
  }

  private constantsOf(
    { name: kernel, constants: used }: KernelSignature,
    given: Readonly<Record<string, unknown>>,
  ): FunctionConstants {
    const { op } = this
    const { file, signature } = this.library
    const made: Record<number, number | boolean> = {}
    for (const [name, value] of Object.entries(given)) {
      const constant = signature.constants.find((each) => each.name === name)
      if (!constant)
        throw new ArgumentError(
          op,
          `${file.name} has no function constant "${name}"; it has ${signature.constants.map((each) => each.name).join(", ") || "none"}`,
        )
      const isFlag = constant.type === "bool"
      if (typeof value !== (isFlag ? "boolean" : "number"))
        throw new ArgumentError(
          op,
          `the function constant "${name}" is a ${constant.type} and needs a ${isFlag ? "boolean" : "number"}, received ${describe(value)}`,
        )
      made[constant.index] = value as number | boolean
    }
    const missing = signature.constants.find(
      ({ name, index, isOptional }) => used.includes(name) && !isOptional && made[index] === undefined,
    )
    if (missing)
      throw new ArgumentError(
        op,
        `the dispatch of "${kernel}" gives no value for the function constant "${missing.name}" of ${file.name}`,
        { hint: `constants: { ${missing.name}: … }; is_function_constant_defined makes it optional` },
      )
    return made
  }

  private threadgroupMemoryOf(
    { name, threadgroup }: KernelSignature,
    { threadgroupMemory = [] }: MetalDispatch,
    most: number,
  ): readonly number[] {
    const { op } = this
    for (const { index, name: parameter } of threadgroup)
      if (!(threadgroupMemory[index] > 0))
        throw new ArgumentError(
          op,
          `"${name}" needs a size for its threadgroup memory ${index} (${parameter})`,
          {
            hint: "threadgroupMemory: [bytes, …]",
          },
        )
    let total = 0
    threadgroupMemory.forEach((bytes, i) => {
      const isKnown = threadgroup.some(({ index }) => index === i)
      if (!isKnown || !Number.isSafeInteger(bytes))
        throw new ArgumentError(
          op,
          isKnown
            ? `threadgroupMemory must be a list of bytes, received ${describe(bytes)}`
            : `"${name}" has no threadgroup parameter ${i}`,
        )
      total += Math.ceil(bytes / 16) * 16
    })
    if (total > most)
      throw new ArgumentError(
        op,
        `"${name}" asks for ${total} bytes of threadgroup memory, and there are ${most}`,
      )
    return threadgroupMemory
  }

  private argumentsOf(
    kernel: KernelSignature,
    { buffers, constants = {} }: MetalDispatch,
  ): { args: Argument[]; writes: Storage[] } {
    const { op } = this
    if (!isList(buffers))
      throw new ArgumentError(
        op,
        `buffers of "${kernel.name}" must be a list by index, received ${describe(buffers)}`,
      )
    const writes: Storage[] = []
    const byIndex = new Map(kernel.buffers.map((each) => [each.index, each]))
    const highest = Math.max(-1, ...byIndex.keys())
    const args: Argument[] = []
    for (let i = 0; i <= highest; i++) {
      const parameter = byIndex.get(i)
      const given = (buffers[i] ?? null) as MetalArgument
      const isThere =
        parameter !== undefined && (parameter.onlyWith === null || constants[parameter.onlyWith] === true)
      if (given === null && isThere)
        throw new ArgumentError(
          op,
          `buffer ${i} (${parameter.name}) of "${kernel.name}" is not bound: it takes ${listOf(kernel)}`,
        )
      if (given !== null && parameter === undefined) throw this.unknown(kernel, i)
      // Something must be bound, also where nobody looks.
      const argument = given === null ? NOTHING : this.argumentOf(kernel, parameter as BufferParameter, given)
      if (parameter?.isWritten && isLocation(argument)) writes.push(argument.storage)
      args.push(argument)
    }
    for (let i = highest + 1; i < buffers.length; i++) if (buffers[i] !== null) throw this.unknown(kernel, i)
    return { args, writes }
  }

  private unknown(kernel: KernelSignature, index: number): ArgumentError {
    return new ArgumentError(this.op, `"${kernel.name}" has no buffer ${index}: it takes ${listOf(kernel)}`)
  }

  private argumentOf(
    kernel: KernelSignature,
    parameter: BufferParameter,
    given: NonNullable<MetalArgument>,
  ): Argument {
    const { op, named } = this
    const what = `buffer ${parameter.index} (${parameter.name}) of "${kernel.name}"`
    if (ArrayBuffer.isView(given)) {
      if (parameter.isWritten)
        throw new ArgumentError(
          op,
          `${what} is written, which bytes of the host cannot be: give an output or scratch memory`,
        )
      if (given.byteLength === 0 || given.byteLength > MAX_INLINE_BYTES)
        throw new ArgumentError(
          op,
          `${what} gets ${given.byteLength} bytes of the host, and a dispatch takes 1 to ${MAX_INLINE_BYTES}: give more as an input`,
        )
      return given
    }
    if (typeof given === "object" && "shapeOf" in given)
      return Int32Array.from(orOne(this.input(what, given.shapeOf).shape))
    if (typeof given === "object" && "stridesOf" in given) {
      const { shape, strides } = this.input(what, given.stridesOf)
      const rowMajor = this.kernel.ensureRowContiguous ?? true
      return BigInt64Array.from(orOne(rowMajor || !strides ? contiguousStrides(shape) : strides), BigInt)
    }
    const { name, offset } =
      typeof given === "object" && "name" in given ? given : { name: given as string, offset: 0 }
    const location = named.get(name)
    if (!location)
      throw new ArgumentError(
        op,
        `${what} is given ${typeof name === "string" ? `"${name}"` : describe(name)}, and there are ${[...named.keys()].join(", ")}`,
        { hint: "Numbers go as typed arrays, such as Float32Array.of(2)" },
      )
    if (parameter.isWritten && this.kernel.inputNames.includes(name))
      throw new ArgumentError(op, `${what} is written, and "${name}" is an input`, {
        hint: "Declare it const device, or write to an output; overwrites lets an output take an input's memory",
      })
    if (!(Number.isSafeInteger(offset) && offset >= 0 && offset <= location.storage.nbytes))
      throw new ArgumentError(
        op,
        `${what} begins at byte ${String(offset)} of "${name}", which has ${location.storage.nbytes}`,
      )
    return { storage: location.storage, offset: location.offset + offset }
  }

  private input(what: string, name: string): Node {
    const node = this.node.inputs[this.kernel.inputNames.indexOf(name)]
    if (node) return node
    throw new ArgumentError(
      this.op,
      `${what} asks for the layout of ${describe(name)}, and the inputs are ${this.kernel.inputNames.join(", ")}`,
    )
  }
}

/** Metal takes no empty arguments. */
const orOne = (values: readonly number[]): readonly number[] => (values.length > 0 ? values : [1])

const listOf = ({ buffers }: KernelSignature): string =>
  [...buffers]
    .sort((a, b) => a.index - b.index)
    .map(({ index, name }) => `${index} (${name})`)
    .join(", ") || "none"
