/**
 * Normalization: over the last axis (LayerNorm, RMSNorm), over groups of channels, over each example's channels, over the batch.
 * Channels are the last axis everywhere.
 */
import * as mx from "@lazuli/core"
import { ArgumentError, asCall, format, ShapeError } from "@lazuli/core/engine"
import { called, checkFeatures, named } from "../arguments"
import { Module } from "../module"
import type { FreezeOptions } from "../module-options"

/** Converts 16-bit floats to float32: squared deviations may overflow them. */
const wide = (x: mx.Array): mx.Array =>
  x.dtype.size === 2 && mx.issubdtype(x.dtype, mx.floating) ? x.astype(mx.float32) : x

/** (x − mean) / √(variance + eps), in the promoted dtype of x and the mean. */
function standardize(x: mx.Array, mean: mx.Array, variance: mx.Array, eps: number): mx.Array {
  const y = wide(x).subtract(wide(mean)).multiply(wide(variance).add(eps).rsqrt())
  return x.dtype.size === 2 && mean.dtype.size === 2 ? y.astype(mx.resultType(x, mean)) : y
}

/** {@link standardize} by the mean and variance along the given axes. */
function standardizeOver(x: mx.Array, axes: readonly number[], eps: number): mx.Array {
  const w = wide(x)
  const y = standardize(w, w.mean(axes, true), w.var(axes, true), eps)
  return w === x ? y : y.astype(x.dtype)
}

/** weight · x + bias, if there is a weight. */
const scaled = (x: mx.Array, weight?: mx.Array, bias?: mx.Array): mx.Array =>
  weight && bias ? weight.multiply(x).add(bias) : x

/** The printed form of a layer that only has options. */
const settings = (values: Record<string, unknown>): string =>
  Object.entries(values)
    .map(([name, value]) => `${name}=${value}`)
    .join(", ")

/**
 * y = (x − E[x]) / √(Var[x] + eps) · weight + bias, over the last axis. https://arxiv.org/abs/1607.06450
 * @example
 * new nn.LayerNorm(2).forward(mx.array([[1, 1]])).tolist() // => [[0, 0]]
 */
export class LayerNorm extends Module {
  weight?: mx.Array
  bias?: mx.Array
  dims: number
  eps: number

  constructor(dims: number, eps?: number, affine?: boolean, bias?: boolean)
  constructor(dims: number, options: { eps?: number; affine?: boolean; bias?: boolean })
  constructor(options: { dims: number; eps?: number; affine?: boolean; bias?: boolean })
  constructor(...args: unknown[]) {
    super()
    const [dims, eps = 1e-5, affine = true, bias = true] = named<[number, number?, boolean?, boolean?]>(
      "LayerNorm",
      { dims: "count", eps: "positive?", affine: "bool?", bias: "bool?" },
      args,
    )
    if (affine) this.weight = mx.ones([dims])
    if (affine && bias) this.bias = mx.zeros([dims])
    this.dims = dims
    this.eps = eps
  }

  forward(x: mx.Array): mx.Array {
    return called(
      this,
      { x },
      () => mx.fast.layerNorm(x, this.weight ?? null, this.bias ?? null, this.eps),
      () => ({ x: this.dims }),
    )
  }

  protected override extraRepr(): string {
    return settings({ dims: this.dims, eps: this.eps, affine: this.weight !== undefined })
  }
}

/**
 * y = x / √(E[x²] + eps) · weight, over the last axis. https://arxiv.org/abs/1910.07467
 * @example
 * new nn.RMSNorm(2, { eps: 1e-12 }).forward(mx.array([[2, 2]])).tolist() // => [[1, 1]]
 */
export class RMSNorm extends Module {
  weight: mx.Array
  eps: number

  constructor(dims: number, eps?: number)
  constructor(dims: number, options: { eps?: number })
  constructor(options: { dims: number; eps?: number })
  constructor(...args: unknown[]) {
    super()
    const [dims, eps = 1e-5] = named<[number, number?]>("RMSNorm", { dims: "count", eps: "positive?" }, args)
    this.weight = mx.ones([dims])
    this.eps = eps
  }

  forward(x: mx.Array): mx.Array {
    const { weight, eps } = this
    return called(
      this,
      { x },
      () => mx.fast.rmsNorm(x, weight, eps),
      () => ({ x: weight.node.shape[0] }),
    )
  }

  protected override extraRepr(): string {
    return settings({ dims: this.weight.shape[0], eps: this.eps })
  }
}

/** Computed explicitly, since reshape cannot infer a size for an empty batch. */
const positionsOf = (x: mx.Array): number => x.shape.slice(1, -1).reduce((product, n) => product * n, 1)

