/**
 * The table of kernel families: the package's own, and those that other packages bring for their primitives.
 */
import { onKernels, type Primitive, RegistryError } from "@lazuli/core/engine"
import type { Family } from "./family"
import { attention } from "./kernels/attention"
import { convolutions } from "./kernels/conv"
import { customKernels } from "./kernels/custom"
import { distances } from "./kernels/distances"
import { elementwise } from "./kernels/elementwise"
import { fourier } from "./kernels/fft"
import { gathers } from "./kernels/gather"
import { hadamard } from "./kernels/hadamard"
import { products } from "./kernels/matmul"
import { placements } from "./kernels/moves"
import { providedKernels } from "./kernels/provided"
import { quantized } from "./kernels/quantized"
import { reductions } from "./kernels/reduce"
import { rope } from "./kernels/rope"
import { rowKernels } from "./kernels/rows"
import { scans } from "./kernels/scan"
import { segments } from "./kernels/segment"
import { sorts } from "./kernels/sort"
import { sparse } from "./kernels/sparse"

const families: Record<string, Family> = {
  ...reductions,
  ...rowKernels,
  ...rope,
  ...placements,
  ...gathers,
  ...scans,
  ...segments,
  ...sorts,
  ...sparse,
  ...products,
  ...quantized,
  ...convolutions,
  ...attention,
  ...fourier,
  ...hadamard,
  ...distances,
  ...customKernels,
}
/** The providers of kernels that are not this package's own. */
const providers = new Map<string, string>()

onKernels("metal", (offer) => {
  const provided = providedKernels(offer)
  for (const name of Object.keys(provided))
    if (Object.hasOwn(families, name))
      throw new RegistryError(
        "gpu-kernels",
        `${offer.package} brings a kernel for ${name}, which already has one from ${providers.get(name) ?? "Lazuli itself"}`,
      )
  for (const [name, family] of Object.entries(provided)) {
    families[name] = family
    providers.set(name, offer.package)
  }
})

/** The family that may have a kernel for applications of a primitive. */
export function familyOf(primitive: Primitive): Family | undefined {
  if (primitive.elementwise) return elementwise
  return Object.hasOwn(families, primitive.name) ? families[primitive.name] : undefined
}
