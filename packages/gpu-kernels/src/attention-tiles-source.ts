/**
 * The source of attention by tiles: `attend_tiles` keeps 32 queries in registers and runs over tiles of keys by simdgroup matrices, with
 * the softmax's maximum and sum so far (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et al.,
 * "FlashAttention", 2022). Its derivative finds the probabilities again from log Σ exp: one kernel keeps queries and runs over keys, one
 * keeps keys and runs over queries.
 */
import { type AttentionForm, maskText, parametersOf, SINK, SIZES } from "./attention-source"
import { METAL_HEADER } from "./metal-types"

/** Rows that a threadgroup keeps: eight for each simdgroup. */
export const TILE_ROWS = 32
const SIMDGROUPS = TILE_ROWS / 8
export const TILE_THREADS = SIMDGROUPS * 32
/** Bytes of a wide row's features; of wider ones a tile has 16 instead of 32. */
const WIDE = 256

/** The side that is kept: queries for their results, queries or keys for their derivatives. */
export type TileMode = "forward" | "queries" | "keys"

/**
 * Kernel `attend_tiles`. Forward: q, k, v, o, lse. Queries: q, k, v, g, lse, shares, dq. Keys: q, k, v, g, lse, shares, dk, dv. `shares`
 * has Σ g·o of each query. Sizes: heads, key heads, queries, keys, blocks of kept rows. Only forward reads sinks: they are part of lse.
 */
export const tilesSource = (form: AttentionForm, mode: TileMode): string => new Tiles(form, mode).source()

const eight = (n: number): number => Math.ceil(n / 8) * 8

/** The text of one kernel. */
class Tiles {
  /** Features of queries and keys, and of values, as matrices have them. */
  private readonly d: number
  private readonly e: number
  /** Rows of a tile. */
  private readonly columns: number
  /** Elements between rows of a tile, so that threads that read a column meet different banks. */
  private readonly pad: number
  private readonly tile: string
  private readonly sums = "simdgroup_matrix<float, 8, 8>"
  private readonly pack: string

  constructor(
    private readonly form: AttentionForm,
    private readonly mode: TileMode,
  ) {
    const { type, size, features, wide, width } = form
    this.d = eight(features)
    this.e = eight(wide)
    this.columns = Math.max(this.d, this.e) * size > WIDE ? 16 : 32
    this.pad = 16 / size
    this.tile = `simdgroup_matrix<${type}, 8, 8>`
    this.pack = width > 1 ? "lz_pack" : type
  }

  source(): string {
    return this.mode === "keys" ? this.keepingKeys() : this.keepingQueries()
  }

  private keepingKeys(): string {
    const { d, e, columns } = this
    const { features, wide, causal } = this.form
    return `${this.head()}  uint batch = line / key_heads, several = heads / key_heads, kept = keys, others = length;
  k += line * keys * ${features};
  v += line * keys * ${wide};
  dk += line * keys * ${features};
  dv += line * keys * ${wide};
${this.keep("kept_rows", "k", features, d)}${this.keep("kept_wide", "v", wide, e)}${this.filled("slopes", d / 8)}${this.filled("slopes_wide", e / 8)}  for (uint h = 0; h < several; h++) {
    uint head = line % key_heads * several + h, queries = (batch * heads + head) * length;
    device const ${this.form.type}* first = q + queries * ${features};
    device const ${this.form.type}* second = g + queries * ${wide};
${this.loop(causal ? `block * ${TILE_ROWS} + length > keys ? (block * ${TILE_ROWS} + length - keys) / ${columns} * ${columns} : 0` : "0", "length")}  }
${this.write("dk", "slopes", "scale", d, features)}${this.write("dv", "slopes_wide", "1.0f", e, wide)}}
`
  }

  private keepingQueries(): string {
    const { type, features, wide } = this.form
    const location = `  uint head = line % heads, batch = line / heads, kept = length, others = keys;
  uint from = (batch * key_heads + head / (heads / key_heads)) * keys, queries = line * length;
  device const ${type}* first = k + from * ${features};
  device const ${type}* second = v + from * ${wide};
  q += queries * ${features};
`
    return `${this.head()}${location}${this.mode === "forward" ? this.forward() : this.derivative()}`
  }

  private forward(): string {
    const { features, wide, sinks } = this.form
    return `  o += queries * ${wide};
${this.keep("kept_rows", "q", features, this.d)}${this.filled("result", this.e / 8)}  float top = -3e38f, sum = 0.0f;
  {
${this.loop("0", this.lastKey())}  }
${
  sinks
    ? `  float sink = ${SINK}, high = max(top, sink), shrink = precise::exp(top - high);
  sum = sum * shrink + precise::exp(sink - high);
  top = high;
  float share = shrink / max(sum, 1e-30f);`
    : "  float share = 1.0f / max(sum, 1e-30f);"
}
${this.write("o", "result", "share", this.e, wide)}  if (in_column == 0 && row < kept) lse[queries + row] = precise::log(sum) + top;
}
`
  }

