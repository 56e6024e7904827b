/**
 * The C++ kernel, a shared library for backends that run native code.
 */
import { provideKernels } from "@lazuli/core/plugin"
import { nativeLibrary, PACKAGE } from "./libraries"

// There is none on platforms that nobody built for.
if (nativeLibrary)
  provideKernels({
    form: "native",
    package: PACKAGE,
    library: nativeLibrary,
    // For elementwise kernels alone: the result may be written over y or x where nobody needs it any more, and may lie as they do.
    overwrites: () => [[1, 0]],
    keepsLayout: () => true,
  })
