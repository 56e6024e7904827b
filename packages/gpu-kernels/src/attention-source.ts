/**
 * Sources of attention without its scores in memory. `attend` gives a threadgroup to each query, for few of them and for wide features;
 * `attend_tiles` of attention-tiles-source.ts serves many.
 */
import { METAL_HEADER } from "./metal-types"

/** The form of a kernel: all that its source depends on. */
export interface AttentionForm {
  readonly type: string
  /** Bytes of an element. */
  readonly size: number
  /** Features of queries and keys, and of values. */
  readonly features: number
  readonly wide: number
  /** The mask's type. */
  readonly mask: string | null
  readonly causal: boolean
  /** The type of the sinks: one more score of each head, without a value. */
  readonly sinks: string | null
  /** Elements that are loaded at once. */
  readonly width: number
}

/** The element of a mask for query `i` and key `j` of `head` and `batch`, as `at`. */
const MASK_ELEMENT = `uint at = ((mask_sizes[0] > 1 ? batch : 0) * mask_sizes[1] + (mask_sizes[1] > 1 ? head : 0)) * mask_sizes[2];
        at = ((at + (mask_sizes[2] > 1 ? i : 0)) * mask_sizes[3]) + (mask_sizes[3] > 1 ? j : 0);`

/** Goes on where a mask hides all of the keys that come next: what a cache has room for beyond its tokens is not read. */
const hiddenText = ({ mask }: AttentionForm, ahead: number): string =>
  mask === "bool"
    ? `    bool hidden = true;
    for (uint a = 0; a < ${ahead}; a++) {
      uint j = min(begin + a, seen - 1);
      { ${MASK_ELEMENT}
        if (mask[at]) hidden = false; }
    }
    if (hidden) continue;
`
    : ""

/** Changes the score `s` of query `i` and key `j` of `head` and `batch` where a mask says so. */
export const maskText = ({ mask, causal }: AttentionForm): string =>
  `${causal ? "if (int(j) > int(i) + int(keys) - int(length)) s = -INFINITY;" : ""}${
    mask === null
      ? ""
      : ` { ${MASK_ELEMENT}
        ${mask === "bool" ? "if (!mask[at]) s = -INFINITY;" : "s += float(mask[at]);"} }`
  }`

/** Parameters, after those of a kernel's own; `sink_step` is how far the sinks of the next batch element are. */
export const parametersOf = (form: AttentionForm, parameters: readonly string[]): string =>
  [
    ...parameters,
    ...(form.mask === null ? [] : [`device const ${form.mask}* mask`, "constant uint* mask_sizes"]),
    ...(form.sinks === null ? [] : [`device const ${form.sinks}* sinks`, "constant uint& sink_step"]),
    "constant uint* sizes",
    "constant float& scale",
  ]
    .map((text, k) => `${text} [[buffer(${k})]]`)
    .join(", ")

/** The sink of a head. */
export const SINK = "float(sinks[batch * sink_step + head])"

/** The sizes, as every kernel reads them. */
export const SIZES = "  uint heads = sizes[0], key_heads = sizes[1], length = sizes[2], keys = sizes[3];\n"

/** Kernel `attend_shares`: Σ g·o of each query, by a simdgroup each. Sizes: queries, features. */
export const sharesSource = (
  type: string,
): string => `${METAL_HEADER}kernel void attend_shares(device const ${type}* o [[buffer(0)]],
    device const ${type}* g [[buffer(1)]], device float* shares [[buffer(2)]], constant uint* sizes [[buffer(3)]],
    uint group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  uint line = group * 8 + simdgroup, n = line < sizes[0] ? sizes[1] : 0;
  float share = 0.0f;
  for (uint f = lane; f < n; f += 32) share += float(o[line * n + f]) * float(g[line * n + f]);
  share = simd_sum(share);
  if (lane == 0 && n > 0) shares[line] = share;
}
`

/**
 * Kernel `attend_sinks`: the derivative by each sink, −Σ of its share of the softmax · Σ g·o, by a threadgroup. Sizes: heads, queries, the
 * batch elements that share a sink.
 */
