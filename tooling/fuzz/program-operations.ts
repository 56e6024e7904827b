/**
 * Operations for random programs, of all families, with what they do to the names of sizes: a program that fits for some sizes fits for
 * all.
 */
import * as mx from "@lazuli/core"

/** A value while a program is put together: its axes as names of sizes, "1" for those of size 1. */
export interface Known {
  readonly axes: readonly string[]
  readonly dtype: mx.Dtype
}
export interface Value extends Known {
  readonly array: mx.Array
}

/** One kind of step: whether it takes such a value, and what it makes of it and of a second one that fits. */
export interface Operation {
  readonly name: string
  readonly takes: (a: Known) => boolean
  /** The second values that go with the first; none are needed where this is missing. */
  readonly with?: (a: Known, b: Known) => boolean
  readonly run: (a: mx.Array, b: mx.Array, k: number) => mx.Array
  readonly axes: (a: readonly string[], b: readonly string[], k: number) => readonly string[]
  /** A small change of its values may make a large one of what it gives, or it has no derivative there. */
  readonly jumps?: true
}

/** Of an operation that jumps. */
const jumping = (operation: Operation): Operation => ({ ...operation, jumps: true })

const isFloat = ({ dtype }: Known): boolean => dtype.kind === "floating"
const isReal = ({ dtype }: Known): boolean => dtype.kind !== "complex"
const isNumber = ({ dtype }: Known): boolean => dtype.kind !== "bool"
const isRealNumber = (a: Known): boolean => isReal(a) && isNumber(a)
const isWide = (a: Known): boolean => isFloat(a) && a.dtype.size >= 4
const isInteger = ({ dtype }: Known): boolean => dtype.kind === "signed" || dtype.kind === "unsigned"
const any = (): boolean => true
const same = (a: readonly string[]): readonly string[] => a
const ranked =
  (least: number, also: (a: Known) => boolean = any) =>
  (a: Known): boolean =>
    a.axes.length >= least && also(a)

/** Axes that broadcast whatever the sizes are, and their result. */
function broadcast(a: readonly string[], b: readonly string[]): readonly string[] | null {
  const out: string[] = []
  for (let i = 1; i <= Math.max(a.length, b.length); i++) {
    const [p, q] = [a.at(-i) ?? "1", b.at(-i) ?? "1"]
    if (p !== q && p !== "1" && q !== "1") return null
    out.unshift(p === "1" ? q : p)
  }
  return out
}
const broadcasts = (a: Known, b: Known): boolean => broadcast(a.axes, b.axes) !== null
const both = (a: readonly string[], b: readonly string[]): readonly string[] => broadcast(a, b) as string[]
const axisOf = (k: number, rank: number): number => k % rank
const without = (axes: readonly string[], at: number): string[] => axes.filter((_, i) => i !== at)
const replaced = (axes: readonly string[], at: number, name: string): string[] =>
  axes.map((axis, i) => (i === at ? name : axis))
const atAxis = (rank: number, axis: number, spec: mx.IndexSpec): mx.IndexSpec[] =>
  Array.from({ length: rank }, (_, i) => (i === axis ? spec : ":"))

type Named = Record<string, (a: mx.Array) => mx.Array>
const atPairs = (rank: number, axis: number, pair: [number, number]): [number, number][] =>
  Array.from({ length: rank }, (_, i): [number, number] => (i === axis ? pair : [0, 0]))

const casts = [mx.float32, mx.float16, mx.bfloat16, mx.float64]

