/**
 * Kernels that packages bring for their primitives, in whatever language they are: families of them, and the memory that their launches
 * know by names.
 */
import { existsSync } from "node:fs"
import { fileURLToPath } from "node:url"
import {
  ArgumentError,
  describe,
  type GpuKernel,
  isPlainObject,
  type KernelSteps,
  type Node,
  type Storage,
} from "@lazuli/core/engine"
import type { DispatchQueue, Location } from "../dispatch"
import type { Families, Family } from "../family"
import type { Language } from "../kernel-names"
import { encodeFill, withInputs } from "./custom"

/** The families of an offer's kernels, by primitive. @throws ArgumentError unless there are kernels by primitive */
export function offeredFamilies<Kernel>(
  from: string,
  kernels: Readonly<Record<string, Kernel>>,
  familyFor: (primitive: string, kernel: Kernel) => Family,
): Families {
  if (!isPlainObject(kernels))
    throw new ArgumentError(
      from,
      `kernels must be an object keyed by primitive names, received ${describe(kernels)}`,
    )
  return Object.fromEntries(
    Object.entries(kernels).map(([primitive, kernel]) => [primitive, familyFor(primitive, kernel as Kernel)]),
  )
}

/** The path of an offer's file of kernels. @throws ArgumentError where there is no such file */
export function offeredPath(from: string, language: Language, library: unknown): string {
  if (typeof library !== "string" && !(library instanceof URL))
    throw new ArgumentError(
      from,
      `library must be the path or the URL of a ${language === "CUDA" ? ".cu" : ".metal"} file, received ${describe(library)}`,
    )
  const path = library instanceof URL ? fileURLToPath(library) : library
  if (existsSync(path)) return path
  throw new ArgumentError(from, `there is no ${language} library ${path}`, {
    hint: 'A package publishes it by naming its folder in "files" of package.json; a bundle leaves packages with kernels outside ("external")',
  })
}

/** The family of a kernel, whose launches `encode` adds. */
export function offeredFamily<Launch>(
  primitive: string,
  language: Language,
  kernel: GpuKernel<Launch>,
  encode: (node: Node, queue: DispatchQueue, launch: Launch | null) => void,
): Family {
  const { inputNames, outputNames } = kernel
  const launchOf = (node: Node): Launch | null =>
    kernel.launch({ primitive, inputs: node.inputs, outputs: node.outputs ?? [node], params: node.params })
  return {
    supports: (node) => launchOf(node) !== null,
    // Its author is asked each time.
    isOnce: () => true,
    encode(node, queue) {
      const [inputs, outputs] = [node.inputs.length, node.outputs?.length ?? 1]
      if (inputs !== inputNames.length || outputs !== outputNames.length)
        throw new ArgumentError(
          primitive,
          `its ${language} kernel names ${inputNames.length} inputs and ${outputNames.length} outputs, but the primitive has ${inputs} and ${outputs}`,
        )
      encode(node, queue, launchOf(node))
    },
  }
}

/** Runs `body` with the memory of operands and of the steps' scratch memory, by name. Scratch memory lives until it returns. */
export function withOperands<Dispatch>(
  op: string,
  kernel: GpuKernel<KernelSteps<Dispatch>>,
  node: Node,
  queue: DispatchQueue,
  { scratch = {}, initValue }: KernelSteps<Dispatch>,
  body: (named: ReadonlyMap<string, Location>) => void,
): void {
  const outputs = node.outputs ?? [node]
  const named = new Map<string, Location>()
  outputs.forEach(({ storage, offset, dtype }, i) => {
    named.set(kernel.outputNames[i], { storage: storage as Storage, offset: offset * dtype.size })
  })
  if (initValue !== undefined && initValue !== null)
    for (const output of outputs) encodeFill(queue, output, initValue)
  withInputs(queue, node.inputs, kernel.ensureRowContiguous ?? true, (locations) => {
    locations.forEach((location, i) => {
      named.set(kernel.inputNames[i], location)
    })
    const lent: Storage[] = []
    try {
      for (const [name, bytes] of Object.entries(scratch)) {
        if (!(Number.isSafeInteger(bytes) && bytes >= 0))
          throw new ArgumentError(
            op,
            `scratch memory needs a number of bytes, received ${describe(bytes)} for "${name}"`,
          )
        if (named.has(name))
          throw new ArgumentError(op, `scratch memory cannot be called "${name}": an operand has that name`)
        const storage = queue.allocate(bytes)
        lent.push(storage)
        named.set(name, { storage, offset: 0 })
      }
      body(named)
    } finally {
      for (const storage of lent) storage.drop()
    }
  })
}
