/**
 * Exchanges with other processes: applications that several processes must evaluate in one order. Within an evaluation, a compiled function
 * or a transform, that is the order in which the program made them, which is the same in all of them: sizes and memory, by which other work
 * is ordered, may differ.
 */

/** A node, as far as it matters here: graph.ts notes exchanges, and is not imported. */
interface Pending {
  readonly storage: object | null
  readonly primitive: object | null
  readonly inputs: readonly Pending[]
  readonly outputs: readonly Pending[] | null
}

/** By application: its number, behind those of the applications in whose place it was made. */
const orders = new WeakMap<object, readonly number[]>()
/** Those of which only derivatives exchange something. */
const silent = new WeakSet<object>()
const NOBODY: readonly number[] = []
let count = 0
let within = NOBODY

/** Exchanges exist once there was one, and applications are noted once one was: other programs pay for nothing here. */
export const exchanges = { exist: false, areNoted: false }

/** Notes an application, by the first of its outputs, that has just been made: one that exchanges something, or whose derivatives do. */
export function noteExchange(application: object, which: true | "derivatives" = true): void {
  exchanges.areNoted = true
  if (which === true) exchanges.exist = true
  else silent.add(application)
  orders.set(application, [...within, ++count])
}

/** True of an application that exchanges something, itself or within a compiled function. */
export const isExchange = (application: object): boolean =>
  exchanges.exist && orders.has(application) && !silent.has(application)

/** True of an application whose derivatives exchange something, though it does not itself. */
export const hasExchangingDerivatives = (application: object): boolean =>
  exchanges.areNoted && silent.has(application)

/** Runs `body`, whose exchanges are those of an application. */
export function inPlaceOf<T>(application: object, body: () => T): T {
  const order = exchanges.areNoted ? orders.get(application) : undefined
  if (order === undefined) return body()
  const outer = within
  within = order
  try {
    return body()
  } finally {
    within = outer
  }
}

/** Applications come behind those that were made in their place. */
function compare(a: readonly number[], b: readonly number[]): number {
  for (let i = 0; ; i++) {
    if (i === a.length || i === b.length) return b.length - a.length
    if (a[i] !== b[i]) return a[i] - b[i]
  }
}

/** The noted ones among some applications, as they are to follow each other; null where they do already. */
export function exchangesOutOfOrder<A extends object>(applications: readonly A[]): A[] | null {
  if (!exchanges.areNoted) return null
  let last: readonly number[] | null = null
  let isSorted = true
  for (const each of applications) {
    const order = orders.get(each)
    if (order === undefined) continue
    if (last !== null && compare(last, order) > 0) isSorted = false
    last = order
  }
  return isSorted ? null : exchangesIn(applications)
}

/** The noted ones among some applications, as they are to follow each other. */
function exchangesIn<A extends object>(applications: readonly A[]): A[] {
  const orderOf = (each: A): readonly number[] => orders.get(each) as readonly number[]
  return applications.filter((each) => orders.has(each)).sort((a, b) => compare(orderOf(a), orderOf(b)))
}

/** Nodes behind which no exchange is pending: what may be evaluated at a moment that processes do not share. */
export function withoutExchanges<N extends Pending>(nodes: readonly N[]): N[] {
  if (!exchanges.exist) return [...nodes]
  /** True if something behind it, or itself, is an exchange. */
  const known = new Map<Pending, boolean>()
  const applicationOf = (node: Pending): Pending => (node.outputs === null ? node : node.outputs[0])
  const isPending = (node: Pending): boolean => node.storage === null && node.primitive !== null
  const frameOf = (node: Pending) => ({ node, next: 0, reaches: isExchange(node) })
  const look = (root: Pending): boolean => {
    const stack = [frameOf(root)]
    for (let top = stack.at(-1); top !== undefined; top = stack.at(-1)) {
      const { inputs } = top.node
      if (top.reaches || top.next === inputs.length) {
        known.set(top.node, top.reaches)
        stack.pop()
        continue
      }
      const input = inputs[top.next]
      const application = applicationOf(input)
      const answer = isPending(input) ? known.get(application) : false
      if (answer === undefined) stack.push(frameOf(application))
      else {
        top.reaches = answer
        top.next++
      }
    }
    return known.get(root) === true
  }
  const reaches = (node: Pending): boolean => known.get(applicationOf(node)) ?? look(applicationOf(node))
  return nodes.filter((node) => !isPending(node) || !reaches(node))
}
