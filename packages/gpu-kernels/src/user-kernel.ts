/**
 * Kernels that users write, as primitives of the graph: MLX's `mx.fast.metal_kernel` and `mx.fast.cuda_kernel`. What differs between the
 * two is their {@link Dialect}.
 */
import {
  type Apply,
  ArgumentError,
  Array,
  bool_,
  type CudaKernelOptions,
  checkOptions,
  currentStream,
  Device,
  DeviceError,
  DTypeError,
  type Dtype,
  definePrimitive,
  describe,
  float32,
  format,
  int64,
  isDtype,
  isList,
  isPlainObject,
  type MetalKernel,
  type MetalKernelCall,
  type MetalKernelOptions,
  onStream,
  type ParamsOf,
  ShapeError,
  type StreamLike,
  sameShape,
  scalarArray,
  sizeOf,
  type TemplateValue,
} from "@lazuli/core/engine"
import { customType, type KernelSpec } from "./custom-source"
import { checkName, checkNames, type Language } from "./kernel-names"
import {
  gridSize,
  groupSize,
  type KernelCall,
  listed,
  METAL_KERNEL,
  newSpecId,
  REFERENCED_KERNEL,
} from "./kernels/custom"

/** A language for kernels, and the primitives that run them. */
export interface Dialect {
  /** As messages name it. */
  readonly language: Language
  /** The public function. */
  readonly op: "metalKernel" | "cudaKernel"
  /** The options that are not common to all, with their checks: what they add to a specification. */
  readonly options: readonly string[]
  optionsOf(options: MetalKernelOptions & CudaKernelOptions): Partial<KernelSpec>
  /** The type of elements in a source; undefined where there is none. */
  typeOf(dtype: Dtype): string | undefined
  /** Runs a kernel, and one that has a reference. */
  readonly primitives: readonly [Apply<CallParams>, Apply<CallParams>]
}
type CallParams = ParamsOf<{ kernel: "program" }>

/** The primitives of a dialect, by their names. */
export function kernelPrimitives(
  language: Dialect["language"],
  names: readonly [string, string],
): Dialect["primitives"] {
  return [
    definePrimitive({
      name: names[0],
      params: { kernel: "program" },
      facts: { opaque: true },
      infer: (_inputs, { kernel }) => (kernel as KernelCall).outputs,
      reference: (_inputs, _outputs, { kernel }) => {
        const { spec } = kernel as KernelCall
        throw new DeviceError(
          spec.name,
          `is a ${language} kernel and runs on the GPU only, by the ${language} backend`,
          {
            hint: "Give it a reference in ordinary operations",
          },
        )
      },
    }),
    definePrimitive({
      name: names[1],
      params: { kernel: "program" },
      infer: (_inputs, { kernel }) => (kernel as KernelCall).outputs,
      decompose: (inputs, { kernel }) => referenceOf(kernel as KernelCall, inputs),
    }),
  ]
}

const metal: Dialect = {
  language: "Metal",
  op: "metalKernel",
  options: ["atomicOutputs", "compileOptions"],
  optionsOf: ({ atomicOutputs = false, compileOptions }) => {
    if (typeof atomicOutputs !== "boolean")
      throw new ArgumentError(
        "metalKernel",
        `atomicOutputs must be a boolean, received ${describe(atomicOutputs)}`,
      )
    return { atomicOutputs, mathMode: mathModeOf(compileOptions) }
  },
  typeOf: customType,
  primitives: kernelPrimitives("Metal", [METAL_KERNEL, REFERENCED_KERNEL]),
}

/** Makes kernels for `mx.fast.metalKernel`, whose documentation in core holds here too. */
export const metalKernel = (options: MetalKernelOptions): MetalKernel => userKernel(metal, options)

/** The results of a kernel's reference, in the order of its outputs. @throws ArgumentError, ShapeError, DTypeError */
function referenceOf({ spec, reference, template, outputs }: KernelCall, inputs: readonly Array[]): Array[] {
  const { name, inputNames, outputNames } = spec
  const op = `${name}.reference`
  const made = (reference as NonNullable<KernelCall["reference"]>)(
    Object.fromEntries(inputs.map((input, i) => [inputNames[i], input])),
    {
      template: Object.fromEntries(template),
      outputs: Object.fromEntries(outputs.map((output, i) => [outputNames[i], output])),
    },
  )
  const list: unknown =
    made instanceof Array ? [made] : isPlainObject(made) ? outputNames.map((key) => made[key]) : made
  if (!isList(list) || list.length !== outputs.length || !list.every((y) => y instanceof Array))
    throw new ArgumentError(op, `must give ${outputNames.join(", ")}, received ${describe(made)}`)
  return (list as Array[]).map((y, i) => {
    const { shape, dtype } = outputs[i]
    if (y.dtype !== dtype)
      throw new DTypeError(op, `"${outputNames[i]}" must be ${dtype.name}, received ${y.dtype.name}`)
    if (!sameShape(y.shape, shape))
      throw new ShapeError(
        op,
        `"${outputNames[i]}" must have shape ${format(shape)}, received ${format(y.shape)}`,
      )
    return y
  })
}

