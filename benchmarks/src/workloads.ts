/**
 * The workloads: names, units, and the least that any machine must do. Each contestant has its own code for a workload, under its name; one
 * that it lacks stays an empty cell.
 */

/** One row of the table. */
export interface Workload {
  readonly name: string
  /** `ms` for each call; `µs/op` divides by `ops`. */
  readonly unit: "ms" | "µs" | "µs/op" | "MB"
  /** Operations in one call, for µs/op. */
  readonly ops?: number
  /** Bytes that have to be read and written, at least. */
  readonly bytes?: number
  /** Those of them that are written: reads and writes alone are then ceilings too. Otherwise the triad's is the only one. */
  readonly written?: number
  /** Floating-point operations of the definition: an algorithm that takes fewer may pass the ceiling. */
  readonly flops?: number
  /** Also without the time in the addon, which is what JavaScript takes. */
  readonly javascript?: boolean
  /** The number of measurements; each is the mean of enough calls to be measurable. */
  readonly rounds?: number
}

const MB = 2 ** 20
const big = 4096 * 4096 * 4

const elementwise = (name: string, reads: number, bytes = big): Workload => ({
  name,
  unit: "ms",
  bytes: (reads + 1) * bytes,
})
const wide = 8 * 1000 * 1024 * 4
const reduction = (name: string, bytes = big): Workload => ({ name, unit: "ms", bytes })
const product = (name: string, flops: number, bytes?: number): Workload => ({
  name,
  unit: "ms",
  flops,
  ...(bytes ? { bytes } : {}),
})
const mixed = (name: string, reads: number, written: number): Workload => ({
  name,
  unit: "ms",
  bytes: reads + written,
  written,
})

/** All rows, in the order of the table. */
export const workloads: readonly Workload[] = [
  { name: "chain of 1,000 adds (16 elements)", unit: "µs/op", ops: 1000, rounds: 60, javascript: true },
  { name: "chain of 1,000 adds (16 elements), handles held", unit: "µs/op", ops: 1000, rounds: 60 },
  { name: "one add, one eval (16 elements)", unit: "µs", rounds: 60 },
  { name: "eight adds, one eval (16 elements)", unit: "µs", rounds: 60 },
  elementwise("add 4096²", 2),
  elementwise("multiply 4096²", 2),
  elementwise("copy 4096²", 1),
  elementwise("axpby 4096²", 2),
  elementwise("exp 8×1000×1024", 1, wide),
  elementwise("erf 8×1000×1024", 1, wide),
  elementwise("tanh 8×1000×1024", 1, wide),
  elementwise("gelu 8×1000×1024", 1, wide),
  elementwise("composed gelu 8×1000×1024", 1, wide),
  elementwise("composed gelu 32×1000×4096", 1, 32 * 1000 * 4096 * 4),
  reduction("sum 4096², axis 0"),
  reduction("sum 4096², axis 1"),
  reduction("sum 4096², all"),
  reduction("max 4096², axis 1"),
  reduction("argmax 4096², axis 1"),
  reduction("var 4096², axis 1"),
  elementwise("softmax 4096²", 1),
  reduction("logsumexp 4096²"),
  elementwise("layerNorm 4096×1024", 1, 16 * MB),
  elementwise("rmsNorm 4096×1024", 1, 16 * MB),
  product("matmul 64", 2 * 64 ** 3),
  product("matmul 512", 2 * 512 ** 3),
  product("matmul 1024", 2 * 1024 ** 3),
  product("matmul 2048", 2 * 2048 ** 3),
  product("matmul 1024, second transposed", 2 * 1024 ** 3),
  product("matmul 64 × 128²", 64 * 2 * 128 ** 3),
  product("matmul 1×4096×4096, bfloat16", 2 * 4096 ** 2, 2 * 4096 ** 2),
  product("matmul 1×4096×4096, int4", 2 * 4096 ** 2, (4096 ** 2 * 4.5) / 8),
  product("matmul 8×4096×4096, bfloat16", 2 * 8 * 4096 ** 2, 2 * 4096 ** 2),
  product("attention 1×8×1×64 of 4096, bfloat16", 4 * 8 * 4096 * 64, 2 * 8 * 4096 * 64 * 2),
  product("attention 1×8×512×64", 4 * 8 * 512 * 512 * 64),
  product("attention 1×8×4096×64, causal", 2 * 8 * 4096 * 4096 * 64),
  product("conv2d 8×64×64×32, 64 of 3×3", 2 * 8 * 64 * 64 * 32 * 64 * 9),
  product("conv2d 8×56×56×256, 64 of 1×1", 2 * 8 * 56 * 56 * 256 * 64, 8 * 56 * 56 * (256 + 64) * 4),
  product("conv2d 8×56×56×96, depthwise 7×7", 2 * 8 * 56 * 56 * 96 * 49, 2 * 8 * 56 * 56 * 96 * 4),
  { name: "sort 1e6", unit: "ms", bytes: 8e6 },
  { name: "argsort 1e6", unit: "ms", bytes: 8e6 },
  { name: "cumsum 1e7", unit: "ms", bytes: 8e7 },
  { name: "gather 1e6 rows of 64", unit: "ms", bytes: 1e6 * 64 * 8 },
  { name: "scatter-add 1e6 rows of 64", unit: "ms", bytes: 1e6 * 64 * 8 },
  { name: "set one element of 4096²", unit: "µs", rounds: 60 },
  { name: "16 updates of blocks of 32 MB", unit: "ms", bytes: 32 * MB },
  { name: "decode a token (4 layers, 256 wide, room for 4096)", unit: "ms", rounds: 60 },
  { name: "decode a token (15 layers, 32 wide), 780 nodes", unit: "µs", rounds: 60, javascript: true },
  { name: "random normal 1e7", unit: "ms", bytes: 4e7 },
  { name: "random uniform 1e7", unit: "ms", bytes: 4e7 },
  { name: "MLP step (64, 784-256-10, SGD momentum)", unit: "ms", flops: 6 * 64 * (784 * 256 + 256 * 10) },
  { name: "MLP step (4, 16-16-4, SGD momentum)", unit: "µs", rounds: 60 },
  { name: "transformer step (4 layers, 128 wide, 16×64, AdamW)", unit: "ms", rounds: 20 },
  { name: "transformer, 4 layers: graph of the loss and its gradients", unit: "ms", rounds: 60 },
  // Pairs × groups × rows × columns of 4 bytes, vectors, results and positions; see point-clouds.ts.
  mixed("mvmr of 100000 pairs to as many rows", 100_000 * (1024 + 8) + 128e4, 100_000 * 128),
  mixed("mvmr of 100000 pairs to 1000 rows", 100_000 * (1024 + 8) + 128e4, 128e3),
  { name: "mvmr of 100000 pairs to 1000 rows, loss and gradient", unit: "ms" },
  mixed("vvor of 100000 pairs to as many rows", 100_000 * 12 + 256e4, 100_000 * 1024),
  mixed("segment sums of 100000 rows of 256", 100_000 * 1028, 1024e3),
  { name: "distances of 4096 points to each other", unit: "ms", bytes: 4 * 4096 ** 2 },
  { name: "distances of 1000000 pairs of points", unit: "ms", bytes: 12e6 },
  { name: "16 nearest of 4096 points", unit: "ms", flops: 8 * 4096 ** 2 },
  { name: "10 products of 512 and JavaScript in turn", unit: "ms" },
  { name: "10 products of 512 and JavaScript at once, by asyncEval", unit: "ms" },
  { name: "synchronous loop, 100,000 × 1 MB: peak resident memory", unit: "MB", rounds: 1 },
]
