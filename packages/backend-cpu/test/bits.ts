/** The bits of results, for tests whose answers must be the same bit for bit. */
import * as mx from "@lazuli/core"

/** Shapes, dtypes and the bytes themselves, in a form that compares fast. */
export const bits = (value: mx.Array | mx.Array[]): unknown[] =>
  [value].flat().map((a) => {
    const bytes = Buffer.from(a.reshape([-1]).contiguous().view(mx.uint8).toTypedArray() as Uint8Array)
    return [a.shape, a.dtype.name, bytes.toString("latin1")]
  })
