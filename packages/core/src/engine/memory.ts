/**
 * When memory is given back. JavaScript runs no finalizer in synchronous code, so what users still hold is known by native weak
 * references, polled under pressure: on each handle of a large array, so that an evaluation can reuse what nobody can read any more;
 * on the node of a small one, and of one that only a pending graph can reach.
 * Which storages die inside one evaluation is decided in evaluate.ts, without asking anybody.
 * It is long because every decision to look counts from the same last poll.
 */
import { type Backend, listBackends, onBackend } from "../graph/backend"
import { type Array, forgetGraph, handles, isLarge, LEAST_MADE, Mark, Node, Ref } from "../graph/graph"
import { type Memory, Storage } from "../graph/storage"
import type { Bytes } from "./memory-budget"
import { type Collection, drain, MemoryLimit, statsOf } from "./memory-limit"
import { PendingArrays } from "./pending-arrays"
import { Anchor, type Group, TINY, TinyStorages } from "./tiny-storages"
import { forgetUndo, isFormer } from "./undo"
import { type Droppable, WeakReferences } from "./weak-references"

/** Polls happen at least after this many allocated bytes, unless more is alive. */
const BUDGET = 256 * 2 ** 20
/**
 * Living handles are looked through as a whole once there is twice what survived that the last time, which counts as at least this much.
 */
const LEAST_SURVIVED = BUDGET / 4
/** An evaluation whose intermediates with handles take more than this is preceded by a poll. */
const LARGE_INTERMEDIATES = 10 * 2 ** 20
/** Copies in a row that polls did not save after which so many more are made without a poll. */
const MOST_SPARED = 16
/** Where they take more than this after it, old handles are looked at too, unless half of that was alive the last time. */
const LARGE_OLD = 64 * 2 ** 20
/** After this many allocated bytes a poll may pay already: where polls take little of the time that passes. */
const SMALL_BUDGET = 4 * 2 ** 20
/** A poll that may pay takes at most one part in this many of the time since the last one, */
const POLL_SHARE = 50
/** and of as much less as fewer bytes than these were allocated: it could not give back more. */
const BYTES_TO_FIND = 64 * 2 ** 20
/** Where polls in a row find nothing, the time until the next one is up to so many times that. */
const LONGEST_WAIT = 16
/**
 * Dead results are best used again while a cache holds them. A thread takes some 40 µs longer to write a megabyte that none holds. A poll
 * for their sake pays after so many bytes for each of its milliseconds and each thread, which is half of what would be lost.
 */
const COLD_BYTES = 50 * 2 ** 20
/** Results larger than this are not looked for early: their memory has left the caches. */
const MOST_WARM = 8 * 2 ** 20
/**
 * After this many new handles a poll pays if the collector has run by itself since the last one. The memory of small arrays is used again
 * only after it: with more of them, it is not in the processor's cache any more.
 */
const MANY_YOUNG = 4096
/** Where it has not, so many more are made before it is asked again. */
const MORE_YOUNG = 512
/** Polls happen at least after this many new handles, so that the table of references stays small. */
const MAX_YOUNG = 65536

/** So many nodes get their weak references together: one call of the backend for each would cost more than the reference. */
const MANY_GUARDED = 32

/** The guard of a node that waits for its weak reference. */
const PENDING_GUARD = -1
/** The guard of a node in a group: its storage goes with the group's. */
const GROUPED = -2

const isPending = (node: Node): boolean =>
  node.storage === null && node.primitive !== null && (node.mark & Mark.Abstract) === 0 && !isFormer(node)

/** The nodes of new handles, without those that were disposed meanwhile. */
const freshNodes = (): Node[] => handles.fresh.filter(({ ref }) => ref === Ref.Fresh).map(({ node }) => node)