/** Makes kernels of a dialect. @throws ArgumentError for names and options that cannot be */
export function userKernel(dialect: Dialect, options: MetalKernelOptions & CudaKernelOptions): MetalKernel {
  const given = checkSpec(dialect, options)
  const [apply, applyReferenced] = dialect.primitives
  /** By the names of inputs and outputs, which calls may bring. */
  const specs = new Map<string, { spec: KernelSpec; specId: number }>()
  const specFor = (call: MetalKernelCall): { spec: KernelSpec; specId: number } => {
    const inputNames = given.inputNames ?? namesOf(given.name, "inputs", call.inputs)
    const outputNames = given.outputNames ?? namesOf(given.name, "outputShapes", call.outputShapes)
    const { ensureRowContiguous = given.ensureRowContiguous } = call
    if (typeof ensureRowContiguous !== "boolean")
      throw new ArgumentError(
        given.name,
        `ensureRowContiguous must be a boolean, received ${describe(ensureRowContiguous)}`,
      )
    const key = JSON.stringify([inputNames, outputNames, ensureRowContiguous])
    const known = specs.get(key)
    if (known) return known
    checkNames(given.name, dialect.language, inputNames, outputNames)
    const made = { spec: { ...given, inputNames, outputNames, ensureRowContiguous }, specId: newSpecId() }
    specs.set(key, made)
    return made
  }
  const kernelOf = (call: MetalKernelCall): Array[] | Record<string, Array> => {
    checkKeys(given.name, call, CALL)
    const { spec, specId } = specFor(call)
    const inputs = inputsOf(dialect, spec, call)
    const kernel = { ...checkCall(dialect, spec, specId, call), reference: options.reference ?? undefined }
    const outputs = kernel.reference
      ? onStream(call.stream ?? null, () => applyReferenced.all(inputs, { kernel }))
      : onStream(gpuStream(dialect, spec.name, call.stream ?? null), () => apply.all(inputs, { kernel }))
    if (isList(call.outputShapes)) return outputs
    return Object.fromEntries(outputs.map((output, i) => [spec.outputNames[i], output]))
  }
  return kernelOf as MetalKernel
}

/** The keys of a call's inputs or outputs, where the kernel names none. @throws ArgumentError for a list */
function namesOf(op: string, what: string, given: unknown): readonly string[] {
  if (isPlainObject(given)) return Object.keys(given)
  throw new ArgumentError(
    op,
    `${what} must be an object keyed by name, because the kernel names none, received ${describe(given)}`,
  )
}

/** Values in the order of names: as they are in a list, or by their keys. @throws ArgumentError for other keys */
function inOrder(op: string, what: string, given: unknown, names: readonly string[]): unknown {
  if (!isPlainObject(given)) return given
  const keys = Object.keys(given)
  const wrong = keys.find((key) => !names.includes(key)) ?? names.find((name) => !keys.includes(name))
  if (wrong !== undefined)
    throw new ArgumentError(
      op,
      keys.includes(wrong)
        ? `${what} has no "${wrong}"; the names are ${names.join(", ")}`
        : `${what} needs "${wrong}", received ${keys.join(", ") || "nothing"}`,
    )
  return names.map((name) => given[name])
}

const OPTIONS = ["name", "inputNames", "outputNames", "source", "header", "ensureRowContiguous"]
const CALL = [
  ...["inputs", "template", "grid", "threadgroup", "outputShapes", "outputDtypes"],
  ...["initValue", "ensureRowContiguous", "verbose", "stream"],
]

/** The dtypes that Metal has atomics of. */
const ATOMIC: readonly string[] = ["bool_", "int32", "uint32", "uint64", "float32"]

