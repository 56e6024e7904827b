/**
 * `@lazuli/kernel-build`: builds the kernels of a package. The command `lazuli-kernel` is this from a shell.
 */
export { type BuildOptions, buildKernels, watchKernels } from "./build"
export { main } from "./main"
export type { KernelOptions } from "./manifest"
export { paramsHeader } from "./params-header"
