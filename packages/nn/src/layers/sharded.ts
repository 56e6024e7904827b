/**
 * Layers whose weights are sharded over the processes of a group; see `mx.distributed`.
 */
import * as mx from "@lazuli/core"
import {
  ArgumentError,
  describe,
  format,
  isPlainObject,
  ShapeError,
  withOwnHandles,
} from "@lazuli/core/engine"
import { called, check, named, optional, under } from "../arguments"
import type { Module } from "../module"
import { Linear } from "./linear"
import { FORMAT, type QuantizationOptions, QuantizedLinear } from "./quantized"
import { aGroup, groupOf, isSplit, part, type Shard } from "./shard"

type Group = mx.distributed.Group

/** Options of sharding a layer. */
export interface ShardOptions {
  /** The number of matrices concatenated in the weight, or their boundaries: each is sharded separately. */
  segments?: number | readonly number[]
  /** The processes; all by default. */
  group?: Group | null
}

/** A module that has a part of some parameters, by their paths in it. */
export interface ShardedParameters {
  /** @internal */
  readonly _shards: Readonly<Record<string, Shard>>
  /** @internal */
  readonly _group: Group
}

type Segments = number | readonly number[]

function shardOptions(
  op: string,
  layer: unknown,
  type: new (...args: never[]) => Module,
  options: ShardOptions,
): [Group, Segments] {
  if (!(layer instanceof type))
    throw new ArgumentError(op, `layer must be a ${type.name}, received ${describe(layer)}`)
  if (isSplit(layer) || Object.keys((layer as Partial<ShardedParameters>)._shards ?? {}).length > 0)
    throw new ArgumentError(op, `the ${layer.constructor.name} has only a part of its parameters already`)
  if (!isPlainObject(options)) throw new ArgumentError(op, `expected options, received ${describe(options)}`)
  const { segments = 1, group, ...unknown } = options
  for (const key of Object.keys(unknown))
    throw new ArgumentError(op, `has no parameter "${key}"; it takes segments, group`)
  const list = typeof segments === "number" ? [segments] : segments
  if (!Array.isArray(list) || !list.every((n) => typeof n === "number" && n > 0))
    throw new ArgumentError(
      op,
      `segments must be a positive number or a list of them, received ${describe(segments)}`,
    )
  return [groupOf(op, group), segments as Segments]
}

/** The even shares of a parameter: of each segment of an axis. @throws ShapeError if they cannot */
function evenShard(x: mx.Array, axis: number, group: Group, segments: Segments = 1): Shard {
  const [size, length] = [group.size(), x.shape[axis]]
  // Values below 1 are fractions of the axis.
  const bounds =
    typeof segments === "number" ? segments : segments.map((n) => (n < 1 ? Math.floor(n * length) : n))
  const lengths = mx.split(x, bounds as number | number[], axis).map(({ shape }) => shape[axis])
  for (const each of lengths)
    if (each % size !== 0)
      throw new ShapeError(
        "shardLinear",
        `an axis of size ${each}, of a parameter of shape ${format(x.shape)}, cannot be divided among ${size} members`,
      )
  return { axis, segments: lengths }
}

/** Sets a module's parameter to this member's part of an array, and notes how it is split; not in a group of one. */
function setPart(
  module: Module & ShardedParameters,
  name: string,
  x: mx.Array,
  axis: number,
  segments?: Segments,
): void {
  const group = module._group
  if (group.size() === 1) {
    Object.assign(module, { [name]: x })
    return
  }
  const shard = evenShard(x, axis, group, segments)
  Object.assign(module, { [name]: part(x, shard, group) })
  Object.assign(module._shards, { [name]: shard })
}

/**
 * The identity, whose vjp sums the cotangents over the members: for inputs of layers that give each member a part of the outputs.
 * @example
 * nn.sumGradients()(mx.array([1, 2])).tolist() // => [1, 2]
 */
