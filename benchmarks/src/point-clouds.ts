/**
 * Rows of @lazuli/ext-pointcloud: its primitives, eager and compiled, beside their composition of ordinary operations, compiled.
 */

import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { indexedDistance, knn, mvmr, pairwiseDistance, vvor } from "@lazuli/ext-pointcloud"
import { valueAndGrad } from "@lazuli/transforms"
import { numbers, type Prepare } from "./serve"

/** Pairs, groups, and rows and columns of each matrix; rows of the vectors that pairs share. */
const [T, G, M, C, B] = [100_000, 4, 8, 8, 10_000]
/** Points of the searches and of all pairs. */
const POINTS = 4096

type Op = (...inputs: mx.Array[]) => mx.Array
/** The contender: the package's function, the same compiled, or its composition compiled. */
export type Contender = "eager" | "compiled" | "composition"

const make = (shape: number[]): mx.Array => mx.array(numbers(shape.reduce((a, b) => a * b, 1))).reshape(shape)
/** Scattered positions below n, the same for everybody. */
const positions = (count: number, n: number): mx.Array =>
  mx.array(Int32Array.from({ length: count }, (_, i) => (i * 40_503) % n))

const composedMvmr =
  (rows: number): Op =>
  (a, b, bAt, outAt) => {
    const products = a.multiply(mx.take(b, bAt, 0).expandDims(2)).sum(3)
    return mx.zeros([rows, G, M]).at(outAt).add(products)
  }
const composedVvor =
  (rows: number): Op =>
  (x, b, xAt, bAt, outAt) => {
    const products = mx
      .take(x, xAt, 0)
      .expandDims(3)
      .multiply(mx.take(b, bAt, 0).expandDims(2))
    return mx.zeros([rows, G, M, C]).at(outAt).add(products)
  }
/**
 * Sums of runs without a kernel that adds rows at positions: cumulative sums, and the differences of those at the runs' ends. See
 * docs/decisions/0017-composition-of-segment-sums.md.
 */
const composedSums =
  (count: number): Op =>
  (x, ids) => {
    const ends = mx.searchsorted(ids, mx.arange(count, { dtype: mx.int32 }), { side: "right" })
    const sums = mx.take(mx.cumsum(x, 0), mx.maximum(ends.subtract(1), 0), 0)
    const upTo = mx.where(ends.equal(0).expandDims(1), 0, sums)
    return mx.concatenate([upTo.index(":1"), upTo.index("1:").subtract(upTo.index(":-1"))])
  }
const composedSquares: Op = (x, y) => x.expandDims(1).subtract(y.expandDims(0)).square().sum(2)

const withGradient =
  (f: Op): Op =>
  (...inputs) => {
    const loss = (a: mx.Array, b: mx.Array) =>
      f(a, b, ...inputs.slice(2))
        .square()
        .sum()
    const [value, [ga, gb]] = valueAndGrad(loss, { argnums: [0, 1] })(inputs[0], inputs[1])
    // Everything is needed, and one array is the row's result.
    return value.add(ga.index(0, 0, 0, 0)).add(gb.index(0, 0, 0))
  }

/** An operation of the package beside its composition, on inputs that are made once. */
interface Operation {
  readonly own: Op
  readonly composed: Op
  readonly inputs: () => mx.Array[]
}

/** The operations by the rows' names. */
export function pointCloudOperations(): Record<string, Operation> {
  const row = (own: Op, composed: Op, inputs: () => mx.Array[]): Operation => ({ own, composed, inputs })
  const products = (rows: number) => () => [
    make([T, G, M, C]),
    make([B, G, C]),
    positions(T, B),
    positions(T, rows),
  ]
  const ownMvmr =
    (numRows: number): Op =>
    (a, b, bAt, outAt) =>
      mvmr(a, b, bAt, outAt, { numRows })
  const pairs = 1_000_000
  return {
    [`mvmr of ${T} pairs to as many rows`]: row(ownMvmr(T), composedMvmr(T), products(T)),
    [`mvmr of ${T} pairs to 1000 rows`]: row(ownMvmr(1000), composedMvmr(1000), products(1000)),
    [`mvmr of ${T} pairs to 1000 rows, loss and gradient`]: row(
      withGradient(ownMvmr(1000)),
      withGradient(composedMvmr(1000)),
      products(1000),
    ),
    [`vvor of ${T} pairs to as many rows`]: row(
      (x, b, xAt, bAt, outAt) => vvor(x, b, xAt, bAt, outAt, { numRows: T }),
      composedVvor(T),
      () => [make([B, G, M]), make([B, G, C]), positions(T, B), positions(T, B), positions(T, T)],
    ),
    [`segment sums of ${T} rows of 256`]: row(
      (x, ids) => mx.segmentSum(x, ids, { numSegments: 1000 }),
      composedSums(1000),
      () => [make([T, 256]), mx.sort(positions(T, 1000))],
    ),
    [`distances of ${POINTS} points to each other`]: row(
      (x, y) => pairwiseDistance(x, y),
      (x, y) => composedSquares(x, y).sqrt(),
      () => [make([POINTS, 3]), make([POINTS, 3])],
    ),
    [`distances of ${pairs} pairs of points`]: row(
      (x, y, i, k) => indexedDistance(x, y, i, k),
      (x, y, i, k) =>
        mx
          .take(x, i, 0)
          .subtract(mx.take(y, k, 0))
          .square()
          .sum(1)
          .sqrt(),
      () => [make([POINTS, 3]), make([POINTS, 3]), positions(pairs, POINTS), positions(pairs, POINTS - 1)],
    ),
    [`16 nearest of ${POINTS} points`]: row(
      (x) => knn(x, x, 16),
      (x) => mx.argpartition(composedSquares(x, x), 15, 1).index(":", ":16"),
      () => [make([POINTS, 3])],
    ),
  }
}

/** The rows by name. */
export function pointCloudRows(contender: Contender): Record<string, Prepare> {
  const prepare =
    ({ own, composed, inputs }: Operation): Prepare =>
    () => {
      const f = contender === "composition" ? composed : own
      const g = contender === "eager" ? f : compile(f)
      const given = inputs()
      mx.eval(given)
      return () => mx.eval(g(...given))
    }
  return Object.fromEntries(
    Object.entries(pointCloudOperations()).map(([name, operation]) => [name, prepare(operation)]),
  )
}
