/**
 * Attention of queries over keys and values, with all that families ask for: windows, sinks, caps. Queries are the last of the sequence.
 */
import * as mx from "@lazuli/core"

/** The properties of a layer's attention. */
export interface AttentionRules {
  readonly scale: number
  /** The tokens that a query sees, itself included, or null for all. */
  readonly window: number | null
  /** Scores become cap · tanh(score / cap): Gemma 2. */
  readonly cap: number | null
  /** One more score a head, [heads]: GPT-OSS. */
  readonly sinks: mx.Array | null
}

/** One call of a model: masks are made once and shared by its layers. */
export class Pass {
  private readonly masks = new Map<string, mx.Array>()
  /** Where the rows of a batch go on, with one token each; null where all begin at the same position. */
  readonly rows: readonly number[] | null
  /** The position of one more token, where a compiled step gets it as an array. */
  readonly position: mx.Array | null

  /**
   * @param padding - true for the tokens that are there [batch, keys]; null where all are
   * @param causal - false for encoders, where everything is seen
   * @param rows - where the rows of a batch go on, with one token each
   * @param position - where all rows go on with one token each, or each row [rows], in a compiled step
   */
  constructor(
    readonly padding: mx.Array | null = null,
    readonly causal = true,
    rows: readonly number[] | null = null,
    position: mx.Array | null = null,
  ) {
    this.rows = rows
    this.position = position
  }

  /** True for keys of a buffer with so much room that the token at `position` sees: [rows or 1, 1, 1, room]. */
  maskUpTo(position: mx.Array, room: number, window: number | null): mx.Array {
    return this.once(`${room},${window}`, () => {
      const at = mx.arange(room, { dtype: mx.int32 })
      const last = position.reshape([-1, 1, 1, 1])
      const there = at.lessEqual(last)
      return window === null ? there : there.logicalAnd(at.greater(last.subtract(window)))
    })
  }

  /** True where query i of the last `queries` of `keys` sees key j: j ≤ i, and i − j < window. */
  mask(queries: number, keys: number, window: number | null): mx.Array {
    return this.once(`${queries},${keys},${window}`, () => this.makeMask(queries, keys, window))
  }

  /** The masks that were made so far. */
  held(): mx.Array[] {
    return [...this.masks.values()]
  }

  private once(name: string, make: () => mx.Array): mx.Array {
    const known = this.masks.get(name)
    if (known) return known
    const made = make()
    this.masks.set(name, made)
    return made
  }

  private makeMask(queries: number, keys: number, window: number | null): mx.Array {
    const i = mx.arange(keys - queries, keys).expandDims(1)
    const j = mx.arange(keys).expandDims(0)
    let seen = this.causal ? j.lessEqual(i) : mx.ones([queries, keys], mx.bool_)
    if (window !== null) seen = seen.logicalAnd(j.greater(i.subtract(window)))
    if (this.padding) seen = seen.logicalAnd(this.padding.expandDims(1).expandDims(1))
    return seen
  }
}

/**
 * Attention of queries [batch, heads, length, features] over keys and values [batch, kvHeads, total, features], whose last `length` tokens
 * are the queries' own.
 */
export function attend(q: mx.Array, k: mx.Array, v: mx.Array, rules: AttentionRules, pass: Pass): mx.Array {
  const { window } = rules
  const length = q.shape[2]
  let total = k.shape[2]
  let [keys, values] = [k, v]
  // Keys that no query sees are left out.
  if (window !== null && total > window + length - 1 && !pass.padding) {
    const from = total - (window + length - 1)
    keys = k.index(":", ":", mx.s(from, total))
    values = v.index(":", ":", mx.s(from, total))
    total -= from
  }
  const windowed = window !== null && total > window
  const one = length === 1 && !pass.padding
  const plain = !windowed && !pass.padding
  const mask = one
    ? null
    : plain
      ? pass.causal
        ? "causal"
        : null
      : pass.mask(length, total, windowed ? window : null)
  const seen = rules.cap !== null && mask === "causal" ? pass.mask(length, total, null) : mask
  const y = masked(q, keys, values, rules, seen)
  if (keys !== k) for (const view of [keys, values]) view.dispose()
  return y
}

/** Attention over the keys that a mask shows. */
export function masked(
  q: mx.Array,
  keys: mx.Array,
  values: mx.Array,
  { scale, sinks, cap }: AttentionRules,
  mask: mx.Array | "causal" | null,
): mx.Array {
  if (cap !== null && mask !== "causal") return capped(q, keys, values, scale, cap, mask)
  return mx.fast.scaledDotProductAttention(q, keys, values, { scale, mask, sinks })
}

/** Attention whose scores are capped, for which there is no fused kernel. */
function capped(
  q: mx.Array,
  k: mx.Array,
  v: mx.Array,
  scale: number,
  cap: number,
  seen: mx.Array | null,
): mx.Array {
  const [batch, heads, length, features] = q.shape
  const groups = k.shape[1]
  const grouped = q.reshape([batch, groups, heads / groups, length, features])
  const raw = mx.matmul(grouped.multiply(scale), k.expandDims(2).swapaxes(-1, -2))
  let scores = raw.astype(mx.float32).divide(cap).tanh().multiply(cap)
  if (seen) {
    const mask = seen.ndim === 4 ? seen.expandDims(1) : seen
    scores = mx.where(mask, scores, -Infinity)
  }
  const weights = mx.softmax(scores, -1).astype(v.dtype)
  return mx.matmul(weights, v.expandDims(2)).reshape([batch, heads, length, v.shape[3]])
}
