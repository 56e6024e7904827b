/**
 * Checkpoints of spread models: each member writes what it holds, and any number of members reads it.
 */
import { randomBytes } from "node:crypto"
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import * as mx from "@lazuli/core"
import * as nn from "@lazuli/nn"

/** A model's parameters: their names in files, which are those of the model as it was before it was spread, and what is known of them. */
class Names {
  /** By name in files: the path in the model. */
  private readonly paths = new Map<string, string>()
  private readonly names = new Map<string, string>()
  /** By path, the rows of the whole array, of arrays that are spread. */
  private readonly rows = new Map<string, number>()

  constructor(model: nn.Module) {
    const spread = model
      .namedModules()
      .filter((entry): entry is [string, nn.FullyShardedModule] => entry[1] instanceof nn.FullyShardedModule)
      .map(([prefix, module]) => ({ inner: prefix === "" ? "module." : `${prefix}.module.`, module }))
    for (const { inner, module } of spread)
      for (const [path, count] of module._rows) this.rows.set(inner + path, count)
    // The innermost first: outer ones are the beginnings of their paths.
    spread.sort((a, b) => b.inner.length - a.inner.length)
    for (const [path] of mx.treeFlatten(model.parameters()) as [string, mx.Array][]) {
      let name = path
      for (const { inner } of spread)
        if (name.startsWith(inner)) name = inner.slice(0, -"module.".length) + name.slice(inner.length)
      this.paths.set(name, path)
      this.names.set(path, name)
    }
  }

  nameOf = (path: string): string => within(this.names, path, (name, rest) => name + rest) ?? path
  pathOf = (name: string): string => within(this.paths, name, (path, rest) => path + rest) ?? name
  rowsOf = (path: string): number | undefined => within(this.rows, path, (count) => count)
}

/** The entry of a parameter, or of an array that an optimizer has for one, which lies a level below. */
function within<V>(
  map: ReadonlyMap<string, V>,
  path: string,
  give: (value: V, rest: string) => V,
): V | undefined {
  const own = map.get(path)
  if (own !== undefined) return own
  const dot = path.lastIndexOf(".")
  const parent = dot < 0 ? undefined : map.get(path.slice(0, dot))
  return parent === undefined ? undefined : give(parent, path.slice(dot))
}

/** Something with a state of arrays: an optimizer. */
export interface HasState {
  state: object
}

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
  const outcomes = mx.distributed.allGather(mx.array([own ? 1 : 0], mx.int32), { group })
  const failed = (outcomes.tolist() as number[]).indexOf(1)
  if (failed < 0) return
  const text = Buffer.alloc(MOST_TEXT)
  text.write(own ? describeError(own.error) : "")
  const shared = mx.distributed.broadcast(mx.array(new Uint8Array(text)), { group, root: failed })
  const reason = Buffer.from(shared.toTypedArray() as Uint8Array)
    .toString()
    .replace(/\0+$/, "")
  if (own) throw own.error
  throw new mx.DistributedError(op, `rank ${failed} failed: ${reason}`)
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
 * Saves a model of {@link nn.FullyShardedModule}s, and an optimizer's state, into a folder: each member writes the parts that it holds.
 * The checkpoint that was there before is replaced once all have written: whenever members fail, the folder holds one or the other. Other
 * files stay. All members must see the same folder, on a file system that they share.
 * @throws DistributedError that names a member that cannot write, on all others; that one throws its own error
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
  const names = new Names(model)
  const arrays: Record<string, mx.Array> = {}
  const spread: Record<string, number> = {}
  const add = (kind: string, tree: object): void => {
    for (const [path, x] of mx.treeFlatten(tree as never) as [string, mx.Array][]) {
      const count = names.rowsOf(path)
      const isPart = count !== undefined && x.ndim > 0
      // Arrays that all have alike are written once.
      if (!isPart && its.rank() !== 0) continue
      const name = `${kind}.${names.nameOf(path)}`
      arrays[name] = x
      if (isPart) spread[name] = count
    }
  }
  add("model", model.parameters())
  if (optimizer) add("optimizer", optimizer.state)
  const manifest = { ranks: its.size(), id: newId(its) }
  together("saveSharded", its, () => {
    mkdirSync(folder, { recursive: true })
    mx.saveSafetensors(join(folder, fileOf(its.rank(), manifest)), arrays, { rows: JSON.stringify(spread) })
  })
  together("saveSharded", its, () => {
    if (its.rank() !== 0) return
    const beside = join(folder, `${MANIFEST}.new`)
    writeFileSync(beside, JSON.stringify(manifest), { flush: true })
    renameSync(beside, join(folder, MANIFEST))
    removeOthers(folder, manifest)
  })
}

/**
 * Loads what {@link saveSharded} wrote, on as many members as there are now.
 * @throws FormatError where there is no checkpoint, or one without all its parts
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
  const manifest = manifestOf("loadSharded", folder)
  if (!manifest) throw new mx.FormatError("loadSharded", `"${folder}" holds no checkpoint`)
  const parts = Array.from({ length: manifest.ranks }, (_, rank) => {
    const [arrays, metadata] = mx.load(join(folder, fileOf(rank, manifest)), {
      returnMetadata: true,
    }) as unknown as [Record<string, mx.Array>, Record<string, string>]
    return { arrays, rows: JSON.parse(metadata.rows ?? "{}") as Record<string, number> }
  })
  const names = new Names(model)
  const own: Record<"model" | "optimizer", [string, mx.Array][]> = { model: [], optimizer: [] }
  for (const [name, first] of Object.entries(parts[0].arrays)) {
    const rows = parts[0].rows[name]
    const dot = name.indexOf(".")
    const path = names.pathOf(name.slice(dot + 1))
    let x = first
    if (rows !== undefined) {
      const whole = mx.concatenate(parts.map(({ arrays }) => arrays[name])).index(mx.s(0, rows))
      // A model that is not spread takes it whole.
      x = names.rowsOf(path) === undefined ? whole : partOf(whole, its)
    }
    own[name.slice(0, dot) as "model" | "optimizer"].push([path, x])
  }
  mx.eval(
    own.model.map(([, x]) => x),
    own.optimizer.map(([, x]) => x),
  )
  model.update(mx.treeUnflatten(own.model) as never)
  if (optimizer && own.optimizer.length > 0) optimizer.state = mx.treeUnflatten(own.optimizer) as object
}

/** This member's rows of an array; zeros where they end before. */
function partOf(whole: mx.Array, group: mx.distributed.Group): mx.Array {
  const [rank, size, rows] = [group.rank(), group.size(), whole.shape[0]]
  const each = Math.ceil(rows / size)
  const mine = whole.index(mx.s(Math.min(rank * each, rows), Math.min((rank + 1) * each, rows)))
  const missing = each - mine.shape[0]
  return missing === 0
    ? mine
    : mx.concatenate([mine, mx.zeros([missing, ...mine.shape.slice(1)], mine.dtype)])
}
