/**
 * The discrete Fourier transform along axes, the primitive of all functions in `mx.fft`: complex to complex, real to half spectrum, and
 * half spectrum to real. Sizes, padding and `norm` are handled in ../api/fft.ts.
 */
import { complex64, type Dtype, float32, float64 } from "../graph/dtype"
import { DTypeError, ShapeError } from "../graph/errors"
import type { Array, HostArray, Meta } from "../graph/graph"
import type { ParamsOf } from "../graph/params"
import { type Apply, definePrimitive } from "../graph/primitive"
import { format, type Shape } from "../graph/shape"
import { scalarArray, toDtype } from "./constant"
import { concatenate } from "./join"
import { broadcastTo } from "./reduce"
import { moveToFront } from "./view"

/** `real` refers to the last of `axes`, which has `n` real elements. Results are multiplied by `scale`. */
const schema = { axes: "i64[]", inverse: "bool", real: "bool", n: "i64", scale: "f64" } as const
type Params = ParamsOf<typeof schema>

const half = (n: number): number => Math.floor(n / 2) + 1
const resized = (shape: Shape, axis: number, size: number): number[] =>
  shape.map((n, i) => (i === axis ? size : n))

/** y = scale · Σ x[j] exp(∓2πi jk/n) along each of the axes. */
export const fourier: Apply<Params> = definePrimitive({
  name: "fft",
  params: schema,
  infer: ([x], params) => inferTransform(x, params),
  reference: ([x], [y], params) => transformHost(x, y, params),
  // The transform is linear with a symmetric matrix, whose conjugate is the other direction. All elements of a half spectrum occur twice in
  // the full one, except the first, and the middle one of an even length.
  vjp: ({ inputs: [x], cotangents: [g], params }) => {
    const back = { ...params, inverse: !params.inverse }
    if (!params.real) return [fourier([g], back)]
    if (params.inverse) return [fourier([g], back).multiply(occurrences(params, x.ndim, 2))]
    return [toDtype(fourier([g.multiply(occurrences(params, x.ndim, 0.5))], back), x.dtype)]
  },
  jvp: ({ tangents: [t], params }) => [t && fourier([t], params)],
  vmap: ({ inputs: [x], axes: [axis], params }) => {
    const moved = moveToFront(x, axis as number)
    return { outputs: [fourier([moved], { ...params, axes: params.axes.map((a) => a + 1) })], axes: [0] }
  },
})

function inferTransform(x: Meta, { axes, inverse, real, n }: Params): Meta {
  const last = axes[axes.length - 1]
  const expected: readonly Dtype[] = real && !inverse ? [float32, float64] : [complex64]
  if (!expected.includes(x.dtype))
    throw new DTypeError(
      "fft",
      `expected ${expected.map((d) => d.name).join(" or ")}, received ${x.dtype.name}`,
    )
  if (!real) return x
  const size = inverse ? half(n) : n
  if (x.shape[last] !== size)
    throw new ShapeError("fft", `axis ${last} must have size ${size}, received shape ${format(x.shape)}`)
  return inverse
    ? { shape: resized(x.shape, last, n), dtype: float32 }
    : { shape: resized(x.shape, last, half(n)), dtype: complex64 }
}

/** 1 where an element of the half spectrum occurs once in the full one, `twice` elsewhere; broadcasts to the half spectrum. */
function occurrences({ axes, n }: Params, ndim: number, twice: number): Array {
  const last = axes[axes.length - 1]
  const part = (value: number, size: number): Array =>
    broadcastTo(scalarArray(value, float32), resized(new globalThis.Array<number>(ndim).fill(1), last, size))
  const between = half(n) - (n % 2 === 0 && n > 1 ? 2 : 1)
  return concatenate(
    [part(1, 1), part(twice, between), part(1, half(n) - 1 - between)].filter((each) => each.size > 0),
    last,
  )
}

type Numbers = Float64Array<ArrayBuffer>

/**
 * Decimation in time by the smallest factor p: y[k] = Σ_q exp(−2πi qk/n) · (transform of x[q], x[q+p], …)[k mod n/p].
 */