/** The knowledge of what lives, and the decision when to look. There is one: {@link lifetimes}. */
class Lifetimes {
  private readonly limit = new MemoryLimit()
  private readonly tiny = new TinyStorages()
  readonly pending = new PendingArrays()
  /** Those of the first backend that offers any; null before. */
  private references: WeakReferences | null = null
  /** That backend, if it counts its memory. */
  private counting: Backend | null = null
  /** Where there are no weak references. */
  private readonly lost = new FinalizationRegistry<Droppable>((entry) => entry.drop())
  /** Nodes and anchors that wait for their weak reference; entries from `guardedCount` on are null. Setting `length` would be slow. */
  private readonly guarded: (Node | Anchor | null)[] = []
  private guardedCount = 0
  /** The group of the anchor at the same index of `guarded`. */
  private readonly groups: (Group | null)[] = []
  private young = 0
  /** The number of them at which the collector is asked. */
  private manyYoung = MANY_YOUNG
  /** Bytes allocated since the last poll, without those that were given back. */
  private allocated = 0
  /** Those of them in results that a cache may hold. */
  private cooling = 0
  /** The factor by which polls for their sake are rarer: doubled by each that gave less than half of them back, and made handles old. */
  private aging = 1
  /** The same since the last time that `threshold` of them were reached: polls in between find only what is young. */
  private pressure = 0
  private threshold = BUDGET
  /** The same of things that no backend counts, or counts late. */
  private uncounted = 0
  /** Bytes in use on all backends at the last time that `threshold` was reached, or fewer since. */
  private base = 0
  private survived = LEAST_SURVIVED
  private lastPoll = 0
  private pollCost = 0
  /** The factor by which polls that only may pay are rarer: doubled by each that found nothing. */
  private rarity = 1
  private overdue = false
  /** Handles that the last poll found dead. */
  private found = 0
  /** Evaluations that may still copy without a poll, because earlier ones in a row had polls that found nothing. */
  private spared = 0
  private fruitless = 0
  /** The bytes of intermediates whose handles were alive after a look at all, or half of what they were before. */
  private shownAlive = 0

  constructor() {
    onBackend((backend) => {
      const { memory } = backend
      // The host's own memory is the better home, as long as nothing of another is watched.
      const isBetter = !this.references || (backend.device === "cpu" && this.references.isUnused)
      if (!memory.tracker || !isBetter) return
      this.references = new WeakReferences(memory.tracker)
      this.limit.home = memory
      if (memory.stats) this.counting = backend
    })
    handles.flush = () => {
      if (this.references) this.flush(this.references)
    }
  }

  /**
   * Gives something of about so many bytes back once nothing reaches `object` any more: in synchronous code as well, where there are weak
   * references for it.
   */
  dropWith(object: object, entry: Droppable, nbytes: number): void {
    if (!this.references) {
      this.lost.register(object, entry)
      return
    }
    this.references.trackOne(object, entry)
    this.young++
    this.allocated += nbytes
    this.pressure += nbytes
    this.uncounted += nbytes
  }

  /** Sees to it that an evaluated node's storage goes with the last reader: by its handles where they are watched, else by the node. */
  keep(node: Node): void {
    if (node.handles === 0 || !isLarge(node)) this.guard(node)
  }

  /** Bytes for a storage that a node evaluated by itself shares with those after it; 0 where it gets its own. */
  bytesToShare(node: Node): number {
    return this.references === null ? 0 : this.tiny.bytesToShare(node)
  }

  /** Lets nodes evaluated by themselves have parts of a storage. */
  openShared(storage: Storage): void {
    this.tiny.open(storage)
  }

  /** Lets no more nodes have parts of that storage. */
  closeShared(): void {
    this.tiny.close()
  }

  /** Gives a node evaluated by itself a part of the storage that was opened last. Returns false where there is none for it. */
  place(node: Node, memory: Memory): boolean {
    if (!this.tiny.place(node, memory)) return false
    node.guard = GROUPED
    if (this.tiny.isFull) this.endGroup()
    return true
  }

  /** Drops the storage of an evaluated node that nothing can read any more. */
  releaseNode(node: Node): void {
    const { storage } = node
    if (storage === null) return
    if (node.guard > 0) this.references?.drop(node.guard)
    node.storage = null
    // A group gives its storages back itself.
    if (node.guard !== GROUPED) this.dropStorage(storage)
    node.guard = 0
  }

  /**
   * Lets an output that takes a node's memory stand in for it in its group, which then keeps that memory for the output. Returns false for
   * nodes that are in no group.
   */
  handOver(donor: Node, output: Node): boolean {
    if (donor.guard !== GROUPED) return false
    output.guard = GROUPED
    output.anchor = donor.anchor
    return true
  }

  /** Frees a handle's hold at once, without waiting for the garbage collector. The handle is dead afterwards. */
  disposeHandle(handle: Array): void {
    const { ref } = handle
    if (ref === Ref.Disposed) return
    if (ref > 0) this.references?.drop(ref)
    handle.ref = Ref.Disposed
    if (ref !== Ref.Untracked) this.dropHandle(handle.node)
  }

