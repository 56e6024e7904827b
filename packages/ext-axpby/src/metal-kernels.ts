/**
 * The Metal kernel, a file that backends compile which run Metal, and the launch of each application.
 */
import { provideKernels } from "@lazuli/core/plugin"
import { NAME } from "./axpby"
import { metalLibrary, PACKAGE } from "./libraries"

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
      // Each thread reads its elements and then writes at their positions.
      overwrites: { out: ["x", "y"] },
      launch: ({ outputs: [{ shape, dtype }], params }) => {
        const size = shape.reduce((n, m) => n * m, 1)
        // A thread counts with 32 bits; GPUs have no float64.
        if (size >= 2 ** 31 || dtype.name === "float64") return null
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