const overAdjacentChannels = asCall(
  "@lazuli/nn/overAdjacentChannels",
  (x: mx.Array, numGroups: number, size: number, eps: number): mx.Array => {
    const batch = x.shape[0]
    const positions = positionsOf(x)
    const groups = x.reshape([batch, positions, numGroups, size]).transpose([0, 2, 1, 3])
    const y = mx.fast.layerNorm(groups.reshape([batch, numGroups, positions * size]), null, null, eps)
    return y.reshape([batch, numGroups, positions, size]).transpose([0, 2, 1, 3]).reshape(x.shape)
  },
)

const overInterleavedChannels = asCall(
  "@lazuli/nn/overInterleavedChannels",
  (x: mx.Array, numGroups: number, eps: number): mx.Array => {
    const [channels] = x.shape.slice(-1)
    const groups = x.reshape([x.shape[0], (positionsOf(x) * channels) / numGroups, numGroups])
    return standardizeOver(groups, [1], eps).reshape(x.shape)
  },
)

/**
 * Normalizes each example over groups of channels and all positions. Channels of a group are interleaved, as in TensorFlow, unless
 * `pytorchCompatible`. https://arxiv.org/abs/1803.08494
 * @example
 * new nn.GroupNorm(2, 4).forward(mx.ones([1, 3, 4])).shape // => [1, 3, 4]
 */
export class GroupNorm extends Module {
  weight?: mx.Array
  bias?: mx.Array
  numGroups: number
  dims: number
  eps: number
  pytorchCompatible: boolean

  constructor(numGroups: number, dims: number, eps?: number, affine?: boolean, pytorchCompatible?: boolean)
  constructor(
    numGroups: number,
    dims: number,
    options: { eps?: number; affine?: boolean; pytorchCompatible?: boolean },
  )
  constructor(options: {
    numGroups: number
    dims: number
    eps?: number
    affine?: boolean
    pytorchCompatible?: boolean
  })
  constructor(...args: unknown[]) {
    super()
    const [numGroups, dims, eps = 1e-5, affine = true, pytorchCompatible = false] = named<
      [number, number, number?, boolean?, boolean?]
    >(
      "GroupNorm",
      { numGroups: "count", dims: "count", eps: "positive?", affine: "bool?", pytorchCompatible: "bool?" },
      args,
    )
    if (dims % numGroups !== 0)
      throw new ArgumentError(
        "GroupNorm",
        `dims must be divisible by numGroups, received ${dims} and ${numGroups}`,
      )
    if (affine) {
      this.bias = mx.zeros([dims])
      this.weight = mx.ones([dims])
    }
    this.numGroups = numGroups
    this.dims = dims
    this.eps = eps
    this.pytorchCompatible = pytorchCompatible
  }

  forward(x: mx.Array): mx.Array {
    const { numGroups, dims, eps } = this
    return called(this, { x }, () => {
      checkFeatures(this, { x }, { x: dims })
      const y = this.pytorchCompatible
        ? overAdjacentChannels(x, numGroups, dims / numGroups, eps)
        : overInterleavedChannels(x, numGroups, eps)
      return scaled(y, this.weight, this.bias)
    })
  }

  protected override extraRepr(): string {
    const { numGroups, dims, eps, weight, pytorchCompatible } = this
    return settings({ numGroups, dims, eps, affine: weight !== undefined, pytorchCompatible })
  }
}

/**
 * Normalizes each channel of each example over all positions. https://arxiv.org/abs/1607.08022
 * @example
 * new nn.InstanceNorm(2).forward(mx.ones([1, 3, 2])).tolist() // => [[[0, 0], [0, 0], [0, 0]]]
 */
export class InstanceNorm extends Module {
  weight?: mx.Array
  bias?: mx.Array
  dims: number
  eps: number

  constructor(dims: number, eps?: number, affine?: boolean)
  constructor(dims: number, options: { eps?: number; affine?: boolean })
  constructor(options: { dims: number; eps?: number; affine?: boolean })
  constructor(...args: unknown[]) {
    super()
    const [dims, eps = 1e-5, affine = false] = named<[number, number?, boolean?]>(
      "InstanceNorm",
      { dims: "count", eps: "positive?", affine: "bool?" },
      args,
    )
    if (affine) {
      this.weight = mx.ones([dims])
      this.bias = mx.zeros([dims])
    }
    this.dims = dims
    this.eps = eps
  }

  /** @param x - [batch, …, dims], with at least one axis of positions */
  forward(x: mx.Array): mx.Array {
    return called(this, { x }, () => {
      const { shape } = x.node
      if (shape.length < 3)
        throw new ShapeError(
          "InstanceNorm",
          `expects an array of at least 3 dimensions, [batch, …, channels], received shape ${format(shape)}`,
          {
            hint: "Without positions, each channel would equal its mean; LayerNorm normalizes over the channels",
          },
        )
      checkFeatures(this, { x }, { x: this.dims })
      return scaled(standardizeOver(x, axesBetween(1, shape.length - 1), this.eps), this.weight, this.bias)
    })
  }