export function sumGradients(group: Group | null = null): (x: mx.Array) => mx.Array {
  const its = groupOf("sumGradients", group)
  return (x) => {
    check("sumGradients", { x: "array" }, x)
    return withOwnHandles(withSummedGradients(its, x), [x])
  }
}
/** The same for a layer, which validates its own input. */
const withSummedGradients = (group: Group, x: mx.Array): mx.Array =>
  group.size() === 1 || !(x instanceof mx.Array) ? x : group.exchange(x, { op: "sumGradients" })

/** The arguments of a layer that takes a group last. */
function linearArguments(
  op: string,
  args: readonly unknown[],
): [inputDims: number, outputDims: number, bias: boolean, group: Group] {
  const [inputDims, outputDims, bias = true, group] = named<[number, number, boolean?, (Group | null)?]>(
    op,
    { inputDims: "count", outputDims: "size", bias: "bool?", group: optional(aGroup) },
    args,
  )
  return [inputDims, outputDims, bias, groupOf(op, group)]
}

/**
 * {@link Linear} that gives each member of the group its part of the outputs. The gradient of the input is summed over the members.
 * @example
 * new nn.AllToShardedLinear(2, 3).forward(mx.ones([4, 2])).shape // => [4, 3]
 */
export class AllToShardedLinear extends Linear {
  /** @internal */
  readonly _group: Group
  /** @internal */
  readonly _shards: Readonly<Record<string, Shard>> = {}

  constructor(inputDims: number, outputDims: number, bias?: boolean, group?: Group | null)
  constructor(inputDims: number, outputDims: number, options: { bias?: boolean; group?: Group | null })
  constructor(options: { inputDims: number; outputDims: number; bias?: boolean; group?: Group | null })
  constructor(...args: unknown[]) {
    const [inputDims, outputDims, bias, group] = linearArguments("AllToShardedLinear", args)
    super(inputDims, outputDims, bias)
    this._group = group
    takeOver(this, this, 0)
  }

  override forward(x: mx.Array): mx.Array {
    return super.forward(withSummedGradients(this._group, x))
  }

  /** Shards a linear layer. */
  static fromLinear(layer: Linear, options: ShardOptions = {}): AllToShardedLinear {
    const [group, segments] = shardOptions("fromLinear", layer, Linear, options)
    return takeOver(allToShardedLinear(group), layer, 0, segments)
  }
}
const allToShardedLinear = (group: Group): AllToShardedLinear =>
  new AllToShardedLinear(1, group.size(), false, group)

/**
 * {@link Linear} that takes each member's part of the inputs and gives all members the same outputs.
 * @example
 * new nn.ShardedToAllLinear(2, 3).forward(mx.ones([4, 2])).shape // => [4, 3]
 */
export class ShardedToAllLinear extends Linear {
  /** @internal */
  readonly _group: Group
  /** @internal */
  readonly _shards: Readonly<Record<string, Shard>> = {}

  constructor(inputDims: number, outputDims: number, bias?: boolean, group?: Group | null)
  constructor(inputDims: number, outputDims: number, options: { bias?: boolean; group?: Group | null })
  constructor(options: { inputDims: number; outputDims: number; bias?: boolean; group?: Group | null })
  constructor(...args: unknown[]) {
    const [inputDims, outputDims, bias, group] = linearArguments("ShardedToAllLinear", args)
    super(inputDims, outputDims, bias)
    this._group = group
    takeOver(this, this, 1)
  }

  override forward(x: mx.Array): mx.Array {
    const { weight, bias } = this
    return called(
      this,
      { x },
      () => {
        const y = mx.distributed.allSum(mx.matmul(x, weight.T), { group: this._group })
        return bias ? y.add(bias) : y
      },
      () => ({ x: weight.node.shape[1] }),
    )
  }

  /** Shards a linear layer. */
  static fromLinear(layer: Linear, options: ShardOptions = {}): ShardedToAllLinear {
    const [group, segments] = shardOptions("fromLinear", layer, Linear, options)
    return takeOver(shardedToAllLinear(group), layer, 1, segments)
  }
}
const shardedToAllLinear = (group: Group): ShardedToAllLinear =>
  new ShardedToAllLinear(group.size(), 1, false, group)

