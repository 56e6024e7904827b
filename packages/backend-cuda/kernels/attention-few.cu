/* Attention of a few queries, as of one more token: a block has the queries of the heads that share keys, at most eight rows, and its warps
 * divide the keys among them. Keys before the first and behind the last that the mask shows are not read. With many keys and few blocks,
 * several blocks have parts of the keys, whose results attend_few_join puts together. Before this text stand, besides those of
 * attention-keys.cuh, LZ_MASK (1 with one of bool), LZ_CAUSAL, LZ_PARTS (1 for parts) and LZ_FETCH (1 to fetch all keys and values, hidden or
 * not, to the second cache before earlier work has ended, which pays where blocks are few). */
#define LZ_KERNELS
#include "attention-keys.cuh"

/* Of a key: parts of 128 bytes. */
constexpr int LINES = D / 64;

/* What a lane has of keys and their values, in registers. */
struct Tile {
  static constexpr int AT_ONCE = KEYS;
  Chunk keys[2][D / 32];
  Features values[KEYS];
  inline Features value(int i) const { return values[i]; }
};

/* Tile `block` of `count` keys, of which rows lie so many elements apart; the last key stands for those behind it. */
inline void read_tile(Tile& tile, const u16* keys, long long key_step, const u16* values, long long value_step, int block, int count) {
  const int lane = int(threadIdx.x) % 32;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const int key = block * KEYS + h * 8 + lane / 4;
    const u16* from = keys + (key < count ? key : count - 1) * key_step + lane % 4 * 8;
#pragma unroll
    for (int d = 0; d < D / 32; d++) tile.keys[h][d] = *(const Chunk*)(from + d * 32);
  }
  const u16* from = values + block * KEYS * value_step + lane * EACH;
#pragma unroll
  for (int i = 0; i < KEYS; i++) {
    tile.values[i] = *(const Features*)from;
    if (block * KEYS + i + 1 < count) from += value_step;
  }
}

/* In elements: from a batch to the next, a head, a row. */
struct Layout {
  long long q[3], k[3], v[3], mask[4];
  long long heads, shared_by, queries, keys, parts;
};

/* What the warps of a block have added up, each by itself. */
struct Parts {
  float tops[WARPS][8], totals[WARPS][8], outs[WARPS][ROWS][D];
};
/* The same of all of them: the largest score, the sum, and the sum of one feature. */
struct Part {
  float most, sum, value;
};

inline void leave_sums(Parts& parts, const Sums& sums) {
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  if (lane % 4 == 0) {
    parts.tops[warp][lane / 4] = sums.top;
    parts.totals[warp][lane / 4] = sums.total;
  }
#pragma unroll
  for (int r = 0; r < ROWS; r++)
#pragma unroll
    for (int e = 0; e < EACH; e++) parts.outs[warp][r][lane * EACH + e] = sums.out[r][e];
}

/* Parts as one, in their order: `top_of`, `total_of` and `value_of` tell of each. */
template <class Top, class Total, class Value>
inline Part joined(int count, Top top_of, Total total_of, Value value_of) {
  Part all = {-INFINITY, 0.0f, 0.0f};
  for (int p = 0; p < count; p++) all.most = fmaxf(all.most, top_of(p));
  const float zero = all.most == -INFINITY ? 0.0f : all.most;
  for (int p = 0; p < count; p++) {
    const float by = power_of_two(top_of(p) - zero);
    all.sum += total_of(p) * by;
    all.value += value_of(p) * by;
  }
  return all;
}
inline Part part_of_block(const Parts& parts, int r, int d) {
  return joined(
      WARPS, [&](int w) { return parts.tops[w][r]; }, [&](int w) { return parts.totals[w][r]; }, [&](int w) { return parts.outs[w][r][d]; });
}
inline float mean_of(const Part& all) { return all.sum == 0.0f ? 0.0f : all.value / all.sum; }
inline float log_sum_of(const Part& all) { return all.sum == 0.0f ? -INFINITY : all.most / LOG2E + log_of(all.sum); }

#if LZ_PARTS
typedef float Result;
#else
typedef u16 Result;
#endif

