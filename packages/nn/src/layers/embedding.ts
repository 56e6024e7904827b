/**
 * Embeddings.
 */
import * as mx from "@lazuli/core"
import { ArgumentError, timesTransposed } from "@lazuli/core/engine"
import { called, named, under } from "../arguments"
import { Module } from "../module"
import {
  QuantizedEmbedding,
  type ToQuantizedOptions,
  toQuantizedArguments,
  withActivations,
} from "./quantized"

/**
 * Looks up rows of `weight` by index. `weight` is [numEmbeddings, dims], initialized from a normal distribution of variance 1/dims.
 * @example
 * new nn.Embedding(10, 4).forward(mx.array([1, 5, 1], mx.int32)).shape // => [3, 4]
 */
export class Embedding extends Module {
  weight: mx.Array

  constructor(numEmbeddings: number, dims: number)
  constructor(options: { numEmbeddings: number; dims: number })
  constructor(...args: unknown[]) {
    super()
    const [numEmbeddings, dims] = named<[number, number]>(
      "Embedding",
      { numEmbeddings: "size", dims: "count" },
      args,
    )
    this.weight = mx.random.normal([numEmbeddings, dims], { scale: Math.sqrt(1 / dims) })
  }

  forward(x: mx.Array): mx.Array {
    return called(this, { x }, () => mx.take(this.weight, x, 0))
  }

  /**
   * x Wᵀ: the embedding as an output projection with tied weights.
   * @example
   * new nn.Embedding(10, 4).asLinear(mx.ones([2, 4])).shape // => [2, 10]
   */
  asLinear(x: mx.Array): mx.Array {
    const { weight } = this
    return called(
      this,
      { x },
      () => timesTransposed(x, weight),
      () => ({ x: weight.node.shape[1] }),
    )
  }

  /**
   * * A quantized copy of this layer.
   * @throws ArgumentError for a format that `mx.quantize` does not have, and for `quantizeInput`: indices are not quantized
   * @example
   * new nn.Embedding(10, 64).toQuantized({ bits: 8 }).weight.shape // => [10, 16]
   */
  toQuantized(
    groupSize?: number | null,
    bits?: number | null,
    mode?: mx.QuantizationMode,
    quantizeInput?: boolean,
  ): QuantizedEmbedding
  toQuantized(options: ToQuantizedOptions): QuantizedEmbedding
  toQuantized(...args: unknown[]): QuantizedEmbedding {
    const { quantizeInput, activations, ...format } = toQuantizedArguments(args)
    if (quantizeInput) throw new ArgumentError("toQuantized", "an embedding has no input to quantize")
    return under("toQuantized", () =>
      withActivations(QuantizedEmbedding.fromEmbedding(this, format), activations),
    )
  }

  protected override extraRepr(): string {
    return this.weight.shape.join(", ")
  }
}