/** Sets a layer's parameters to this member's part of another one's: of the outputs (axis 0) or of the inputs (1). */
function takeOver<L extends Linear & ShardedParameters>(
  sharded: L,
  { weight, bias }: Linear,
  axis: 0 | 1,
  segments?: Segments,
): L {
  setPart(sharded, "weight", weight, axis, segments)
  if (bias && axis === 0) setPart(sharded, "bias", bias, 0, segments)
  else if (bias) sharded.bias = bias
  return sharded
}

type QuantizedOptions = { bias?: boolean; group?: Group | null } & QuantizationOptions
type QuantizedArguments = [
  inputDims: number,
  outputDims: number,
  bias: boolean,
  groupSize?: number | null,
  bits?: number | null,
  mode?: mx.QuantizationMode,
]

function quantizedArguments(op: string, args: readonly unknown[]): [QuantizedArguments, Group] {
  const [inputDims, outputDims, bias = true, groupSize, bits, mode, group] = named<
    [number, number, boolean?, (number | null)?, (number | null)?, mx.QuantizationMode?, (Group | null)?]
  >(op, { inputDims: "count", outputDims: "size", bias: "bool?", ...FORMAT, group: optional(aGroup) }, args)
  return [[inputDims, outputDims, bias, groupSize, bits, mode], groupOf(op, group)]
}

/** {@link QuantizedLinear} of a group. Its parameters stay frozen. */
class QuantizedSharded extends QuantizedLinear {
  /** @internal */
  readonly _group: Group
  /** @internal */
  readonly _shards: Readonly<Record<string, Shard>> = {}
  constructor([args, group]: [QuantizedArguments, Group], axis: 0 | 1) {
    const [inputDims, outputDims, bias, groupSize, bits, mode] = args
    super(inputDims, outputDims, bias, groupSize, bits, mode)
    this._group = group
    this.take(this, axis)
  }
  override unfreeze(options?: Parameters<Module["unfreeze"]>[0]): this {
    super.unfreeze(options)
    return this.freeze({ recurse: false })
  }
  /** Sets the parameters to this member's part of those of a quantized layer: of the outputs (axis 0) or of the inputs (1). @internal */
  protected take(
    { weight, scales, biases, bias, activations }: QuantizedLinear,
    axis: 0 | 1,
    segments: Segments = 1,
  ): this {
    const inputs = (weight.shape[1] * 32) / this.bits
    const set = (name: string, x: mx.Array): void => {
      // There are fewer columns of words and of scales than inputs.
      const scaled =
        axis === 0 || typeof segments === "number"
          ? segments
          : segments.map((n) => (n < 1 ? n : (n * x.shape[1]) / inputs))
      setPart(this, name, x, axis, scaled)
    }
    set("weight", weight)
    set("scales", scales)
    if (biases) set("biases", biases)
    if (bias && axis === 0) setPart(this, "bias", bias, 0, segments)
    else if (bias) this.bias = bias
    this.activations = activations
    return this.freeze({ recurse: false })
  }
}

/** A layer of the smallest size that a format allows, whose parameters are to be replaced. */
function blank({ groupSize, bits, mode }: QuantizedLinear, group: Group): QuantizedArguments {
  return [groupSize * group.size(), group.size(), false, groupSize, bits, mode]
}

/**
 * {@link QuantizedLinear} that gives each member of the group its part of the outputs. Its parameters stay frozen.
 * @example
 * new nn.QuantizedAllToShardedLinear(64, 3).forward(mx.ones([4, 64])).shape // => [4, 3]
 */
export class QuantizedAllToShardedLinear extends QuantizedSharded {
  constructor(
    inputDims: number,
    outputDims: number,
    bias?: boolean,
    groupSize?: number | null,
    bits?: number | null,
    mode?: mx.QuantizationMode,
    group?: Group | null,
  )
  constructor(inputDims: number, outputDims: number, options: QuantizedOptions)
  constructor(options: { inputDims: number; outputDims: number } & QuantizedOptions)
  // By hand: the format's names are defined in another file.
  constructor(...args: unknown[]) {
    super(quantizedArguments("QuantizedAllToShardedLinear", args), 0)
  }

  override forward(x: mx.Array): mx.Array {
    return super.forward(withSummedGradients(this._group, x))
  }

