/**
 * Functions of arrays with axes of size 0, with a product's and with none: what divides by a size, cuts it into blocks or reads a first
 * element must not. An op whose kernel does such a thing gets a line here.
 */
import * as mx from "@lazuli/core"
import { values } from "../src/check/values"
import type { Sample } from "../src/samples"

const sample = (name: string, f: Sample["f"], ...inputs: mx.Array[]): Sample => ({ name, f, inputs })
const filled = (shape: number[], dtype: mx.Dtype = mx.float32): mx.Array => values(shape).astype(dtype)

/** Every list of `count` sizes of 0 or of `sizes`, with a 0 in it. */
function* emptyAmong(sizes: readonly number[]): Generator<number[]> {
  for (let mask = 1; mask < 1 << sizes.length; mask++) yield sizes.map((n, i) => ((mask >> i) & 1 ? 0 : n))
}

function attention(): Sample[] {
  return [...emptyAmong([2, 2, 3, 4, 5, 4])].flatMap(([batch, heads, queries, keys, depth, width]) =>
    (queries * keys > 0 ? ["none"] : ["none", "causal", "additive", "bool"]).flatMap((mask, i) =>
      (i === 0 ? [mx.float32, mx.bfloat16] : [mx.float32]).map((dtype) =>
        sample(
          `attention of batch ${batch}, heads ${heads}, queries ${queries}, keys ${keys}, features ${depth}, ${width}, ${dtype.name}, mask ${mask}`,
          (q, k, v) =>
            mx.fast.scaledDotProductAttention(q, k, v, {
              scale: 0.5,
              mask:
                mask === "causal"
                  ? "causal"
                  : mask === "none"
                    ? null
                    : mask === "bool"
                      ? mx.ones([queries, keys], mx.bool_)
                      : mx.ones([queries, keys], dtype),
            }),
          filled([batch, heads, queries, depth], dtype),
          filled([batch, heads, keys, depth], dtype),
          filled([batch, heads, keys, width], dtype),
        ),
      ),
    ),
  )
}

/** With sinks a query without keys sees those alone. */
const sinks: Sample = sample(
  "attention without keys, with sinks",
  (q, k, v, s) => mx.fast.scaledDotProductAttention(q, k, v, { scale: 1, sinks: s }),
  filled([1, 2, 3, 4]),
  filled([1, 1, 0, 4]),
  filled([1, 1, 0, 4]),
  filled([2]),
)

function products(): Sample[] {
  const list: Sample[] = []
  for (const dtype of [mx.float32, mx.bfloat16, mx.complex64, mx.int32]) {
    for (const [rows, inner, columns] of [
      ...emptyAmong([1, 3, 2]),
      ...emptyAmong([4, 3, 1]),
      ...emptyAmong([33, 40, 70]),
      [300, 0, 300],
    ]) {
      const of = `${rows} × ${inner} × ${columns}, ${dtype.name}`
      const a = filled([rows, inner], dtype)
      const b = filled([inner, columns], dtype)
      list.push(
        sample(`matmul ${of}`, (x, y) => x.matmul(y), a, b),
        sample(
          `matmul of transposed ${of}`,
          (x, y) => x.T.matmul(y.T),
          filled([inner, rows], dtype),
          filled([columns, inner], dtype),
        ),
        sample(
          `matmul of batches ${of}`,
          (x, y) => x.matmul(y),
          filled([2, rows, inner], dtype),
          filled([2, inner, columns], dtype),
        ),
        sample(`addmm ${of}`, (c, x, y) => mx.addmm(c, x, y, 2, 3), filled([rows, columns], dtype), a, b),
        sample(`addmm of a row ${of}`, (c, x, y) => mx.addmm(c, x, y), filled([columns], dtype), a, b),
        sample(`einsum ${of}`, (x, y) => mx.einsum("ij,jk->ki", x, y), a, b),
      )
      if (dtype.kind !== "floating") continue
      const index = mx.array([1, 0, 1], mx.uint32)
      list.push(
        sample(
          `gatherMm ${of}`,
          (x, y) => mx.gatherMm(x, y, null, index),
          filled([rows, inner], dtype),
          filled([2, inner, columns], dtype),
        ),
        sample(
          `gatherMm sorted ${of}`,
          (x, y) => mx.gatherMm(x, y, null, mx.array([0, 1, 1], mx.uint32), { sortedIndices: true }),
          filled([3, rows, inner], dtype),
          filled([2, inner, columns], dtype),
        ),
        sample(
          `segmentedMm ${of}`,
          (x, y) =>
            mx.segmentedMm(
              x,
              y,
              mx.array(
                [
                  [0, inner],
                  [0, 0],
                ],
                mx.uint32,
              ),
            ),
          a,
          b,
        ),
      )
      list.push(sample(`blockMaskedMm ${of}`, (x, y) => mx.blockMaskedMm(x, y, 32), a, b))
    }
  }
  return list
}

