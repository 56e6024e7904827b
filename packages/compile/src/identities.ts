/**
 * Elementwise applications that need no computation: constants of constants, and operations that give their input back
 * bit for bit.
 */
import {
  type Application,
  applyNodes,
  constant,
  type Dtype,
  float32,
  float64,
  int32,
  type Node,
  primitiveByName,
  programOf,
  type ScalarValue,
  sameShape,
} from "@lazuli/core/engine"
import { isLeaf, primitiveOf } from "./order"

/** True if a node holds a constant. */
export const isImmediate = (node: Node): boolean =>
  !isLeaf(node) && primitiveOf(node).facts.immediate === true

const valueOf = (node: Node): ScalarValue => node.params.value as ScalarValue

/** The one operation of an elementwise application on its inputs as they are. */
export function soleOperation(node: Node): string | null {
  if (isLeaf(node) || isImmediate(node) || !primitiveOf(node).elementwise || node.outputs !== null)
    return null
  const { code } = programOf(node)
  return code.length === 1 && code[0].args.every((a, i) => a === i) ? code[0].op : null
}

/** The replacement of an elementwise application, or null where it has to be computed. */
export function withoutComputing(application: Application, inputs: readonly Node[]): Node | null {
  const op = soleOperation(application)
  if (op === null) return null
  return constantOf(op, application, inputs) ?? unchanged(op, application, inputs)
}

const round: ReadonlyMap<Dtype, (x: number) => number> = new Map([
  [float32, Math.fround],
  [float64, (x: number) => x],
  [int32, (x: number) => x | 0],
])
/** Operations that every backend rounds alike, because there is one right answer. */
const exact: Record<string, (a: number, b: number) => number> = {
  add: (a, b) => a + b,
  subtract: (a, b) => a - b,
  multiply: (a, b) => a * b,
  divide: (a, b) => a / b,
  negative: (a) => -a,
  abs: Math.abs,
  square: (a) => a * a,
  sqrt: Math.sqrt,
}

/** The value of a constant in its dtype; null where that is no number here. */
function numberOf(node: Node): number | null {
  const value = valueOf(node)
  return typeof value === "number" ? (round.get(node.dtype)?.(value) ?? null) : null
}

/** The constant that every element of a node is; null where that is not known. */
export function elementOf(node: Node): Node | null {
  let from = node
  while (!isLeaf(from) && !isImmediate(from)) {
    if (primitiveOf(from).rules.view === undefined || from.inputs.length !== 1) return null
    from = from.inputs[0]
    // Views as another dtype have other values, also where a later one is of this dtype again.
    if (from.dtype !== node.dtype) return null
  }
  return isLeaf(from) ? null : from
}

/** The value of an operation on constants alone. */
function constantOf(op: string, { dtype, shape }: Node, given: readonly Node[]): Node | null {
  const fit = round.get(dtype)
  if (!fit) return null
  const inputs = given.map(elementOf)
  if (!isComplete(inputs)) return null
  const [a, b] = inputs.map(numberOf)
  if (a === null || b === null) return null
  let value: number
  if (op === "cast") {
    if (dtype === int32 && inputs[0].dtype !== int32) return null
    value = fit(a)
  } else {
    if (!(op in exact)) return null
    if (dtype === int32) {
      if (op !== "add" && op !== "subtract" && op !== "negative" && op !== "multiply") return null
      value = op === "multiply" ? Math.imul(a, b as number) : fit(exact[op](a, b as number))
    } else value = fit(exact[op](a, b as number))
  }
  const [made] = applyNodes(constant.primitive, [], { value, dtype })
  return shape.length === 0 ? made : applyNodes(primitiveByName("broadcastTo"), [made], { shape })[0]
}

const isComplete = (nodes: readonly (Node | null)[]): nodes is readonly Node[] => !nodes.includes(null)

/** The input that an operation gives back: x·1, x/1, x − 0, x + (−0), and x + 0 of integers; a cast there and back. */
function unchanged(op: string, application: Application, inputs: readonly Node[]): Node | null {
  const { dtype } = application
  if (op === "cast") {
    const [wide] = inputs
    if (wide.dtype === dtype) return wide
    if (soleOperation(wide) !== "cast") return null
    const [origin] = wide.inputs
    return origin.dtype === dtype && holds(wide.dtype, dtype) ? origin : null
  }
  if (dtype.kind === "bool" || dtype.kind === "complex" || inputs.length !== 2) return null
  const [x, y] = inputs
  if (neutral(op, y, dtype, true) && sameShape(x.shape, application.shape) && x.dtype === dtype) return x
  if (neutral(op, x, dtype, false) && sameShape(y.shape, application.shape) && y.dtype === dtype) return y
  return null
}

function neutral(op: string, node: Node, dtype: Dtype, right: boolean): boolean {
  if (!isImmediate(node)) return false
  const value = valueOf(node)
  const isZero = value === 0 || value === 0n
  const isOne = value === 1 || value === 1n
  const floating = dtype.kind === "floating"
  if (op === "multiply") return isOne
  if (op === "divide") return isOne && right && floating
  // −0 + 0 is 0.
  if (op === "add") return floating ? Object.is(value, -0) : isZero
  return op === "subtract" && isZero && right && !(floating && Object.is(value, -0))
}

/** True if every value of a dtype has a value of its own in another. */
function holds(wide: Dtype, narrow: Dtype): boolean {
  if (wide.size <= narrow.size) return false
  return wide.kind === narrow.kind || (narrow.kind === "unsigned" && wide.kind === "signed")
}
