/**
 * Upsample: resizes the spatial axes of [batch, …, channels] by interpolation, one axis after the other.
 */
import * as mx from "@lazuli/core"
import { ArgumentError, asCall, format, isList, isListOf, type Kind, ShapeError } from "@lazuli/core/engine"
import { called, named } from "../arguments"
import { Module } from "../module"

const modes = ["nearest", "linear", "cubic"] as const
/** The interpolation mode. */
export type UpsampleMode = (typeof modes)[number]

/** Options of {@link Upsample} other than the scale factor. */
export interface UpsampleOptions {
  /** Nearest neighbor (the default), linear, or cubic. */
  mode?: UpsampleMode
  /** Align the centers of the corner elements of input and output instead of their edges. */
  alignCorners?: boolean
  /** Apply an antialiasing filter when downsampling. */
  antialias?: boolean
}

/** One input position and its weight for every output position. */
interface Tap {
  readonly positions: Int32Array
  readonly weights: Float64Array
}

/** The most positions of an axis, for which a table is computed. */
const MAX_POSITIONS = 1 << 25

function checkCount(axis: number, to: number): void {
  if (to > MAX_POSITIONS)
    throw new ShapeError("Upsample", `axis ${axis} would have ${to} positions, at most ${MAX_POSITIONS}`)
}

/** max(1 − |d|, 0) */
const triangle = (d: number): number => Math.max(0, 1 - Math.abs(d))

/** Keys' cubic; a = −0.75 is OpenCV's, −0.5 the one of antialiasing. https://doi.org/10.1109/TASSP.1981.1163711 */
function cubic(d: number, a: number): number {
  const x = Math.abs(d)
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0
}

/** The coordinate of output position i among `from` input positions. */
function coordinate(i: number, from: number, to: number, scale: number, alignCorners: boolean): number {
  if (alignCorners) return to > 1 ? (i * (from - 1)) / (to - 1) : 0
  const step = 1 / scale
  return i * step - ((to - 1) * step - from + 1) / 2
}

/** The taps of plain interpolation; positions are clamped to the boundary. */
function plainTaps(
  from: number,
  to: number,
  scale: number,
  mode: UpsampleMode,
  alignCorners: boolean,
): Tap[] {
  const clip = (k: number): number => Math.min(Math.max(k, 0), from - 1)
  const offsets = mode === "linear" ? [0, 1] : [-1, 0, 1, 2]
  const taps = offsets.map((): Tap => ({ positions: new Int32Array(to), weights: new Float64Array(to) }))
  for (let i = 0; i < to; i++) {
    const raw = coordinate(i, from, to, scale, alignCorners)
    const at = mode === "linear" ? clip(raw) : raw
    const base = Math.floor(at)
    offsets.forEach((offset, t) => {
      taps[t].positions[i] = clip(base + offset)
      taps[t].weights[i] = mode === "linear" ? triangle(at - base - offset) : cubic(at - base - offset, -0.75)
    })
  }
  return taps
}

/** The taps of antialiased interpolation: a filter as wide as the sampling distance, clipped to the input. */
function wideTaps(from: number, to: number, scale: number, mode: UpsampleMode): Tap[] {
  const width = Math.max(1, 1 / scale)
  const support = (mode === "linear" ? 1 : 2) * width
  const filter = (d: number): number => (mode === "linear" ? triangle(d) : cubic(d, -0.5))
  const rows = Array.from({ length: to }, (_, i) => {
    const center = coordinate(i, from, to, scale, false)
    const first = Math.max(Math.ceil(center - support), 0)
    const last = Math.min(Math.floor(center + support), from - 1)
    const weights: number[] = []
    for (let k = first; k <= last; k++) weights.push(filter((k - center) / width))
    const total = weights.reduce((a, b) => a + b, 0)
    return { first, weights: weights.map((w) => (total === 0 ? 0 : w / total)) }
  })
  const count = rows.reduce((most, row) => Math.max(most, row.weights.length), 1)
  return Array.from({ length: count }, (_, t) => ({
    positions: Int32Array.from(rows, ({ first }) => Math.min(first + t, from - 1)),
    weights: Float64Array.from(rows, ({ weights }) => weights[t] ?? 0),
  }))
}

/** Interpolates x along an axis: the weighted sum of all taps. */
function combine(x: mx.Array, axis: number, taps: readonly Tap[]): mx.Array {
  const shape = x.shape.map((_, i) => (i === axis ? -1 : 1))
  // As in MLX, 16-bit floats become float32.
  const dtype = x.dtype === mx.float64 ? mx.float64 : mx.float32
  return taps
    .map(({ positions, weights }) =>
      mx.take(x, mx.array(positions), axis).multiply(mx.array(weights, dtype).reshape(shape)),
    )
    .reduce((sum, part) => sum.add(part))
}

