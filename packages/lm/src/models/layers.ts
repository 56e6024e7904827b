/**
 * Layers that families share: grouped-query attention, gated feed-forward networks, and norms.
 */
import * as mx from "@lazuli/core"
import * as nn from "@lazuli/nn"
import { checkKind, OBJECT } from "../argument-kinds"
import { type AttentionRules, attend, type Pass } from "./attend"
import type { LayerCache } from "./cache"
import type { Rope } from "./rope"

/** x / rms(x) · (1 + weight): Gemma. */
export class OffsetNorm extends nn.Module {
  weight: mx.Array
  constructor(
    dims: number,
    readonly eps: number,
  ) {
    super()
    this.weight = mx.zeros([dims])
  }
  forward(x: mx.Array): mx.Array {
    return mx.fast.rmsNorm(x, this.weight.add(1), this.eps)
  }
}

/** Creates a norm over `dims` features. */
export type MakeNorm = (dims: number) => nn.Model

/** Sizes and options of {@link Attention}. */
export interface AttentionSizes {
  readonly hidden: number
  readonly heads: number
  readonly kvHeads: number
  readonly headDim: number
  readonly rope: Rope | null
  /** 1/√headDim by default. */
  readonly scale?: number
  readonly qkvBias?: boolean
  readonly outBias?: boolean
  readonly window?: number | null
  readonly cap?: number | null
  /** Fused projection of queries, keys and values. */
  readonly fused?: boolean
  /** Norms of queries and keys, per head or over all heads. */
  readonly norm?: { readonly over: "head" | "all"; readonly make: MakeNorm }
  /** Attention sinks: a learned score per head that takes part in the softmax. */
  readonly sinks?: boolean
}

/**
 * Grouped-query attention with rotary positions.
 * @example
 * const attention = new Attention({ hidden: 4, heads: 2, kvHeads: 1, headDim: 2, rope: null })
 * attention.forward(mx.ones([1, 3, 4]), null, new Pass()).shape // => [1, 3, 4]
 */
export class Attention extends nn.Module {
  qProj?: nn.Model
  kProj?: nn.Model
  vProj?: nn.Model
  qkvProj?: nn.Model
  oProj: nn.Model
  qNorm?: nn.Model
  kNorm?: nn.Model
  sinks?: mx.Array
  /** Heads of this process, if the model is sharded. */
  heads: number
  kvHeads: number
  readonly headDim: number
  readonly window: number | null
  /** @internal */
  readonly _rope: Rope | null
  /** Parameters of its own that are parts, if the model is sharded. @internal */
  _shards?: nn.ShardedParameters["_shards"]
  /** @internal */
  _group?: nn.ShardedParameters["_group"]
  private readonly scale: number
  private readonly cap: number | null
  readonly normOver: "head" | "all"

  constructor(sizes: AttentionSizes) {
    super()
    checkKind("Attention", "the sizes", sizes, OBJECT)
    const { hidden, heads, kvHeads, headDim, norm } = sizes
    this.heads = heads
    this.kvHeads = kvHeads
    this.headDim = headDim
    this._rope = sizes.rope
    this.window = sizes.window ?? null
    this.scale = sizes.scale ?? headDim ** -0.5
    this.cap = sizes.cap ?? null
    this.normOver = norm?.over ?? "head"
    const bias = sizes.qkvBias ?? false
    if (sizes.fused) this.qkvProj = new nn.Linear(hidden, (heads + 2 * kvHeads) * headDim, bias)
    else {
      this.qProj = new nn.Linear(hidden, heads * headDim, bias)
      this.kProj = new nn.Linear(hidden, kvHeads * headDim, bias)
      this.vProj = new nn.Linear(hidden, kvHeads * headDim, bias)
    }
    this.oProj = new nn.Linear(heads * headDim, hidden, sizes.outBias ?? false)
    if (norm) {
      this.qNorm = norm.make(norm.over === "head" ? headDim : heads * headDim)
      this.kNorm = norm.make(norm.over === "head" ? headDim : kvHeads * headDim)
    }
    if (sizes.sinks) this.sinks = mx.zeros([heads])
  }

