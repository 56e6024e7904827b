/**
 * The C++ kernel, a shared library for backends that run native code.
 */
import { provideKernels } from "@lazuli/core/plugin"
import { nativeLibrary, PACKAGE } from "./libraries"

// There is none on platforms that nobody built for.
if (nativeLibrary) provideKernels({ form: "native", package: PACKAGE, library: nativeLibrary })
