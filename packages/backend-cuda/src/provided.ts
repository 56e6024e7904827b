/**
 * Kernels in CUDA C++ that packages bring for their primitives, in whole `.cu` files.
 */
import { createHash } from "node:crypto"
import { existsSync, readFileSync } from "node:fs"
import { basename } from "node:path"
import { fileURLToPath } from "node:url"
import {
  type ApplicationMeta,
  ArgumentError,
  type CudaArgument,
  type CudaFileKernel,
  type CudaKernels,
  type CudaSteps,
  contiguousStrides,
  describe,
  isPlainObject,
  type Node,
  type Storage,
} from "@lazuli/core/engine"
import {
  type Argument,
  type DispatchQueue,
  encodeFill,
  type Families,
  type Family,
  gridSize,
  groupSize,
  withInputs,
} from "@lazuli/gpu-kernels"
import { filled } from "./cuda-kernel"

/** A file, read when a kernel of it is first needed. */
interface CudaFile {
  readonly name: string
  read(): { text: string; digest: string }
}

/** @throws ArgumentError where there is no such file */
function fileOf(from: string, library: unknown): CudaFile {
  if (typeof library !== "string" && !(library instanceof URL))
    throw new ArgumentError(
      from,
      `library must be the path or the URL of a .cu file, received ${describe(library)}`,
    )
  const path = library instanceof URL ? fileURLToPath(library) : library
  if (!existsSync(path))
    throw new ArgumentError(from, `there is no CUDA library ${path}`, {
      hint: 'A package publishes it by naming its folder in "files" of package.json',
    })
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
  if (!isPlainObject(kernels))
    throw new ArgumentError(
      from,
      `kernels must be an object keyed by primitive names, received ${describe(kernels)}`,
    )
  const file = fileOf(from, library)
  return Object.fromEntries(
    Object.entries(kernels).map(([primitive, kernel]) => {
      const isKernel =
        isPlainObject(kernel) &&
        typeof kernel.launch === "function" &&
        [kernel.inputNames, kernel.outputNames].every(Array.isArray)
      if (!isKernel)
        throw new ArgumentError(
          `${from}: ${primitive}`,
          `a CUDA kernel needs inputNames, outputNames and launch, received ${describe(kernel)}`,
        )
      return [primitive, familyFor(primitive, kernel, file)]
    }),
  )
}

function familyFor(primitive: string, kernel: CudaFileKernel, file: CudaFile): Family {
  const application = (node: Node): ApplicationMeta => ({
    primitive,
    inputs: node.inputs,
    outputs: node.outputs ?? [node],
    params: node.params,
  })
  return {
    supports: (node) => kernel.launch(application(node)) !== null,
    encode(node, queue) {
      const steps = kernel.launch(application(node))
      const counts = [node.inputs.length, node.outputs?.length ?? 1]
      if (counts[0] !== kernel.inputNames.length || counts[1] !== kernel.outputNames.length)
        throw new ArgumentError(
          primitive,
          `its CUDA kernel names ${kernel.inputNames.length} inputs and ${kernel.outputNames.length} outputs, but the primitive has ${counts.join(" and ")}`,
        )
      if (steps === null || !Array.isArray(steps.dispatches))
        throw new ArgumentError(
          primitive,
          `launch must give { dispatches: […] }, received ${describe(steps)}`,
        )
      encodeSteps(primitive, kernel, file, node, queue, steps)
    },
  }
}

function encodeSteps(
  op: string,
  { inputNames, outputNames, ensureRowContiguous = true }: CudaFileKernel,
  file: CudaFile,
  node: Node,
  queue: DispatchQueue,
  { dispatches, scratch = {}, initValue }: CudaSteps,
): void {
  const outputs = node.outputs ?? [node]
  const { text, digest } = file.read()
  const locations = new Map<string, { storage: Storage; offset: number }>()
  const written = new Map<string, Storage>()
  outputs.forEach(({ storage, offset, dtype }, i) => {
    locations.set(outputNames[i], { storage: storage as Storage, offset: offset * dtype.size })
    written.set(outputNames[i], storage as Storage)
  })
  if (initValue !== undefined && initValue !== null)
    for (const output of outputs) encodeFill(queue, output, initValue)
  withInputs(queue, node.inputs, ensureRowContiguous, (found) => {
    found.forEach((location, i) => {
      locations.set(inputNames[i], location)
    })
    const lent: Storage[] = []
    try {
      for (const [name, bytes] of Object.entries(scratch)) {
        if (!(Number.isSafeInteger(bytes) && bytes >= 0) || locations.has(name))
          throw new ArgumentError(
            op,
            `scratch memory needs a name of its own and a number of bytes, received ${describe(bytes)} for "${name}"`,
          )
        const storage = queue.allocate(bytes)
        lent.push(storage)
        locations.set(name, { storage, offset: 0 })
        written.set(name, storage)
      }
      for (const { kernel, arguments: given, grid, threadgroup, sharedMemory } of dispatches) {
        const threads = gridSize(op, grid)
        if (threads.includes(0)) continue
        const writes = given.flatMap((each) => {
          const name = typeof each === "string" ? each : "name" in each ? each.name : undefined
          const storage = name === undefined ? undefined : written.get(name)
          return storage ? [storage] : []
        })
        queue.dispatch({
          op,
          kernel: {
            key: `cuda file ${digest} ${kernel}`,
            name: kernel,
            source: () => text,
            // A source in CUDA is one kernel to the compiler, by this name.
            file: kernel,
            wording: {
              name: op,
              location: (line) => `${file.name}:${line}`,
              buffer: (_, index) => `parameter ${index}`,
              namesKernels: true,
            },
            isNative: true,
          },
          arguments: given.map((each) => argumentOf(each)),
          writes: [...new Set(writes)],
          grid: threads,
          threadgroup: groupSize(op, threadgroup),
          threadgroupMemory: sharedMemory ? [sharedMemory] : undefined,
        })
      }
    } finally {
      for (const storage of lent) storage.drop()
    }
  })

  function argumentOf(given: CudaArgument): Argument {
    if (ArrayBuffer.isView(given)) return given
    if (typeof given === "string" || "name" in given) {
      const name = typeof given === "string" ? given : given.name
      const location = locations.get(name)
      if (!location)
        throw new ArgumentError(op, `there is no "${name}"; there are ${[...locations.keys()].join(", ")}`)
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
