/**
 * The transformer of https://arxiv.org/abs/1706.03762: encoder and decoder layers, stacks of them, and both together.
 */
import type * as mx from "@lazuli/core"
import { type Kind, parametersOf } from "@lazuli/core/engine"
import { type Activation, relu } from "../activations"
import { belowOne, callable, checkArrays, named, optional, under } from "../arguments"
import { checkpoint } from "../model-transforms"
import { type Model, Module } from "../module"
import { MultiHeadAttention } from "./attention"
import { Dropout } from "./dropout"
import { Linear } from "./linear"
import { LayerNorm } from "./normalization"

/** Options of one layer. */
export interface TransformerLayerOptions {
  /** Hidden features of the feed-forward layers; 4 · dims by default. */
  mlpDims?: number | null
  /** Dropout probability; 0 by default. */
  dropout?: number
  /** The activation of the feed-forward layers; `nn.relu` by default. */
  activation?: Activation
  /** Normalize before attention and feed-forward layers (the default) instead of after them. */
  normFirst?: boolean
}
/** Options of a stack of layers. */
export interface TransformerStackOptions extends TransformerLayerOptions {
  /** Use gradient checkpointing: recompute each layer's intermediate values in the backward pass. */
  checkpoint?: boolean
}
/** Options of {@link Transformer}. */
export interface TransformerOptions extends TransformerStackOptions {
  /** Features; 512 by default. */
  dims?: number
  /** Attention heads; 8 by default. */
  numHeads?: number
  /** 6 by default. */
  numEncoderLayers?: number
  /** 6 by default. */
  numDecoderLayers?: number
  /** A custom encoder. */
  customEncoder?: Encoder | null
  /** A custom decoder. */
  customDecoder?: Decoder | null
}
/** A model that can be the encoder of a {@link Transformer}. */
export type Encoder = Model<[x: mx.Array, mask?: mx.Array | null]>
/** A model that can be the decoder of a {@link Transformer}. */
export type Decoder = Model<
  [x: mx.Array, memory: mx.Array, xMask?: mx.Array | null, memoryMask?: mx.Array | null]
>

const LAYER = {
  dims: "count",
  numHeads: "count",
  mlpDims: "count?",
  dropout: optional(belowOne),
  activation: "function?",
  normFirst: "bool?",
} as const
/** A list of layers. */
const MAX_LAYERS = 1 << 16
const layerCount: Kind = {
  expected: `a non-negative integer of at most ${MAX_LAYERS}`,
  accepts: (value: unknown) =>
    Number.isInteger(value) && (value as number) >= 0 && (value as number) <= MAX_LAYERS,
}
const STACK = { numLayers: layerCount, ...LAYER, checkpoint: "bool?" } as const
const encoderCall = parametersOf({ mask: "array?" })
const decoderCall = parametersOf({ xMask: "array?", memoryMask: "array?" })
const transformerCall = parametersOf({ srcMask: "array?", tgtMask: "array?", memoryMask: "array?" })

/** A mask, or options with it. */
export type MaskOption = mx.Array | null | { mask?: mx.Array | null }
/** The mask of a decoder's input, or options with both masks. */
export type DecoderMasks = mx.Array | null | { xMask?: mx.Array | null; memoryMask?: mx.Array | null }
type LayerArguments = [number, number, (number | null)?, number?, Activation?, boolean?]
type StackArguments = [number, ...LayerArguments, boolean?]

/**
 * Self-attention and a feed-forward network, each with a residual connection and normalization.
 * @example
 * new nn.TransformerEncoderLayer(8, 2).forward(mx.ones([1, 5, 8])).shape // => [1, 5, 8]
 */
export class TransformerEncoderLayer extends Module {
  attention: MultiHeadAttention
  ln1: LayerNorm
  ln2: LayerNorm
  linear1: Linear
  linear2: Linear
  dropout1: Dropout
  dropout2: Dropout
  activation: Activation
  normFirst: boolean

