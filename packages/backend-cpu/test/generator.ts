/** Numbers for tests that are random and the same each time. */
import * as mx from "@lazuli/core"

/** A reproducible stream of numbers in [0, 1). Source: mulberry32, public domain. */
export function generator(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296
  }
}

/** A reproducible stream of arrays of normal numbers. */
export function arrays(): (shape: number[], dtype?: mx.Dtype) => mx.Array {
  let seed = 0
  return (shape, dtype = mx.float32) => mx.random.normal(shape, { key: mx.random.key(++seed) }).astype(dtype)
}