extern "C" __global__ void __launch_bounds__(512) attend_few(const u16* q, const u16* k, const u16* v, Result* o,
                                                             float* lse,
#if LZ_MASK
                                                             const bool* mask,
#endif
                                                             const __grid_constant__ Layout at,
                                                             const __grid_constant__ float scale) {
  __shared__ Told told[WARPS];
  __shared__ Parts parts;
  __shared__ int range[2];
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const int S = int(at.keys), L = int(at.queries);
  const int groups = int(at.heads / at.shared_by);
  const int batch = int(blockIdx.y) / groups, group = int(blockIdx.y) % groups;
  const u16* keys = k + batch * at.k[0] + group * at.k[1];
  const u16* values = v + batch * at.v[0] + group * at.v[1];
#if LZ_FETCH
  for (int i = int(blockIdx.x) * WARPS * 32 + int(threadIdx.x); i < S * LINES; i += int(gridDim.x) * WARPS * 32) {
    const int key = i / LINES, line = i % LINES * 64;
    fetch_ahead(keys + key * at.k[2] + line);
    fetch_ahead(values + key * at.v[2] + line);
  }
#endif
  await_earlier();
  const float factor = scale * LOG2E;
  const int row = lane / 4, head = group * int(at.shared_by) + row / L;
  Chunk queries[D / 32] = {};
  if (row < ROWS) {
    const u16* from = q + batch * at.q[0] + head * at.q[1] + row % L * at.q[2] + lane % 4 * 8;
#pragma unroll
    for (int d = 0; d < D / 32; d++) queries[d] = *(const Chunk*)(from + d * 32);
  }

  int begin = 0, end = S;
#if LZ_MASK
  /* The first and the last key that anybody sees. */
  if (threadIdx.x == 0) range[0] = S, range[1] = 0;
  __syncthreads();
  const bool is_same = at.mask[1] == 0 && at.mask[2] == 0;
  for (int r = 0; r < (is_same ? 1 : ROWS); r++) {
    const bool* row =
        mask + batch * at.mask[0] + (group * at.shared_by + r / L) * at.mask[1] + r % L * at.mask[2];
    for (int j = warp * 32; j < S; j += WARPS * 32) {
      const unsigned seen = __ballot_sync(~0u, j + lane < S && row[(j + lane) * at.mask[3]]);
      if (seen == 0 || lane != 0) continue;
      atomicMin(&range[0], j + __ffs(int(seen)) - 1);
      atomicMax(&range[1], j + 32 - __clz(int(seen)));
    }
  }
  __syncthreads();
  begin = range[0], end = range[1];
#endif
  int first = begin / KEYS, last = end > begin ? (end + KEYS - 1) / KEYS : first;
#if LZ_PARTS
  const int share = (last - first + int(at.parts) - 1) / int(at.parts);
  first += int(blockIdx.x) * share;
  last = first + share < last ? first + share : last;
#endif

  Sums sums;
  for (int block = first + warp; block < last; block += WARPS) {
    Tile tile;
    read_tile(tile, keys, at.k[2], values, at.v[2], block, S);
    bool seen[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int key = block * KEYS + key_of(i);
      seen[i] = row < ROWS && key < S && (!LZ_CAUSAL || key <= row % L + S - L);
#if LZ_MASK
      if (seen[i]) seen[i] = mask[batch * at.mask[0] + head * at.mask[1] + row % L * at.mask[2] + key * at.mask[3]];
#endif
    }
    add_tile(sums, tile, queries, seen, factor, told[warp], false);
  }
  leave_sums(parts, sums);
  __syncthreads();
  for (int i = int(threadIdx.x); i < ROWS * D; i += WARPS * 32) {
    const int r = i / D, d = i % D;
    const Part all = part_of_block(parts, r, d);
    const long long line = (batch * at.heads + group * at.shared_by + r / L) * L + r % L;
#if LZ_PARTS
    const long long to = line * at.parts + blockIdx.x;
    o[to * D + d] = all.value;
    if (d == 0) lse[2 * to] = all.most, lse[2 * to + 1] = all.sum;
#else
    o[line * D + d] = u16(pack(mean_of(all), 0.0f));
    if (d == 0) lse[line] = log_sum_of(all);
#endif
  }
}

/* Parts of a query; each block has one query, and D threads. */
extern "C" __global__ void __launch_bounds__(256) attend_few_join(const float* values, const float* sums, u16* o,
                                                                  float* lse, const __grid_constant__ int parts) {
  await_earlier();
  const long long line = blockIdx.x, first = line * parts;
  const int d = int(threadIdx.x);
  const Part all = joined(
      parts, [&](int p) { return sums[2 * (first + p)]; }, [&](int p) { return sums[2 * (first + p) + 1]; },
      [&](int p) { return values[(first + p) * D + d]; });
  o[line * D + d] = u16(pack(mean_of(all), 0.0f));
  if (d == 0) lse[line] = log_sum_of(all);
}
