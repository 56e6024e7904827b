/**
 * The order of an evaluation: the pending applications behind some nodes, each after its inputs, found without recursion. What its backend
 * has no kernel for is replaced by its decomposition here.
 */
import { backendFor, countFallback } from "../graph/backend"
import { onStream } from "../graph/device"
import { DeviceError, RegistryError, TransformError } from "../graph/errors"
import { exchanges, exchangesOutOfOrder, gatheredLate, inPlaceOf } from "../graph/exchanges"
import { type Application, Array, Mark, type Node, type Primitive, withoutHandles } from "../graph/graph"
import { decompose } from "../graph/primitive"
import { format, sameShape } from "../graph/shape"
import { inheritingSite } from "./debug"
import { hostKernel } from "./host-kernels"

let traversal = 0
/** True if a traversal is under way; decompositions run within it. */
let scheduling = false

function refuse(node: Node): never {
  if (node.mark & Mark.Abstract) {
    throw new TransformError("eval", "an array that is being traced by vmap or compile has no value yet", {
      hint:
        "Return it from the function, or move what needs its value (item, tolist, printing, if) out of the traced function. " +
        "One that a compiled function left in a variable never gets a value: name the tree that holds it in `outputs`",
    })
  }
  throw new DeviceError("eval", "the value of this array was released", {
    hint: "It was disposed, made inside a rule and kept beyond it, or given to a compiled function with `donate`",
  })
}

/**
 * The pending nodes that the roots need, every node after its inputs, and exchanges in their order; an application of several outputs by
 * its first.
 */
export function schedule(roots: readonly Node[]): Application[] {
  if (scheduling)
    throw new TransformError("eval", "a decomposition needs the value of an array", {
      hint: "A decomposition states how arrays are computed; it cannot evaluate them",
    })
  scheduling = true
  try {
    const order = traverse(roots)
    const first = exchanges.exist ? exchangesOutOfOrder(order) : null
    if (first === null) return order
    const needs = (node: Application): readonly Node[] =>
      node.alias === null ? node.inputs : aliasesOf(node)
    const isView = ({ alias, primitive }: Application): boolean =>
      alias !== null || primitive.rules.view !== undefined
    return gatheredLate(traverse([...first, ...roots]), needs, isView)
  } finally {
    scheduling = false
  }
}

function traverse(roots: readonly Node[]): Application[] {
  const round = ++traversal
  let order: Application[] | null = null
  // The way down from a root, and where to go on in each node's list. New lists: storing young nodes in an old one would cost a note to the
  // collector.
  let nodes: Application[] | null = null
  let next: number[] | null = null
  let depth = 0
  for (let k = 0; k < roots.length; k++) {
    const root = roots[k]
    if (root.storage !== null || !enter(root, round)) continue
    let node = (root.outputs === null ? root : root.outputs[0]) as Application
    let list = dependencies(node)
    let i = 0
    for (;;) {
      if (i < list.length) {
        const input = list[i++]
        // A kernel reads an immediate from its own record, so it needs no memory.
        if (input.storage !== null || input.visit === round || (readsImmediates(node) && isImmediate(input)))
          continue
        if (!enter(input, round)) continue
        if (nodes === null || next === null) {
          nodes = []
          next = []
        }
        nodes[depth] = node
        next[depth++] = i
        node = (input.outputs === null ? input : input.outputs[0]) as Application
        list = dependencies(node)
        i = 0
        continue
      }
      // A list that is empty at first would have room made for many.
      if (order === null) order = [node]
      else order.push(node)
      if (depth === 0 || nodes === null || next === null) break
      node = nodes[--depth]
      list = node.alias === null ? node.inputs : aliasesOf(node)
      i = next[depth]
    }
  }
  return order ?? []
}

/** Marks a node's application as met. Returns false where it was; refuses what has no value. */
function enter(node: Node, round: number): boolean {
  const application = node.outputs === null ? node : node.outputs[0]
  if (application.visit === round) return false
  application.visit = round
  if (application.primitive === null || (application.mark & Mark.Abstract) !== 0) refuse(node)
  return true
}

const isImmediate = (node: Node): boolean =>
  node.primitive !== null && node.primitive.facts.immediate === true

function readsImmediates(node: Application): boolean {
  return node.alias === null && node.primitive.elementwise
}

/** Nodes to compute before a node: its inputs, or, where its backend has no kernel, the outputs of its decomposition. */
function dependencies(application: Application): readonly Node[] {
  const primitive = application.primitive
  const { rules } = primitive
  if (application.alias !== null) return aliasesOf(application)
  if (rules.view !== undefined || rules.decompose === undefined) return application.inputs
  if (rules.plan?.(application)) return application.inputs
  const backend = backendFor(application.stream.device)
  if (backend.queue.lower(application) !== null) return application.inputs
  if (backend.name !== "reference" && hostKernel(application) !== null) return application.inputs
  countFallback(backend.name, primitive.name, "decomposed")
  const parts = onStream(application.stream, () =>
    withoutHandles(() =>
      inPlaceOf(application, () =>
        inheritingSite(application, () =>
          rules.expand
            ? rules.expand(application)
            : decompose(
                primitive,
                application.inputs.map((n) => new Array(n)),
                application.params,
              ),
        ),
      ),
    ),
  )
  const outputs = application.outputs ?? [application]
  for (let i = 0; i < outputs.length; i++) {
    checkPart(primitive, outputs[i], parts[i])
    outputs[i].alias = parts[i].node
    parts[i].node.uses++
  }
  return aliasesOf(application)
}

function checkPart(primitive: Primitive, output: Node, part: Array | undefined): void {
  if (part && part.dtype === output.dtype && sameShape(part.node.shape, output.shape)) return
  const got = part ? `${part.dtype.name} of shape ${format(part.shape)}` : "nothing"
  throw new RegistryError(
    primitive.name,
    `its decomposition gave ${got} where infer promised ${output.dtype.name} of shape ${format(output.shape)}`,
  )
}

function aliasesOf(application: Application): readonly Node[] {
  return (application.outputs ?? [application]).map((n) => n.alias as Node)
}
