/**
 * A sampler that splits a data set by rank: every epoch in another order, the same on all members, of which each takes its part.
 */
import * as mx from "@lazuli/core"
import { checkOptions, describe } from "@lazuli/core/engine"

/** Options of {@link RankSampler}. */
export interface RankSamplerOptions {
  /** Examples of a batch of one member. */
  batchSize: number
  /** The seed of the orders, an integer of 32 bits; 0 by default. */
  seed?: number
  /** False keeps the order of the data set: the last examples that do not fill a batch of all members are never given. */
  shuffle?: boolean
  /** The members; all processes by default. */
  group?: mx.distributed.Group | null
}

/** The position in the data, for a checkpoint: it does not depend on the number of members. */
export interface SamplerState {
  readonly epoch: number
  /** The examples of this epoch that all members together have had. */
  readonly position: number
  /** The examples of the data set. */
  readonly count?: number
  readonly seed?: number
}

/** A stream of 32-bit numbers (mulberry32), the same everywhere. */
function numbersFrom(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let t = Math.imul(state ^ (state >>> 15), state | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return (t ^ (t >>> 14)) >>> 0
  }
}

/**
 * Batches of positions in a data set of `count` examples, for this member. All members get as many batches; examples that do not fill a
 * batch of all are left for another epoch's order.
 * @example
 * const sampler = new RankSampler(5, { batchSize: 2, shuffle: false })
 * sampler.next() // => [0, 1]
 * sampler.next() // => [2, 3]
 * sampler.next() // => [0, 1]
 * sampler.state // => { epoch: 1, position: 2, count: 5, seed: 0 }
 * sampler.length // => 2
 */
export class RankSampler {
  private epoch = 0
  private position = 0
  private order: Uint32Array | null = null
  private readonly rank: number
  private readonly size: number

  constructor(
    readonly count: number,
    private readonly options: RankSamplerOptions,
  ) {
    if (!Number.isSafeInteger(count) || count < 1)
      throw new mx.ArgumentError(
        "RankSampler",
        `count must be a positive integer, received ${describe(count)}`,
      )
    checkOptions("RankSampler", options, ["batchSize", "seed", "shuffle", "group"])
    const group = options.group ?? mx.distributed.init()
    this.rank = group.rank()
    this.size = group.size()
    const { batchSize, seed = 0 } = options
    if (!Number.isInteger(seed) || (seed !== (seed | 0) && seed !== seed >>> 0))
      throw new mx.ArgumentError(
        "RankSampler",
        `seed must be an integer of 32 bits, received ${describe(seed)}`,
      )
    if (!Number.isSafeInteger(batchSize) || batchSize < 1 || !(batchSize * this.size <= count))
      throw new mx.ArgumentError(
        "RankSampler",
        `expected a batchSize of which ${count} examples fill one batch for each of ${this.size} members, received ${describe(batchSize)}`,
      )
  }

  /** The number of batches of an epoch. */
  get length(): number {
    return Math.floor(this.count / (this.options.batchSize * this.size))
  }

  /** The next batch's positions. */
  next(): number[] {
    const { batchSize } = this.options
    if (this.position + batchSize * this.size > this.count) {
      this.epoch++
      this.position = 0
      this.order = null
    }
    this.order ??= this.orderOf(this.epoch)
    const begin = this.position + this.rank * batchSize
    this.position += batchSize * this.size
    return [...this.order.subarray(begin, begin + batchSize)]
  }

  get state(): SamplerState {
    const { epoch, position, count } = this
    return { epoch, position, count, seed: this.options.seed ?? 0 }
  }
  /**
   * Goes on from a state, perhaps of another number of members.
   * @throws ArgumentError for one of another number of examples or another seed, if it says so
   */
  set state({ epoch, position, count = this.count, seed }: SamplerState) {
    const isCount = (n: number): boolean => Number.isSafeInteger(n) && n >= 0
    if (!isCount(epoch) || !isCount(position))
      throw new mx.ArgumentError("RankSampler", "expected { epoch, position }, non-negative integers")
    const own = this.options.seed ?? 0
    if (count !== this.count || position > count || (seed ?? own) !== own)
      throw new mx.ArgumentError(
        "RankSampler",
        `a state at ${position} of ${count} examples, by the seed ${seed ?? own}, is not one of ${this.count} examples by the seed ${own}`,
      )
    this.epoch = epoch
    this.position = position
    this.order = null
  }

  private orderOf(epoch: number): Uint32Array {
    const order = Uint32Array.from({ length: this.count }, (_, i) => i)
    if (this.options.shuffle === false) return order
    const next = numbersFrom(
      Math.imul((this.options.seed ?? 0) + 1, 0x9e3779b1) ^ Math.imul(epoch + 1, 0x85ebca6b),
    )
    for (let i = this.count - 1; i > 0; i--) {
      const j = next() % (i + 1)
      ;[order[i], order[j]] = [order[j], order[i]]
    }
    return order
  }
}
