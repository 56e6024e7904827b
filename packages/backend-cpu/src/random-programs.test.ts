/**
 * Random programs over several inputs of several dtypes, with broadcasts, reductions, views, products and casts: eager, compiled,
 * shapeless and imported ones give the same bits, shapeless and imported ones at sizes that they were not traced for. A failure shows the
 * shortest program. `LAZULI_PROPERTY_RUNS=20000` looks longer.
 */
import { rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { compile, exportFunction, importFunction } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import fc from "fast-check"
import { afterAll, expect, test, vi } from "vitest"
import "./index"

/** A value while a program is put together: its axes as names of sizes, "1" for those of size 1. */
interface Known {
  readonly axes: readonly string[]
  readonly dtype: mx.Dtype
}
interface Value extends Known {
  readonly array: mx.Array
}

/** One kind of step: whether it takes such a value, and what it makes of it and of a second one that fits. */
interface Operation {
  readonly name: string
  readonly takes: (a: Known) => boolean
  /** Which second values go with the first; none are needed where this is missing. */
  readonly with?: (a: Known, b: Known) => boolean
  readonly run: (a: mx.Array, b: mx.Array, k: number) => mx.Array
  readonly axes: (a: readonly string[], b: readonly string[], k: number) => readonly string[]
}

const isFloat = ({ dtype }: Known): boolean => dtype.kind === "floating"
const isReal = ({ dtype }: Known): boolean => dtype.kind !== "complex"
const isNumber = ({ dtype }: Known): boolean => dtype.kind !== "bool"
const isRealNumber = (a: Known): boolean => isReal(a) && isNumber(a)
const isInteger = ({ dtype }: Known): boolean => dtype.kind === "signed" || dtype.kind === "unsigned"
const any = (): boolean => true
const same = (a: readonly string[]): readonly string[] => a
const ranked =
  (least: number, also: (a: Known) => boolean = any) =>
  (a: Known): boolean =>
    a.axes.length >= least && also(a)

/** Whether axes broadcast whatever the sizes are, and to what. */
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

const operations: Operation[] = [
  elementwise("tanh", isReal, (a) => a.tanh()),
  elementwise("sin", any, (a) => a.sin()),
  elementwise("exp of tanh", isReal, (a) => a.tanh().exp().multiply(0.5).add(1)),
  elementwise("erf", isReal, (a) => mx.erf(a)),
  elementwise("log1p of abs", isRealNumber, (a) => a.abs().log1p()),
  elementwise("square", any, (a) => a.square()),
  elementwise("negative", isNumber, (a) => a.negative()),
  elementwise("times 2 plus 1", isNumber, (a) => a.multiply(2).add(1)),
  elementwise("sigmoid", isReal, (a) => a.sigmoid().multiply(a)),
  elementwise("clip", isRealNumber, (a) => mx.clip(a, 0, 3)),
  elementwise("to int32", isFloat, (a) => a.tanh().multiply(7).astype(mx.int32)),
  elementwise("greater", isReal, (a) => a.greater(0)),
  elementwise("bits", isInteger, (a) => a.bitwiseAnd(5).leftShift(1)),
  elementwise("and", any, (a) => a.equal(a.multiply(1)).logicalNot()),
  {
    name: "cast",
    takes: isReal,
    run: (a, _b, k) => a.astype(casts[k % casts.length]),
    axes: same,
  },
  pairwise("add", any, (a, b) => a.add(b)),
  pairwise("multiply", any, (a, b) => a.multiply(b)),
  pairwise("subtract", isNumber, (a, b) => a.subtract(b)),
  pairwise("divide", isReal, (a, b) => a.divide(b.square().add(1))),
  pairwise("maximum", isReal, (a, b) => mx.maximum(a, b)),
  pairwise("where", isReal, (a, b) => mx.where(a.less(b), a, b)),
  pairwise("logaddexp", isFloat, (a, b) => mx.logaddexp(a, b)),
  pairwise("floor divide", isInteger, (a, b) => a.floorDivide(b.square().add(1))),
  pairwise("like", any, (a, b) => a.add(mx.zerosLike(b))),
  reducing("sum", any, (a, axis, keep) => a.sum(axis, keep)),
  reducing("mean", any, (a, axis, keep) => a.mean(axis, keep)),
  reducing("max", isReal, (a, axis, keep) => a.max(axis, keep)),
  reducing("variance", isFloat, (a, axis, keep) => a.var(axis, keep)),
  reducing("argmax", isReal, (a, axis, keep) => a.argmax(axis, keep)),
  reducing("any", any, (a, axis, keep) => mx.any(a, axis, keep)),
  reducing("logsumexp", isFloat, (a, axis, keep) => a.logsumexp(axis, keep)),
  along("softmax", isFloat, (a, axis) => a.softmax(axis)),
  along("minus mean", any, (a, axis) => a.subtract(a.mean(axis, true))),
  along("sort", isReal, (a, axis) => a.sort(axis)),
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
]

/** A program: each step has a kind, where to look for its values, and a number for whatever else it must choose. */
type Steps = readonly (readonly [kind: number, first: number, second: number, k: number])[]

/** The step that numbers stand for, given what there is: the first kind and values from there on that fit. */
function choose(
  values: readonly Known[],
  [kind, i, j, k]: Steps[number],
): { operation: Operation; a: number; b: number; k: number } | null {
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

const inputs: readonly (readonly string[])[] = [["b", "m"], ["m", "n"], ["n"], ["b", "1", "m"], []]
const dtypesOf = [
  mx.float32,
  mx.float16,
  mx.bfloat16,
  mx.int32,
  mx.float64,
  mx.uint8,
  mx.bool_,
  mx.int64,
  mx.complex64,
]
type Sizes = Readonly<Record<string, number>>
const traced: Sizes = { b: 3, m: 4, n: 5, 1: 1 }
const others: Sizes[] = [
  { b: 6, m: 2, n: 17, 1: 1 },
  { b: 1, m: 33, n: 1, 1: 1 },
]

function arraysFor(sizes: Sizes, dtypes: readonly number[]): mx.Array[] {
  return inputs.map((axes, n) => {
    const shape = axes.map((axis) => sizes[axis])
    const count = shape.reduce((p, q) => p * q, 1)
    const dtype = dtypesOf[dtypes[n]]
    const numbers = Array.from({ length: count }, (_, i) => 3 * Math.sin(1.7 * i + n))
    const whole =
      dtype.kind === "floating" || dtype.kind === "complex"
        ? numbers
        : numbers.map((x) => Math.abs(Math.round(x)))
    return mx.array(whole).astype(dtype).reshape(shape)
  })
}

const programs = fc
  .record({
    steps: fc.array(fc.tuple(fc.nat(200), fc.nat(200), fc.nat(200), fc.nat(11)), {
      minLength: 1,
      maxLength: 16,
    }),
    dtypes: fc.tuple(...inputs.map(() => fc.nat(dtypesOf.length - 1))),
    outputs: fc.array(fc.nat(200), { minLength: 1, maxLength: 3 }),
  })
  .map(({ steps, dtypes, outputs }) => {
    const lines: string[] = []
    /** Runs the steps; what is chosen depends on dtypes and names of sizes, not on sizes. */
    const f = (...given: mx.Array[]): mx.Array[] => {
      const values: Value[] = given.map((array, i) => ({ array, axes: inputs[i], dtype: array.dtype }))
      lines.length = 0
      for (const step of steps) {
        const chosen = choose(values, step)
        if (!chosen) continue
        const { operation, k } = chosen
        const [a, b] = [values[chosen.a], values[chosen.b]]
        const array = operation.run(a.array, b.array, k)
        const axes = operation.axes(a.axes, b.axes, k)
        lines.push(
          `v${values.length} = ${operation.name}(v${chosen.a}${operation.with ? `, v${chosen.b}` : ""}; ${k}): ${array.dtype.name}[${axes}]`,
        )
        values.push({ array, axes, dtype: array.dtype })
      }
      const made = values.length - inputs.length
      return outputs.map(
        (o, i) => values[i === 0 || made === 0 ? values.length - 1 : o % values.length].array,
      )
    }
    const shown = (): string => {
      f(...arraysFor(traced, dtypes))
      return [`inputs ${inputs.map((axes, i) => `${dtypesOf[dtypes[i]].name}[${axes}]`)}`, ...lines].join(
        "\n",
      )
    }
    return { f, dtypes, [fc.toStringMethod]: shown }
  })

const bits = (arrays: readonly mx.Array[]): unknown[] =>
  arrays.map((a) => [a.shape, a.dtype.name, [...(a.toTypedArray() as Iterable<number | bigint>)]])

const file = join(tmpdir(), `lazuli-random-program-${process.pid}.lazuli`)
afterAll(() => rmSync(file, { force: true }))

const asked = process.env.LAZULI_PROPERTY_RUNS

test(
  "random programs give eager's bits compiled, shapeless and from a file, at other sizes too",
  () => {
    vi.spyOn(process, "emitWarning").mockImplementation(() => {})
    fc.assert(
      fc.property(programs, ({ f, dtypes }) => {
        const xs = arraysFor(traced, dtypes)
        const want = bits(f(...xs))
        const compiled = compile((...ys: mx.Array[]) => f(...ys))
        expect(bits(compiled(...xs)), "compiled").toEqual(want)
        expect(bits(compiled(...xs)), "compiled, second call").toEqual(want)
        const shapeless = compile((...ys: mx.Array[]) => f(...ys), { shapeless: true })
        expect(bits(shapeless(...xs)), "shapeless").toEqual(want)
        exportFunction(file, f, xs, { shapeless: true })
        const imported = importFunction<mx.Array[], mx.Array[]>(file)
        expect(bits(imported(...xs)), "imported").toEqual(want)
        for (const sizes of others) {
          const ys = arraysFor(sizes, dtypes)
          const elsewhere = bits(f(...ys))
          expect(bits(shapeless(...ys)), `shapeless, ${JSON.stringify(sizes)}`).toEqual(elsewhere)
          expect(bits(imported(...ys)), `imported, ${JSON.stringify(sizes)}`).toEqual(elsewhere)
        }
        expect(shapeless.stats().traces).toBe(1)
      }),
      asked === undefined ? { numRuns: 150, seed: 7 } : { numRuns: Number(asked) },
    )
  },
  asked === undefined ? 60_000 : 1000 * Number(asked),
)
