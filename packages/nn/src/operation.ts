/** Public functions of this package, which programs in files call by qualified names. */
import { composition as compositionOf, operation as operationOf } from "@lazuli/core/engine"

/** Like core's `operation`, with names qualified by this package. */
export const operation: typeof operationOf = (op, signature, body) =>
  operationOf(op, signature, body, `@lazuli/nn/${op}`)

/** Like core's `composition`, for bodies that make arrays on the way. */
export const composition: typeof compositionOf = (op, signature, body) =>
  compositionOf(op, signature, body, `@lazuli/nn/${op}`)
