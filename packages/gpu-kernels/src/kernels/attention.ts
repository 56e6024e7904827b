/**
 * Scaled dot-product attention without its scores in memory: a simdgroup keeps one query and runs over the keys, with the softmax's
 * maximum and sum so far (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et al., "FlashAttention",
 * 2022). The derivative finds the probabilities again from log Σ exp.
 */
import { float32, type Node, sizeOf } from "@lazuli/core/engine"
import type { Argument, DispatchQueue } from "../dispatch"
import { type Families, isCountable } from "../family"
import { METAL_HEADER, metalType } from "../metal-types"
import { withExtras } from "./matmul"
import { targetOf } from "./reduce"

/** Queries, or keys, of a threadgroup: a simdgroup each. */
const TOGETHER = 4
/** The most features: a lane keeps a thirty-second of them. */
const MOST_FEATURES = 512

interface Shape {
  readonly type: string
  /** Features of a lane, of queries and keys, and of values. */
  readonly d: number
  readonly e: number
  readonly mask: string | null
  readonly causal: boolean
}

/** The score of query `i` and key `j`, or −∞ where it is masked. `s` holds scale · q · k already. */
const maskText = ({ mask, causal }: Shape): string =>
  `${causal ? "      if (int(j) > int(i) + int(keys) - int(length)) s = -INFINITY;\n" : ""}${
    mask === null
      ? ""
      : `      { uint at = ((mask_sizes[0] > 1 ? batch : 0) * mask_sizes[1] + (mask_sizes[1] > 1 ? head : 0)) * mask_sizes[2];
        at = ((at + (mask_sizes[2] > 1 ? i : 0)) * mask_sizes[3]) + (mask_sizes[3] > 1 ? j : 0);
        ${mask === "bool" ? "if (!mask[at]) s = -INFINITY;" : "s += float(mask[at]);"} }
`
  }`

const head = (shape: Shape, parameters: readonly string[]): string =>
  [
    ...parameters,
    ...(shape.mask === null ? [] : [`device const ${shape.mask}* mask`, "constant uint* mask_sizes"]),
    "constant uint* sizes",
    "constant float& scale",
  ]
    .map((text, k) => `${text} [[buffer(${k})]]`)
    .join(", ")

const ATTRIBUTES = `uint group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]`
/** Sizes: heads, key heads, queries, keys, features, features of values, lines in all. */
const SIZES = `  uint heads = sizes[0], key_heads = sizes[1], length = sizes[2], keys = sizes[3], features = sizes[4], wide = sizes[5];
`

const dot = (count: number, x: string, y: string): string =>
  `      float s = 0.0f;
      for (uint u = 0; u < ${count}; u++) s += ${x}[u] * ${y}[u];
      s = simd_sum(s) * scale;
`
/** A lane's share of a row of `width` features. */
const row = (name: string, from: string, at: string, count: number, width: string): string =>
  `    float ${name}[${count}];
    for (uint u = 0; u < ${count}; u++) { uint f = lane + 32 * u; ${name}[u] = 0.0f; if (f < ${width}) ${name}[u] = float(${from}[(${at}) * ${width} + f]); }
`

const forwardSource = (shape: Shape): string => {
  const { type, d, e } = shape
  return `${METAL_HEADER}kernel void attend(${head(shape, [`device const ${type}* q`, `device const ${type}* k`, `device const ${type}* v`, `device ${type}* o`, "device float* lse"])},
    ${ATTRIBUTES}) {
${SIZES}  uint line = group * ${TOGETHER} + simdgroup;
  if (line < sizes[6]) {
    uint i = line % length, head = line / length % heads, batch = line / length / heads;
    uint from = (batch * key_heads + head / (heads / key_heads)) * keys;
${row("mine", "q", "line", d, "features")}    float total[${e}];
    for (uint u = 0; u < ${e}; u++) total[u] = 0.0f;
    float top = -3e38f, sum = 0.0f;
    uint seen = ${shape.causal ? "min(keys, keys + i + 1 > length ? keys + i + 1 - length : 0)" : "keys"};
    for (uint j = 0; j < seen; j++) {
${row("other", "k", "from + j", d, "features")}${dot(d, "mine", "other")}${maskText(shape)}      float high = max(top, s), shrink = precise::exp(top - high), p = precise::exp(s - high);
      sum = sum * shrink + p;
      for (uint u = 0; u < ${e}; u++) {
        uint f = lane + 32 * u;
        float value = 0.0f;
        if (f < wide) value = float(v[(from + j) * wide + f]);
        total[u] = total[u] * shrink + p * value;
      }
      top = high;
    }
    for (uint u = 0; u < ${e}; u++) {
      uint f = lane + 32 * u;
      if (f < wide) o[line * wide + f] = ${type}(total[u] / max(sum, 1e-30f));
    }
    if (lane == 0) lse[line] = precise::log(sum) + top;
  }
}
`
}

