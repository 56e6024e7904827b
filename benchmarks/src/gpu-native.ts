/**
 * Applications that reach every branch of the kernels written for CUDA (packages/backend-cuda/kernels) at small sizes: formats, masks, rows
 * and features, blocks that are not full, and several blocks where kernels share work. Which of a few kernels takes an application depends
 * on the GPU and on the libraries that are there. Kernels of factorizations and transforms are reached by MLX's recorded cases.
 */
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { determinism } from "@lazuli/core/engine"
import * as nn from "@lazuli/nn"
import { grad } from "@lazuli/transforms"

export interface Application {
  readonly name: string
  /** Differences to the CPU's results, of the largest of each. */
  readonly tolerance: number
  run(): mx.Array[]
}

export const wave = (shape: readonly number[], dtype: mx.Dtype, phase: number): mx.Array =>
  mx
    .array(
      Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, i) => Math.sin(i * 0.7 + phase)),
    )
    .reshape([...shape])
    .astype(dtype)

const TOLERANCES: Readonly<Record<string, number>> = { float32: 1e-4, float16: 1e-2, bfloat16: 5e-2 }
export const toleranceOf = ({ name }: mx.Dtype): number => TOLERANCES[name]
const halves = [mx.bfloat16, mx.float16]
const floats = [...halves, mx.float32]

/** The results of a compiled function, of which the third call replays what the second recorded. */
function compiled(f: (x: mx.Array) => mx.Array[], x: mx.Array): mx.Array[] {
  const g = compile(f)
  return [0, 1, 2].flatMap((call) => {
    const made = g(x.add(call))
    mx.eval(made)
    return made
  })
}

/** Work on a product that its kernel may end with. */
const endings: Readonly<Record<string, (y: mx.Array) => mx.Array>> = {
  clamped: (y) => mx.maximum(y, 0),
  scaled: (y) => y.multiply(0.25),
  "as a gelu": (y) => nn.geluApprox(y),
}

/** More rows than those kernels take, which cuBLASLt multiplies where it is there, with work at the end and a row that is added. */
function* endedProducts(): Generator<Application> {
  for (const dtype of floats)
    for (const [ending, f] of Object.entries(endings))
      for (const added of [false, true])
        yield {
          name: `products of 40 rows in ${dtype.name}, ${ending}${added ? ", a row added" : ""}`,
          tolerance: toleranceOf(dtype),
          run: () => {
            const [w, row] = [wave([72, 56], dtype, 2), wave([56], dtype, 3)]
            mx.eval(w, row)
            return compiled((y) => [f(added ? mx.addmm(row, y, w) : y.matmul(w))], wave([40, 72], dtype, 1))
          },
        }
}

/** Few rows by a matrix: alone, with a row that is added, and by several matrices in one launch, with a clamp. */
function* products(): Generator<Application> {
  for (const dtype of halves)
    for (const rows of [1, 3, 8])
      for (const [k, columns] of [
        [136, 150],
        [1096, 129],
      ]) {
        const w = (phase: number): mx.Array => wave([columns, k], dtype, phase)
        const x = (): mx.Array => wave([rows, k], dtype, 1)
        const name = `products of ${rows} rows of ${k} by ${columns} columns in ${dtype.name}`
        const tolerance = toleranceOf(dtype)
        yield { name, tolerance, run: () => [x().matmul(w(2).T)] }
        const row = (): mx.Array => wave([columns], dtype, 3)
        yield { name: `${name}, a row added`, tolerance, run: () => [mx.addmm(row(), x(), w(2).T)] }
        for (const [ending, f] of Object.entries(endings))
          yield {
            name: `${name}, ${ending}`,
            tolerance,
            run: () => {
              const kept = w(2)
              mx.eval(kept)
              return compiled((y) => [f(y.matmul(kept.T))], x())
            },
          }
        for (const count of [2, 3])
          for (const added of [false, true])
            yield {
              name: `${name}, ${count} matrices${added ? ", rows added" : ""}`,
              tolerance,
              run: () => {
                const kept = Array.from({ length: count }, (_, i) => w(i + 2))
                const rowOf = row()
                mx.eval(kept, rowOf)
                return compiled(
                  (y) => kept.map((each) => (added ? mx.addmm(rowOf, y, each.T) : y.matmul(each.T))),
                  x(),
                )
              },
            }
      }
}

