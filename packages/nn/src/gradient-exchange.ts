/**
 * Gradients of several processes: their average, and their common norm. A group has one member here; see `mx.distributed`.
 */
import * as mx from "@lazuli/core"
import { ArgumentError, describe, isPlainObject, ofTrees, withOwnArrays } from "@lazuli/core/engine"
import { aTree, check } from "./arguments"
import { clipTo } from "./optimizers/clip"

/** Options of {@link averageGradients}. */
export interface AverageGradientsOptions {
  /** The processes; all by default. */
  group?: mx.distributed.Group | null
  /** The number of bytes that travel together; 0 sends every array by itself. */
  allReduceSize?: number
  /** The stream of the exchange. */
  communicationStream?: mx.StreamLike
}

function checkGroup(op: string, group: unknown): void {
  if (group !== undefined && group !== null && !(group instanceof mx.distributed.Group))
    throw new ArgumentError(op, `group must come from mx.distributed.init(), received ${describe(group)}`)
}

/**
 * The average of the members' gradients, in a tree like them. In a group of one: the gradients.
 * @example
 * nn.averageGradients({ w: mx.array([1, 2]) }).w.tolist() // => [1, 2]
 */
export function averageGradients<T>(gradients: T, options?: AverageGradientsOptions): T
export function averageGradients<T>(
  gradients: T,
  group?: mx.distributed.Group | null,
  allReduceSize?: number,
  communicationStream?: mx.StreamLike,
): T
export function averageGradients<T>(
  gradients: T,
  options: AverageGradientsOptions | mx.distributed.Group | null = null,
): T {
  if (isPlainObject(options)) {
    for (const key of Object.keys(options))
      if (!["group", "allReduceSize", "communicationStream"].includes(key))
        throw new ArgumentError(
          "averageGradients",
          `has no parameter "${key}"; it takes gradients, group, allReduceSize, communicationStream`,
        )
    checkGroup("averageGradients", options.group)
  } else checkGroup("averageGradients", options)
  return ofTrees("averageGradients", () => withOwnArrays(gradients, gradients))
}

/**
 * Gradients of which each member holds a part, scaled down where the norm of all of them together exceeds `maxNorm`; and that norm.
 * @example
 * const [, norm] = nn.utils.clipGradNormSharded({ w: mx.array([3, 4]) }, 1)
 * norm.item() // => 5
 */
export function clipGradNormSharded<T>(
  gradients: T,
  maxNorm: number,
  group: mx.distributed.Group | null = null,
): [gradients: T, norm: mx.Array] {
  check("clipGradNormSharded", { gradients: aTree, maxNorm: "nonNegative" }, gradients, maxNorm)
  checkGroup("clipGradNormSharded", group)
  return ofTrees("clipGradNormSharded", () =>
    clipTo(gradients, maxNorm, (squares) => mx.distributed.allSum(squares, { group })),
  )
}
