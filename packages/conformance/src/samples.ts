/**
 * Functions with inputs at which they are smooth: at least one for every differentiable primitive of core. The tests compare their
 * derivatives with finite differences, their batches with loops, and backends' kernels with their reference. A new op gets a line here.
 */
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { checkpoint } from "@lazuli/transforms"
import { numbers, values } from "./check/values"
import { complexLinalgSamples, linalgSamples } from "./linalg-samples"

/** A function of float64 arrays and arrays to try it on. */
export interface Sample {
  readonly name: string
  readonly f: (...xs: mx.Array[]) => mx.Array
  readonly inputs: mx.Array[]
  /** True where the result is of fewer bits than the arguments: too coarse for finite differences. */
  readonly coarse?: boolean
}

type Unary = (x: mx.Array) => mx.Array
const table = mx as unknown as Record<string, Unary>

/** Functions of one argument, with where they are smooth. */
const unary: [name: string, low?: number, high?: number][] = [
  ..."negative abs sign floor ceil sqrt rsqrt square reciprocal exp expm1 log log2 log10 log1p sin cos tan"
    .split(" ")
    .map((name): [string] => [name]),
  ..."arcsin arccos arctan sinh cosh tanh arcsinh arctanh erf erfinv sigmoid conjugate degrees radians"
    .split(" ")
    .map((name): [string] => [name]),
  ["roundToInteger", 0.6, 1.4],
  ["arccosh", 1.2, 3],
  ["abs", -0.9, -0.1],
  ["real"],
  ["stopGradient", 1, 1],
]
const binary =
  "add subtract multiply divide remainder power maximum minimum arctan2 logaddexp floorDivide".split(" ")
const scans = ["cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"]

const sample = (name: string, f: Sample["f"], ...inputs: mx.Array[]): Sample => ({ name, f, inputs })
const x23 = values([2, 3])
const y23 = values([2, 3], 1.1, 2.3, 2)
const matrix = values([3, 4], -1, 1, 3)
const index = mx.array([1, 0, 1], mx.int32)
const spots = mx.array([[1, 0, 0]], mx.int32)
const modes = ["add", "subtract", "multiply", "divide", "maximum", "minimum"] as const
const optional = (name: string, make: (f: (...args: never[]) => mx.Array) => Sample[]): Sample[] => {
  const f = (mx as unknown as Record<string, unknown>)[name]
  return typeof f === "function" ? make(f as (...args: never[]) => mx.Array) : []
}