  constructor(
    dims: number,
    numHeads: number,
    mlpDims?: number | null,
    dropout?: number,
    activation?: Activation,
    normFirst?: boolean,
  )
  constructor(dims: number, numHeads: number, options: TransformerLayerOptions)
  constructor(options: { dims: number; numHeads: number } & TransformerLayerOptions)
  constructor(...args: unknown[]) {
    super()
    const [dims, numHeads, mlpDims = dims * 4, dropout = 0, activation = relu, normFirst = true] =
      named<LayerArguments>("TransformerEncoderLayer", LAYER, args)
    this.attention = under("TransformerEncoderLayer", () => new MultiHeadAttention(dims, numHeads))
    this.ln1 = new LayerNorm(dims)
    this.ln2 = new LayerNorm(dims)
    this.linear1 = new Linear(dims, mlpDims)
    this.linear2 = new Linear(mlpDims, dims)
    this.dropout1 = new Dropout(dropout)
    this.dropout2 = new Dropout(dropout)
    this.activation = activation
    this.normFirst = normFirst
  }

  /**
   * @param x - [batch, length, dims]
   * @param mask - as in {@link MultiHeadAttention}
   */
  forward(x: mx.Array, mask?: MaskOption): mx.Array
  forward(x: mx.Array, ...args: unknown[]): mx.Array {
    const [mask] = named<[mx.Array?]>(this.constructor.name, encoderCall, args)
    checkArrays(this, { x })
    const attend = (y: mx.Array): mx.Array => this.dropout1.forward(this.attention.forward(y, y, y, mask))
    const transform = (y: mx.Array): mx.Array =>
      this.linear2.forward(this.dropout2.forward(this.activation(this.linear1.forward(y))))
    if (this.normFirst) {
      const y = x.add(attend(this.ln1.forward(x)))
      return y.add(transform(this.ln2.forward(y)))
    }
    const y = this.ln1.forward(x.add(attend(x)))
    return this.ln2.forward(y.add(transform(y)))
  }
}

/**
 * A stack of {@link TransformerEncoderLayer}s and a final normalization.
 * @example
 * new nn.TransformerEncoder(2, 8, 2).forward(mx.ones([1, 5, 8])).shape // => [1, 5, 8]
 */
export class TransformerEncoder extends Module {
  layers: TransformerEncoderLayer[]
  ln: LayerNorm
  checkpoint: boolean

  constructor(
    numLayers: number,
    dims: number,
    numHeads: number,
    mlpDims?: number | null,
    dropout?: number,
    activation?: Activation,
    normFirst?: boolean,
    checkpoint?: boolean,
  )
  constructor(numLayers: number, dims: number, numHeads: number, options: TransformerStackOptions)
  constructor(options: { numLayers: number; dims: number; numHeads: number } & TransformerStackOptions)
  constructor(...args: unknown[]) {
    super()
    const [numLayers, dims, numHeads, mlpDims, dropout, activation, normFirst, checkpointed = false] =
      named<StackArguments>("TransformerEncoder", STACK, args)
    this.layers = under("TransformerEncoder", () =>
      Array.from(
        { length: numLayers },
        () => new TransformerEncoderLayer(dims, numHeads, mlpDims, dropout, activation, normFirst),
      ),
    )
    this.ln = new LayerNorm(dims)
    this.checkpoint = checkpointed
  }

  /** As in {@link TransformerEncoderLayer}. */
  forward(x: mx.Array, mask?: MaskOption): mx.Array
  forward(x: mx.Array, ...args: unknown[]): mx.Array {
    const [mask] = named<[mx.Array?]>(this.constructor.name, encoderCall, args)
    checkArrays(this, { x })
    let y = x
    for (const layer of this.layers) y = this.checkpoint ? checkpoint(layer)(y, mask) : layer.forward(y, mask)
    return this.ln.forward(y)
  }
}

/**
 * Self-attention, cross-attention to a memory and a feed-forward network, each with a residual connection and normalization.
 * @example
 * new nn.TransformerDecoderLayer(8, 2).forward(mx.ones([1, 5, 8]), mx.ones([1, 7, 8])).shape // => [1, 5, 8]
 */
