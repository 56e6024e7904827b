/**
 * The CUDA kernel, a file that the CUDA backend compiles, and the launch of each application.
 */
import * as mx from "@lazuli/core"
import { provideKernels } from "@lazuli/core/plugin"
import { NAME } from "./axpby"
import { cudaLibrary, PACKAGE } from "./libraries"

const THREADS = 256

provideKernels({
  form: "cuda",
  package: PACKAGE,
  library: cudaLibrary,
  kernels: {
    [NAME]: {
      inputNames: ["x", "y"],
      outputNames: ["out"],
      launch: ({ outputs: [{ shape, dtype }], params }) => {
        if (dtype.kind !== "floating") return null
        const size = shape.reduce((n, m) => n * m, 1)
        const Factors = dtype === mx.float64 ? Float64Array : Float32Array
        const factor = (value: unknown) => Factors.of(value as number)
        return {
          dispatches: [
            {
              kernel: `axpby_${dtype.name}`,
              arguments: [
                ...["x", "y", "out"],
                factor(params.alpha),
                factor(params.beta),
                BigInt64Array.of(BigInt(size)),
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