  protected override extraRepr(): string {
    return settings({ dims: this.dims, eps: this.eps, affine: this.weight !== undefined })
  }
}

const axesBetween = (from: number, to: number): number[] =>
  globalThis.Array.from({ length: Math.max(0, to - from) }, (_, i) => from + i)

/** Updates a running statistic, in its own dtype. */
const followed = (running: mx.Array, value: mx.Array, momentum: number): mx.Array =>
  running
    .multiply(1 - momentum)
    .add(value.multiply(momentum))
    .astype(running.dtype)

const STATISTICS = ["runningMean", "runningVar"]
/** True for a running statistic, which calls replace. */
export const isStatistic = (module: Module, key: string): boolean =>
  module instanceof BatchNorm && STATISTICS.includes(key)

/**
 * Normalizes each channel over the batch and all positions; in evaluation mode, by the running mean and variance of training.
 * https://arxiv.org/abs/1502.03167
 * @example
 * new nn.BatchNorm(2).forward(mx.ones([4, 2])).shape // => [4, 2]
 */
export class BatchNorm extends Module {
  weight?: mx.Array
  bias?: mx.Array
  runningMean?: mx.Array
  runningVar?: mx.Array
  numFeatures: number
  eps: number
  momentum: number

  constructor(
    numFeatures: number,
    eps?: number,
    momentum?: number,
    affine?: boolean,
    trackRunningStats?: boolean,
  )
  constructor(
    numFeatures: number,
    options: { eps?: number; momentum?: number; affine?: boolean; trackRunningStats?: boolean },
  )
  constructor(options: {
    numFeatures: number
    eps?: number
    momentum?: number
    affine?: boolean
    trackRunningStats?: boolean
  })
  constructor(...args: unknown[]) {
    super()
    const [numFeatures, eps = 1e-5, momentum = 0.1, affine = true, trackRunningStats = true] = named<
      [number, number?, number?, boolean?, boolean?]
    >(
      "BatchNorm",
      {
        numFeatures: "count",
        eps: "positive?",
        momentum: "probability?",
        affine: "bool?",
        trackRunningStats: "bool?",
      },
      args,
    )
    this.numFeatures = numFeatures
    this.eps = eps
    this.momentum = momentum
    if (affine) {
      this.weight = mx.ones([numFeatures])
      this.bias = mx.zeros([numFeatures])
    }
    if (trackRunningStats) {
      this.runningMean = mx.zeros([numFeatures])
      this.runningVar = mx.ones([numFeatures])
      this.freezeStatistics()
    }
  }

  /** Unfreezes parameters; the running statistics remain frozen. */
  override unfreeze(options: FreezeOptions = {}): this {
    super.unfreeze(options)
    return this.freezeStatistics()
  }

  private freezeStatistics(): this {
    return this.freeze({ recurse: false, keys: STATISTICS })
  }

  forward(x: mx.Array): mx.Array {
    return called(this, { x }, () => this.normalize(x))
  }

  private normalize(x: mx.Array): mx.Array {
    const { shape } = x.node
    const ndim = shape.length
    if (ndim < 2 || ndim > 4)
      throw new ShapeError(
        "BatchNorm",
        `expects an array of 2 to 4 dimensions, received shape ${format(shape)}`,
      )
    checkFeatures(this, { x }, { x: this.numFeatures })
    const { runningMean, runningVar, momentum, eps } = this
    if (!this.training && runningMean && runningVar)
      return scaled(standardize(x, runningMean, runningVar, eps), this.weight, this.bias)
    const others = axesBetween(0, ndim - 1)
    if (this.training && others.every((axis) => shape[axis] === 1))
      throw new ShapeError(
        "BatchNorm",
        `needs more than one element per channel in training, received shape ${format(shape)}`,
        { hint: "One element has no variance; after eval() it is normalized by the running statistics" },
      )
    if (this.training && runningMean && runningVar) {
      const w = wide(x)
      this.runningMean = followed(runningMean, w.mean(others), momentum)
      // The running variance is the unbiased estimate, with divisor n − 1.
      this.runningVar = followed(runningVar, w.var({ axis: others, ddof: 1 }), momentum)
    }
    return scaled(standardizeOver(x, others, eps), this.weight, this.bias)
  }

  protected override extraRepr(): string {
    const { numFeatures, eps, momentum, weight, runningMean } = this
    return settings({
      numFeatures,
      eps,
      momentum,
      affine: weight !== undefined,
      trackRunningStats: runningMean !== undefined,
    })
  }
}
