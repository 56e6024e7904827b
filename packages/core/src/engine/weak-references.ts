/**
 * Numbered weak references, as a backend offers them, and what each is there for. When to look at them is memory.ts's to decide.
 */
import type { Node } from "../graph/graph"
import type { Tracker } from "../graph/storage"

/** A resource to give back once an object is gone. It must not refer to the object. */
export interface Droppable {
  drop(): void
}

/**
 * The subject of a weak reference: a handle's node, the storage that a guarded node keeps, a group's storages, or what was to be dropped
 * with an object.
 */
export type Subject = Node | Droppable

/** Lists of objects that are longer are let go of rather than used again. */
const MANY = 16384
/** References that walks of the young pass over may be dead too: with so many more than were alive, all are looked at. */
const MANY_OLD = 256

export class WeakReferences {
  /** By number. The first is no reference's. */
  private readonly subjects: (Subject | null)[] = [null]
  private readonly free: number[] = []
  /** Objects that get their references together, and the numbers of these. */
  private objects: (object | null)[] = []
  private ids = new Int32Array(1024)
  private count = 0
  /** The number of the reference to an object that nothing else knows: once it is gone, the collector has run since the last poll. */
  private canary = 0
  private livingAtMost = MANY_OLD

  constructor(private readonly tracker: Tracker) {}

  /** True if there never was a reference. */
  get isUnused(): boolean {
    return this.subjects.length === 1
  }

  /** Makes room in the list for so many. */
  expect(count: number): void {
    if (this.ids.length < count) this.ids = new Int32Array(count * 2)
  }

  /** Puts an object on the list of those that get a reference. Returns its number. */
  add(object: object, subject: Subject): number {
    const id = this.newId(subject)
    this.ids[this.count] = id
    this.objects[this.count++] = object
    return id
  }

  /** Gives the objects on the list their references. Returns how many there were. */
  track(): number {
    const { count, objects } = this
    if (count === 0) return 0
    this.tracker.track(objects as object[], count, this.ids)
    objects.fill(null, 0, count)
    if (objects.length > MANY) this.objects = []
    this.count = 0
    return count
  }

  /** Gives one object its reference at once. */
  trackOne(object: object, subject: Subject | null): number {
    const id = this.newId(subject)
    this.ids[0] = id
    this.tracker.track([object], 1, this.ids)
    return id
  }

  /** Lets a reference be there for something else. */
  move(id: number, subject: Subject): void {
    this.subjects[id] = subject
  }

  /** Forgets a reference whose object may live. */
  drop(id: number): void {
    this.tracker.untrack(id)
    this.forget(id)
  }

  some(isWanted: (subject: Subject | null) => boolean): boolean {
    return this.subjects.some(isWanted)
  }
  filter(isWanted: (subject: Subject | null) => boolean): (Subject | null)[] {
    return this.subjects.filter(isWanted)
  }

  /** Runs the collector, for what is young or for all. */
  collect(all: boolean): void {
    this.tracker.collect(all)
  }

  /** Forgets the references whose objects are gone, and gives `take` what they were there for. */
  poll(all: boolean, take: (subject: Subject) => void): void {
    const dead = this.tracker.poll(all)
    const count = dead.length
    for (let i = 0; i < count; i++) {
      const id = dead[i]
      const subject = this.subjects[id]
      if (id === this.canary) this.canary = 0
      this.forget(id)
      if (subject !== null) take(subject)
    }
    if (this.canary > 0) this.drop(this.canary)
    this.canary = this.trackOne({}, null)
  }

  /** True if the collector has run by itself since the last poll: what died then is found without running it again. */
  wasCollected(): boolean {
    return this.canary > 0 && this.tracker.isAlive?.(this.canary) === false
  }

  /** True if many have become old since {@link noteLiving}. */
  areManyOld(): boolean {
    return this.living > this.livingAtMost
  }

  /** Remembers how many are alive, after a poll of all. */
  noteLiving(): void {
    this.livingAtMost = 2 * this.living + MANY_OLD
  }

  private get living(): number {
    return this.subjects.length - this.free.length
  }

  private newId(subject: Subject | null): number {
    const id = this.free.pop() ?? this.subjects.length
    this.subjects[id] = subject
    return id
  }

  private forget(id: number): void {
    this.subjects[id] = null
    this.free.push(id)
  }
}
