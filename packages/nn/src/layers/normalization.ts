/**
 * Normalization: over the last axis (LayerNorm, RMSNorm), over groups of channels, over each example's channels, over the batch.
 * Channels are the last axis everywhere.
 */
import * as mx from "@lazuli/core"
import { ArgumentError, asCall, ShapeError } from "@lazuli/core/engine"
import { named } from "../arguments"
import { type FreezeOptions, Module } from "../module"

/** (x − mean) / √(variance + eps) */
const standardize = (x: mx.Array, mean: mx.Array, variance: mx.Array, eps: number): mx.Array =>
  x.subtract(mean).multiply(variance.add(eps).rsqrt())

/** weight · x + bias, where there is a weight. */
const scaled = (x: mx.Array, weight?: mx.Array, bias?: mx.Array): mx.Array =>
  weight && bias ? weight.multiply(x).add(bias) : x

/** How a layer that only keeps its settings is printed. */
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
      ["dims", "eps", "affine", "bias"],
      args,
      1,
    )
    if (affine) this.weight = mx.ones([dims])
    if (affine && bias) this.bias = mx.zeros([dims])
    this.dims = dims
    this.eps = eps
  }

  forward(x: mx.Array): mx.Array {
    return mx.fast.layerNorm(x, this.weight ?? null, this.bias ?? null, this.eps)
  }

  protected override extraRepr(): string {
    return settings({ dims: this.dims, eps: this.eps, affine: this.weight !== undefined })
  }
}

/**
 * y = x / √(E[x²] + eps) · weight, over the last axis. https://arxiv.org/abs/1910.07467
 * @example
 * new nn.RMSNorm(2, { eps: 0 }).forward(mx.array([[2, 2]])).tolist() // => [[1, 1]]
 */
export class RMSNorm extends Module {
  weight: mx.Array
  eps: number

  constructor(dims: number, eps?: number | { eps?: number })
  constructor(options: { dims: number; eps?: number })
  constructor(...args: unknown[]) {
    super()
    const [dims, eps = 1e-5] = named<[number, number?]>("RMSNorm", ["dims", "eps"], args, 1)
    this.weight = mx.ones([dims])
    this.eps = eps
  }

  forward(x: mx.Array): mx.Array {
    return mx.fast.rmsNorm(x, this.weight, this.eps)
  }

  protected override extraRepr(): string {
    return settings({ dims: this.weight.shape[0], eps: this.eps })
  }
}

const overAdjacentChannels = asCall(
  "@lazuli/nn/overAdjacentChannels",
  (x: mx.Array, numGroups: number, size: number, eps: number): mx.Array => {
    const batch = x.shape[0]
    const groups = x.reshape([batch, -1, numGroups, size]).transpose([0, 2, 1, 3])
    const y = mx.fast.layerNorm(groups.reshape([batch, numGroups, -1]), null, null, eps)
    return y.reshape([batch, numGroups, -1, size]).transpose([0, 2, 1, 3]).reshape(x.shape)
  },
)

const overInterleavedChannels = asCall(
  "@lazuli/nn/overInterleavedChannels",
  (x: mx.Array, numGroups: number, eps: number): mx.Array => {
    const groups = x.reshape([x.shape[0], -1, numGroups])
    return standardize(groups, groups.mean(1, true), groups.var(1, true), eps).reshape(x.shape)
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
  constructor(...args: unknown[]) {
    super()
    const [numGroups, dims, eps = 1e-5, affine = true, pytorchCompatible = false] = named<
      [number, number, number?, boolean?, boolean?]
    >("GroupNorm", ["numGroups", "dims", "eps", "affine", "pytorchCompatible"], args, 2)
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
    const y = this.pytorchCompatible
      ? overAdjacentChannels(x, numGroups, dims / numGroups, eps)
      : overInterleavedChannels(x, numGroups, eps)
    return scaled(y, this.weight, this.bias)
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
      ["dims", "eps", "affine"],
      args,
      1,
    )
    if (affine) {
      this.weight = mx.ones([dims])
      this.bias = mx.zeros([dims])
    }
    this.dims = dims
    this.eps = eps
  }

  forward(x: mx.Array): mx.Array {
    const positions = axesBetween(1, x.ndim - 1)
    const y = standardize(x, x.mean(positions, true), x.var(positions, true), this.eps)
    return scaled(y, this.weight, this.bias)
  }

  protected override extraRepr(): string {
    return settings({ dims: this.dims, eps: this.eps, affine: this.weight !== undefined })
  }
}

const axesBetween = (from: number, to: number): number[] =>
  globalThis.Array.from({ length: Math.max(0, to - from) }, (_, i) => from + i)

/**
 * Normalizes each channel over the batch and all positions, in evaluation mode by the running mean and variance that training
 * collected. https://arxiv.org/abs/1502.03167
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
  constructor(...args: unknown[]) {
    super()
    const [numFeatures, eps = 1e-5, momentum = 0.1, affine = true, trackRunningStats = true] = named<
      [number, number?, number?, boolean?, boolean?]
    >("BatchNorm", ["numFeatures", "eps", "momentum", "affine", "trackRunningStats"], args, 1)
    if (!(eps > 0)) throw new ArgumentError("BatchNorm", `eps must be positive, received ${eps}`)
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

  /** Puts parameters back into training; the running statistics are none and stay frozen. */
  override unfreeze(options: FreezeOptions = {}): this {
    super.unfreeze(options)
    return this.freezeStatistics()
  }

  private freezeStatistics(): this {
    return this.freeze({ recurse: false, keys: ["runningMean", "runningVar"] })
  }

  forward(x: mx.Array): mx.Array {
    if (x.ndim < 2 || x.ndim > 4)
      throw new ShapeError("BatchNorm", `expects an array of 2 to 4 dimensions, received ${x.ndim}`)
    const { runningMean, runningVar, momentum, eps } = this
    if (!this.training && runningMean && runningVar)
      return scaled(standardize(x, runningMean, runningVar, eps), this.weight, this.bias)
    const others = axesBetween(0, x.ndim - 1)
    const mean = x.mean(others)
    const variance = x.var(others)
    if (this.training && runningMean && runningVar) {
      this.runningMean = runningMean.multiply(1 - momentum).add(mean.multiply(momentum))
      // The running variance is of the population that the batch is a sample of: its divisor is one less.
      const sample = x.var({ axis: others, ddof: 1 })
      this.runningVar = runningVar.multiply(1 - momentum).add(sample.multiply(momentum))
    }
    return scaled(standardize(x, mean, variance, eps), this.weight, this.bias)
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
