/**
 * The test double as a GPU with Hopper's instructions. To be imported before anything uses the GPU, in place of double.ts.
 */
import { tmpdir } from "node:os"
import { join } from "node:path"

process.env.LAZULI_CUDA_DOUBLE_GPU = "hopper"
// Kernels of real GPUs have the same names.
process.env.LAZULI_CACHE_DIR = join(tmpdir(), `lazuli-cuda-double-hopper-${process.geteuid?.() ?? 0}`)
