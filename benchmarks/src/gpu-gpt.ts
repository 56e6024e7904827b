/** A language model of GPT-2 small's size for gpu-rows.ts: 12 layers of width 768, 32,000 words, an output layer of its own. */
import * as mx from "@lazuli/core"
import * as nn from "@lazuli/nn"

const [LAYERS, WIDTH, HEADS, WORDS, LENGTH] = [12, 768, 12, 32_000, 1024]
export const [GPT_BATCH, GPT_LENGTH, GPT_WORDS] = [8, LENGTH, WORDS]

class Block extends nn.Module {
  attentionNorm = new nn.LayerNorm(WIDTH)
  project = new nn.Linear(WIDTH, 3 * WIDTH)
  out = new nn.Linear(WIDTH, WIDTH)
  networkNorm = new nn.LayerNorm(WIDTH)
  widen = new nn.Linear(WIDTH, 4 * WIDTH)
  narrow = new nn.Linear(4 * WIDTH, WIDTH)
  forward(x: mx.Array): mx.Array {
    const [batch, length] = x.shape
    const qkv = this.project
      .forward(this.attentionNorm.forward(x))
      .reshape([batch, length, 3, HEADS, WIDTH / HEADS])
      .transpose([2, 0, 3, 1, 4])
    const scale = (WIDTH / HEADS) ** -0.5
    const attended = mx.fast
      .scaledDotProductAttention(qkv.index(0), qkv.index(1), qkv.index(2), { scale, mask: "causal" })
      .transpose([0, 2, 1, 3])
      .reshape([batch, length, WIDTH])
    const y = x.add(this.out.forward(attended))
    return y.add(this.narrow.forward(nn.geluApprox(this.widen.forward(this.networkNorm.forward(y)))))
  }
}

export class Gpt extends nn.Module {
  words = new nn.Embedding(WORDS, WIDTH)
  positions = new nn.Embedding(LENGTH, WIDTH)
  blocks = Array.from({ length: LAYERS }, () => new Block())
  norm = new nn.LayerNorm(WIDTH)
  head = new nn.Linear(WIDTH, WORDS, { bias: false })
  loss(tokens: mx.Array, targets: mx.Array): mx.Array {
    let x = this.words.forward(tokens).add(this.positions.forward(mx.arange(tokens.shape[1])))
    for (const block of this.blocks) x = block.forward(x)
    const logits = this.head.forward(this.norm.forward(x))
    return nn.losses.crossEntropy(logits.astype(mx.float32), targets, { reduction: "mean" })
  }
}
