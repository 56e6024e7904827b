/**
 * The keys of `mx.random`. A key gives the same numbers as in MLX; without one, a key is split off the global state, which `seed` sets.
 */
import { asArrayArgument, operation, type StreamOptions } from "../graph/args"
import { implicitState } from "../graph/calls"
import { uint32 } from "../graph/dtype"
import { ArgumentError, describe, ShapeError } from "../graph/errors"
import type { Array } from "../graph/graph"
import { asShape, format } from "../graph/shape"
import { scalarArray } from "../ops/constant"
import { arrayFromStore } from "../ops/creation"
import { join } from "../ops/join"
import { randomBits } from "../ops/random-bits"
import { take } from "../ops/take"
import { insertAxes } from "../ops/view"

/** The two words of a seed, the upper one first. */
function wordsOfSeed(op: string, value: unknown): [number, number] {
  const big = typeof value === "number" && Number.isSafeInteger(value) ? BigInt(value) : value
  if (typeof big !== "bigint")
    throw new ArgumentError(op, `a seed must be an integer, received ${describe(value)}`)
  const bits = BigInt.asUintN(64, big)
  if (big !== bits && big !== BigInt.asIntN(64, big))
    throw new ArgumentError(op, `a seed must have at most 64 bits, received ${describe(value)}`)
  return [Number(bits >> 32n), Number(bits & 0xffffffffn)]
}

/**
 * The global PRNG state: a list with one key, replaced by every call without a key. `compile(f, { inputs: mx.random.state, outputs:
 * mx.random.state })` captures it.
 */
export const state: [Array] = [lazyKey(Date.now())]
implicitState.push(state)

/**
 * A key built from constants: it needs no memory, so it can exist before any backend. Built from primitives: `stack` would be compiled at
 * every import.
 */
function lazyKey(value: number | bigint): Array {
  const words = wordsOfSeed("random.seed", value)
  return join(
    words.map((word) => insertAxes([scalarArray(word, uint32)], { axes: [0] })),
    { axis: 0 },
  )
}

/**
 * Seeds the global PRNG state.
 * @example
 * mx.random.seed(7); const a = mx.random.uniform(); mx.random.seed(7); a.item() === mx.random.uniform().item() // => true
 */
export function seed(value: number | bigint): void {
  state[0] = lazyKey(value)
}

/**
 * A PRNG key, an array of two uint32, from an integer seed.
 * @example
 * mx.random.key(42).tolist() // => [0, 42]
 */
export function key(seed: number | bigint): Array {
  return arrayFromStore(Uint32Array.from(wordsOfSeed("random.key", seed)), [2], uint32)
}

const splitArgs = operation(
  "random.split",
  { key: "array", num: "count?" },
  (one: Array, num: number = 2) => {
    if (one.ndim !== 1 || one.shape[0] !== 2)
      throw new ShapeError("random.split", `expected a key of shape (2,), received ${format(one.shape)}`)
    return randomBits([one], { width: 4, shape: asShape("random.split", [num, 2]) })
  },
)
/**
 * Splits a key into `num` independent keys: an array of shape [num, 2].
 * @throws ShapeError unless the key has shape [2]
 * @example
 * mx.random.split(mx.random.key(0), 3).shape // => [3, 2]
 */
export function split(key: Array, num?: number, options?: StreamOptions): Array
export function split(key: Array, options: { num?: number } & StreamOptions): Array
export function split(...args: unknown[]): Array {
  return splitArgs(args)
}

/** The given key, or one split off the global state: row 0 becomes the new state, row 1 is used. */
export function keyOrNext(op: string, given: unknown): Array {
  if (given !== undefined && given !== null) return asArrayArgument(op, "key", given)
  const pair = split(state[0], 2)
  state[0] = take(pair, 0, 0)
  return take(pair, 1, 0)
}
