/**
 * Multi-head attention. The attention itself is `mx.fast.scaledDotProductAttention`; here are the projections around it.
 */
import * as mx from "@lazuli/core"
import { ArgumentError, asCall, parametersOf } from "@lazuli/core/engine"
import { called, named } from "../arguments"
import { Module } from "../module"
import { Linear } from "./linear"

/** Sizes of {@link MultiHeadAttention} that differ from `dims`, and whether its projections have biases. */
export interface AttentionOptions {
  /** Features of the queries; `dims` by default. */
  queryInputDims?: number | null
  /** Features of the keys; `dims` by default. */
  keyInputDims?: number | null
  /** Features of the values; those of the keys by default. */
  valueInputDims?: number | null
  /** Features of the values after their projection; `dims` by default. */
  valueDims?: number | null
  /** Features of the output; `dims` by default. */
  valueOutputDims?: number | null
  /** Add biases to the projections; false by default. */
  bias?: boolean
}

const attentionCall = parametersOf({ mask: "array?" })

/** The smallest finite value of a floating dtype: a mask with −∞ would make a fully masked row NaN. */
function lowest(dtype: mx.Dtype): number {
  if (dtype === mx.float16) return -65504
  if (dtype === mx.bfloat16) return -3.3895313892515355e38
  return dtype === mx.float64 ? -Number.MAX_VALUE : -3.4028234663852886e38
}

/** Attention of heads [batch, heads, length, d], scaled by 1 / √d. One call: a trace for any sizes finds d anew. */
const attend = asCall(
  "@lazuli/nn/attend",
  (q: mx.Array, k: mx.Array, v: mx.Array, mask: mx.Array | null): mx.Array =>
    mx.fast.scaledDotProductAttention(q, k, v, { scale: Math.sqrt(1 / (q.shape[3] ?? 1)), mask }),
)

/**
 * softmax(Q Kᵀ / √d + mask) V for each of several heads, with linear projections before and after.
 * https://arxiv.org/abs/1706.03762
 * @throws ArgumentError unless dims is divisible by numHeads
 * @example
 * const x = mx.ones([1, 5, 8])
 * new nn.MultiHeadAttention(8, 2).forward(x, x, x).shape // => [1, 5, 8]
 */
export class MultiHeadAttention extends Module {
  numHeads: number
  queryProj: Linear
  keyProj: Linear
  valueProj: Linear
  outProj: Linear

  constructor(
    dims: number,
    numHeads: number,
    queryInputDims?: number | null,
    keyInputDims?: number | null,
    valueInputDims?: number | null,
    valueDims?: number | null,
    valueOutputDims?: number | null,
    bias?: boolean,
  )
  constructor(dims: number, numHeads: number, options: AttentionOptions)
  constructor(options: { dims: number; numHeads: number } & AttentionOptions)
  constructor(...args: unknown[]) {
    super()
    const [dims, numHeads, queryInput, keyInput, valueInput, value, valueOutput, bias = false] = named<
      [
        number,
        number,
        (number | null)?,
        (number | null)?,
        (number | null)?,
        (number | null)?,
        (number | null)?,
        boolean?,
      ]
    >(
      "MultiHeadAttention",
      {
        dims: "count",
        numHeads: "count",
        queryInputDims: "count?",
        keyInputDims: "count?",
        valueInputDims: "count?",
        valueDims: "count?",
        valueOutputDims: "count?",
        bias: "bool?",
      },
      args,
    )
    if (dims % numHeads !== 0)
      throw new ArgumentError(
        "MultiHeadAttention",
        `dims must be divisible by numHeads, received ${dims} and ${numHeads}`,
      )
    const keyDims = keyInput ?? dims
    const valueDims = value ?? dims
    if (valueDims % numHeads !== 0)
      throw new ArgumentError(
        "MultiHeadAttention",
        `valueDims must be divisible by numHeads, received ${valueDims} and ${numHeads}`,
      )
    this.numHeads = numHeads
    this.queryProj = new Linear(queryInput ?? dims, dims, bias)
    this.keyProj = new Linear(keyDims, dims, bias)
    this.valueProj = new Linear(valueInput ?? keyDims, valueDims, bias)
    this.outProj = new Linear(valueDims, valueOutput ?? dims, bias)
  }

  /**
   * @param queries - [batch, length, queryInputDims]
   * @param keys - [batch, memory length, keyInputDims]
   * @param values - [batch, memory length, valueInputDims]
   * @param mask - added to the scores, or true where attention may look; broadcast to [batch, heads, length, memory length]
   */
  forward(
    queries: mx.Array,
    keys: mx.Array,
    values: mx.Array,
    mask?: mx.Array | null | { mask?: mx.Array | null },
  ): mx.Array
  forward(queries: mx.Array, keys: mx.Array, values: mx.Array, ...args: unknown[]): mx.Array {
    const [mask] = named<[mx.Array?]>(this.constructor.name, attentionCall, args)
    return called(
      this,
      { queries, keys, values },
      () => this.attend(queries, keys, values, mask),
      () => ({
        queries: this.queryProj.weight.node.shape[1],
        keys: this.keyProj.weight.node.shape[1],
        values: this.valueProj.weight.node.shape[1],
      }),
    )
  }

  private attend(queries: mx.Array, keys: mx.Array, values: mx.Array, mask?: mx.Array): mx.Array {
    const heads = (x: mx.Array): mx.Array => x.unflatten(-1, [this.numHeads, -1]).transpose([0, 2, 1, 3])
    const q = heads(this.queryProj.forward(queries))
    const k = heads(this.keyProj.forward(keys))
    const v = heads(this.valueProj.forward(values))
    const y = attend(q, k, v, mask ?? null)
    return this.outProj.forward(y.transpose([0, 2, 1, 3]).flatten(-2, -1))
  }

  /**
   * A mask that lets position i look at positions 0 … i: 0 there, the lowest value of the dtype elsewhere.
   * @example
   * nn.MultiHeadAttention.createAdditiveCausalMask(2).index(1).tolist() // => [0, 0]
   */
  static createAdditiveCausalMask(this: void, n: number, dtype?: mx.Dtype | { dtype?: mx.Dtype }): mx.Array
  static createAdditiveCausalMask(this: void, ...args: unknown[]): mx.Array {
    const [n, dtype = mx.float32] = named<[number, mx.Dtype?]>(
      "createAdditiveCausalMask",
      { n: "size", dtype: "dtype?" },
      args,
    )
    const positions = mx.arange(n)
    const hidden = positions.expandDims(1).less(positions.expandDims(0))
    return hidden.astype(dtype).multiply(lowest(dtype))
  }
}
