/**
 * Communication with other processes ("exchanges"): applications that all processes must evaluate in the same order. Within an evaluation,
 * a compiled function or a transform, that is the order in which the program created them; other work is ordered by sizes and memory, which
 * may differ between processes.
 */

/** The relevant part of a node. graph.ts calls this file and cannot be imported. */
interface Pending {
  readonly storage: object | null
  readonly primitive: object | null
  readonly inputs: readonly Pending[]
  readonly outputs: readonly Pending[] | null
}

/** By application: its sequence number, preceded by those of the applications it was expanded from. */
const orders = new WeakMap<object, readonly number[]>()
/** Applications of which only the derivatives communicate. */
const onlyDerivatives = new WeakSet<object>()
const NO_ORDER: readonly number[] = []
let count = 0
let within = NO_ORDER

/** Set when the first exchange, or the first noted application, is created: other programs incur no cost. */
export const exchanges = { exist: false, areNoted: false }

/** Notes a new application (by its first output) that communicates, or whose derivatives do. */
export function noteExchange(application: object, which: true | "derivatives" = true): void {
  exchanges.areNoted = true
  if (which === true) exchanges.exist = true
  else onlyDerivatives.add(application)
  orders.set(application, [...within, ++count])
}

/** True if an application communicates, itself or within a compiled function. */
export const isExchange = (application: object): boolean =>
  exchanges.exist && orders.has(application) && !onlyDerivatives.has(application)

/** True if only the derivatives of an application communicate. */
export const hasExchangingDerivatives = (application: object): boolean =>
  exchanges.areNoted && onlyDerivatives.has(application)

/** Runs `body`, which expands an application: exchanges created in it are ordered as part of the application. */
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

/** An application comes after those it was expanded into. */
function compare(a: readonly number[], b: readonly number[]): number {
  for (let i = 0; ; i++) {
    if (i === a.length || i === b.length) return b.length - a.length
    if (a[i] !== b[i]) return a[i] - b[i]
  }
}

/** The noted ones among some applications, in the required order; null if they already are in order. */
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

/** The noted ones among some applications, in the required order. */
function exchangesIn<A extends object>(applications: readonly A[]): A[] {
  const orderOf = (each: A): readonly number[] => orders.get(each) as readonly number[]
  return applications.filter((each) => orders.has(each)).sort((a, b) => compare(orderOf(a), orderOf(b)))
}

interface Sized {
  readonly inputs: readonly Sized[]
  readonly outputs: readonly Sized[] | null
  readonly nbytes: number
}
const bytesOf = (nodes: readonly Sized[]): number => nodes.reduce((sum, { nbytes }) => sum + nbytes, 0)

/**
 * An order in which exchanges that take more memory than they read, such as gathered parameters, come late: before the first reader of
 * those before them, beside whose work they can run. All exchanges stay in the same order, so gathers that follow gradients' exchanges do
 * not pass them. `needs` are the nodes that an application comes after; views go with their readers.
 */
export function gatheredLate<A extends Sized>(
  order: readonly A[],
  needs: (application: A) => readonly Sized[],
  isView: (application: A) => boolean,
): A[] {
  const needed = order.map((each) => needs(each).map((node) => node.outputs?.[0] ?? node))
  /** Those that move. */
  const late = new Set<Sized>()
  order.forEach((each, i) => {
    const moves = isExchange(each)
      ? bytesOf(each.outputs ?? [each]) > bytesOf(each.inputs)
      : isView(each) && needed[i].some((application) => late.has(application))
    if (moves) late.add(each)
  })
  /** By position in the order, the position before which an application goes. */
  const places = order.map((_, i) => i)
  /** Calls `place` from the end on, with the place of an application's first reader, if it has one. */
  const backwards = (place: (i: number, reader: number | undefined) => void): void => {
    const readers = new Map<Sized, number>()
    for (let i = order.length - 1; i >= 0; i--) {
      place(i, readers.get(order[i]))
      for (const each of needed[i]) readers.set(each, Math.min(places[i], readers.get(each) ?? places[i]))
    }
  }
  let next = order.length
  backwards((i, reader) => {
    if (late.has(order[i])) places[i] = reader ?? i
    if (isExchange(order[i])) next = places[i] = Math.min(places[i], next)
  })
  // Those before one reader, such as a layer's parameters, go together before the reader of the ones before them.
  let [before, here] = [-1, -1]
  order.forEach((each, i) => {
    if (!isExchange(each) || !late.has(each)) return
    if (places[i] !== here) [before, here] = [here, places[i]]
    if (before >= 0) places[i] = Math.max(i, before)
  })
  backwards((i, reader) => {
    if (late.has(order[i]) && !isExchange(order[i])) places[i] = reader ?? i
  })
  return order
    .map((each, i) => ({ each, place: places[i], stays: Number(places[i] === i) }))
    .sort((a, b) => a.place - b.place || a.stays - b.stays)
    .map(({ each }) => each)
}

/** The nodes that do not depend on a pending exchange: those that may be evaluated at a time that differs between processes. */
export function withoutExchanges<N extends Pending>(nodes: readonly N[]): N[] {
  if (!exchanges.exist) return [...nodes]
  /** True if an application is, or depends on, an exchange. */
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
