/** The programs whose kernels are compiled ahead: MLX's recorded cases, and larger ones. */

import { kernelRequests } from "@lazuli/backend-cuda"
import { goldenFamilies, replayGolden } from "@lazuli/conformance"
import * as mx from "@lazuli/core"
import type { KernelRequest } from "@lazuli/gpu-kernels"
import { goldenSpaces } from "./golden-spaces"
import { largePrograms } from "./large-programs"

/** Kernels of the recorded cases of these families, or of all, and of the larger programs where `large` says so. */
export function requestsOfPrograms(
  families: readonly string[] = goldenFamilies(),
  large = true,
): KernelRequest[] {
  return kernelRequests((backend) => {
    // Their values are wrong, and nobody asks.
    replayGolden({ spaces: goldenSpaces, backend, families })
    const device = mx.defaultDevice()
    mx.setDefaultDevice(mx.gpu)
    try {
      for (const program of large ? largePrograms : []) program()
    } finally {
      mx.setDefaultDevice(device)
    }
  })
}
