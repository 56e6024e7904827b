/**
 * Checkpoints of spread models: each member writes what it holds, and any number of members reads it.
 */
import { createHash, randomBytes } from "node:crypto"
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs"
import { join, resolve } from "node:path"
import * as mx from "@lazuli/core"
import * as nn from "@lazuli/nn"
import { CheckpointParts, type SavedArray } from "./checkpoint-parts"

interface NamedParameter {
  readonly path: string
  readonly name: string
  readonly shard?: nn.Shard
}

/** A model's parameters: their names in files, which are those of the model as it was before it was spread, and how they are split. */
class Names {
  /** By name in files: the path in the model. */
  private readonly paths = new Map<string, string>()
  /** By path. */
  private readonly names = new Map<string, NamedParameter>()

  /** @throws ArgumentError if the model is spread over the members of another group, or a parameter is split twice */
  constructor(op: string, model: nn.Module, group: mx.distributed.Group) {
    const wrapped: string[] = []
    const shardOf = new Map<string, nn.Shard>()
    const begin = (prefix: string): string => (prefix === "" ? "" : `${prefix}.`)
    for (const [prefix, module] of model.namedModules())
      if (module instanceof nn.FullyShardedModule) wrapped.push(`${begin(prefix)}module.`)
    for (const [prefix, { _shards: shards, _group: its }] of nn.shardedModules(model)) {
      if (its.size() !== group.size() || its.rank() !== group.rank())
        throw new mx.ArgumentError(
          op,
          `"${prefix}" is spread over ${its.size()} members, and group has ${group.size()}`,
          { hint: "Pass the group over which the model is spread" },
        )
      for (const [name, shard] of Object.entries(shards)) {
        const path = begin(prefix) + name
        if (shardOf.has(path))
          throw new mx.ArgumentError(
            op,
            `"${path}" is split by two modules, which checkpoints do not support`,
          )
        shardOf.set(path, shard)
      }
    }
    // The innermost first: outer ones are the beginnings of their paths.
    wrapped.sort((a, b) => b.length - a.length)
    for (const [path] of mx.treeFlatten(model.parameters()) as [string, mx.Array][]) {
      let name = path
      for (const inner of wrapped)
        if (name.startsWith(inner)) name = inner.slice(0, -"module.".length) + name.slice(inner.length)
      this.paths.set(name, path)
      this.names.set(path, { path, name, shard: shardOf.get(path) })
    }
  }

  nameOf = (path: string): string => renamed(path, within(this.names, path), ({ name }) => name)
  /** True for a parameter, or an array that belongs to one. */
  has = (path: string): boolean => within(this.names, path) !== undefined
  /** The path of the parameter that an array belongs to. */
  parameterOf = (path: string): string | undefined => within(this.names, path)?.value.path
  pathOf = (name: string): string => renamed(name, within(this.paths, name), (path) => path)
  /** The split of a parameter, or of an array that belongs to it; undefined where all members have all of it. */
  shardOf = (path: string): nn.Shard | undefined => within(this.names, path)?.value.shard
}

const renamed = <V>(path: string, found: Within<V> | undefined, name: (value: V) => string): string =>
  found ? [...found.before, name(found.value), ...found.after].join(".") : path

/** A map's entry of which the path is a part of another one, and what is around it there. */
interface Within<V> {
  readonly before: readonly string[]
  readonly value: V
  readonly after: readonly string[]
}

/**
 * The entry of a parameter, or of an array that an optimizer has for one: that may lie below, and the optimizer's state within another one.
 * Of several, the one of the longest path.
 */
function within<V>(map: ReadonlyMap<string, V>, path: string): Within<V> | undefined {
  const keys = path.split(".")
  for (let length = keys.length; length > 0; length--)
    for (let from = 0; from + length <= keys.length; from++) {
      const value = map.get(keys.slice(from, from + length).join("."))
      if (value !== undefined) return { before: keys.slice(0, from), value, after: keys.slice(from + length) }
    }
  return undefined
}

