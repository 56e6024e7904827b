/**
 * The kernels: a shared library for backends that run native code, a file of Metal kernels for GPUs. Without either the primitives run by
 * their semantics.
 */
import { float32, float64 } from "@lazuli/core"
import { provideKernels } from "@lazuli/core/plugin"
import { nativeLibrary, PACKAGE } from "./libraries"
import { metalKernels } from "./metal-kernels"

// There is none on platforms that nobody built for.
if (nativeLibrary)
  provideKernels({
    form: "native",
    package: PACKAGE,
    library: nativeLibrary,
    // Positions are 32 bits wide.
    supports: ({ inputs, outputs }) =>
      (inputs[0].dtype === float32 || inputs[0].dtype === float64) &&
      [...inputs, ...outputs].every(({ shape }) => shape[0] < 2 ** 31),
  })
provideKernels(metalKernels)