/** All samples. */
export const samples: Sample[] = [
  ...unary.flatMap(([name, low, high]) =>
    optional(name, () => [sample(name, table[name], values([2, 3], low, high))]),
  ),
  ...binary.flatMap((name) => [
    sample(name, (mx as unknown as Record<string, Sample["f"]>)[name], x23, y23),
    sample(
      `${name} with broadcasting`,
      (mx as unknown as Record<string, Sample["f"]>)[name],
      values([2, 1, 3]),
      values([4, 1], 1.1, 2, 5),
    ),
  ]),
  sample("where", (x, y) => mx.where(mx.array([true, false, true]), x, y), x23, values([1, 3])),
  sample("astype", (x) => x.astype(mx.float32).astype(mx.float64).multiply(0).add(x.astype(mx.float64)), x23),
  sample("imag", (x) => x.imag.add(x), x23),

  sample("reshape", (x) => x.reshape([3, 2]).square(), x23),
  sample("flatten", (x) => x.flatten(0, 1).square(), values([2, 2, 2])),
  sample("unflatten", (x) => x.unflatten(1, [3, 1]).square(), x23),
  sample("transpose", (x) => x.transpose([2, 0, 1]).square(), values([2, 3, 2])),
  sample("expandDims", (x) => x.expandDims([0, 2]).square(), x23),
  sample("squeeze", (x) => x.squeeze(1).square(), values([2, 1, 3])),
  sample("contiguous", (x) => mx.contiguous(x.T).square(), x23),
  sample("broadcastTo", (x) => x.broadcastTo([4, 2, 3]).square(), values([2, 1])),
  sample("concatenate", (x, y) => mx.concatenate([x, y, x], 1).square(), x23, values([2, 2])),
  sample("stack", (x, y) => mx.stack([x, y], 1).square(), x23, y23),
  sample("index", (x) => x.index("::-1", "0:3:2").square(), values([2, 3])),

  sample("sum", (x) => x.sum(1), x23),
  sample("sum of everything", (x) => x.sum(), x23),
  sample("mean", (x) => x.mean(0, true), x23),
  sample("prod", (x) => x.prod(1), x23),
  sample("prod with a zero", (x) => x.multiply(mx.array([0, 1, 1])).prod(1), x23),
  sample("max", (x) => x.max(1), values([2, 3], 0, 5)),
  sample("min", (x) => x.min([0, 1]), values([2, 3], 0, 5)),
  sample("var", (x) => x.var(1), x23),
  sample("std", (x) => x.std(1, false, 1), x23),
  sample("softmax", (x) => mx.softmax(x, 0), x23),
  sample("softmax of both axes", (x) => mx.softmax(x, [0, 1]), x23),
  sample("logsumexp", (x) => mx.logsumexp(x, 1), x23),
  ...scans.flatMap((name) =>
    optional(name, (f) => [
      sample(name, (x) => f(x as never, 1 as never), values([2, 4], 0.3, 2)),
      sample(
        `${name} reversed and exclusive`,
        (x) => f(x as never, 0 as never, true as never, false as never).index("0:2"),
        values([3, 2], 0.3, 2),
      ),
    ]),
  ),
  sample("sort", (x) => mx.sort(x, 0), values([3, 2], 0, 5)),
  sample("median", (x) => mx.median(x, 1), values([2, 3], 0, 5)),

  sample("matmul", (a, b) => a.matmul(b), x23, matrix),
  sample("matmul of batches", (a, b) => a.matmul(b), values([2, 1, 2, 3]), values([3, 3, 2])),
  ...[0.5, 1, 2, 3, Number.POSITIVE_INFINITY].map((p) =>
    sample(`cdist with p = ${p}`, (x, y) => mx.cdist(x, y, p), values([2, 3]), values([4, 3], 3, 5, 2)),
  ),
  ...segments(),
  ...ragged(),
  ...sparse(),
  sample("hadamardTransform", (x) => mx.hadamardTransform(x), values([2, 4])),
  sample("einsum", (a, b) => mx.einsum("ij,kj->ik", a, b), x23, values([2, 3], -1, 1, 4)),
  sample("matmul of vectors", (a, b) => a.matmul(b), values([3]), values([3])),
  ...products(),
  sample(
    "conv",
    (a, b) => mx.convGeneral(a, b, { stride: 2, padding: 1, groups: 2, flip: true }),
    values([2, 5, 4]),
    values([2, 3, 2]),
  ),
  ...quantized(),
  sample("addmm", (c, a, b) => mx.addmm(c, a, b, 0.5, 3), values([4]), x23, matrix),

  sample("take", (x) => mx.take(x, index, 0).square(), x23),
  sample("index by arrays", (x) => x.index(index, "::2").square(), x23),
  sample("takeAlongAxis", (x) => mx.takeAlongAxis(x, spots, 0).square(), x23),
  sample("putAlongAxis", (x, y) => mx.putAlongAxis(x, spots, y, 0).square(), x23, values([1, 3])),
  sample("set", (x, y) => set(x, ["0:1", "1:"], y).square(), x23, values([1, 2])),
  sample("at add", (x, y) => x.at(index).add(y).square(), x23, values([3, 3])),
  ...modes.flatMap((mode) => [
    sample(
      `at ${mode} by repeated indices`,
      (x, y) => x.at(index)[mode](y).square(),
      x23,
      values([3, 3], 0.3, 2, 9),
    ),
    sample(
      `at ${mode} of a range`,
      (x, y) => x.at(":", "0:3:2")[mode](y).square(),
      x23,
      values([2, 2], 0.3, 2, 9),
    ),
    sample(
      `at ${mode} by indices and ranges`,
      (x, y) => x.at(":", spots, "::-1")[mode](y).square(),
      values([2, 2, 2]),
      values([2, 1, 3, 2], 0.3, 2, 9),
    ),
  ]),
  sample("scatter by set", (x, y) => set(x, [mx.array([1, 0], mx.int32)], y).square(), x23, values([2, 3])),
  sample(
    "pad",
    (x, v) =>
      mx
        .pad(
          x,
          [
            [1, 2],
            [0, 1],
          ],
          "constant",
          v,
        )
        .square(),
    x23,
    values([]),
  ),
  sample(
    "pad by mirroring",
    (x) =>
      mx
        .pad(
          x,
          [
            [1, 0],
            [2, 1],
          ],
          "symmetric",
        )
        .square(),
    x23,
  ),
  sample("hadamardTransform", (x) => mx.hadamardTransform(x).square(), values([2, 4])),
  sample(
    "compiled call",
    compile((x: mx.Array, y: mx.Array) => x.exp().multiply(y).sum(0, true).add(x.sin())),
    x23,
    y23,
  ),
  sample("checkpoint", (x, y) => checkpoint((u: mx.Array) => u.sin().multiply(y))(x), x23, y23),
  sample("depends", (x, y) => mx.depends(x, [y]).square(), x23, x23),
  sample(
    "layerNorm",
    (x, w, b) => mx.fast.layerNorm(x, w, b, 1e-5),
    values([2, 4]),
    values([4]),
    values([4]),
  ),
  sample("rmsNorm", (x, w) => mx.fast.rmsNorm(x, w, 1e-5), values([2, 4]), values([4])),
  sample(
    "rope",
    (x) => mx.fast.rope(x, 4, { traditional: false, base: 100, scale: 1, offset: 1 }),
    values([1, 2, 3, 4], -1, 1),
  ),
  sample(
    "scaledDotProductAttention",
    (q, k, v) => mx.fast.scaledDotProductAttention(q, k, v, { scale: 0.7 }),
    values([1, 2, 3, 4], -1, 1, 1),
    values([1, 1, 3, 4], -1, 1, 2),
    values([1, 1, 3, 4], -1, 1, 3),
  ),
  sample(
    "causal attention",
    (q, k, v) => mx.fast.scaledDotProductAttention(q, k, v, { scale: 0.7, mask: "causal" }),
    values([1, 2, 3, 4], -1, 1, 1),
    values([1, 2, 3, 4], -1, 1, 2),
    values([1, 2, 3, 4], -1, 1, 3),
  ),
  sample(
    "attention with sinks",
    (q, k, v, sinks) => mx.fast.scaledDotProductAttention(q, k, v, { scale: 0.7, mask: "causal", sinks }),
    values([2, 2, 3, 4], -1, 1, 1),
    values([2, 1, 3, 4], -1, 1, 2),
    values([2, 1, 3, 4], -1, 1, 3),
    values([2], -1, 1, 4),
  ),
  ...linalgSamples(values).map((parts) => sample(...parts)),
]