/** Something with a state of arrays: an optimizer. */
export interface HasState {
  state: object
}

/** The name of an optimizer's class. */
const kindOf = (optimizer: HasState): string => optimizer.constructor?.name ?? ""
/** Names that say nothing. */
const ANY_KIND = ["", "Object"]

/** The file that names the parts of a checkpoint. It is replaced once all of them are there, so that there is always a whole one. */
const MANIFEST = "checkpoint.json"
interface Manifest {
  readonly ranks: number
  /** Part of its files' names, and of no other checkpoint's. */
  readonly id: string
}
const fileOf = (rank: number, { ranks, id }: Manifest): string => `part-${rank}-of-${ranks}-${id}.safetensors`
/** Names of parts, also while they are written; other files in the folder are the user's. */
const PART = /^part-\d+-of-\d+-([0-9a-f]{16})\.safetensors(?:\.\d+\.[0-9a-f]+\.tmp)?$/

/** An identifier that all members have from rank 0. */
function newId(group: mx.distributed.Group): string {
  const own = new Uint8Array(randomBytes(8))
  const shared = mx.distributed.broadcast(mx.array(own), { group }).toTypedArray() as Uint8Array
  return Buffer.from(shared).toString("hex")
}

/**
 * True for the members that write a folder: of groups that each have the whole model and save it into the same folder, those of the group
 * with the lowest rank. All ranks of the job must call it.
 */
function isWriter(folder: string, group: mx.distributed.Group, job: mx.distributed.Group): boolean {
  const own = createHash("sha256").update(resolve(folder)).digest().subarray(0, 8)
  const all = mx.distributed.allGather(mx.array(new Uint8Array(own)), { group: job })
  const digests = Buffer.from(all.toTypedArray() as Uint8Array)
  const ranks = Array.from({ length: job.size() }, (_, rank) => rank)
  const first = ranks.find((rank) => own.equals(digests.subarray(8 * rank, 8 * rank + 8)))
  const isFirst = mx.array([first === job.rank() ? 1 : 0], mx.int32)
  return mx.distributed.allMax(isFirst, { group }).item() === 1
}

/** Bytes of a message to the other members. */
const MOST_TEXT = 512

/**
 * Runs this member's share of something, and waits for the others'. Where one fails all throw, so that nobody waits for it and training may
 * go on: that one its own error, the others one that names it.
 */
function together(op: string, group: mx.distributed.Group, share: () => void): void {
  let own: { readonly error: unknown } | null = null
  try {
    share()
  } catch (error) {
    // The others learn of it as this member did.
    if (error instanceof mx.DistributedError) throw error
    own = { error }
  }
  // The rank in the job, by which errors call members, of those that failed.
  const outcome = own ? mx.distributed.init().rank() : -1
  const outcomes = mx.distributed.allGather(mx.array([outcome], mx.int32), { group }).tolist() as number[]
  const failed = outcomes.findIndex((rank) => rank >= 0)
  if (failed < 0) return
  const text = Buffer.alloc(MOST_TEXT)
  text.write(own ? describeError(own.error) : "")
  const shared = mx.distributed.broadcast(mx.array(new Uint8Array(text)), { group, root: failed })
  const reason = Buffer.from(shared.toTypedArray() as Uint8Array)
    .toString()
    .replace(/\0+$/, "")
  if (own) throw own.error
  throw new mx.DistributedError(op, `rank ${outcomes[failed]} failed: ${reason}`)
}

const describeError = (error: unknown): string => (error instanceof Error ? error.message : String(error))

