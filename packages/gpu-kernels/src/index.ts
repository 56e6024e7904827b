/**
 * Kernels for GPUs, as source in Metal Shading Language, and the choice of kernel and grid for each application. Backends hand nodes to
 * families and run the dispatches that they give; this package knows no runtime.
 */
export {
  type Argument,
  type DeviceLimits,
  type Dispatch,
  type DispatchQueue,
  type FunctionConstants,
  type Kernel,
  MAX_INLINE_BYTES,
  type MathMode,
  type Place,
  type Size,
  type Wording,
} from "./dispatch"
export { familyOf } from "./families"
export type { Families, Family } from "./family"
export { encodeCopy } from "./kernels/copy"
export { type View, viewOf } from "./layout"
export { metalKernel } from "./metal-kernel"
export { MAX_BUFFER_INDEX } from "./msl/lint"
export {
  type FunctionConstant,
  type MetalSource,
  needsPreprocessor,
  refusal,
  type ScannedKernel,
  type Translation,
  translate,
  withoutMetalIncludes,
} from "./msl/scanner"
export { preludeFolder } from "./prelude"
