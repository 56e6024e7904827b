/**
 * Companions: applications of one primitive with the same first input, such as the products of queries, keys and values, which a backend
 * runs as one piece of work where they follow each other. Here they are brought together.
 */
import { type Application, type Node, outputsOf, paramsKey, sameShape } from "@lazuli/core/engine"
import { FAR, type PlanSteps, SMALL, type Step } from "./plan-steps"

/**
 * Moves applications behind the first one that they are companions of, if what else they read is an input. Returns the steps that have
 * some.
 */
export function gatherCompanions(steps: PlanSteps): ReadonlySet<Step> {
  const { list, backend } = steps
  const together = new Set<Step>()
  for (let i = 0; i < list.length; i++) {
    const first = applicationOfStep(list[i])
    if (first === null || backend.plans?.takesCompanions?.(first) !== true) continue
    let end = i + 1
    for (let k = end; k < Math.min(list.length, i + FAR); k++) {
      const other = applicationOfStep(list[k])
      if (other === null || !areCompanions(steps, first, other)) continue
      if (k > end && !mayMove(steps, other)) continue
      list.splice(end++, 0, ...list.splice(k, 1))
    }
    if (end > i + 1) for (const step of list.slice(i, end)) together.add(step)
    i = end - 1
  }
  return together
}

const applicationOfStep = (step: Step): Application | null => (step.kind === "run" ? step.node : null)

function areCompanions(steps: PlanSteps, a: Application, b: Application): boolean {
  const [[x], [y]] = [a.inputs, b.inputs]
  if (a.primitive !== b.primitive || steps.blockAt(x) === undefined) return false
  const { schema } = a.primitive
  if (paramsKey(schema, a.params) !== paramsKey(schema, b.params)) return false
  return x === y || (steps.blockAt(x) === steps.blockAt(y) && liesAlike(steps, x, y))
}

function liesAlike(steps: PlanSteps, x: Node, y: Node): boolean {
  const [p, q] = [steps.layoutOf(x), steps.layoutOf(y)]
  return sameShape(x.shape, y.shape) && p.offset === q.offset && String(p.strides) === String(q.strides)
}

/** True if nothing that a plan makes is missing before, and little waits. */
function mayMove(steps: PlanSteps, application: Application): boolean {
  const isInput = (node: Node): boolean => {
    const binding = steps.blockAt(node)?.binding ?? null
    return binding !== null && binding < steps.inputs.length
  }
  return (
    application.inputs.slice(1).every(isInput) &&
    outputsOf(application).every(({ nbytes }) => nbytes <= SMALL)
  )
}