function quantized(): Sample[] {
  const list: Sample[] = []
  for (const [rows, inner, columns] of emptyAmong([3, 64, 8])) {
    for (const transpose of [true, false]) {
      const shape = transpose ? [columns, inner] : [inner, columns === 0 ? 0 : 64]
      for (const dtype of [mx.float32, mx.float16]) {
        const of = `${rows} × ${inner} × ${columns}, ${dtype.name}${transpose ? ", transposed" : ""}`
        list.push(
          sample(
            `quantizedMatmul ${of}`,
            (x) => {
              const [w, s, b] = mx.quantize(mx.ones(shape, dtype), { groupSize: 32 })
              return mx.quantizedMatmul(x, w, s, b, { groupSize: 32, transpose })
            },
            filled([rows, inner], dtype),
          ),
          sample(
            `gatherQmm ${of}`,
            (x) => {
              const [w, s, b] = mx.quantize(mx.ones([2, ...shape], dtype), { groupSize: 32 })
              return mx.gatherQmm(x, w, s, b, {
                rhsIndices: mx.array([1, 0], mx.uint32),
                groupSize: 32,
                transpose,
              })
            },
            filled([rows, inner], dtype),
          ),
          sample(
            `qqmm ${of}`,
            (x) => mx.qqmm(x, mx.ones([columns, inner], dtype), { groupSize: 16, bits: 4, mode: "nvfp4" }),
            filled([rows, inner], dtype),
          ),
        )
      }
    }
  }
  for (const shape of [
    [0, 64],
    [3, 0],
    [0, 0],
    [2, 0, 64],
  ])
    list.push(
      sample(
        `quantize ${shape}`,
        (x) =>
          mx.dequantize(...(mx.quantize(x, { groupSize: 32 }) as [mx.Array, mx.Array, mx.Array]), {
            groupSize: 32,
          }),
        filled(shape),
      ),
      sample(
        `quantize mxfp4 ${shape}`,
        (x) => {
          const [w, s] = mx.quantize(x, { groupSize: 32, bits: 4, mode: "mxfp4" })
          return mx.dequantize(w, s, null, { groupSize: 32, bits: 4, mode: "mxfp4" })
        },
        filled(shape),
      ),
    )
  return list
}

function convolutions(): Sample[] {
  const list: Sample[] = []
  for (const dtype of [mx.float32, mx.float16])
    for (const [batch, size, channels, outputs] of emptyAmong([2, 9, 3, 4]))
      for (const kernel of [1, 3]) {
        const of = `batch ${batch}, size ${size}, channels ${channels}, outputs ${outputs}, kernel ${kernel}, ${dtype.name}`
        list.push(
          sample(
            `conv1d ${of}`,
            (x, w) => mx.conv1d(x, w, 1, 2),
            filled([batch, size, channels], dtype),
            filled([outputs, kernel, channels], dtype),
          ),
          sample(
            `conv2d ${of}`,
            (x, w) => mx.conv2d(x, w, 1, 1),
            filled([batch, size, size, channels], dtype),
            filled([outputs, kernel, kernel, channels], dtype),
          ),
          sample(
            `conv2d with steps ${of}`,
            (x, w) => mx.conv2d(x, w, 2, 1, 2),
            filled([batch, size, size, channels], dtype),
            filled([outputs, kernel, kernel, channels], dtype),
          ),
          sample(
            `conv3d ${of}`,
            (x, w) => mx.conv3d(x, w, 1, 1),
            filled([batch, size, 3, 3, channels], dtype),
            filled([outputs, kernel, 1, 1, channels], dtype),
          ),
          sample(
            `convTranspose2d ${of}`,
            (x, w) => mx.convTranspose2d(x, w, 2),
            filled([batch, size, size, channels], dtype),
            filled([outputs, kernel, kernel, channels], dtype),
          ),
          sample(
            `conv2d in groups ${of}`,
            (x, w) => mx.conv2d(x, w, 1, 1, 1, 2),
            filled([batch, size, size, 2 * channels], dtype),
            filled([2 * outputs, kernel, kernel, channels], dtype),
          ),
        )
      }
  return list
}