/** The manifest of a folder's checkpoint; null where none was ever saved to the end. Throws where one was that cannot be loaded now. */
function manifestOf(op: string, folder: string): Manifest | null {
  let text: string
  try {
    text = readFileSync(join(folder, MANIFEST), "utf8")
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === "ENOENT") return null
    throw new mx.FormatError(op, `${MANIFEST} of "${folder}" cannot be read`, { cause })
  }
  let found: Partial<Manifest> | null
  try {
    found = JSON.parse(text) as Partial<Manifest> | null
  } catch (cause) {
    throw new mx.FormatError(op, `${MANIFEST} of "${folder}" is not JSON`, { cause })
  }
  const manifest = { ranks: Number(found?.ranks), id: String(found?.id) }
  const { ranks, id } = manifest
  if (!Number.isSafeInteger(ranks) || ranks <= 0 || !/^[0-9a-f]{16}$/.test(id))
    throw new mx.FormatError(op, `${MANIFEST} of "${folder}" does not name the parts of a checkpoint`)
  for (let rank = 0; rank < ranks; rank++) {
    const part = fileOf(rank, manifest)
    if (!existsSync(join(folder, part)))
      throw new mx.FormatError(
        op,
        `"${folder}" does not hold all parts of its checkpoint: ${part} is missing`,
      )
  }
  return manifest
}

/**
 * True if a folder holds a checkpoint that {@link saveSharded} wrote to the end, false if none was. Members decide alike only where all see
 * the same files: the folder must be on a file system that they share and that shows each what others wrote.
 * @throws FormatError where there is a checkpoint that cannot be loaded, such as one without all its parts
 * @example
 * hasSharded('checkpoint-of-nobody') // => false
 */
export function hasSharded(folder: string): boolean {
  return manifestOf("hasSharded", folder) !== null
}

/** Removes other checkpoints' parts, and those that members began to write, as far as possible: the new checkpoint counts regardless. */
function removeOthers(folder: string, { id }: Manifest): void {
  try {
    for (const entry of readdirSync(folder, { withFileTypes: true })) {
      const its = entry.isFile() ? PART.exec(entry.name)?.[1] : undefined
      if (its === undefined || its === id) continue
      try {
        rmSync(join(folder, entry.name), { force: true })
      } catch {
        // The next save tries again.
      }
    }
  } catch {
    // Likewise.
  }
}

/**
 * Saves a model, and an optimizer's state, into a folder: each member writes its parts of {@link nn.FullyShardedModule}s and of layers that
 * {@link nn.shardLinear} gave, and the first one all else. The checkpoint that was there before is replaced once all have written: whenever
 * members fail, the folder holds one or the other. Other files stay. All members must see the same folder, on a file system they share.
 * Where `group` is a part of the job, all ranks of the job must call this, each with its own group; of groups that name the same folder,
 * that of the lowest rank writes it.
 * @throws DistributedError that names a member that cannot write, on all others; that one throws its own error. ArgumentError if the model
 * is spread over another group than `group`, the optimizer's state is not of the parameters' shapes, or two arrays would have the same name
 * @example
 * saveSharded('checkpoint', new nn.Linear(2, 3))
 */
