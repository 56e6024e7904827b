/**
 * `mx.fft`: discrete Fourier transforms. Inputs are converted to complex64, those of real transforms to float32 unless they are float64.
 * Results are complex64; those of inverse real transforms are float32. Lengths with small prime factors are fastest. The primitive is in
 * ops/fft.ts.
 */
import { asArrayArgument, isList, operation, type StreamOptions } from "../graph/args"
import { complex64, float32, float64 } from "../graph/dtype"
import { ArgumentError, DTypeError, describe, ShapeError } from "../graph/errors"
import type { Array } from "../graph/graph"
import type { Axes } from "../graph/option-types"
import { format, normalizeAxis } from "../graph/shape"
import { toDtype } from "../ops/constant"
import { arrayFromStore } from "../ops/creation"
import { fourier } from "../ops/fft"
import { pad } from "../ops/pad"
import { roll } from "../ops/rearrange"
import { sliceRange } from "../ops/slice"

/**
 * The direction that is scaled by 1/N: the inverse transform (`'backward'`), the forward one (`'forward'`), or both by 1/√N (`'ortho'`).
 */
export type FftNorm = "backward" | "ortho" | "forward"

/** Options of transforms along one axis. */
export interface FftOptions extends StreamOptions {
  /** The length of the transform; the axis is truncated or zero-padded to it. */
  n?: number | null
  /** The last one by default. */
  axis?: number
  norm?: FftNorm
}
// By hand: `norm` may be an option after the positional arguments.
/** A transform along one axis. */
export interface Fft {
  (a: Array, n?: number | null, axis?: number, norm?: FftNorm, options?: StreamOptions): Array
  (a: Array, n: number | null, axis: number, options: Pick<FftOptions, "norm" | "stream">): Array
  (a: Array, n: number | null, options: Omit<FftOptions, "n">): Array
  (a: Array, options: FftOptions): Array
}

/** Options of transforms along several axes. */
export interface FftnOptions extends StreamOptions {
  /** The lengths of the transform along `axes`, which are truncated or zero-padded to them. */
  s?: readonly number[] | null
  /** All axes if null. */
  axes?: readonly number[] | null
  norm?: FftNorm
}
// By hand: `norm` may be an option after the positional arguments.
/** A transform along several axes. */
export interface Fftn {
  (
    a: Array,
    s?: readonly number[] | null,
    axes?: readonly number[] | null,
    norm?: FftNorm,
    options?: StreamOptions,
  ): Array
  (
    a: Array,
    s: readonly number[] | null,
    axes: readonly number[] | null,
    options: Pick<FftnOptions, "norm" | "stream">,
  ): Array
  (a: Array, s: readonly number[] | null, options: Omit<FftnOptions, "s">): Array
  (a: Array, options: FftnOptions): Array
}

interface Kind {
  readonly real: boolean
  readonly inverse: boolean
}

function checkedSizes(op: string, sizes: readonly number[]): void {
  for (const n of sizes) {
    if (!Number.isInteger(n))
      throw new ArgumentError(op, `the length of a transform must be an integer, received ${describe(n)}`)
    if (n <= 0) throw new ShapeError(op, `the length of a transform must be positive, received ${n}`)
  }
}

/** The scale factor of the result. */
function scaleOf(op: string, norm: unknown, inverse: boolean, size: number): number {
  if (norm === "ortho") return 1 / Math.sqrt(size)
  if (norm !== "backward" && norm !== "forward")
    throw new ArgumentError(op, `norm must be "backward", "ortho" or "forward", received ${describe(norm)}`)
  return (norm === "backward") === inverse ? 1 / size : 1
}

/** Truncates or zero-pads x to a shape. */
function fit(x: Array, shape: readonly number[]): Array {
  const kept = x.shape.map((n, i) => Math.min(n, shape[i]))
  const cut = kept.some((n, i) => n < x.shape[i])
    ? sliceRange(
        x,
        kept.map(() => 0),
        kept,
      )
    : x
  if (kept.every((n, i) => n === shape[i])) return cut
  return pad(
    cut,
    shape.map((n, i) => [0, n - kept[i]]),
  )
}