function alongAxes(): Sample[] {
  const list: Sample[] = []
  const named = mx as unknown as Record<string, (x: mx.Array, ...rest: unknown[]) => mx.Array>
  const kinds = [mx.float32, mx.complex64, mx.int32]
  for (const shape of [[0], [0, 3], [3, 0], [2, 0, 3]])
    for (const dtype of kinds)
      for (let axis = 0; axis < shape.length; axis++) {
        for (const name of "sum prod mean max min all any argmax argmin var std logsumexp softmax median sort argsort cumsum cumprod cummax cummin logcumsumexp flip".split(
          " ",
        ))
          list.push(
            sample(
              `${name} of [${shape}] along ${axis}, ${dtype.name}`,
              (x) => named[name](x, axis),
              filled(shape, dtype),
            ),
          )
        for (const name of ["cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"])
          list.push(
            sample(
              `exclusive ${name} of [${shape}] along ${axis}, ${dtype.name}`,
              (x) => named[name](x, axis, false, false),
              filled(shape, dtype),
            ),
          )
        list.push(
          sample(
            `partition of [${shape}] along ${axis}, ${dtype.name}`,
            (x) => mx.partition(x, 0, axis),
            filled(shape, dtype),
          ),
          sample(
            `topk of [${shape}] along ${axis}, ${dtype.name}`,
            (x) => mx.topk(x, 0, axis),
            filled(shape, dtype),
          ),
          sample(
            `roll of [${shape}] along ${axis}, ${dtype.name}`,
            (x) => mx.roll(x, 1, axis),
            filled(shape, dtype),
          ),
          sample(
            `take of [${shape}] along ${axis}, ${dtype.name}`,
            (x) => mx.take(x, mx.zeros([0], mx.int32), axis),
            filled(shape, dtype),
          ),
          sample(
            `takeAlongAxis of [${shape}] along ${axis}, ${dtype.name}`,
            (x) => mx.takeAlongAxis(x, mx.zeros(shape, mx.int32), axis),
            filled(shape, dtype),
          ),
          sample(
            `concatenate [${shape}] along ${axis}, ${dtype.name}`,
            (x) => mx.concatenate([x, x], axis),
            filled(shape, dtype),
          ),
          sample(`pad [${shape}], ${dtype.name}`, (x) => mx.pad(x, 1), filled(shape, dtype)),
          sample(
            `repeat [${shape}] along ${axis}, ${dtype.name}`,
            (x) => mx.repeat(x, 2, axis),
            filled(shape, dtype),
          ),
          sample(
            `at().add of [${shape}], ${dtype.name}`,
            (x) => x.at(mx.zeros([0], mx.int32)).add(x.index("0:0")),
            filled(shape, dtype),
          ),
        )
        if (dtype.kind !== "bool" && dtype.kind !== "signed")
          for (const name of [
            "fft",
            "ifft",
            "irfft",
            ...(dtype === mx.complex64 ? [] : ["rfft" as const]),
          ] as const)
            for (const n of [undefined, 4])
              list.push(
                sample(
                  `${name} of [${shape}] along ${axis} to ${n}, ${dtype.name}`,
                  (x) => mx.abs(mx.fft[name](x, n, axis)),
                  filled(shape, dtype),
                ),
              )
      }
  for (const dtype of [mx.float32, mx.float16])
    for (const [rows, width] of emptyAmong([3, 5])) {
      const x = filled([rows, width], dtype)
      const w = filled([width], dtype)
      list.push(
        sample(
          `layerNorm of ${rows} × ${width}, ${dtype.name}`,
          (a, b, c) => mx.fast.layerNorm(a, b, c, 1e-5),
          x,
          w,
          w,
        ),
        sample(
          `layerNorm without weights of ${rows} × ${width}, ${dtype.name}`,
          (a) => mx.fast.layerNorm(a, null, null, 1e-5),
          x,
        ),
        sample(`rmsNorm of ${rows} × ${width}, ${dtype.name}`, (a, b) => mx.fast.rmsNorm(a, b, 1e-5), x, w),
        sample(
          `hadamardTransform of ${rows} × ${width}, ${dtype.name}`,
          (a) => mx.hadamardTransform(a),
          filled([rows, width === 0 ? 0 : 4], dtype),
        ),
      )
    }
  for (const [batch, length, width] of emptyAmong([2, 3, 4]))
    for (const traditional of [true, false])
      list.push(
        sample(
          `rope of ${batch} × ${length} × ${width}`,
          (x) => mx.fast.rope(x, width, { traditional, base: 1e4, scale: 1, offset: 0 }),
          filled([batch, length, width]),
        ),
      )
  return list
}

