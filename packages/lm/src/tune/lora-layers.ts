/**
 * Layers with low-rank adapters (LoRA): y = W x + scale · B A x, with frozen W, quantized or not. The arrays have the layouts of mlx-lm's
 * files. Hu et al., 2021: https://arxiv.org/abs/2106.09685
 */
import * as mx from "@lazuli/core"
import * as nn from "@lazuli/nn"
import { COUNT, checkKind, FINITE, FRACTION } from "../argument-kinds"
import { isPacked, type PackedLayer } from "../formats/packed"
import { QuantizedSwitchLinear, SwitchLinear } from "../models/experts"

/** A layer that may have an adapter. */
export type Adaptable = nn.Linear | nn.Embedding | SwitchLinear | PackedLayer

type AnyLinear = nn.Linear | nn.QuantizedLinear
type AnyEmbedding = nn.Embedding | nn.QuantizedEmbedding
type AnySwitch = SwitchLinear | QuantizedSwitchLinear

export const isLinear = (module: unknown): module is AnyLinear =>
  module instanceof nn.Linear || module instanceof nn.QuantizedLinear
const isEmbedding = (module: unknown): module is AnyEmbedding =>
  module instanceof nn.Embedding || module instanceof nn.QuantizedEmbedding
const isSwitch = (module: unknown): module is AnySwitch =>
  module instanceof SwitchLinear || module instanceof QuantizedSwitchLinear

export const isAdaptable = (module: unknown): module is Adaptable =>
  isLinear(module) || isEmbedding(module) || isSwitch(module)

/** A layer's weight in float32. */
export function weightOf(layer: Adaptable): mx.Array {
  if (!isPacked(layer)) return layer.weight.astype(mx.float32)
  const { weight, scales, biases, groupSize, bits, mode } = layer
  const exact = (x: mx.Array): mx.Array => (x.dtype.kind === "floating" ? x.astype(mx.float32) : x)
  const format = { groupSize, bits, mode, dtype: mx.float32 }
  return mx.dequantize(weight, exact(scales), biases && exact(biases), format)
}

/** The shape of a layer's weight, which may be packed. */
function shapeOf(layer: Adaptable): number[] {
  const { shape } = layer.weight
  const columns = shape[shape.length - 1]
  return [...shape.slice(0, -1), isPacked(layer) ? (columns * 32) / layer.bits : columns]
}

/** The shapes of an adapter's arrays. */
export function adapterShapes(layer: Adaptable, rank: number): [a: number[], b: number[]] {
  const shape = shapeOf(layer)
  const [out, inner] = shape.slice(-2)
  if (isSwitch(layer))
    return [
      [shape[0], rank, inner],
      [shape[0], out, rank],
    ]
  return isEmbedding(layer)
    ? [
        [out, rank],
        [rank, inner],
      ]
    : [
        [inner, rank],
        [rank, out],
      ]
}

/** A layer that is not quantized, with a given weight and otherwise like another one. */
function withWeight(layer: Adaptable, weight: mx.Array): nn.Linear | nn.Embedding | SwitchLinear {
  // The weights that they are created with are never computed.
  const [inner, out] = [weight.shape[weight.ndim - 1], weight.shape[weight.ndim - 2]]
  const made = isSwitch(layer)
    ? new SwitchLinear(1, 1, 1)
    : isEmbedding(layer)
      ? new nn.Embedding(out, inner)
      : new nn.Linear(inner, out, false)
  made.weight = weight
  if (isLinear(layer) && layer.bias) (made as nn.Linear).bias = layer.bias
  return made
}

/** A layer with an adapter, of which only `loraA` and `loraB` are trained. */
export abstract class Adapter extends nn.Module {
  loraA: mx.Array
  loraB: mx.Array
  scale: number
  readonly dropout?: nn.Dropout

  protected constructor(layer: Adaptable, rank: number, scale: number, dropout: number) {
    super()
    const [a, b] = adapterShapes(layer, rank)
    const bound = 1 / Math.sqrt(isSwitch(layer) ? a[2] : a[0])
    this.loraA = mx.random.uniform(-bound, bound, a)
    this.loraB = mx.zeros(b)
    this.scale = scale
    if (dropout > 0) this.dropout = new nn.Dropout(dropout)
  }

  /** The layer without the adapter. */
  abstract get layer(): Adaptable
  /** The axes of `loraA` and `loraB` that the rank is the size of. */
  get rankAxes(): readonly [number, number] {
    return [1, 0]
  }
  get rank(): number {
    return this.loraA.shape[this.rankAxes[0]]
  }
  /** The adapter's share of the weight, in float32. */
  abstract get delta(): mx.Array

