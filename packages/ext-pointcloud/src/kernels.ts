/**
 * The kernels: a shared library for backends that run native code, a file of Metal kernels for GPUs. Without either the primitives run by
 * their semantics.
 */
import { existsSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { float32, float64 } from "@lazuli/core"
import { provideKernels } from "@lazuli/core/plugin"
import { metalKernels } from "./metal-kernels"

// native/CMakeLists.txt puts it there; src/ and dist/ are both one below the package. There is none on platforms that nobody built for.
const library = fileURLToPath(
  new URL(`../build/pointcloud-${process.platform}-${process.arch}.so`, import.meta.url),
)
if (existsSync(library))
  provideKernels({
    form: "native",
    package: "@lazuli/ext-pointcloud",
    library,
    supports: ({ inputs: [x] }) => x.dtype === float32 || x.dtype === float64,
  })
provideKernels(metalKernels)
