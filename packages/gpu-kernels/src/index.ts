/**
 * Kernels for GPUs, as source in Metal Shading Language, and the choice of kernel and grid for each application. Backends hand nodes to
 * families and run the dispatches that they give. `runtime/` has the rest of a backend, over what a platform implements: {@link
 * GpuRuntime}.
 */

export type { KernelSpec } from "./custom-source"
export {
  type Argument,
  type DeviceLimits,
  type Dispatch,
  type DispatchForm,
  type DispatchQueue,
  type ExchangeNote,
  type FunctionConstants,
  type Kernel,
  type LibraryCall,
  type Location,
  MAX_INLINE_BYTES,
  type MathMode,
  type Size,
  type Wording,
} from "./dispatch"
export { familyOf } from "./families"
export { type Ending, type Families, type Family, isCountable } from "./family"
export { encodeShares } from "./kernels/attention"
export { encodeCopy, withAllRowMajor, withRowMajor } from "./kernels/copy"
export { encodeFill, gridSize, groupSize, type KernelCall, withInputs } from "./kernels/custom"
export { offeredFamilies, offeredFamily, offeredPath, withOperands } from "./kernels/offered"
export { wideReductions } from "./kernels/reduce"
export { collapse, isRowMajor, locationOf, permuted, type View, viewOf } from "./layout"
export { metalType } from "./metal-types"
export {
  type CudaKernel,
  type CudaOptions,
  type CudaParameter,
  type CudaSource,
  cudaSource,
} from "./msl/cuda"
export { MAX_BUFFER_INDEX } from "./msl/lint"
export { compiledPath, type MetalFile, readMetalFile } from "./msl/metal-file"
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
export { type KernelSignature, signaturesOf } from "./msl/signatures"
export { strictSource } from "./msl/strict"
export {
  type Clang,
  findClang,
  metalWords,
  strictFlags,
  strictProblems,
} from "./msl/strict-compiler"
export { cudaHeaders, preludeFolder, strictHeader } from "./prelude"
export { type Addon, checkAddon, loadAddon } from "./runtime/addon"
export { createGpuBackend, type GpuBackend } from "./runtime/backend"
export { Command, CommandStream } from "./runtime/command-stream"
export { besideOf, isKept, kernelFolder, pruneOnce, publish } from "./runtime/kernel-cache"
export type {
  CommandFailure,
  Commands,
  DeviceInfo,
  GpuBuffer,
  GpuEvent,
  GpuLibrary,
  GpuMark,
  GpuPipeline,
  GpuRuntime,
  KernelRequest,
  LibraryOptions,
  LibrarySource,
  PlanId,
  Submission,
} from "./runtime/runtime"
export { type Dialect, kernelPrimitives, metalKernel, userKernel } from "./user-kernel"