function transformLine(re: Numbers, im: Numbers, roots: Roots): [re: Numbers, im: Numbers] {
  const n = re.length
  let p = 2
  while (n % p !== 0 && p * p <= n) p++
  if (n % p !== 0) p = n
  const m = n / p
  const [outRe, outIm] = [new Float64Array(n), new Float64Array(n)]
  if (n === 1) return [re, im]
  for (let q = 0; q < p; q++) {
    let [partRe, partIm] = [new Float64Array(m), new Float64Array(m)]
    for (let i = 0; i < m; i++) {
      partRe[i] = re[q + i * p]
      partIm[i] = im[q + i * p]
    }
    ;[partRe, partIm] = transformLine(partRe, partIm, roots)
    const stride = roots.n / n
    for (let k = 0; k < n; k++) {
      const w = ((q * k) % n) * stride
      const [c, s] = [roots.cos[w], roots.sin[w]]
      outRe[k] += partRe[k % m] * c + partIm[k % m] * s
      outIm[k] += partIm[k % m] * c - partRe[k % m] * s
    }
  }
  return [outRe, outIm]
}

interface Roots {
  readonly n: number
  readonly cos: Float64Array
  readonly sin: Float64Array
}
function rootsOf(n: number): Roots {
  const angles = Float64Array.from({ length: n }, (_, k) => (2 * Math.PI * k) / n)
  // Quarter turns are exact.
  const exact = (v: number): number => (Math.abs(v) < 1e-15 ? 0 : v)
  return { n, cos: angles.map((a) => exact(Math.cos(a))), sin: angles.map((a) => exact(Math.sin(a))) }
}

/** Calls `visit` with the first element and the stride of each line along an axis of a row-major array. */
function forEachLine(shape: Shape, axis: number, visit: (start: number, step: number) => void): void {
  const step = shape.slice(axis + 1).reduce((a, b) => a * b, 1)
  const outer = shape.slice(0, axis).reduce((a, b) => a * b, 1)
  for (let i = 0; i < outer; i++) {
    for (let j = 0; j < step; j++) visit(i * step * shape[axis] + j, step)
  }
}

function transformHost(x: HostArray, y: HostArray, { axes, inverse, real, n, scale }: Params): void {
  if (y.data.length === 0) return
  const last = axes[axes.length - 1]
  // Computes on the full spectrum.
  const shape = real ? resized(x.shape, last, n) : x.shape
  const count = shape.reduce((a, b) => a * b, 1)
  const [re, im] = [new Float64Array(count), new Float64Array(count)]
  const stride = shape.slice(last + 1).reduce((a, b) => a * b, 1)
  const copyLines = (from: Shape, size: number, copy: (whole: number, part: number) => void): void => {
    const starts: number[] = []
    forEachLine(from, last, (start) => starts.push(start))
    let line = 0
    forEachLine(shape, last, (start) => {
      for (let k = 0; k < size; k++) copy(start + k * stride, starts[line] + k * stride)
      line++
    })
  }
  const isComplex = x.dtype === complex64
  copyLines(x.shape, x.shape[last], (whole, part) => {
    re[whole] = isComplex ? x.data[2 * part] : x.data[part]
    im[whole] = isComplex ? x.data[2 * part + 1] : 0
  })
  const along = (axis: number): void => {
    const size = shape[axis]
    const roots = rootsOf(size)
    forEachLine(shape, axis, (start, step) => {
      const [lineRe, lineIm] = [new Float64Array(size), new Float64Array(size)]
      for (let k = 0; k < size; k++) {
        lineRe[k] = re[start + k * step]
        lineIm[k] = im[start + k * step]
      }
      // The inverse transform is the forward one with real and imaginary parts swapped.
      const [a, b] = inverse ? transformLine(lineIm, lineRe, roots) : transformLine(lineRe, lineIm, roots)
      for (let k = 0; k < size; k++) {
        re[start + k * step] = inverse ? b[k] : a[k]
        im[start + k * step] = inverse ? a[k] : b[k]
      }
    })
  }
  for (const axis of axes.slice(0, -1)) along(axis)
  if (real && inverse) completeSpectrum(re, im, shape, last)
  along(last)
  copyLines(y.shape, y.shape[last], (whole, part) => {
    if (y.dtype === complex64) {
      y.data[2 * part] = re[whole] * scale
      y.data[2 * part + 1] = im[whole] * scale
    } else y.data[part] = re[whole] * scale
  })
}

/** Fills the second half of each line with the conjugates of the first; self-conjugate elements become real. */
function completeSpectrum(re: Float64Array, im: Float64Array, shape: Shape, axis: number): void {
  const n = shape[axis]
  forEachLine(shape, axis, (start, step) => {
    im[start] = 0
    for (let k = 1; 2 * k <= n; k++) {
      const [from, to] = [start + k * step, start + (n - k) * step]
      if (from === to) im[to] = 0
      else {
        re[to] = re[from]
        im[to] = -im[from]
      }
    }
  })
}
