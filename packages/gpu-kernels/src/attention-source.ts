/**
 * Sources of attention without its scores in memory. `attend_tiles` keeps 32 queries and runs over tiles of keys by simdgroup matrices,
 * with the softmax's maximum and sum so far (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et al.,
 * "FlashAttention", 2022). Its derivative finds the probabilities again from log Σ exp: one kernel keeps queries and runs over keys, one
 * keeps keys and runs over queries. `attend` gives a threadgroup to each query, for few of them and for wide features.
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

/** Rows that a threadgroup keeps: eight for each simdgroup. */
export const TILE_ROWS = 32
const SIMDGROUPS = TILE_ROWS / 8
export const TILE_THREADS = SIMDGROUPS * 32
/** Bytes of a wide row's features; of wider ones a tile has 16 instead of 32. */
const WIDE = 256

/** Changes the score `s` of query `i` and key `j` of `head` and `batch` where a mask says so. */
const maskText = ({ mask, causal }: AttentionForm): string =>
  `${causal ? "if (int(j) > int(i) + int(keys) - int(length)) s = -INFINITY;" : ""}${
    mask === null
      ? ""
      : ` { uint at = ((mask_sizes[0] > 1 ? batch : 0) * mask_sizes[1] + (mask_sizes[1] > 1 ? head : 0)) * mask_sizes[2];
        at = ((at + (mask_sizes[2] > 1 ? i : 0)) * mask_sizes[3]) + (mask_sizes[3] > 1 ? j : 0);
        ${mask === "bool" ? "if (!mask[at]) s = -INFINITY;" : "s += float(mask[at]);"} }`
  }`

/** Parameters, after those of a kernel's own; `sink_step` is how far the sinks of the next batch element are. */
const parametersOf = (form: AttentionForm, parameters: readonly string[]): string =>
  [
    ...parameters,
    ...(form.mask === null ? [] : [`device const ${form.mask}* mask`, "constant uint* mask_sizes"]),
    ...(form.sinks === null ? [] : [`device const ${form.sinks}* sinks`, "constant uint& sink_step"]),
    "constant uint* sizes",
    "constant float& scale",
  ]
    .map((text, k) => `${text} [[buffer(${k})]]`)
    .join(", ")

const SINK = "float(sinks[batch * sink_step + head])"

const SIZES = "  uint heads = sizes[0], key_heads = sizes[1], length = sizes[2], keys = sizes[3];\n"

/** The side that is kept: queries for their results, queries or keys for their derivatives. */
export type TileMode = "forward" | "queries" | "keys"

const eight = (n: number): number => Math.ceil(n / 8) * 8

/**
 * Kernel `attend_tiles`. Forward: q, k, v, o, lse. Queries: q, k, v, g, lse, shares, dq. Keys: q, k, v, g, lse, shares, dk, dv. `shares`
 * has Σ g·o of each query. Sizes: heads, key heads, queries, keys, blocks of kept rows. Only forward reads sinks: they are part of lse.
 */
