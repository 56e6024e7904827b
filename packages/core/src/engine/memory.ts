/**
 * When memory is given back. JavaScript runs no finalizer in synchronous code, so what users still hold is known by native weak
 * references, polled under pressure: on each handle of a large array, so that an evaluation can reuse what nobody can read any more;
 * on the node of a small one, and of one that only a pending graph can reach.
 * Which storages die inside one evaluation is decided in evaluate.ts, without asking anybody.
 */
import { type Backend, backendOf, onBackend } from "../graph/backend"
import { streamsAreOnCpu } from "../graph/device"
import { DeviceError } from "../graph/errors"
import { type Array, handles, isLarge, Mark, Node, PENDING_BYTES, Ref } from "../graph/graph"
import type { Memory, MemoryStats, Storage, Tracker } from "../graph/storage"
import type { Bytes } from "./memory-budget"
import { newRecount, weigh } from "./pending-weight"

/** Polls happen at least after this many allocated bytes, unless more is alive. */
const BUDGET = 256 * 2 ** 20
/**
 * Living handles are looked through as a whole once there is twice what survived that the last time, which counts as at least this much.
 */
const LEAST_SURVIVED = BUDGET / 4
/** An evaluation whose intermediates with handles take more than this is preceded by a poll. */
const LARGE_INTERMEDIATES = 16 * 2 ** 20
/** After this many allocated bytes a poll may pay already: where polls take little of the time that passes. */
const SMALL_BUDGET = 4 * 2 ** 20
/** A poll that may pay takes at most one part in this many of the time since the last one. */
const POLL_SHARE = 50
/** After this many new handles a poll pays if the collector has run by itself since the last one. */
const MANY_YOUNG = 16384
/** Polls happen at least after this many new handles, so that the table of references stays small. */
const MAX_YOUNG = 65536

let tracker: Tracker | undefined
/** The memory that small work takes, whose room is known without asking: that of the backend with the tracker. */
let home: Memory | undefined
let readStats: (() => MemoryStats) | undefined
onBackend((backend) => {
  const { memory } = backend
  if (memory.tracker && !tracker) {
    tracker = memory.tracker
    home = memory
    if (memory.stats)
      readStats = () => {
        // Released memory is only counted once the work before it is done.
        drain(backend)
        return statsOf(backend)
      }
  }
})

const statsOf = ({ memory }: Backend): MemoryStats => (memory.stats as () => MemoryStats)()

function drain({ queue }: Backend): void {
  if (queue.drain) queue.drain()
  else queue.flush()
}

/**
 * Storages of at most this many bytes share a weak reference, up to that many at a time: one living array keeps little more than itself.
 */
const TINY = 1024
const GROUP = 32

/** The object that tiny nodes that were evaluated together hold on to: while one of them lives, it lives. */
class Anchor {}

/** Tiny storages that are given back together. It must not refer to the anchor. Groups are used again: see {@link Storage.renew}. */
class Group {
  count = 0
  readonly storages = new globalThis.Array<Storage | null>(GROUP).fill(null)

  /** Gives its storages back. */
  drop(): void {
    for (let i = 0; i < this.count; i++) {
      ;(this.storages[i] as Storage).drop()
      this.storages[i] = null
    }
    this.count = 0
    spare.push(this)
  }
}
/** Groups without storages. */
const spare: Group[] = []

/** A resource to give back once an object is gone. It must not refer to the object. */
export interface Droppable {
  drop(): void
}

/**
 * The subject of each weak reference: a handle's node, the storage that a guarded node keeps, a group's storages, or what {@link dropWith}
 * was given.
 */
const watched: (Node | Droppable | null)[] = [null]
let anchor = new Anchor()
let group = new Group()
const free: number[] = []
/** Nodes that wait for their weak reference; entries from `guardedCount` on are null. Setting `length` would be slow. */
const guarded: (Node | Anchor | null)[] = []
let guardedCount = 0
/** The group of the anchor at the same place of `guarded`. */
const groups: (Group | null)[] = []
let objects: (object | null)[] = []
let ids = new Int32Array(1024)
let young = 0
/** Bytes allocated since the last poll. */
let allocated = 0
/** The same since the last time that `threshold` of them were reached: polls in between find only what is young. */
let pressure = 0
let threshold = BUDGET
let survived = LEAST_SURVIVED
let lastPoll = 0
let pollCost = 0