const elementwise = (name: string, takes: Operation["takes"], run: (a: mx.Array) => mx.Array): Operation => ({
  name,
  takes,
  run,
  axes: same,
})
const pairwise = (
  name: string,
  takes: Operation["takes"],
  run: (a: mx.Array, b: mx.Array) => mx.Array,
): Operation => ({ name, takes, with: (a, b) => takes(b) && broadcasts(a, b), run, axes: both })
const reducing = (
  name: string,
  takes: Operation["takes"],
  run: (a: mx.Array, axis: number, keep: boolean) => mx.Array,
): Operation => ({
  name,
  takes: ranked(1, takes),
  run: (a, _b, k) => run(a, axisOf(k, a.ndim), k % 2 === 0),
  axes: (a, _b, k) => {
    const at = axisOf(k, a.length)
    return k % 2 === 0 ? replaced(a, at, "1") : without(a, at)
  },
})
const along = (
  name: string,
  takes: Operation["takes"],
  run: (a: mx.Array, axis: number) => mx.Array,
  axisAfter: (axis: string) => string = (axis) => axis,
): Operation => ({
  name,
  takes: ranked(1, takes),
  run: (a, _b, k) => run(a, axisOf(k, a.ndim)),
  axes: (a, _b, k) => replaced(a, axisOf(k, a.length), axisAfter(a[axisOf(k, a.length)])),
})

