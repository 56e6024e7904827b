/**
 * The modules of a model of whose parameters each member of a group has a part, for those that need to know.
 */
import { aModule, check } from "../arguments"
import type { Module } from "../module"
import type { ShardedParameters } from "./sharded"

/**
 * The modules of a model that have a part of some parameters, with their paths; none in groups of one.
 * @example
 * nn.shardedModules(nn.fullyShard(new nn.Linear(2, 3))) // => []
 */
export function shardedModules(model: Module): [path: string, module: Module & ShardedParameters][] {
  check("shardedModules", { model: aModule }, model)
  return model.namedModules().filter((entry): entry is [string, Module & ShardedParameters] => {
    const { _shards: shards, _group: group } = entry[1] as Partial<ShardedParameters>
    return shards !== undefined && Object.keys(shards).length > 0 && group !== undefined && group.size() > 1
  })
}

/** The paths of the parameters of which a module has a part. */
export const pathsOf = ([path, { _shards }]: [path: string, module: ShardedParameters]): string[] =>
  Object.keys(_shards).map((name) => (path === "" ? name : `${path}.${name}`))

/** The paths of the parameters of which this member has a part. */
export const shardedPaths = (model: Module): Set<string> => new Set(shardedModules(model).flatMap(pathsOf))
