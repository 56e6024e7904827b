/**
 * The model: a GPT over bytes. Blocks of causal attention and a GELU network, each after a layer norm and beside a residual
 * connection; the table of byte embeddings is also the last layer.
 */
import { mx, nn } from "lazuli"

/** The sizes that decide the model's shape. */
export interface Shape {
  readonly context: number
  readonly layers: number
  readonly width: number
  readonly heads: number
  readonly dropout: number
}

/** A byte has this many values. */
export const VOCABULARY = 256

/** Attention of each byte to itself and to the bytes before it, in several heads. */
class CausalAttention extends nn.Module {
  heads: number
  qkvProj: nn.Linear
  outProj: nn.Linear

  constructor(width: number, heads: number) {
    super()
    this.heads = heads
    this.qkvProj = new nn.Linear(width, 3 * width, { bias: false })
    this.outProj = new nn.Linear(width, width, { bias: false })
  }

  forward(x: mx.Array): mx.Array {
    const [batch, length, width] = x.shape
    // [batch, length, 3 width] → [3, batch, heads, length, width of a head]
    const qkv = this.qkvProj
      .forward(x)
      .reshape([batch, length, 3, this.heads, width / this.heads])
      .transpose([2, 0, 3, 1, 4])
    const [q, k, v] = [qkv.index(0), qkv.index(1), qkv.index(2)]
    const scale = 1 / Math.sqrt(width / this.heads)
    const attended = mx.fast.scaledDotProductAttention(q, k, v, { scale, mask: "causal" })
    return this.outProj.forward(attended.transpose([0, 2, 1, 3]).reshape([batch, length, width]))
  }
}

class Block extends nn.Module {
  attentionNorm: nn.LayerNorm
  attention: CausalAttention
  networkNorm: nn.LayerNorm
  widen: nn.Linear
  narrow: nn.Linear
  dropout: nn.Dropout

  constructor({ width, heads, dropout }: Shape) {
    super()
    this.attentionNorm = new nn.LayerNorm(width)
    this.attention = new CausalAttention(width, heads)
    this.networkNorm = new nn.LayerNorm(width)
    this.widen = new nn.Linear(width, 4 * width)
    this.narrow = new nn.Linear(4 * width, width)
    this.dropout = new nn.Dropout(dropout)
  }

  forward(x: mx.Array): mx.Array {
    const attended = x.add(this.dropout.forward(this.attention.forward(this.attentionNorm.forward(x))))
    const hidden = nn.geluApprox(this.widen.forward(this.networkNorm.forward(attended)))
    return attended.add(this.dropout.forward(this.narrow.forward(hidden)))
  }
}

export class GPT extends nn.Module {
  bytes: nn.Embedding
  positions: nn.Embedding
  dropout: nn.Dropout
  blocks: Block[]
  norm: nn.LayerNorm

  constructor(shape: Shape) {
    super()
    this.bytes = new nn.Embedding(VOCABULARY, shape.width)
    this.positions = new nn.Embedding(shape.context, shape.width)
    this.dropout = new nn.Dropout(shape.dropout)
    this.blocks = Array.from({ length: shape.layers }, () => new Block(shape))
    this.norm = new nn.LayerNorm(shape.width)
  }

  /** Logits of the next byte at each position: [batch, length] → [batch, length, 256]. */
  forward(tokens: mx.Array): mx.Array {
    const positions = this.positions.forward(mx.arange(tokens.shape[1]))
    let x = this.dropout.forward(this.bytes.forward(tokens).add(positions))
    for (const block of this.blocks) x = block.forward(x)
    return this.bytes.asLinear(this.norm.forward(x))
  }

  /** The mean loss, in nats a byte, over windows [batch, length + 1], of predicting each byte but the first. */
  loss(windows: mx.Array): mx.Array {
    const logits = this.forward(windows.index(":", ":-1"))
    return nn.losses.crossEntropy(logits, windows.index(":", "1:"), { reduction: "mean" })
  }

  /** The number of parameters. */
  get size(): number {
    return mx.treeFlatten(this.parameters()).reduce((sum, [, parameter]) => sum + parameter.size, 0)
  }
}
