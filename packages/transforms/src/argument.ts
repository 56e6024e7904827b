/**
 * Arguments of transforms: which of them to differentiate, what was returned, and the errors that say what does not fit.
 */
import { type Array, TransformError } from "@lazuli/core"
import { Array as ArrayClass, describe, forEachLeaf, format, isInexact, isList } from "@lazuli/core/engine"

/** Refuses trees that hold an array without a gradient; `name` is what the error calls the tree. @throws TransformError */
export function checkDifferentiable(op: string, tree: unknown, arrays: readonly Array[], name: string): void {
  if (arrays.every((a) => isInexact(a.dtype))) return
  forEachLeaf(tree, (leaf, path) => {
    if (!(leaf instanceof ArrayClass) || isInexact(leaf.dtype)) return
    const argument = path === "" ? name : `${name} at "${path}"`
    throw new TransformError(op, `${argument} is ${leaf.dtype.name}, which has no gradient`, {
      hint: "Convert it to a floating dtype with astype, or leave it out of argnums",
    })
  })
}

/** Refuses a function that is not one. @throws TransformError */
export function checkFunction(op: string, f: unknown): void {
  if (typeof f !== "function") throw new TransformError(op, `expected a function, received ${describe(f)}`)
}

/** Refuses results that come later. @throws TransformError */
export function checkSynchronous(op: string, result: unknown): void {
  if (result instanceof Promise)
    throw new TransformError(op, "the function is async: it returned a promise", {
      hint: "Transforms trace synchronous functions; await what it needs first",
    })
}

/** The outputs that MLX takes a function to have: one array is a list of one. */
export const asOutputs = (result: unknown): unknown => (result instanceof ArrayClass ? [result] : result)

/** Refuses seeds that do not match what they belong to. @throws TransformError */
export function checkSeeds(
  op: string,
  kind: "cotangent" | "tangent",
  seeds: readonly Array[],
  owners: readonly Pick<Array, "shape">[],
  what: "output" | "primal",
): void {
  if (seeds.length !== owners.length)
    throw new TransformError(
      op,
      `expected one ${kind} for each ${what}: ${owners.length}, received ${seeds.length}`,
    )
  seeds.forEach((seed, i) => {
    const { shape } = owners[i]
    if (seed.ndim !== shape.length || seed.shape.some((n, k) => n !== shape[k]))
      throw new TransformError(
        op,
        `${kind} ${i} has shape ${format(seed.shape)}, but ${what} ${i} has shape ${format(shape)}`,
      )
  })
}

/** Refuses what is no list of arguments. @throws TransformError */
export function checkList(op: string, name: string, value: unknown): asserts value is readonly unknown[] {
  if (!isList(value))
    throw new TransformError(
      op,
      `${name} must be a list with one entry for each argument of the function, received ${describe(value)}`,
    )
}
