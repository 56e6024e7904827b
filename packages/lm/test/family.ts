/** The families that docs/language-models.md adds, in its words: its test compares them. */
import type * as mx from "@lazuli/core"
import * as lm from "@lazuli/lm"
import * as nn from "@lazuli/nn"

const normed: lm.Family = {
  modelTypes: ["llama_qk_norm"],
  make: (config) => {
    const sizes = lm.attentionSizesOf(config)
    const norm = { over: "head", make: lm.rmsNorm(config) } as const
    return new lm.Decoder(lm.llamaPlan(config, () => ({ ...sizes, norm })))
  },
  sanitize: lm.sanitizeDecoder,
}
lm.registerFamily(normed)

class Bigram extends lm.CausalNetwork {
  readonly table: nn.Embedding
  constructor(readonly vocabulary: number) {
    super()
    this.table = new nn.Embedding(vocabulary, vocabulary)
  }
  layerShapes(): lm.LayerShape[] {
    return []
  }
  hidden(tokens: mx.Array, _cache: lm.Cache | null, _pass: lm.Pass): mx.Array {
    return this.table.forward(tokens)
  }
  logits(hidden: mx.Array): mx.Array {
    return hidden
  }
}
lm.registerFamily({ modelTypes: ["bigram"], make: (config) => new Bigram(config.count("vocab_size")) })