  private derivative(): string {
    const { features, wide } = this.form
    return `  g += queries * ${wide};
  dq += queries * ${features};
${this.keep("kept_rows", "q", features, this.d)}${this.keep("kept_wide", "g", wide, this.e)}${this.filled("slopes", this.d / 8)}  float sums = 0.0f, share = 0.0f;
  if (row < kept) {
    sums = lse[queries + row];
    share = shares[queries + row];
  }
  {
${this.loop("0", this.lastKey())}  }
${this.write("dq", "slopes", "scale", this.d, features)}}
`
  }

  /** The end of the keys that a block of queries sees. */
  private lastKey(): string {
    return this.form.causal
      ? `min(keys, keys + (block + 1) * ${TILE_ROWS} > length ? keys + (block + 1) * ${TILE_ROWS} - length : 0)`
      : "keys"
  }

  /** The signature, the tiles, and each thread's row. */
  private head(): string {
    const { type, width, causal } = this.form
    return `${METAL_HEADER}${width > 1 ? `struct alignas(sizeof(${type}) * ${width}) lz_pack { ${type} v[${width}]; };\n` : ""}kernel void attend_tiles(${parametersOf(this.form, this.parameters())},
    uint lane [[thread_position_in_threadgroup]], uint group [[threadgroup_position_in_grid]],
    uint simd_lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
${SIZES}${this.shared("one", this.d)}${this.shared("two", this.e)}  // A thread holds two neighbours of one row of each matrix.
  uint quad = simd_lane / 4, in_row = (quad & 4) + simd_lane / 2 % 4, in_column = (quad & 2) * 2 + simd_lane % 2 * 2;
  uint blocks = sizes[4], line = group / blocks, block = ${causal && this.mode !== "keys" ? "blocks - 1 - group % blocks" : "group % blocks"};
  uint row = block * ${TILE_ROWS} + 8 * simdgroup + in_row;
`
  }

  private parameters(): string[] {
    const { type } = this.form
    const { mode } = this
    return [
      ...["q", "k", "v"].map((name) => `device const ${type}* ${name}`),
      ...(mode === "forward"
        ? [`device ${type}* o`, "device float* lse"]
        : [`device const ${type}* g`, "device const float* lse", "device const float* shares"]),
      ...(mode === "queries" ? [`device ${type}* dq`] : []),
      ...(mode === "keys" ? [`device ${type}* dk`, `device ${type}* dv`] : []),
    ]
  }

  /** A tile in threadgroup memory. */
  private shared(name: string, n: number): string {
    const { type, width } = this.form
    const elements = this.columns * (n + this.pad)
    return `  threadgroup ${width > 1 ? `lz_pack ${name}_tile[${elements / width}]` : `${type} ${name}_tile[${elements}]`};
  threadgroup ${type}* ${name} = (threadgroup ${type}*)${name}_tile;
`
  }

  /** The run over tiles of the other side. The next tile is on its way while one is worked on. */
  private loop(begin: string, end: string): string {
    const { d, e, columns, pack, sums } = this
    const { features, wide } = this.form
    const c8 = columns / 8
    return `    ${pack} next_one[${this.loads(d)}], next_two[${this.loads(e)}];
    uint base = ${begin}, end = ${end};
    if (base < end) {
      ${this.fetch("next_one", "first", d, features, "base")}
      ${this.fetch("next_two", "second", e, wide, "base")}
    }
    for (; base < end; base += ${columns}) {
      threadgroup_barrier(mem_flags::mem_threadgroup);
      ${this.put("next_one", "one", d, features)}
      ${this.put("next_two", "two", e, wide)}
      threadgroup_barrier(mem_flags::mem_threadgroup);
      if (base + ${columns} < end) {
        ${this.fetch("next_one", "first", d, features, `base + ${columns}`)}
        ${this.fetch("next_two", "second", e, wide, `base + ${columns}`)}
      }
      ${sums} scores[${c8}];
      for (uint t = 0; t < ${c8}; t++) {
        scores[t] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
        ${this.product("scores[t]", "kept_rows", "one", d, true)}
      }
${this.mode === "forward" ? this.softmax() : this.slopes()}    }
`
  }

  /** One element of the scores, masked. */
  private scored(): string {
    const indices =
      this.mode === "keys"
        ? "uint j = row, i = base + 8 * t + in_column + c;"
        : "uint i = row, j = base + 8 * t + in_column + c;"
    return `float s = scores[t].thread_elements()[c] * scale;
          ${indices}
          if (i < length && j < keys) { ${maskText(this.form)} }
          else s = -INFINITY;`
  }

