/**
 * Parts of a traced graph whose operations name streams: what runs on one stream without waiting for another in between. A part reads what
 * earlier parts made, so each can be planned and run by the backend of its own device.
 */
import {
  type Application,
  applicationOf,
  type Layout,
  type Node,
  outputsOf,
  type Stream,
} from "@lazuli/core/engine"
import { isImmediate } from "./identities"
import { exchangesBefore, inOrder, isLeaf } from "./order"
import { isView, layoutOf, ROW_MAJOR } from "./views"

/** Some applications of a graph, as what they read and what others, or the caller, read of them. */
export interface Part {
  readonly stream: Stream
  readonly inputs: readonly Node[]
  readonly outputs: readonly Node[]
}

/** The streams of a graph's applications; constants belong to whoever reads them. */
export function streamsOf(outputs: readonly Node[]): Set<Stream> {
  const work = inOrder(outputs, isLeaf).filter((application) => !isImmediate(application))
  return new Set(work.map(({ stream }) => stream))
}

/** A part is closed when another stream reads so many bytes of it: what follows runs meanwhile, as a part of its own. */
const WORTH_CLOSING = 64 * 1024

/** A part as it grows. */
interface OpenPart {
  readonly at: number
  readonly stream: Stream
  readonly members: Set<Application>
  /** By stream, the last part that has run before this one begins. */
  readonly awaited: ReadonlyMap<Stream, number>
  isClosed: boolean
}

/** The arrays that an application waits for: what it reads, and where it is an exchange the one before it. */
function awaitedBy(application: Application, before: ReadonlyMap<Application, Application>): readonly Node[] {
  const exchange = before.get(application)
  return exchange === undefined ? application.inputs : [...application.inputs, exchange]
}

/** The parts of a graph, each after those that it reads. */
export function partsOf(outputs: readonly Node[]): Part[] {
  const needed = inOrder(outputs, isLeaf).filter((application) => !isImmediate(application))
  const before = exchangesBefore(needed)
  const order = byRoundTrips(needed, before)
  const parts: OpenPart[] = []
  const partOf = new Map<Node, OpenPart>()
  for (const application of order) {
    const read = awaitedBy(application, before).flatMap((input) => partOf.get(applicationOf(input)) ?? [])
    const part = partFor(application.stream, read, parts)
    part.members.add(application)
    partOf.set(application, part)
    for (const input of application.inputs) {
      const source = partOf.get(applicationOf(input))
      if (source && source.stream !== part.stream && input.nbytes >= WORTH_CLOSING) source.isClosed = true
    }
  }
  const sources = sourcesOf(order, outputs, (a, b) => partOf.get(applicationOf(a)) === partOf.get(b))
  const readBy = (application: Application): Node[] =>
    application.inputs.map((input) =>
      partOf.get(applicationOf(input)) === partOf.get(application) ? input : (sources.get(input) as Node),
    )
  const wanted = new Set(outputs)
  for (const application of order)
    for (const input of readBy(application))
      if (partOf.get(applicationOf(input)) !== partOf.get(application)) wanted.add(input)
  const made = parts.map(({ stream, members }) => {
    const inputs = [...members].flatMap(readBy)
    const outside = inputs.filter(
      (input) => partOf.get(applicationOf(input))?.members !== members && !isImmediate(input),
    )
    // Inputs in the order in which they are made, so that parts come to their streams in it.
    const at = (input: Node): number => partOf.get(applicationOf(input))?.at ?? -1
    return {
      stream,
      inputs: [...new Set(outside)].sort((a, b) => at(a) - at(b)),
      outputs: [...members].flatMap(outputsOf).filter((node) => wanted.has(node)),
    }
  })
  // Some have nothing but views.
  return made.filter((part) => part.outputs.length > 0)
}

/**
 * By the array that another part reads, the array that crosses for it. Of a view that is what it shows, since a part would give a copy of
 * it; but no array crosses for views of less than half of it.
 */
function sourcesOf(
  order: readonly Application[],
  outputs: readonly Node[],
  isTogether: (input: Node, application: Application) => boolean,
): Map<Node, Node> {
  const candidates = new Map<Node, readonly Node[]>()
  const bytesRead = new Map(outputs.map((node) => [node, node.nbytes]))
  const counted = new Set<Node>()
  for (const application of order)
    for (const input of application.inputs) {
      if (candidates.has(input) || isTogether(input, application)) continue
      const shown = shownBy(input)
      candidates.set(input, shown)
      const least = shown.reduce((a, b) => (b.nbytes < a.nbytes ? b : a))
      if (counted.has(least)) continue
      counted.add(least)
      for (const node of shown) bytesRead.set(node, (bytesRead.get(node) ?? 0) + least.nbytes)
    }
  // A leaf is there already, however little of it is read.
  const crosses = (node: Node): boolean => isLeaf(node) || 2 * (bytesRead.get(node) ?? 0) >= node.nbytes
  return new Map([...candidates].map(([input, shown]) => [input, shown.find(crosses) as Node]))
}

/** An array, after those that it is a view of. One that has to be a copy is a view of none. */
function shownBy(input: Node): Node[] {
  const chain = [input]
  for (let view = input; isView(view); view = view.inputs[0]) chain.push(view.inputs[0])
  let shown: Node[] = []
  let layout: Layout | null | undefined
  for (const node of chain.reverse()) {
    layout = layout && layoutOf(node, layout)
    if (!layout) {
      shown = []
      layout = ROW_MAJOR
    }
    shown.push(node)
  }
  return shown
}

/** The first part of a stream that waits for all that is read, behind which the stream has nothing of that; or a new one. */
function partFor(stream: Stream, read: readonly OpenPart[], parts: OpenPart[]): OpenPart {
  let least = 0
  for (const source of read) if (source.stream === stream) least = Math.max(least, source.at)
  const isAwaited = ({ awaited }: OpenPart): boolean =>
    read.every((source) => source.stream === stream || (awaited.get(source.stream) ?? -1) >= source.at)
  let last: OpenPart | undefined
  for (let i = parts.length - 1; i >= 0 && last === undefined; i--)
    if (parts[i].stream === stream) last = parts[i]
  for (let i = least; i < parts.length; i++)
    if (parts[i].stream === stream && !parts[i].isClosed && isAwaited(parts[i])) return parts[i]
  const awaited = new Map(last?.awaited)
  for (const source of read)
    if (source.stream !== stream)
      awaited.set(source.stream, Math.max(awaited.get(source.stream) ?? -1, source.at))
  const part = { at: parts.length, stream, members: new Set<Application>(), awaited, isClosed: false }
  parts.push(part)
  return part
}

/**
 * The applications by how often what they read went to another stream and back: an update with averages that another stream makes comes
 * after the rest of the backward pass, which waits for none.
 */
function byRoundTrips(
  order: readonly Application[],
  before: ReadonlyMap<Application, Application>,
): Application[] {
  const changes = new Map<Node, number>()
  for (const application of order) {
    let most = 0
    for (const input of awaitedBy(application, before)) {
      const source = applicationOf(input)
      const its = changes.get(source)
      if (its !== undefined) most = Math.max(most, source.stream === application.stream ? its : its + 1)
    }
    changes.set(application, most)
  }
  const roundTripsOf = (application: Application): number => (changes.get(application) as number) >> 1
  return [...order].sort((a, b) => roundTripsOf(a) - roundTripsOf(b))
}
