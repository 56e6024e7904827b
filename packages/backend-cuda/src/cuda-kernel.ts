/**
 * `cudaKernel`: kernels that users write in CUDA C++, as primitives of the graph: MLX's `mx.fast.cuda_kernel`.
 */
import {
  ArgumentError,
  type CudaKernel,
  type CudaKernelOptions,
  contiguousStrides,
  type Dtype,
  describe,
  isDtype,
  type Node,
  type Storage,
} from "@lazuli/core/engine"
import {
  type Argument,
  type Dialect,
  type DispatchQueue,
  encodeFill,
  type Families,
  type Family,
  type KernelCall,
  kernelPrimitives,
  userKernel,
  withInputs,
} from "@lazuli/gpu-kernels"

const CUDA_KERNEL = "@lazuli/backend-cuda/cudaKernel"
const REFERENCED = "@lazuli/backend-cuda/referencedKernel"
/** Axes of an argument whose sizes and strides a kernel can have; prelude/cuda/kernel.h has the same. */
export const MAX_AXES = 10

const TYPES: Readonly<Record<string, string>> = {
  bool_: "bool",
  uint8: "uint8_t",
  uint16: "uint16_t",
  uint32: "uint32_t",
  uint64: "uint64_t",
  int8: "int8_t",
  int16: "int16_t",
  int32: "int32_t",
  int64: "int64_t",
  float16: "__half",
  bfloat16: "__nv_bfloat16",
  float32: "float",
  float64: "double",
  complex64: "complex64_t",
}
const typeOf = (dtype: Dtype): string | undefined => TYPES[dtype.name]

const dialect: Dialect = {
  language: "CUDA",
  op: "cudaKernel",
  options: ["sharedMemory"],
  optionsOf: ({ sharedMemory = 0 }) => {
    if (!Number.isInteger(sharedMemory) || sharedMemory < 0)
      throw new ArgumentError(
        "cudaKernel",
        `sharedMemory must be a number of bytes, received ${describe(sharedMemory)}`,
      )
    return { sharedMemory }
  },
  typeOf,
  primitives: kernelPrimitives("CUDA", [CUDA_KERNEL, REFERENCED]),
}

/** Makes kernels for `mx.fast.cudaKernel`, whose documentation in core holds here too. */
export const cudaKernel = (options: CudaKernelOptions): CudaKernel => userKernel(dialect, options)

/** An input's parameters besides its elements. */
const EXTRAS = ["shape", "strides", "ndim"] as const
type Extra = (typeof EXTRAS)[number]
const DECLARED: Readonly<Record<Extra, string>> = {
  shape: "const __grid_constant__ Shape",
  strides: "const __grid_constant__ Strides",
  ndim: "const __grid_constant__ int",
}

const mentions = (text: string, word: string): boolean => new RegExp(`\\b${word}\\b`).test(text)

/** Sizes filled up to as many as the kernel's type holds. */
export function filled(values: readonly number[]): number[] {
  return [...values, ...new Array<number>(MAX_AXES - values.length).fill(0)]
}

/** The whole source, and what inputs bring, in order. */
function sourceOf(
  { spec, template, threadgroup }: KernelCall,
  inputs: readonly Node[],
  outputs: readonly Node[],
): { text: string; extras: readonly (readonly Extra[])[] } {
  const { name, inputNames, outputNames, header, source } = spec
  const extras = inputs.map(({ shape }, i) =>
    shape.length === 0 ? [] : EXTRAS.filter((extra) => mentions(source, `${inputNames[i]}_${extra}`)),
  )
  const parameters = [
    ...inputs.flatMap(({ dtype }, i) => [
      `const ${typeOf(dtype)}* ${inputNames[i]}`,
      ...extras[i].map((extra) => `${DECLARED[extra]} ${inputNames[i]}_${extra}`),
    ]),
    ...outputs.map(({ dtype }, i) => `${typeOf(dtype)}* ${outputNames[i]}`),
  ]
  const constants = template.map(([key, value]) =>
    isDtype(value)
      ? `using ${key} = ${typeOf(value)};`
      : `constexpr ${typeof value === "boolean" ? "bool" : "int"} ${key} = ${value};`,
  )
  const threads = threadgroup[0] * threadgroup[1] * threadgroup[2]
  const text = `#define LZ_KERNELS
#include "lazuli_kernel.h"
#line 1 "header"
${header}
#line 1 "signature"
extern "C" __global__ void __launch_bounds__(${threads}) ${name}(${parameters.join(", ")}) {
${constants.join(" ")}
#line 1 "source"
${source}
}
`
  return { text, extras }
}

function encode(node: Node, queue: DispatchQueue): void {
  const call = node.params.kernel as KernelCall
  const { spec, specId, grid, threadgroup } = call
  const outputs = node.outputs ?? [node]
  const { inputs } = node
  for (const [i, { shape }] of inputs.entries())
    if (
      shape.length > MAX_AXES &&
      EXTRAS.some((extra) => mentions(spec.source, `${spec.inputNames[i]}_${extra}`))
    )
      throw new ArgumentError(
        spec.name,
        `"${spec.inputNames[i]}" has ${shape.length} dimensions, but the layout is available for at most ${MAX_AXES}`,
      )
  const { text, extras } = sourceOf(call, inputs, outputs)
  if (call.verbose) console.log(`Source of ${spec.name}:\n${text}`)
  if (call.initValue !== null) for (const output of outputs) encodeFill(queue, output, call.initValue)
  if (grid.includes(0)) return
  withInputs(queue, inputs, spec.ensureRowContiguous, (locations) => {
    const brought: Record<Extra, (input: Node) => ArrayBufferView> = {
      shape: ({ shape }) => Int32Array.from(filled(shape)),
      strides: ({ shape, strides }) =>
        BigInt64Array.from(
          filled(spec.ensureRowContiguous || !strides ? contiguousStrides(shape) : strides),
          BigInt,
        ),
      ndim: ({ shape }) => Int32Array.of(shape.length),
    }
    const args: Argument[] = [
      ...inputs.flatMap((input, i) => [locations[i], ...extras[i].map((extra) => brought[extra](input))]),
      ...outputs.map(({ storage, offset, dtype }) => ({
        storage: storage as Storage,
        offset: offset * dtype.size,
      })),
    ]
    queue.dispatch({
      op: spec.name,
      kernel: {
        key: `cuda ${specId} ${text}`,
        name: spec.name,
        source: () => text,
        wording: {
          name: spec.name,
          location: (line) => `line ${line}`,
          buffer: (index) => `parameter ${index}`,
        },
        isNative: true,
      },
      arguments: args,
      writes: outputs.map(({ storage }) => storage as Storage),
      grid,
      threadgroup,
      threadgroupMemory: spec.sharedMemory ? [spec.sharedMemory] : undefined,
    })
  })
}

const family: Family = { supports: () => true, isOnce: () => true, encode }
/** The users' kernels, by primitive. */
export const userKernels: Families = { [CUDA_KERNEL]: family, [REFERENCED]: family }