export class TransformerDecoderLayer extends Module {
  selfAttention: MultiHeadAttention
  crossAttention: MultiHeadAttention
  ln1: LayerNorm
  ln2: LayerNorm
  ln3: LayerNorm
  linear1: Linear
  linear2: Linear
  dropout1: Dropout
  dropout2: Dropout
  dropout3: Dropout
  activation: Activation
  normFirst: boolean

  constructor(
    dims: number,
    numHeads: number,
    mlpDims?: number | null,
    dropout?: number,
    activation?: Activation,
    normFirst?: boolean,
  )
  constructor(dims: number, numHeads: number, options: TransformerLayerOptions)
  constructor(options: { dims: number; numHeads: number } & TransformerLayerOptions)
  constructor(...args: unknown[]) {
    super()
    const [dims, numHeads, mlpDims = dims * 4, dropout = 0, activation = relu, normFirst = true] =
      named<LayerArguments>("TransformerDecoderLayer", LAYER, args)
    const attention = (): MultiHeadAttention =>
      under("TransformerDecoderLayer", () => new MultiHeadAttention(dims, numHeads))
    this.selfAttention = attention()
    this.crossAttention = attention()
    this.ln1 = new LayerNorm(dims)
    this.ln2 = new LayerNorm(dims)
    this.ln3 = new LayerNorm(dims)
    this.linear1 = new Linear(dims, mlpDims)
    this.linear2 = new Linear(mlpDims, dims)
    this.dropout1 = new Dropout(dropout)
    this.dropout2 = new Dropout(dropout)
    this.dropout3 = new Dropout(dropout)
    this.activation = activation
    this.normFirst = normFirst
  }

  /**
   * @param x - [batch, length, dims]
   * @param memory - [batch, memory length, dims], the encoder's output
   */
  forward(x: mx.Array, memory: mx.Array, xMask?: DecoderMasks, memoryMask?: mx.Array | null): mx.Array
  forward(x: mx.Array, memory: mx.Array, ...args: unknown[]): mx.Array {
    const [xMask, memoryMask] = named<[mx.Array?, mx.Array?]>(this.constructor.name, decoderCall, args)
    checkArrays(this, { x, memory })
    const attend = (y: mx.Array): mx.Array =>
      this.dropout1.forward(this.selfAttention.forward(y, y, y, xMask))
    const recall = (y: mx.Array): mx.Array =>
      this.dropout2.forward(this.crossAttention.forward(y, memory, memory, memoryMask))
    const transform = (y: mx.Array): mx.Array =>
      this.linear2.forward(this.dropout3.forward(this.activation(this.linear1.forward(y))))
    if (this.normFirst) {
      const y = x.add(attend(this.ln1.forward(x)))
      const z = y.add(recall(this.ln2.forward(y)))
      return z.add(transform(this.ln3.forward(z)))
    }
    const y = this.ln1.forward(x.add(attend(x)))
    const z = this.ln2.forward(y.add(recall(y)))
    return this.ln3.forward(z.add(transform(z)))
  }
}

/**
 * A stack of {@link TransformerDecoderLayer}s and a final normalization.
 * @example
 * new nn.TransformerDecoder(2, 8, 2).forward(mx.ones([1, 5, 8]), mx.ones([1, 7, 8])).shape // => [1, 5, 8]
 */
export class TransformerDecoder extends Module {
  layers: TransformerDecoderLayer[]
  ln: LayerNorm
  checkpoint: boolean

  constructor(
    numLayers: number,
    dims: number,
    numHeads: number,
    mlpDims?: number | null,
    dropout?: number,
    activation?: Activation,
    normFirst?: boolean,
    checkpoint?: boolean,
  )
  constructor(numLayers: number, dims: number, numHeads: number, options: TransformerStackOptions)
  constructor(options: { numLayers: number; dims: number; numHeads: number } & TransformerStackOptions)
  constructor(...args: unknown[]) {
    super()
    const [numLayers, dims, numHeads, mlpDims, dropout, activation, normFirst, checkpointed = false] =
      named<StackArguments>("TransformerDecoder", STACK, args)
    this.layers = under("TransformerDecoder", () =>
      Array.from(
        { length: numLayers },
        () => new TransformerDecoderLayer(dims, numHeads, mlpDims, dropout, activation, normFirst),
      ),
    )
    this.ln = new LayerNorm(dims)
    this.checkpoint = checkpointed
  }

