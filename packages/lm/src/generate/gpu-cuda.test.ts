/** Language models on CUDA, by the test double of its driver and compiler. */
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import "@lazuli/backend-cpu"
import * as mx from "@lazuli/core"
import "@lazuli/backend-cuda"
import { gpuTests } from "../../test/gpu"

process.env.LAZULI_CUDA_PATH = fileURLToPath(new URL("../../../backend-cuda/build/double", import.meta.url))
// Kernels of the double take a second each to compile: kept between runs.
process.env.LAZULI_CACHE_DIR ??= join(tmpdir(), `lazuli-cuda-double-${process.geteuid?.() ?? 0}`)
mx.setBackend("cuda", "gpu")

gpuTests()
