/**
 * Kernels that packages bring for their primitives: bodies of Metal functions, and whole `.metal` files.
 */
import {
  ArgumentError,
  describe,
  isPlainObject,
  type MetalKernelSource,
  type MetalKernels,
} from "@lazuli/core/engine"
import type { KernelSpec } from "../custom-source"
import type { Families, Family } from "../family"
import { checkNames } from "../kernel-names"
import { encodeLaunch, gridSize, groupSize, hasTypes, newSpecId } from "./custom"
import { fileKernel, libraryOf } from "./file-kernels"
import { offeredFamilies, offeredFamily } from "./offered"

/** The kernels that a package brings for its primitives. @throws ArgumentError for one that cannot be, naming the package */
export function providedKernels({ kernels, package: from, library }: MetalKernels): Families {
  const file = library === undefined ? null : libraryOf(from, library)
  return offeredFamilies(from, kernels, (primitive, kernel) => {
    const op = `${from}: ${primitive}`
    const isObject = isPlainObject(kernel) && typeof kernel.launch === "function"
    if (!isObject || !(typeof kernel.source === "string" || kernel.source === undefined))
      throw new ArgumentError(op, `a Metal kernel needs a source and launch, received ${describe(kernel)}`)
    if (kernel.source === undefined && file === null)
      throw new ArgumentError(op, "a Metal kernel needs a source, or the offer a library: a .metal file")
    checkNames(op, "Metal", kernel.inputNames, kernel.outputNames)
    return kernel.source === undefined
      ? fileKernel(primitive, kernel, file as NonNullable<typeof file>)
      : providedKernel(primitive, kernel)
  })
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
  const family = offeredFamily(primitive, "Metal", kernel, (node, queue, launch) => {
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
  })
  return { ...family, supports: (node) => hasTypes(node) && family.supports(node) }
}
