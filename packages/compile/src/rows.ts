/**
 * Work by blocks of rows: elementwise work and a reduction, softmax or normalization along the last axis after (or before) it run block by
 * block, so that what is between them stays in the cache and takes a block's memory. Each row is computed as it is by itself.
 */
import {
  type AnyParams,
  type Application,
  applyNodes,
  contiguousStrides,
  type Layout,
  type Node,
  outputsOf,
  sameShape,
  sizeOf,
} from "@lazuli/core/engine"
import { fused } from "./fuse"
import { isImmediate } from "./identities"
import { isLeaf, primitiveOf } from "./order"

/** The values between the operations of one block take about this much. */
const BLOCK_BYTES = 1 << 20
/** Less than this between two operations stays in a cache anyway. */
const MIN_SAVED_BYTES = 4 << 20
const MAX_BLOCKS = 64

/** An operand of a group: a list of rows, or something that serves all rows. */
export type Role = "rows" | "whole"

/** One application of a group with its inputs' roles and its parameters for a matrix. */
export interface Member {
  readonly application: Application
  readonly roles: readonly Role[]
  readonly params: AnyParams
}

/** Consecutive applications that run block by block. */
export interface RowGroup {
  readonly members: readonly Member[]
  readonly rows: number
  readonly rowsPerBlock: number
  /** Results that nothing outside reads. */
  readonly inner: ReadonlySet<Node>
}

/** The node whose memory a view shows. */
function rootOf(node: Node): Node {
  let root = node
  while (!isLeaf(root) && primitiveOf(root).rules.view) root = root.inputs[0]
  return root
}

const rowsOf = ({ shape }: Node): number => sizeOf(shape.slice(0, -1))
const widthOf = ({ shape }: Node): number => shape[shape.length - 1]

/** The roles of an application's inputs; null where it does not treat every row of its result alone. */
function memberOf(application: Application): Member | null {
  const { primitive, shape } = application
  if (shape.length < 1 || outputsOf(application).some((node) => rowsOf(node) !== rowsOf(application)))
    return null
  if (primitive.elementwise) {
    const roles: Role[] = []
    for (const input of application.inputs) {
      const last = input.shape.length === 0 ? 1 : widthOf(input)
      const leading = input.shape.slice(0, -1)
      if (sizeOf(leading) === 1) roles.push("whole")
      else if (sameShape(leading, shape.slice(0, -1)) && (last === 1 || last === widthOf(application)))
        roles.push("rows")
      else return null
    }
    if (!roles.includes("rows")) return null
    return { application, roles, params: application.params }
  }
  if (application.inputs.some(isImmediate)) return null
  const params = primitive.rules.rows?.(application.inputs, application.params) ?? null
  if (params === null || rowsOf(application.inputs[0]) !== rowsOf(application)) return null
  return { application, roles: application.inputs.map((_, i) => (i === 0 ? "rows" : "whole")), params }
}

/** The groups among applications in their order; `readers` gives who reads a node, views of it included, null for the caller. */
export function rowGroups(
  order: readonly Application[],
  readers: (node: Node) => ReadonlySet<Node | null>,
): RowGroup[] {
  const groups: RowGroup[] = []
  let current: Member[] = []
  const close = (): void => {
    const group = groupOf(current, readers)
    if (group) groups.push(group)
    current = []
  }
  for (const application of order) {
    if (application.primitive.rules.view || isImmediate(application)) continue
    const member = memberOf(application)
    if (!member) {
      close()
      continue
    }
    const made = new Set(current.flatMap((m) => outputsOf(m.application)))
    // The results of a group are read as they lie, by rows.
    const reads = application.inputs.filter((input) => made.has(input))
    const fits =
      reads.length > 0 &&
      rowsOf(application) === rowsOf(current[0].application) &&
      application.inputs.every((input, i) =>
        made.has(input) ? member.roles[i] === "rows" : !made.has(rootOf(input)),
      )
    if (!fits) close()
    current.push(member)
  }
  close()
  return groups
}

/** The group of such members; null where blocks would save nothing. */
function groupOf(
  members: readonly Member[],
  readers: (node: Node) => ReadonlySet<Node | null>,
): RowGroup | null {
  if (members.length < 2 || members.every(({ application }) => application.primitive.elementwise)) return null
  const applications = new Set<Node | null>(members.map(({ application }) => application))
  const inner = new Set(
    members
      .flatMap(({ application }) => outputsOf(application))
      .filter((node) => [...readers(node)].every((reader) => applications.has(reader))),
  )
  const rows = rowsOf(members[0].application)
  let perRow = 0
  for (const node of inner) perRow += widthOf(node) * node.dtype.size
  if (rows * perRow < MIN_SAVED_BYTES) return null
  const rowsPerBlock = Math.max(Math.floor(BLOCK_BYTES / perRow), Math.ceil(rows / MAX_BLOCKS), 1)
  return rowsPerBlock < rows ? { members, rows, rowsPerBlock, inner } : null
}

/** The rows of a node as a matrix. Null where no strides say it. */
export function matrixLayout({ shape }: Node, { offset, strides }: Layout): Layout | null {
  const steps = strides ?? contiguousStrides(shape)
  const last = shape.length - 1
  // The leading axes as one.
  let step = 0
  let rows = 1
  for (let axis = last - 1; axis >= 0; axis--) {
    if (shape[axis] === 1) continue
    if (rows === 1) step = steps[axis]
    else if (steps[axis] !== step * rows) return null
    rows *= shape[axis]
  }
  return { offset, strides: [step, steps[last] ?? 0] }
}

/** An application of a group on other inputs, of so many rows. */
export function onRows(
  { application, params }: Member,
  inputs: readonly Node[],
  rows: number,
): readonly Node[] {
  const primitive = application.primitive
  const own = primitive === fused.primitive ? { ...params, shape: [rows, widthOf(application)] } : params
  return applyNodes(primitive, inputs, own)
}