function newId(entry: Node | Droppable | null): number {
  const id = free.pop() ?? watched.length
  watched[id] = entry
  return id
}

/** Gives every new handle, and every node to be guarded, its weak reference. */
function flushHandles(t: Tracker): void {
  const { fresh } = handles
  const total = fresh.length + guardedCount
  if (total === 0) return
  if (ids.length < total) ids = new Int32Array(total * 2)
  let count = 0
  for (let i = 0; i < guardedCount; i++) {
    const node = guarded[i]
    guarded[i] = null
    if (node instanceof Anchor) {
      const members = groups[i] as Group
      ids[count] = newId(members)
      young += members.count
      groups[i] = null
      objects[count++] = node
      continue
    }
    if (node === null || node.guard !== PENDING_GUARD || node.storage === null) continue
    node.guard = ids[count] = newId(node.storage)
    objects[count++] = node
  }
  guardedCount = 0
  if (fresh.length > 0) {
    for (const handle of fresh) {
      if (handle.ref !== Ref.Fresh) continue
      carried += weigh(handle.node)
      handle.ref = ids[count] = newId(handle.node)
      objects[count++] = handle
    }
    fresh.length = 0
  }
  if (count === 0) return
  t.track(objects as object[], count, ids)
  objects.fill(null, 0, count)
  if (objects.length > MANY_YOUNG) objects = []
  young += count
}

handles.flush = () => {
  if (tracker) flushHandles(tracker)
}

const lost = new FinalizationRegistry<Droppable>((entry) => entry.drop())

/**
 * Gives something of about so many bytes back once nothing reaches `object` any more: in synchronous code as well, where there are weak
 * references for it.
 */
export function dropWith(object: object, entry: Droppable, nbytes: number): void {
  if (!tracker) {
    lost.register(object, entry)
    return
  }
  ids[0] = newId(entry)
  tracker.track([object], 1, ids)
  young++
  allocated += nbytes
  pressure += nbytes
}

const PENDING_GUARD = -1

/** The group of a node is not told apart from others: its storage goes with the group. */
const GROUPED = -2

/**
 * Keeps an evaluated node's storage as long as the node can be reached, for instance from a pending graph: its
 * reference to the storage passes to a weak reference on the node, or on the anchor of its group.
 */
export function guard(node: Node): void {
  if (!tracker || node.guard !== 0) return
  const storage = node.storage as Storage
  if (storage.nbytes > TINY) {
    node.guard = PENDING_GUARD
    guarded[guardedCount++] = node
    return
  }
  group.storages[group.count++] = storage
  node.guard = GROUPED
  node.anchor = anchor
  if (group.count === GROUP) endGroup()
}

/** Hands the open group over to a weak reference, and opens another. */
function endGroup(): void {
  if (group.count === 0) return
  groups[guardedCount] = group
  guarded[guardedCount++] = anchor
  anchor = new Anchor()
  group = spare.pop() ?? new Group()
}

/** Sees to it that an evaluated node's storage goes with the last reader: by its handles where they are watched, else by the node. */
export function keep(node: Node): void {
  if (node.handles === 0 || !isLarge(node)) guard(node)
}

/** Drops the storage of an evaluated node that nothing can read any more. */
export function releaseNode(node: Node): void {
  const { storage } = node
  if (storage === null) return
  if (node.guard > 0) {
    tracker?.untrack(node.guard)
    forget(node.guard)
  }
  node.storage = null
  // A group gives its storages back itself.
  if (node.guard !== GROUPED) storage.drop()
  node.guard = 0
}

function forget(id: number): void {
  watched[id] = null
  free.push(id)
}

