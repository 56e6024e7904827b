/**
 * Groups: applications that run as one kernel, on backends that say which do. Neighbours in the graph join where the backend takes them
 * together and nothing outside comes between them, and so do applications of one primitive to one operand, such as a layer's products for
 * queries, keys and values.
 */
import {
  type Application,
  applicationOf,
  type Node,
  offsetIn,
  outputsOf,
  type Plans,
  type Primitive,
  stridesIn,
  viewOf,
  type World,
} from "@lazuli/core/engine"
import { isImmediate } from "./identities"
import { exchangesBefore, isLeaf, primitiveOf } from "./order"

/** Applications that run as one kernel, in their order. */
export interface Group {
  readonly members: readonly Application[]
  /** Results that nothing outside reads. */
  readonly inner: ReadonlySet<Node>
}

/** Applications of one kernel at most. */
const MAX_MEMBERS = 24
/** An application looks for siblings among so many readers of an operand. */
const FAR = 16
/** A search for what comes between two groups ends after so many steps; they then stay apart. */
const MAX_LOOKED = 512

/** A row-major array seen in another shape. */
function isReshaped(each: Application): boolean {
  if (!each.primitive.rules.view || each.outputs !== null || isLeaf(each.inputs[0])) return false
  if (each.nbytes !== each.inputs[0].nbytes || each.dtype !== each.inputs[0].dtype) return false
  const layout = viewOf(ROW_MAJOR, each)
  return layout !== null && offsetIn(layout, each) === 0 && stridesIn(layout, each) === null
}

/** A world in which everything lies in order. */
const ROW_MAJOR: World = {
  offsetOf: () => 0,
  stridesOf: () => null,
  bytesOf: ({ nbytes }) => nbytes,
  isSpent: () => false,
}

const isElementwise = (each: Application): boolean => primitiveOf(each).elementwise && !isImmediate(each)
const mayJoin = (each: Application): boolean => !primitiveOf(each).rules.view && !isImmediate(each)

class Grouping {
  private readonly groups = new Map<Application, readonly Application[]>()
  private readonly readers = new Map<Node, Set<Application | null>>()
  private readonly positions: ReadonlyMap<Application, number>

  constructor(
    private readonly order: readonly Application[],
    outputs: readonly Node[],
    private readonly joins: NonNullable<Plans["joins"]>,
  ) {
    this.positions = new Map(order.map((each, i) => [each, i]))
    const note = (node: Node, reader: Application | null): void => {
      const all = this.readers.get(node)
      if (all) all.add(reader)
      else this.readers.set(node, new Set([reader]))
    }
    for (const each of order) for (const input of each.inputs) note(input, each)
    for (const node of outputs) note(node, null)
  }

  /** The groups, and single applications, in an order in which they can run. */
  form(): readonly (Application | Group)[] {
    this.joinNeighbours()
    this.joinSiblings()
    // Siblings that became one group may join what reads them.
    this.joinNeighbours()
    return this.inOrder()
  }

  private joinNeighbours(): void {
    for (const each of this.order) {
      if (!mayJoin(each)) continue
      for (const input of each.inputs) {
        if (isLeaf(input)) continue
        const maker = applicationOf(input)
        if (!this.positions.has(maker)) continue
        if (mayJoin(maker)) this.join(maker, [], each)
        else if (isReshaped(maker)) {
          const source = applicationOf(maker.inputs[0])
          if (this.positions.has(source) && mayJoin(source))
            this.join(source, this.viewsFor(each, source), each)
        }
      }
    }
  }

  /** The views through which an application reads results of a group. */
  private viewsFor(each: Application, source: Application): Application[] {
    const members = this.membersOf(source)
    const views = each.inputs.flatMap((input) => {
      const view = isLeaf(input) ? null : applicationOf(input)
      if (!view || !this.positions.has(view) || !isReshaped(view)) return []
      return members.includes(applicationOf(view.inputs[0])) ? [view] : []
    })
    return [...new Set(views)]
  }

  /** Joins what is still alone with work of its kind on the same operand. */
  private joinSiblings(): void {
    for (const all of this.readers.values()) {
      const alike = new Map<Primitive, Application[]>()
      for (const each of all) {
        if (each === null || !mayJoin(each) || primitiveOf(each).elementwise) continue
        const primitive = primitiveOf(each)
        const siblings = alike.get(primitive)
        if (siblings) siblings.push(each)
        else alike.set(primitive, [each])
      }
      for (const siblings of alike.values())
        siblings.forEach((each, i) => {
          for (const other of siblings.slice(i + 1, i + FAR)) this.joinSibling(this.membersOf(each), other)
        })
    }
  }

