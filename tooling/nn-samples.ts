// Functions that reach the primitives of @lazuli/nn, on both sides of where they bend; and why a primitive needs no function here.

import { type Sample, values } from "@lazuli/conformance"
import type * as mx from "@lazuli/core"
import * as nn from "@lazuli/nn"

type Function = (x: mx.Array) => mx.Array

const activations: Record<string, Function> = {
  relu6: (x) => nn.relu6(x.multiply(4)),
  leakyRelu: (x) => nn.leakyRelu(x, 0.2),
  elu: (x) => nn.elu(x, 0.7),
  celu: (x) => nn.celu(x, 0.7),
  logSigmoid: nn.logSigmoid,
  silu: nn.silu,
  softsign: nn.softsign,
  softshrink: (x) => nn.softshrink(x, 0.25),
  hardTanh: (x) => nn.hardTanh(x, -0.75, 1),
  hardswish: (x) => nn.hardswish(x.multiply(2)),
  mish: nn.mish,
  gelu: nn.gelu,
  geluApprox: nn.geluApprox,
  geluFastApprox: nn.geluFastApprox,
}

/** The samples. */
export const nnSamples: Sample[] = Object.entries(activations).map(([name, f]) => ({
  name: `nn.${name}`,
  f: (x) => f(x),
  inputs: [values([2, 3], -2, 2, 11)],
}))

/** Primitives that no function of arrays reaches, with the reason. */
export const UNREACHABLE: Readonly<Record<string, string>> = {
  "@lazuli/compile/fused":
    "exists inside the plans of compiled functions alone, after derivatives and batches were taken: the columns compiled and shapeless of all primitives run it",
  "@lazuli/compile/kept":
    "exists inside the plans of compiled functions alone: those of decomposed exchanges between processes have tests in distributed",
  "@lazuli/gpu-kernels/metalKernel":
    "has no semantics but what its user writes in Metal: the tests of backend-metal run it",
  "@lazuli/gpu-kernels/referencedKernel":
    "is what its user's reference makes it: the tests of backend-metal run it",
  "@lazuli/backend-cuda/cudaKernel":
    "has no semantics but what its user writes in CUDA C++: the tests of backend-cuda run it",
  "@lazuli/backend-cuda/referencedKernel":
    "is what its user's reference makes it: the tests of backend-cuda run it",
}