/** Packed weights: few rows, many, several matrices, and as many columns as change what a warp has. */
function* packed(): Generator<Application> {
  for (const dtype of floats)
    for (const bits of [4, 8])
      for (const groupSize of [32, 64, 128])
        for (const [rows, columns, k] of [
          [1, 137, 384],
          [2, 137, 640],
          [3, 137, 384],
          [8, 137, 512],
          [1, 4301, 128],
          [2, 8200, 128],
          [5, 2050, 128],
          [33, 137, 384],
          // As many columns as one row takes a kernel of its own for, on a GPU of 132 processors.
          [1, 8500, 1024],
        ]) {
          const tolerance = toleranceOf(dtype)
          // So many weights take long to make.
          const times = columns === 8500 ? 34 : 1
          const run =
            (count: number): Application["run"] =>
            () => {
              const all = Array.from(
                { length: count },
                (_, i) =>
                  mx
                    .quantize(wave([columns / times, k], dtype, i + 1), { groupSize, bits })
                    .map((each) => each.tile([times, 1])) as [mx.Array, mx.Array, mx.Array],
              )
              mx.eval(all)
              const x = wave([rows, k], dtype, 5)
              const f = (y: mx.Array): mx.Array[] =>
                all.map((w) => mx.quantizedMatmul(y, ...w, { groupSize, bits }))
              return count === 1 ? f(x) : compiled(f, x)
            }
          const name = `${rows} rows by ${columns} of ${k} weights of ${bits} bits by ${groupSize} in ${dtype.name}`
          yield { name, tolerance, run: run(1) }
          if (dtype === mx.float32 || columns > 137 || rows > 3) continue
          for (const count of [2, 3]) yield { name: `${name}, ${count} matrices`, tolerance, run: run(count) }
        }
}

/** One row by packed weights with work around it: a norm, which others may read too, a row that is added, and a gate. */
function* layers(): Generator<Application> {
  for (const [dtype, bits, k] of [
    [mx.bfloat16, 4, 1024],
    [mx.float16, 4, 1024],
    [mx.bfloat16, 8, 1024],
    [mx.bfloat16, 4, 4608],
  ] as const)
    for (const isKept of [false, true])
      yield {
        name: `layers of ${k} with weights of ${bits} bits in ${dtype.name}${isKept ? ", norms kept" : ""}`,
        tolerance: 2 * toleranceOf(dtype),
        run: () => {
          const product = (rows: number, columns: number, phase: number): ((x: mx.Array) => mx.Array) => {
            // So many weights take long to make.
            const times = rows % 32 === 0 ? rows / 32 : 1
            const [w, scales, biases] = mx
              .quantize(wave([rows / times, columns], dtype, phase), { bits })
              .map((each, i) => (i > 0 ? each.multiply(0.05).astype(dtype) : each).tile([times, 1]))
            mx.eval(w, scales, biases)
            return (x) => mx.quantizedMatmul(x, w, scales, biases, { bits })
          }
          const [first, wide, gate, up] = [41, 512, 77, 77].map((rows, i) => product(rows, k, i))
          const out = product(k, 512, 5)
          const scales = wave([k], dtype, 7).multiply(0.1).add(1).astype(dtype)
          mx.eval(scales)
          return compiled(
            (x) => {
              const before = mx.fast.rmsNorm(x, scales, 1e-5)
              const sum = x.add(out(wide(before)))
              const normed = mx.fast.rmsNorm(sum, scales, 1e-5)
              const last = nn.silu(gate(normed)).multiply(up(normed))
              return isKept ? [first(before), before, sum, last, normed] : [sum, last]
            },
            wave([1, 1, k], dtype, 5),
          )
        },
      }
}

/** One more token's keys, turned, and values, written into caches. */
function* updates(): Generator<Application> {
  for (const dtype of floats)
    for (const traditional of [false, true])
      yield {
        name: `updates of caches in ${dtype.name}${traditional ? ", traditional" : ""}`,
        tolerance: toleranceOf(dtype),
        run: () => {
          const [keys, values] = [1, 2].map((phase) => wave([1, 3, 40, 24], dtype, phase))
          const at = mx.array([17], mx.int32)
          mx.eval(keys, values, at)
          return compiled(
            (x) => {
              const [q, k] = [x, x.index(":", mx.s(0, 3))].map((each) =>
                mx.fast.rope(each, 16, { traditional, base: 10_000, scale: 1, offset: at.reshape([]) }),
              )
              const v = x.index(":", mx.s(2, 5))
              return [q, mx.sliceUpdate(keys, k, at, [2]), mx.sliceUpdate(values, v, at, [2])]
            },
            wave([1, 6, 1, 24], dtype, 5),
          )
        },
      }
}

const { scaledDotProductAttention: attend } = mx.fast

/** The sizes of queries, and those in which keys differ. */
interface Sizes {
  readonly batch?: number
  readonly heads: number
  readonly groups: number
  readonly queries: number
  readonly keys: number
  readonly features: number
}

