/**
 * The order of a traced graph's work: as it is needed, except that whatever lets go of more memory than it takes runs as soon as it can.
 * In a training step, a weight's gradient and the weight's update then follow what they read, instead of keeping it for the end. Exchanges
 * with other processes come in an order that is the same in all of them.
 */
import { type Application, applicationOf, type Node, outputsOf } from "@lazuli/core/engine"
import { exchangesBefore, exchangesEarly, inOrder, isLeaf, isView } from "./order"

/** Applications that take memory, what they read of others' memory, and who still has to read it. */
class Work {
  /** Readers of a node's memory, itself or through views, that have not run. */
  private readonly waiting = new Map<Node, Set<Application>>()
  private readonly reads = new Map<Node, readonly Node[]>()
  private readonly missing = new Map<Node, number>()
  private readonly pinned: ReadonlySet<Node>
  readonly done = new Set<Node>()
  private readonly next = new Map<Application, Application>()

  /** `replaced` has inputs by the outputs that take their place. `beside` are exchanges that run beside other work. */
  constructor(
    applications: readonly Application[],
    outputs: readonly Node[],
    private readonly replaced: ReadonlyMap<Node, Node>,
    private readonly beside: ReadonlySet<Node>,
    after: ReadonlyMap<Application, Application>,
  ) {
    const inputs = new Set(replaced.values())
    this.pinned = new Set([...inputs, ...outputs.map((node) => this.ownerOf(node))])
    for (const application of applications) {
      const owners = [...new Set(application.inputs.flatMap((node) => this.ownersOf(node)))].filter(
        (n) => !isLeaf(n) || inputs.has(n),
      )
      this.reads.set(application, owners)
      const awaited = new Set(owners.filter((n) => !isLeaf(n)).map(applicationOf))
      const before = after.get(application)
      if (before !== undefined) {
        awaited.add(before)
        this.next.set(before, application)
      }
      this.missing.set(application, awaited.size)
      for (const owner of owners) this.readersOf(owner).add(application)
    }
  }

  /** The node whose memory a node shows. */
  private ownerOf(node: Node): Node {
    let owner = node
    while (!isLeaf(owner) && isView(applicationOf(owner))) owner = owner.inputs[0]
    return owner
  }
  /** The same, and of a view that waits for more the nodes whose memory that is. */
  private ownersOf(node: Node): Node[] {
    if (isLeaf(node) || !isView(applicationOf(node))) return [node]
    return node.inputs.flatMap((input) => this.ownersOf(input))
  }
  private readersOf(owner: Node): Set<Application> {
    let readers = this.waiting.get(owner)
    if (!readers) this.waiting.set(owner, (readers = new Set()))
    return readers
  }

  /** Bytes that running it now lets go of, less those that it takes. What leaves the graph has its own memory all along. */
  gain(application: Application): number {
    let bytes = 0
    for (const owner of this.reads.get(application) ?? [])
      if (this.readersOf(owner).size === 1 && !this.pinned.has(owner)) bytes += owner.nbytes
    for (const node of outputsOf(application)) if (!this.pinned.has(node)) bytes -= node.nbytes
    return bytes
  }

  /** True if it lets go of memory, and would not wait for an exchange that other work could run beside. */
  pays(application: Application): boolean {
    if (this.gain(application) <= 0) return false
    return !this.reads.get(application)?.some((owner) => this.beside.has(applicationOf(owner)))
  }

  isReady(application: Application): boolean {
    return (
      !this.done.has(application) && this.missing.get(application) === 0 && this.endsReplaced(application)
    )
  }

  /** True if nothing else still reads the inputs whose place an application's results take: it can then write over them. */
  private endsReplaced(application: Application): boolean {
    for (const node of outputsOf(application)) {
      const input = this.replaced.get(node)
      if (input === undefined) continue
      for (const reader of this.readersOf(input)) if (reader !== application) return false
    }
    return true
  }

  /** Notes that an application ran; gives those that may have become worth running. */
  end(application: Application): Application[] {
    this.done.add(application)
    const touched: Application[] = []
    const unblocked = new Set<Application>()
    for (const node of outputsOf(application))
      for (const reader of this.readersOf(node)) unblocked.add(reader)
    const next = this.next.get(application)
    if (next !== undefined) unblocked.add(next)
    for (const reader of unblocked) this.missing.set(reader, (this.missing.get(reader) as number) - 1)
    touched.push(...unblocked)
    for (const owner of this.reads.get(application) ?? []) {
      const readers = this.readersOf(owner)
      readers.delete(application)
      if (readers.size === 1) touched.push(...readers)
    }
    return touched
  }
}

/**
 * Outputs by the last exchange that each waits for: while the last ones run beside other work, what reads the first ones does too.
 */
function byExchange(
  outputs: readonly Node[],
  order: readonly Application[],
  exchanges: ReadonlySet<Node>,
): readonly Node[] {
  const last = new Map<Node, number>()
  const lastOf = (node: Node): number => (isLeaf(node) ? 0 : (last.get(applicationOf(node)) as number))
  let count = 0
  for (const each of order)
    last.set(each, exchanges.has(each) ? ++count : Math.max(0, ...each.inputs.map(lastOf)))
  return [...outputs].sort((a, b) => lastOf(a) - lastOf(b))
}

/**
 * The applications that the outputs need, in the order in which they run; views stand before their first reader. What gives an output that
 * takes the place of an input waits for the input's other readers. Exchanges keep their own order, whatever they let go of: sizes, in which
 * processes may differ, do not count. `isBeside` says which of them run beside other work.
 */
export function planOrder(
  outputs: readonly Node[],
  replaced: ReadonlyMap<Node, Node> = new Map(),
  isBeside: (application: Application) => boolean = () => false,
): Application[] {
  const asGiven = inOrder(outputs, isLeaf)
  const beside = new Set(asGiven.filter(isBeside))
  const needed =
    beside.size === 0 ? asGiven : exchangesEarly(asGiven, byExchange(outputs, asGiven, beside), isLeaf)
  const applications = needed.filter((application) => !isView(application))
  const work = new Work(applications, outputs, replaced, beside, exchangesBefore(applications))
  const order: Application[] = []
  const shown = new Set<Node>()
  const show = (node: Node): void => {
    const views: Application[] = []
    for (let at = node; !isLeaf(at) && !shown.has(at); at = at.inputs[0]) {
      const view = applicationOf(at)
      if (!isView(view)) break
      views.push(view)
    }
    for (const view of views.reverse()) {
      shown.add(view)
      order.push(view)
    }
  }
  const run = (application: Application): Application[] => {
    for (const input of application.inputs) show(input)
    order.push(application)
    return work.end(application)
  }
  for (const next of applications) {
    if (work.done.has(next)) continue
    let candidates = run(next)
    while (candidates.length > 0) {
      const more: Application[] = []
      for (const application of candidates)
        if (work.isReady(application) && work.pays(application)) more.push(...run(application))
      candidates = more
    }
  }
  for (const node of outputs) show(node)
  return order
}
