/**
 * Fully sharded modules: parameters, gradients and the optimizer's state are sharded over the processes of a group.
 */
import * as mx from "@lazuli/core"
import { ArgumentError, describe, format, ShapeError } from "@lazuli/core/engine"
import { checkpoint } from "@lazuli/transforms"
import { check, named, optional } from "../arguments"
import { type Model, Module, type ModuleFilter } from "../module"
import { withParameters } from "../with-parameters"
import { isStatistic } from "./normalization"
import { aGroup, groupOf, groupsOverlap, isSplit, markSplit, part, type Shard } from "./shard"
import type { ShardedParameters } from "./sharded"
import { pathsOf, shardedModules } from "./sharded-modules"

type Group = mx.distributed.Group

/** The parameters of a module and of its submodules that are not themselves fully sharded. */
const isOwn: ModuleFilter = (module, key, value) =>
  !(value instanceof FullyShardedModule) && Module.validParameterFilter(module, key, value)
/** Those that are sharded: statistics, which calls replace, stay whole. */
const isSharded: ModuleFilter = (module, key, value) => isOwn(module, key, value) && !isStatistic(module, key)
/** The statistics, which every member has of its own inputs. */
const isWhole: ModuleFilter = (module, key, value) =>
  isOwn(module, key, value) && (!(value instanceof mx.Array) || isStatistic(module, key))

/** Options of {@link fullyShard}. */
export interface FullyShardOptions {
  /** The processes; all by default. */
  group?: Group | null
  /** The dtype of the parameters in the call; their own by default. */
  computeDtype?: mx.Dtype | null
  /**
   * Gathers the parameters again for the backward pass and recomputes intermediate values, instead of keeping both; true by default.
   * Otherwise the full parameters of all modules are in memory when the backward pass begins.
   */
  recompute?: boolean
}

function fullyShardOptions(op: string, options: unknown): void {
  check(op, { options: "record" }, options)
  named(op, { group: optional(aGroup), computeDtype: "dtype?", recompute: "bool?" }, [options])
}

/** Gives the module that has the parameter of a path. */
function ownersOf(module: Module): (path: string) => Module {
  const modules = new Map(module.namedModules())
  return (path) => {
    const keys = path.split(".")
    while (keys.length > 0) {
      keys.pop()
      const owner = modules.get(keys.join("."))
      if (owner) return owner
    }
    return module
  }
}

/** @throws ArgumentError if members of the group have only parts of the parameters that are to be split */
function checkIsWhole(module: Module, paths: ReadonlySet<string>, group: Group): void {
  const refuse = (what: string): never => {
    throw new ArgumentError("FullyShardedModule", `the members have only a part of ${what} already`)
  }
  if (module instanceof FullyShardedModule) refuse("the FullyShardedModule's parameters")
  const owners = ownersOf(module)
  for (const path of paths) if (isSplit(owners(path))) refuse(`the parameter "${path}"`)
  for (const entry of shardedModules(module)) {
    const path = pathsOf(entry).find((name) => paths.has(name))
    if (path !== undefined && groupsOverlap(entry[1]._group, group)) refuse(`the parameter "${path}"`)
  }
}

/**
 * Shards the parameters of a module over the members of the group, along the first axis. They are gathered for the call, in `computeDtype`,
 * and gradients are reduced and scattered. Running statistics of {@link BatchNorm} stay whole, and are those of this member's inputs.
 * Layers of which the members of another group have parts may lie in it; all members of both groups must make it then.
 * @throws ShapeError for a 0-d parameter, which cannot be sharded. ArgumentError if the members have only a part of a parameter already
 * @example
 * const layer = new nn.FullyShardedModule(new nn.Linear(2, 3), { computeDtype: mx.float16 })
 * layer.forward(mx.ones([4, 2], mx.float16)).dtype.name // => 'float16'
 */
