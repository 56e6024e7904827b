/**
 * Nodes that are cheaper computed again than kept: a cast, a comparison or a little arithmetic on what is in memory anyway costs less in
 * every pass that needs it than one pass costs that writes it and others that read it.
 */
import { type Node, programOf, sizeOf } from "@lazuli/core/engine"
import { isImmediate } from "./identities"
import { isLeaf } from "./order"

/** Operations of about one instruction. */
const CHEAP: ReadonlySet<string> = new Set([
  "constant",
  "cast",
  "add",
  "subtract",
  "multiply",
  "negative",
  "abs",
  "maximum",
  "minimum",
  "select",
  "equal",
  "notEqual",
  "less",
  "lessEqual",
  "greater",
  "greaterEqual",
])
/** So many of them in a row are computed again, constants aside. */
const MAX_REPEATED = 4
/** Less than this stays in a cache between the passes. */
const MIN_BYTES = 1 << 18

/** Finds the nodes of a simplified graph that every reader computes for itself, with the number of operations that takes from memory. */
export function repeatable(
  order: readonly Node[],
  consumers: ReadonlyMap<Node, readonly Node[]>,
  wanted: ReadonlySet<Node>,
  isElementwise: (node: Node) => boolean,
  source: (input: Node) => Node,
): ReadonlyMap<Node, number> {
  const found = new Map<Node, number>()
  for (const node of order) {
    if (!isElementwise(node) || wanted.has(node)) continue
    const bytes = node.nbytes
    if (bytes < MIN_BYTES) continue
    const readers = consumers.get(node) ?? []
    if (!readers.every((reader) => readsAlike(reader, node, isElementwise))) continue
    const price = priceOf(node, bytes, found, isElementwise, source)
    if (price !== null && price <= MAX_REPEATED) found.set(node, price)
  }
  return found
}

const readsAlike = (reader: Node, node: Node, isElementwise: (node: Node) => boolean): boolean =>
  isElementwise(reader) && sizeOf(reader.shape) === sizeOf(node.shape)

/** The operations that make a node of what is in memory; null where they are dear, or read more than the node would take. */
function priceOf(
  node: Node,
  bytes: number,
  found: ReadonlyMap<Node, number>,
  isElementwise: (node: Node) => boolean,
  source: (input: Node) => Node,
): number | null {
  const { code } = programOf(node)
  if (!code.every(({ op }) => CHEAP.has(op))) return null
  let price = code.filter(({ op }) => op !== "constant").length
  let reads = 0
  for (const input of new Set(node.inputs.map(source))) {
    if (isImmediate(input)) continue
    const repeated = found.get(input)
    if (repeated !== undefined) price += repeated
    // A result of another pass would have to leave it.
    else if (!isLeaf(input) && isElementwise(input) && sizeOf(input.shape) === sizeOf(node.shape)) return null
    reads += input.nbytes
  }
  // Another row or column is not much.
  return reads <= 1.125 * bytes ? price : null
}
