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
    supports: ({ inputs: [x] }) => x.dtype === float32 || x.dtype === float64,
  })
provideKernels(metalKernels)
