/**
 * Fusion: elementwise applications of one shape become one scalar program, with the broadcasts that they read and constants inside, and
 * with several outputs where intermediates are needed elsewhere, unless those are cheaper computed again.
 */
import {
  type Application,
  applyNodes,
  definePrimitive,
  type Meta,
  type Node,
  ProgramBuilder,
  programOf,
  type ScalarOps,
  type ScalarProgram,
  type ScalarValue,
  sameShape,
} from "@lazuli/core/engine"
import { isImmediate } from "./identities"
import { inOrder, isLeaf, primitiveOf } from "./order"
import { repeatable } from "./recompute"

/** A program stays below these, so that its registers fit the first-level cache and its operands one record. */
const MAX_INSTRUCTIONS = 96
const MAX_OPERANDS = 14

/** Several elementwise operations in one pass. */
export const fused = definePrimitive({
  name: "@lazuli/compile/fused",
  params: { program: "program", shape: "i64[]" },
  infer: (_inputs, { program, shape }): Meta | Meta[] => {
    const { outputs } = program as ScalarProgram
    const metas = outputs.map((r) => ({ shape, dtype: dtypeOf(program as ScalarProgram, r) }))
    return metas.length === 1 ? metas[0] : metas
  },
  scalar: (ops, inputs, { program }) => run(ops, inputs, program as ScalarProgram),
})

const dtypeOf = (program: ScalarProgram, register: number) =>
  register < program.inputs.length
    ? program.inputs[register]
    : program.code[register - program.inputs.length].dtype

/** A program spoken in another vocabulary: registers again, or arrays. */
function run<V>(ops: ScalarOps<V>, inputs: readonly V[], program: ScalarProgram): V | V[] {
  const registers = inputs.slice()
  for (const step of program.code) {
    const args = step.args.map((a) => registers[a])
    if (step.op === "constant") registers.push(ops.constant(step.value as ScalarValue, step.dtype))
    else if (step.op === "cast") registers.push(ops.cast(args[0], step.dtype))
    else if (step.op === "select") registers.push(ops.select(args[0], args[1], args[2]))
    else registers.push((ops[step.op] as (...xs: V[]) => V)(...args))
  }
  const outputs = program.outputs.map((r) => registers[r])
  return outputs.length === 1 ? outputs[0] : outputs
}

const isElementwise = (node: Node): boolean =>
  !isLeaf(node) &&
  primitiveOf(node).elementwise &&
  !primitiveOf(node).facts.immediate &&
  node.outputs === null

/** The node that an elementwise application may read directly: broadcasting is implied, so a broadcast in front of it goes. */
function unbroadcast(node: Node): Node {
  return !isLeaf(node) && primitiveOf(node).facts.broadcasts && node.outputs === null
    ? unbroadcast(node.inputs[0])
    : node
}

interface Group {
  readonly root: Node
  readonly members: Set<Node>
  /** Members whose values other groups compute for themselves. */
  readonly copies: Set<Node>
}

/** The operations that a fused node computes though another one does as well. */
export const repeatedIn = new WeakMap<Node, readonly string[]>()

/** Fuses a simplified graph. */
export function fuse(outputs: readonly Node[]): Node[] {
  const order = inOrder(outputs, isLeaf)
  const position = new Map(order.map((node, i) => [node, i]))
  const consumers = new Map<Node, Node[]>()
  for (const node of order)
    for (const input of node.inputs) {
      const readers = consumers.get(input)
      if (readers) readers.push(node)
      else consumers.set(input, [node])
    }
  const wanted = new Set(outputs)
  const cheap = repeatable(order, consumers, wanted, isElementwise, unbroadcast)
  const { groups, kept } = formGroups(order, position, consumers, cheap)
  const copies = new Map<Node, number>()
  for (const group of new Set(groups.values()))
    for (const node of group.copies) copies.set(node, (copies.get(node) ?? 0) + 1)
  const repeated = new Set([...cheap.keys()].filter((node) => !kept.has(node)))

  // Members other than a group's last are built with it; the rewriting meets them first, so it remembers and waits.
  const results = new Map<Node, Node>()
  const resolve = (node: Node): Node => results.get(node) ?? node
  for (const application of order) {
    const group = groups.get(application)
    if (repeated.has(application) || (group && group.root !== application)) continue
    if (group && (group.members.size > 1 || needsFusion(application)))
      emit(group, position, consumers, wanted, copies, results)
    else {
      const inputs = application.inputs.map(resolve)
      const nodes = applyNodes(application.primitive, inputs, application.params)
      ;(application.outputs ?? [application]).forEach((node, i) => results.set(node, nodes[i]))
    }
  }
  return outputs.map(resolve)
}

/** A single application gains from fusion when a constant or a broadcast in front of it goes away. */
function needsFusion(application: Application): boolean {
  return application.inputs.some((input) => unbroadcast(input) !== input)
}