/** dq: a simdgroup for each query, over the keys. ds = p · (dp − Σ g·o), with dp = g · v. */
const queriesSource = (shape: Shape): string => {
  const { type, d, e } = shape
  return `${METAL_HEADER}kernel void attend_queries(${head(shape, [`device const ${type}* q`, `device const ${type}* k`, `device const ${type}* v`, `device const ${type}* o`, "device const float* lse", `device const ${type}* g`, `device ${type}* dq`])},
    ${ATTRIBUTES}) {
${SIZES}  uint line = group * ${TOGETHER} + simdgroup;
  if (line < sizes[6]) {
    uint i = line % length, head = line / length % heads, batch = line / length / heads;
    uint from = (batch * key_heads + head / (heads / key_heads)) * keys;
${row("mine", "q", "line", d, "features")}${row("slope", "g", "line", e, "wide")}${row("result", "o", "line", e, "wide")}    float share = 0.0f, sums = lse[line];
    for (uint u = 0; u < ${e}; u++) share += slope[u] * result[u];
    share = simd_sum(share);
    float total[${d}];
    for (uint u = 0; u < ${d}; u++) total[u] = 0.0f;
    for (uint j = 0; j < keys; j++) {
${row("other", "k", "from + j", d, "features")}${row("value", "v", "from + j", e, "wide")}${dot(d, "mine", "other")}${maskText(shape)}      float p = s == -INFINITY ? 0.0f : precise::exp(s - sums), dp = 0.0f;
      for (uint u = 0; u < ${e}; u++) dp += slope[u] * value[u];
      float ds = p * (simd_sum(dp) - share);
      for (uint u = 0; u < ${d}; u++) total[u] += ds * other[u];
    }
    for (uint u = 0; u < ${d}; u++) {
      uint f = lane + 32 * u;
      if (f < features) dq[line * features + f] = ${type}(total[u] * scale);
    }
  }
}
`
}

/** dk and dv: a simdgroup for each key, over the queries of all heads that share it. */
const keysSource = (shape: Shape): string => {
  const { type, d, e } = shape
  return `${METAL_HEADER}kernel void attend_keys(${head(shape, [`device const ${type}* q`, `device const ${type}* k`, `device const ${type}* v`, `device const ${type}* o`, "device const float* lse", `device const ${type}* g`, `device ${type}* dk`, `device ${type}* dv`])},
    ${ATTRIBUTES}) {
${SIZES}  uint at_key = group * ${TOGETHER} + simdgroup;
  if (at_key < sizes[6]) {
    uint j = at_key % keys, key_head = at_key / keys % key_heads, batch = at_key / keys / key_heads, several = heads / key_heads;
${row("mine", "k", "at_key", d, "features")}${row("value", "v", "at_key", e, "wide")}    float keys_total[${d}], values_total[${e}];
    for (uint u = 0; u < ${d}; u++) keys_total[u] = 0.0f;
    for (uint u = 0; u < ${e}; u++) values_total[u] = 0.0f;
    for (uint t = 0; t < several * length; t++) {
      uint i = t % length, head = key_head * several + t / length, line = (batch * heads + head) * length + i;
${row("other", "q", "line", d, "features")}${row("slope", "g", "line", e, "wide")}${row("result", "o", "line", e, "wide")}${dot(d, "mine", "other")}${maskText(shape)}      float p = s == -INFINITY ? 0.0f : precise::exp(s - lse[line]), dp = 0.0f;
      for (uint u = 0; u < ${e}; u++) dp += slope[u] * (value[u] - result[u]);
      float ds = p * simd_sum(dp);
      for (uint u = 0; u < ${d}; u++) keys_total[u] += ds * other[u];
      for (uint u = 0; u < ${e}; u++) values_total[u] += p * slope[u];
    }
    for (uint u = 0; u < ${d}; u++) {
      uint f = lane + 32 * u;
      if (f < features) dk[at_key * features + f] = ${type}(keys_total[u] * scale);
    }
    for (uint u = 0; u < ${e}; u++) {
      uint f = lane + 32 * u;
      if (f < wide) dv[at_key * wide + f] = ${type}(values_total[u]);
    }
  }
}
`
}

