/**
 * Pooling: the maximum or the mean of each window of the spatial axes of [batch, …, channels].
 */
import * as mx from "@lazuli/core"
import { ArgumentError, describe, format, isList, ShapeError } from "@lazuli/core/engine"
import { named } from "../arguments"
import { Module } from "../module"

/** One number for all spatial axes, or one for each. */
export type PerAxis = number | readonly number[]

/** Settings of pooling beside the window. */
export interface PoolingOptions {
  /** Steps between windows; the window's sizes by default. */
  stride?: PerAxis | null
  /** What is added at both ends of each axis; 0 by default. */
  padding?: PerAxis | null
}

function perAxis(op: string, name: string, value: unknown, axes: number, least: number): number[] {
  const list = isList(value) ? value : Array.from({ length: axes }, () => value)
  if (list.length !== axes || !list.every((n) => Number.isInteger(n) && (n as number) >= least))
    throw new ArgumentError(
      op,
      `${name} must be an integer of at least ${least} or a list of ${axes}, received ${describe(value)}`,
    )
  return list as number[]
}

/** x with `count` values more at both ends of the axis. */
function padded(x: mx.Array, axis: number, count: number, value: number): mx.Array {
  if (count === 0) return x
  const shape = x.shape.map((n, i) => (i === axis ? count : n))
  const edge = mx.full(shape, value, x.dtype)
  return mx.concatenate([edge, x, edge], axis)
}

/** What all pooling layers do; each says how it reduces windows and what it pads with. */
abstract class Pool extends Module {
  kernelSize: number[]
  stride: number[]
  padding: number[]

  constructor(op: string, axes: number, args: readonly unknown[]) {
    super()
    const [kernelSize, stride, padding = 0] = named<[PerAxis, PerAxis?, PerAxis?]>(
      op,
      ["kernelSize", "stride", "padding"],
      args,
      1,
    )
    this.kernelSize = perAxis(op, "kernelSize", kernelSize, axes, 1)
    this.stride = perAxis(op, "stride", stride ?? kernelSize, axes, 1)
    this.padding = perAxis(op, "padding", padding, axes, 0)
  }

  /** What padding consists of. */
  protected abstract readonly edge: number
  /** Reduces the given axes. */
  protected abstract reduce(x: mx.Array, axes: number[]): mx.Array

  /** @param x - [batch, …, channels] */
  forward(x: mx.Array): mx.Array {
    const { kernelSize, stride, padding } = this
    const spatial = kernelSize.length
    if (x.ndim !== spatial + 2)
      throw new ShapeError(
        this.constructor.name,
        `expects an array of ${spatial + 2} dimensions, received shape ${format(x.shape)}`,
      )
    const full = padding.reduce((y, count, i) => padded(y, i + 1, count, this.edge), x)
    const sizes = full.shape.slice(1, -1)
    kernelSize.forEach((k, i) => {
      if (k > sizes[i])
        throw new ShapeError(
          this.constructor.name,
          `the window of size ${k} does not fit axis ${i + 1} of size ${sizes[i]}, padding included`,
        )
    })
    const tiles = kernelSize.every((k, i) => k === stride[i] && sizes[i] % k === 0)
    return tiles ? this.reduceTiles(full) : this.reduceWindows(full)
  }

  /** Windows that touch without overlapping are axes of their own after a reshape. */
  private reduceTiles(x: mx.Array): mx.Array {
    const { kernelSize } = this
    const shape = kernelSize.flatMap((k, i) => [x.shape[i + 1] / k, k])
    const windows = x.reshape([x.shape[0], ...shape, x.shape[x.ndim - 1]])
    return this.reduce(
      windows,
      kernelSize.map((_, i) => 2 * i + 2),
    )
  }

  /** Others are gathered: for each place in a window, the elements at that place, as one slice with steps. */
  private reduceWindows(x: mx.Array): mx.Array {
    const { kernelSize, stride } = this
    let places: mx.IndexSpec[][] = [[":"]]
    kernelSize.forEach((k, i) => {
      const last = Math.floor((x.shape[i + 1] - k) / stride[i]) * stride[i]
      places = places.flatMap((before) =>
        Array.from({ length: k }, (_, at) => [...before, mx.s(at, at + last + 1, stride[i])]),
      )
    })
    const slices = places.map((place) => x.index(...place))
    return this.reduce(mx.stack(slices, -1), [x.ndim])
  }

  protected override extraRepr(): string {
    return `kernelSize=[${this.kernelSize}], stride=[${this.stride}], padding=[${this.padding}]`
  }
}

abstract class MaxPool extends Pool {
  protected get edge(): number {
    return Number.NEGATIVE_INFINITY
  }
  protected reduce(x: mx.Array, axes: number[]): mx.Array {
    return x.max(axes)
  }
}

abstract class AvgPool extends Pool {
  protected get edge(): number {
    return 0
  }
  protected reduce(x: mx.Array, axes: number[]): mx.Array {
    return x.mean(axes)
  }
}

/**
 * Largest element of each window of [batch, length, channels].
 * @throws ShapeError for an array of other dimensions, or a window that does not fit
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
 * Largest element of each window of [batch, height, width, channels].
 * @throws ShapeError for an array of other dimensions, or a window that does not fit
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
 * Largest element of each window of [batch, depth, height, width, channels].
 * @throws ShapeError for an array of other dimensions, or a window that does not fit
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
 * Mean of each window of [batch, length, channels]. Padding counts as 0.
 * @throws ShapeError for an array of other dimensions, or a window that does not fit
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
 * Mean of each window of [batch, height, width, channels]. Padding counts as 0.
 * @throws ShapeError for an array of other dimensions, or a window that does not fit
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
 * Mean of each window of [batch, depth, height, width, channels]. Padding counts as 0.
 * @throws ShapeError for an array of other dimensions, or a window that does not fit
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
