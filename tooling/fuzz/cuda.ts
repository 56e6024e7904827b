/**
 * The random programs of `npm run test:gpu` on the double of CUDA's driver: each step against the CPU, and one program in a hundred
 * compiled and replayed as a graph. Kernels take seconds to compile the first time; they are kept in LAZULI_CACHE_DIR.
 */
import "../../packages/backend-cuda/test/double"
import "@lazuli/backend-cpu"
import "@lazuli/backend-cuda"
import * as mx from "@lazuli/core"
import fc from "fast-check"
import { problemOf } from "../../benchmarks/src/gpu-programs"
import { Finding, type Fuzzer } from "./fuzzer"

mx.setBackend("cuda", "gpu")

interface Drawn {
  readonly seed: number
  readonly compiles: boolean
}

export const cuda: Fuzzer<Drawn> = {
  // A smaller seed is another program.
  cases: fc.noShrink(fc.record({ seed: fc.nat(), compiles: fc.nat(99).map((n) => n === 0) })),
  seconds: 60,
  attempt({ seed, compiles }) {
    const problem = problemOf(seed, compiles)
    if (problem) throw new Finding(compiles ? "compiled or eager: differs" : "eager: differs", problem)
    return compiles ? "compiled" : "eager"
  },
}