  /** Shards a quantized linear layer. */
  static fromQuantizedLinear(
    layer: QuantizedLinear,
    options: ShardOptions = {},
  ): QuantizedAllToShardedLinear {
    const [group, segments] = shardOptions("fromQuantizedLinear", layer, QuantizedLinear, options)
    return quantizedAllToShardedLinear(blank(layer, group), group).take(layer, 0, segments)
  }
}
const quantizedAllToShardedLinear = (args: QuantizedArguments, group: Group): QuantizedAllToShardedLinear =>
  new QuantizedAllToShardedLinear(...args, group)

/**
 * {@link QuantizedLinear} that takes each member's part of the inputs and gives all the same outputs. Its parameters stay frozen.
 * @example
 * new nn.QuantizedShardedToAllLinear(64, 3).forward(mx.ones([4, 64])).shape // => [4, 3]
 */
export class QuantizedShardedToAllLinear extends QuantizedSharded {
  constructor(
    inputDims: number,
    outputDims: number,
    bias?: boolean,
    groupSize?: number | null,
    bits?: number | null,
    mode?: mx.QuantizationMode,
    group?: Group | null,
  )
  constructor(inputDims: number, outputDims: number, options: QuantizedOptions)
  constructor(options: { inputDims: number; outputDims: number } & QuantizedOptions)
  // By hand: the format's names are defined in another file.
  constructor(...args: unknown[]) {
    super(quantizedArguments("QuantizedShardedToAllLinear", args), 1)
  }

  override forward(x: mx.Array): mx.Array {
    return called(
      this,
      { x },
      () => {
        const y = mx.distributed.allSum(this.multiply(x), { group: this._group })
        return this.bias ? y.add(this.bias) : y
      },
      () => ({ x: this.inputs }),
    )
  }

  /** Shards a quantized linear layer. */
  static fromQuantizedLinear(
    layer: QuantizedLinear,
    options: ShardOptions = {},
  ): QuantizedShardedToAllLinear {
    const [group, segments] = shardOptions("fromQuantizedLinear", layer, QuantizedLinear, options)
    return quantizedShardedToAllLinear(blank(layer, group), group).take(layer, 1, segments)
  }
}
const quantizedShardedToAllLinear = (args: QuantizedArguments, group: Group): QuantizedShardedToAllLinear =>
  new QuantizedShardedToAllLinear(...args, group)

/** The sharded side of a layer: its outputs, or its inputs. */
export type Sharding = "all-to-sharded" | "sharded-to-all"

/**
 * Shards a linear layer over the members: `all-to-sharded` gives each member a part of the outputs, `sharded-to-all` takes each member's
 * part of the inputs.
 * @throws ShapeError if an axis is not divisible by the number of members
 * @example
 * nn.shardLinear(new nn.Linear(2, 3), 'all-to-sharded').forward(mx.ones([4, 2])).shape // => [4, 3]
 */
export function shardLinear(
  layer: Linear | QuantizedLinear,
  sharding: Sharding,
  options: ShardOptions = {},
): AllToShardedLinear | ShardedToAllLinear | QuantizedAllToShardedLinear | QuantizedShardedToAllLinear {
  if (sharding !== "all-to-sharded" && sharding !== "sharded-to-all")
    throw new ArgumentError(
      "shardLinear",
      `sharding must be "all-to-sharded" or "sharded-to-all", received ${describe(sharding)}`,
    )
  if (!(layer instanceof Linear || layer instanceof QuantizedLinear))
    throw new ArgumentError(
      "shardLinear",
      `layer must be a Linear or QuantizedLinear, received ${describe(layer)}`,
    )
  const toSharded = sharding === "all-to-sharded"
  return under("shardLinear", () => {
    if (layer instanceof QuantizedLinear)
      return toSharded
        ? QuantizedAllToShardedLinear.fromQuantizedLinear(layer, options)
        : QuantizedShardedToAllLinear.fromQuantizedLinear(layer, options)
    return toSharded
      ? AllToShardedLinear.fromLinear(layer, options)
      : ShardedToAllLinear.fromLinear(layer, options)
  })
}
