/**
 * Positional encodings.
 */
import * as mx from "@lazuli/core"
import { ArgumentError, asCall, format, isPlainObject, parametersOf, ShapeError } from "@lazuli/core/engine"
import { called, check, named } from "../arguments"
import { Module } from "../module"

const ropeCall = parametersOf({ offset: "operand?" })

/**
 * Rotary positional encoding: rotates pairs of features by angles proportional to the position, which is the second-to-last axis.
 * https://arxiv.org/abs/2104.09864
 * @example
 * new nn.RoPE(4).forward(mx.ones([1, 3, 4])).shape // => [1, 3, 4]
 */
export class RoPE extends Module {
  dims: number
  traditional: boolean
  base: number
  scale: number

  constructor(dims: number, traditional?: boolean, base?: number, scale?: number)
  constructor(dims: number, options: { traditional?: boolean; base?: number; scale?: number })
  constructor(options: { dims: number; traditional?: boolean; base?: number; scale?: number })
  constructor(...args: unknown[]) {
    super()
    const [dims, traditional = false, base = 10000, scale = 1] = named<[number, boolean?, number?, number?]>(
      "RoPE",
      { dims: "count", traditional: "bool?", base: "positive?", scale: "finite?" },
      args,
    )
    this.dims = dims
    this.traditional = traditional
    this.base = base
    this.scale = scale
  }

  /** @param offset - the position of the first token */
  forward(x: mx.Array, offset?: number | mx.Array | { offset?: number | mx.Array }): mx.Array
  forward(x: mx.Array, ...args: unknown[]): mx.Array {
    const [offset = 0] = named<[(number | mx.Array)?]>(this.constructor.name, ropeCall, args)
    const { dims, traditional, base, scale } = this
    return called(this, { x }, () => mx.fast.rope(x, dims, { traditional, base, scale, offset }))
  }

  protected override extraRepr(): string {
    return `${this.dims}, traditional=${this.traditional}`
  }
}

/**
 * Sines and cosines of positions at dims / 2 frequencies. https://arxiv.org/abs/1706.03762
 * @throws ArgumentError unless dims is positive and even
 * @example
 * new nn.SinusoidalPositionalEncoding(4).forward(mx.arange(3)).shape // => [3, 4]
 */
export class SinusoidalPositionalEncoding extends Module {
  /** Angular frequencies; not a parameter. @internal */
  _sigmas: mx.Array
  scale: number
  cosFirst: boolean

  constructor(
    dims: number,
    minFreq?: number,
    maxFreq?: number,
    scale?: number | null,
    cosFirst?: boolean,
    fullTurns?: boolean,
  )
  constructor(
    dims: number,
    options: {
      minFreq?: number
      maxFreq?: number
      scale?: number | null
      cosFirst?: boolean
      fullTurns?: boolean
    },
  )
  constructor(options: {
    dims: number
    minFreq?: number
    maxFreq?: number
    scale?: number | null
    cosFirst?: boolean
    fullTurns?: boolean
  })
  constructor(...args: unknown[]) {
    super()
    const [dims, minFreq = 0.0001, maxFreq = 1, scale, cosFirst = false, fullTurns = false] = named<
      [number, number?, number?, (number | null)?, boolean?, boolean?]
    >(
      "SinusoidalPositionalEncoding",
      {
        dims: "count",
        minFreq: "positive?",
        maxFreq: "positive?",
        scale: "finite?",
        cosFirst: "bool?",
        fullTurns: "bool?",
      },
      args,
    )
    if (dims % 2 !== 0)
      throw new ArgumentError(
        "SinusoidalPositionalEncoding",
        `dims must be positive and even, received ${dims}`,
      )
    const half = dims / 2
    const [low, high] = [Math.log(minFreq), Math.log(maxFreq)]
    // From 1 down to 0: frequencies are in descending order.
    const fraction = mx.subtract(1, mx.arange(half).divide(Math.max(1, half - 1)))
    const sigmas = fraction
      .multiply(high - low)
      .add(low)
      .exp()
    this._sigmas = fullTurns ? sigmas.multiply(2 * Math.PI) : sigmas
    this.scale = scale ?? Math.sqrt(2 / dims)
    this.cosFirst = cosFirst
  }