/** The nearest input position of each output position, in the arithmetic of float32. */
function nearestPositions(from: number, to: number): Int32Array {
  const ratio = Math.fround(from / to)
  return Int32Array.from({ length: to }, (_, i) => {
    if (to <= from) return Math.trunc(Math.fround(i * ratio))
    const at = Math.fround(Math.fround((i + 0.5) * ratio) - 0.5)
    const below = Math.floor(at)
    // Ties to even.
    const near = at - below === 0.5 ? below + (below % 2) : Math.round(at)
    return Math.min(Math.max(near, 0), from - 1)
  })
}

function resizeNearest(x: mx.Array, axis: number, scale: number): mx.Array {
  const from = x.shape[axis]
  if (!Number.isInteger(scale)) {
    const to = Math.trunc(scale * from)
    checkCount(axis, to)
    return mx.take(x, mx.array(nearestPositions(from, to)), axis)
  }
  const repeated = x.expandDims(axis + 1)
  const shape = repeated.shape.map((n, i) => (i === axis + 1 ? scale : n))
  return repeated.broadcastTo(shape).flatten(axis, axis + 1)
}

/** Resizes one axis, recorded as one call, since positions and weights depend on the sizes. */
const resize = asCall(
  "@lazuli/nn/resize",
  (
    x: mx.Array,
    axis: number,
    scale: number,
    mode: UpsampleMode,
    alignCorners: boolean,
    antialias: boolean,
  ): mx.Array => {
    if (mode === "nearest") return resizeNearest(x, axis, scale)
    const [from, to] = [x.shape[axis], Math.trunc(scale * x.shape[axis])]
    checkCount(axis, to)
    const taps = antialias ? wideTaps(from, to, scale, mode) : plainTaps(from, to, scale, mode, alignCorners)
    return combine(x, axis, taps)
  },
)

const isFactor = (n: unknown): boolean => typeof n === "number" && n > 0 && n < Number.POSITIVE_INFINITY
const factors: Kind = {
  expected: "a number above 0 or a list of them",
  accepts: (value: unknown) => isFactor(value) || isListOf(value, isFactor),
  element: isFactor,
}

/**
 * Resizes the spatial axes of [batch, …, channels] by a scale factor, or one per axis.
 * @throws ArgumentError for an unknown mode, or antialiasing with the mode "nearest" or alignCorners; ShapeError for the wrong number of
 * factors
 * @example
 * new nn.Upsample(2).forward(mx.array([1, 2]).reshape([1, 2, 1])).flatten().tolist() // => [1, 1, 2, 2]
 */
export class Upsample extends Module {
  scaleFactor: number | readonly number[]
  mode: UpsampleMode
  alignCorners: boolean
  antialias: boolean

  constructor(
    scaleFactor: number | readonly number[],
    mode?: UpsampleMode,
    alignCorners?: boolean,
    antialias?: boolean,
  )
  constructor(scaleFactor: number | readonly number[], options: UpsampleOptions)
  constructor(options: { scaleFactor: number | readonly number[] } & UpsampleOptions)
  constructor(...args: unknown[]) {
    super()
    const [scaleFactor, mode = "nearest", alignCorners = false, antialias = false] = named<
      [number | readonly number[], UpsampleMode?, boolean?, boolean?]
    >("Upsample", { scaleFactor: factors, mode: modes, alignCorners: "bool?", antialias: "bool?" }, args)
    if (antialias && mode === "nearest")
      throw new ArgumentError("Upsample", "antialiasing does not apply to the nearest value")
    if (antialias && alignCorners)
      throw new ArgumentError("Upsample", "antialiasing cannot be combined with alignCorners")
    this.scaleFactor = scaleFactor
    this.mode = mode
    this.alignCorners = alignCorners
    this.antialias = antialias
  }

  forward(x: mx.Array): mx.Array {
    return called(this, { x }, () => this.resized(x))
  }

  private resized(x: mx.Array): mx.Array {
    const { mode, alignCorners, antialias } = this
    const { shape } = x.node
    const spatial = shape.length - 2
    if (spatial < 1)
      throw new ShapeError(
        "Upsample",
        `expects an array of at least 3 dimensions, received shape ${format(shape)}`,
      )
    const factors = isList(this.scaleFactor)
      ? (this.scaleFactor as readonly number[])
      : Array.from({ length: spatial }, () => this.scaleFactor as number)
    if (factors.length !== spatial)
      throw new ShapeError("Upsample", `expected ${spatial} scale factors, received ${factors.length}`)
    return factors.reduce((y, scale, i) => resize(y, i + 1, scale, mode, alignCorners, antialias), x)
  }

  protected override extraRepr(): string {
    const { scaleFactor, mode, alignCorners, antialias } = this
    return `scaleFactor=${String(scaleFactor)}, mode=${mode}, alignCorners=${alignCorners}${antialias ? ", antialias=true" : ""}`
  }
}