function transform(
  op: string,
  { real, inverse }: Kind,
  a: unknown,
  s: readonly number[] | null,
  axes: readonly number[],
  norm: unknown,
): Array {
  const x = asArrayArgument(op, "a", a)
  if (real && !inverse && x.dtype === complex64)
    throw new DTypeError(op, "expected real numbers, received complex64", {
      hint: `mx.${op.replace("rfft", "fft")} takes complex numbers, and x.real is the real part`,
    })
  if (x.ndim === 0) throw new ShapeError(op, "needs an array of at least one dimension, received a scalar")
  const normal = axes.map((axis) => normalizeAxis(op, axis, x.ndim))
  if (new Set(normal).size < normal.length)
    throw new ShapeError(op, `the axes must be distinct, received ${format(axes)}`)
  if (s && s.length !== axes.length)
    throw new ShapeError(op, `${s.length} lengths are given for ${axes.length} axes`)
  const last = normal.length - 1
  const sizes =
    s ?? normal.map((axis, i) => (real && inverse && i === last ? 2 * (x.shape[axis] - 1) : x.shape[axis]))
  checkedSizes(op, sizes)
  const scale = scaleOf(
    op,
    norm,
    inverse,
    sizes.reduce((p, n) => p * n, 1),
  )
  if (last < 0) return x
  const shape = x.shape.slice()
  normal.forEach((axis, i) => {
    shape[axis] = real && inverse && i === last ? Math.floor(sizes[i] / 2) + 1 : sizes[i]
  })
  const input = fit(x, shape)
  const dtype = !real || inverse ? complex64 : x.dtype === float64 ? float64 : float32
  return fourier([toDtype(input, dtype)], {
    axes: normal,
    inverse,
    real,
    n: real ? sizes[last] : 0,
    scale,
  })
}

const NORMS = ["backward", "ortho", "forward"]

/** A public transform along one axis. */
function alongOne(name: string, kind: Kind): Fft {
  const op = `fft.${name}`
  const call = operation(
    op,
    { a: "array", n: "integer?", axis: "axis?", norm: NORMS },
    (a: unknown, n?: number | null, axis: number = -1, norm: unknown = "backward") =>
      transform(op, kind, a, n === undefined || n === null ? null : [n], [axis], norm),
  )
  return (...args: unknown[]) => call(args)
}

/** A public transform along several axes, `defaultAxes` by default. */
function alongMany(name: string, kind: Kind, defaultAxes: readonly number[] | null): Fftn {
  const op = `fft.${name}`
  const call = operation(
    op,
    { a: "array", s: "integerList?", axes: "integerListOrNone?", norm: NORMS },
    (
      a: Array,
      s?: readonly number[],
      axes: readonly number[] | null = defaultAxes,
      norm: unknown = "backward",
    ) => {
      if (s && !axes) throw new ArgumentError(op, "s is given without axes")
      const all = a.shape.map((_, i) => i)
      return transform(op, kind, a, s ?? null, axes ?? all, norm)
    },
  )
  return (...args: unknown[]) => call(args)
}

/**
 * The discrete Fourier transform along an axis, y[k] = Σ x[j] exp(−2πi jk/n), as complex64.
 * @throws ShapeError if the axis is out of bounds or the length is not positive; ArgumentError for an unknown `norm`
 * @example
 * mx.fft.fft(mx.array([1, 2, 3, 4])).real.tolist() // => [10, -2, -2, -2]
 */
export const fft: Fft = alongOne("fft", { real: false, inverse: false })

/**
 * The inverse of {@link fft} along an axis, y[j] = 1/n · Σ x[k] exp(2πi jk/n), as complex64.
 * @throws ShapeError if the axis is out of bounds or the length is not positive; ArgumentError for an unknown `norm`
 * @example
 * mx.fft.ifft(mx.fft.fft(mx.array([1, 0, 2, 0]))).real.tolist() // => [1, 0, 2, 0]
 */
export const ifft: Fft = alongOne("ifft", { real: false, inverse: true })

/**
 * The Fourier transform of real numbers along an axis, as complex64: the first n/2 + 1 elements of {@link fft}; the rest are their
 * conjugates. float64 is computed in double precision.
 * @throws DTypeError for complex numbers; ShapeError if the axis is out of bounds or the length is not positive; ArgumentError for an
 * unknown `norm`
 * @example
 * mx.fft.rfft(mx.array([1, 2, 3, 4])).shape // => [3]
 */
export const rfft: Fft = alongOne("rfft", { real: true, inverse: false })

/**
 * The inverse of {@link rfft} along an axis, as float32. `n` is the length of the result, by default 2·(size − 1); pass it if the original
 * length was odd.
 * @throws ShapeError if the axis is out of bounds or the length is not positive; ArgumentError for an unknown `norm`
 * @example
 * mx.fft.irfft(mx.fft.rfft(mx.array([1, 2, 3])), 3).shape // => [3]
 */
