/** A decoder of a Llama's shape, of nn's layers, with its cache in its arguments and a position that is an array: for tokens one by one. */
import { mx, nn } from "lazuli"

export interface DecoderSizes {
  readonly words: number
  readonly layers: number
  readonly width: number
  readonly heads: number
  readonly inner: number
  /** Tokens that fit the cache. */
  readonly room: number
}

interface LayerCache {
  keys: mx.Array
  values: mx.Array
}

/** Where a token goes, for all layers. */
interface Place {
  readonly position: mx.Array
  readonly start: mx.Array
  readonly mask: mx.Array
}

class Block extends nn.Module {
  attentionNorm: nn.RMSNorm
  query: nn.Linear
  key: nn.Linear
  value: nn.Linear
  output: nn.Linear
  rope: nn.RoPE
  norm: nn.RMSNorm
  gate: nn.Linear
  up: nn.Linear
  down: nn.Linear

  constructor(readonly sizes: DecoderSizes) {
    super()
    const { width, heads, inner } = sizes
    this.attentionNorm = new nn.RMSNorm(width)
    this.query = new nn.Linear(width, width, false)
    this.key = new nn.Linear(width, width, false)
    this.value = new nn.Linear(width, width, false)
    this.output = new nn.Linear(width, width, false)
    this.rope = new nn.RoPE(width / heads)
    this.norm = new nn.RMSNorm(width)
    this.gate = new nn.Linear(width, inner, false)
    this.up = new nn.Linear(width, inner, false)
    this.down = new nn.Linear(inner, width, false)
  }

  forward(x: mx.Array, cache: LayerCache, { position, start, mask }: Place): mx.Array {
    const { width, heads } = this.sizes
    const split = (y: mx.Array): mx.Array => y.reshape([1, 1, heads, -1]).transpose([0, 2, 1, 3])
    const y = this.attentionNorm.forward(x)
    const q = this.rope.forward(split(this.query.forward(y)), position)
    const k = this.rope.forward(split(this.key.forward(y)), position)
    cache.keys = mx.sliceUpdate(cache.keys, k, start, [2])
    cache.values = mx.sliceUpdate(cache.values, split(this.value.forward(y)), start, [2])
    const scale = (width / heads) ** -0.5
    const seen = mx.fast.scaledDotProductAttention(q, cache.keys, cache.values, { scale, mask })
    const h = x.add(this.output.forward(seen.transpose([0, 2, 1, 3]).reshape([1, 1, width])))
    const z = this.norm.forward(h)
    return h.add(this.down.forward(nn.silu(this.gate.forward(z)).multiply(this.up.forward(z))))
  }
}

class Decoder extends nn.Module {
  words: nn.Embedding
  blocks: Block[]
  norm: nn.RMSNorm

  constructor(sizes: DecoderSizes) {
    super()
    this.words = new nn.Embedding(sizes.words, sizes.width)
    this.blocks = Array.from({ length: sizes.layers }, () => new Block(sizes))
    this.norm = new nn.RMSNorm(sizes.width)
  }

  forward(token: mx.Array, position: mx.Array, caches: readonly LayerCache[]): mx.Array {
    const room = caches[0].keys.shape[2]
    const place = {
      position,
      start: position.reshape([1]),
      mask: mx.arange(room).lessEqual(position),
    }
    let x = this.words.forward(token.reshape([1, 1]))
    this.blocks.forEach((block, i) => {
      x = block.forward(x, caches[i], place)
    })
    return this.words.asLinear(this.norm.forward(x)).argmax().astype(mx.int32)
  }
}

/** A decoder with random weights, and a function that computes the next token, with its cache. */
export function decodingOf(sizes: DecoderSizes, compiled: boolean): () => void {
  const { layers, heads, width, room } = sizes
  const decoder = new Decoder(sizes)
  const empty = (): mx.Array => mx.zeros([1, heads, room, width / heads]).add(0)
  const caches = Array.from({ length: layers }, () => ({ keys: empty(), values: empty() }))
  mx.eval(decoder.parameters(), caches)
  const step = (token: mx.Array, position: mx.Array): mx.Array => decoder.forward(token, position, caches)
  const f = compiled ? mx.compile(step, { inputs: caches, outputs: caches, donate: true }) : step
  let [token, n] = [mx.array(1, mx.int32), 0]
  return () => {
    token = f(token, mx.array(n++ % room, mx.int32))
    mx.eval(token, caches)
  }
}
