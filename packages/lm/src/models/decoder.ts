/**
 * The decoder of nearly all families: embeddings, blocks of attention and feed-forward networks, a norm and a head. A family describes its
 * variant by a {@link DecoderPlan}.
 */
import * as mx from "@lazuli/core"
import * as nn from "@lazuli/nn"
import { checkKind, OBJECT } from "../argument-kinds"
import type { Pass } from "./attend"
import { type Cache, type LayerCache, type LayerShape, tidyBeside } from "./cache"
import { Attention, type AttentionSizes, type MakeNorm } from "./layers"
import { CausalNetwork } from "./network"

/** The position of norms in a block: before attention and feed-forward network, after them, or both. */
export type NormOrder = "before" | "after" | "both"

/** A family's description of its decoder. */
export interface DecoderPlan {
  readonly vocabulary: number
  readonly hidden: number
  readonly layers: number
  readonly attention: (layer: number) => AttentionSizes
  readonly feedForward: (layer: number) => nn.Model
  readonly norm: MakeNorm
  readonly order?: NormOrder
  /** The name of feed-forward networks in checkpoints. */
  readonly feedForwardName?: "mlp" | "blockSparseMoe"
  /** The head shares its weights with the embeddings. */
  readonly tied: boolean
  readonly headBias?: boolean
  /** Scales of the embeddings, the residual branches and the logits. */
  readonly embeddingScale?: number
  readonly residualScale?: number
  readonly logitScale?: number
  /** Soft cap of logits, cap · tanh(logit / cap). */
  readonly logitCap?: number | null
}

class Block extends nn.Module {
  selfAttn: Attention
  mlp?: nn.Model
  blockSparseMoe?: nn.Model
  inputLayernorm?: nn.Model
  postAttentionLayernorm: nn.Model
  preFeedforwardLayernorm?: nn.Model
  postFeedforwardLayernorm?: nn.Model
  private readonly scale: number
  private readonly order: NormOrder

  constructor(plan: DecoderPlan, layer: number) {
    super()
    const { norm, hidden, order = "before" } = plan
    this.selfAttn = new Attention(plan.attention(layer))
    this[plan.feedForwardName ?? "mlp"] = plan.feedForward(layer)
    if (order !== "after") this.inputLayernorm = norm(hidden)
    this.postAttentionLayernorm = norm(hidden)
    if (order === "both") this.preFeedforwardLayernorm = norm(hidden)
    if (order !== "before") this.postFeedforwardLayernorm = norm(hidden)
    this.scale = plan.residualScale ?? 1
    this.order = order
  }

  forward(x: mx.Array, cache: LayerCache | null, pass: Pass): mx.Array {
    const { inputLayernorm, postAttentionLayernorm, preFeedforwardLayernorm, postFeedforwardLayernorm } = this
    const before = this.order === "before"
    let attended = this.selfAttn.forward(inputLayernorm ? inputLayernorm.forward(x) : x, cache, pass)
    if (!before) attended = postAttentionLayernorm.forward(attended)
    const h = x.add(this.scaled(attended))
    const norm = before ? postAttentionLayernorm : preFeedforwardLayernorm
    const feedForward = this.mlp ?? this.blockSparseMoe!
    let fed = tidyBeside(cache, [], () => feedForward.forward(norm ? norm.forward(h) : h))
    if (postFeedforwardLayernorm) fed = postFeedforwardLayernorm.forward(fed)
    return h.add(this.scaled(fed))
  }

  private scaled(x: mx.Array): mx.Array {
    return this.scale === 1 ? x : x.multiply(this.scale)
  }
}

interface EmbeddingTable extends nn.Model {
  asLinear(x: mx.Array): mx.Array
}

class Body extends nn.Module {
  embedTokens: EmbeddingTable
  layers: Block[]
  norm: nn.Model
  private readonly scale: number

  constructor(plan: DecoderPlan) {
    super()
    this.embedTokens = new nn.Embedding(plan.vocabulary, plan.hidden)
    this.layers = Array.from({ length: plan.layers }, (_, i) => new Block(plan, i))
    this.norm = plan.norm(plan.hidden)
    this.scale = plan.embeddingScale ?? 1
  }

  forward(tokens: mx.Array, cache: Cache | null, pass: Pass): mx.Array {
    let h = this.embedTokens.forward(tokens)
    if (this.scale !== 1) h = h.multiply(mx.array(this.scale, h.dtype))
    this.layers.forEach((layer, i) => {
      const own = cache?.[i] ?? null
      const before = h
      h = tidyBeside(own, [pass, layer.selfAttn._rope], () => layer.forward(before, own, pass))
      if (own?.held && h !== before) before.dispose()
    })
    return this.norm.forward(h)
  }
}

/**
 * A decoder built from a family's plan.
 * @example
 * const attention = { hidden: 4, heads: 1, kvHeads: 1, headDim: 4, rope: null }
 * const decoder = new Decoder({
 *   ...{ vocabulary: 8, hidden: 4, layers: 1, tied: true },
 *   attention: () => attention,
 *   feedForward: () => new nn.Linear(4, 4),
 *   norm: (dims) => new nn.RMSNorm(dims),
 * })
 * decoder.forward(mx.array([[1, 2]], mx.int32)).shape // => [1, 2, 8]
 */
export class Decoder extends CausalNetwork {
  model: Body
  lmHead?: nn.Model
  readonly vocabulary: number
  private readonly logitCap: number | null
  private readonly logitScale: number

  constructor(plan: DecoderPlan) {
    super()
    checkKind("Decoder", "the plan", plan, OBJECT)
    this.vocabulary = plan.vocabulary
    this.model = new Body(plan)
    if (!plan.tied) this.lmHead = new nn.Linear(plan.hidden, plan.vocabulary, plan.headBias ?? false)
    this.logitCap = plan.logitCap ?? null
    this.logitScale = plan.logitScale ?? 1
  }

  override get takesPositions(): boolean {
    return this.model.layers.every(({ selfAttn: { _rope } }) => _rope === null || _rope.isFixed)
  }

  override sameUpTo(length: number): number {
    const ropes = new Set(this.model.layers.map(({ selfAttn: { _rope } }) => _rope))
    return Math.min(...Array.from(ropes, (rope) => rope?.sameUpTo(length) ?? Infinity))
  }

  layerShapes(): LayerShape[] {
    return this.model.layers.map(({ selfAttn: { kvHeads, headDim, window } }) => ({
      kvHeads,
      headDim,
      window,
    }))
  }

  hidden(tokens: mx.Array, cache: Cache | null, pass: Pass): mx.Array {
    return this.model.forward(tokens, cache, pass)
  }

  logits(hidden: mx.Array): mx.Array {
    let y = this.lmHead ? this.lmHead.forward(hidden) : this.model.embedTokens.asLinear(hidden)
    if (this.logitScale !== 1) y = y.multiply(this.logitScale)
    return this.logitCap === null ? y : y.divide(this.logitCap).tanh().multiply(this.logitCap)
  }
}
