/**
 * Layers whose weights are spread over the processes of a group: `mx.distributed`. Each member holds a part of the weight. There is no
 * backend that connects processes, so a group has one member, whose part is the whole.
 */
import * as mx from "@lazuli/core"
import { ArgumentError, describe, format, isPlainObject, type Kind, ShapeError } from "@lazuli/core/engine"
import { called, check, named, optional } from "../arguments"
import { withParameters } from "../model-transforms"
import { type Model, Module, type ModuleFilter } from "../module"
import { Linear } from "./linear"
import { FORMAT, type QuantizationOptions, QuantizedLinear } from "./quantized"

type Group = mx.distributed.Group

/** Options of spreading a layer's weight. */
export interface ShardOptions {
  /** The number of matrices side by side in the weight, or where they are divided: each is spread by itself. */
  segments?: number | readonly number[]
  /** The processes; all by default. */
  group?: Group | null
}

const aGroup: Kind = {
  expected: "a group that mx.distributed.init() gives",
  accepts: (value: unknown) => value instanceof mx.distributed.Group,
}

function groupOf(op: string, group: unknown): Group {
  if (group === undefined || group === null) return mx.distributed.init()
  if (group instanceof mx.distributed.Group) return group
  throw new ArgumentError(op, `group must come from mx.distributed.init(), received ${describe(group)}`)
}

function shardOptions(
  op: string,
  layer: unknown,
  type: new (...args: never[]) => Module,
  options: ShardOptions,
): Group {
  if (!(layer instanceof type))
    throw new ArgumentError(op, `layer must be a ${type.name}, received ${describe(layer)}`)
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
  return groupOf(op, group)
}

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
 * {@link Linear} that gives each member of the group its part of the outputs. The gradient by the input is the sum of the members'.
 * @example
 * new nn.AllToShardedLinear(2, 3).forward(mx.ones([4, 2])).shape // => [4, 3]
 */
export class AllToShardedLinear extends Linear {
  /** @internal */
  readonly _group: Group

  constructor(inputDims: number, outputDims: number, bias?: boolean, group?: Group | null)
  constructor(inputDims: number, outputDims: number, options: { bias?: boolean; group?: Group | null })
  constructor(options: { inputDims: number; outputDims: number; bias?: boolean; group?: Group | null })
  constructor(...args: unknown[]) {
    const [inputDims, outputDims, bias, group] = linearArguments("AllToShardedLinear", args)
    super(inputDims, outputDims, bias)
    this._group = group
  }

  /** A linear layer with its weight spread. */
  static fromLinear(layer: Linear, options: ShardOptions = {}): AllToShardedLinear {
    const group = shardOptions("fromLinear", layer, Linear, options)
    return takeOver(allToShardedLinear(group), layer)
  }
}
const allToShardedLinear = (group: Group): AllToShardedLinear => new AllToShardedLinear(1, 1, false, group)

/**
 * {@link Linear} that takes each member's part of the inputs and gives all members the same outputs.
 * @example
 * new nn.ShardedToAllLinear(2, 3).forward(mx.ones([4, 2])).shape // => [4, 3]
 */
export class ShardedToAllLinear extends Linear {
  /** @internal */
  readonly _group: Group

