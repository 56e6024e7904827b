/**
 * Sources of stable sorting. Elements move as words, and compare by keys: unsigned numbers, of equal elements equal, of NaN the largest.
 * `sort_block` sorts what fits a threadgroup by Batcher's bitonic network. Longer rows are sorted by digits of their keys, the lowest
 * first (Merrill and Grimshaw, "High performance and scalable radix sorting", 2011): `digit_counts` counts the digits of each tile, a scan
 * of the counts tells where each tile's elements of each digit go, and `digit_places` takes them there.
 */
import type { Dtype } from "@lazuli/core/engine"
import { METAL_HEADER, wordType } from "./metal-types"

/** Threads of a group, one for each value of a digit. */
export const SORT_THREADS = 256
const DIGIT = 8
const SIMDGROUPS = SORT_THREADS / 32

/** The comparison of elements of a dtype. */
interface Keys {
  /** The type of an element as a word, and of its key. */
  readonly word: string
  readonly key: string
  /** The functions `lz_key`, and those it needs. */
  readonly text: string
  /** The lowest bits of a key that differ. */
  readonly bits: number
}

function keysOf(dtype: Dtype): Keys {
  const bits = dtype.size * 8
  const word = wordType(dtype.size)
  const key = dtype.size === 8 ? "ulong" : "uint"
  const of = (body: string, before = ""): Keys => ({
    word,
    key,
    bits: dtype.kind === "bool" ? 1 : bits,
    text: `${before}inline ${key} lz_key(${word} x) { ${body} }\n`,
  })
  const top = (n: number): string => `0x${(2 ** (n - 1)).toString(16)}u`
  const floating = (n: number, infinity: string): string => `inline uint lz_float_key(uint x) {
  uint size = x & ${2 ** (n - 1) - 1}u;
  if (size > ${infinity}) return ${2 ** n - 1}u;
  return size == 0 ? ${top(n)} : (x & ${top(n)}) != 0 ? ${n === 32 ? "~x" : `~x & ${2 ** n - 1}u`} : x | ${top(n)};
}
`
  if (dtype.kind === "complex")
    return of(
      "ulong re = ulong(lz_float_key(uint(x))), im = ulong(lz_float_key(uint(x >> 32))); return re == 0xfffffffful || im == 0xfffffffful ? ~0ul : re << 32 | im;",
      floating(32, "0x7f800000u"),
    )
  if (dtype.kind === "floating")
    return of(
      "return lz_float_key(uint(x));",
      floating(bits, bits === 32 ? "0x7f800000u" : dtype.name === "float16" ? "0x7c00u" : "0x7f80u"),
    )
  if (dtype.kind === "bool") return of("return x != 0 ? 1u : 0u;")
  if (dtype.size === 8) return of(dtype.kind === "signed" ? "return x ^ 0x8000000000000000ul;" : "return x;")
  return of(dtype.kind === "signed" ? `return uint(x) ^ ${top(bits)};` : "return uint(x);")
}

/** Digits of a dtype's keys. */
export const digitsOf = (dtype: Dtype): number => Math.ceil(keysOf(dtype).bits / DIGIT)

/** Elements that a group of the digits' kernels takes. */
export const digitTile = (dtype: Dtype): number => (dtype.size === 8 ? 2048 : 4096)

