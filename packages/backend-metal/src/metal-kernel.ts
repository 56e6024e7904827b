/**
 * `metalKernel`: kernels that users write in Metal, as primitives of the graph: MLX's `mx.fast.metal_kernel`.
 */
import {
  ArgumentError,
  Array,
  bool_,
  currentStream,
  Device,
  DeviceError,
  DTypeError,
  type Dtype,
  definePrimitive,
  describe,
  float32,
  int64,
  isDtype,
  onStream,
  ShapeError,
  type StreamLike,
  scalarArray,
} from "@lazuli/core/engine"
import { customType, type KernelSpec, type TemplateValue } from "./custom-source"
import { groupSize, type KernelCall, METAL_KERNEL, newSpecId, size3 } from "./kernels/custom"

/** What {@link metalKernel} makes a kernel of. */
export interface MetalKernelOptions {
  /** Names the kernel in messages and in its source. */
  readonly name: string
  /** The names by which the body knows its inputs. */
  readonly inputNames: readonly string[]
  /** The names by which the body knows its outputs. */
  readonly outputNames: readonly string[]
  /** The body of the kernel. */
  readonly source: string
  /** What the body needs outside of itself, such as functions. */
  readonly header?: string
  /** Whether inputs are copied to row-major order first where they are not; true by default. */
  readonly ensureRowContiguous?: boolean
  /** Whether outputs are atomic: `device atomic<float>*`. */
  readonly atomicOutputs?: boolean
}

/** What a call of a kernel takes. */
export interface MetalKernelCall {
  /** Arrays, or scalars, one for each name. */
  readonly inputs: readonly (Array | number | bigint | boolean)[]
  /** Values of template parameters: dtypes, integers, booleans. */
  readonly template?: Readonly<Record<string, TemplateValue>> | readonly (readonly [string, TemplateValue])[]
  /** How many threads there are, along each axis. */
  readonly grid: readonly number[]
  /** How many of them make a threadgroup. */
  readonly threadgroup: readonly number[]
  readonly outputShapes: readonly (readonly number[])[]
  readonly outputDtypes: readonly Dtype[]
  /** What outputs hold before the kernel runs; nothing in particular by default. */
  readonly initValue?: number | null
  /** Whether to print the generated source. */
  readonly verbose?: boolean
  /** A stream of the GPU, or the GPU; its default stream by default. */
  readonly stream?: StreamLike
}

/** A kernel: called with arrays, it gives its outputs, lazily. */
export type MetalKernel = (call: MetalKernelCall) => Array[]

const apply = definePrimitive({
  name: METAL_KERNEL,
  params: { kernel: "program" },
  facts: { opaque: true },
  infer: (_inputs, { kernel }) => (kernel as KernelCall).outputs,
  reference: (_inputs, _outputs, { kernel }) => {
    const { spec } = kernel as KernelCall
    throw new DeviceError(spec.name, "is a Metal kernel and runs on the GPU only, by the Metal backend")
  },
})

/**
 * A kernel from the body of a Metal function. The signature follows from the arguments of each call: an input is `const device T* x`
 * (`constant` below 8 elements, a reference without axes), an output `device T* y`; `x_shape`, `x_strides`, `x_ndim` and attributes
 * such as `thread_position_in_grid` are parameters where the body names them. Bodies may use `elem_to_loc(i, x_shape, x_strides, x_ndim)`.
 *
 * Has no derivative of its own: wrap it in `customFunction`.
 *
 * @throws ArgumentError when names are missing or malformed
 * @example
 * const twice = metalKernel({ name: 'twice', inputNames: ['x'], outputNames: ['y'],
 *   source: 'uint i = thread_position_in_grid.x; y[i] = 2 * x[i];' })
 * const [y] = twice({ inputs: [mx.array([1, 2])], grid: [2, 1, 1], threadgroup: [2, 1, 1],
 *   outputShapes: [[2]], outputDtypes: [mx.float32] })
 * y.tolist() // => [2, 4]
 */
export function metalKernel(options: MetalKernelOptions): MetalKernel {
  const spec = checkSpec(options)
  const specId = newSpecId()
  return (call) => {
    const inputs = call.inputs.map((input, i) => asInput(spec, input, i))
    const kernel = checkCall(spec, specId, call, inputs.length)
    return onStream(gpuStream(spec.name, call.stream ?? null), () => apply.all(inputs, { kernel }))
  }
}