export const operations: readonly Operation[] = [
  elementwise("tanh", isReal, (a) => a.tanh()),
  elementwise("sin", any, (a) => a.sin()),
  elementwise("exp of tanh", isReal, (a) => a.tanh().exp().multiply(0.5).add(1)),
  elementwise("erf", isReal, (a) => mx.erf(a)),
  elementwise("log1p of abs", isRealNumber, (a) => a.abs().log1p()),
  elementwise("square", any, (a) => a.square()),
  elementwise("negative", isNumber, (a) => a.negative()),
  elementwise("times 2 plus 1", isNumber, (a) => a.multiply(2).add(1)),
  elementwise("sigmoid", isReal, (a) => a.sigmoid().multiply(a)),
  jumping(elementwise("clip", isRealNumber, (a) => mx.clip(a, 0, 3))),
  jumping(elementwise("to int32", isFloat, (a) => mx.where(a.abs().less(100), a, 7).astype(mx.int32))),
  jumping(elementwise("greater", isReal, (a) => a.greater(0))),
  jumping(elementwise("bits", isInteger, (a) => a.bitwiseAnd(5).leftShift(1))),
  jumping(elementwise("and", any, (a) => a.equal(a.multiply(1)).logicalNot())),
  {
    name: "cast",
    takes: isReal,
    run: (a, _b, k) => a.astype(casts[k % casts.length]),
    jumps: true,
    axes: same,
  },
  pairwise("add", any, (a, b) => a.add(b)),
  pairwise("multiply", any, (a, b) => a.multiply(b)),
  pairwise("subtract", isNumber, (a, b) => a.subtract(b)),
  pairwise("divide", isReal, (a, b) => a.divide(b.square().add(1))),
  jumping(pairwise("maximum", isReal, (a, b) => mx.maximum(a, b))),
  jumping(pairwise("where", isReal, (a, b) => mx.where(a.less(b), a, b))),
  pairwise("logaddexp", isFloat, (a, b) => mx.logaddexp(a, b)),
  jumping(pairwise("floor divide", isInteger, (a, b) => a.floorDivide(b.square().add(1)))),
  pairwise("like", any, (a, b) => a.add(mx.zerosLike(b))),
  reducing("sum", any, (a, axis, keep) => a.sum(axis, keep)),
  reducing("mean", any, (a, axis, keep) => a.mean(axis, keep)),
  jumping(reducing("max", isReal, (a, axis, keep) => a.max(axis, keep))),
  reducing("variance", isFloat, (a, axis, keep) => a.var(axis, keep)),
  jumping(reducing("argmax", isReal, (a, axis, keep) => a.argmax(axis, keep))),
  jumping(reducing("any", any, (a, axis, keep) => mx.any(a, axis, keep))),
  reducing("logsumexp", isFloat, (a, axis, keep) => a.logsumexp(axis, keep)),
  along("softmax", isFloat, (a, axis) => a.softmax(axis)),
  along("minus mean", any, (a, axis) => a.subtract(a.mean(axis, true))),
  jumping(along("sort", isReal, (a, axis) => a.sort(axis))),
  along("cumsum", isNumber, (a, axis) => a.cumsum(axis)),
  along("reversed", any, (a, axis) => a.index(...atAxis(a.ndim, axis, "::-1"))),
  along(
    "every second",
    any,
    (a, axis) => a.index(...atAxis(a.ndim, axis, "::2")),
    (axis) => (axis === "1" ? "1" : `half of ${axis}`),
  ),
  along(
    "twice",
    any,
    (a, axis) => mx.concatenate([a, a.index(...atAxis(a.ndim, axis, "::-1"))], axis),
    (axis) => `two of ${axis}`,
  ),
  along(
    "first and last",
    any,
    (a, axis) => mx.take(a, mx.array([0, -1], mx.int32), axis),
    () => "2",
  ),
  {
    name: "last",
    takes: ranked(1),
    run: (a, _b, k) => a.index(...atAxis(a.ndim, axisOf(k, a.ndim), -1)),
    axes: (a, _b, k) => without(a, axisOf(k, a.length)),
  },
  {
    name: "set",
    takes: ranked(1),
    run: (a, _b, k) => {
      const b = a.multiply(1)
      b.set(atAxis(a.ndim, axisOf(k, a.ndim), 0), 2)
      return b
    },
    axes: same,
  },
  {
    name: "transpose",
    takes: ranked(2),
    run: (a) => a.T,
    axes: (a) => [...a].reverse(),
  },
  {
    name: "new axis",
    takes: ({ axes }) => axes.length < 4,
    run: (a, _b, k) => a.expandDims(k % (a.ndim + 1)),
    axes: (a, _b, k) => [...a.slice(0, k % (a.length + 1)), "1", ...a.slice(k % (a.length + 1))],
  },
  {
    name: "flatten",
    takes: ranked(2),
    run: (a) => a.flatten(-2, -1),
    axes: (a) => {
      const [p, q] = a.slice(-2)
      return [...a.slice(0, -2), p === "1" ? q : q === "1" ? p : `${p} by ${q}`]
    },
  },
  {
    name: "matmul",
    takes: ranked(2, isFloat),
    with: (a, b) => isFloat(b) && b.axes.length === 2 && a.axes.at(-1) === b.axes[0],
    run: (a, b) => a.matmul(b),
    axes: (a, b) => [...a.slice(0, -1), b[1]],
  },
  {
    name: "square product",
    takes: ranked(2, isFloat),
    run: (a) => a.matmul(a.swapaxes(-1, -2)).tanh(),
    axes: (a) => [...a.slice(0, -1), a[a.length - 2]],
  },
  {
    name: "layer norm",
    takes: ranked(1, (a) => isFloat(a) && a.dtype !== mx.float64),
    run: (a) => mx.fast.layerNorm(a, null, null, 1e-3),
    axes: same,
  },
  ...["cos", "arctan", "arcsinh", "expm1"].map((name) =>
    elementwise(name, isReal, (a) => (mx as unknown as Named)[name](a.tanh())),
  ),
  ...["floor", "ceil", "sign", "abs", "isnan", "isfinite", "logicalNot"].map((name) =>
    jumping(elementwise(name, isReal, (a) => (mx as unknown as Named)[name](a))),
  ),
  elementwise("rsqrt", isReal, (a) => a.square().add(1).rsqrt()),
  jumping(elementwise("round", isFloat, (a) => mx.round(a, 1))),
  jumping(elementwise("nanToNum", isFloat, (a) => mx.nanToNum(a))),
  elementwise(
    "to complex",
    (a) => a.dtype === mx.float32,
    (a) => a.astype(mx.complex64).multiply(mx.complex(0.5, 1)),
  ),
  elementwise(
    "real",
    (a) => !isReal(a),
    (a) => a.real,
  ),
  elementwise(
    "imag",
    (a) => !isReal(a),
    (a) => a.imag.add(a.abs()),
  ),
  elementwise("conjugate", any, (a) => mx.conjugate(a)),
  jumping(elementwise("bytes and back", ranked(1), (a) => a.view(mx.uint8).view(a.dtype))),
  jumping(elementwise("stop", any, (a) => mx.stopGradient(a))),
  pairwise("power", isWide, (a, b) => mx.power(a.abs().add(0.5), b.tanh())),
  pairwise("arctan2", isFloat, (a, b) => mx.arctan2(a, b.abs().add(0.5))),
  jumping(pairwise("remainder", isFloat, (a, b) => mx.remainder(a, b.square().add(1)))),
  jumping(pairwise("minimum", isReal, (a, b) => mx.minimum(a, b))),
  jumping(pairwise("equal", any, (a, b) => a.equal(b))),
  jumping(pairwise("less equal", isReal, (a, b) => a.lessEqual(b))),
  jumping(pairwise("shift", isInteger, (a, b) => a.rightShift(b.bitwiseAnd(3)))),
  reducing("prod", isWide, (a, axis, keep) => a.tanh().prod(axis, keep)),
  jumping(reducing("min", isReal, (a, axis, keep) => a.min(axis, keep))),
  jumping(reducing("argmin", isReal, (a, axis, keep) => a.argmin(axis, keep))),
  jumping(reducing("all", any, (a, axis, keep) => mx.all(a, axis, keep))),
  jumping(reducing("median", isFloat, (a, axis, keep) => mx.median(a, axis, keep))),
  reducing("norm", isWide, (a, axis, keep) => mx.linalg.norm(a.add(3), { axis, keepdims: keep })),
  along("cumprod", isWide, (a, axis) => mx.cumprod(a.tanh(), axis)),
  jumping(along("cummax", isReal, (a, axis) => mx.cummax(a, axis))),
  along("logcumsumexp", isFloat, (a, axis) => mx.logcumsumexp(a, axis, { reverse: true })),
  jumping(along("argsort", isReal, (a, axis) => mx.argsort(a, axis))),
  along("roll", any, (a, axis) => mx.roll(a, 2, axis)),
  along(
    "repeat",
    any,
    (a, axis) => mx.repeat(a, 2, axis),
    (axis) => `two of ${axis}`,
  ),
  along(
    "pad",
    any,
    (a, axis) => mx.pad(a, atPairs(a.ndim, axis, [1, 2])),
    (axis) => `3 more than ${axis}`,
  ),
  along(
    "all but the first",
    any,
    (a, axis) => a.index(...atAxis(a.ndim, axis, "1:")),
    (axis) => (axis === "1" ? "0" : `one less than ${axis}`),
  ),
  along("halves", any, (a, axis) => mx.split(mx.concatenate([a, a.multiply(2)], axis), 2, axis)[1]),
  along("take along", any, (a, axis) => mx.takeAlongAxis(a, a.multiply(0).astype(mx.int32), axis)),
  along("put along", any, (a, axis) =>
    mx.putAlongAxis(
      a,
      mx.zerosLike(a.index(...atAxis(a.ndim, axis, ":1"))).astype(mx.int32),
      a.index(...atAxis(a.ndim, axis, ":1")).add(1),
      axis,
    ),
  ),
  along("at add", any, (a, axis) => a.at(...atAxis(a.ndim, axis, mx.array([0, -1, 0], mx.int32))).add(1)),
  along("at multiply", isNumber, (a, axis) => a.at(...atAxis(a.ndim, axis, "::2")).multiply(2)),
  along(
    "fourier",
    (a) => a.dtype === mx.float32,
    (a, axis) => mx.fft.fft(a, null, axis).real,
  ),
  along("set every second", any, (a, axis) => {
    const b = a.index("...")
    b.set(atAxis(a.ndim, axis, "1::2"), a.index(...atAxis(a.ndim, axis, "1::2")))
    return b
  }),
  {
    name: "swap",
    takes: ranked(2),
    run: (a, _b, k) => a.swapaxes(axisOf(k, a.ndim), -1),
    axes: (a, _b, k) => {
      const at = axisOf(k, a.length)
      return a.map((axis, i) => (i === at ? a[a.length - 1] : i === a.length - 1 ? a[at] : axis))
    },
  },
  {
    name: "stack",
    takes: ({ axes }) => axes.length < 4,
    with: (a, b) => a.axes.join() === b.axes.join(),
    run: (a, b, k) => mx.stack([a, b, a], k % (a.ndim + 1)),
    axes: (a, _b, k) => [...a.slice(0, k % (a.length + 1)), "3", ...a.slice(k % (a.length + 1))],
  },
  {
    name: "outer",
    takes: (a) => isFloat(a) && a.axes.length === 1,
    with: (_a, b) => isFloat(b) && b.axes.length === 1,
    run: (a, b) => mx.outer(a, b),
    axes: (a, b) => [a[0], b[0]],
  },
  {
    name: "broadcast beside",
    takes: ({ axes }) => axes.length < 4,
    run: (a) => mx.broadcastArrays(a, mx.zeros([2, ...Array(a.ndim).fill(1)]))[0],
    axes: (a) => ["2", ...a],
  },
  {
    name: "diagonal",
    takes: ({ axes }) => axes.length === 1,
    run: (a) => mx.diag(a),
    axes: (a) => [a[0], a[0]],
  },
  {
    name: "lower triangle",
    takes: ranked(2),
    run: (a, _b, k) => mx.tril(a, (k % 3) - 1),
    axes: same,
  },
  {
    name: "einsum",
    takes: (a) => isFloat(a) && a.axes.length === 2,
    with: (a, b) => isFloat(b) && b.axes.length === 1 && a.axes[1] === b.axes[0],
    run: (a, b) => mx.einsum("ij,j->ji", a, b),
    axes: (a) => [a[1], a[0]],
  },
  {
    name: "addmm",
    takes: ranked(2, (a) => isFloat(a) && a.axes.length === 2),
    run: (a) => mx.addmm(a.index(":", ":1"), a, a.T, { alpha: 0.5, beta: 2 }).tanh(),
    axes: (a) => [a[0], a[0]],
  },
  {
    name: "attention",
    takes: (a) => isFloat(a) && a.axes.length === 2 && a.dtype !== mx.float64,
    run: (a) => {
      const q = a.expandDims([0, 1])
      return mx.fast.scaledDotProductAttention(q, q, q, { scale: 0.5 }).squeeze([0, 1])
    },
    axes: same,
  },
  {
    name: "rms norm",
    takes: ranked(1, (a) => isFloat(a) && a.dtype !== mx.float64),
    run: (a) => mx.fast.rmsNorm(a, null, 1e-3),
    axes: same,
  },
  {
    name: "convolution",
    takes: (a) => a.dtype === mx.float32 && a.axes.length === 3,
    run: (a) => {
      const one = mx.take(a, mx.array([0, 0], mx.int32), 0).index(":", ":1")
      return mx.conv1d(a, mx.concatenate([one, one, one], 1), 1, 1)
    },
    axes: (a) => [a[0], a[1], "2"],
  },
  {
    name: "shuffled",
    takes: ranked(1),
    run: (a, _b, k) => mx.random.permutation(a, { axis: axisOf(k, a.ndim), key: mx.random.key(k) }),
    axes: same,
  },
]

/** A program: each step has a kind, where to look for its values, and a number for whatever else it must choose. */
export type Steps = readonly (readonly [kind: number, first: number, second: number, k: number])[]

/** An operation and the positions of its values. */
export interface Choice {
  readonly operation: Operation
  readonly a: number
  readonly b: number
  readonly k: number
}

/** The step that numbers stand for, given what there is: the first kind and values from there on that fit. */
export function choose(values: readonly Known[], [kind, i, j, k]: Steps[number]): Choice | null {
  const from = (n: number, start: number): number[] => Array.from({ length: n }, (_, t) => (start + t) % n)
  for (const o of from(operations.length, kind)) {
    const operation = operations[o]
    // Later values first, so that programs get deep.
    for (const a of from(values.length, i).reverse()) {
      if (!operation.takes(values[a])) continue
      const b = operation.with
        ? from(values.length, j).find((at) => operation.with?.(values[a], values[at]))
        : a
      if (b !== undefined) return { operation, a, b, k }
    }
  }
  return null
}
