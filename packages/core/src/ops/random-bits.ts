/**
 * Random bits from keys: the counter-based generator Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror and Shaw, "Parallel random numbers:
 * as easy as 1, 2, 3", 2011). The distributions of `mx.random`, in api/random.ts, are based on them.
 */
import { uint32, unsignedOfSize } from "../graph/dtype"
import { DTypeError, ShapeError } from "../graph/errors"
import type { HostArray } from "../graph/graph"
import { type Apply, definePrimitive } from "../graph/primitive"
import { format, sizeOf } from "../graph/shape"
import { moveToFront } from "./view"

const ROTATIONS = [
  [13, 15, 26, 6],
  [17, 29, 16, 24],
] as const

/** Two words from a key and a counter of two words each. */
function threefry(k0: number, k1: number, c0: number, c1: number, out: Uint32Array): void {
  const keys = [k0, k1, k0 ^ k1 ^ 0x1bd11bda]
  let x = (c0 + k0) | 0
  let y = (c1 + k1) | 0
  for (let round = 0; round < 5; round++) {
    for (const r of ROTATIONS[round % 2]) {
      x = (x + y) | 0
      y = ((y << r) | (y >>> (32 - r))) ^ x
    }
    x = (x + keys[(round + 1) % 3]) | 0
    y = (y + keys[(round + 2) % 3] + round + 1) | 0
  }
  out[0] = x
  out[1] = y
}

/**
 * The words of one key, in MLX's layout: word i and word i + ⌈n/2⌉ are the two results for the counter (i, i + ⌈n/2⌉); of an odd number
 * the middle word is the first result for (⌊n/2⌋, 0).
 */
function wordsOf(k0: number, k1: number, count: number): Uint32Array {
  const words = new Uint32Array(count)
  const pair = new Uint32Array(2)
  const half = Math.floor(count / 2)
  const second = count - half
  for (let i = 0; i < half; i++) {
    threefry(k0, k1, i, i + second, pair)
    words[i] = pair[0]
    words[i + second] = pair[1]
  }
  if (second > half) {
    threefry(k0, k1, half, 0, pair)
    words[half] = pair[0]
  }
  return words
}

/** @internal keys [..., 2] → [..., ...shape] of unsigned integers of `width` bytes: each key's bytes in order. */
export const randomBits: Apply<{ width: number; shape: readonly number[] }> = definePrimitive({
  name: "randomBits",
  params: { width: "i64", shape: "i64[]" },
  infer: ([keys], { width, shape }) => {
    if (keys.dtype !== uint32)
      throw new DTypeError("random.bits", `a key must be uint32, received ${keys.dtype.name}`, {
        hint: "mx.random.key(seed) makes one",
      })
    if (keys.shape[keys.shape.length - 1] !== 2)
      throw new ShapeError("random.bits", `a key must have shape (2,), received ${format(keys.shape)}`, {
        hint: "mx.random.key(seed) makes one",
      })
    return { shape: [...keys.shape.slice(0, -1), ...shape], dtype: unsignedOfSize(width) }
  },
  reference: ([keys]: readonly HostArray[], [out]: readonly HostArray[], { width, shape }) => {
    const perKey = sizeOf(shape)
    const count = Math.ceil((perKey * width) / 4)
    for (let k = 0; k < keys.data.length / 2; k++) {
      const words = wordsOf(keys.data[2 * k], keys.data[2 * k + 1], count)
      // Splits the words' bytes, least significant first, into elements.
      const mask = width === 4 ? 0xffffffff : 2 ** (8 * width) - 1
      for (let i = 0; i < perKey; i++) {
        const byte = i * width
        out.data[k * perKey + i] = ((words[byte >> 2] >>> (8 * (byte & 3))) & mask) >>> 0
      }
    }
  },
  vjp: () => [null],
  jvp: () => [null],
  vmap: ({ inputs: [keys], axes: [axis], params }) => ({
    outputs: [randomBits([moveToFront(keys, axis as number)], params)],
    axes: [0],
  }),
})
