/**
 * Kernels that packages bring for their primitives: bodies of Metal functions, and whole `.metal` files.
 */
import {
  type ApplicationMeta,
  ArgumentError,
  describe,
  isPlainObject,
  type MetalKernelSource,
  type MetalKernels,
  type Node,
} from "@lazuli/core/engine"
import type { KernelSpec } from "../custom-source"
import type { Families, Family } from "../family"
import { checkNames } from "../kernel-names"
import { encodeLaunch, gridSize, groupSize, hasTypes, newSpecId } from "./custom"
import { fileKernel, libraryOf } from "./file-kernels"

/** The kernels that a package brings for its primitives. @throws ArgumentError for one that cannot be, naming the package */
export function providedKernels({ kernels, package: from, library }: MetalKernels): Families {
  if (!isPlainObject(kernels))
    throw new ArgumentError(
      from,
      `kernels must be an object keyed by primitive names, received ${describe(kernels)}`,
    )
  const file = library === undefined ? null : libraryOf(from, library)
  return Object.fromEntries(
    Object.entries(kernels).map(([primitive, kernel]) => {
      const op = `${from}: ${primitive}`
      const isObject = isPlainObject(kernel) && typeof kernel.launch === "function"
      if (!isObject || !(typeof kernel.source === "string" || kernel.source === undefined))
        throw new ArgumentError(op, `a Metal kernel needs a source and launch, received ${describe(kernel)}`)
      if (kernel.source === undefined && file === null)
        throw new ArgumentError(op, "a Metal kernel needs a source, or the offer a library: a .metal file")
      checkNames(op, "Metal", kernel.inputNames, kernel.outputNames)
      if (kernel.source === undefined)
        return [primitive, fileKernel(primitive, kernel, file as NonNullable<typeof file>)]
      return [primitive, providedKernel(primitive, kernel)]
    }),
  )
}

function providedKernel(primitive: string, kernel: MetalKernelSource): Family {
  const specs = new Map<string, { spec: KernelSpec; specId: number }>()
  const specFor = (scalarNames: readonly string[]): { spec: KernelSpec; specId: number } => {
    const key = scalarNames.join()
    const known = specs.get(key)
    if (known) return known
    const spec: KernelSpec = {
      name: primitive.slice(primitive.lastIndexOf("/") + 1),
      inputNames: kernel.inputNames,
      outputNames: kernel.outputNames,
      source: kernel.source,
      header: kernel.header ?? "",
      ensureRowContiguous: kernel.ensureRowContiguous ?? true,
      atomicOutputs: kernel.atomicOutputs ?? false,
      scalarReferences: false,
      scalarNames,
    }
    const made = { spec, specId: newSpecId() }
    specs.set(key, made)
    return made
  }
  const application = (node: Node): ApplicationMeta => ({
    primitive,
    inputs: node.inputs,
    outputs: node.outputs ?? [node],
    params: node.params,
  })
  return {
    supports: (node) => hasTypes(node) && kernel.launch(application(node)) !== null,
    encode(node, queue) {
      const counts = [node.inputs.length, node.outputs?.length ?? 1]
      if (counts[0] !== kernel.inputNames.length || counts[1] !== kernel.outputNames.length)
        throw new ArgumentError(
          primitive,
          `its Metal kernel names ${kernel.inputNames.length} inputs and ${kernel.outputNames.length} outputs, but the primitive has ${counts.join(" and ")}`,
        )
      const launch = kernel.launch(application(node))
      if (launch === null)
        throw new ArgumentError(primitive, "its kernel's launch gave null for a call that it had accepted")
      const scalars = launch.scalars ?? {}
      encodeLaunch(node, queue, {
        ...specFor(Object.keys(scalars)),
        template: Object.entries(launch.template ?? {}),
        scalars: Object.values(scalars),
        grid: gridSize(primitive, launch.grid),
        threadgroup: groupSize(primitive, launch.threadgroup),
        initValue: launch.initValue ?? null,
        verbose: false,
      })
    },
  }
}
