/**
 * Conversion of weights as they are read: at no time are there two forms of more than one of them.
 */
import * as mx from "@lazuli/core"

/** Replaces arrays by one that is made of them, computed now, so that their memory is free for the next ones. */
export function replaced(arrays: readonly mx.Array[], make: () => mx.Array): mx.Array {
  const made = mx.tidy(() => {
    const lazy = make()
    mx.eval(lazy)
    return lazy
  })
  for (const array of arrays) if (array !== made) array.dispose()
  return made
}

/** Floating-point numbers in another dtype, and other arrays as they are. */
export const inDtype = (array: mx.Array, dtype: mx.Dtype): mx.Array =>
  array.dtype === dtype || array.dtype.kind !== "floating"
    ? array
    : replaced([array], () => array.astype(dtype))