  /** Lets a handle show another node, as `x.set(...)` does. */
  rebind(handle: Array, node: Node): void {
    const before = handle.node
    handle.node = node
    if (handle.ref === Ref.Untracked || handle.ref === Ref.Disposed) return
    node.handles++
    if (handle.ref > 0) this.references?.move(handle.ref, node)
    else if (handle.ref === Ref.Counted && isLarge(node)) {
      handle.ref = Ref.Fresh
      handles.fresh.push(handle)
    }
    this.dropHandle(before)
  }

  /** True if handles are found dead by and by. */
  get areHandlesWatched(): boolean {
    return this.references !== null
  }

  /** Sees to it that {@link pendingNodes} knows the small pending arrays made since the last time; see {@link PendingArrays.sweep}. */
  sweepRecent(some = 0): void {
    this.pending.sweep(some)
  }

  /**
   * Lets the handles of a long trace die while they are young. Those that {@link handles} kept until the evaluation would be old by then,
   * and their memory kept with them, as only a collection of everything finds old ones dead.
   */
  watchRecent(): void {
    if (this.references) {
      this.sweepRecent(Infinity)
      this.flush(this.references)
    }
    handles.floor = handles.budget - LEAST_MADE
  }

  /** Pending nodes whose handles may be alive, as far as they are known: what they are computed from is kept for them. */
  pendingNodes(size: "small" | "any"): Node[] {
    const isWanted = (entry: unknown): boolean =>
      entry instanceof Node && isPending(entry) && (size === "any" || !isLarge(entry))
    const fresh = freshNodes().filter(isWanted)
    const { references } = this
    if (!references) return fresh
    if (fresh.length === 0 && !references.some(isWanted)) return fresh
    this.poll(references, "young")
    return references.filter(isWanted) as Node[]
  }

  /** True if pending arrays may have come to too much since they were looked at last. */
  mayPressPending(): boolean {
    if (this.references) this.flush(this.references)
    else for (const node of freshNodes()) this.pending.add(node)
    return this.pending.weighRecent()
  }

  /** True if much was alive at the last poll, although everything dead was given back; asking answers it. */
  isOverdue(): boolean {
    const answer = this.overdue
    this.overdue = false
    return answer
  }

  /** Told of every allocation, so that pressure is known without asking the backend. */
  noteAllocation(memory: Memory, nbytes: number): void {
    this.allocated += nbytes
    if (mayBeWarm(memory, nbytes)) this.cooling += nbytes
    this.pressure += nbytes
    // The host's memory may be taken later, by work on another thread: its counts tell too little.
    if (memory.host) this.uncounted += nbytes
    this.limit.note(memory, nbytes)
  }

  /** Drops a reference. Of memory that is given back so nothing will be found dead. */
  private dropStorage(storage: Storage): void {
    const { memory, nbytes, refs } = storage
    if (refs === 1) {
      this.allocated = Math.max(0, this.allocated - nbytes)
      if (mayBeWarm(memory, nbytes)) this.cooling = Math.max(0, this.cooling - nbytes)
    }
    storage.drop()
  }

  /** Tells that a limit may be another one now. */
  forgetLimit(): void {
    this.limit.forget()
  }

  /** True if so many bytes are certainly free under the memory limit, where all is allocated in one memory. */
  admits(most: number): boolean {
    return this.limit.admits(most)
  }

  /**
   * Sees to it that `most` bytes are free under the limits, or at least those that `least` gives, by collecting garbage where it must.
   * @throws DeviceError where there are not
   */
  reserve(op: string, most: Bytes, least: () => Bytes): void {
    const { references } = this
    const findDead = (collection: Collection): void => {
      if (collection === "young") this.sweepRecent(Infinity)
      this.poll(references as WeakReferences, collection)
    }
    this.limit.reserve(op, most, least, references ? findDead : null)
  }

  /** True if {@link relieveOld} may find something after {@link relieve}. */
  mayHoldOld(intermediateBytes: number): boolean {
    return intermediateBytes >= LARGE_OLD
  }

  /** Finds dead handles when enough was allocated or enough handles were made since the last time, or would be copied for. */
  relieve(intermediateBytes: number, copiedBytes = 0): void {
    const { references } = this
    if (references === null) {
      this.forgetFresh()
      return
    }
    if (handles.fresh.length > 0 || this.guardedCount >= MANY_GUARDED) this.flush(references)
    const pressed = this.pressure >= this.threshold && this.hasGrown()
    const areMany = intermediateBytes >= LARGE_INTERMEDIATES
    const copies = !areMany && intermediateBytes + copiedBytes >= LARGE_INTERMEDIATES
    if (
      pressed ||
      this.young >= MAX_YOUNG ||
      areMany ||
      (copies && this.spared-- <= 0) ||
      (this.allocated >= SMALL_BUDGET && this.mayPay()) ||
      (this.cooling >= SMALL_BUDGET && this.cooling >= coldBytes() * this.pollCost * this.aging)
    )
      this.findDead(references, pressed, areMany, copies)
    else if (this.young >= this.manyYoung) {
      if (references.wasCollected()) this.takeCollected(references)
      else this.manyYoung = this.young + MORE_YOUNG
    }
  }

