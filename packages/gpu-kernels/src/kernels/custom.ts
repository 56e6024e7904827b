/**
 * Kernels whose bodies users write: runs the applications that metal-kernel.ts makes, and those of primitives whose packages bring the
 * body of a Metal function.
 */
import {
  ArgumentError,
  contiguousStrides,
  type Dtype,
  describe,
  isList,
  type MetalKernelOptions,
  type Node,
  type Storage,
  sizeOf,
  type TemplateValue,
} from "@lazuli/core/engine"
import { customKey, customSource, customType, type KernelSpec } from "../custom-source"
import type { Argument, DispatchQueue, Kernel, Location, Size } from "../dispatch"
import type { Families, Family } from "../family"
import { viewOf } from "../layout"
import { dispatchMap } from "../map"
import { wordType } from "../metal-types"
import { bytesOf } from "../scalar-source"
import { withRowMajor } from "./copy"

/** The name of the primitive. */
export const METAL_KERNEL = "@lazuli/gpu-kernels/metalKernel"
/** The name of the one whose kernels have a reference in ordinary operations. */
export const REFERENCED_KERNEL = "@lazuli/gpu-kernels/referencedKernel"

/** The launch of a kernel. */
export interface Launch {
  readonly spec: KernelSpec
  /** Tells kernels of one name apart. */
  readonly specId: number
  readonly template: readonly (readonly [string, TemplateValue])[]
  /** In the order of the kernel's scalar names. */
  readonly scalars: readonly number[]
  readonly grid: Size
  readonly threadgroup: Size
  readonly initValue: number | null
  readonly verbose: boolean
}

/** One call of a kernel, as its node's parameter holds it. */
export interface KernelCall extends Launch {
  /** Equal for equal calls. */
  readonly key: string
  readonly outputs: readonly { readonly shape: readonly number[]; readonly dtype: Dtype }[]
  readonly reference?: MetalKernelOptions["reference"]
}

let count = 0

/** A number for a kernel's specification. */
export const newSpecId = (): number => ++count

/** Sets every element of an output. */
export function encodeFill(queue: DispatchQueue, node: Node, value: number): void {
  const size = sizeOf(node.shape)
  const type = wordType(node.dtype.size)
  if (size === 0) return
  const storage = node.storage as Storage
  dispatchMap(
    queue,
    "metalKernel",
    { key: `copy ${type}`, make: () => ({ inputs: [type], outputs: [type], text: "o0 = a0;" }) },
    [{ bytes: bytesOf(value, node.dtype), size: node.dtype.size }],
    [{ storage, size: node.dtype.size, offset: 0 }],
    [size],
  )
}

/** The inputs' locations, row-major where the kernel wants that. Copies live until `body` returns. */
export function withInputs(
  queue: DispatchQueue,
  inputs: readonly Node[],
  rowMajor: boolean,
  body: (locations: readonly Location[]) => void,
): void {
  const next = (locations: readonly Location[]): void => {
    const input = inputs[locations.length]
    if (!input) body(locations)
    else if (rowMajor) withRowMajor(queue, viewOf(input), (location) => next([...locations, location]))
    else next([...locations, { storage: input.storage as Storage, offset: input.offset * input.dtype.size }])
  }
  next([])
}

/** Adds one run of a kernel. */
export function encodeLaunch(node: Node, queue: DispatchQueue, call: Launch): void {
  const { spec, template } = call
  const outputs = node.outputs ?? [node]
  const dtypes = outputs.map((o) => o.dtype)
  const made = customSource(spec, node.inputs, dtypes, template)
  if (call.verbose) console.log(`Source of ${spec.name}:\n${made.text}`)
  const kernel: Kernel = {
    key: `custom ${call.specId} ${customKey(spec, node.inputs, dtypes, template)}`,
    source: () => made.text,
    name: made.kernel,
    wording: { name: spec.name, location: made.location, buffer: (_, index) => made.buffers[index] },
    mathMode: spec.mathMode,
  }
  if (call.initValue !== null) for (const output of outputs) encodeFill(queue, output, call.initValue)
  if (call.grid.includes(0)) return
  withInputs(queue, node.inputs, spec.ensureRowContiguous, (locations) => {
    const args: Argument[] = made.parameters.map(({ input, what }) => {
      const { shape, strides } = node.inputs[input]
      if (what === "data") return locations[input]
      if (what === "ndim") return Int32Array.of(shape.length)
      if (what === "shape") return Int32Array.from(shape)
      const own = spec.ensureRowContiguous || !strides ? contiguousStrides(shape) : strides
      return BigInt64Array.from(own, BigInt)
    })
    for (const value of call.scalars) args.push(Float32Array.of(value))
    for (const output of outputs)
      args.push({ storage: output.storage as Storage, offset: output.offset * output.dtype.size })
    const group = call.threadgroup.map((n, i) => Math.min(n, call.grid[i])) as unknown as Size
    queue.dispatch({
      op: spec.name,
      kernel,
      arguments: args,
      writes: outputs.map((o) => o.storage as Storage),
      grid: call.grid,
      threadgroup: group,
    })
  })
}

/** True if Metal has the dtypes of all operands. */
export const hasTypes = (node: Node): boolean =>
  node.inputs.every((n) => customType(n.dtype) !== undefined) &&
  (node.outputs ?? [node]).every((n) => customType(n.dtype) !== undefined)

const users: Family = {
  supports: hasTypes,
  isOnce: ({ params }) => (params.kernel as KernelCall).verbose,
  encode: (node, queue) => encodeLaunch(node, queue, node.params.kernel as KernelCall),
}
/** The users' kernels, by primitive. */
export const customKernels: Families = { [METAL_KERNEL]: users, [REFERENCED_KERNEL]: users }

/** One to three sizes within bounds, filled up with ones. @throws ArgumentError */
function size3(op: string, what: string, value: unknown, least: number, most: number): Size {
  const fits = (n: unknown): boolean => Number.isInteger(n) && (n as number) >= least && (n as number) <= most
  if (isList(value) && value.length >= 1 && value.length <= 3 && value.every(fits))
    return [...value, 1, 1].slice(0, 3) as unknown as Size
  throw new ArgumentError(
    op,
    `${what} must be a list of one to three integers from ${least} to ${most}, received ${listed(value)}`,
  )
}

/** A list as errors show it: its elements, if they are few. */
export const listed = (value: unknown): string =>
  isList(value) && value.length <= 8
    ? `[${value.map((v) => (typeof v === "number" ? String(v) : describe(v))).join(", ")}]`
    : describe(value)

/** The number of threads along three axes. @throws ArgumentError */
export const gridSize = (op: string, value: unknown): Size => size3(op, "grid", value, 0, 2 ** 32 - 1)

/** The sizes of a threadgroup. @throws ArgumentError */
export function groupSize(op: string, value: unknown): Size {
  const threadgroup = size3(op, "threadgroup", value, 1, 1024)
  if (sizeOf(threadgroup) > 1024)
    throw new ArgumentError(
      op,
      `a threadgroup must have 1 to 1024 threads, received ${threadgroup.join(" × ")}`,
    )
  return threadgroup
}
