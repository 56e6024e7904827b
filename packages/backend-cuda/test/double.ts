/**
 * Points the backend at the test double of CUDA's driver and compiler, which `npm run build` makes, and at a folder of its own for compiled
 * kernels. To be imported before anything uses the GPU.
 */
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"

process.env.LAZULI_CUDA_PATH = fileURLToPath(new URL("../build/double", import.meta.url))
// Kernels of the double take a second each to compile: kept between runs.
process.env.LAZULI_CACHE_DIR ??= join(tmpdir(), `lazuli-cuda-double-${process.geteuid?.() ?? 0}`)

/** Runs `body` while the double fails as it is told; see native/double/driver.cc. */
export function failing<T>(how: string, body: () => T): T {
  process.env.LAZULI_CUDA_DOUBLE = how
  try {
    return body()
  } finally {
    delete process.env.LAZULI_CUDA_DOUBLE
  }
}
