/**
 * Functions whose inputs have an axis of any size, for kernels' edges: where a vector, a block or a thread's share ends. An op whose kernel
 * has such edges gets a line here.
 */
import * as mx from "@lazuli/core"
import { vjp } from "@lazuli/transforms"
import { values } from "./check/values"
import type { Sample } from "./samples"

type Functions = Record<string, (...xs: mx.Array[]) => mx.Array>
const named = mx as unknown as Functions

/** The gradient of the sum of f(x). */
const slopeOf = (f: (x: mx.Array) => mx.Array, x: mx.Array): mx.Array => {
  const y = f(x)
  return vjp(f, [x], [mx.onesLike(y)])[1][0]
}

/** Lengths of runs of n rows, one of them empty. */
const halves = (n: number): number[] => [Math.floor(n / 2), 0, Math.ceil(n / 2)]

/** The samples with the open axes of size n. */
export function sizedSamples(n: number): Sample[] {
  const row = values([3, n], -1, 1, n)
  const column = values([n, 3], -1, 1, n + 1)
  const other = values([3, n], 0.5, 2, n + 2)
  const one = (name: string, f: Sample["f"], ...inputs: mx.Array[]): Sample => ({
    name: `${name} of size ${n}`,
    f: (...xs) => mx.stopGradient(f(...xs)),
    inputs,
  })
  const positions = mx.arange(n).remainder(3).astype(mx.int32)
  return [
    ..."negative abs exp log sin tanh sqrt sigmoid erf square floor sign logicalNot"
      .split(" ")
      .map((name) => one(name, named[name], other)),
    ..."add multiply divide maximum power remainder floorDivide equal less logicalAnd"
      .split(" ")
      .map((name) => one(name, named[name], row, other)),
    one("where", (x, y) => mx.where(x.greater(0), x, y), row, other),
    one("add to a column", (x, y) => x.add(y), column, values([1, 3])),
    ..."sum prod max min all any argmax argmin logsumexp softmax cumsum cumprod cummax cummin logcumsumexp sort argsort"
      .split(" ")
      .flatMap((name) => {
        const f = (axis: number) => (x: mx.Array) => named[name](x, axis as never)
        return [one(`${name} along rows`, f(1), row), one(`${name} along columns`, f(0), column)]
      }),
    one("gradient of max along rows", (x) => slopeOf((a) => a.max(1), x), row),
    one("gradient of min along columns", (x) => slopeOf((a) => a.min(0), x), column),
    one("sum of everything", (x) => x.sum(), row),
    one("matmul over n", (x, y) => x.matmul(y), row, column),
    one("matmul to n", (x, y) => x.matmul(y), column, row),
    one("addmm", (c, x, y) => mx.addmm(c, x, y), values([3]), row, column),
    one("layerNorm", (x, w, b) => mx.fast.layerNorm(x, w, b, 1e-5), row, values([n]), values([n])),
    one("rmsNorm", (x, w) => mx.fast.rmsNorm(x, w, 1e-5), row, values([n])),
    one("take", (x, i) => mx.take(x, i, 0), values([3, n]), positions),
    one("take along the axis", (x, i) => mx.take(x, i, 1), values([2, 3]), positions),
    one("add at indices", (x, y) => x.at(positions).add(y), values([3, 2]), values([n, 2])),
    ...[mx.segmentSum, mx.segmentMax].map((f) =>
      one(`${f.name} of n rows`, (x) => f(x, { lengths: halves(n) }), column),
    ),
    one(
      "sparse product of n values",
      (v, x) => mx.cooMatmul(v, positions, positions, x, { numRows: 3 }),
      values([n], -1, 1, n),
      values([3, 5], -1, 1, n),
    ),
    one("sampled products of rows of n", (x) => mx.sampledMatmul(x, x, [0, 2], [1, 2]), row),
    one("segment sums of rows of n", (x) => mx.segmentSum(x, { lengths: [1, 0, 2] }), row),
    one("concatenate", (x, y) => mx.concatenate([x, y], 1), row, values([3, 2])),
    one("pad", (x) => mx.pad(x, [1, 2]), row),
    one("contiguous", (x) => mx.contiguous(x.T), row),
    one(
      "attention",
      (q, k, v) => mx.fast.scaledDotProductAttention(q, k, v, { scale: 0.5 }),
      values([1, 2, n, 4], -1, 1, 1),
      values([1, 1, 5, 4], -1, 1, 2),
      values([1, 1, 5, 4], -1, 1, 3),
    ),
    one("qr", (x) => mx.linalg.qr(x)[1], column),
    one("lu", (x) => mx.linalg.luFactor(x)[0], column),
    ...(n > 65 ? [] : [one("eigh", (x) => mx.linalg.eigh(x)[0], values([n, n], -1, 1, n))]),
    one("convolution", (x, w) => mx.conv1d(x, w, 1, 1), values([1, n, 2], -1, 1), values([3, 3, 2], -1, 1)),
  ]
}