  /** Joins groups, or single applications, that each have a sibling of the other's. */
  private joinSibling(members: readonly Application[], other: Application): void {
    const others = this.membersOf(other)
    if (members === others || members.length + others.length > MAX_MEMBERS) return
    const all = [...members, ...others].sort((a, b) => this.positionOf(a) - this.positionOf(b))
    if (!this.joins(all, this.innerOf(all))) return
    if (this.reaches(members, others) || this.reaches(others, members)) return
    for (const each of all) this.groups.set(each, all)
  }

  /** True if `to` waits for `from`, or may do so. */
  private reaches(from: readonly Application[], to: readonly Application[]): boolean {
    const isRead = from.some((each) =>
      outputsOf(each).some((node) => to.some(({ inputs }) => inputs.includes(node))),
    )
    return isRead || this.isReachedOutside(from, to)
  }

  private membersOf(each: Application): readonly Application[] {
    return this.groups.get(each) ?? [each]
  }

  /** Joins an application with one that reads it, through a view of the result where there is one. */
  private join(first: Application, views: readonly Application[], second: Application): void {
    const [before, after] = [this.membersOf(first), this.membersOf(second)]
    if (before === after || before.length + after.length > MAX_MEMBERS) return
    const others = views.filter((view) => !before.includes(view))
    if (others.some((view) => this.groups.has(view))) return
    const members = [...before, ...others, ...after].sort((a, b) => this.positionOf(a) - this.positionOf(b))
    if (members.every(isElementwise) || !this.joins(members, this.innerOf(members))) return
    if (this.isReachedOutside([...before, ...others], after)) return
    for (const each of members) this.groups.set(each, members)
  }

  private positionOf(each: Application): number {
    return this.positions.get(each) as number
  }

  private innerOf(members: readonly Application[]): Set<Node> {
    const inside = new Set<Application | null>(members)
    const inner = new Set<Node>()
    // Views show what they are of: where one leaves, so does that.
    const isInside = (reader: Application | null): boolean =>
      inside.has(reader) && (!reader?.primitive.rules.view || inner.has(reader))
    for (const node of members.flatMap((each) => outputsOf(each)).reverse())
      if ([...(this.readers.get(node) ?? [])].every(isInside)) inner.add(node)
    return inner
  }

  /** True if work that reads `from` has to run before `to`, or that may be so. */
  private isReachedOutside(from: readonly Application[], to: readonly Application[]): boolean {
    const last = this.positionOf(to[to.length - 1])
    // A group goes by its first member.
    const seen = new Set<Application>([from[0]])
    const open = [from]
    for (let members = open.pop(); members !== undefined; members = open.pop())
      for (const node of members.flatMap((each) => outputsOf(each)))
        for (const reader of this.readers.get(node) ?? []) {
          if (reader === null) continue
          const next = this.membersOf(reader)
          if (next[0] === to[0]) {
            if (members !== from) return true
          } else if (from.includes(next[0])) continue
          else if (!seen.has(next[0]) && (next.length > 1 || this.positionOf(reader) < last)) {
            seen.add(next[0])
            if (seen.size > MAX_LOOKED) return true
            open.push(next)
          }
        }
    return false
  }

  /** A group runs where its last member stood, or before the first work that reads it. Groups that wait for each other are none. */
  private inOrder(): readonly (Application | Group)[] {
    const sorted: (Application | Group)[] = []
    const done = new Set<Application>()
    const under = new Set<Application>()
    let isCircular = false
    const before = exchangesBefore(this.order)
    const visit = (members: readonly Application[]): void => {
      if (done.has(members[0]) || isCircular) return
      isCircular = under.has(members[0])
      under.add(members[0])
      for (const each of members) {
        const exchange = before.get(each)
        if (exchange !== undefined) visit(this.membersOf(exchange))
        for (const input of each.inputs) {
          if (isLeaf(input)) continue
          const maker = applicationOf(input)
          if (!done.has(maker) && this.positions.has(maker) && !members.includes(maker))
            visit(this.membersOf(maker))
        }
      }
      for (const each of members) done.add(each)
      sorted.push(members.length > 1 ? { members, inner: this.innerOf(members) } : members[0])
    }
    for (const each of this.order) {
      const members = this.membersOf(each)
      if (each === members[members.length - 1]) visit(members)
    }
    return isCircular ? this.order : sorted
  }
}

/** The work of an order, with groups where a backend joins applications. */
export const grouped = (
  order: readonly Application[],
  outputs: readonly Node[],
  joins: NonNullable<Plans["joins"]>,
): readonly (Application | Group)[] => new Grouping(order, outputs, joins).form()