export function saveSharded(
  folder: string,
  model: nn.Module,
  optimizer: HasState | null = null,
  group: mx.distributed.Group | null = null,
): void {
  const its = group ?? mx.distributed.init()
  const job = mx.distributed.init()
  const names = new Names("saveSharded", model, its)
  const state = optimizer?.state ?? {}
  const arrays: Record<string, mx.Array> = {}
  const shards: Record<string, nn.Shard> = {}
  const belonging: string[] = []
  /** By name in files. */
  const paths = new Map<string, string>()
  const add = (kind: string, tree: object): void => {
    for (const [path, x] of mx.treeFlatten(tree as never) as [string, mx.Array][]) {
      const shard = x.ndim > 0 ? names.shardOf(path) : undefined
      const name = `${kind}.${names.nameOf(path)}`
      const other = paths.get(name)
      if (other !== undefined)
        throw new mx.ArgumentError(
          "saveSharded",
          `"${other}" and "${path}" have the same name in checkpoints`,
          {
            hint: 'Checkpoints leave out the "module" of layers that fullyShard gave: rename what is beside it',
          },
        )
      paths.set(name, path)
      // Arrays that all have alike are written once.
      if (!shard && its.rank() !== 0) continue
      arrays[name] = x
      if (names.has(path)) belonging.push(name)
      if (!shard) continue
      if (x.shape[shard.axis] !== nn.lengthOfPart(shard, its.size()))
        throw new mx.ArgumentError(
          "saveSharded",
          `"${path}" of shape [${x.shape}] belongs to a parameter of which each member has a part, and is not of that part's shape`,
          { hint: "Use an optimizer whose state has the shapes of the parameters" },
        )
      shards[name] = shard
    }
  }
  add("model", model.parameters())
  add("optimizer", state)
  const isPart = its.size() < job.size()
  const [writes, all] = isPart ? [isWriter(folder, its, job), job] : [true, its]
  const manifest = { ranks: its.size(), id: newId(its) }
  together("saveSharded", all, () => {
    // Each writes only a share, but all must take part in the exchanges of a step that was not evaluated.
    mx.eval(model.parameters(), state)
    if (!writes) return
    mkdirSync(folder, { recursive: true })
    mx.saveSafetensors(join(folder, fileOf(its.rank(), manifest)), arrays, {
      shards: JSON.stringify(shards),
      belonging: JSON.stringify(belonging),
      ...(optimizer && { optimizer: kindOf(optimizer) }),
    })
  })
  together("saveSharded", all, () => {
    if (!writes || its.rank() !== 0) return
    const beside = join(folder, `${MANIFEST}.new`)
    writeFileSync(beside, JSON.stringify(manifest), { flush: true })
    renameSync(beside, join(folder, MANIFEST))
    removeOthers(folder, manifest)
  })
}

/**
 * Loads what {@link saveSharded} wrote, on as many members as there are now: each reads its own parts, one array after another. A
 * checkpoint that does not fit changes nothing. All members must call it.
 * @throws FormatError where there is no checkpoint, one without all its parts, or one whose parameters have other names, shapes or dtypes
 * than the model's, or whose state of an optimizer has other arrays than that of an initialized `optimizer`. ArgumentError if the model is
 * spread over another group than `group`, DistributedError that names another member that could not load it
 * @example
 * const model = new nn.Linear(2, 3)
 * saveSharded('checkpoint', model)
 * loadSharded('checkpoint', model)
 */
export function loadSharded(
  folder: string,
  model: nn.Module,
  optimizer: HasState | null = null,
  group: mx.distributed.Group | null = null,
): void {
  const its = group ?? mx.distributed.init()
  let loaded: Loaded | null = null
  together("loadSharded", its, () => {
    loaded = read(folder, model, optimizer, its)
  })
  const { parameters, state } = loaded as unknown as Loaded
  model.update(mx.treeUnflatten([...parameters]) as never)
  if (optimizer && state.size > 0) optimizer.state = mx.treeUnflatten([...state]) as object
}

/** Arrays of this member, by path. */
interface Loaded {
  readonly parameters: ReadonlyMap<string, mx.Array>
  readonly state: ReadonlyMap<string, mx.Array>
}

/** An array of a checkpoint, and what this member needs of it. */
interface Wanted {
  readonly saved: SavedArray
  readonly shard?: nn.Shard
  /** That of this member's part. */
  readonly shape: readonly number[]
}

