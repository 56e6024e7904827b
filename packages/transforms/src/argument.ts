/**
 * Validation of the arguments and results of transforms.
 */
import { type Array, TransformError } from "@lazuli/core"
import {
  Array as ArrayClass,
  asCall,
  describe,
  forEachLeaf,
  format,
  isInexact,
  isList,
  type Meta,
  sameShape,
} from "@lazuli/core/engine"

/** Rejects trees that contain arrays without gradients. @throws TransformError */
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

/** Rejects promises as results. @throws TransformError */
export function checkSynchronous(op: string, result: unknown): void {
  if (result instanceof Promise)
    throw new TransformError(op, "the function is async: it returned a promise", {
      hint: "Transforms trace synchronous functions; await its inputs first",
    })
}

/** The outputs of a function as in MLX: a single array is a list of one. */
export const asOutputs = (result: unknown): unknown => (result instanceof ArrayClass ? [result] : result)

/**
 * Checks that there is a tangent or cotangent of the right shape for each array; owners that are arrays are checked again for other sizes.
 * @throws TransformError
 */
export function checkSeeds(
  op: string,
  kind: "cotangent" | "tangent",
  seeds: readonly Array[],
  owners: readonly (Array | Pick<Meta, "shape">)[],
  what: "output" | "primal",
): void {
  if (seeds.length !== owners.length)
    throw new TransformError(
      op,
      `expected one array as the ${kind} of each ${what}: ${owners.length}, received ${seeds.length}`,
    )
  seeds.forEach((seed, i) => {
    const owner = owners[i]
    if (owner instanceof ArrayClass) checkSeed(op, `${kind} ${i}`, seed, owner, `${what} ${i}`)
    else checkShape(op, `${kind} ${i}`, seed, owner, `${what} ${i}`)
  })
}

function checkShape(op: string, name: string, seed: Array, owner: Pick<Meta, "shape">, what: string): void {
  const { shape } = seed.node
  if (!sameShape(shape, owner.shape))
    throw new TransformError(
      op,
      `${name} has shape ${format(shape)}, but ${what} has shape ${format(owner.shape)}`,
    )
}

const checkSeed = asCall(
  "@lazuli/transforms/checkSeed",
  (op: string, name: string, seed: Array, owner: Array, what: string): boolean => {
    checkShape(op, name, seed, owner.node, what)
    return true
  },
  null,
)

/** Checks for a list of arguments. @throws TransformError */
export function checkList(op: string, name: string, value: unknown): asserts value is readonly unknown[] {
  if (!isList(value))
    throw new TransformError(
      op,
      `${name} must be a list with one entry for each argument of the function, received ${describe(value)}`,
    )
}