/** A handle stopped showing a node. */
function dropHandle(node: Node): void {
  if (--node.handles > 0 || node.storage === null) return
  if (node.uses === 0) releaseNode(node)
  else guard(node)
}

/** Frees a handle's hold at once, without waiting for the garbage collector. The handle is dead afterwards. */
export function disposeHandle(handle: Array): void {
  const { ref } = handle
  if (ref === Ref.Disposed) return
  if (ref > 0) {
    tracker?.untrack(ref)
    forget(ref)
  }
  handle.ref = Ref.Disposed
  if (ref !== Ref.Untracked) dropHandle(handle.node)
}

/** Lets a handle show another node, as `x.set(...)` does. */
export function rebind(handle: Array, node: Node): void {
  const before = handle.node
  handle.node = node
  if (handle.ref === Ref.Untracked || handle.ref === Ref.Disposed) return
  node.handles++
  if (handle.ref > 0) watched[handle.ref] = node
  else if (handle.ref === Ref.Counted && isLarge(node)) {
    handle.ref = Ref.Fresh
    handles.fresh.push(handle)
  }
  dropHandle(before)
}

/** The weight of pending arrays, as far as they were weighed since the last {@link recountPending}; what was computed since is in it. */
let carried = 0
/** Of `handles.recent`, so many were weighed. */
let weighedCount = 0
/** Looking at what pending arrays come to must pay: at least so many bytes of nodes are made in between. */
const LEAST_MADE = PENDING_BYTES / 8

/** The small pending node of a handle; null where there is none. */
function pendingOf(handle: Array): Node | null {
  const { node } = handle
  // A node without inputs, such as a number beside an array, keeps nothing alive.
  if (node.storage !== null || node.inputs.length === 0 || handle.ref !== Ref.Counted) return null
  return (node.mark & Mark.Abstract) === 0 ? node : null
}

/** True if pending arrays may have come to too much since they were looked at last. */
export function mayPressPending(): boolean {
  const { recent, recentCount } = handles
  if (tracker) flushHandles(tracker)
  else for (const { node } of handles.fresh) carried += weigh(node)
  for (let i = weighedCount; i < recentCount; i++) {
    const node = pendingOf(recent[i] as Array)
    if (node !== null) carried += weigh(node)
  }
  weighedCount = recentCount
  handles.budget = Math.max(PENDING_BYTES - carried, LEAST_MADE)
  return carried > PENDING_BYTES
}

/**
 * Looks through the handles of small nodes made since the last time: those that are pending, and that no other pending node reads, get a
 * weak reference of their own, so that {@link pendingNodes} knows them. So do the last `some`, also where others read them: those may
 * be dead.
 */
export function sweepRecent(some = 0): void {
  const { recent, fresh, recentCount } = handles
  for (let i = 0; i < recentCount; i++) {
    const handle = recent[i] as Array
    recent[i] = null
    const node = pendingOf(handle)
    if (node === null) continue
    if (i >= weighedCount) carried += weigh(node)
    if (node.uses > 0 && i < recentCount - some) continue
    handle.ref = Ref.Fresh
    fresh.push(handle)
  }
  handles.recentCount = 0
  weighedCount = 0
  handles.budget = PENDING_BYTES - carried
}

const isPending = (node: Node): boolean =>
  node.storage === null && node.primitive !== null && (node.mark & Mark.Abstract) === 0

/** Pending nodes whose handles may be alive, as far as they are known: what they are computed from is kept for them. */
export function pendingNodes(size: "small" | "any"): Node[] {
  const isWanted = (entry: unknown): boolean =>
    entry instanceof Node && isPending(entry) && (size === "any" || !isLarge(entry))
  const fresh = handles.fresh.map((handle) => handle.node).filter(isWanted)
  if (!tracker) return fresh
  if (fresh.length === 0 && !watched.some(isWanted)) return fresh
  poll(tracker, "young")
  return watched.filter(isWanted) as Node[]
}