  /** Memory of a backend in JavaScript goes with its nodes; handles need not be known. */
  private forgetFresh(): void {
    handles.fresh.length = 0
    this.guarded.fill(null, 0, this.guardedCount)
    this.guardedCount = 0
  }

  /** Gives back what the collector has found dead already. */
  private takeCollected(references: WeakReferences): void {
    this.poll(references, "none")
    // Handles made after the collector ran may be as dead as those made before.
    if (references.areManyOld()) this.poll(references, "young")
    this.pollOld(references)
  }

  /** Where intermediates have many bytes, handles of small ones that others read are looked at too: a dead one keeps its memory. */
  private findDead(references: WeakReferences, pressed: boolean, areMany: boolean, copies: boolean): void {
    if (pressed) this.pressure = this.uncounted = 0
    if (pressed || areMany) this.sweepRecent(areMany ? Infinity : 0)
    this.poll(references, "young")
    if (copies) {
      this.fruitless = this.found > 0 ? 0 : Math.min(MOST_SPARED, 2 * this.fruitless + 1)
      this.spared = this.fruitless
    }
    this.pollOld(references)
    if (pressed) this.base = activeEverywhere()
    if (!pressed || !this.counting) return
    let active = this.activeBytes(this.counting)
    if (active > 2 * this.survived) {
      // Much has been added and did not die young. It may be old, and old objects die only in a full collection, whose price is that of
      // computing a hundred megabytes: where what is alive stays the same, none is due.
      this.poll(references, "all")
      active = this.activeBytes(this.counting)
      this.overdue = active > BUDGET / 2
      this.survived = Infinity
    }
    this.survived = Math.max(LEAST_SURVIVED, Math.min(this.survived, active))
    this.threshold = Math.max(BUDGET, active)
  }

  /**
   * Handles that were made slowly, or while the collector ran, are old before an evaluation: where intermediates of much memory still have
   * some, all are looked at. `remaining` counts those bytes.
   */
  relieveOld(remaining: () => number): void {
    const { references } = this
    if (!references) return
    let bytes = remaining()
    if (bytes >= LARGE_OLD && bytes > 2 * this.shownAlive) {
      this.poll(references, "all")
      bytes = remaining()
    }
    this.shownAlive = Math.max(bytes, this.shownAlive / 2)
  }

  /**
   * True if devices' memory has grown by half of what was allocated under pressure, or as much of the host's was allocated. Otherwise it
   * was given back, by hand or by the engine, and a collection would find little; on a GPU each would cost half as much as the work on 256
   * MB.
   */
  private hasGrown(): boolean {
    const active = activeEverywhere()
    this.base = Math.min(this.base, active)
    const grown = active - this.base + this.uncounted
    if (grown >= this.threshold / 2) return true
    this.pressure = grown
    return false
  }

  /** Collects garbage and frees every storage that no handle can reach. Rarely needed: it happens by itself under pressure. */
  collectGarbage(): void {
    const { references } = this
    if (!references) return
    this.sweepRecent(Infinity)
    for (let round = 0; round < 2; round++) this.poll(references, "all")
    if (this.counting) this.survived = Math.max(LEAST_SURVIVED, this.activeBytes(this.counting))
  }

  /**
   * Keeps an evaluated node's storage as long as the node can be reached, for instance from a pending graph: its
   * reference to the storage passes to a weak reference on the node, or on the anchor of its group.
   */
  private guard(node: Node): void {
    if (!this.references || node.guard !== 0) return
    if ((node.storage as Storage).nbytes > TINY) {
      node.guard = PENDING_GUARD
      this.guarded[this.guardedCount++] = node
      return
    }
    node.guard = GROUPED
    if (this.tiny.add(node)) this.endGroup()
  }

  /** Hands the open group over to a weak reference, and opens another. */
  private endGroup(): void {
    const { tiny } = this
    if (tiny.group.count === 0) return
    this.groups[this.guardedCount] = tiny.group
    this.guarded[this.guardedCount++] = tiny.anchor
    tiny.renew()
  }

