/**
 * The kernels: a shared library for backends that run native code, and a file of Metal kernels for those that run Metal.
 * Whichever backend is imported takes its own; with neither the primitive runs by its decomposition.
 */
import { provideKernels } from "@lazuli/core/plugin"
import { NAME } from "./axpby"
import { metalLibrary, nativeLibrary, PACKAGE } from "./libraries"

// There is none on platforms that nobody built for.
if (nativeLibrary) provideKernels({ form: "native", package: PACKAGE, library: nativeLibrary })

const THREADS = 256

provideKernels({
  form: "metal",
  package: PACKAGE,
  library: metalLibrary,
  kernels: {
    [NAME]: {
      inputNames: ["x", "y"],
      outputNames: ["out"],
      // Inputs may be transposed or broadcast: the kernel finds its way by their strides, without a copy.
      ensureRowContiguous: false,
      // Each thread reads its elements and then writes at their place.
      overwrites: { out: ["x", "y"] },
      launch: ({ outputs: [{ shape, dtype }], params }) => {
        const size = shape.reduce((n, m) => n * m, 1)
        // A thread counts with 32 bits; complex64 has no arithmetic there.
        if (size >= 2 ** 31 || dtype.kind !== "floating") return null
        return {
          dispatches: [
            {
              kernel: `axpby_${dtype.name}`,
              buffers: [
                ...["x", "y", "out"],
                Float32Array.of(params.alpha as number),
                Float32Array.of(params.beta as number),
                Int32Array.of(shape.length),
                { shapeOf: "x" },
                { stridesOf: "x" },
                { stridesOf: "y" },
              ],
              grid: [size],
              threadgroup: [THREADS],
            },
          ],
        }
      },
    },
  },
})