function read(
  folder: string,
  model: nn.Module,
  optimizer: HasState | null,
  group: mx.distributed.Group,
): Loaded {
  const op = "loadSharded"
  const manifest = manifestOf(op, folder)
  if (!manifest) throw new mx.FormatError(op, `"${folder}" holds no checkpoint`)
  const names = new Names(op, model, group)
  const paths = Array.from({ length: manifest.ranks }, (_, rank) => join(folder, fileOf(rank, manifest)))
  const parts = new CheckpointParts(op, paths)
  // The names of what belongs to a parameter, which others may resemble. Earlier versions did not save them.
  const { belonging } = parts.metadata
  const belongs = belonging === undefined ? null : new Set(JSON.parse(belonging) as string[])
  const refuse: Refuse = (message) => {
    throw new mx.FormatError(op, `the checkpoint of "${folder}" does not fit: ${message}`)
  }
  const wanted = { model: new Map<string, Wanted>(), optimizer: new Map<string, Wanted>() }
  for (const saved of parts.arrays) {
    const dot = saved.name.indexOf(".")
    const [kind, name] = [saved.name.slice(0, dot) as "model" | "optimizer", saved.name.slice(dot + 1)]
    const isKnown = belongs?.has(saved.name) ?? true
    const path = isKnown ? names.pathOf(name) : name
    const shard = isKnown && saved.shape.length > 0 ? names.shardOf(path) : undefined
    const shape = [...saved.shape]
    if (shard) {
      const whole = shard.segments.reduce((sum, n) => sum + n, 0)
      if (shape[shard.axis] !== whole)
        refuse(`"${path}" has shape [${shape}] there, and ${whole} along axis ${shard.axis} in the model`)
      shape[shard.axis] = nn.lengthOfPart(shard, group.size())
    }
    wanted[kind].set(path, { saved, shard, shape })
  }
  checkParameters(wanted.model, model, refuse)
  if (optimizer) {
    const kinds = [parts.metadata.optimizer ?? "", kindOf(optimizer)]
    if (kinds[0] !== kinds[1] && !kinds.some((kind) => ANY_KIND.includes(kind)))
      refuse(`it has the state of the optimizer ${kinds[0]}, and this is ${kinds[1]}`)
    checkState(wanted.optimizer, optimizer, names, refuse)
  }
  const arraysOf = (all: ReadonlyMap<string, Wanted>): Map<string, mx.Array> =>
    new Map([...all].map(([path, { saved, shard }]) => [path, parts.read(saved, shard, group)]))
  return {
    parameters: arraysOf(wanted.model),
    state: optimizer ? arraysOf(wanted.optimizer) : new Map(),
  }
}

type Refuse = (message: string) => never

function checkParameters(saved: ReadonlyMap<string, Wanted>, model: nn.Module, refuse: Refuse): void {
  const parameters = new Map(mx.treeFlatten(model.parameters()) as [string, mx.Array][])
  for (const path of saved.keys())
    if (!parameters.has(path)) refuse(`it has "${path}", which the model does not have`)
  for (const [path, { shape, dtype }] of parameters) {
    const given = saved.get(path) ?? refuse(`it lacks "${path}"`)
    if (`${given.shape}` !== `${shape}`)
      refuse(`"${path}" has shape [${given.shape}] there, and [${shape}] in the model`)
    if (given.saved.dtype !== dtype)
      refuse(`"${path}" is ${given.saved.dtype.name} there, and ${dtype.name} in the model`)
  }
}

/** Compares the states that both an optimizer and the checkpoint have of a parameter: another kind of optimizer has other arrays. */
function checkState(
  saved: ReadonlyMap<string, Wanted>,
  optimizer: HasState,
  names: Names,
  refuse: Refuse,
): void {
  const state = mx.treeFlatten(optimizer.state as never) as [string, mx.Array][]
  if (saved.size === 0 && state.length > 0) refuse("it has no state of an optimizer")
  const held = shapesOf(state, names)
  const given = shapesOf(saved, names)
  for (const [parameter, shapes] of held) {
    const theirs = given.get(parameter)
    if (theirs !== undefined && theirs !== shapes)
      refuse(`the optimizer's state of "${parameter}" is ${theirs} there, and ${shapes} here`)
  }
}

/** The arrays that belong to each parameter, in words. */
function shapesOf(
  arrays: Iterable<readonly [path: string, { readonly shape: readonly number[] }]>,
  names: Names,
): Map<string, string> {
  const words = new Map<string, string[]>()
  for (const [path, { shape }] of arrays) {
    const parameter = names.parameterOf(path)
    if (parameter === undefined) continue
    const word = `${path.replace(parameter, "…")} [${shape}]`
    words.set(parameter, [...(words.get(parameter) ?? []), word])
  }
  return new Map([...words].map(([parameter, all]) => [parameter, all.sort().join(", ")]))
}