  /** Gives every new handle, and every node to be guarded, its weak reference. */
  private flush(references: WeakReferences): void {
    const { fresh } = handles
    const { guarded, guardedCount, groups } = this
    const total = fresh.length + guardedCount
    if (total === 0) return
    references.expect(total)
    for (let i = 0; i < guardedCount; i++) {
      const node = guarded[i]
      guarded[i] = null
      if (node instanceof Anchor) {
        const members = groups[i] as Group
        references.add(node, members)
        this.young += members.count
        groups[i] = null
        continue
      }
      if (node === null || node.guard !== PENDING_GUARD || node.storage === null) continue
      node.guard = references.add(node, node.storage)
    }
    this.guardedCount = 0
    if (fresh.length > 0) {
      for (const handle of fresh) {
        if (handle.ref !== Ref.Fresh) continue
        this.pending.add(handle.node)
        handle.ref = references.add(handle, handle.node)
      }
      fresh.length = 0
    }
    this.young += references.track()
  }

  /** A handle stopped showing a node. */
  private dropHandle(node: Node): void {
    if (--node.handles > 0) return
    if (node.storage === null) this.forgetFormer(node)
    else if (node.uses === 0) this.releaseNode(node)
    else this.guard(node)
  }

  /** Gives back what was kept for a former value that nothing can read any more, and for those before it. */
  private forgetFormer(node: Node): void {
    let former: Node | null = node
    while (former !== null && former.uses === 0 && former.handles === 0 && isFormer(former)) {
      const { inputs }: Node = former
      forgetGraph(former)
      former.undo = null
      forgetUndo(inputs[0])
      former = null
      for (const input of inputs) {
        input.uses--
        if (input.uses > 0 || input.handles > 0) continue
        if (input.storage !== null) this.releaseNode(input)
        else former = input
      }
    }
  }

  /** Finds what died: after a collection of what is young or of all, or, without one, as far as the collector has looked. */
  private poll(references: WeakReferences, collection: Collection): void {
    const start = performance.now()
    const all = collection === "all"
    this.endGroup()
    this.flush(references)
    if (collection !== "none") references.collect(all)
    this.found = 0
    const { cooling } = this
    references.poll(all, this.takeDead)
    const foundFew = this.cooling > cooling / 2
    if (this.found > 0) this.rarity = 1
    else if (collection !== "none") this.rarity = Math.min(LONGEST_WAIT, 2 * this.rarity)
    this.young = 0
    this.manyYoung = MANY_YOUNG
    this.allocated = this.cooling = 0
    this.lastPoll = performance.now()
    if (collection === "none") return
    this.aging = foundFew ? Math.min(LONGEST_WAIT, 2 * this.aging) : 1
    // One that was interrupted says little about the next.
    this.pollCost = Math.min(this.lastPoll - start, this.pollCost === 0 ? Infinity : 2 * this.pollCost)
  }

  private readonly takeDead = (subject: Node | Droppable): void => {
    this.found++
    if (subject instanceof Node) this.dropHandle(subject)
    else if (subject instanceof Storage) this.dropStorage(subject)
    else subject.drop()
  }

  /** Looks at all references where many have become old since the last time. */
  private pollOld(references: WeakReferences): void {
    if (!references.areManyOld()) return
    this.poll(references, "all")
    references.noteLiving()
  }

  /** True if enough time passed since the last poll that another costs nothing to speak of. */
  private mayPay(): boolean {
    const worth = Math.min(1, this.allocated / BYTES_TO_FIND)
    return (performance.now() - this.lastPoll) * worth > POLL_SHARE * this.pollCost * this.rarity
  }

  /** Bytes in use, once all work is done. */
  private activeBytes(backend: Backend): number {
    drain(backend)
    return statsOf(backend).active
  }
}

/** True for memory that the processor's caches may hold. A device has its own. */
const mayBeWarm = (memory: Memory, nbytes: number): boolean =>
  nbytes <= MOST_WARM && memory.host !== undefined

let threads = 0

/** The bytes after which a poll of one millisecond pays for the caches' sake. */
function coldBytes(): number {
  threads ||= process.getBuiltinModule("node:os").availableParallelism()
  return COLD_BYTES * threads
}

/** Bytes in use on the backends that count them; memory that was released may be among them until work is done. */
function activeEverywhere(): number {
  let sum = 0
  for (const backend of listBackends()) if (backend.memory.stats) sum += statsOf(backend).active
  return sum
}

export const lifetimes = new Lifetimes()