  /** The softmax so far, and the values that it weighs. */
  private softmax(): string {
    const { e, columns, tile } = this
    const { type } = this.form
    const c8 = columns / 8
    return `      float high = top;
      for (uint t = 0; t < ${c8}; t++)
        for (uint c = 0; c < 2; c++) {
          ${this.scored()}
          scores[t].thread_elements()[c] = s;
          high = max(high, s);
        }
      high = max(high, simd_shuffle_xor(high, 1));
      high = max(high, simd_shuffle_xor(high, 8));
      float shrink = precise::exp(top - high), more = 0.0f;
      top = high;
      for (uint f = 0; f < ${e / 8}; f++)
        for (uint c = 0; c < 2; c++) result[f].thread_elements()[c] *= shrink;
      for (uint t = 0; t < ${c8}; t++) {
        ${tile} p;
        for (uint c = 0; c < 2; c++) {
          float value = precise::exp(scores[t].thread_elements()[c] - high);
          more += value;
          p.thread_elements()[c] = ${type}(value);
        }
        ${this.product("result", "p", "two", e, false)}
      }
      more += simd_shuffle_xor(more, 1);
      more += simd_shuffle_xor(more, 8);
      sum = sum * shrink + more;
`
  }

  /** The scores' derivatives, and what they add to those of the kept side. */
  private slopes(): string {
    const { d, e, columns, tile, sums } = this
    const { type } = this.form
    const byKeys = this.mode === "keys"
    return `      for (uint t = 0; t < ${columns / 8}; t++) {
        ${sums} dp = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
        ${this.product("dp", "kept_wide", "two", e, true)}
        ${tile} ${byKeys ? "p, " : ""}ds;
        for (uint c = 0; c < 2; c++) {
          ${this.scored()}
          float value = 0.0f, slope = 0.0f;
          if (s != -INFINITY) {
            value = precise::exp(s - ${byKeys ? "lse[queries + i]" : "sums"});
            slope = value * (dp.thread_elements()[c] - ${byKeys ? "shares[queries + i]" : "share"});
          }
          ds.thread_elements()[c] = ${type}(slope);
${byKeys ? `          p.thread_elements()[c] = ${type}(value);\n` : ""}        }
        ${this.product("slopes", "ds", "one", d, false)}
${byKeys ? `        ${this.product("slopes_wide", "p", "two", e, false)}\n` : ""}      }
`
  }

  /** Matrices of rows that the simdgroup keeps, from `from` on. */
  private keep(name: string, from: string, count: number, n: number): string {
    const { type } = this.form
    return `  ${this.tile} ${name}[${n / 8}];
  for (uint f = 0; f < ${n / 8}; f++)
    for (uint c = 0; c < 2; c++) {
      uint at = 8 * f + in_column + c;
      ${type} value = ${type}(0.0f);
      if (row < kept${n === count ? "" : ` && at < ${count}`}) value = ${from}[row * ${count} + at];
      ${name}[f].thread_elements()[c] = value;
    }
`
  }

  private filled(name: string, n: number): string {
    return `  ${this.sums} ${name}[${n}];
  for (uint f = 0; f < ${n}; f++) ${name}[f] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
`
  }

  private write(to: string, from: string, factor: string, n: number, count: number): string {
    return `  for (uint f = 0; f < ${n / 8}; f++)
    for (uint c = 0; c < 2; c++) {
      uint at = 8 * f + in_column + c;
      if (row < kept${n === count ? "" : ` && at < ${count}`}) ${to}[row * ${count} + at] = ${this.form.type}(${from}[f].thread_elements()[c] * ${factor});
    }
`
  }

  private product(into: string, left: string, tileName: string, n: number, transposed: boolean): string {
    const { tile, pad } = this
    return transposed
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
  }

  /** Vectors of a tile of `n` features that each thread moves. */
  private loads(n: number): number {
    return Math.ceil((this.columns * n) / this.form.width / TILE_THREADS)
  }

  private each(n: number, count: number, body: string): string {
    const { columns } = this
    const { width } = this.form
    const loads = this.loads(n)
    return `for (uint u = 0; u < ${loads}; u++) {
        uint w = u * ${TILE_THREADS} + lane, r = w / ${n / width}, c = w % ${n / width} * ${width};
        ${(columns * n) / width === loads * TILE_THREADS ? "" : `if (r < ${columns}) `}{ ${body.replaceAll("COUNT", String(count))} }
      }`
  }

  /** Reads a tile into registers. */
  private fetch(into: string, from: string, n: number, count: number, base: string): string {
    const { type, width } = this.form
    const { pack } = this
    const zero =
      width > 1 ? `for (uint z = 0; z < ${width}; z++) v.v[z] = ${type}(0.0f);` : `v = ${type}(0.0f);`
    return this.each(
      n,
      count,
      `${pack} v; ${zero} if (${base} + r < others${n === count ? "" : " && c < COUNT"}) v = *(device const ${pack}*)(${from} + (${base} + r) * COUNT + c); ${into}[u] = v;`,
    )
  }

  /** Writes it from there into threadgroup memory. */
  private put(from: string, into: string, n: number, count: number): string {
    return this.each(
      n,
      count,
      `*(threadgroup ${this.pack}*)(${into} + r * ${n + this.pad} + c) = ${from}[u];`,
    )
  }
}
