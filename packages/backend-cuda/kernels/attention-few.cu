/* Attention of a few queries, as of one more token: a block has the queries of the heads that share keys, at most eight rows, and its warps
 * divide the keys among them, 16 at a time. Scores are made on tensor cores, straight from memory; values are added up in floats, each lane
 * with some of the features. Keys before the first and behind the last that the mask shows are not read. With many keys and few blocks,
 * several blocks have parts of the keys, whose results attend_few_join puts together. Before this text stand LZ_FEATURES (64, 128 or 256),
 * LZ_ROWS (rows), LZ_WARPS, LZ_MASK (1 with one of bool), LZ_CAUSAL, LZ_PARTS (1 for parts), LZ_FETCH (1 to fetch all keys and values,
 * hidden or not, to the second cache before earlier work has ended, which pays where blocks are few) and, for bfloat16, LZ_BRAIN. */
#define LZ_KERNELS
#include "tensor-core.cuh"

constexpr int D = LZ_FEATURES, ROWS = LZ_ROWS, WARPS = LZ_WARPS, KEYS = 16, EACH = D / 32;
/* Of a key: parts of 128 bytes. */
constexpr int LINES = D / 64;
constexpr float LOG2E = 1.4426950408889634f;

/* In elements: from a batch to the next, a head, a row. */
struct Layout {
  long long q[3], k[3], v[3], mask[4];
  long long heads, shared_by, queries, keys, parts;
};
struct alignas(16) Chunk {
  u32 word[4];
};
struct Features {
  u16 of[EACH];
};

#if LZ_PARTS
typedef float Result;
inline float result_of(float x) { return x; }
#else
typedef u16 Result;
inline u16 result_of(float x) { return u16(pack(x, 0.0f)); }
#endif

extern "C" __global__ void __launch_bounds__(512) attend_few(const u16* q, const u16* k, const u16* v, Result* o,
                                                             float* lse,
#if LZ_MASK
                                                             const bool* mask,
#endif
                                                             const __grid_constant__ Layout at,
                                                             const __grid_constant__ float scale) {
  __shared__ float shares[WARPS][KEYS][8], shrinks[WARPS][8], tops[WARPS][8], totals[WARPS][8];
  __shared__ float outs[WARPS][ROWS][D];
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

  float out[ROWS][EACH] = {};
  float top = -INFINITY, total = 0.0f;
  for (int block = first + warp; block < last; block += WARPS) {
    Chunk right[2][D / 32];
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int key = block * KEYS + h * 8 + lane / 4;
      const u16* from = keys + (key < S ? key : S - 1) * at.k[2] + lane % 4 * 8;
#pragma unroll
      for (int d = 0; d < D / 32; d++) right[h][d] = *(const Chunk*)(from + d * 32);
    }
    Features some[KEYS];
    const u16* from = values + block * KEYS * at.v[2] + lane * EACH;
#pragma unroll
    for (int i = 0; i < KEYS; i++) {
      memcpy(&some[i], __builtin_assume_aligned(from, sizeof some[i]), sizeof some[i]);
      if (block * KEYS + i + 1 < S) from += at.v[2];
    }
    bool seen[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int key = block * KEYS + i / 2 * 8 + lane % 4 * 2 + i % 2;
      seen[i] = row < ROWS && key < S && (!LZ_CAUSAL || key <= row % L + S - L);
#if LZ_MASK
      if (seen[i]) seen[i] = mask[batch * at.mask[0] + head * at.mask[1] + row % L * at.mask[2] + key * at.mask[3]];
#endif
    }
    float scores[2][4] = {};
#pragma unroll
    for (int d = 0; d < D / 32; d++)
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const u32 left[4] = {queries[d].word[i], 0, queries[d].word[i + 1], 0};
#pragma unroll
        for (int h = 0; h < 2; h++) multiply(scores[h], left, right[h][d].word[i], right[h][d].word[i + 1]);
      }
    /* In powers of two. */
    float x[4], most = top;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      x[i] = seen[i] ? scores[i / 2][i % 2] * factor : -INFINITY;
      most = fmaxf(most, x[i]);
    }
    most = fmaxf(most, from_neighbour(most, 1));
    most = fmaxf(most, from_neighbour(most, 2));
    /* Of a row that has seen nothing so far nothing may be −∞ − (−∞). */
    const float zero = most == -INFINITY ? 0.0f : most;
    const float shrink = power_of_two(top - zero);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float share = power_of_two(x[i] - zero);
      shares[warp][i / 2 * 8 + lane % 4 * 2 + i % 2][row] = share;
      sum += share;
    }
    sum += from_neighbour(sum, 1);
    sum += from_neighbour(sum, 2);
    total = total * shrink + sum;
    top = most;
    if (lane % 4 == 0) shrinks[warp][row] = shrink;
    __syncwarp();
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      const float by = shrinks[warp][r];
#pragma unroll
      for (int e = 0; e < EACH; e++) out[r][e] *= by;
    }