function matrices(): Sample[] {
  const { linalg } = mx
  const list: Sample[] = []
  for (const dtype of [mx.float32, mx.complex64])
    for (const [batch, n] of emptyAmong([2, 3])) {
      const x = mx.broadcastTo(mx.eye(n, { dtype }), [batch, n, n])
      const each = (name: string, f: (x: mx.Array) => mx.Array): void => {
        list.push(sample(`linalg.${name} of ${batch} × ${n} × ${n}, ${dtype.name}`, f, x))
      }
      each("inv", (a) => linalg.inv(a))
      each("pinv", (a) => linalg.pinv(a))
      each("det", (a) => linalg.det(a))
      each("slogdet", (a) => linalg.slogdet(a)[1])
      each("cholesky", (a) => linalg.cholesky(a))
      each("choleskyInv", (a) => linalg.choleskyInv(a))
      each("eigh", (a) => linalg.eigh(a)[0])
      each("eigvalsh", (a) => linalg.eigvalsh(a))
      each("eig", (a) => mx.abs(linalg.eig(a)[0]))
      each("svd", (a) => linalg.svd(a)[1])
      each("qr", (a) => linalg.qr(a)[1])
      each("lu", (a) => linalg.lu(a)[2])
      each("luFactor", (a) => linalg.luFactor(a)[0])
      each("solve", (a) => linalg.solve(a, a))
      each("solveTriangular", (a) => linalg.solveTriangular(a, a))
      each("triInv", (a) => linalg.triInv(a))
      each("norm", (a) => linalg.norm(a, null, [-2, -1]))
      each("tril", (a) => mx.tril(a))
      each("trace", (a) => mx.trace(a))
      each("diagonal", (a) => mx.diagonal(a, 0, -2, -1))
    }
  for (const [rows, columns] of emptyAmong([2, 3]))
    for (const full of [true, false])
      list.push(
        sample(
          `linalg.svd of ${rows} × ${columns}, ${full}`,
          (x) => linalg.svd(x)[full ? 0 : 1],
          filled([rows, columns]),
        ),
        sample(
          `linalg.qr of ${rows} × ${columns}`,
          (x) => linalg.qr(x)[full ? 0 : 1],
          filled([rows, columns]),
        ),
        sample(`linalg.pinv of ${rows} × ${columns}`, (x) => linalg.pinv(x), filled([rows, columns])),
      )
  return list
}

function draws(): Sample[] {
  const key = mx.random.key(1)
  const make = (name: string, f: () => mx.Array): Sample => sample(`random.${name}`, f, mx.zeros([0]))
  return [[0], [2, 0], [0, 2]].flatMap((shape) => [
    make(`normal [${shape}]`, () => mx.random.normal({ shape, key })),
    make(`uniform [${shape}]`, () => mx.random.uniform(0, 1, { shape, key })),
    make(`bits [${shape}]`, () => mx.random.bits({ shape, key })),
    make(`bernoulli [${shape}]`, () => mx.random.bernoulli(0.5, { shape, key })),
    make(`randint [${shape}]`, () => mx.random.randint(0, 4, { shape, key })),
    make(`gumbel [${shape}]`, () => mx.random.gumbel({ shape, key })),
    make(`categorical [${shape}]`, () => mx.random.categorical(mx.zeros([...shape, 3]), { key })),
    make(`permutation [${shape}]`, () => mx.random.permutation(mx.zeros(shape), 0, key)),
  ])
}

/** All samples. */
export const emptySamples: readonly Sample[] = [
  ...attention(),
  sinks,
  ...products(),
  ...quantized(),
  ...convolutions(),
  ...alongAxes(),
  ...matrices(),
  ...draws(),
]