export const irfft: Fft = alongOne("irfft", { real: true, inverse: true })

/**
 * The Fourier transform along two axes, the last two by default.
 * @throws ShapeError if an axis is out of bounds or repeated, a length is not positive, or there are not as many lengths as axes;
 * ArgumentError for lengths without axes or an unknown `norm`
 * @example
 * mx.fft.fft2(mx.ones([2, 2])).real.tolist() // => [[4, 0], [0, 0]]
 */
export const fft2: Fftn = alongMany("fft2", { real: false, inverse: false }, [-2, -1])

/**
 * The Fourier transform along several axes, all of them by default.
 * @throws ShapeError if an axis is out of bounds or repeated, a length is not positive, or there are not as many lengths as axes;
 * ArgumentError for lengths without axes or an unknown `norm`
 * @example
 * mx.fft.fftn(mx.ones([2, 2])).real.tolist() // => [[4, 0], [0, 0]]
 */
export const fftn: Fftn = alongMany("fftn", { real: false, inverse: false }, null)

/**
 * The inverse of {@link fft2} along two axes, the last two by default.
 * @throws ShapeError if an axis is out of bounds or repeated, a length is not positive, or there are not as many lengths as axes;
 * ArgumentError for lengths without axes or an unknown `norm`
 * @example
 * mx.fft.ifft2(mx.ones([2, 2])).real.tolist() // => [[1, 0], [0, 0]]
 */
export const ifft2: Fftn = alongMany("ifft2", { real: false, inverse: true }, [-2, -1])

/**
 * The inverse of {@link fftn} along several axes, all of them by default.
 * @throws ShapeError if an axis is out of bounds or repeated, a length is not positive, or there are not as many lengths as axes;
 * ArgumentError for lengths without axes or an unknown `norm`
 * @example
 * mx.fft.ifftn(mx.ones([2, 2])).real.tolist() // => [[1, 0], [0, 0]]
 */
export const ifftn: Fftn = alongMany("ifftn", { real: false, inverse: true }, null)

/**
 * The Fourier transform of real numbers along two axes, the last two by default; the last of `axes` has length n/2 + 1.
 * @throws DTypeError for complex numbers; ShapeError if an axis is out of bounds or repeated, a length is not positive, or there are not as
 * many lengths as axes; ArgumentError for lengths without axes or an unknown `norm`
 * @example
 * mx.fft.rfft2(mx.ones([2, 4])).shape // => [2, 3]
 */
export const rfft2: Fftn = alongMany("rfft2", { real: true, inverse: false }, [-2, -1])

/**
 * The Fourier transform of real numbers along several axes, all of them by default; the last of `axes` has length n/2 + 1.
 * @throws DTypeError for complex numbers; ShapeError if an axis is out of bounds or repeated, a length is not positive, or there are not as
 * many lengths as axes; ArgumentError for lengths without axes or an unknown `norm`
 * @example
 * mx.fft.rfftn(mx.ones([2, 4])).shape // => [2, 3]
 */
export const rfftn: Fftn = alongMany("rfftn", { real: true, inverse: false }, null)

/**
 * The inverse of {@link rfft2} along two axes, the last two by default, as float32. The last length in `s` is that of the result, by
 * default 2·(size − 1).
 * @throws ShapeError if an axis is out of bounds or repeated, a length is not positive, or there are not as many lengths as axes;
 * ArgumentError for lengths without axes or an unknown `norm`
 * @example
 * mx.fft.irfft2(mx.fft.rfft2(mx.ones([2, 4]))).tolist() // => [[1, 1, 1, 1], [1, 1, 1, 1]]
 */
export const irfft2: Fftn = alongMany("irfft2", { real: true, inverse: true }, [-2, -1])

/**
 * The inverse of {@link rfftn} along several axes, all of them by default, as float32. The last length in `s` is that of the result, by
 * default 2·(size − 1).
 * @throws ShapeError if an axis is out of bounds or repeated, a length is not positive, or there are not as many lengths as axes;
 * ArgumentError for lengths without axes or an unknown `norm`
 * @example
 * mx.fft.irfftn(mx.fft.rfftn(mx.ones([2, 4]))).tolist() // => [[1, 1, 1, 1], [1, 1, 1, 1]]
 */