export const sinksSource = (
  type: string,
): string => `${METAL_HEADER}kernel void attend_sinks(device const ${type}* sinks [[buffer(0)]],
    device const float* lse [[buffer(1)]], device const float* shares [[buffer(2)]], device ${type}* slopes [[buffer(3)]],
    constant uint* sizes [[buffer(4)]], uint at [[threadgroup_position_in_grid]], uint thread_at [[thread_position_in_threadgroup]],
    uint threads [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  uint heads = sizes[0], length = sizes[1], batches = sizes[2];
  float sink = float(sinks[at]), slope = 0.0f;
  for (uint b = 0; b < batches; b++) {
    uint line = (b * heads + at) * length;
    for (uint i = thread_at; i < length; i += threads)
      if (sink != -INFINITY) slope -= precise::exp(sink - lse[line + i]) * shares[line + i];
  }
  threadgroup float parts[32];
  slope = simd_sum(slope);
  if (lane == 0) parts[simdgroup] = slope;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (thread_at == 0) {
    float sum = 0.0f;
    for (uint s = 0; s < threads / 32; s++) sum += parts[s];
    slopes[at] = ${type}(sum);
  }
}
`

/** The most simdgroups of `attend`. */
export const MOST_SIMDGROUPS = 16

/**
 * Kernel `attend`: q, k, v, o, lse. A threadgroup for each query, whose simdgroups share the keys, some at once. In parts: q, k, v, sums,
 * tops; a threadgroup for each query and each part of the keys, and `attend_join` after it. Sizes: heads, key heads, queries, keys, parts.
 */
export function querySource(form: AttentionForm, inParts: boolean): string {
  const { type, features, wide, causal, sinks } = form
  const ends = sinks !== null && !inParts
  const [d, e] = [features, wide].map((n) => Math.ceil(n / 32))
  const ahead = Math.max(d, e) <= 4 ? 4 : 1
  const row = (name: string, from: string, at: string, count: number, n: number): string =>
    `for (uint u = 0; u < ${count}; u++) { uint f = lane + 32 * u; ${name}[u] = 0.0f; if (f < ${n}) ${name}[u] = float(${from}[(${at}) * ${n} + f]); }`
  const outputs = inParts
    ? ["device float* partial", "device float* tops_sums"]
    : [`device ${type}* o`, "device float* lse"]
  return `${METAL_HEADER}kernel void attend(${parametersOf({ ...form, sinks: ends ? sinks : null }, [...["q", "k", "v"].map((name) => `device const ${type}* ${name}`), ...outputs])},
    uint group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint threads [[threads_per_threadgroup]]) {
${SIZES}  uint line = ${inParts ? "group / sizes[4]" : "group"};
  uint i = line % length, head = line / length % heads, batch = line / length / heads, simdgroups = threads / 32;
  uint from = (batch * key_heads + head / (heads / key_heads)) * keys;
  float mine[${d}], total[${e}];
  ${row("mine", "q", "line", d, features)}
  for (uint u = 0; u < ${e}; u++) total[u] = 0.0f;
  float top = -3e38f, sum = 0.0f;
  uint seen = ${causal ? "min(keys, keys + i + 1 > length ? keys + i + 1 - length : 0)" : "keys"};
${
  inParts
    ? `  uint each = (keys + sizes[4] - 1) / sizes[4], first = group % sizes[4] * each;
  seen = min(seen, first + each);
`
    : ""
}  for (uint begin = ${inParts ? "first + " : ""}simdgroup * ${ahead}; begin < seen; begin += simdgroups * ${ahead}) {
${hiddenText(form, ahead)}    float others[${ahead}][${d}], values[${ahead}][${e}], scores[${ahead}];
    for (uint a = 0; a < ${ahead}; a++) {
      uint at = from + min(begin + a, seen - 1);
      ${row("others[a]", "k", "at", d, features)}
      ${row("values[a]", "v", "at", e, wide)}
    }
    float high = top;
    for (uint a = 0; a < ${ahead}; a++) {
      uint j = begin + a;
      float s = 0.0f;
      for (uint u = 0; u < ${d}; u++) s += mine[u] * others[a][u];
      s = simd_sum(s) * scale;
      if (j < seen) { ${maskText(form)} }
      else s = -INFINITY;
      scores[a] = s;
      high = max(high, s);
    }
    float shrink = precise::exp(top - high);
    sum *= shrink;
    for (uint u = 0; u < ${e}; u++) total[u] *= shrink;
    for (uint a = 0; a < ${ahead}; a++) {
      float p = precise::exp(scores[a] - high);
      sum += p;
      if (begin + a < seen) { for (uint u = 0; u < ${e}; u++) total[u] += p * values[a][u]; }
    }
    top = high;
  }
  threadgroup float tops[${MOST_SIMDGROUPS}];
  threadgroup float sums[${MOST_SIMDGROUPS}];
  threadgroup float shared[${MOST_SIMDGROUPS}][32];
  if (lane == 0) tops[simdgroup] = top;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float high = top;
  for (uint s = 0; s < simdgroups; s++) high = max(high, tops[s]);
${ends ? `  float sink = ${SINK};\n  high = max(high, sink);\n` : ""}  float shrink = precise::exp(top - high);
  if (lane == 0) sums[simdgroup] = sum * shrink;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  sum = 0.0f;
  for (uint s = 0; s < simdgroups; s++) sum += sums[s];
${ends ? "  sum += precise::exp(sink - high);\n" : ""}  for (uint u = 0; u < ${e}; u++) {
    shared[simdgroup][lane] = total[u] * shrink;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint f = lane + 32 * u;
    if (simdgroup == u % simdgroups && f < ${wide}) {
      float value = 0.0f;
      for (uint s = 0; s < simdgroups; s++) value += shared[s][lane];
      ${inParts ? `partial[group * ${wide} + f] = value;` : `o[line * ${wide} + f] = ${type}(value / max(sum, 1e-30f));`}
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (lane == 0 && simdgroup == 0) ${inParts ? "{ tops_sums[2 * group] = high; tops_sums[2 * group + 1] = sum; }" : "lse[line] = precise::log(sum) + high;"}
}
`
}