  /** The adapter's arrays in float32. */
  protected get exact(): [a: mx.Array, b: mx.Array] {
    return [this.loraA.astype(mx.float32), this.loraB.astype(mx.float32)]
  }
  protected dropped(x: mx.Array): mx.Array {
    return (this.dropout ? this.dropout.forward(x) : x).astype(this.loraA.dtype)
  }
  protected plus(y: mx.Array, added: mx.Array): mx.Array {
    return y.add(added.multiply(this.scale).astype(y.dtype))
  }

  /**
   * The layer with the adapter merged into its weight. A quantized one becomes dense, since codes of few bits cannot hold a small
   * change, unless it is `requantized`.
   * @param dtype - dtype of a dense weight whose layer has codes as scales
   */
  fused(requantized = false, dtype: mx.Dtype = mx.bfloat16): Adaptable {
    const { layer } = this
    const own = (isPacked(layer) ? layer.scales : layer.weight).dtype
    // The sum is rounded once.
    const sum = weightOf(layer).add(this.delta)
    const dense = withWeight(layer, sum.astype(own.kind === "floating" ? own : dtype))
    if (!isPacked(layer) || !requantized) return dense
    const { groupSize, bits, mode } = layer
    return dense.toQuantized({ groupSize, bits, mode }) as PackedLayer
  }
}

/**
 * A linear layer with an adapter. Only `loraA` [in, rank] and `loraB` [rank, out] are trained.
 * @example
 * const layer = new LoraLinear(new nn.Linear(4, 3), 2, 20)
 * layer.forward(mx.ones([1, 4])).shape // => [1, 3]
 */
export class LoraLinear extends Adapter {
  linear: AnyLinear

  constructor(linear: AnyLinear, rank: number, scale: number, dropout = 0) {
    const expected = "an nn.Linear or nn.QuantizedLinear"
    checkKind("LoraLinear", "the layer", linear, { expected, accepts: isLinear })
    checkKind("LoraLinear", "rank", rank, COUNT)
    checkKind("LoraLinear", "scale", scale, FINITE)
    checkKind("LoraLinear", "dropout", dropout, FRACTION)
    super(linear, rank, scale, dropout)
    this.linear = linear
  }
  get layer(): AnyLinear {
    return this.linear
  }
  forward(x: mx.Array): mx.Array {
    const added = mx.matmul(mx.matmul(this.dropped(x), this.loraA), this.loraB)
    return this.plus(this.linear.forward(x), added)
  }
  /** The adapter's share of the weight [out, in], in float32. */
  get delta(): mx.Array {
    const [a, b] = this.exact
    return mx.matmul(a, b).T.multiply(this.scale)
  }
}

/** Linear layers of experts with an adapter each: `loraA` [experts, rank, in] and `loraB` [experts, out, rank]. */
export class LoraSwitchLinear extends Adapter {
  linear: AnySwitch

  constructor(linear: AnySwitch, rank: number, scale: number, dropout: number) {
    super(linear, rank, scale, dropout)
    this.linear = linear
  }
  get layer(): AnySwitch {
    return this.linear
  }
  override get rankAxes(): readonly [number, number] {
    return [1, 2]
  }
  forward(x: mx.Array, chosen: mx.Array): mx.Array {
    const by = (rows: mx.Array, weights: mx.Array): mx.Array =>
      mx.gatherMm(rows, weights.swapaxes(-1, -2), { rhsIndices: chosen })
    return this.plus(this.linear.forward(x, chosen), by(by(this.dropped(x), this.loraA), this.loraB))
  }
  get delta(): mx.Array {
    const [a, b] = this.exact
    return mx.matmul(b, a).multiply(this.scale)
  }
}

/** An embedding with an adapter, also as a head with tied weights: `loraA` [tokens, rank] and `loraB` [rank, dims]. */
export class LoraEmbedding extends Adapter {
  embedding: AnyEmbedding

  constructor(embedding: AnyEmbedding, rank: number, scale: number, dropout: number) {
    super(embedding, rank, scale, dropout)
    this.embedding = embedding
  }
  get layer(): AnyEmbedding {
    return this.embedding
  }
  forward(tokens: mx.Array): mx.Array {
    const added = mx.matmul(mx.take(this.loraA, tokens, 0), this.loraB)
    return this.plus(this.embedding.forward(tokens), this.dropped(added))
  }
  asLinear(x: mx.Array): mx.Array {
    const added = mx.matmul(mx.matmul(this.dropped(x), this.loraB.T), this.loraA.T)
    return this.plus(this.embedding.asLinear(x), added)
  }
  get delta(): mx.Array {
    const [a, b] = this.exact
    return mx.matmul(a, b).multiply(this.scale)
  }
}

/** A layer with a new adapter, which changes nothing until it is trained. */
export function adapted(layer: Adaptable, rank: number, scale: number, dropout: number): Adapter {
  if (isSwitch(layer)) return new LoraSwitchLinear(layer, rank, scale, dropout)
  if (isEmbedding(layer)) return new LoraEmbedding(layer, rank, scale, dropout)
  return new LoraLinear(layer, rank, scale, dropout)
}