#pragma unroll
    for (int i = 0; i < KEYS; i++)
#pragma unroll
      for (int r = 0; r < ROWS; r++) {
        const float by = shares[warp][i][r];
#pragma unroll
        for (int e = 0; e < EACH; e++) out[r][e] += by * float_of(some[i].of[e]);
      }
    __syncwarp();
  }

  if (lane % 4 == 0) {
    tops[warp][row] = top;
    totals[warp][row] = total;
  }
#pragma unroll
  for (int r = 0; r < ROWS; r++)
#pragma unroll
    for (int e = 0; e < EACH; e++) outs[warp][r][lane * EACH + e] = out[r][e];
  __syncthreads();
  for (int i = int(threadIdx.x); i < ROWS * D; i += WARPS * 32) {
    const int r = i / D, d = i % D;
    float most = -INFINITY;
    for (int w = 0; w < WARPS; w++) most = fmaxf(most, tops[w][r]);
    const float zero = most == -INFINITY ? 0.0f : most;
    float sum = 0.0f, value = 0.0f;
    for (int w = 0; w < WARPS; w++) {
      const float by = power_of_two(tops[w][r] - zero);
      sum += totals[w][r] * by;
      value += outs[w][r][d] * by;
    }
    const long long line = (batch * at.heads + group * at.shared_by + r / L) * L + r % L;
#if LZ_PARTS
    const long long to = line * at.parts + blockIdx.x;
    o[to * D + d] = value;
    if (d == 0) lse[2 * to] = most, lse[2 * to + 1] = sum;
#else
    o[line * D + d] = result_of(sum == 0.0f ? 0.0f : value / sum);
    if (d == 0) lse[line] = sum == 0.0f ? -INFINITY : most / LOG2E + log_of(sum);
#endif
  }
}

/* Parts of a query; each block has one query, and D threads. */
extern "C" __global__ void __launch_bounds__(256) attend_few_join(const float* values, const float* sums, u16* o,
                                                                  float* lse, const __grid_constant__ int parts) {
  await_earlier();
  const long long line = blockIdx.x;
  const int d = int(threadIdx.x);
  float most = -INFINITY;
  for (int p = 0; p < parts; p++) most = fmaxf(most, sums[2 * (line * parts + p)]);
  const float zero = most == -INFINITY ? 0.0f : most;
  float sum = 0.0f, value = 0.0f;
  for (int p = 0; p < parts; p++) {
    const float by = power_of_two(sums[2 * (line * parts + p)] - zero);
    sum += sums[2 * (line * parts + p) + 1] * by;
    value += values[(line * parts + p) * D + d] * by;
  }
  o[line * D + d] = u16(pack(sum == 0.0f ? 0.0f : value / sum, 0.0f));
  if (d == 0) lse[line] = sum == 0.0f ? -INFINITY : most / LOG2E + log_of(sum);
}
