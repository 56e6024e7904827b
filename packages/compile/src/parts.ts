/**
 * Parts of a traced graph whose operations name streams: what runs on one stream without waiting for another in between. A part reads what
 * earlier parts made, so each can be planned and run by the backend of its own device.
 */
import { applicationOf, type Node, outputsOf, type Stream } from "@lazuli/core/engine"
import { isImmediate } from "./identities"
import { inOrder, isLeaf } from "./order"

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

/** The parts of a graph, each after those that it reads. */
export function partsOf(outputs: readonly Node[]): Part[] {
  const order = inOrder(outputs, isLeaf).filter((application) => !isImmediate(application))
  // The greatest number of changes of stream before an application: parts of one number do not read each other.
  const changes = new Map<Node, number>()
  const parts: Map<Stream, Set<Node>>[] = []
  for (const application of order) {
    let most = 0
    for (const input of application.inputs) {
      const before = changes.get(applicationOf(input))
      if (before !== undefined)
        most = Math.max(most, applicationOf(input).stream === application.stream ? before : before + 1)
    }
    changes.set(application, most)
    parts[most] ??= new Map()
    const members = parts[most].get(application.stream)
    if (members) members.add(application)
    else parts[most].set(application.stream, new Set([application]))
  }
  const wanted = new Set(outputs)
  const partOf = new Map(
    parts.flatMap((level) => [...level.values()].flatMap((members) => [...members].map((m) => [m, members]))),
  ) as Map<Node, Set<Node>>
  for (const application of order)
    for (const input of application.inputs)
      if (partOf.get(applicationOf(input)) !== partOf.get(application)) wanted.add(input)
  return parts.flatMap((level) =>
    [...level].map(([stream, members]) => {
      const read = [...members].flatMap(({ inputs }) => inputs)
      const outside = read.filter((input) => !members.has(applicationOf(input)) && !isImmediate(input))
      const made = [...members].flatMap(outputsOf).filter((node) => wanted.has(node))
      return { stream, inputs: [...new Set(outside)], outputs: made }
    }),
  )
}