  /** As in {@link TransformerDecoderLayer}. */
  forward(x: mx.Array, memory: mx.Array, xMask?: DecoderMasks, memoryMask?: mx.Array | null): mx.Array
  forward(x: mx.Array, memory: mx.Array, ...args: unknown[]): mx.Array {
    const [xMask, memoryMask] = named<[mx.Array?, mx.Array?]>(this.constructor.name, decoderCall, args)
    checkArrays(this, { x, memory })
    let y = x
    for (const layer of this.layers)
      y = this.checkpoint
        ? checkpoint(layer)(y, memory, xMask, memoryMask)
        : layer.forward(y, memory, xMask, memoryMask)
    return this.ln.forward(y)
  }
}

/**
 * An encoder and a decoder that attends to its output.
 * @example
 * const model = new nn.Transformer({ dims: 8, numHeads: 2, numEncoderLayers: 1, numDecoderLayers: 1 })
 * model.forward(mx.ones([1, 5, 8]), mx.ones([1, 7, 8])).shape // => [1, 7, 8]
 */
export class Transformer extends Module {
  encoder: Encoder
  decoder: Decoder

  constructor(
    dims?: number,
    numHeads?: number,
    numEncoderLayers?: number,
    numDecoderLayers?: number,
    mlpDims?: number | null,
    dropout?: number,
    activation?: Activation,
    customEncoder?: Encoder | null,
    customDecoder?: Decoder | null,
    normFirst?: boolean,
    checkpoint?: boolean,
  )
  constructor(dims: number, options: Omit<TransformerOptions, "dims">)
  constructor(options: TransformerOptions)
  constructor(...args: unknown[]) {
    super()
    const [
      dims = 512,
      numHeads = 8,
      numEncoderLayers = 6,
      numDecoderLayers = 6,
      mlpDims,
      dropout,
      activation,
      customEncoder,
      customDecoder,
      normFirst,
      checkpointed,
    ] = named<
      [
        number?,
        number?,
        number?,
        number?,
        (number | null)?,
        number?,
        Activation?,
        (Encoder | null)?,
        (Decoder | null)?,
        boolean?,
        boolean?,
      ]
    >(
      "Transformer",
      {
        dims: "count?",
        numHeads: "count?",
        numEncoderLayers: optional(layerCount),
        numDecoderLayers: optional(layerCount),
        mlpDims: "count?",
        dropout: optional(belowOne),
        activation: "function?",
        customEncoder: optional(callable),
        customDecoder: optional(callable),
        normFirst: "bool?",
        checkpoint: "bool?",
      },
      args,
    )
    const layers = [dims, numHeads, mlpDims, dropout, activation, normFirst, checkpointed] as const
    this.encoder = under(
      "Transformer",
      () => customEncoder ?? new TransformerEncoder(numEncoderLayers, ...layers),
    )
    this.decoder = under(
      "Transformer",
      () => customDecoder ?? new TransformerDecoder(numDecoderLayers, ...layers),
    )
  }

  /**
   * @param src - the encoder's input, [batch, source length, dims]
   * @param tgt - the decoder's input, [batch, target length, dims]
   */
  forward(
    src: mx.Array,
    tgt: mx.Array,
    srcMask?:
      | mx.Array
      | null
      | { srcMask?: mx.Array | null; tgtMask?: mx.Array | null; memoryMask?: mx.Array | null },
    tgtMask?: mx.Array | null,
    memoryMask?: mx.Array | null,
  ): mx.Array
  forward(src: mx.Array, tgt: mx.Array, ...args: unknown[]): mx.Array {
    const [srcMask, tgtMask, memoryMask] = named<[mx.Array?, mx.Array?, mx.Array?]>(
      this.constructor.name,
      transformerCall,
      args,
    )
    checkArrays(this, { src, tgt })
    return this.decoder.forward(tgt, this.encoder.forward(src, srcMask), tgtMask, memoryMask)
  }
}