const flags = mx.array([true, false, true])
const wholes = mx.array(
  [
    [5, 3, 9],
    [2, 7, 4],
  ],
  mx.int32,
)
const others = mx.array([1, 4, 2], mx.int32)
const complexes = mx
  .array(numbers(6, -1, 1, 3))
  .add(mx.array(numbers(6, 0.5, 1, 4)).multiply(mx.complex(0, 1)))

/**
 * Primitives without a derivative, or without one by a real number: functions of other dtypes, and those whose results are integers or
 * bools.
 */
export const discreteSamples: Sample[] = [
  ..."equal notEqual less lessEqual greater greaterEqual logicalAnd logicalOr"
    .split(" ")
    .map((name) => sample(name, (mx as unknown as Record<string, Sample["f"]>)[name], x23, values([1, 3]))),
  ..."bitwiseAnd bitwiseOr bitwiseXor leftShift rightShift add floorDivide remainder maximum"
    .split(" ")
    .map((name) => sample(name, (mx as unknown as Record<string, Sample["f"]>)[name], wholes, others)),
  ...["bitwiseInvert", "negative", "sign", "abs"].map((name) => sample(name, table[name], wholes)),
  sample("logicalNot", (x) => mx.logicalNot(x), flags),
  sample("isnan", (x) => mx.isnan(x), x23),
  ...["sum", "prod", "max", "min", "all", "any", "argmax", "argmin"].map((name) =>
    sample(
      name,
      (x) => (mx as unknown as Record<string, (x: mx.Array, axis: number) => mx.Array>)[name](x, 1),
      wholes,
    ),
  ),
  sample("argmax of floats", (x) => mx.argmax(x, 0), x23),
  sample("argsort", (x) => mx.argsort(x, 1), x23),
  sample("argpartition", (x) => mx.argpartition(x, 1, 0), x23),
  sample("sort of integers", (x) => mx.sort(x, 1), wholes),
  sample("cumsum of integers", (x) => mx.cumsum(x, 1), wholes),
  sample(
    "searchsorted",
    (a, v) => mx.searchsorted(a, v),
    mx.array(Float64Array.of(0.1, 0.4, 0.6)),
    values([2, 2]),
  ),
  sample(
    "segmentSum of integers by lengths",
    (x, lengths) => mx.segmentSum(x.T, { lengths }),
    wholes,
    mx.array([1, 0, 2], mx.int32),
  ),
  sample("view", (x) => x.view(mx.uint32), wholes),
  sample("random bits", (key) => mx.random.bits({ shape: [3], key }), mx.random.key(5)),
  sample(
    "complex products",
    (x, y) => x.conjugate().multiply(y).add(x.real).add(y.imag),
    complexes,
    complexes,
  ),
  ...complexLinalgSamples(values).map((parts) => sample(...parts)),
  sample("fft", (x) => mx.fft.fft2(x.reshape([2, 3])), complexes),
  sample("ifft", (x) => mx.fft.ifft(x), complexes),
  ...[4, 5].flatMap((n) => [
    sample(`rfft of ${n}`, (x) => mx.fft.rfft(x), values([2, n]).astype(mx.float32)),
    sample(`irfft to ${n}`, (x) => mx.fft.irfft2(x.reshape([2, 3]), [2, n]), complexes),
  ]),
  sample("complex to real", (x) => x.abs().add(x.real).add(x.imag), complexes),
  sample("toFp8", (x) => mx.toFp8(x), x23),
  sample("fromFp8", (x) => mx.fromFp8(x, mx.float64), mx.array([[1, 100, 255]], mx.uint8)),
  sample("codes of quantize", (x) => mx.quantize(x, 32)[0], values([2, 32])),
]

