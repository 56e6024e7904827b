/**
 * Joined work: applications that `compile` wants as one kernel, and which of them there are kernels for.
 */
import { type Application, type Node, programOf, type Storage, sameShape, sizeOf } from "@lazuli/core/engine"
import type { DispatchQueue } from "./dispatch"
import { type Ending, type Family, isCountable } from "./family"
import { isWritable } from "./kernels/elementwise"
import { foldWithWork } from "./kernels/reduce"
import { rowGroup } from "./kernels/row-groups"

/** Operands of work before or behind a kernel at most. */
const MOST_OPERANDS = 12

type FamilyFor = (node: Node) => Family | null

/** The work of joined applications as one kernel, or null where there is none; `inner` are the results that nothing else reads. */
export const joinedWork = (
  members: readonly Application[],
  inner: ReadonlySet<Node>,
  familyFor: FamilyFor,
): ((queue: DispatchQueue) => void) | null =>
  areApart(members)
    ? severalOfOne(members, familyFor)
    : (aroundProducts(members, inner, familyFor) ??
      productWithEnding(members, inner, familyFor) ??
      reductionOfWork(members, inner, familyFor) ??
      rowGroup(members, inner))

/** True where no application reads what another one makes. */
const areApart = (members: readonly Application[]): boolean => {
  const made = new Set(members.flatMap((each) => each.outputs ?? [each]))
  return members.every(({ inputs }) => inputs.every((input) => !made.has(input)))
}

/** Elementwise work, and a reduction that alone reads it, over any axes. */
function reductionOfWork(
  members: readonly Application[],
  inner: ReadonlySet<Node>,
  familyFor: FamilyFor,
): ((queue: DispatchQueue) => void) | null {
  if (members.length !== 2) return null
  const [work, reduction] = members
  if (!work.primitive.elementwise || reduction.primitive.elementwise || work.outputs !== null) return null
  if (reduction.inputs.length !== 1 || reduction.inputs[0] !== work || !inner.has(work)) return null
  if (work.inputs.length > MOST_OPERANDS || !isCountable(work) || !isWritable(programOf(work))) return null
  const family = familyFor(reduction)
  return family && foldWithWork(family, work, reduction)
}

/** A product, and elementwise work on its result. */
function productWithEnding(
  members: readonly Application[],
  inner: ReadonlySet<Node>,
  familyFor: FamilyFor,
): ((queue: DispatchQueue) => void) | null {
  const [product, ...rest] = members
  const work = rest.pop()
  if (!work?.primitive.elementwise || product.primitive.elementwise || product.outputs !== null) return null
  // Views of the product in the shape of the work.
  if (rest.some((view) => !view.primitive.rules.view || view.inputs[0] !== product)) return null
  const { shape } = product
  const columns = shape[shape.length - 1]
  if (shape.length < 2 || work.shape[work.shape.length - 1] !== columns) return null
  if (sizeOf(work.shape) !== sizeOf(shape)) return null
  const family = familyFor(product)
  if (!family?.ends || !isCountable(work) || !isWritable(programOf(work))) return null
  if (work.inputs.length + (work.outputs?.length ?? 1) > MOST_OPERANDS) return null
  const results = new Set<Node>([product, ...rest])
  if (rest.length === 0 && !sameShape(shape, work.shape)) return null
  const ending: Ending = { work, results, keeps: !inner.has(product) }
  if (family.ends !== true && !family.ends(product, ending)) return null
  return (queue) => family.encode(product, queue, ending)
}

/** Work before and behind what a family's kernels do. */
function aroundProducts(
  members: readonly Application[],
  inner: ReadonlySet<Node>,
  familyFor: FamilyFor,
): ((queue: DispatchQueue) => void) | null {
  for (const each of members) {
    if (each.primitive.elementwise || each.primitive.rules.view) continue
    const work = familyFor(each)?.around?.(members, inner)
    if (!work) continue
    return (queue) => {
      if (!work(queue)) encodeApart(members, queue, familyFor)
    }
  }
  return null
}

/** Adds the work of applications one after another; results that lie nowhere have scratch memory meanwhile. */
function encodeApart(members: readonly Application[], queue: DispatchQueue, familyFor: FamilyFor): void {
  const scratch: Storage[] = []
  const shown: Node[] = []
  try {
    for (const each of members) {
      for (const node of each.outputs ?? [each]) {
        if (node.storage !== null) continue
        shown.push(node)
        const { storage, offset } = each.inputs[0]
        // Views within a group are of row-major results in other shapes.
        if (each.primitive.rules.view) Object.assign(node, { storage, offset })
        else scratch.push((node.storage = queue.allocate(node.nbytes)))
      }
      if (!each.primitive.rules.view) (familyFor(each) as Family).encode(each, queue)
    }
  } finally {
    for (const storage of scratch) storage.drop()
    for (const node of shown) Object.assign(node, { storage: null, offset: 0 })
  }
}

/** Applications of one primitive, by a family that takes several at once. */
function severalOfOne(
  members: readonly Application[],
  familyFor: FamilyFor,
): ((queue: DispatchQueue) => void) | null {
  const [{ primitive }] = members
  if (members.length < 2 || members.some((each) => each.primitive !== primitive || each.outputs !== null))
    return null
  const family = familyFor(members[0])
  if (!family?.together || members.some((each) => familyFor(each) !== family)) return null
  return family.together(members)
}
