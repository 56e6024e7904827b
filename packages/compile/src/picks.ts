/**
 * One position of each row, by value: an element is picked before the elementwise work that makes its row, and a row that is zero but for
 * one element is elementwise work. Neither then needs the rows in memory.
 */
import { arange, broadcastTo, int32, where } from "@lazuli/core"
import { type Application, Array, applyNodes, type Node, sameShape, sizeOf } from "@lazuli/core/engine"
import { elementOf, isImmediate } from "./identities"
import { isLeaf, primitiveOf } from "./order"
import { reapply } from "./rebuild"

/** Rows of fewer bytes cost less than the work that replaces them, unless that saves launches of kernels. */
const MIN_BYTES = 4 << 20

/**
 * The same for an application that reads or writes one position along an axis; null where there is nothing to gain. `launches` tells that
 * each piece of work is a kernel that is launched.
 */
export function onePosition(
  application: Application,
  inputs: readonly Node[],
  launches: boolean,
): Node | null {
  const { primitive, params } = application
  if (!primitive.facts.along) return null
  const axis = params.axis as number
  const [x, index] = inputs
  if (index.shape[axis] !== 1) return null
  const isLarge = x.nbytes >= MIN_BYTES
  if (inputs.length > 2) return isLarge || launches ? onlyAt(inputs, axis, launches) : null
  return isLarge ? pickedBefore(application, x, index, axis) : null
}

/** The element of elementwise work on one array of rows and on what each row has once. */
function pickedBefore(application: Application, x: Node, index: Node, axis: number): Node | null {
  if (isLeaf(x) || !primitiveOf(x).elementwise || x.outputs !== null) return null
  const isWhole = (each: Node): boolean => sameShape(each.shape, x.shape)
  if (x.inputs.filter(isWhole).length !== 1) return null
  const servesRow = (each: Node): boolean =>
    isImmediate(each) ||
    sizeOf(each.shape) === 1 ||
    (each.shape.length === x.shape.length && each.shape[axis] === 1)
  if (!x.inputs.every((each) => isWhole(each) || servesRow(each))) return null
  const parts = x.inputs.map((each) =>
    isWhole(each) ? applyNodes(application.primitive, [each, index], application.params)[0] : each,
  )
  return reapply(x as Application, parts)[0]
}

/** Zeros with a value at one position of each row; `together`: every step for each element, so that all are one piece of work. */
function onlyAt([x, index, value]: readonly Node[], axis: number, together: boolean): Node | null {
  if (elementOf(x)?.params.value !== 0) return null
  const n = x.shape[axis]
  // The index's own dtype may not hold the length of a row.
  const wide = index.dtype.size < int32.size ? new Array(index).astype(int32) : new Array(index)
  const at = together ? broadcastTo(wide, x.shape) : wide
  const positive = index.dtype.kind === "unsigned" ? at : where(at.less(0), at.add(n), at)
  const line = x.shape.map((_, i) => (i === axis ? n : 1))
  const position = arange(0, n, 1, at.dtype).reshape(line)
  return where(position.equal(positive), new Array(value), 0).node
}
