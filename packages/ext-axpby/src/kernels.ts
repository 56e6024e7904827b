/**
 * The kernels: a shared library for backends that run native code, and the body of a Metal function for those that run Metal.
 * Whichever backend is imported takes its own; with neither the primitive runs by its decomposition.
 */
import { existsSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { provideKernels } from "@lazuli/core/plugin"
import { NAME } from "./axpby"

const PACKAGE = "@lazuli/ext-axpby"

// native/CMakeLists.txt puts it there; src/ and dist/ are both one below the package. There is none on platforms that nobody built for.
const library = fileURLToPath(
  new URL(`../build/axpby-${process.platform}-${process.arch}.so`, import.meta.url),
)
if (existsSync(library)) provideKernels({ form: "native", package: PACKAGE, library })

const THREADS = 256

provideKernels({
  form: "metal",
  package: PACKAGE,
  kernels: {
    [NAME]: {
      inputNames: ["x", "y"],
      outputNames: ["out"],
      // Inputs may be transposed or broadcast: the kernel finds its way by their strides, without a copy.
      ensureRowContiguous: false,
      source: `
        uint i = thread_position_in_grid.x;
        T ax = T(alpha) * x[elem_to_loc(i, x_shape, x_strides, x_ndim)];
        T by = T(beta) * y[elem_to_loc(i, y_shape, y_strides, y_ndim)];
        out[i] = ax + by;`,
      launch: ({ outputs: [out], params }) => {
        const size = out.shape.reduce((n, m) => n * m, 1)
        // A thread counts with 32 bits; axes are needed for elem_to_loc; complex64 has no arithmetic there.
        if (size >= 2 ** 31 || out.shape.length === 0 || out.dtype.kind !== "floating") return null
        return {
          grid: [size],
          threadgroup: [Math.min(THREADS, Math.max(size, 1))],
          template: { T: out.dtype },
          scalars: { alpha: params.alpha as number, beta: params.beta as number },
        }
      },
    },
  },
})
