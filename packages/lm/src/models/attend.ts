/**
 * Attention with sliding windows, sinks and soft caps. Queries belong to the last tokens of the sequence.
 */
import * as mx from "@lazuli/core"

/** The attention options of a layer. */
export interface AttentionRules {
  readonly scale: number
  /** Size of the sliding window, including the query's own token; null for none. */
  readonly window: number | null
  /** Soft cap of scores, cap · tanh(score / cap); Gemma 2. */
  readonly cap: number | null
  /** Attention sinks, one extra score per head [heads]; GPT-OSS. */
  readonly sinks: mx.Array | null
}

/**
 * The state of one forward pass: positions, and masks shared by the layers.
 * @example
 * new Pass().mask(2, 3, null).tolist() // => [[true, true, false], [true, true, true]]
 */
export class Pass {
  private readonly masks = new Map<string, mx.Array>()
  /** The position of each row's single token in a batch; null if all rows start at the cache's offset. */
  readonly rows: readonly number[] | null
  /** The position of the next token as an array, in compiled steps. */
  readonly position: mx.Array | null

  /**
   * @param padding - mask [batch, keys], true for tokens and false for padding; null without padding
   * @param causal - false for encoders
   * @param rows - the position of each row's single token in a batch
   * @param position - in compiled steps, the position of the next token, a scalar or one for each row [rows]
   * @param total - the length of the whole sequence, if more of it follows
   */
  constructor(
    readonly padding: mx.Array | null = null,
    readonly causal = true,
    rows: readonly number[] | null = null,
    position: mx.Array | null = null,
    readonly total = 0,
  ) {
    this.rows = rows
    this.position = position
  }

  /** Mask over a buffer of `capacity` keys for the token at `position`: [rows or 1, 1, 1, capacity]. */
  maskUpTo(position: mx.Array, capacity: number, window: number | null): mx.Array {
    return this.once(`${capacity},${window}`, () => {
      const at = mx.arange(capacity, { dtype: mx.int32 })
      const last = position.reshape([-1, 1, 1, 1])
      const there = at.lessEqual(last)
      return window === null ? there : there.logicalAnd(at.greater(last.subtract(window)))
    })
  }

  /** Mask of the last `queries` of `keys` tokens: true if j ≤ i and i − j < window. */
  mask(queries: number, keys: number, window: number | null): mx.Array {
    return this.once(`${queries},${keys},${window}`, () => this.makeMask(queries, keys, window))
  }

  /** The cached masks. */
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
 * are the queries' own: what a layer computes without a cache, and `cache.attend` with one.
 * @example
 * const [q, kv] = [mx.ones([1, 2, 3, 4]), mx.ones([1, 1, 3, 4])]
 * attend(q, kv, kv, { scale: 0.5, window: null, cap: null, sinks: null }, new Pass()).shape // => [1, 2, 3, 4]
 */
export function attend(q: mx.Array, k: mx.Array, v: mx.Array, rules: AttentionRules, pass: Pass): mx.Array {
  const { window } = rules
  const length = q.shape[2]
  let total = k.shape[2]
  let [keys, values] = [k, v]
  // Keys outside the window of every query are skipped.
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

/** Attention with an explicit mask. */
export function masked(
  q: mx.Array,
  keys: mx.Array,
  values: mx.Array,
  { scale, sinks, cap }: AttentionRules,
  mask: mx.Array | "causal" | null,
): mx.Array {
  if (cap !== null && mask !== "causal") return capped(q, keys, values, { scale, cap, sinks }, mask)
  return mx.fast.scaledDotProductAttention(q, keys, values, { scale, mask, sinks })
}

/** Attention with soft-capped scores, for which there is no fused kernel. */
function capped(
  q: mx.Array,
  k: mx.Array,
  v: mx.Array,
  { scale, cap, sinks }: Pick<AttentionRules, "scale" | "sinks"> & { readonly cap: number },
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
  const weights = weightsOf(scores, sinks).astype(v.dtype)
  return mx.matmul(weights, v.expandDims(2)).reshape([batch, heads, length, v.shape[3]])
}

/** The weights of keys: the softmax of scores [batch, groups, heads in each, queries, keys] and the sinks. */
export function weightsOf(scores: mx.Array, sinks: mx.Array | null): mx.Array {
  if (sinks === null) return mx.softmax(scores, -1)
  const [, groups, heads] = scores.shape
  const sink = sinks.astype(mx.float32).reshape([1, groups, heads, 1, 1])
  const all = mx.concatenate([mx.broadcastTo(sink, [...scores.shape.slice(0, -1), 1]), scores], -1)
  return mx.softmax(all, -1).index("...", mx.s(1, null))
}