/** Weighs pending nodes anew, by what is known to be alive now. Returns true if they are too much. */
export function recountPending(nodes: readonly Node[]): boolean {
  const round = newRecount()
  carried = 0
  for (const node of nodes) carried += weigh(node, round)
  handles.budget = Math.max(PENDING_BYTES - carried, LEAST_MADE)
  return carried > PENDING_BYTES
}

/** Forgets the weight of pending arrays that are computed now. */
export function forgetPending(): void {
  carried = 0
  handles.budget = PENDING_BYTES
}

let overdue = false

/** True if much was alive at the last poll, although everything dead was given back; asking answers it. */
export function isOverdue(): boolean {
  const answer = overdue
  overdue = false
  return answer
}

/** The number of the reference to an object that nothing else knows: once it is gone, the collector has run since the last poll. */
let canary = 0

function renewCanary(t: Tracker): void {
  if (canary > 0) {
    t.untrack(canary)
    forget(canary)
  }
  canary = newId(null)
  ids[0] = canary
  t.track([new Anchor()], 1, ids)
}

/** True if the collector has run by itself since the last poll: what died then is found without running it again. */
const wasCollected = (t: Tracker): boolean => canary > 0 && t.isAlive?.(canary) === false

/** References that walks of the young pass over may be dead too: with so many more than were alive, all are looked at. */
const MANY_OLD = 256
let livingAtMost = MANY_OLD

const areManyOld = (): boolean => watched.length - free.length > livingAtMost

/** Looks at all references where many have become old since the last time. */
function pollOld(t: Tracker): void {
  if (!areManyOld()) return
  poll(t, "all")
  livingAtMost = 2 * (watched.length - free.length) + MANY_OLD
}

/** Finds what died: after a collection of what is young or of all, or, without one, as far as the collector has looked. */
function poll(t: Tracker, collection: "all" | "young" | "none"): void {
  const start = performance.now()
  const all = collection === "all"
  endGroup()
  flushHandles(t)
  if (collection !== "none") t.collect(all)
  const dead = t.poll(all)
  const count = dead.length
  for (let i = 0; i < count; i++) {
    const id = dead[i]
    const entry = watched[id]
    if (id === canary) canary = 0
    forget(id)
    if (entry === null) continue
    if (entry instanceof Node) dropHandle(entry)
    else entry.drop()
  }
  renewCanary(t)
  young = 0
  allocated = 0
  lastPoll = performance.now()
  // One that was interrupted says little about the next.
  if (collection !== "none") pollCost = Math.min(lastPoll - start, pollCost === 0 ? Infinity : 2 * pollCost)
}

/** True if enough may have died, and enough time passed since the last poll, that looking costs nothing to speak of. */
const mayPay = (): boolean =>
  allocated >= SMALL_BUDGET && performance.now() - lastPoll > POLL_SHARE * pollCost

/** Told of every allocation, so that pressure is known without asking the backend. */
export function noteAllocation(memory: Memory, nbytes: number): void {
  allocated += nbytes
  pressure += nbytes
  if (memory === home) {
    unseen += nbytes
    unsettled += nbytes
  } else isMixed = true
}

/** The limit is looked at after so many allocated bytes at the latest: another thread may have changed it. */
const LOOK_AFTER = 4 * 2 ** 20
/** So many bytes may be allocated before the limit is looked at, and so many were. */
let room = 0
let unseen = 0
/** Bytes allocated since the last look that waited for all work: some may not be counted as active yet. */
let unsettled = 0

/** True if memory was allocated beside that of {@link home}. */
let isMixed = false

/** Forgets what is known of the limit. */
export function forgetRoom(): void {
  room = 0
}

/** Free bytes under a memory's limit: certainly so many, or, once all work is waited for, exactly. */
function freeBytes(memory: Memory, settled: boolean): number {
  if (memory.stats === undefined) return Infinity
  if (settled) drain(backendOf(memory))
  const { active, scratch = 0, limit } = memory.stats()
  const free = limit - (active - scratch)
  if (memory !== home) return free
  if (settled) unsettled = 0
  room = Math.min(LOOK_AFTER, free - unsettled)
  unseen = 0
  return free - unsettled
}