/** Sorts rows of at most `size` elements, a power of two: elements, or their positions. */
export function blockSource(dtype: Dtype, size: number, result: "positions" | "elements"): string {
  const { word, key, text } = keysOf(dtype)
  // Positions are found by keys alone. Elements stay as they are: other elements may have their key.
  const ofElements = result === "elements"
  const kept = ofElements ? word : key
  const keyOf = (of: string, at: string): string =>
    ofElements ? `(${at} < n ? lz_key(${of}) : ~${key}(0))` : of
  return `${METAL_HEADER}${text}kernel void sort_block(device const ${word}* x [[buffer(0)]],
    device ${ofElements ? word : "uint"}* y [[buffer(1)]], constant uint& n [[buffer(2)]],
    uint lane [[thread_position_in_threadgroup]], uint row [[threadgroup_position_in_grid]],
    uint threads [[threads_per_threadgroup]]) {
  threadgroup ${kept} values[${size}];
  threadgroup uint locations[${size}];
  for (uint i = lane; i < ${size}; i += threads) {
    // Padding of a row comes behind all else by its position.
    values[i] = ${ofElements ? `i < n ? x[row * n + i] : ${word}(0)` : `i < n ? lz_key(x[row * n + i]) : ~${key}(0)`};
    locations[i] = i;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint run = 2; run <= ${size}; run *= 2) {
    for (uint step = run / 2; step > 0; step /= 2) {
      for (uint t = lane; t < ${size / 2}; t += threads) {
        uint i = 2 * step * (t / step) + t % step, j = i + step;
        ${kept} v = values[i], w = values[j];
        uint p = locations[i], q = locations[j];
        ${key} a = ${keyOf("v", "p")}, b = ${keyOf("w", "q")};
        bool swap = a > b || (a == b && p > q);
        if (swap == ((i & run) == 0)) {
          values[i] = w; values[j] = v;
          locations[i] = q; locations[j] = p;
        }
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
  }
  for (uint i = lane; i < n; i += threads) y[row * n + i] = ${ofElements ? "values" : "locations"}[i];
}
`
}

/** The digit of an element, and the lanes whose elements have the same. */
const digitText = ({ word, key, text }: Keys): string => `${text}
inline uint lz_digit(${word} x, uint shift) {
  ${key} key = lz_key(x);
  return uint(key >> shift) & 255u;
}
inline uint lz_peers(uint digit, bool valid) {
  uint peers = uint(ulong(simd_ballot(valid)));
  for (uint bit = 0; bit < ${DIGIT}; bit++) {
    bool one = (digit >> bit & 1u) != 0;
    uint same = uint(ulong(simd_ballot(one)));
    peers &= one ? same : ~same;
  }
  return peers;
}
`

const ATTRIBUTES = `constant uint* sizes [[buffer(SIZES)]], uint lane [[thread_position_in_threadgroup]],
    uint group [[threadgroup_position_in_grid]], uint simd_lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]`
/** Sizes: a row's elements, its tiles, the digit's lowest bit. A simdgroup's elements lie side by side, a round of 32 after the other. */
const opening = (each: number): string => `  uint n = sizes[0], tiles = sizes[1], shift = sizes[2];
  uint row = group / tiles, tile = group % tiles, first = (tile * ${SIMDGROUPS} + simdgroup) * ${each * 32} + simd_lane;
  threadgroup uint bins[${SIMDGROUPS}][${SORT_THREADS}];
  for (uint s = 0; s < ${SIMDGROUPS}; s++) bins[s][lane] = 0;
`

/** Counts the elements of each tile by digit: [rows, digits, tiles]. */
export function countsSource(dtype: Dtype): string {
  const keys = keysOf(dtype)
  const each = digitTile(dtype) / SORT_THREADS
  return `${METAL_HEADER}${digitText(keys)}kernel void digit_counts(device const ${keys.word}* x [[buffer(0)]],
    device uint* counts [[buffer(1)]], ${ATTRIBUTES.replace("SIZES", "2")}) {
${opening(each)}  ${keys.word} several[${each}];
  for (uint e = 0; e < ${each}; e++) {
    several[e] = 0;
    if (first + e * 32 < n) several[e] = x[row * n + first + e * 32];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint e = 0; e < ${each}; e++) {
    bool valid = first + e * 32 < n;
    uint digit = lz_digit(several[e], shift), peers = lz_peers(digit, valid);
    if (valid && (peers & ((1u << simd_lane) - 1u)) == 0) bins[simdgroup][digit] += popcount(peers);
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  uint total = 0;
  for (uint s = 0; s < ${SIMDGROUPS}; s++) total += bins[s][lane];
  counts[(row * ${SORT_THREADS} + lane) * tiles + tile] = total;
}
`
}

