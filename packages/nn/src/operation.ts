/** Public functions of this package: programs in files call them by their names in it. */
import { operation as operationOf } from "@lazuli/core/engine"

/** As core's `operation`: the body of a public function, whose errors name it `op`. */
export const operation: typeof operationOf = (op, signature, body) =>
  operationOf(op, signature, body, `@lazuli/nn/${op}`)