export class FullyShardedModule<A extends unknown[] = unknown[], R = unknown>
  extends Module
  implements ShardedParameters
{
  /** The model to call. */
  readonly module: Model<A, R>
  /** @internal */
  readonly _computeDtype: mx.Dtype | null
  /** @internal */
  readonly _recompute: boolean
  /** @internal */
  readonly _group: Group
  /** @internal */
  readonly _shards: Readonly<Record<string, Shard>>

  constructor(module: Model<A, R>, options: FullyShardOptions = {}) {
    super()
    if (!(module instanceof Module))
      throw new ArgumentError("FullyShardedModule", `module must be a module, received ${describe(module)}`)
    fullyShardOptions("FullyShardedModule", options)
    this._group = groupOf("FullyShardedModule", options.group)
    const parameters = mx.treeFlatten(module.filterAndMap(isSharded)) as [string, mx.Array][]
    for (const [path, { shape }] of parameters)
      if (shape.length === 0)
        throw new ShapeError(
          "FullyShardedModule",
          `the parameter "${path}" of shape ${format(shape)} has no axis along which to shard it`,
        )
    checkIsWhole(module, new Set(parameters.map(([path]) => path)), this._group)
    this.module = module
    this._computeDtype = options.computeDtype ?? null
    this._recompute = options.recompute ?? true
    this._shards = Object.fromEntries(
      parameters.map(([path, { shape }]) => [`module.${path}`, { axis: 0, segments: [shape[0]] }]),
    )
    if (this._group.size() === 1) return
    const owners = ownersOf(module)
    for (const [path] of parameters) markSplit(owners(path))
    module.update(
      mx.treeUnflatten(
        parameters.map(([path, x]): [string, mx.Array] => [
          path,
          part(x, this._shards[`module.${path}`], this._group),
        ]),
      ) as never,
    )
  }

  /**
   * The full parameters, as a tree like the module's. Every member must call it.
   * @example
   * new nn.FullyShardedModule(new nn.Linear(2, 3)).wholeParameters().weight.shape // => [3, 2]
   */
  wholeParameters(): Record<string, mx.Array> {
    const statistics = mx.treeFlatten(this.module.filterAndMap(isWhole)) as [string, mx.Array][]
    return mx.treeUnflatten([...this.gatheredEntries(null), ...statistics]) as Record<string, mx.Array>
  }

  private parts(): [string, mx.Array][] {
    return mx.treeFlatten(this.module.filterAndMap(isSharded)) as [string, mx.Array][]
  }
  private gatheredEntries(dtype: mx.Dtype | null, parts = this.parts()): [string, mx.Array][] {
    // Packed weights are integers.
    const all = parts.map(([, part]) =>
      dtype === null || !mx.issubdtype(part.dtype, mx.floating) ? part : part.astype(dtype),
    )
    if (this._group.size() === 1) return parts.map(([path], i) => [path, all[i]])
    const wholes = new Map<string, mx.Array>()
    // Frozen parameters by an exchange of their own, which has no gradient.
    const trained = new Set(mx.treeFlatten(this.module.trainableParameters()).map(([path]) => path))
    for (const isTrained of [true, false]) {
      const own = parts.flatMap(([path], i) => (trained.has(path) === isTrained ? [i] : []))
      if (own.length === 0) continue
      this._group
        .gatherParameters(own.map((i) => all[i]))
        .forEach((whole, k) => wholes.set(parts[own[k]][0], whole))
    }
    return parts.map(([path]) => [
      path,
      (wholes.get(path) as mx.Array).index(mx.s(0, this._shards[`module.${path}`].segments[0])),
    ])
  }

  forward(...args: A): R {
    return this.gathered(args, (...its) => this.module.forward(...its))
  }

  /** The module's `asLinear`. @throws ArgumentError when it has none */
  asLinear(x: mx.Array): mx.Array {
    const { asLinear } = this.module as { asLinear?: (x: mx.Array) => mx.Array }
    if (typeof asLinear !== "function")
      throw new ArgumentError("asLinear", `a ${this.module.constructor.name} has no asLinear`)
    return this.gathered([x], (a: mx.Array) => asLinear.call(this.module, a))
  }

  private gathered<B extends unknown[], T>(args: B, body: (...args: B) => T): T {
    const dtype = this._computeDtype
    if (dtype === null && this._group.size() === 1) return body(...args)
    const run = (parts: [string, mx.Array][], ...its: B): T =>
      withParameters(this.module, mx.treeUnflatten(this.gatheredEntries(dtype, parts)) as object, () =>
        body(...its),
      )
    return (this._recompute && this._group.size() > 1 ? checkpoint(run) : run)(this.parts(), ...args)
  }

  protected override extraRepr(): string {
    return `numShardedParams=${Object.keys(this._shards).length}`
  }
}

/**
 * Wraps a module in a {@link FullyShardedModule}; in a group of one, returns the module itself.
 * @example
 * const layer = new nn.Linear(2, 3)
 * nn.fullyShard(layer) === layer // => true
 */
export function fullyShard<M extends Module>(module: M, options: FullyShardOptions = {}): M {
  if (!(module instanceof Module))
    throw new ArgumentError("fullyShard", `module must be a module, received ${describe(module)}`)
  fullyShardOptions("fullyShard", options)
  if (groupOf("fullyShard", options.group).size() === 1) return module
  return new FullyShardedModule(module as never, options) as unknown as M
}
