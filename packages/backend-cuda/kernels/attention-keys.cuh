/* Attention of at most eight rows of queries over 16 keys at a time, by one warp: scores are made on tensor cores, straight from memory;
 * values are added up in floats, each lane with some of the features. Before this text stand LZ_FEATURES (64, 128 or 256), LZ_ROWS (rows),
 * LZ_WARPS and, for bfloat16, LZ_BRAIN. */
#pragma once
#include "tensor-core.cuh"

constexpr int D = LZ_FEATURES, ROWS = LZ_ROWS, WARPS = LZ_WARPS, KEYS = 16, EACH = D / 32;
constexpr float LOG2E = 1.4426950408889634f;

struct alignas(16) Chunk {
  u32 word[4];
};
/* Features of a lane, two in a word. */
struct alignas(2 * EACH) Features {
  u32 pairs[EACH / 2];
};
/* Of a lane: features of all rows, and of its own row the largest score, in powers of two, and the sum of what is added up. */
struct Sums {
  float out[ROWS][EACH] = {};
  float top = -INFINITY, total = 0.0f;
};
/* What the lanes of a warp tell each other. */
struct alignas(16) Told {
  float shares[KEYS][8], shrinks[8];
};

/* The key of a tile that element i of a lane's scores is of. */
inline int key_of(int i) { return i / 2 * 8 + int(threadIdx.x) % 4 * 2 + i % 2; }

/* Adds keys where they are seen. `tile` has a lane's parts of its keys, one of each eight, and gives its features of a value; the loop over
 * values takes T::AT_ONCE of them as one. */
template <class T>
inline void add_tile(Sums& sums, const T& tile, const Chunk (&queries)[D / 32], const bool (&seen)[4], float factor, Told& told, bool is_first) {
  const int lane = int(threadIdx.x) % 32, row = lane / 4;
  float scores[2][4] = {};
#pragma unroll
  for (int d = 0; d < D / 32; d++)
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const u32 left[4] = {queries[d].word[i], 0, queries[d].word[i + 1], 0};
#pragma unroll
      for (int h = 0; h < 2; h++) multiply(scores[h], left, tile.keys[h][d].word[i], tile.keys[h][d].word[i + 1]);
    }
  /* In powers of two. */
  float x[4], most = sums.top;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    x[i] = seen[i] ? scores[i / 2][i % 2] * factor : -INFINITY;
    most = fmaxf(most, x[i]);
  }
  most = fmaxf(most, from_neighbour(most, 1));
  most = fmaxf(most, from_neighbour(most, 2));
  /* Of a row that has seen nothing so far nothing may be −∞ − (−∞). */
  const float zero = most == -INFINITY ? 0.0f : most;
  const float shrink = power_of_two(sums.top - zero);
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float share = power_of_two(x[i] - zero);
    told.shares[key_of(i)][row] = share;
    sum += share;
  }
  sum += from_neighbour(sum, 1);
  sum += from_neighbour(sum, 2);
  sums.total = sums.total * shrink + sum;
  sums.top = most;
  if (lane % 4 == 0) told.shrinks[row] = shrink;
  __syncwarp();
  if (!is_first)
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      const float by = told.shrinks[r];
#pragma unroll
      for (int e = 0; e < EACH; e++) sums.out[r][e] *= by;
    }
#pragma unroll(T::AT_ONCE)
  for (int i = 0; i < KEYS; i++) {
    const Features value = tile.value(i);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      const float by = told.shares[i][r];
#pragma unroll
      for (int e = 0; e < EACH; e++) sums.out[r][e] += by * (e % 2 ? high_float(value.pairs[e / 2]) : low_float(value.pairs[e / 2]));
    }
  }
  __syncwarp();
}