/** The moves of a pass of `digit_places`. */
export interface Moves {
  readonly elements: boolean
  /** Positions: none, the elements' own, or those that an earlier pass moved. */
  readonly positions: "none" | "own" | "moved"
}

/** Buffers: x, positions (where they were moved), the offsets, the elements and the positions that it writes, the sizes. */
export function placesSource(dtype: Dtype, { elements, positions }: Moves): string {
  const keys = keysOf(dtype)
  const tile = digitTile(dtype)
  const each = tile / SORT_THREADS
  const item = keys.key
  const parameters = [
    `device const ${keys.word}* x`,
    ...(positions === "moved" ? ["device const uint* locations"] : []),
    "device const uint* offsets",
    ...(elements ? [`device ${keys.word}* y`] : []),
    ...(positions === "none" ? [] : ["device uint* places_out"]),
  ]
  const moved =
    positions === "none"
      ? ""
      : `  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint e = 0; e < ${each}; e++)
    if (first + e * 32 < n) items[ranks[e]] = ${positions === "own" ? "first + e * 32" : "origins[e]"};
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint e = 0; e < ${each}; e++) {
    uint i = lane + e * ${SORT_THREADS};
    if (i < count) places_out[row * n + to[e]] = uint(items[i]);
  }
`
  return `${METAL_HEADER}${digitText(keys)}kernel void digit_places(${parameters.map((text, i) => `${text} [[buffer(${i})]]`).join(", ")},
    ${ATTRIBUTES.replace("SIZES", String(parameters.length))}) {
${opening(each)}  threadgroup uint ends[${SIMDGROUPS}];
  threadgroup uint targets[${SORT_THREADS}];
  threadgroup ${item} items[${tile}];
  uint count = min(${tile}u, n - tile * ${tile});
  ${keys.word} several[${each}];
${positions === "moved" ? `  uint origins[${each}];\n` : ""}  for (uint e = 0; e < ${each}; e++) {
    several[e] = 0;
    if (first + e * 32 < n) {
      several[e] = x[row * n + first + e * 32];
${positions === "moved" ? "      origins[e] = locations[row * n + first + e * 32];\n" : ""}    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  uint ranks[${each}];
  for (uint e = 0; e < ${each}; e++) {
    bool valid = first + e * 32 < n;
    uint digit = lz_digit(several[e], shift), peers = lz_peers(digit, valid), below = peers & ((1u << simd_lane) - 1u);
    uint before = bins[simdgroup][digit];
    simdgroup_barrier(mem_flags::mem_threadgroup);
    if (valid && below == 0) bins[simdgroup][digit] = before + popcount(peers);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    ranks[e] = before + popcount(below);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  // Thread d sums what the simdgroups have of digit d, and then what there is of smaller digits.
  uint total = 0;
  for (uint s = 0; s < ${SIMDGROUPS}; s++) {
    uint own = bins[s][lane];
    bins[s][lane] = total;
    total += own;
  }
  uint lead = simd_prefix_exclusive_sum(total);
  if (simd_lane == 31) ends[simdgroup] = lead + total;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint s = 0; s < simdgroup; s++) lead += ends[s];
  for (uint s = 0; s < ${SIMDGROUPS}; s++) bins[s][lane] += lead;
  targets[lane] = offsets[(row * ${SORT_THREADS} + lane) * tiles + tile] - lead;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  // In the tile's order, so that neighbours are written together.
  for (uint e = 0; e < ${each}; e++) {
    if (first + e * 32 < n) {
      ranks[e] += bins[simdgroup][lz_digit(several[e], shift)];
      items[ranks[e]] = ${item}(several[e]);
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  uint to[${each}];
  for (uint e = 0; e < ${each}; e++) {
    uint i = lane + e * ${SORT_THREADS};
    if (i < count) {
      ${keys.word} element = ${keys.word}(items[i]);
      to[e] = targets[lz_digit(element, shift)] + i;
${elements ? "      y[row * n + to[e]] = element;\n" : ""}    }
  }
${moved}}
`
}
