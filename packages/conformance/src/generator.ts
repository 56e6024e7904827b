/**
 * Numbers that look random and are the same in every run, for tests: the one generator of all packages.
 */
import * as mx from "@lazuli/core"

/** A stream of numbers in [0, 1). Source: mulberry32, public domain. */
export function generator(seed: number): () => number {
  let state = seed | 0
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296
  }
}

/** A stream of whole numbers: each is from 0 on and below what is asked for. */
export function integers(seed: number): (below: number) => number {
  const next = generator(seed)
  return (below) => Math.floor(next() * below)
}

const sizeOf = (shape: readonly number[]): number => shape.reduce((a, b) => a * b, 1)

/** An array of numbers in [−1, 1), of no pattern. */
export function noise(shape: readonly number[], seed = 1, dtype: mx.Dtype = mx.float32): mx.Array {
  const next = generator(seed)
  const length = sizeOf(shape)
  const one = (): number => 2 * next() - 1
  const list = dtype === mx.float64 ? Float64Array.from({ length }, one) : Float32Array.from({ length }, one)
  const made = mx.array(list).reshape([...shape])
  return made.dtype === dtype ? made : made.astype(dtype)
}

/** Quarters from −2 to 1.75: sums and products of some are exact in float32, in whatever order. */
export function quarters(seed: number): () => number {
  const next = generator(seed)
  return () => Math.floor(16 * next()) / 4 - 2
}

/** A stream of arrays of normal numbers. */
export function arrays(): (shape: number[], dtype?: mx.Dtype) => mx.Array {
  let seed = 0
  return (shape, dtype = mx.float32) => mx.random.normal(shape, { key: mx.random.key(++seed) }).astype(dtype)
}
