/**
 * Pooling: the maximum or the mean of each window of the spatial axes of [batch, …, channels].
 */
import * as mx from "@lazuli/core"
import { asCall, format, ShapeError } from "@lazuli/core/engine"
import { called, named, optional, perAxisOf } from "../arguments"
import { Module } from "../module"

/** One number for all spatial axes, or one for each. */
export type PerAxis = number | readonly number[]

/** Options of pooling layers. */
export interface PoolingOptions {
  /** The stride of windows; the window size by default. */
  stride?: PerAxis | null
  /** The padding at both ends of each axis; 0 by default. */
  padding?: PerAxis | null
}

/** The neutral element of a maximum. */
function lowest(dtype: mx.Dtype): number | bigint | boolean {
  if (dtype === mx.bool_) return false
  return mx.issubdtype(dtype, mx.integer) ? mx.iinfo(dtype).min : Number.NEGATIVE_INFINITY
}

/** Pads an axis with `count` elements at both ends. */
function padded(x: mx.Array, axis: number, count: number, value: mx.Scalar): mx.Array {
  if (count === 0) return x
  const shape = x.shape.map((n, i) => (i === axis ? count : n))
  const edge = mx.full(shape, value, x.dtype)
  return mx.concatenate([edge, x, edge], axis)
}

type Kind = "max" | "mean"
const reduce = (x: mx.Array, kind: Kind, axes: number[]): mx.Array =>
  kind === "max" ? x.max(axes) : x.mean(axes)

/** Tiling windows become axes by a reshape. */
function reduceTiles(x: mx.Array, kind: Kind, kernelSize: readonly number[]): mx.Array {
  const shape = kernelSize.flatMap((k, i) => [x.shape[i + 1] / k, k])
  const windows = x.reshape([x.shape[0], ...shape, x.shape[x.ndim - 1]])
  return reduce(
    windows,
    kind,
    kernelSize.map((_, i) => 2 * i + 2),
  )
}

/** The most elements of a window: each needs a strided slice. */
const MAX_POSITIONS = 1 << 20

/** Other windows: one strided slice for each position in a window. */
function reduceWindows(
  x: mx.Array,
  kind: Kind,
  kernelSize: readonly number[],
  stride: readonly number[],
): mx.Array {
  let positions: mx.IndexSpec[][] = [[":"]]
  kernelSize.forEach((k, i) => {
    const last = Math.floor((x.shape[i + 1] - k) / stride[i]) * stride[i]
    positions = positions.flatMap((before) =>
      Array.from({ length: k }, (_, at) => [...before, mx.s(at, at + last + 1, stride[i])]),
    )
  })
  const slices = positions.map((position) => x.index(...position))
  return reduce(mx.stack(slices, -1), kind, [x.ndim])
}

/** Pooling of [batch, …, channels], recorded as one call, since its graph depends on the sizes. */
const pool = asCall(
  "@lazuli/nn/pool",
  (
    x: mx.Array,
    kind: Kind,
    kernelSize: readonly number[],
    stride: readonly number[],
    padding: readonly number[],
    op: string,
  ): mx.Array => {
    const spatial = kernelSize.length
    if (x.ndim !== spatial + 2)
      throw new ShapeError(
        op,
        `expects an array of ${spatial + 2} dimensions, received shape ${format(x.shape)}`,
      )
    const edge = kind === "max" ? lowest(x.dtype) : 0
    const full = padding.reduce((y, count, i) => padded(y, i + 1, count, edge), x)
    const sizes = full.shape.slice(1, -1)
    kernelSize.forEach((k, i) => {
      if (k > sizes[i])
        throw new ShapeError(
          op,
          `the window of size ${k} does not fit axis ${i + 1} of size ${sizes[i]}, padding included`,
        )
    })
    const count = kernelSize.reduce((n, k) => n * k, 1)
    const tiles = kernelSize.every((k, i) => k === stride[i] && sizes[i] % k === 0)
    if (!tiles && count > MAX_POSITIONS)
      throw new ShapeError(
        op,
        `a window has ${count} elements, at most ${MAX_POSITIONS} unless windows are tiles`,
      )
    return tiles ? reduceTiles(full, kind, kernelSize) : reduceWindows(full, kind, kernelSize, stride)
  },
)

/** The base of pooling layers: window, stride and padding. */
abstract class Pool extends Module {
  kernelSize: number[]
  stride: number[]
  padding: number[]

  constructor(op: string, axes: number, args: readonly unknown[]) {
    super()
    const [kernelSize, stride, padding = 0] = named<[PerAxis, (PerAxis | null)?, (PerAxis | null)?]>(
      op,
      {
        kernelSize: perAxisOf(axes, 1),
        stride: optional(perAxisOf(axes, 1)),
        padding: optional(perAxisOf(axes, 0)),
      },
      args,
    )
    const perAxis = (value: PerAxis): number[] =>
      typeof value === "number" ? Array.from({ length: axes }, () => value) : [...value]
    this.kernelSize = perAxis(kernelSize)
    this.stride = perAxis(stride ?? kernelSize)
    this.padding = perAxis(padding)
  }

