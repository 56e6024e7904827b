/**
 * `npm run pointcloud-checks`: @lazuli/ext-pointcloud and core's operations for it, with gradients, in float32 against loops of PyTorch in
 * float64, on the same numbers. Needs Debian's python3-torch, or PYTHON with PyTorch.
 */
import { spawnSync } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import * as mx from "@lazuli/core"
import "@lazuli/backend-cpu"
import {
  ballQuery,
  farthestPointSampling,
  indexedDistance,
  knn,
  mvmr,
  pairwiseDistance,
  segmentReduce,
  vvor,
} from "@lazuli/ext-pointcloud"
import { grad } from "@lazuli/transforms"

/** The largest difference: of numbers above 1 in proportion to them, of gradients, which are sums, to the largest. */
const MOST = 1e-5
const RADIUS = 0.6
const [T, G, M, C, B, X, P, Q, ROWS] = [300, 2, 3, 5, 20, 15, 60, 40, 25]

mx.random.seed(20)
const normal = (...shape: number[]): mx.Array => mx.random.normal(shape).multiply(0.5)
const whole = (n: number, most: number): mx.Array => mx.random.randint(0, most, [n])
const p = normal(P, 3)
const given: Record<string, mx.Array> = {
  a: normal(T, G, M, C),
  b: normal(B, G, C),
  x: normal(X, G, M),
  p,
  // Some points coincide: the derivative of their distance is 0.
  q: mx.concatenate([p.index(":5"), normal(Q - 5, 3)]),
  i: whole(T, X),
  j: whole(T, B),
  // Every row has a product.
  o: mx.concatenate([mx.arange(ROWS, { dtype: mx.int32 }), whole(T - ROWS, ROWS)]),
  from: mx.concatenate([mx.arange(5, { dtype: mx.int32 }), whole(T, P)]),
  to: mx.concatenate([mx.arange(5, { dtype: mx.int32 }), whole(T, Q)]),
  values: normal(T),
  dense: normal(30, 7),
  row: whole(T, ROWS),
  column: whole(T, 30),
  lengths: mx.array([7, 0, 23, 1, 29], mx.int32),
  counts: whole(P, 4),
  rows: mx.array(ROWS, mx.int32),
  radius: mx.array(RADIUS),
}
const { a, b, x, q, i, j, o, from, to, values, dense, row, column, lengths, counts } = given
const numRows = { numRows: ROWS }
const segments = { numSegments: ROWS }

type F = (...inputs: mx.Array[]) => mx.Array
/** Functions by the names that point_clouds.py has for them, with the inputs that they are differentiated by. */
const functions: Record<string, [f: F, ...inputs: mx.Array[]]> = {
  mvmr: [(a, b) => mvmr(a, b, j, o, numRows), a, b],
  vvor: [(x, b) => vvor(x, b, i, j, o, numRows), x, b],
  ...Object.fromEntries(
    (["sum", "mean", "max", "min"] as const).map((reduction) => [
      `segment ${reduction}`,
      [(a: mx.Array) => segmentReduce(a, o, { ...segments, reduction }), a],
    ]),
  ),
  "segment softmax": [(a) => mx.segmentSoftmax(a, o, segments), a],
  ...Object.fromEntries(
    (["euclidean", "squared", "cosine"] as const).flatMap((metric) => [
      [
        `distances, ${metric}`,
        [(p: mx.Array, q: mx.Array) => indexedDistance(p, q, from, to, { metric }), p, q],
      ],
      [`all distances, ${metric}`, [(p: mx.Array, q: mx.Array) => pairwiseDistance(p, q, { metric }), p, q]],
    ]),
  ),
  neighbours: [() => knn(p, q, 4)],
  balls: [() => ballQuery(p, q, RADIUS, 4)],
  "farthest points": [() => farthestPointSampling(p, 10)],
  "COO product": [(v, d) => mx.cooMatmul(v, row, column, d, numRows), values, dense],
  "sampled product": [(a) => mx.sampledMatmul(a.reshape([T, -1]), a.reshape([T, -1]), row, column), a],
  repeat: [(p) => mx.repeat(p, counts, 0), p],
  padding: [(p) => mx.padSegments(p, { lengths }), p],
  topk: [(p) => mx.topk(p.T, 3, { returnIndices: true })[0], p],
  "scatter sum": [(a) => mx.scatter(mx.ones([ROWS, G, M, C]), o, a, { reduction: "sum" }), a],
  ...Object.fromEntries(
    (["prod", "max", "min"] as const).map((reduction) => [
      `scatter ${reduction}`,
      [() => mx.scatter(mx.ones([ROWS, G, M, C]), o, a, { reduction })],
    ]),
  ),
}

const folder = mkdtempSync(join(tmpdir(), "lazuli-point-clouds-"))
try {
  const [asked, answered] = ["given.npz", "results.npz"].map((name) => join(folder, name))
  mx.savez(asked, given)
  const script = fileURLToPath(new URL("../peers/point_clouds.py", import.meta.url))
  const { status, stderr } = spawnSync(process.env.PYTHON ?? "/usr/bin/python3", [script, asked, answered], {
    encoding: "utf8",
  })
  if (status !== 0) throw new Error(`PyTorch's loops failed: ${stderr}`)
  const results = mx.load(answered) as Record<string, mx.Array>
  const seen = new Set<string>()
  const compare = (name: string, got: mx.Array): void => {
    seen.add(name)
    const want = results[name]
    if (want?.shape.join() !== got.shape.join())
      throw new Error(`${name} has shape ${got.shape}, PyTorch's ${want?.shape}`)
    const [x, y] = [got, want].map((each) => each.astype(mx.float64))
    const size = name.includes("gradient") ? y.abs().max() : y.abs()
    const difference = x.subtract(y).abs().divide(mx.maximum(size, 1)).max().item() as number
    const ok = difference <= MOST
    if (!ok) process.exitCode = 1
    console.log(`${ok ? "ok  " : "FAIL"}  ${name}: ${difference.toExponential(1)}`)
  }
  for (const [name, [f, ...inputs]] of Object.entries(functions)) {
    compare(name, f(...inputs))
    inputs.forEach((_, k) => {
      compare(
        `${name}, gradient ${k}`,
        grad(
          (...xs: mx.Array[]) =>
            f(...xs)
              .square()
              .sum(),
          { argnums: k },
        )(...inputs),
      )
    })
  }
  const left = Object.keys(results).filter((name) => !seen.has(name))
  if (left.length > 0) throw new Error(`not compared: ${left.join(", ")}`)
} finally {
  rmSync(folder, { recursive: true, force: true })
}
