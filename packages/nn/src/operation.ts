/** Public functions of this package, which programs in files call by qualified names. */
import { operation as operationOf } from "@lazuli/core/engine"

/** Like core's `operation`, with names qualified by this package. */
export const operation: typeof operationOf = (op, signature, body) =>
  operationOf(op, signature, body, `@lazuli/nn/${op}`)