type Masks = Readonly<Record<string, (sizes: Sizes, dtype: mx.Dtype) => mx.Array | "causal" | null>>
const MASKS: Masks = {
  "without a mask": () => null,
  causal: () => "causal",
  "a mask of rows": ({ queries, keys }) => wave([queries, keys], mx.float32, 3).greater(0),
  "a mask of keys": ({ batch = 1, keys }) => wave([batch, 1, 1, keys], mx.float32, 4).greater(-0.5),
  "a mask that hides rows": ({ batch = 1, heads, queries, keys }) =>
    wave([batch, heads, queries, keys], mx.float32, 3)
      .greater(0.2)
      .logicalAnd(mx.arange(queries).reshape([-1, 1]).notEqual(2)),
  "a bias": ({ queries, keys }, dtype) => wave([1, 1, queries, keys], dtype, 4),
  "a bias of rows": ({ queries }, dtype) => wave([queries, 1], dtype, 4),
}

/** Results, and with `slopes` the derivatives of all operands. */
function attention(sizes: Sizes, dtype: mx.Dtype, mask: string, slopes: boolean, sinks = false): Application {
  const { batch = 1, heads, groups, queries, keys, features } = sizes
  const operands = (): mx.Array[] => [
    wave([batch, heads, queries, features], dtype, 0),
    // Rows lie apart where there is room.
    ...[1, 2].map((phase) =>
      wave([batch, groups, keys + 3, features], dtype, phase).index(":", ":", mx.s(2, keys + 2)),
    ),
    ...(sinks ? [wave([heads], dtype, 5)] : []),
  ]
  const run = (q: mx.Array, k: mx.Array, v: mx.Array, s?: mx.Array): mx.Array =>
    attend(q, k, v, { scale: 0.3, mask: MASKS[mask](sizes, dtype), sinks: s })
  const loss = (...of: mx.Array[]): mx.Array =>
    run(of[0], of[1], of[2], of[3])
      .astype(mx.float32)
      .multiply(wave([batch, heads, queries, features], mx.float32, 3))
      .sum()
  return {
    name: `attention ${batch}×${heads}(${groups})×${queries}×${keys}×${features} in ${dtype.name}, ${mask}${sinks ? " and sinks" : ""}${slopes ? ", derivatives" : ""}`,
    tolerance: dtype === mx.float32 ? 1e-4 : 3e-2,
    run: () => {
      const given = operands()
      const result = run(given[0], given[1], given[2], given[3])
      if (!slopes) return [result]
      return [result, ...(grad(loss, { argnums: [...given.keys()] })(...given) as mx.Array[])]
    },
  }
}

/** Queries that fill no block and several, fewer keys than queries and more, widths of one panel and two. */
function* attentions(): Generator<Application> {
  for (const dtype of floats) {
    for (const features of [16, 64, 72, 128])
      for (const mask of ["without a mask", "causal"])
        for (const [queries, keys] of [
          [140, 75],
          [70, 270],
        ])
          yield attention({ heads: 2, groups: 1, queries, keys, features }, dtype, mask, true)
    for (const mask of Object.keys(MASKS))
      for (const [queries, keys, features] of [
        [18, 130, 16],
        [5, 70, 80],
      ]) {
        yield attention({ batch: 2, heads: 4, groups: 2, queries, keys, features }, dtype, mask, true)
        yield attention({ batch: 2, heads: 4, groups: 2, queries, keys, features }, dtype, mask, true, true)
      }
  }
}

/** A few queries: rows and features that change how many warps a block has, keys in one part and in several. */
function* queries(): Generator<Application> {
  for (const dtype of halves)
    for (const mask of ["without a mask", "causal", "a mask of keys"])
      for (const sizes of [
        { heads: 2, groups: 2, queries: 1, keys: 40, features: 64 },
        { heads: 8, groups: 2, queries: 2, keys: 70, features: 64 },
        { heads: 4, groups: 1, queries: 2, keys: 33, features: 128 },
        { heads: 4, groups: 2, queries: 2, keys: 33, features: 256 },
        { heads: 2, groups: 1, queries: 1, keys: 1100, features: 64 },
        { heads: 4, groups: 1, queries: 2, keys: 1030, features: 128 },
        { batch: 64, heads: 2, groups: 2, queries: 3, keys: 21, features: 64 },
        { batch: 130, heads: 4, groups: 2, queries: 1, keys: 18, features: 64 },
      ] as readonly Sizes[])
        yield attention(sizes, dtype, mask, false)
}