export const irfftn: Fftn = alongMany("irfftn", { real: true, inverse: true }, null)

/** The frequencies order(i, n) / (n·d) for i < count(n). */
function frequencies(name: string, count: (n: number) => number, order: (i: number, n: number) => number) {
  const op = `fft.${name}`
  const call = operation(op, { n: "points", d: "number?" }, (n: unknown, d: unknown = 1) => {
    if (typeof n !== "number" || !Number.isInteger(n) || n <= 0)
      throw new ArgumentError(op, `n must be a positive integer, received ${describe(n)}`)
    if (typeof d !== "number" || d === 0 || Number.isNaN(d))
      throw new ArgumentError(op, `d must be a number other than 0, received ${describe(d)}`)
    const values = new Float32Array(count(n))
    for (let i = 0; i < values.length; i++) values[i] = order(i, n) / (n * d)
    return arrayFromStore(values, [values.length], float32)
  })
  return (...args: unknown[]): Array => call(args)
}
const fftfreqArgs = frequencies(
  "fftfreq",
  (n) => n,
  (i, n) => (2 * i < n ? i : i - n),
)
/**
 * The frequencies of the elements of {@link fft}, in cycles per unit of the sample spacing `d` (1): the positive ones, then the negative
 * ones.
 * @throws ArgumentError unless n is a positive integer and d a number other than 0
 * @example
 * mx.fft.fftfreq(4).tolist() // => [0, 0.25, -0.5, -0.25]
 */
export function fftfreq(n: number, d?: number, options?: StreamOptions): Array
export function fftfreq(n: number, options: { d?: number } & StreamOptions): Array
export function fftfreq(...args: unknown[]): Array {
  return fftfreqArgs(...args)
}

const rfftfreqArgs = frequencies(
  "rfftfreq",
  (n) => Math.floor(n / 2) + 1,
  (i) => i,
)
/**
 * The frequencies of the elements of {@link rfft}, in cycles per unit of the sample spacing `d` (1).
 * @throws ArgumentError unless n is a positive integer and d a number other than 0
 * @example
 * mx.fft.rfftfreq(4).tolist() // => [0, 0.25, 0.5]
 */
export function rfftfreq(n: number, d?: number, options?: StreamOptions): Array
export function rfftfreq(n: number, options: { d?: number } & StreamOptions): Array
export function rfftfreq(...args: unknown[]): Array {
  return rfftfreqArgs(...args)
}

function shift(name: string, by: (n: number) => number) {
  const op = `fft.${name}`
  const call = operation(op, { a: "array", axes: "axes?" }, (x: Array, axes?: Axes) => {
    const list =
      axes === undefined || axes === null
        ? x.shape.map((_, i) => i)
        : typeof axes === "number"
          ? [axes]
          : axes
    if (!isList(list))
      throw new ArgumentError(op, `axes must be a number or a list of numbers, received ${describe(axes)}`)
    const normal = list.map((axis) => normalizeAxis(op, axis, x.ndim))
    if (normal.length === 0) return x
    return roll(
      x,
      normal.map((axis) => by(x.shape[axis])),
      normal,
    )
  })
  return (...args: unknown[]): Array => call(args)
}
const fftshiftArgs = shift("fftshift", (n) => Math.floor(n / 2))
/**
 * Moves the zero frequency to the middle, along the given axes (all by default).
 * @throws ShapeError if an axis is out of bounds
 * @example
 * mx.fft.fftshift(mx.fft.fftfreq(4)).tolist() // => [-0.5, -0.25, 0, 0.25]
 */
export function fftshift(a: Array, axes?: Axes, options?: StreamOptions): Array
export function fftshift(a: Array, options: { axes?: Axes } & StreamOptions): Array
export function fftshift(...args: unknown[]): Array {
  return fftshiftArgs(...args)
}

const ifftshiftArgs = shift("ifftshift", (n) => -Math.floor(n / 2))
/**
 * Undoes {@link fftshift}.
 * @throws ShapeError if an axis is out of bounds
 * @example
 * mx.fft.ifftshift(mx.array([-2, -1, 0, 1])).tolist() // => [0, 1, -2, -1]
 */
export function ifftshift(a: Array, axes?: Axes, options?: StreamOptions): Array
export function ifftshift(a: Array, options: { axes?: Axes } & StreamOptions): Array
export function ifftshift(...args: unknown[]): Array {
  return ifftshiftArgs(...args)
}
