/**
 * Exchanges with other processes that a plan keeps though nothing in it reads their results: those that an application of several results
 * was decomposed into. A process that does not compile runs all of them.
 */
import { applyNodes, definePrimitive, type Node } from "@lazuli/core/engine"

/** The first input, once the others are there. */
const kept = definePrimitive({
  name: "@lazuli/compile/kept",
  infer: ([x]) => x,
  view: ({ offset, strides }) => ({ offset, strides }),
})

/** The parts of which some are read, so that whoever reads them needs the others too. */
export function keepingAll(parts: readonly Node[], isRead: (part: number) => boolean): readonly Node[] {
  const unread = parts.filter((_, i) => !isRead(i))
  const reader = parts.findIndex((_, i) => isRead(i))
  if (unread.length === 0 || reader < 0) return parts
  const [through] = applyNodes(kept.primitive, [parts[reader], ...unread], {})
  return parts.map((part, i) => (i === reader ? through : part))
}