  forward(x: mx.Array): mx.Array {
    return called(this, { x }, () => {
      const angle = x.expandDims(-1).multiply(this._sigmas)
      const [sine, cosine] = [angle.sin(), angle.cos()]
      const y = mx.concatenate(this.cosFirst ? [cosine, sine] : [sine, cosine], -1)
      return this.scale === 1 ? y : y.multiply(this.scale)
    })
  }
}

function alibiSlopes(heads: number): number[] {
  const n = 2 ** Math.floor(Math.log2(heads))
  const slopes = globalThis.Array.from({ length: n }, (_, k) => 2 ** ((-8 * (k + 1)) / n))
  for (let k = 0; slopes.length < heads; k += 2) slopes.push(2 ** ((-8 * (k + 1)) / (2 * n)))
  return slopes
}

const alibiSlope = (heads: number, dtype: mx.Dtype): mx.Array =>
  mx.array(alibiSlopes(heads)).reshape([-1, 1, 1]).astype(dtype)

function alibiMatrix(
  queries: number,
  keys: number,
  heads: number,
  offset: number,
  dtype: mx.Dtype,
): mx.Array {
  const distance = mx.arange(offset, queries).expandDims(1).subtract(mx.arange(keys)).abs().negative()
  return distance.multiply(alibiSlope(heads, dtype)).expandDims(0).astype(dtype)
}

const alibiOf = asCall("@lazuli/nn/alibi", (scores: mx.Array, offset: number): mx.Array => {
  const [, heads, queries, keys] = scores.shape
  return alibiMatrix(queries + offset, keys, heads, offset, scores.dtype)
})

const alibiCall = parametersOf({ offset: "size?", mask: "array?" })

/**
 * Attention with linear biases: adds −slope · |i − j| to the score of query i and key j, with one slope per head.
 * https://arxiv.org/abs/2108.12409
 * @example
 * new nn.ALiBi().forward(mx.zeros([1, 2, 3, 3])).shape // => [1, 2, 3, 3]
 */
export class ALiBi extends Module {
  /** One slope per head, as [numHeads, 1, 1]: 2^(−8 k / n), for n the power of two below numHeads, then those between for 2n. */
  static createAlibiSlope(this: void, numHeads: number, dtype: mx.Dtype = mx.float32): mx.Array {
    check("createAlibiSlope", { numHeads: "count", dtype: "dtype" }, numHeads, dtype)
    return alibiSlope(numHeads, dtype)
  }

  /**
   * The biases for all pairs of positions, as [1, numHeads, queries, keys]. Omits the first `offset` queries.
   * @example
   * nn.ALiBi.createAlibiMatrix(2, 2, 8, 0).shape // => [1, 8, 2, 2]
   */
  static createAlibiMatrix(
    this: void,
    qSequenceLength: number,
    kSequenceLength: number,
    numHeads: number,
    offset: number | { offset: number; dtype?: mx.Dtype },
    dtype: mx.Dtype = mx.float32,
  ): mx.Array {
    const options = isPlainObject(offset) ? { dtype, ...offset } : { offset, dtype }
    check(
      "createAlibiMatrix",
      {
        qSequenceLength: "size",
        kSequenceLength: "size",
        numHeads: "count",
        offset: "size",
        dtype: "dtype",
      },
      qSequenceLength,
      kSequenceLength,
      numHeads,
      options.offset,
      options.dtype,
    )
    return alibiMatrix(qSequenceLength, kSequenceLength, numHeads, options.offset, options.dtype)
  }

  /**
   * @param attentionScores - [batch, heads, queries, keys]
   * @param offset - the position of the first query
   * @param mask - also added
   */
  forward(attentionScores: mx.Array, offset?: number, mask?: mx.Array | null): mx.Array
  forward(attentionScores: mx.Array, options: { offset?: number; mask?: mx.Array | null }): mx.Array
  forward(attentionScores: mx.Array, ...args: unknown[]): mx.Array {
    const [offset = 0, mask] = named<[number?, mx.Array?]>(this.constructor.name, alibiCall, args)
    return called(this, { attentionScores }, () => {
      const { shape } = attentionScores.node
      if (shape.length !== 4)
        throw new ShapeError(
          "ALiBi",
          `attentionScores must be [batch, heads, queries, keys], received shape ${format(shape)}`,
        )
      const biases = alibiOf(attentionScores, offset)
      return attentionScores.add(mask ? biases.add(mask) : biases)
    })
  }
}