/** One more token: its rotation, its place in caches, and its attention. */
function* tokens(): Generator<Application> {
  for (const dtype of halves)
    for (const [features, heads, groups, keys, base] of [
      [64, 4, 2, 40, null],
      [128, 8, 2, 530, null],
      [128, 4, 1, 1030, 10_000],
      [256, 2, 2, 2100, 10_000],
    ] as const)
      for (const isMasked of [false, true])
        yield {
          name: `a token of ${heads}(${groups})×${features} after ${keys} keys in ${dtype.name}${isMasked ? ", masked" : ""}`,
          tolerance: 3e-2,
          run: () => {
            const [oldKeys, oldValues] = [1, 2].map((phase) =>
              wave([2, groups, keys, features], dtype, phase),
            )
            const at = mx.array([keys - 7], mx.int32)
            const freqs = mx.array(Float32Array.from({ length: features / 2 }, (_, i) => 1.1 ** i))
            const seen = isMasked ? mx.arange(keys).lessEqual(keys - 7) : null
            mx.eval(oldKeys, oldValues, at, freqs, ...(seen ? [seen] : []))
            const how = {
              scale: 1,
              traditional: base !== null,
              base,
              freqs: base === null ? freqs : undefined,
            }
            return compiled(
              (x) => {
                const offset = at.reshape([])
                const [q, k] = [x, x.index(":", mx.s(0, groups)).multiply(0.75)].map((each) =>
                  mx.fast.rope(each, features, { ...how, offset }),
                )
                const v = x.index(":", mx.s(heads - groups, heads)).multiply(0.5)
                const newKeys = mx.sliceUpdate(oldKeys, k, at, [2])
                const newValues = mx.sliceUpdate(oldValues, v, at, [2])
                return [attend(q, newKeys, newValues, { scale: 0.1, mask: seen }), newKeys, newValues]
              },
              wave([2, heads, 1, features], dtype, 5),
            )
          },
        }
}

/** Images with enough channels and locations for the kernel of float32, and its derivatives. */
function* convolutions(): Generator<Application> {
  for (const [name, x, w, options] of [
    ["with padding", [1, 149, 131, 32], [96, 3, 3, 32], { padding: 1 }],
    ["with strides and dilation", [2, 190, 141, 32], [70, 2, 3, 32], { stride: [2, 1], dilation: [1, 2] }],
    ["by one tap", [1, 131, 150, 64], [2, 1, 1, 64], {}],
  ] as const) {
    const f = (a: mx.Array, b: mx.Array): mx.Array => mx.conv2d(a, b, options as object)
    const given = (): [mx.Array, mx.Array] => [wave(x, mx.float32, 1), wave(w, mx.float32, 2)]
    const run = (): mx.Array[] => {
      const [a, b] = given()
      const slope = grad((each: mx.Array) => f(each, b).multiply(0.01).sum())(a) as mx.Array
      return [f(a, b), slope]
    }
    yield { name: `convolutions ${name}`, tolerance: 1e-5, run }
  }
}

/** Sums in an order of their own. */
function* ordered(): Generator<Application> {
  const at = mx.array(
    Array.from({ length: 60 }, (_, i) => (i * i) % 7),
    mx.int32,
  )
  const columns = mx.arange(60).remainder(4).astype(mx.int32)
  const sums: Record<string, (dtype: mx.Dtype) => mx.Array> = {
    rows: (dtype) =>
      mx
        .zeros([7, 5], dtype)
        .at(at)
        .add(wave([60, 5], dtype, 1)),
    elements: (dtype) =>
      mx
        .ones([7], dtype)
        .at(at)
        .multiply(wave([60], dtype, 1).sign()),
    "sparse products": (dtype) =>
      mx.cooMatmul(wave([60], dtype, 1), at, columns, wave([4, 3], dtype, 2), { numRows: 7 }),
  }
  for (const dtype of floats)
    for (const [name, f] of Object.entries(sums))
      yield {
        name: `ordered sums of ${name} in ${dtype.name}`,
        tolerance: toleranceOf(dtype),
        run: () => {
          const end = determinism.ask()
          try {
            const made = f(dtype)
            mx.eval(made)
            return [made]
          } finally {
            end()
          }
        },
      }
}

/** The applications. */
export function* nativeApplications(): Generator<Application> {
  yield* products()
  yield* endedProducts()
  yield* packed()
  yield* layers()
  yield* updates()
  yield* queries()
  yield* tokens()
  yield* attentions()
  yield* convolutions()
  yield* ordered()
}

/** The difference of an application's results on the GPU to those on the CPU; null where they agree. */
export function differenceOf({ run, tolerance }: Application): string | null {
  const [got, want] = [mx.gpu, mx.cpu].map((device) =>
    mx.stream(device, () => run().map((each) => each.astype(mx.float32).toTypedArray() as Float32Array)),
  )
  for (const [at, expected] of want.entries()) {
    const values = got[at]
    if (values.length !== expected.length)
      return `result ${at} has ${values.length} elements, expected ${expected.length}`
    const most = expected.reduce((most, x) => Math.max(most, Math.abs(x)), 0)
    for (const [i, x] of values.entries())
      if (!(Math.abs(x - expected[i]) <= tolerance * most || x === expected[i]))
        return `element ${i} of result ${at} is ${x}, expected ${expected[i]}`
  }
  return null
}