/** @throws ArgumentError for what is no object, and for keys that nobody reads */
function checkKeys(op: string, given: unknown, known: readonly string[]): void {
  if (!isPlainObject(given))
    throw new ArgumentError(op, `takes an object with ${known.join(", ")}, received ${describe(given)}`)
  checkOptions(op, given, known)
}

/** A kernel before its calls name what it did not. */
type GivenSpec = Omit<KernelSpec, "inputNames" | "outputNames"> & {
  readonly inputNames?: readonly string[]
  readonly outputNames?: readonly string[]
}

function checkSpec(dialect: Dialect, options: MetalKernelOptions & CudaKernelOptions): GivenSpec {
  const { op } = dialect
  checkKeys(op, options, [...OPTIONS, ...dialect.options, "reference"])
  const { name, inputNames, outputNames, source } = options
  const header = options.header ?? ""
  checkName(op, dialect.language, "name", name, new Set())
  for (const [what, text] of Object.entries({ source, header }))
    if (typeof text !== "string")
      throw new ArgumentError(op, `${what} must be a string, received ${describe(text)}`)
  // Where calls bring the others, these are checked with them.
  checkNames(op, dialect.language, inputNames ?? [], outputNames ?? ["out"])
  const { ensureRowContiguous = true, reference } = options
  if (reference !== undefined && reference !== null && typeof reference !== "function")
    throw new ArgumentError(op, `reference must be a function, received ${describe(reference)}`)
  if (typeof ensureRowContiguous !== "boolean")
    throw new ArgumentError(
      op,
      `ensureRowContiguous must be a boolean, received ${describe(ensureRowContiguous)}`,
    )
  return {
    name,
    inputNames: inputNames && [...inputNames],
    outputNames: outputNames && [...outputNames],
    source,
    header,
    ensureRowContiguous,
    atomicOutputs: false,
    scalarReferences: true,
    scalarNames: [],
    ...dialect.optionsOf(options),
  }
}

const MATH_MODES: readonly unknown[] = ["safe", "relaxed", "fast"]

function mathModeOf(options: MetalKernelOptions["compileOptions"]): KernelSpec["mathMode"] {
  const op = "metalKernel"
  if (options === undefined || options === null) return undefined
  if (!isPlainObject(options))
    throw new ArgumentError(op, `compileOptions must be an object, received ${describe(options)}`)
  checkOptions(op, options, ["mathMode"])
  const { mathMode } = options
  if (mathMode !== undefined && !MATH_MODES.includes(mathMode))
    throw new ArgumentError(
      op,
      `mathMode of compileOptions must be ${MATH_MODES.join(", ")}, received ${describe(mathMode)}`,
    )
  return mathMode as KernelSpec["mathMode"]
}

function asInput(dialect: Dialect, spec: KernelSpec, input: unknown, i: number): Array {
  if (input instanceof Array) {
    if (!dialect.typeOf(input.dtype))
      throw new DTypeError(
        spec.name,
        `${dialect.language} has no ${input.dtype.name}, the dtype of "${spec.inputNames[i]}"`,
        { hint: 'Convert it, for instance by astype("float32")' },
      )
    return input
  }
  if (typeof input === "number") return scalarArray(input, float32)
  if (typeof input === "boolean") return scalarArray(input, bool_)
  if (typeof input === "bigint") return scalarArray(input, int64)
  throw new ArgumentError(
    spec.name,
    `the input "${spec.inputNames[i]}" must be an array or a scalar, received ${describe(input)}`,
  )
}

function inputsOf(dialect: Dialect, spec: KernelSpec, call: MetalKernelCall): Array[] {
  const { name, inputNames } = spec
  const inputs = inOrder(name, "inputs", call.inputs, inputNames)
  if (!isList(inputs) || inputs.length !== inputNames.length)
    throw new ArgumentError(
      name,
      `takes ${inputNames.length} inputs (${inputNames.join(", ")}), received ${isList(inputs) ? inputs.length : describe(inputs)}`,
    )
  return inputs.map((input, i) => asInput(dialect, spec, input, i))
}

