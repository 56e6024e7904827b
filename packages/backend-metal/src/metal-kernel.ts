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
  definePrimitive,
  describe,
  float32,
  int64,
  isDtype,
  type MetalKernel,
  type MetalKernelCall,
  type MetalKernelOptions,
  onStream,
  ShapeError,
  type StreamLike,
  scalarArray,
  type TemplateValue,
} from "@lazuli/core/engine"
import { customType, type KernelSpec } from "./custom-source"
import { groupSize, type KernelCall, METAL_KERNEL, newSpecId, size3 } from "./kernels/custom"

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

/** Makes kernels for `mx.fast.metalKernel`, whose documentation in core holds here too. */
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
  const { name, inputNames, outputNames, source } = options
  const header = options.header ?? ""
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