/** Runs of several lengths, and what repeats, picks and writes by numbers. */
function ragged(): Sample[] {
  const rows = values([5, 2], -1, 1, 6)
  const lengths = mx.array([2, 0, 3], mx.int32)
  const counts = mx.array([2, 0, 1], mx.int32)
  return [
    sample("padSegments", (x) => mx.padSegments(x, { lengths, maxLength: 4, value: 2 }).square(), rows),
    sample(
      "unpadSegments",
      (x) => mx.unpadSegments(x, { lengths, totalLength: 5 }).square(),
      values([3, 3, 2]),
    ),
    sample("repeat by counts", (x) => mx.repeat(x, counts, { axis: 1, totalLength: 3 }).square(), x23),
    sample("topk with indices", (x) => mx.topk(x, 2, { returnIndices: true })[0], values([2, 4], 0, 5)),
    ...(["set", "sum", "prod", "max", "min"] as const).map((reduction) =>
      sample(
        `scatter by ${reduction}`,
        (x, y) => mx.scatter(x, index, y, 1, { reduction }).square(),
        x23,
        values([2, 3], 0.3, 2, 9),
      ),
    ),
  ]
}

/** Sparse products, with a row without values and a position with two. */
function sparse(): Sample[] {
  const offsets = mx.array([0, 2, 2, 5], mx.int32)
  const rows = mx.array([2, 0, 2, 2, 0], mx.int32)
  const columns = mx.array([1, 3, 0, 1, 1], mx.int32)
  const [v, dense] = [values([5], -1, 1, 4), values([4, 3], -1, 1, 5)]
  return [
    sample("csrMatmul", (x, y) => mx.csrMatmul(x, columns, offsets, y).square(), v, dense),
    sample("cooMatmul", (x, y) => mx.cooMatmul(x, rows, columns, y, { numRows: 4 }).square(), v, dense),
    sample(
      "cooMatmul by a vector",
      (x, y) => mx.cooMatmul(x, rows, columns, y, { numRows: 3 }),
      v,
      values([4]),
    ),
    sample(
      "sampledMatmul",
      (x, y) => mx.sampledMatmul(x, y, rows, columns).square(),
      values([3, 3], -1, 1, 6),
      dense,
    ),
  ]
}

