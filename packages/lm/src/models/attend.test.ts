/** Attention with windows, caps, sinks and padding equals plain loops, with and without caches. */
import * as mx from "@lazuli/core"
import { describe, expect, test } from "vitest"
import "@lazuli/backend-cpu"
import { type AttentionRules, attend, Pass } from "./attend"
import { type LayerCache, PlainCache } from "./cache"
import { QuantizedCache } from "./quantized-cache"
import { RotatingCache } from "./rotating-cache"

const [BATCH, HEADS, GROUPS, DIM] = [2, 4, 2, 32]
const SCALE = DIM ** -0.5

function random(shape: number[], seed: number): mx.Array {
  return mx.random.normal(shape, { key: mx.random.key(seed) })
}

/** Attention in plain loops; queries are the last ones of the keys' sequence. */
function naive(
  q: mx.Array,
  k: mx.Array,
  v: mx.Array,
  rules: AttentionRules,
  there?: boolean[][],
  causal = true,
): number[] {
  const [qs, ks, vs] = [q, k, v].map((x) => x.tolist() as number[][][][])
  const sinks = rules.sinks?.tolist() as number[] | undefined
  const out: number[] = []
  for (let b = 0; b < BATCH; b++)
    for (let h = 0; h < HEADS; h++) {
      const group = Math.floor(h / (HEADS / GROUPS))
      const length = qs[b][h].length
      const total = ks[b][group].length
      for (let i = 0; i < length; i++) {
        const at = total - length + i
        const weights = ks[b][group].map((key, j) => {
          const hidden = causal && j > at
          if (hidden || (rules.window !== null && j <= at - rules.window) || there?.[b][j] === false) return 0
          const dot = key.reduce((sum, x, d) => sum + x * qs[b][h][i][d], 0) * rules.scale
          return Math.exp(rules.cap === null ? dot : rules.cap * Math.tanh(dot / rules.cap))
        })
        const sum = weights.reduce((a, w) => a + w, 0) + (sinks ? Math.exp(sinks[h]) : 0)
        for (let d = 0; d < DIM; d++)
          out.push(weights.reduce((a, w, j) => a + w * vs[b][group][j][d], 0) / sum)
      }
    }
  return out
}

const distance = (got: mx.Array, want: number[]): number =>
  Math.max(...(got.flatten().tolist() as number[]).map((x, i) => Math.abs(x - want[i])))

const none = { scale: SCALE, window: null, cap: null, sinks: null }
const RULES: [string, AttentionRules][] = [
  ["plain", none],
  ["a window", { ...none, window: 4 }],
  ["a cap", { ...none, cap: 1.5 }],
  ["a window and a cap", { ...none, window: 3, cap: 2 }],
  ["sinks", { ...none, sinks: mx.array([0.5, -1, 2, 0]) }],
  ["sinks and a cap", { ...none, cap: 2, sinks: mx.array([0.5, -1, 2, 0]) }],
  ["sinks and a window", { ...none, window: 4, sinks: mx.array([0.5, -1, 2, 0]) }],
]

describe.each(RULES)("attention with %s", (_name, rules) => {
  test.each([
    [9, 9],
    [3, 9],
    [1, 9],
    [1, 3],
  ])("of %i queries over %i keys", (length, total) => {
    const q = random([BATCH, HEADS, length, DIM], 1)
    const [k, v] = [random([BATCH, GROUPS, total, DIM], 2), random([BATCH, GROUPS, total, DIM], 3)]
    expect(distance(attend(q, k, v, rules, new Pass()), naive(q, k, v, rules))).toBeLessThan(1e-5)
  })

  test("and padding, of encoders", () => {
    if (rules.window !== null) return
    const there = [
      [true, true, true, true, false],
      [true, true, false, false, false],
    ]
    const q = random([BATCH, HEADS, 5, DIM], 4)
    const [k, v] = [random([BATCH, GROUPS, 5, DIM], 5), random([BATCH, GROUPS, 5, DIM], 6)]
    const got = attend(q, k, v, rules, new Pass(mx.array(there), false))
    expect(distance(got, naive(q, k, v, rules, there, false))).toBeLessThan(1e-5)
  })

  test.each([
    ["a plain cache", (): LayerCache => new PlainCache(), 1e-5],
    ["a rotating cache", (): LayerCache => new RotatingCache(rules.window ?? 100), 1e-5],
    ["a quantized cache", (): LayerCache => new QuantizedCache({ bits: 8, groupSize: 32 }), 0.05],
  ] as const)("in parts, through %s", (_kind, make, within) => {
    const total = 14
    const q = random([BATCH, HEADS, total, DIM], 7)
    const [k, v] = [random([BATCH, GROUPS, total, DIM], 8), random([BATCH, GROUPS, total, DIM], 9)]
    const cache = make()
    const parts: mx.Array[] = []
    let from = 0
    for (const to of [5, 6, 7, 11, 14]) {
      const part = (x: mx.Array): mx.Array => x.index(":", ":", mx.s(from, to))
      parts.push(cache.attend(part(q), part(k), part(v), rules, new Pass()))
      from = to
    }
    expect(distance(mx.concatenate(parts, 2), naive(q, k, v, rules))).toBeLessThan(within)
  })
})
