/**
 * The source of a kernel that a user wrote the body of: what goes before the body, and the signature that follows from the arguments.
 * By MLX's rules, so that bodies written for it compile here: https://ml-explore.github.io/mlx/build/html/dev/custom_metal_kernels.html
 */
import { ArgumentError, complex64, type Dtype, isDtype, type TemplateValue } from "@lazuli/core/engine"
import { customSupport } from "./custom-support"
import type { MathMode } from "./dispatch"
import { METAL_HEADER, metalType } from "./metal-types"
import { MAX_BUFFER_INDEX } from "./msl/lint"

/** The definition of a kernel; the same for all of its calls. */
export interface KernelSpec {
  readonly name: string
  readonly inputNames: readonly string[]
  readonly outputNames: readonly string[]
  readonly source: string
  readonly header: string
  readonly ensureRowContiguous: boolean
  readonly atomicOutputs: boolean
  readonly mathMode?: MathMode
  /** Inputs without axes are references to constants, as in MLX; otherwise they are pointers to memory of the device like all others. */
  readonly scalarReferences: boolean
  /** Numbers that the body knows by these names, as `constant float&`. */
  readonly scalarNames: readonly string[]
  /** Bytes of dynamic shared memory, in CUDA. */
  readonly sharedMemory?: number
}

/** One parameter that takes the location, shape, strides or rank of an input. */
export interface InputParameter {
  readonly input: number
  readonly what: "data" | "shape" | "strides" | "ndim"
}

/** A generated source: the kernel's name, its text, and what its buffers are, before the scalars and the outputs. */
export interface CustomSource {
  readonly kernel: string
  readonly text: string
  readonly parameters: readonly InputParameter[]
  /** The names of its buffers, by index. */
  readonly buffers: readonly string[]
  /** The name of a line of the text in messages to the author. */
  location(line: number): string
}

/** Attributes that a body may name, with their types. */
export const attributes: Record<string, string> = {
  dispatch_quadgroups_per_threadgroup: "uint",
  dispatch_simdgroups_per_threadgroup: "uint",
  dispatch_threads_per_threadgroup: "uint3",
  grid_origin: "uint3",
  grid_size: "uint3",
  quadgroup_index_in_threadgroup: "uint",
  quadgroups_per_threadgroup: "uint",
  simdgroup_index_in_threadgroup: "uint",
  simdgroups_per_threadgroup: "uint",
  thread_execution_width: "uint",
  thread_index_in_quadgroup: "uint",
  thread_index_in_simdgroup: "uint",
  thread_index_in_threadgroup: "uint",
  thread_position_in_grid: "uint3",
  thread_position_in_threadgroup: "uint3",
  threadgroup_position_in_grid: "uint3",
  threadgroups_per_grid: "uint3",
  threads_per_grid: "uint3",
  threads_per_simdgroup: "uint",
  threads_per_threadgroup: "uint3",
}

const shortNames: Record<string, string> = { half: "float16_t", bfloat: "bfloat16_t" }

/** The type's name in generated signatures; undefined where Metal has none. */
export function customType(dtype: Dtype): string | undefined {
  if (dtype === complex64) return "complex64_t"
  const type = metalType(dtype)
  return type && (shortNames[type] ?? type)
}

const mentions = (text: string, word: string): boolean => new RegExp(`\\b${word}\\b`).test(text)

/** The properties of the inputs that the generated source depends on. */
export interface InputMeta {
  readonly shape: readonly number[]
  readonly dtype: Dtype
}

const isScalar = ({ shape }: InputMeta, spec: KernelSpec): boolean =>
  spec.scalarReferences && shape.length === 0

/** A string that is equal where the generated source is. */
export function customKey(
  spec: KernelSpec,
  inputs: readonly InputMeta[],
  outputs: readonly Dtype[],
  template: readonly (readonly [string, TemplateValue])[],
): string {
  const classes = inputs.map((input) => `${input.dtype.name}${isScalar(input, spec) ? "s" : ""}`)
  const values = template.map(([name, value]) => `${name}-${valueName(value)}`)
  return [spec.name, ...classes, ...outputs.map((d) => d.name), ...values].join("_")
}