/** Rows that belong together, in each way that segments are given, one of them empty. */
function segments(): Sample[] {
  const rows = values([5, 2], -1, 1, 6)
  const ids = mx.array([2, 0, 2, 0, 3], mx.int32)
  const lengths = mx.array([2, 0, 3], mx.int32)
  const finite = (y: mx.Array): mx.Array => mx.where(mx.isfinite(y), y, 0).square()
  const { segmentSum, segmentMean, segmentMax, segmentMin, segmentSoftmax } = mx
  const functions = { segmentSum, segmentMean, segmentMax, segmentMin, segmentSoftmax }
  return Object.entries(functions).flatMap(([name, f]) => [
    sample(`${name} by ids`, (x) => finite(f(x, ids, { numSegments: 4 })), rows),
    sample(`${name} by lengths`, (x) => finite(f(x, { lengths })), rows),
  ])
}

/** Products of chosen matrices and of blocks. */
function products(): Sample[] {
  const lhsIndices = mx.array([[1, 0, -1]], mx.int32)
  const rhsIndices = mx.array([[0], [3]], mx.uint32)
  const segments = mx.array(
    [
      [0, 2],
      [1, 9],
      [2, 2],
    ],
    mx.int32,
  )
  const kept = mx.array([[true, false]])
  return [
    sample(
      "gatherMm",
      (a, b) => mx.gatherMm(a, b, { lhsIndices, rhsIndices }),
      values([2, 2, 3], -1, 1, 1),
      values([2, 2, 3, 2], -1, 1, 2),
    ),
    sample("segmentedMm", (a, b) => mx.segmentedMm(a, b, segments), x23, matrix),
    sample(
      "blockMaskedMm",
      (a, b, m) => mx.blockMaskedMm(a, b, 32, { maskOut: kept, maskLhs: m }),
      values([2, 40], -1, 1, 1),
      values([40, 33], -1, 1, 2),
      values([1, 2], 0.5, 1.5, 3),
    ),
  ]
}

/** Products with packed weights, by everything that is not packed. */
function quantized(): Sample[] {
  const [w, scales, biases] = mx.quantize(values([2, 3, 32], -1, 1, 7), { groupSize: 32, bits: 3 })
  const [floats, powers] = mx.quantize(values([2, 3, 32], -1, 1, 7), { mode: "nvfp4" })
  const q = { groupSize: 32, bits: 3 }
  const x = values([2, 2, 32], -1, 1, 8)
  const y = values([2, 3], -1, 1, 9)
  const lhsIndices = mx.array([1, 0, 1], mx.int32)
  const rhsIndices = mx.array([0, 1, 1], mx.int32)
  return [
    sample("quantize", (a) => mx.quantize(a, q)[1].add(mx.quantize(a, q)[2].square()), x),
    sample("dequantize", (s, b) => mx.dequantize(w, s, b, q).square(), scales, biases),
    {
      name: "dequantize to float32",
      f: (s, b) => mx.dequantize(w, s, b, { ...q, dtype: mx.float32 }).square(),
      inputs: [scales, biases],
      coarse: true,
    },
    sample("quantizedMatmul", (a, s, b) => mx.quantizedMatmul(a, w, s, b, q), x, scales, biases),
    sample(
      "quantizedMatmul, not transposed",
      (a, s, b) => mx.quantizedMatmul(a, w.index(0), s, b, { transpose: false, ...q }),
      y,
      scales.index(0),
      biases.index(0),
    ),
    sample("quantizedMatmul of floats", (a) => mx.quantizedMatmul(a, floats, powers, { mode: "nvfp4" }), x),
    sample(
      "gatherQmm",
      (a, s, b) => mx.gatherQmm(a, w, s, b, { lhsIndices, rhsIndices, ...q }),
      x,
      scales,
      biases,
    ),
    sample(
      "gatherQmm of floats",
      (a) => mx.gatherQmm(a, floats, powers, { rhsIndices, lhsIndices, mode: "nvfp4" }),
      x,
    ),
  ]
}

function set(x: mx.Array, index: mx.IndexSpec[], value: mx.Array): mx.Array {
  const copy = mx.array(x)
  copy.set(index, value)
  return copy
}