function shapeOf(node: Node): Shape {
  const [q, , v, mask] = node.inputs
  const { causal, hasMask } = node.params as { causal: boolean; hasMask: boolean }
  return {
    type: metalType(q.dtype) as string,
    d: Math.max(1, Math.ceil(q.shape[3] / 32)),
    e: Math.max(1, Math.ceil(v.shape[3] / 32)),
    mask: hasMask ? (metalType(mask.dtype) as string) : null,
    causal,
  }
}

const supports = (node: Node): boolean => {
  const [q, k, v, mask] = node.inputs
  return (
    [q, k, v].every((x) => x.dtype === q.dtype && sizeOf(x.shape) > 0) &&
    q.dtype.kind === "floating" &&
    metalType(q.dtype) !== undefined &&
    q.shape[3] <= MOST_FEATURES &&
    v.shape[3] <= MOST_FEATURES &&
    (!node.params.hasMask ||
      (sizeOf(mask.shape) > 0 &&
        (mask.dtype.kind === "bool" || mask.dtype.kind === "floating") &&
        metalType(mask.dtype) !== undefined)) &&
    isCountable(node)
  )
}

/** Adds one kernel over `lines` simdgroups; masks come last, before the sizes. */
function dispatchLines(
  queue: DispatchQueue,
  node: Node,
  name: string,
  source: (shape: Shape) => string,
  args: readonly Argument[],
  mask: Argument | undefined,
  outputs: readonly Node[],
  lines: number,
): void {
  const [q, k, v, m] = node.inputs
  const shape = shapeOf(node)
  if (lines === 0) return
  queue.dispatch({
    op: node.primitive?.name as string,
    kernel: { key: `${name} ${JSON.stringify(shape)}`, name, source: () => source(shape) },
    arguments: [
      ...args,
      ...outputs.map(targetOf),
      ...(mask ? [mask, Uint32Array.from([1, 1, 1, 1, ...m.shape].slice(-4))] : []),
      Uint32Array.of(q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3], v.shape[3], lines),
      Float32Array.of(node.params.scale as number),
    ],
    writes: outputs.map((output) => targetOf(output).storage),
    grid: [Math.ceil(lines / TOGETHER) * TOGETHER * 32, 1, 1],
    threadgroup: [TOGETHER * 32, 1, 1],
  })
}

const queriesOf = ({ inputs: [q] }: Node): number => sizeOf(q.shape.slice(0, 3))
const keysOf = ({ inputs: [, k] }: Node): number => sizeOf(k.shape.slice(0, 3))

/** Attention, by primitive. */
export const attention: Families = {
  scaledDotProductAttention: {
    supports,
    encode: (node, queue) =>
      withExtras(queue, node.inputs, ([q, k, v, mask]) =>
        dispatchLines(
          queue,
          node,
          "attend",
          forwardSource,
          [q, k, v],
          mask,
          node.outputs ?? [node],
          queriesOf(node),
        ),
      ),
  },
  scaledDotProductAttentionVjp: {
    supports: (node) => {
      const [o, lse, g] = node.inputs.slice(-3)
      const [q] = node.inputs
      return (
        supports(node) &&
        node.inputs.every((x) => sizeOf(x.shape) > 0) &&
        o.dtype === q.dtype &&
        g.dtype === q.dtype &&
        lse.dtype === float32
      )
    },
    encode: (node, queue) => {
      const { hasMask } = node.params as { hasMask: boolean }
      const [dq, dk, dv] = node.outputs as Node[]
      withExtras(queue, node.inputs, (all) => {
        const mask = hasMask ? all[3] : undefined
        const args = hasMask ? [...all.slice(0, 3), ...all.slice(4)] : all
        dispatchLines(queue, node, "attend_queries", queriesSource, args, mask, [dq], queriesOf(node))
        dispatchLines(queue, node, "attend_keys", keysSource, args, mask, [dk, dv], keysOf(node))
      })
    },
  },
}
