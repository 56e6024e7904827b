/**
 * The sources of the GPU kernels that MLX's recorded cases need, without compiling or running any: for compilers that only look.
 */

import { existsSync, readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { createMetalBackend, HostRuntime } from "@lazuli/backend-metal"
import { compile } from "@lazuli/compile"
import { onBackendNamed, replayGolden } from "@lazuli/conformance"
import * as mx from "@lazuli/core"
import { registerBackend } from "@lazuli/core/engine"
import { cudaHeaders, readMetalFile } from "@lazuli/gpu-kernels"
import { goldenSpaces } from "./golden-spaces"

/** A source in Metal Shading Language, and the name of its first kernel with that of its file. */
export interface KernelSource {
  readonly source: string
  readonly file: string
}

/** Keeps what it is asked to compile. */
class Collector extends HostRuntime {
  readonly sources: KernelSource[] = []
  override async prepare(sources: readonly KernelSource[]): Promise<void> {
    this.sources.push(...sources)
  }
  override compileTogether(sources: readonly KernelSource[]): void {
    this.sources.push(...sources)
    super.compileTogether(sources)
  }
}

/** Functions whose plans have kernels of joined work: chains, rows, reductions and products with what comes before and behind. */
const joined: ((x: mx.Array, w: mx.Array) => mx.Array)[] = [
  (x, w) => mx.tanh(x.multiply(w).add(1)).multiply(x.sqrt()),
  (x, w) => mx.softmax(x.multiply(0.5).add(w), -1).multiply(3),
  (x, w) => mx.fast.rmsNorm(x.add(w), null, 1e-5).multiply(mx.sigmoid(x)),
  (x, w) => mx.logsumexp(x.multiply(w), -1, true).add(x),
  (x, w) => x.multiply(w).sum(0),
  (x, w) => mx.maximum(mx.matmul(x, w.T).add(1), 0),
]

/** All sources, of the recorded cases of these families or of all. */
export async function kernelSources(families?: readonly string[]): Promise<KernelSource[]> {
  const collector = new Collector()
  const backend = createMetalBackend(collector, "kernel-sources", -1)
  registerBackend(backend)
  await backend.rehearse(() => replayGolden({ spaces: goldenSpaces, backend: "kernel-sources", families }))
  // Rehearsals run operation by operation: joined work has kernels where it runs.
  onBackendNamed("kernel-sources", () => {
    for (const f of joined)
      for (const dtype of [mx.float32, mx.bfloat16])
        mx.eval(compile(f)(mx.ones([9, 40], dtype), mx.ones([9, 40], dtype)))
    mx.eval(
      mx.cdist(mx.ones([3, 4]), mx.ones([5, 4])),
      // Forms of large arrays: rows of a thread, with and without vectors, columns of a simdgroup, large factors.
      ...[128, 101].map((n) =>
        mx
          .ones([2100, n])
          .multiply(mx.arange(n))
          .add(mx.ones([2100, 1])),
      ),
      mx.ones([1024, 40]).matmul(mx.ones([40])),
      mx.abs(mx.fft.fft(mx.ones([2042]))),
    )
  })
  return collector.sources
}

/** The `.metal` files of this repository's packages. */
export function packagedSources(): KernelSource[] {
  const packages = fileURLToPath(new URL("../packages/", import.meta.url))
  return readdirSync(packages).flatMap((name) => {
    const folder = join(packages, name, "native")
    const files = existsSync(folder) ? readdirSync(folder).filter((file) => file.endsWith(".metal")) : []
    return files.map((file) => ({ source: readMetalFile(join(folder, file)).text, file }))
  })
}

/** Definitions before kernels of CUDA's own, by file: each form of a dtype, a mask and a width at least once. */
const NATIVE_FORMS: Readonly<Record<string, readonly string[]>> = {
  "attention.cu": [
    "LZ_FEATURES 64, LZ_CAUSAL 1, LZ_MASK 0, LZ_BRAIN",
    "LZ_FEATURES 128, LZ_CAUSAL 0, LZ_MASK 1, LZ_BRAIN",
    "LZ_FEATURES 80, LZ_CAUSAL 0, LZ_MASK 2",
  ],
  "attention-few.cu": [
    "LZ_FEATURES 64, LZ_ROWS 1, LZ_WARPS 8, LZ_MASK 0, LZ_CAUSAL 0, LZ_PARTS 1, LZ_FETCH 1, LZ_BRAIN",
    "LZ_FEATURES 128, LZ_ROWS 8, LZ_WARPS 4, LZ_MASK 1, LZ_CAUSAL 0, LZ_PARTS 0, LZ_FETCH 0",
    "LZ_FEATURES 256, LZ_ROWS 3, LZ_WARPS 4, LZ_MASK 0, LZ_CAUSAL 1, LZ_PARTS 0, LZ_FETCH 1, LZ_BRAIN",
  ],
  "attention-token.cu": [
    "LZ_FEATURES 128, LZ_ROWS 4, LZ_WARPS 4, LZ_SPLITS 8, LZ_MASK 1, LZ_TRADITIONAL 0, LZ_RATES 1, LZ_OFFSET int, LZ_PLACE int, LZ_ONCE 1, LZ_BRAIN",
    "LZ_FEATURES 64, LZ_ROWS 7, LZ_WARPS 16, LZ_SPLITS 8, LZ_MASK 0, LZ_TRADITIONAL 1, LZ_RATES 0, LZ_OFFSET unsigned, LZ_PLACE long long, LZ_ONCE 0",
  ],
  "attention-groups.cu": [
    "LZ_FEATURES 64, LZ_CAUSAL 1, LZ_MODE 1, LZ_BRAIN",
    "LZ_FEATURES 128, LZ_CAUSAL 1, LZ_MODE 2, LZ_BRAIN",
    "LZ_FEATURES 80, LZ_CAUSAL 0, LZ_MODE 0",
  ],
  "attention-rows.cu": ["LZ_MASK 0", "LZ_MASK 1, LZ_BRAIN", "LZ_MASK 2"],
  "attention-tiles.cu": [
    "LZ_FEATURES 64, LZ_CAUSAL 1, LZ_MODE 0, LZ_WIDE",
    "LZ_FEATURES 32, LZ_CAUSAL 0, LZ_MODE 1, LZ_BRAIN",
    "LZ_FEATURES 128, LZ_CAUSAL 1, LZ_MODE 2",
  ],
  "few-rows.cu": [
    "LZ_PARTS 1, LZ_BITS 16, LZ_COUNT 1, LZ_TILES 1, LZ_BLOCKS 1, LZ_ADD 1, LZ_BRAIN",
    "LZ_PARTS 2, LZ_BITS 4, LZ_COUNT 8, LZ_TILES 2, LZ_BLOCKS 2, LZ_ADD 0, LZ_GROUP 64, LZ_EVEN 1",
    "LZ_PARTS 1, LZ_BITS 4, LZ_COUNT 1, LZ_TILES 2, LZ_BLOCKS 2, LZ_ADD 0, LZ_GROUP 64, LZ_EVEN 1, LZ_BRAIN",
    "LZ_PARTS 3, LZ_BITS 8, LZ_COUNT 3, LZ_TILES 1, LZ_BLOCKS 3, LZ_ADD 0, LZ_GROUP 32, LZ_EVEN 0, LZ_BRAIN",
  ],
  "matrices.cu": ["LZ_ELEMENT float", "LZ_ELEMENT double", "LZ_ELEMENT Complex"],
  "packed-row.cu": [
    "LZ_COLUMNS 4096, LZ_PARTS 1, LZ_BITS 4, LZ_GROUP 64, LZ_STAGES 3, LZ_TABLES 1, LZ_BLOCKS 2, LZ_NORM 0, LZ_END 1, LZ_BRAIN",
    "LZ_COLUMNS 4608, LZ_PARTS 2, LZ_BITS 8, LZ_GROUP 32, LZ_STAGES 3, LZ_TABLES 2, LZ_BLOCKS 2, LZ_NORM 2, LZ_END 2",
    "LZ_COLUMNS 1024, LZ_PARTS 3, LZ_BITS 4, LZ_GROUP 128, LZ_STAGES 4, LZ_TABLES 2, LZ_BLOCKS 2, LZ_NORM 1, LZ_END 0, LZ_BRAIN",
  ],
  "unpack.cu": [
    "LZ_BITS 4, LZ_GROUP 64, LZ_BRAIN",
    "LZ_BITS 8, LZ_GROUP 32",
    "LZ_BITS 4, LZ_GROUP 128, LZ_WIDE",
  ],
  "quantized.cu": [
    "LZ_BITS 4, LZ_GROUP 64, LZ_COUNT 1, LZ_ROWS 4, LZ_BRAIN",
    "LZ_BITS 8, LZ_GROUP 32, LZ_COUNT 8, LZ_ROWS 2",
    "LZ_BITS 4, LZ_GROUP 128, LZ_COUNT 3, LZ_ROWS 1, LZ_WIDE",
  ],
}

/** The files of the backend's kernels in CUDA's own language, in order of their names. */
function nativeTexts(ending: string): Readonly<Record<string, string>> {
  const folder = fileURLToPath(new URL("../packages/backend-cuda/kernels/", import.meta.url))
  const names = readdirSync(folder).filter((name) => name.endsWith(ending))
  return Object.fromEntries(names.toSorted().map((name) => [name, readFileSync(join(folder, name), "utf8")]))
}

/** The backend's kernels in CUDA's own language, and one as users write them. */
export function cudaSources(): KernelSource[] {
  const own = Object.entries(nativeTexts(".cu")).flatMap(([file, text]) =>
    (NATIVE_FORMS[file] ?? [""]).map((forms) => ({
      source: `${forms.replace(/(^|, )(?=\w)/g, "\n#define ")}\n${text}`,
      file,
    })),
  )
  return [...own, { source: USERS_KERNEL, file: "user.cu" }]
}

/** Headers of those, by name. */
export const cudaHeaderTexts = (): Readonly<Record<string, string>> => ({
  ...Object.fromEntries(cudaHeaders().map(({ name, text }) => [name, text])),
  ...nativeTexts(".cuh"),
})

const USERS_KERNEL = `#define LZ_KERNELS
#include "lazuli_kernel.h"
extern "C" __global__ void user(const float* x, const half* h, const nv_bfloat16* b, float* y, int n) {
  auto i = cg::this_grid().thread_rank();
  __shared__ float sums[32];
  sums[i % 32] = __half2float(h[0]) + __bfloat162float(b[0]);
  __syncthreads();
  if (i < n) y[i] = x[i] * sums[i % 32] + INFINITY;
}
`

/** Words of Metal that kernels share: types, functions, members of namespaces. */
const WORDS =
  /\b[a-z]\w*(?=\s*[(<])|\b(?:bfloat|half|float|u?int|u?long|u?short|u?char|bool)[234]?\b|\bcomplex\w*|\blz_\w+/g

/** Sources that between them have every kernel, and every word that any source has: one instance of each kernel, and a few more. */
export function instances(sources: readonly KernelSource[]): KernelSource[] {
  const seen = new Set<string>()
  // Large ones first, which have many words at once.
  return [...sources]
    .sort((a, b) => b.source.length - a.source.length || (a.source < b.source ? -1 : 1))
    .filter(({ source }) => {
      const words = new Set(source.match(WORDS))
      const before = seen.size
      for (const word of words) seen.add(word)
      return seen.size > before
    })
}
