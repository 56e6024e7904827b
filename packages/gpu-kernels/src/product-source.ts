/**
 * Sources of products of matrices: y[r, c] = Σ a[r, k] · b[k, c]. What a and b are is text, so that strided, gathered, masked and packed
 * matrices and the patches of a convolution share the kernels: `product_tiles` by simdgroup matrices, `product_rows` and
 * `product_columns` for a few rows, and `product_pairs` for complex numbers.
 */
import { METAL_HEADER } from "./metal-types"
import { functionsFor } from "./scalar-source"

/** The operands of a product, in Metal. */
export interface ProductText {
  readonly key: string
  /** The type in which elements are multiplied; sums are float, of complex numbers `float2`. */
  readonly type: string
  /** Buffers, in their order, without attributes; `layout` is added behind them. */
  readonly parameters: readonly string[]
  /** Functions and types. */
  readonly functions?: string
  /** Statements on the batch `z` that find what the others use; they may narrow `begin` and `end`, the bounds of k. */
  readonly setup: string
  /** a[r, k] and b[k, c], of the type, for indices in bounds. */
  readonly a: string
  readonly b: string
  /** Writes the float `value` to y[r, c]. */
  readonly store: string
  /** True if neighbours along k are neighbours in memory. */
  readonly aAlongK: boolean
  readonly bAlongK: boolean
}

/** Rows, columns and depth begin the layout. */
export const PRODUCT_HEADER = 3

/** The sides of a tile, and the depth that is loaded at once. */
export const TILE = 64
const DEPTH = 16
const THREADS = 128
/** Elements from row to row of the tiles, and of 8 rows of a simdgroup's result. */
const LEFT = DEPTH + 4
const RIGHT = TILE + 4
const STRIP = 36
/** The most rows of `product_rows` and `product_columns`. */
export const FEW_ROWS = 8

const parametersOf = ({ parameters }: ProductText): string =>
  [...parameters, "constant int* layout"].map((text, i) => `${text} [[buffer(${i})]]`).join(", ")

const opening = (text: ProductText): string => `  uint m = uint(layout[0]), n = uint(layout[1]);
  uint begin = 0, end = uint(layout[2]);
${text.setup}`

/** The beginning of a source, with the functions that it and `body` call. */
const head = (text: ProductText, body = ""): string => {
  const all = `${text.functions ?? ""}${text.a}${text.b}${text.store}${body}`
  return `${METAL_HEADER}${functionsFor(all)}${text.functions ?? ""}
`
}

