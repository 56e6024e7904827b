/**
 * Arguments of transforms: which of them to differentiate, what was returned, and the errors that say what does not fit.
 */
import { type Array, TransformError } from '@lazuli/core'
import { Array as ArrayClass, describe, forEachLeaf, format, isInexact, isList } from '@lazuli/core/engine'

/** The arrays of a tree with the places they stand at, for errors. */
export interface NamedLeaves {
  readonly arrays: Array[]
  readonly paths: string[]
}

/** The arrays of a tree in order, and how an error names each: `argument 0 at "layers.0.weight"`. */
export function leavesOf(tree: unknown, name: string): NamedLeaves {
  const arrays: Array[] = []
  const paths: string[] = []
  forEachLeaf(tree, (leaf, path) => {
    if (!(leaf instanceof ArrayClass)) return
    arrays.push(leaf)
    paths.push(path === '' ? name : `${name} at "${path}"`)
  })
  return { arrays, paths }
}

/** Refuses what has no gradient. @throws TransformError */
export function checkDifferentiable(op: string, { arrays, paths }: NamedLeaves): void {
  arrays.forEach((a, i) => {
    if (isInexact(a.dtype)) return
    throw new TransformError(op, `${paths[i]} is ${a.dtype.name}, which has no gradient`, {
      hint: 'Convert it to a floating dtype with astype, or leave it out of argnums',
    })
  })
}

/** Refuses a function that is not one. @throws TransformError */
export function checkFunction(op: string, f: unknown): void {
  if (typeof f !== 'function') throw new TransformError(op, `expected a function, received ${describe(f)}`)
}

/** Refuses results that come later. @throws TransformError */
export function checkSynchronous(op: string, result: unknown): void {
  if (result instanceof Promise)
    throw new TransformError(op, 'the function is async: it returned a promise', {
      hint: 'Transforms trace synchronous functions; await what it needs before',
    })
}

/** The outputs that MLX takes a function to have: one array is a list of one. */
export const asOutputs = (result: unknown): unknown => (result instanceof ArrayClass ? [result] : result)

/** Refuses seeds that do not match what they belong to. @throws TransformError */
export function checkSeeds(
  op: string,
  kind: 'cotangent' | 'tangent',
  seeds: readonly Array[],
  owners: readonly Array[],
  what: 'output' | 'primal',
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
