/**
 * The results that a traced function may give: a tree of arrays and constants. Anything that would hold an array of the trace where no call
 * can replace it, or would run after the trace, is refused.
 */
import { Array, childrenOf, isList, Mark, TransformError } from "@lazuli/core/engine"

const isAbstract = (value: unknown): boolean =>
  value instanceof Array && (value.node.mark & Mark.Abstract) !== 0

/** @throws TransformError for what calls could not give again */
export function checkResult(result: unknown): void {
  const open = new Set<object>()
  const visit = (value: unknown, path: string): void => {
    if (typeof value !== "object" || value === null || value instanceof Array) return
    const children = childrenOf(value)
    if (children === null) {
      checkLeaf(value, path)
      return
    }
    if (open.has(value)) throw new TransformError("compile", `${path} contains itself`)
    open.add(value)
    if (isList(children)) children.forEach((child, i) => visit(child, `${path}[${i}]`))
    else for (const [key, child] of Object.entries(children)) visit(child, `${path}.${key}`)
    open.delete(value)
  }
  visit(result, "the result")
}

function checkLeaf(leaf: object, path: string): void {
  const { then, next } = leaf as { then?: unknown; next?: unknown }
  if (typeof then === "function")
    throw new TransformError(
      "compile",
      path === "the result"
        ? "the function is async: what it awaits would run after its trace"
        : `${path} is a promise: what it waits for would run after the trace`,
      { hint: "Compile the synchronous part, and await outside of it" },
    )
  if (typeof next === "function")
    throw new TransformError(
      "compile",
      `${path} is an iterator, as generators give: its steps would run after the trace`,
      { hint: "Return a list" },
    )
  const held = leaf instanceof Map || leaf instanceof Set ? [...leaf.values()] : Object.values(leaf)
  if (held.some((value) => isAbstract(value) || (isList(value) && value.some(isAbstract))))
    throw new TransformError(
      "compile",
      `${path} is an instance of ${leaf.constructor?.name || "a class"}, in which calls cannot replace the traced arrays`,
      {
        hint: "Return arrays in lists and plain objects, or register the class with mx.registerTreeNode",
      },
    )
}
