/**
 * The product that linear, embedding and recurrent layers share.
 */
import * as mx from "@lazuli/core"
import { withoutHandles } from "@lazuli/core/engine"

/** x Wᵀ, plus the bias if there is one. A handle on the transposed weight would keep the weight until it is found dead. */
export function project(x: mx.Array, weight: mx.Array, bias?: mx.Array): mx.Array {
  const transposed = withoutHandles(() => weight.T)
  return bias ? mx.addmm(bias, x, transposed) : mx.matmul(x, transposed)
}
