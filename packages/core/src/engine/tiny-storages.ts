/**
 * Storages of a few bytes, given back in groups: one weak reference serves many of them. Which nodes they belong to is memory.ts's to know.
 */
import type { Node } from "../graph/graph"
import type { Memory, Storage } from "../graph/storage"

/** Storages of at most this many bytes share a weak reference: one living array then keeps little more than itself. */
export const TINY = 1024
/** So many nodes share one. */
const GROUP = 32
/**
 * Results of at most this many bytes that are evaluated one by one are parts of one storage: each would take longer to get than to fill.
 */
const MOST_PART = 256
/** Parts begin where blocks do. */
const UNIT = 64

/** The object that tiny nodes that were evaluated one after the other hold on to: while one of them lives, it lives. */
export class Anchor {}

/** Tiny storages that are given back together. It must not refer to the anchor. Groups are used again: see {@link Storage.renew}. */
export class Group {
  /** Its nodes, and the storages that they have of their own or in common. */
  count = 0
  held = 0
  readonly storages = new globalThis.Array<Storage | null>(GROUP).fill(null)

  constructor(private readonly spare: Group[]) {}

  hold(storage: Storage): void {
    this.storages[this.held++] = storage
  }

  /** Gives its storages back. */
  drop(): void {
    for (let i = 0; i < this.held; i++) {
      ;(this.storages[i] as Storage).drop()
      this.storages[i] = null
    }
    this.count = this.held = 0
    this.spare.push(this)
  }
}

/** The group that is being filled, and those without storages. */
export class TinyStorages {
  anchor = new Anchor()
  private readonly spare: Group[] = []
  group = new Group(this.spare)
  /** The storage of which nodes of the group get parts, and where its free bytes begin. */
  private shared: Storage | null = null
  private begin = 0
  /** Nodes evaluated one by one: the first have storages of their own, so that what a short program takes can be told. */
  private alone = 0

  /** Takes a node's storage into the group. Returns true once that is full. */
  add(node: Node): boolean {
    const { group } = this
    group.hold(node.storage as Storage)
    node.anchor = this.anchor
    return ++group.count === GROUP
  }

  /** Bytes for a storage that a node and those evaluated after it share; 0 where it gets one of its own. */
  bytesToShare({ nbytes }: Node): number {
    this.alone++
    return nbytes > MOST_PART || this.group.held > 0 || this.alone <= GROUP ? 0 : GROUP * partOf(nbytes)
  }

  /** Lets the nodes of the group have parts of a storage, which is the group's from now on. */
  open(storage: Storage): void {
    this.group.hold(storage)
    this.shared = storage
    this.begin = 0
  }

  /** Gives no more parts of that storage. */
  close(): void {
    this.shared = null
  }

  /** Gives a node a part of the shared storage. Returns false where there is none for it. */
  place(node: Node, memory: Memory): boolean {
    const { shared, begin } = this
    const { nbytes } = node
    if (shared === null || shared.memory !== memory || begin + nbytes > shared.nbytes) return false
    if (!isOpen(shared, node)) return false
    node.storage = shared
    node.offset = begin / node.dtype.size
    node.anchor = this.anchor
    this.begin = begin + partOf(nbytes)
    this.group.count++
    return true
  }

  get isFull(): boolean {
    return this.group.count === GROUP
  }

  /** Begins another group. */
  renew(): void {
    this.anchor = new Anchor()
    this.group = this.spare.pop() ?? new Group(this.spare)
    this.shared = null
  }
}

const partOf = (nbytes: number): number => Math.ceil(nbytes / UNIT) * UNIT

/** True if more may be written to a storage: nobody else sees it as a whole. */
const isOpen = (storage: Storage, { stream }: Node): boolean =>
  storage.stream === stream &&
  storage.failure === null &&
  storage.copies === null &&
  storage.uses === null &&
  !storage.isExposed
