/**
 * Kernels that users write: runs the applications that src/metal-kernel.ts makes.
 */
import { contiguousStrides, type Dtype, type Node, type Storage, sizeOf } from "@lazuli/core/engine"
import type { Size } from "../command-stream"
import { customKey, customSource, customType, type KernelSpec, type TemplateValue } from "../custom-source"
import type { Families } from "../family"
import { viewOf } from "../layout"
import { METAL_HEADER } from "../metal-types"
import type { Argument, MetalQueue, Place } from "../queue"
import { bytesOf } from "../scalar-source"
import { withRowMajor } from "./copy"

/** The name of the primitive. */
export const METAL_KERNEL = "@lazuli/backend-metal/metalKernel"

/** One call of a kernel, as its node's parameter holds it. */
export interface KernelCall {
  /** Equal for equal calls. */
  readonly key: string
  readonly spec: KernelSpec
  readonly specId: number
  readonly template: readonly (readonly [string, TemplateValue])[]
  readonly grid: Size
  readonly threadgroup: Size
  readonly outputs: readonly { readonly shape: readonly number[]; readonly dtype: Dtype }[]
  readonly initValue: number | null
  readonly verbose: boolean
}

const fillTypes: Record<number, string> = { 1: "uchar", 2: "ushort", 4: "uint", 8: "ulong" }

/** Sets every element of an output. */
function encodeFill(queue: MetalQueue, node: Node, value: number): void {
  const size = sizeOf(node.shape)
  const type = fillTypes[node.dtype.size]
  if (size === 0) return
  const pipeline = queue.pipeline(
    `fill ${type}`,
    () => `${METAL_HEADER}kernel void fill(device ${type}* y [[buffer(0)]], constant ${type}& value [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = value;
}
`,
    "fill",
  )
  const storage = node.storage as Storage
  queue.dispatch(
    "metalKernel",
    pipeline,
    [{ storage, offset: 0 }, bytesOf(value, node.dtype)],
    [storage],
    [size, 1, 1],
    [Math.min(256, size), 1, 1],
  )
}

/** The inputs' places, row-major where the kernel wants that. Copies live until `body` returns. */
function withInputs(
  queue: MetalQueue,
  inputs: readonly Node[],
  rowMajor: boolean,
  body: (places: readonly Place[]) => void,
): void {
  const next = (places: readonly Place[]): void => {
    const input = inputs[places.length]
    if (!input) body(places)
    else if (rowMajor) withRowMajor(queue, viewOf(input), (place) => next([...places, place]))
    else next([...places, { storage: input.storage as Storage, offset: input.offset * input.dtype.size }])
  }
  next([])
}

function encode(node: Node, queue: MetalQueue): void {
  const call = node.params.kernel as KernelCall
  const { spec, template } = call
  const outputs = node.outputs ?? [node]
  const dtypes = outputs.map((o) => o.dtype)
  const made = customSource(spec, node.inputs, dtypes, template)
  if (call.verbose) console.log(`Source of ${spec.name}:\n${made.text}`)
  const pipeline = queue.pipeline(
    `custom ${call.specId} ${customKey(spec, node.inputs, dtypes, template)}`,
    () => made.text,
    made.kernel,
  )
  if (call.initValue !== null) for (const output of outputs) encodeFill(queue, output, call.initValue)
  if (call.grid.includes(0)) return
  withInputs(queue, node.inputs, spec.ensureRowContiguous, (places) => {
    const args: Argument[] = made.parameters.map(({ input, what }) => {
      const { shape, strides } = node.inputs[input]
      if (what === "data") return places[input]
      if (what === "ndim") return Int32Array.of(shape.length)
      if (what === "shape") return Int32Array.from(shape)
      const own = spec.ensureRowContiguous || !strides ? contiguousStrides(shape) : strides
      return BigInt64Array.from(own, BigInt)
    })
    for (const output of outputs)
      args.push({ storage: output.storage as Storage, offset: output.offset * output.dtype.size })
    const group = call.threadgroup.map((n, i) => Math.min(n, call.grid[i])) as unknown as Size
    queue.dispatch(
      spec.name,
      pipeline,
      args,
      outputs.map((o) => o.storage as Storage),
      call.grid,
      group,
    )
  })
}

/** The users' kernels, by primitive. */
export const customKernels: Families = {
  [METAL_KERNEL]: {
    supports: (node) =>
      node.inputs.every((n) => customType(n.dtype) !== undefined) &&
      (node.outputs ?? [node]).every((n) => customType(n.dtype) !== undefined),
    encode,
  },
}