/** 64 × 64 elements a threadgroup of four simdgroups, 32 × 32 each; the next tiles are on their way while these are multiplied. */
export function tilesSource(text: ProductText): string {
  const { type } = text
  const each = (TILE * DEPTH) / THREADS
  const shared = Math.max(4 * 8 * STRIP, TILE * LEFT + DEPTH * RIGHT)
  const element = (of: "a" | "b"): string => {
    const along = of === "a" ? text.aAlongK : text.bAlongK
    return along
      ? `uint i = lane + e * ${THREADS}, s = i / ${DEPTH}, d = i % ${DEPTH};`
      : `uint i = lane + e * ${THREADS}, s = i % ${TILE}, d = i / ${TILE};`
  }
  const fetch = `
    for (uint e = 0; e < ${each}; e++) {
      { ${element("a")} uint r = top + s, k = depth + d; next_a[e] = ${type}(0); if (r < m && k < end) next_a[e] = ${text.a}; }
      { ${element("b")} uint c = first + s, k = depth + d; next_b[e] = ${type}(0); if (c < n && k < end) next_b[e] = ${text.b}; }
    }`
  return `${head(text)}kernel void product_tiles(${parametersOf(text)},
    uint lane [[thread_position_in_threadgroup]], uint group [[threadgroup_position_in_grid]],
    uint simd_lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
${opening(text).replace("uint begin", "uint across = (n + 63) / 64, tiles = across * ((m + 63) / 64), z = group / tiles, tile = group % tiles;\n  uint begin")}
  uint top = tile / across * ${TILE}, first = tile % across * ${TILE};
  threadgroup float shared[${shared}];
  threadgroup ${type}* left = (threadgroup ${type}*)shared;
  threadgroup ${type}* right = left + ${TILE * LEFT};
  simdgroup_matrix<float, 8, 8> sums[4][4];
  for (uint i = 0; i < 4; i++)
    for (uint j = 0; j < 4; j++) sums[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  uint row = simdgroup / 2 * 32, column = simdgroup % 2 * 32;
  ${type} next_a[${each}], next_b[${each}];
  uint depth = begin;${fetch}
  for (; depth < end;) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint e = 0; e < ${each}; e++) {
      { ${element("a")} left[s * ${LEFT} + d] = next_a[e]; }
      { ${element("b")} right[d * ${RIGHT} + s] = next_b[e]; }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    depth += ${DEPTH};${fetch}
    for (uint d = 0; d < ${DEPTH}; d += 8) {
      simdgroup_matrix<${type}, 8, 8> a[4], b[4];
      for (uint i = 0; i < 4; i++) {
        simdgroup_load(a[i], left + (row + 8 * i) * ${LEFT} + d, ${LEFT});
        simdgroup_load(b[i], right + d * ${RIGHT} + column + 8 * i, ${RIGHT});
      }
      for (uint i = 0; i < 4; i++)
        for (uint j = 0; j < 4; j++) simdgroup_multiply_accumulate(sums[i][j], a[i], b[j], sums[i][j]);
    }
  }
  // Through threadgroup memory, so that neighbours are written together.
  threadgroup float* strip = shared + simdgroup * ${8 * STRIP};
  for (uint i = 0; i < 4; i++) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint j = 0; j < 4; j++) simdgroup_store(sums[i][j], strip + 8 * j, ${STRIP});
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint c = first + column + simd_lane;
    if (c < n)
      for (uint e = 0; e < 8; e++) {
        uint r = top + row + 8 * i + e;
        if (r < m) {
          float value = strip[e * ${STRIP} + simd_lane];
          ${text.store}
        }
      }
  }
}
`
}

/** A few rows of a, whose columns of b lie elsewhere than side by side: a thread for each column and an eighth of k. */
export function rowsSource(text: ProductText, rows: number): string {
  const each = (body: string): string => `for (uint r = 0; r < ${rows}; r++) ${body}`
  return `${head(text)}kernel void product_rows(${parametersOf(text)},
    uint2 lane [[thread_position_in_threadgroup]], uint group [[threadgroup_position_in_grid]]) {
${opening(text).replace("uint begin", "uint blocks = (n + 31) / 32, z = group / blocks;\n  uint begin")}
  uint c = group % blocks * 32 + lane.x, stride = 8;
  bool inside = c < n;
  float sums[${rows}];
  ${each("sums[r] = 0.0f;")}
  for (uint k0 = begin + lane.y; k0 < end; k0 += 32) {
    float several[4];
    for (uint u = 0; u < 4; u++) { uint k = k0 + u * stride; several[u] = 0.0f; if (inside && k < end) several[u] = float(${text.b}); }
    for (uint u = 0; u < 4; u++) { uint k = k0 + u * stride; if (k < end) ${each(`if (r < m) sums[r] += float(${text.a}) * several[u];`)} }
  }
  threadgroup float shared[8][${rows}][32];
  ${each("shared[lane.y][r][lane.x] = sums[r];")}
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (lane.y == 0 && inside) {
    ${each(`if (r < m) {
      float value = 0.0f;
      for (uint o = 0; o < 8; o++) value += shared[o][r][lane.x];
      ${text.store}
    }`)}
  }
}
`
}

/** The part of a row that a threadgroup of {@link columnsSource} keeps: whole rounds of its simdgroups, and 16 KB for eight rows. */
const KEPT = 512

/**
 * A few rows of a by columns of b that lie along k: so many columns a simdgroup. A threadgroup reads the rows once for all of its columns.
 */