const isType = (value: TemplateValue): value is Dtype => isDtype(value)
const valueName = (value: TemplateValue): string => (isType(value) ? value.name : String(value))

/** The whole source for these arguments. */
export function customSource(
  spec: KernelSpec,
  inputs: readonly InputMeta[],
  outputs: readonly Dtype[],
  template: readonly (readonly [string, TemplateValue])[],
): CustomSource {
  const { source, inputNames, outputNames } = spec
  const parameters: InputParameter[] = []
  const names: string[] = []
  const signature: string[] = []
  inputs.forEach((meta, input) => {
    const { shape, dtype } = meta
    const name = inputNames[input]
    const add = (what: InputParameter["what"], text: string): void => {
      names.push(what === "data" ? name : `${name}_${what}`)
      signature.push(`const ${text} [[buffer(${parameters.length})]]`)
      parameters.push({ input, what })
    }
    const type = customType(dtype)
    add("data", isScalar(meta, spec) ? `constant ${type}& ${name}` : `device ${type}* ${name}`)
    if (shape.length > 0 && mentions(source, `${name}_shape`)) add("shape", `constant int* ${name}_shape`)
    if (shape.length > 0 && mentions(source, `${name}_strides`))
      add("strides", `constant int64_t* ${name}_strides`)
    if (mentions(source, `${name}_ndim`)) add("ndim", `constant int& ${name}_ndim`)
  })
  let index = parameters.length
  for (const name of spec.scalarNames) signature.push(`constant float& ${name} [[buffer(${index++})]]`)
  outputs.forEach((dtype, k) => {
    const type = customType(dtype)
    signature.push(
      `device ${spec.atomicOutputs ? `atomic<${type}>` : type}* ${outputNames[k]} [[buffer(${index + k})]]`,
    )
  })
  for (const [name, type] of Object.entries(attributes))
    if (mentions(source, name)) signature.push(`${type} ${name} [[${name}]]`)

  const kernel = `custom_kernel_${customKey(spec, inputs, outputs, template).replace(/\W/g, "_")}`
  const declared = template.map(([name, value]) =>
    isType(value) ? `typename ${name}` : `${typeof value === "boolean" ? "bool" : "int"} ${name}`,
  )
  const given = template.map(([, value]) => (isType(value) ? customType(value) : String(value)))
  const head = template.length > 0 ? `template <${declared.join(", ")}>\n` : ""
  const tail =
    template.length > 0
      ? `template [[host_name("${kernel}")]] [[kernel]] decltype(${kernel}<${given.join(", ")}>) ${kernel}<${given.join(", ")}>;\n`
      : ""
  const buffers = index + outputs.length
  if (buffers > MAX_BUFFER_INDEX + 1)
    throw new ArgumentError(
      spec.name,
      `needs ${buffers} buffers for its inputs, what it asks of their layouts, and its outputs, and Metal has ${MAX_BUFFER_INDEX + 1}`,
    )
  const support = `${METAL_HEADER}${customSupport(`${spec.header}\n${signature}\n${given}\n${source}`)}`
  const opening = `${support}${spec.header}
${head}[[kernel]] void ${kernel}(
    ${signature.join(",\n    ")}) {
`
  const text = `${opening}${source}
}
${tail}`
  const parts = [
    { what: "source", before: newlines(opening), count: newlines(source) + 1 },
    { what: "header", before: newlines(support), count: newlines(spec.header) + 1 },
  ]
  const location = (line: number): string => {
    const part = parts.find(({ before, count }) => line > before && line <= before + count)
    return part ? `line ${line - part.before} of the ${part.what}` : `line ${line} of the generated text`
  }
  return { kernel, text, parameters, buffers: [...names, ...spec.scalarNames, ...outputNames], location }
}

const newlines = (text: string): number => text.split("\n").length - 1