  /** The reduction of a window. */
  protected abstract readonly kind: Kind

  /** @param x - [batch, …, channels] */
  forward(x: mx.Array): mx.Array {
    const { kind, kernelSize, stride, padding } = this
    return called(this, { x }, () => pool(x, kind, kernelSize, stride, padding, this.constructor.name))
  }

  protected override extraRepr(): string {
    return `kernelSize=[${this.kernelSize}], stride=[${this.stride}], padding=[${this.padding}]`
  }
}

abstract class MaxPool extends Pool {
  protected get kind(): Kind {
    return "max"
  }
}

abstract class AvgPool extends Pool {
  protected get kind(): Kind {
    return "mean"
  }
}

/**
 * The maximum of each window of [batch, length, channels].
 * @throws ShapeError for another number of dimensions, or a window that does not fit
 * @example
 * new nn.MaxPool1d(2).forward(mx.ones([1, 4, 2])).shape // => [1, 2, 2]
 */
export class MaxPool1d extends MaxPool {
  constructor(kernelSize: PerAxis, stride?: PerAxis | null, padding?: PerAxis | null)
  constructor(kernelSize: PerAxis, options: PoolingOptions)
  constructor(options: { kernelSize: PerAxis } & PoolingOptions)
  constructor(...args: unknown[]) {
    super("MaxPool1d", 1, args)
  }
}

/**
 * The maximum of each window of [batch, height, width, channels].
 * @throws ShapeError for another number of dimensions, or a window that does not fit
 * @example
 * new nn.MaxPool2d(2).forward(mx.ones([1, 4, 4, 2])).shape // => [1, 2, 2, 2]
 */
export class MaxPool2d extends MaxPool {
  constructor(kernelSize: PerAxis, stride?: PerAxis | null, padding?: PerAxis | null)
  constructor(kernelSize: PerAxis, options: PoolingOptions)
  constructor(options: { kernelSize: PerAxis } & PoolingOptions)
  constructor(...args: unknown[]) {
    super("MaxPool2d", 2, args)
  }
}

/**
 * The maximum of each window of [batch, depth, height, width, channels].
 * @throws ShapeError for another number of dimensions, or a window that does not fit
 * @example
 * new nn.MaxPool3d(2).forward(mx.ones([1, 4, 4, 4, 2])).shape // => [1, 2, 2, 2, 2]
 */
export class MaxPool3d extends MaxPool {
  constructor(kernelSize: PerAxis, stride?: PerAxis | null, padding?: PerAxis | null)
  constructor(kernelSize: PerAxis, options: PoolingOptions)
  constructor(options: { kernelSize: PerAxis } & PoolingOptions)
  constructor(...args: unknown[]) {
    super("MaxPool3d", 3, args)
  }
}

/**
 * The mean of each window of [batch, length, channels]. Padding counts as 0.
 * @throws ShapeError for another number of dimensions, or a window that does not fit
 * @example
 * new nn.AvgPool1d(2).forward(mx.ones([1, 4, 2])).shape // => [1, 2, 2]
 */
export class AvgPool1d extends AvgPool {
  constructor(kernelSize: PerAxis, stride?: PerAxis | null, padding?: PerAxis | null)
  constructor(kernelSize: PerAxis, options: PoolingOptions)
  constructor(options: { kernelSize: PerAxis } & PoolingOptions)
  constructor(...args: unknown[]) {
    super("AvgPool1d", 1, args)
  }
}

/**
 * The mean of each window of [batch, height, width, channels]. Padding counts as 0.
 * @throws ShapeError for another number of dimensions, or a window that does not fit
 * @example
 * new nn.AvgPool2d(2).forward(mx.ones([1, 4, 4, 2])).shape // => [1, 2, 2, 2]
 */
export class AvgPool2d extends AvgPool {
  constructor(kernelSize: PerAxis, stride?: PerAxis | null, padding?: PerAxis | null)
  constructor(kernelSize: PerAxis, options: PoolingOptions)
  constructor(options: { kernelSize: PerAxis } & PoolingOptions)
  constructor(...args: unknown[]) {
    super("AvgPool2d", 2, args)
  }
}

/**
 * The mean of each window of [batch, depth, height, width, channels]. Padding counts as 0.
 * @throws ShapeError for another number of dimensions, or a window that does not fit
 * @example
 * new nn.AvgPool3d(2).forward(mx.ones([1, 4, 4, 4, 2])).shape // => [1, 2, 2, 2, 2]
 */
export class AvgPool3d extends AvgPool {
  constructor(kernelSize: PerAxis, stride?: PerAxis | null, padding?: PerAxis | null)
  constructor(kernelSize: PerAxis, options: PoolingOptions)
  constructor(options: { kernelSize: PerAxis } & PoolingOptions)
  constructor(...args: unknown[]) {
    super("AvgPool3d", 3, args)
  }
}
