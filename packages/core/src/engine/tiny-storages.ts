/**
 * Storages of a few bytes, given back in groups: one weak reference serves many of them. Which nodes they belong to is memory.ts's to know.
 */
import type { Node } from "../graph/graph"
import type { Storage } from "../graph/storage"

/** Storages of at most this many bytes share a weak reference: one living array then keeps little more than itself. */
export const TINY = 1024
/** So many share one. */
const GROUP = 32

/** The object that tiny nodes that were evaluated one after the other hold on to: while one of them lives, it lives. */
export class Anchor {}

/** Tiny storages that are given back together. It must not refer to the anchor. Groups are used again: see {@link Storage.renew}. */
export class Group {
  count = 0
  readonly storages = new globalThis.Array<Storage | null>(GROUP).fill(null)

  constructor(private readonly spare: Group[]) {}

  /** Gives its storages back. */
  drop(): void {
    for (let i = 0; i < this.count; i++) {
      ;(this.storages[i] as Storage).drop()
      this.storages[i] = null
    }
    this.count = 0
    this.spare.push(this)
  }
}

/** The group that is being filled, and those without storages. */
export class TinyStorages {
  anchor = new Anchor()
  private readonly spare: Group[] = []
  group = new Group(this.spare)

  /** Takes a node's storage into the group. Returns true once that is full. */
  add(node: Node): boolean {
    const { group } = this
    group.storages[group.count++] = node.storage
    node.anchor = this.anchor
    return group.count === GROUP
  }

  /** Begins another group. */
  renew(): void {
    this.anchor = new Anchor()
    this.group = this.spare.pop() ?? new Group(this.spare)
  }
}