export function columnsSource(text: ProductText, rows: number, columns: number): string {
  const each = (body: string): string => `for (uint r = 0; r < ${rows}; r++) ${body}`
  const ofColumns = (body: string): string => `for (uint j = 0; j < ${columns}; j++) ${body}`
  return `${head(text)}kernel void product_columns(${parametersOf(text)}, uint lane [[thread_position_in_threadgroup]],
    uint group [[threadgroup_position_in_grid]], uint threads [[threads_per_threadgroup]],
    uint simd_lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
${opening(text).replace("uint begin", `uint per = threads / 32 * ${columns}, blocks = (n + per - 1) / per, z = group / blocks;\n  uint begin`)}
  uint first = group % blocks * per + simdgroup * ${columns};
  threadgroup float kept[${rows * KEPT}];
  float sums[${rows}][${columns}];
  ${each(ofColumns("sums[r][j] = 0.0f;"))}
  for (uint from = begin; from < end; from += ${KEPT}) {
    uint to = min(from + ${KEPT}, end);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = lane; i < ${rows * KEPT}; i += threads) {
      uint r = i / ${KEPT}, k = from + i % ${KEPT};
      if (r < m && k < to) kept[i] = float(${text.a});
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint k0 = from + simd_lane; k0 < to; k0 += 128) {
      float several[${columns}][4];
      ${ofColumns(`{
        uint c = first + j;
        for (uint u = 0; u < 4; u++) { uint k = k0 + u * 32; several[j][u] = 0.0f; if (c < n && k < to) several[j][u] = float(${text.b}); }
      }`)}
      for (uint u = 0; u < 4; u++) {
        uint k = k0 + u * 32 - from;
        if (from + k < to)
          ${each(`if (r < m) { float left = kept[r * ${KEPT} + k]; ${ofColumns("sums[r][j] += left * several[j][u];")} }`)}
      }
    }
  }
  ${ofColumns(`{
    uint c = first + j;
    ${each(`{ float value = simd_sum(sums[r][j]); if (simd_lane == 0 && c < n && r < m) { ${text.store} } }`)}
  }`)}
}
`
}

const SWAPPED: Record<string, string> = { r: "c", c: "r", m: "n", n: "m" }

/** The same product with rows and columns exchanged: yᵀ = bᵀ aᵀ. */
export function swapped(text: ProductText): ProductText {
  const swap = (part: string): string => part.replace(/\b[rcmn]\b/g, (name) => SWAPPED[name])
  return {
    ...text,
    key: `swapped ${text.key}`,
    a: swap(text.b),
    b: swap(text.a),
    store: swap(text.store),
    aAlongK: text.bAlongK,
    bAlongK: text.aAlongK,
  }
}

/** Complex numbers: 16 × 16 tiles, a thread each. */
export function pairsSource(text: ProductText): string {
  return `${head(text, "lz_cmul")}kernel void product_pairs(${parametersOf(text)},
    uint2 lane [[thread_position_in_threadgroup]], uint group [[threadgroup_position_in_grid]]) {
${opening(text).replace("uint begin", "uint across = (n + 15) / 16, tiles = across * ((m + 15) / 16), z = group / tiles, tile = group % tiles;\n  uint begin")}
  threadgroup float2 left[16][17];
  threadgroup float2 right[16][17];
  uint r = tile / across * 16 + lane.y, c = tile % across * 16 + lane.x;
  float2 value = float2(0.0f, 0.0f);
  for (uint depth = begin; depth < end; depth += 16) {
    float2 x = float2(0.0f, 0.0f), y = float2(0.0f, 0.0f);
    { uint k = depth + lane.x; if (r < m && k < end) x = ${text.a}; }
    { uint k = depth + lane.y; if (c < n && k < end) y = ${text.b}; }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    left[lane.y][lane.x] = x;
    right[lane.y][lane.x] = y;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint k = 0; k < 16; k++) value += lz_cmul(left[lane.y][k], right[k][lane.x]);
  }
  if (r < m && c < n) { ${text.store} }
}
`
}

/** A thread for each element: short sums. */
export const eachSource = (
  text: ProductText,
): string => `${head(text)}kernel void product_each(${parametersOf(text)},
    uint2 location [[thread_position_in_grid]]) {
  uint i = location.x, z = location.y;
${opening(text)}  if (i >= m * n) return;
  uint r = i / n, c = i % n;
  float value = 0.0f;
  for (uint k = begin; k < end; k++) value += float(${text.a}) * float(${text.b});
  ${text.store}
}
`