function formGroups(
  order: readonly Application[],
  position: ReadonlyMap<Node, number>,
  consumers: ReadonlyMap<Node, Node[]>,
  cheap: ReadonlyMap<Node, number>,
): { groups: Map<Node, Group>; kept: ReadonlySet<Node> } {
  const groups = new Map<Node, Group>()
  /** The nodes that are read from memory. */
  const kept = new Set<Node>()
  for (let i = order.length - 1; i >= 0; i--) {
    const root = order[i]
    if (!isElementwise(root) || groups.has(root)) continue
    // Every group that reads it was formed before.
    if (cheap.has(root) && !kept.has(root)) continue
    const group: Group = { root, members: new Set([root]), copies: new Set() }
    groups.set(root, group)
    // Candidates by descending position, so that every consumer inside the order has been decided before: one look at each is enough.
    const candidates = [...root.inputs]
    const seen = new Set<Node>()
    while (candidates.length > 0) {
      candidates.sort((a, b) => (position.get(a) ?? -1) - (position.get(b) ?? -1))
      const node = candidates.pop() as Node
      if (seen.has(node)) continue
      seen.add(node)
      if (!isElementwise(node) || !sameShape(node.shape, root.shape)) continue
      if (cheap.has(node)) {
        group.members.add(node)
        group.copies.add(node)
        if (!tooLarge(group, consumers)) candidates.push(...node.inputs)
        else {
          group.members.delete(node)
          group.copies.delete(node)
        }
        continue
      }
      if (groups.has(node)) continue
      // Everyone else who reads it must come after the group runs, or the group would wait for its own result.
      const waits = (c: Node): boolean => (position.get(c) as number) < i && !group.members.has(c)
      if (consumers.get(node)?.some(waits)) continue
      group.members.add(node)
      if (tooLarge(group, consumers)) {
        group.members.delete(node)
        continue
      }
      groups.set(node, group)
      candidates.push(...node.inputs)
    }
    for (const member of group.members)
      for (const input of member.inputs) if (!group.members.has(input)) kept.add(input)
  }
  return { groups, kept }
}

function tooLarge({ members, copies }: Group, consumers: ReadonlyMap<Node, Node[]>): boolean {
  const inputs = new Set<Node>()
  let outputs = 1
  for (const node of members) {
    for (const input of node.inputs) if (!members.has(input)) inputs.add(unbroadcast(input))
    if (!copies.has(node) && (consumers.get(node) ?? []).some((c) => !members.has(c))) outputs++
  }
  let constants = 0
  for (const input of inputs) if (!isLeaf(input) && primitiveOf(input).facts.immediate) constants++
  return members.size > MAX_INSTRUCTIONS || inputs.size - constants + outputs > MAX_OPERANDS
}

/** Builds a group's program and its one node. */
function emit(
  group: Group,
  position: ReadonlyMap<Node, number>,
  consumers: ReadonlyMap<Node, Node[]>,
  wanted: ReadonlySet<Node>,
  copies: ReadonlyMap<Node, number>,
  results: Map<Node, Node>,
): void {
  const members = [...group.members].sort((a, b) => (position.get(a) as number) - (position.get(b) as number))
  const external: Node[] = []
  for (const node of members) {
    for (const input of node.inputs) {
      if (group.members.has(input)) continue
      const source = unbroadcast(input)
      if (!isImmediate(source) && !external.includes(source)) external.push(source)
    }
  }
  const builder = new ProgramBuilder(external.map((n) => n.dtype))
  const registers = new Map<Node, number>(external.map((n, i) => [n, i]))
  const registerOf = (input: Node): number => {
    if (group.members.has(input)) return registers.get(input) as number
    const source = unbroadcast(input)
    return isImmediate(source)
      ? builder.ops.constant(source.params.value as ScalarValue, source.dtype)
      : (registers.get(source) as number)
  }
  for (const node of members)
    registers.set(node, builder.inline(programOf(node), node.inputs.map(registerOf))[0])
  const isReadElsewhere = (n: Node): boolean => (consumers.get(n) ?? []).some((c) => !group.members.has(c))
  const leaving = members.filter((n) => wanted.has(n) || (!group.copies.has(n) && isReadElsewhere(n)))
  const again = members.filter((n) => (copies.get(n) ?? 0) > 1)
  const program = builder.finish(leaving.map((n) => registers.get(n) as number))
  const nodes = applyNodes(
    fused.primitive,
    external.map((n) => results.get(n) ?? n),
    { program, shape: group.root.shape },
  )
  leaving.forEach((node, i) => results.set(node, nodes[i]))
  if (again.length > 0)
    repeatedIn.set(
      nodes[0],
      again.map((n) => primitiveOf(n).name),
    )
}