  constructor(inputDims: number, outputDims: number, bias?: boolean, group?: Group | null)
  constructor(inputDims: number, outputDims: number, options: { bias?: boolean; group?: Group | null })
  constructor(options: { inputDims: number; outputDims: number; bias?: boolean; group?: Group | null })
  constructor(...args: unknown[]) {
    const [inputDims, outputDims, bias, group] = linearArguments("ShardedToAllLinear", args)
    super(inputDims, outputDims, bias)
    this._group = group
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

  /** A linear layer with its weight spread. */
  static fromLinear(layer: Linear, options: ShardOptions = {}): ShardedToAllLinear {
    const group = shardOptions("fromLinear", layer, Linear, options)
    return takeOver(shardedToAllLinear(group), layer)
  }
}
const shardedToAllLinear = (group: Group): ShardedToAllLinear => new ShardedToAllLinear(1, 1, false, group)

/** The only member's part of a layer's parameters: all of them. */
function takeOver<L extends Linear>(sharded: L, { weight, bias }: Linear): L {
  sharded.weight = weight
  if (bias) sharded.bias = bias
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

/** {@link QuantizedLinear} of a group. Its own parameters stay frozen. */
class QuantizedSharded extends QuantizedLinear {
  /** @internal */
  readonly _group: Group
  constructor([[inputDims, outputDims, bias, groupSize, bits, mode], group]: [QuantizedArguments, Group]) {
    super(inputDims, outputDims, bias, groupSize, bits, mode)
    this._group = group
  }
  override unfreeze(options?: Parameters<Module["unfreeze"]>[0]): this {
    super.unfreeze(options)
    return this.freeze({ recurse: false })
  }
  /** Takes the parameters of a quantized layer. @internal */
  protected take({ weight, scales, biases, bias }: QuantizedLinear): this {
    this.weight = weight
    this.scales = scales
    if (biases) this.biases = biases
    if (bias) this.bias = bias
    return this.freeze({ recurse: false })
  }
}

/** A layer of the smallest size that a format allows, whose parameters are to be replaced. */
function blank({ groupSize, bits, mode }: QuantizedLinear): QuantizedArguments {
  return [groupSize, 1, false, groupSize, bits, mode]
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
  // By hand: the names of the format are another file's.
  constructor(...args: unknown[]) {
    super(quantizedArguments("QuantizedAllToShardedLinear", args))
  }

  /** A quantized linear layer with its weight spread. */
  static fromQuantizedLinear(
    layer: QuantizedLinear,
    options: ShardOptions = {},
  ): QuantizedAllToShardedLinear {
    const group = shardOptions("fromQuantizedLinear", layer, QuantizedLinear, options)
    return quantizedAllToShardedLinear(blank(layer), group).take(layer)
  }
}
const quantizedAllToShardedLinear = (args: QuantizedArguments, group: Group): QuantizedAllToShardedLinear =>
  new QuantizedAllToShardedLinear(...args, group)

/**
 * {@link QuantizedLinear} that takes each member's part of the inputs and gives all members the same outputs. Its parameters stay
 * frozen.
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
  // By hand: the names of the format are another file's.
  constructor(...args: unknown[]) {
    super(quantizedArguments("QuantizedShardedToAllLinear", args))
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

  /** A quantized linear layer with its weight spread. */
  static fromQuantizedLinear(
    layer: QuantizedLinear,
    options: ShardOptions = {},
  ): QuantizedShardedToAllLinear {
    const group = shardOptions("fromQuantizedLinear", layer, QuantizedLinear, options)
    return quantizedShardedToAllLinear(blank(layer), group).take(layer)
  }
}
const quantizedShardedToAllLinear = (args: QuantizedArguments, group: Group): QuantizedShardedToAllLinear =>
  new QuantizedShardedToAllLinear(...args, group)

/** The parameters that a module spreads: all but those of modules that do so themselves. */
const isSharded: ModuleFilter = (module, key, value) =>
  !(value instanceof FullyShardedModule) && Module.validParameterFilter(module, key, value)

/** Options of {@link fullyShard}. */
export interface FullyShardOptions {
  /** The processes; all by default. */
  group?: Group | null
  /** The dtype that the parameters have in the call; their own by default. */
  computeDtype?: mx.Dtype | null
}

function fullyShardOptions(op: string, options: unknown): void {
  check(op, { options: "record" }, options)
  named(op, { group: optional(aGroup), computeDtype: "dtype?" }, [options])
}

/**
 * A module of whose parameters each member of the group holds a part, along the first axis; they are put together for the call, in
 * `computeDtype`, and gradients are spread again.
 * @throws ShapeError for a parameter of no dimensions, which cannot be spread
 * @example
 * const layer = new nn.FullyShardedModule(new nn.Linear(2, 3), { computeDtype: mx.float16 })
 * layer.forward(mx.ones([4, 2], mx.float16)).dtype.name // => 'float16'
 */
export class FullyShardedModule<A extends unknown[] = unknown[], R = unknown> extends Module {
  /** The model to call. */
  readonly module: Model<A, R>
  /** @internal */
  readonly _computeDtype: mx.Dtype | null
  /** @internal */
  readonly _count: number

  constructor(module: Model<A, R>, options: FullyShardOptions = {}) {
    super()
    if (!(module instanceof Module))
      throw new ArgumentError("FullyShardedModule", `module must be a module, received ${describe(module)}`)
    fullyShardOptions("FullyShardedModule", options)
    groupOf("FullyShardedModule", options.group)
    const parameters = mx.treeFlatten(module.filterAndMap(isSharded)) as [string, mx.Array][]
    for (const [path, { shape }] of parameters)
      if (shape.length === 0)
        throw new ShapeError(
          "FullyShardedModule",
          `the parameter "${path}" of shape ${format(shape)} has no axis along which it could be spread`,
        )
    this.module = module
    this._computeDtype = options.computeDtype ?? null
    this._count = parameters.length
  }

  forward(...args: A): R {
    return this.gathered(() => this.module.forward(...args))
  }

  /** The module's `asLinear`. @throws ArgumentError when it has none */
  asLinear(x: mx.Array): mx.Array {
    const { asLinear } = this.module as { asLinear?: (x: mx.Array) => mx.Array }
    if (typeof asLinear !== "function")
      throw new ArgumentError("asLinear", `a ${this.module.constructor.name} has no asLinear`)
    return this.gathered(() => asLinear.call(this.module, x))
  }

  private gathered<T>(body: () => T): T {
    const dtype = this._computeDtype
    if (dtype === null) return body()
    const cast = (x: mx.Array): mx.Array => x.astype(dtype)
    return withParameters(
      this.module,
      this.module.filterAndMap(isSharded, cast as (value: never) => unknown),
      body,
    )
  }

  protected override extraRepr(): string {
    return `numShardedParams=${this._count}`
  }
}

/**
 * The module as a {@link FullyShardedModule} where that changes anything: in a group of one, the module itself.
 * @example
 * const layer = new nn.Linear(2, 3)
 * nn.fullyShard(layer) === layer // => true
 */
export function fullyShard<M extends Module>(module: M, options: FullyShardOptions = {}): M {
  if (!(module instanceof Module))
    throw new ArgumentError("fullyShard", `module must be a module, received ${describe(module)}`)
  fullyShardOptions("fullyShard", options)
  // A group of several needs a backend, and there is none.
  groupOf("fullyShard", options.group)
  return module
}
