/**
 * Arrays for tests, and their elements as numbers.
 */
import * as mx from "@lazuli/core"

/** An array of a sine's values, rounded to the dtype. */
export const wave = (shape: number[], dtype: mx.Dtype, phase: number): mx.Array =>
  mx
    .array(Float32Array.from({ length: shape.reduce((a, b) => a * b) }, (_, i) => Math.sin(i * 0.7 + phase)))
    .reshape(shape)
    .astype(dtype)

export const valuesOf = (x: mx.Array): number[] => [...(x.astype(mx.float32).toTypedArray() as Float32Array)]