function checkSpec(options: MetalKernelOptions): KernelSpec {
  const { name, inputNames, outputNames, source, header = "" } = options
  const op = "metalKernel"
  if (typeof name !== "string" || !/^[A-Za-z_]\w*$/.test(name))
    throw new ArgumentError(op, `name must be a name that Metal accepts, received ${describe(name)}`)
  if (typeof source !== "string")
    throw new ArgumentError(op, `source must be a string, received ${describe(source)}`)
  for (const list of [inputNames, outputNames])
    if (!globalThis.Array.isArray(list) || !list.every((n) => /^[A-Za-z_]\w*$/.test(n)))
      throw new ArgumentError(op, `inputNames and outputNames must be lists of names that Metal accepts`)
  if (outputNames.length === 0) throw new ArgumentError(op, "needs at least one output")
  return {
    name,
    inputNames: [...inputNames],
    outputNames: [...outputNames],
    source,
    header,
    ensureRowContiguous: options.ensureRowContiguous ?? true,
    atomicOutputs: options.atomicOutputs ?? false,
    scalarNames: [],
  }
}

function asInput(spec: KernelSpec, input: unknown, i: number): Array {
  if (input instanceof Array) {
    if (!customType(input.dtype))
      throw new DTypeError(
        spec.name,
        `Metal has no ${input.dtype.name}, the dtype of "${spec.inputNames[i]}"`,
      )
    return input
  }
  if (typeof input === "number") return scalarArray(input, float32)
  if (typeof input === "boolean") return scalarArray(input, bool_)
  if (typeof input === "bigint") return scalarArray(input, int64)
  throw new ArgumentError(spec.name, `inputs must be arrays or scalars, received ${describe(input)}`)
}

function checkCall(spec: KernelSpec, specId: number, call: MetalKernelCall, given: number): KernelCall {
  const { name, inputNames, outputNames } = spec
  if (given !== inputNames.length)
    throw new ArgumentError(
      name,
      `takes ${inputNames.length} inputs (${inputNames.join(", ")}), received ${given}`,
    )
  const { outputShapes, outputDtypes, initValue = null, verbose = false } = call
  if (outputShapes?.length !== outputNames.length || outputDtypes?.length !== outputNames.length)
    throw new ShapeError(
      name,
      `needs a shape and a dtype for each of its outputs (${outputNames.join(", ")}), received ${outputShapes?.length ?? 0} shapes and ${outputDtypes?.length ?? 0} dtypes`,
    )
  const outputs = outputShapes.map((shape, i) => {
    const dtype = outputDtypes[i]
    if (!isDtype(dtype) || !customType(dtype))
      throw new DTypeError(name, `the output "${outputNames[i]}" needs a dtype that Metal has`)
    if (!shape.every((n) => Number.isInteger(n) && n >= 0))
      throw new ShapeError(name, `the shape of "${outputNames[i]}" must hold non-negative integers`)
    return { shape: [...shape], dtype }
  })
  const template = globalThis.Array.isArray(call.template)
    ? (call.template as readonly (readonly [string, TemplateValue])[])
    : Object.entries(call.template ?? {})
  for (const [key, value] of template)
    if (!isDtype(value) && typeof value !== "boolean" && !Number.isInteger(value))
      throw new ArgumentError(
        name,
        `the template parameter "${key}" must be a dtype, an integer or a boolean, received ${describe(value)}`,
      )
  const grid = size3(name, "grid", call.grid)
  const threadgroup = groupSize(name, call.threadgroup)
  const values = template.map(([k, v]) => `${k}=${isDtype(v) ? v.name : v}`)
  const key = JSON.stringify([
    ...[specId, values, grid, threadgroup, initValue, verbose],
    outputs.map((o) => [o.shape, o.dtype.name]),
  ])
  return { key, spec, specId, template, scalars: [], grid, threadgroup, outputs, initValue, verbose }
}

/** The stream asked for; without one the GPU's, whatever the default device is. @throws DeviceError for the CPU */
function gpuStream(op: string, stream: StreamLike): StreamLike {
  if (stream === null) return currentStream().device.type === "gpu" ? null : "gpu"
  const type =
    typeof stream === "string" ? stream : stream instanceof Device ? stream.type : stream.device.type
  if (type === "gpu") return stream
  throw new DeviceError(op, "is a Metal kernel and runs on the GPU only, received a stream of the CPU")
}