/** Kernel `attend_join`: sums, tops, o, lse. A threadgroup for each query, a thread for each feature. Sizes: heads, queries, parts. */
export const joinSource = ({
  type,
  wide,
  sinks,
}: AttentionForm): string => `${METAL_HEADER}kernel void attend_join(
    device const float* partial [[buffer(0)]], device const float* tops_sums [[buffer(1)]], device ${type}* o [[buffer(2)]],
    device float* lse [[buffer(3)]], constant uint* sizes [[buffer(4)]],${sinks === null ? "" : `\n    device const ${sinks}* sinks [[buffer(5)]], constant uint& sink_step [[buffer(6)]],`}
    uint line [[threadgroup_position_in_grid]], uint f [[thread_position_in_threadgroup]]) {
  uint parts = sizes[2], from = line * parts;
  float high = -3e38f, sum = 0.0f, total = 0.0f;
  for (uint p = 0; p < parts; p++) high = max(high, tops_sums[2 * (from + p)]);
${
  sinks
    ? `  uint head = line / sizes[1] % sizes[0], batch = line / sizes[1] / sizes[0];
  float sink = ${SINK};
  high = max(high, sink);
  sum = precise::exp(sink - high);
`
    : ""
}  for (uint p = 0; p < parts; p++) {
    float weight = precise::exp(tops_sums[2 * (from + p)] - high);
    sum += weight * tops_sums[2 * (from + p) + 1];
    if (f < ${wide}) total += weight * partial[(from + p) * ${wide} + f];
  }
  if (f < ${wide}) o[line * ${wide} + f] = ${type}(total / max(sum, 1e-30f));
  if (f == 0) lse[line] = precise::log(sum) + high;
}
`