  forward(x: mx.Array, cache: LayerCache | null, pass: Pass): mx.Array {
    const [batch, length] = x.shape
    const [queries, keys, values] = this.project(x)
    let q = this.split(queries, this.heads, this.qNorm)
    let k = this.split(keys, this.kvHeads, this.kNorm)
    const v = this.split(values, this.kvHeads)
    if (this._rope) {
      const at = pass.position ?? pass.rows ?? cache?.offset ?? 0
      q = this._rope.forward(q, at, pass.total)
      k = this._rope.forward(k, at, pass.total)
    }
    const rules: AttentionRules = {
      scale: this.scale,
      window: this.window,
      cap: this.cap,
      sinks: this.sinks ?? null,
    }
    const y = cache ? cache.attend(q, k, v, rules, pass) : attend(q, k, v, rules, pass)
    return this.oProj.forward(y.transpose([0, 2, 1, 3]).reshape([batch, length, this.heads * this.headDim]))
  }

  private project(x: mx.Array): mx.Array[] {
    const { qkvProj, qProj, kProj, vProj, heads, kvHeads, headDim } = this
    if (qkvProj) return mx.split(qkvProj.forward(x), [heads * headDim, (heads + kvHeads) * headDim], -1)
    return [qProj!.forward(x), kProj!.forward(x), vProj!.forward(x)]
  }

  /** [batch, length, heads · d] → [batch, heads, length, d], with the norm applied. */
  private split(x: mx.Array, heads: number, norm?: nn.Model): mx.Array {
    const [batch, length] = x.shape
    const whole = norm && this.normOver === "all" ? norm.forward(x) : x
    const each = whole.reshape([batch, length, heads, this.headDim])
    const normed = norm && this.normOver === "head" ? norm.forward(each) : each
    return normed.transpose([0, 2, 1, 3])
  }
}

/** An elementwise function. */
export type Activation = (x: mx.Array) => mx.Array

/**
 * The activation with this name in config.json.
 * @throws FormatError if it is not supported
 * @example
 * activationOf('relu')(mx.array([-1, 2])).tolist() // => [0, 2]
 */
export function activationOf(name: string): Activation {
  const found = Object.hasOwn(ACTIVATIONS, name) ? ACTIVATIONS[name] : null
  if (!found) throw new mx.FormatError("load", `config.json: the activation "${name}" is not supported`)
  return found
}
/** ½ x (1 + tanh(√(2/π) (x + 0.044715 x³))). */
const tanhGelu: Activation = (x) => {
  const inner = x.add(x.multiply(x).multiply(x).multiply(0.044715)).multiply(Math.sqrt(2 / Math.PI))
  return x.multiply(0.5).multiply(inner.tanh().add(1))
}
const silu: Activation = (x) => nn.silu(x)

// Names of one function have the same, by which GGUF files compare networks.
const ACTIVATIONS: Readonly<Record<string, Activation>> = {
  silu,
  swish: silu,
  relu: (x) => nn.relu(x),
  gelu: (x) => nn.gelu(x),
  gelu_new: tanhGelu,
  gelu_pytorch_tanh: tanhGelu,
  tanh: (x) => x.tanh(),
}

/**
 * Gated feed-forward network: down(activation(gate(x)) · up(x)).
 * @example
 * const feedForward = new GatedFeedForward(4, 8, { activation: activationOf('silu') })
 * feedForward.forward(mx.ones([1, 4])).shape // => [1, 4]
 */
export class GatedFeedForward extends nn.Module {
  gateProj?: nn.Model
  upProj?: nn.Model
  gateUpProj?: nn.Model
  downProj: nn.Model
  /** @internal */
  readonly _activation: Activation

  constructor(
    hidden: number,
    inner: number,
    options: { activation: Activation; bias?: boolean; fused?: boolean },
  ) {
    super()
    checkKind("GatedFeedForward", "the options", options, OBJECT)
    const { activation, bias = false, fused = false } = options
    if (fused) this.gateUpProj = new nn.Linear(hidden, 2 * inner, bias)
    else {
      this.gateProj = new nn.Linear(hidden, inner, bias)
      this.upProj = new nn.Linear(hidden, inner, bias)
    }
    this.downProj = new nn.Linear(inner, hidden, bias)
    this._activation = activation
  }

  forward(x: mx.Array): mx.Array {
    const [gate, up] = this.gateUpProj
      ? mx.split(this.gateUpProj.forward(x), 2, -1)
      : [this.gateProj!.forward(x), this.upProj!.forward(x)]
    return this.downProj.forward(this._activation(gate).multiply(up))
  }
}
