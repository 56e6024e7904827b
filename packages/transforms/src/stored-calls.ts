/**
 * Validation of calls of transforms in program files, whose arguments are not trusted.
 */
import { Array, isList, Node, sameShape, TransformError } from "@lazuli/core/engine"

/** Runs `f` on arguments that `fits` accepts. */
export const stored =
  <A extends readonly unknown[], R>(
    op: string,
    fits: (...args: { [K in keyof A]: unknown }) => boolean,
    f: (...args: A) => R,
  ): ((...args: A) => R) =>
  (...args) => {
    if (!fits(...args)) throw new TransformError(op, "received arguments that no function gives it")
    return f(...args)
  }

const isNode = (value: unknown): value is Node => value instanceof Node
export const isArray = (value: unknown): value is Array => value instanceof Array
export const isIndex = (value: unknown): value is number =>
  Number.isSafeInteger(value) && (value as number) >= 0
export const areNodes = (value: unknown): value is readonly Node[] => isList(value) && value.every(isNode)

/** True if nodes have the same shape and dtype. */
export const isLike = (a: Pick<Node, "shape" | "dtype">, b: Pick<Node, "shape" | "dtype">): boolean =>
  a.dtype === b.dtype && sameShape(a.shape, b.shape)

/** True if a list contains an array like each of the nodes, or null. */
export const areSeeds = (value: unknown, nodes: readonly Node[]): boolean =>
  isList(value) &&
  value.length === nodes.length &&
  value.every((seed, i) => seed === null || (isArray(seed) && isLike(seed.node, nodes[i])))

/** True if an axis is null or in bounds. */
export const isAxis = (value: unknown, ndim: number): boolean =>
  value === null || (isIndex(value) && value < ndim)