function outputsOf(dialect: Dialect, spec: KernelSpec, call: MetalKernelCall): KernelCall["outputs"] {
  const { name, outputNames } = spec
  const outputShapes = inOrder(name, "outputShapes", call.outputShapes, outputNames)
  const outputDtypes = inOrder(name, "outputDtypes", call.outputDtypes, outputNames)
  const count = (list: unknown): number => (isList(list) ? list.length : 0)
  if (
    !isList(outputShapes) ||
    !isList(outputDtypes) ||
    outputShapes.length !== outputNames.length ||
    outputDtypes.length !== outputNames.length
  )
    throw new ShapeError(
      name,
      `needs a shape and a dtype for each of its outputs (${outputNames.join(", ")}), received ${count(outputShapes)} shapes and ${count(outputDtypes)} dtypes`,
    )
  return (outputShapes as readonly (readonly number[])[]).map((shape, i) => {
    const dtype = outputDtypes[i]
    if (!isDtype(dtype))
      throw new DTypeError(name, `the output "${outputNames[i]}" needs a dtype, received ${describe(dtype)}`)
    if (!dialect.typeOf(dtype))
      throw new DTypeError(
        name,
        `${dialect.language} has no ${dtype.name}, the dtype of the output "${outputNames[i]}"`,
      )
    if (spec.atomicOutputs && !ATOMIC.includes(dtype.name))
      throw new DTypeError(
        name,
        `atomic outputs can be ${ATOMIC.join(", ")}, and "${outputNames[i]}" is ${dtype.name}`,
      )
    if (!isList(shape) || !shape.every((n) => Number.isInteger(n) && n >= 0))
      throw new ShapeError(
        name,
        `the shape of "${outputNames[i]}" must be a list of non-negative integers, received ${listed(shape)}`,
      )
    if (!Number.isSafeInteger(sizeOf(shape) * dtype.size))
      throw new ShapeError(
        name,
        `the output "${outputNames[i]}" of shape ${format(shape)} has too many elements`,
      )
    return { shape: [...shape], dtype }
  })
}

function templateOf(
  dialect: Dialect,
  spec: KernelSpec,
  given: MetalKernelCall["template"],
): KernelCall["template"] {
  const { name } = spec
  const pairs = given ?? {}
  if (!isList(pairs) && !isPlainObject(pairs))
    throw new ArgumentError(
      name,
      `template must be an object or a list of pairs, received ${describe(pairs)}`,
    )
  const template = isList(pairs)
    ? (pairs as readonly (readonly [string, TemplateValue])[])
    : Object.entries(pairs as Record<string, TemplateValue>)
  const taken = new Set([...spec.inputNames, ...spec.outputNames])
  for (const pair of template) {
    if (!isList(pair) || pair.length !== 2)
      throw new ArgumentError(
        name,
        `template must hold pairs of a name and a value, received ${listed(pair)}`,
      )
    const [key, value] = pair
    checkName(name, dialect.language, "a template parameter", key, taken)
    if (isDtype(value)) {
      if (!dialect.typeOf(value))
        throw new DTypeError(
          name,
          `${dialect.language} has no ${value.name}, the value of the template parameter "${key}"`,
        )
    } else if (typeof value !== "boolean" && !(Number.isInteger(value) && value === (value | 0)))
      throw new ArgumentError(
        name,
        `the template parameter "${key}" must be a dtype, a 32-bit integer or a boolean, received ${describe(value)}`,
      )
  }
  return template.map(([key, value]) => [key, value])
}

function checkCall(dialect: Dialect, spec: KernelSpec, specId: number, call: MetalKernelCall): KernelCall {
  const { name } = spec
  const { initValue = null, verbose = false } = call
  const outputs = outputsOf(dialect, spec, call)
  const template = templateOf(dialect, spec, call.template)
  const grid = gridSize(name, call.grid)
  const threadgroup = groupSize(name, call.threadgroup)
  if (initValue !== null && typeof initValue !== "number")
    throw new ArgumentError(name, `initValue must be a number, received ${describe(initValue)}`)
  const values = template.map(([k, v]) => `${k}=${isDtype(v) ? v.name : v}`)
  const key = JSON.stringify([
    ...[specId, values, grid, threadgroup, String(initValue), verbose],
    outputs.map((o) => [o.shape, o.dtype.name]),
  ])
  return { key, spec, specId, template, scalars: [], grid, threadgroup, outputs, initValue, verbose }
}

/** The stream asked for; without one the GPU's, whatever the default device is. @throws DeviceError for the CPU */
function gpuStream({ language }: Dialect, op: string, stream: StreamLike): StreamLike {
  if (stream === null) return currentStream().device.type === "gpu" ? null : "gpu"
  const type =
    typeof stream === "string" ? stream : stream instanceof Device ? stream.type : stream.device.type
  if (type === "gpu") return stream
  throw new DeviceError(op, `is a ${language} kernel and runs on the GPU only, received a stream of the CPU`)
}
