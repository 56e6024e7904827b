/**
 * The native kernels by the names of their primitives: those of the addon, and those of libraries that other packages bring.
 */
import {
  type ApplicationMeta,
  checkBringer,
  DeviceError,
  type NativeKernels,
  type Node,
  type Primitive,
} from "@lazuli/core/engine"
import { native } from "./native"

const { fileURLToPath } = process.getBuiltinModule("node:url")

/** Ids by primitive; those of other packages come by {@link addLibrary}. */
export const kernels = new Map<string, number>()
/** Those that nobody may bring but a loaded library has. */
const refused = new Set<string>()
/** By id: a bit for each dtype that the first input may have. */
export let kernelDtypes: readonly number[] = []
/** Of the kernels that other packages brought: which applications they take. */
export const restrictions = new Map<string, (application: ApplicationMeta) => boolean>()
/** Of the same: the offers. */
export const offered = new Map<string, NativeKernels>()
listKernels()

function listKernels(): void {
  for (const [id, name] of native.kernels().entries()) if (!refused.has(name)) kernels.set(name, id)
  kernelDtypes = native.kernelDtypes()
}

/** Loads the kernels that another package brings; gives the names of their primitives. @throws DeviceError that names the package */
export function addLibrary(offer: NativeKernels): readonly string[] {
  const { library, supports } = offer
  let names: string[]
  try {
    names = native.loadKernels(typeof library === "string" ? library : fileURLToPath(library))
  } catch (cause) {
    const fact = (cause as Error).message.replace(/^\[\w+\] /, "")
    const hint = /was built for version/.test(fact)
      ? "Build it again with the installed @lazuli/core: npx lazuli-kernel build"
      : /already$/.test(fact)
        ? fact.includes(` for ${offer.package}/`)
          ? `There are two copies of ${offer.package}: \`npm ls ${offer.package}\` shows them, and what asks for which version`
          : undefined
        : `It must be a library for ${process.platform}-${process.arch}`
    throw new DeviceError("backend-cpu", `cannot load the kernels of ${offer.package}: ${fact}`, {
      cause,
      hint,
    })
  }
  for (const name of names) refused.add(name)
  checkBringer(offer.package, names)
  for (const name of names) refused.delete(name)
  listKernels()
  for (const name of names) {
    if (supports) restrictions.set(name, (application) => supports(application))
    offered.set(name, offer)
  }
  return names
}

/** True if a brought kernel takes an application. */
export function isTaken(node: Node, name: string): boolean {
  const restriction = restrictions.get(name)
  return restriction === undefined || restriction(applicationOf(node))
}

/** An application, as packages are asked about it. */
export const applicationOf = (node: Node): ApplicationMeta => ({
  primitive: (node.primitive as Primitive).name,
  inputs: node.inputs,
  outputs: node.outputs ?? [node],
  params: node.params,
})