/** True if there is certainly room for so many bytes under the memory limit, where all is allocated in one memory. */
export const hasRoom = (most: number): boolean =>
  home !== undefined && !isMixed && streamsAreOnCpu() && (unseen + most <= room || home.stats === undefined)

/**
 * Sees to it that there is room for `most` bytes under the limits, or at least for those that `least` gives, by collecting garbage where
 * it must. Dead handles that are found may lower these, too: what nobody can read any more goes on the way.
 * @throws DeviceError where there is not
 */
export function makeRoom(op: string, most: Bytes, least: () => Bytes): void {
  if (tightest(most, hasSurely) === null) return
  let lacking: Lacking | null = null
  for (const collection of tracker ? (["none", "young", "all", "all"] as const) : (["none"] as const)) {
    if (collection === "young") sweepRecent()
    if (collection !== "none") poll(tracker as Tracker, collection)
    lacking = tightest(least(), hasFree)
    if (lacking === null) return
  }
  const [memory, needed] = lacking as Lacking
  const { active, scratch = 0, limit } = statsOf(backendOf(memory))
  throw new DeviceError(
    op,
    `out of memory${memory === home ? "" : ` of ${memory.name}`}: needs ${needed} bytes more with ${active - scratch} active, limit ${limit}`,
    {
      hint: "Nothing was computed, and every array is as it was: dispose others or raise the limit (mx.setMemoryLimit), and try again",
    },
  )
}

/** A memory, and the bytes for which it has no room. */
type Lacking = readonly [memory: Memory, bytes: number]

/**
 * True if a memory has room for so many bytes once all work is waited for: for none also below a limit that was lowered under what is in
 * use.
 */
const hasFree = (memory: Memory, bytes: number): boolean => bytes <= 0 || freeBytes(memory, true) >= bytes

/** The same, without waiting where that can be. */
const hasSurely = (memory: Memory, bytes: number): boolean =>
  (memory === home && unseen + bytes <= room) || freeBytes(memory, false) >= bytes || hasFree(memory, bytes)

/** The first memory that does not fit; null where all do. */
function tightest(bytes: Bytes, fits: (memory: Memory, bytes: number) => boolean): Lacking | null {
  for (const each of bytes) if (!fits(...each)) return each
  return null
}

/** Finds dead handles when enough was allocated or enough handles were made since the last time. */
export function relieve(intermediateBytes: number): void {
  if (!tracker) {
    // Memory of a backend in JavaScript goes with its nodes; handles need not be known.
    handles.fresh.length = 0
    guarded.fill(null, 0, guardedCount)
    guardedCount = 0
    return
  }
  flushHandles(tracker)
  const pressed = pressure >= threshold
  if (!pressed && young < MAX_YOUNG && intermediateBytes < LARGE_INTERMEDIATES && !mayPay()) {
    if (young >= MANY_YOUNG && wasCollected(tracker)) {
      poll(tracker, "none")
      // Handles made after the collector ran may be as dead as those made before.
      if (areManyOld()) poll(tracker, "young")
      pollOld(tracker)
    }
    return
  }
  if (pressed) {
    pressure = 0
    sweepRecent()
  }
  poll(tracker, "young")
  pollOld(tracker)
  if (!pressed || !readStats) return
  let { active } = readStats()
  if (active > 2 * survived) {
    // Much has been added and did not die young. It may be old, and old objects die only in a full collection, whose price is that of
    // computing a hundred megabytes: where what is alive stays the same, none is due.
    poll(tracker, "all")
    active = readStats().active
    overdue = active > BUDGET / 2
    survived = Infinity
  }
  survived = Math.max(LEAST_SURVIVED, Math.min(survived, active))
  threshold = Math.max(BUDGET, active)
}

/** Collects garbage and frees every storage that no handle can reach. Rarely needed: it happens by itself under pressure. */
export function collectGarbage(): void {
  if (!tracker) return
  sweepRecent()
  for (let round = 0; round < 2; round++) poll(tracker, "all")
  if (readStats) survived = Math.max(LEAST_SURVIVED, readStats().active)
}