export function tilesSource(form: AttentionForm, mode: TileMode): string {
  const { type, size, features, wide, causal, width } = form
  const [d, e] = [eight(features), eight(wide)]
  const columns = Math.max(d, e) * size > WIDE ? 16 : 32
  const [d8, e8, c8] = [d / 8, e / 8, columns / 8]
  const pad = 16 / size
  const forward = mode === "forward"
  const byKeys = mode === "keys"
  const tile = `simdgroup_matrix<${type}, 8, 8>`
  const sums = "simdgroup_matrix<float, 8, 8>"
  const pack = width > 1 ? "lz_pack" : type

  const parameters = [
    ...["q", "k", "v"].map((name) => `device const ${type}* ${name}`),
    ...(forward
      ? [`device ${type}* o`, "device float* lse"]
      : [`device const ${type}* g`, "device const float* lse", "device const float* shares"]),
    ...(mode === "queries" ? [`device ${type}* dq`] : []),
    ...(byKeys ? [`device ${type}* dk`, `device ${type}* dv`] : []),
  ]

  /** Matrices of rows that the simdgroup keeps, from `from` on. */
  const keep = (name: string, from: string, count: number, n: number): string => `  ${tile} ${name}[${n / 8}];
  for (uint f = 0; f < ${n / 8}; f++)
    for (uint c = 0; c < 2; c++) {
      uint at = 8 * f + in_column + c;
      ${type} value = ${type}(0.0f);
      if (row < kept${n === count ? "" : ` && at < ${count}`}) value = ${from}[row * ${count} + at];
      ${name}[f].thread_elements()[c] = value;
    }
`
  /** Tiles of `columns` rows of `n` features, through registers. */
  const loads = (n: number): number => Math.ceil((columns * n) / width / TILE_THREADS)
  const each = (n: number, count: number, body: string): string =>
    `for (uint u = 0; u < ${loads(n)}; u++) {
        uint w = u * ${TILE_THREADS} + lane, r = w / ${n / width}, c = w % ${n / width} * ${width};
        ${(columns * n) / width === loads(n) * TILE_THREADS ? "" : `if (r < ${columns}) `}{ ${body.replaceAll("COUNT", String(count))} }
      }`
  const zero =
    width > 1 ? `for (uint z = 0; z < ${width}; z++) v.v[z] = ${type}(0.0f);` : `v = ${type}(0.0f);`
  const fetch = (into: string, from: string, n: number, count: number, base: string): string =>
    each(
      n,
      count,
      `${pack} v; ${zero} if (${base} + r < others${n === count ? "" : " && c < COUNT"}) v = *(device const ${pack}*)(${from} + (${base} + r) * COUNT + c); ${into}[u] = v;`,
    )
  const put = (from: string, into: string, n: number, count: number): string =>
    each(n, count, `*(threadgroup ${pack}*)(${into} + r * ${n + pad} + c) = ${from}[u];`)
  const product = (into: string, left: string, tileName: string, n: number, transposed: boolean): string =>
    transposed
      ? `for (uint f = 0; f < ${n / 8}; f++) {
        ${tile} y;
        simdgroup_load(y, ${tileName} + 8 * t * ${n + pad} + 8 * f, ${n + pad}, ulong2(0, 0), true);
        simdgroup_multiply_accumulate(${into}, ${left}[f], y, ${into});
      }`
      : `for (uint f = 0; f < ${n / 8}; f++) {
        ${tile} y;
        simdgroup_load(y, ${tileName} + 8 * t * ${n + pad} + 8 * f, ${n + pad});
        simdgroup_multiply_accumulate(${into}[f], ${left}, y, ${into}[f]);
      }`
  const filled = (name: string, n: number): string => `  ${sums} ${name}[${n}];
  for (uint f = 0; f < ${n}; f++) ${name}[f] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
`
  const write = (
    to: string,
    from: string,
    factor: string,
    n: number,
    count: number,
  ): string => `  for (uint f = 0; f < ${n / 8}; f++)
    for (uint c = 0; c < 2; c++) {
      uint at = 8 * f + in_column + c;
      if (row < kept${n === count ? "" : ` && at < ${count}`}) ${to}[row * ${count} + at] = ${type}(${from}[f].thread_elements()[c] * ${factor});
    }
`
  const indices = byKeys
    ? "uint j = row, i = base + 8 * t + in_column + c;"
    : "uint i = row, j = base + 8 * t + in_column + c;"
  const scored = `float s = scores[t].thread_elements()[c] * scale;
          ${indices}
          if (i < length && j < keys) { ${maskText(form)} }
          else s = -INFINITY;`

  /** The work on a tile's scores. */
  const scores = forward
    ? `      float high = top;
      for (uint t = 0; t < ${c8}; t++)
        for (uint c = 0; c < 2; c++) {
          ${scored}
          scores[t].thread_elements()[c] = s;
          high = max(high, s);
        }
      high = max(high, simd_shuffle_xor(high, 1));
      high = max(high, simd_shuffle_xor(high, 8));
      float shrink = precise::exp(top - high), more = 0.0f;
      top = high;
      for (uint f = 0; f < ${e8}; f++)
        for (uint c = 0; c < 2; c++) result[f].thread_elements()[c] *= shrink;
      for (uint t = 0; t < ${c8}; t++) {
        ${tile} p;
        for (uint c = 0; c < 2; c++) {
          float value = precise::exp(scores[t].thread_elements()[c] - high);
          more += value;
          p.thread_elements()[c] = ${type}(value);
        }
        ${product("result", "p", "two", e, false)}
      }
      more += simd_shuffle_xor(more, 1);
      more += simd_shuffle_xor(more, 8);
      sum = sum * shrink + more;
`
    : `      for (uint t = 0; t < ${c8}; t++) {
        ${sums} dp = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
        ${product("dp", "kept_wide", "two", e, true)}
        ${tile} ${byKeys ? "p, " : ""}ds;
        for (uint c = 0; c < 2; c++) {
          ${scored}
          float value = 0.0f, slope = 0.0f;
          if (s != -INFINITY) {
            value = precise::exp(s - ${byKeys ? "lse[queries + i]" : "sums"});
            slope = value * (dp.thread_elements()[c] - ${byKeys ? "shares[queries + i]" : "share"});
          }
          ds.thread_elements()[c] = ${type}(slope);
${byKeys ? `          p.thread_elements()[c] = ${type}(value);\n` : ""}        }
        ${product("slopes", "ds", "one", d, false)}
${byKeys ? `        ${product("slopes_wide", "p", "two", e, false)}\n` : ""}      }
`
  const loop = (
    begin: string,
    end: string,
  ): string => `    ${pack} next_one[${loads(d)}], next_two[${loads(e)}];
    uint base = ${begin}, end = ${end};
    if (base < end) {
      ${fetch("next_one", "first", d, features, "base")}
      ${fetch("next_two", "second", e, wide, "base")}
    }
    for (; base < end; base += ${columns}) {
      threadgroup_barrier(mem_flags::mem_threadgroup);
      ${put("next_one", "one", d, features)}
      ${put("next_two", "two", e, wide)}
      threadgroup_barrier(mem_flags::mem_threadgroup);
      if (base + ${columns} < end) {
        ${fetch("next_one", "first", d, features, `base + ${columns}`)}
        ${fetch("next_two", "second", e, wide, `base + ${columns}`)}
      }
      ${sums} scores[${c8}];
      for (uint t = 0; t < ${c8}; t++) {
        scores[t] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
        ${product("scores[t]", "kept_rows", "one", d, true)}
      }
${scores}    }
`
  const packs = (n: number): string =>
    width > 1 ? `lz_pack ${"NAME"}[${(columns * (n + pad)) / width}]` : `${type} NAME[${columns * (n + pad)}]`
  const shared = (
    name: string,
    n: number,
  ): string => `  threadgroup ${packs(n).replace("NAME", `${name}_tile`)};
  threadgroup ${type}* ${name} = (threadgroup ${type}*)${name}_tile;
`
  const head = `${METAL_HEADER}${width > 1 ? `struct alignas(sizeof(${type}) * ${width}) lz_pack { ${type} v[${width}]; };\n` : ""}kernel void attend_tiles(${parametersOf(form, parameters)},
    uint lane [[thread_position_in_threadgroup]], uint group [[threadgroup_position_in_grid]],
    uint simd_lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
${SIZES}${shared("one", d)}${shared("two", e)}  // A thread holds two neighbours of one row of each matrix.
  uint quad = simd_lane / 4, in_row = (quad & 4) + simd_lane / 2 % 4, in_column = (quad & 2) * 2 + simd_lane % 2 * 2;
  uint blocks = sizes[4], line = group / blocks, block = ${causal && !byKeys ? "blocks - 1 - group % blocks" : "group % blocks"};
  uint row = block * ${TILE_ROWS} + 8 * simdgroup + in_row;
`
  if (byKeys)
    return `${head}  uint batch = line / key_heads, several = heads / key_heads, kept = keys, others = length;
  k += line * keys * ${features};
  v += line * keys * ${wide};
  dk += line * keys * ${features};
  dv += line * keys * ${wide};
${keep("kept_rows", "k", features, d)}${keep("kept_wide", "v", wide, e)}${filled("slopes", d8)}${filled("slopes_wide", e8)}  for (uint h = 0; h < several; h++) {
    uint head = line % key_heads * several + h, queries = (batch * heads + head) * length;
    device const ${type}* first = q + queries * ${features};
    device const ${type}* second = g + queries * ${wide};
${loop(causal ? `block * ${TILE_ROWS} + length > keys ? (block * ${TILE_ROWS} + length - keys) / ${columns} * ${columns} : 0` : "0", "length")}  }
${write("dk", "slopes", "scale", d, features)}${write("dv", "slopes_wide", "1.0f", e, wide)}}
`
  const location = `  uint head = line % heads, batch = line / heads, kept = length, others = keys;
  uint from = (batch * key_heads + head / (heads / key_heads)) * keys, queries = line * length;
  device const ${type}* first = k + from * ${features};
  device const ${type}* second = v + from * ${wide};
  q += queries * ${features};
`
  const end = causal
    ? `min(keys, keys + (block + 1) * ${TILE_ROWS} > length ? keys + (block + 1) * ${TILE_ROWS} - length : 0)`
    : "keys"
  if (forward)
    return `${head}${location}  o += queries * ${wide};
${keep("kept_rows", "q", features, d)}${filled("result", e8)}  float top = -3e38f, sum = 0.0f;
  {
${loop("0", end)}  }
${
  form.sinks
    ? `  float sink = ${SINK}, high = max(top, sink), shrink = precise::exp(top - high);
  sum = sum * shrink + precise::exp(sink - high);
  top = high;
  float share = shrink / max(sum, 1e-30f);`
    : "  float share = 1.0f / max(sum, 1e-30f);"
}
${write("o", "result", "share", e, wide)}  if (in_column == 0 && row < kept) lse[queries + row] = precise::log(sum) + top;
}
`
  return `${head}${location}  g += queries * ${wide};
  dq += queries * ${features};
${keep("kept_rows", "q", features, d)}${keep("kept_wide", "g", wide, e)}${filled("slopes", d8)}  float sums = 0.0f, share = 0.0f;
  if (row < kept) {
    sums = lse[queries + row];
    share = shares[queries + row];
  }
  {
${loop("0", end)}  }
${write("dq", "slopes", "scale", d, features)}}
`
}

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
    float others[${ahead}][${d}], values[${ahead}][${e}], scores[${ahead}];
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
