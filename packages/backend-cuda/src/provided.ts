/**
 * Kernels in CUDA C++ that packages bring for their primitives, in whole `.cu` files.
 */
import { createHash } from "node:crypto"
import { readFileSync } from "node:fs"
import { basename } from "node:path"
import {
  ArgumentError,
  type CudaArgument,
  type CudaFileKernel,
  type CudaKernels,
  type CudaSteps,
  contiguousStrides,
  describe,
  isPlainObject,
  type Node,
} from "@lazuli/core/engine"
import {
  type Argument,
  type DispatchQueue,
  type Families,
  gridSize,
  groupSize,
  type Location,
  offeredFamilies,
  offeredFamily,
  offeredPath,
  withOperands,
} from "@lazuli/gpu-kernels"
import { filled } from "./cuda-kernel"

/** A file, read when a kernel of it is first needed. */
interface CudaFile {
  readonly name: string
  read(): { text: string; digest: string }
}

/** @throws ArgumentError where there is no such file */
function fileOf(from: string, library: unknown): CudaFile {
  const path = offeredPath(from, "CUDA", library)
  const name = basename(path)
  let file: { text: string; digest: string } | undefined
  return {
    name,
    read() {
      if (file) return file
      const text = `#define LZ_KERNELS\n#include "lazuli_kernel.h"\n#line 1 ${JSON.stringify(name)}\n${readFileSync(path, "utf8")}`
      file = { text, digest: createHash("sha256").update(text).digest("hex") }
      return file
    },
  }
}

/** The kernels that a package brings. @throws ArgumentError for one that cannot be, naming the package */
export function providedKernels({ kernels, package: from, library }: CudaKernels): Families {
  const file = fileOf(from, library)
  return offeredFamilies(from, kernels, (primitive, kernel) => {
    const isKernel =
      isPlainObject(kernel) &&
      typeof kernel.launch === "function" &&
      [kernel.inputNames, kernel.outputNames].every(Array.isArray)
    if (!isKernel)
      throw new ArgumentError(
        `${from}: ${primitive}`,
        `a CUDA kernel needs inputNames, outputNames and launch, received ${describe(kernel)}`,
      )
    return offeredFamily(primitive, "CUDA", kernel, (node, queue, steps) => {
      if (steps === null || !Array.isArray(steps.dispatches))
        throw new ArgumentError(
          primitive,
          `launch must give { dispatches: […] }, received ${describe(steps)}`,
        )
      encodeSteps(primitive, kernel, file, node, queue, steps)
    })
  })
}

function encodeSteps(
  op: string,
  kernel: CudaFileKernel,
  file: CudaFile,
  node: Node,
  queue: DispatchQueue,
  steps: CudaSteps,
): void {
  const { inputNames, ensureRowContiguous = true } = kernel
  const { text, digest } = file.read()
  withOperands(op, kernel, node, queue, steps, (named) => {
    for (const { kernel: name, arguments: given, grid, threadgroup, sharedMemory } of steps.dispatches) {
      const threads = gridSize(op, grid)
      if (threads.includes(0)) continue
      const writes = given.flatMap((each) => {
        const operand = typeof each === "string" ? each : "name" in each ? each.name : undefined
        if (operand === undefined || inputNames.includes(operand)) return []
        return named.get(operand)?.storage ?? []
      })
      queue.dispatch({
        op,
        kernel: {
          key: `cuda file ${digest} ${name}`,
          name,
          source: () => text,
          // A source in CUDA is one kernel to the compiler, by this name.
          file: name,
          wording: {
            name: op,
            location: (line) => `${file.name}:${line}`,
            buffer: (_, index) => `parameter ${index}`,
            namesKernels: true,
          },
          isNative: true,
        },
        arguments: given.map((each) => argumentOf(each, named)),
        writes: [...new Set(writes)],
        grid: threads,
        threadgroup: groupSize(op, threadgroup),
        threadgroupMemory: sharedMemory ? [sharedMemory] : undefined,
      })
    }
  })

  function argumentOf(given: CudaArgument, named: ReadonlyMap<string, Location>): Argument {
    if (ArrayBuffer.isView(given)) return given
    if (typeof given === "string" || "name" in given) {
      const name = typeof given === "string" ? given : given.name
      const location = named.get(name)
      if (!location)
        throw new ArgumentError(op, `there is no "${name}"; there are ${[...named.keys()].join(", ")}`)
      return typeof given === "string" ? location : { ...location, offset: location.offset + given.offset }
    }
    const name = "shapeOf" in given ? given.shapeOf : given.stridesOf
    const input = node.inputs[inputNames.indexOf(name)]
    if (!input) throw new ArgumentError(op, `there is no input "${name}"; there are ${inputNames.join(", ")}`)
    if ("shapeOf" in given) return Int32Array.from(filled(input.shape))
    const strides = ensureRowContiguous || !input.strides ? contiguousStrides(input.shape) : input.strides
    return BigInt64Array.from(filled(strides), BigInt)
  }
}
