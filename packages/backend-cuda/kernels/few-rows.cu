/* Products of up to eight rows with a matrix that is read once, on tensor cores: 16 rows of the matrix are
 * one operand, the rows of x the other, and the warps of a block divide k among them. Lanes read what lies
 * side by side: the order of k within a step does not matter as long as both operands have the same. Of
 * packed weights (mode affine) Σ x · (scale · code + bias) is scale · Σ x · code + bias · Σ x for the codes
 * of a group, which are exact in 16 bits. The first step is read before earlier work has ended, where that
 * does not write it. Before this text stand LZ_PARTS (matrices, at most 3), LZ_BITS (16, 8 or 4), LZ_COUNT
 * (rows of x), LZ_TILES (16 rows of the matrix each), LZ_BLOCKS (blocks that a processor is to have at once),
 * LZ_ADD (1 with a row that is added), for packed weights LZ_GROUP and LZ_EVEN (1 where steps end with rows)
 * and, for bfloat16, LZ_BRAIN. */
#define LZ_KERNELS
#include "joined-matrices.cuh"

constexpr int WARPS = 8, COUNT = LZ_COUNT, TILES = LZ_TILES, ROWS = 16, TILE_ROWS = TILES * ROWS;

#ifdef __CUDA_ARCH__
/* Weights are needed once: the cache is for x. */
inline Chunk read_once(const void* p) {
  Chunk c;
  asm("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
      : "=r"(c.word[0]), "=r"(c.word[1]), "=r"(c.word[2]), "=r"(c.word[3])
      : "l"(p));
  return c;
}
#else
inline Chunk read_once(const void* p) { return *(const Chunk*)p; }
#endif

/* Sums of a block's warps, in order. */
inline void finish(float (&sums)[TILES][4], const u16* added, u16* y, int rows, int tile) {
  __shared__ float parts[WARPS][TILES * ROWS * 8];
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
#pragma unroll
  for (int t = 0; t < TILES; t++)
#pragma unroll
    for (int i = 0; i < 4; i++) parts[warp][(lane % 4 * 2 + i % 2) * TILES * ROWS + t * ROWS + i / 2 * 8 + lane / 4] = sums[t][i];
  __syncthreads();
  for (int i = int(threadIdx.x); i < COUNT * TILES * ROWS; i += WARPS * 32) {
    const int row = tile * TILES * ROWS + i % (TILES * ROWS);
    if (row >= rows) continue;
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < WARPS; w++) sum += parts[w][i];
#if LZ_ADD
    sum += float_of(added[row]);
#endif
    y[(long long)(i / (TILES * ROWS)) * rows + row] = u16(pack(sum, 0.0f));
  }
}

#if LZ_BITS == 16

/* Chunks of a row that a lane reads at a time, 32 columns apart. */
constexpr int TOGETHER = TILES > 1 ? 2 : 4;

/* What a lane reads of the matrix at a time. */
struct Step {
  Chunk w[TILES][2][TOGETHER];
};

/* In place of scales stands the row that is added. */
inline void multiply_rows(const Matrix& matrix, const u16* x, int k, bool early) {
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const int first = matrix.tile * TILE_ROWS + lane / 4;
  const u16* from[TILES][2];
#pragma unroll
  for (int t = 0; t < TILES; t++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int row = first + t * ROWS + half * 8;
      from[t][half] = matrix.weights + (long long)(row < matrix.rows ? row : matrix.rows - 1) * k;
    }
  const auto bring = [&](int base) {
    Step step = {};
#pragma unroll
    for (int u = 0; u < TOGETHER; u++)
      if (base + u * 32 < k)
#pragma unroll
        for (int t = 0; t < TILES; t++)
#pragma unroll
          for (int half = 0; half < 2; half++) step.w[t][half][u] = read_once(from[t][half] + base + u * 32);
    return step;
  };
  const u16* own = x + (long long)(lane / 4 < COUNT ? lane / 4 : 0) * k;
  float sums[TILES][4] = {};
  int base = warp * TOGETHER * 32 + lane % 4 * 8;
  Step step;
  if (early) step = bring(base);
  await_earlier();
  if (!early) step = bring(base);
  while (base - lane % 4 * 8 < k) {
    Chunk right[TOGETHER] = {};
#pragma unroll
    for (int u = 0; u < TOGETHER; u++)
      if (base + u * 32 < k && lane / 4 < COUNT) right[u] = *(const Chunk*)(own + base + u * 32);
#pragma unroll
    for (int u = 0; u < TOGETHER; u++)
#pragma unroll
      for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
          const Chunk(&w)[2][TOGETHER] = step.w[t];
          const u32 left[4] = {w[0][u].word[i], w[1][u].word[i], w[0][u].word[i + 1], w[1][u].word[i + 1]};
          multiply(sums[t], left, right[u].word[i], right[u].word[i + 1]);
        }
    base += WARPS * TOGETHER * 32;
    step = bring(base);
  }
  finish(sums, matrix.scales, matrix.y, matrix.rows, matrix.tile);
}

#else

#include "packed-codes.cuh"

/* Numbers of the groups of a step. */
struct Numbers {
  u16 of[TOGETHER];
};
inline Numbers numbers_of(const u16* from, int left) {
  Numbers n;
#if LZ_EVEN
  memcpy(&n, __builtin_assume_aligned(from, sizeof n), sizeof n);
#else
#pragma unroll
  for (int u = 0; u < TOGETHER; u++) n.of[u] = u < left ? from[u] : u16(0);
#endif
  return n;
}

/* What a lane reads of a step: words of its rows, and the numbers of their groups. */
struct Step {
  u32 w[TILES][2][TOGETHER][WORDS];
  Numbers scale[TILES][2], bias[TILES][2];
};
struct Weights {
  const u32* words;
  const u16 *scales, *biases;
  int rows, groups;
};
inline void bring(Step& step, const Weights& at, int tile, int group) {
  const int lane = int(threadIdx.x) % 32;
#pragma unroll
  for (int t = 0; t < TILES; t++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int wanted = (tile * TILES + t) * ROWS + half * 8 + lane / 4;
      const long long row = wanted < at.rows ? wanted : at.rows - 1;
#pragma unroll
      for (int u = 0; u < TOGETHER; u++) {
        /* Past the end the numbers of the group are zeros. */
        const int own = LZ_EVEN || group + u < at.groups ? group + u : at.groups - 1;
        const u32* words = at.words + (row * at.groups + own) * (LZ_GROUP / PER_WORD) + lane % 4 * WORDS;
        memcpy(step.w[t][half][u], __builtin_assume_aligned(words, WORDS < 4 ? WORDS * 4 : 16), WORDS * 4);
      }
      step.scale[t][half] = numbers_of(at.scales + row * at.groups + group, at.groups - group);
      step.bias[t][half] = numbers_of(at.biases + row * at.groups + group, at.groups - group);
    }
}

inline void add_step(float (&sums)[TILES][4], const Step& step, const u16* own, bool is_there, int left, u32 larger) {
#pragma unroll
  for (int u = 0; u < TOGETHER; u++) {
    u32 right[CODES / 2] = {};
    if (is_there && (LZ_EVEN || u < left)) memcpy(right, __builtin_assume_aligned(own + u * LZ_GROUP, 16), sizeof right);
    float part[TILES][4] = {}, total[4] = {};
    const u32 ones[4] = {ONES[0], ONES[0], ONES[1], ONES[1]};
#pragma unroll
    for (int j = 0; j < WORDS; j++)
#pragma unroll
      for (int s = 0; s < PER_WORD / 4; s++) {
        const u32* words = right + j * PER_WORD / 2;
        /* Of 4 bits codes i and i + 4 are a pair, of 8 bits i and i + 2. */
        const u32 a = words[s], b = words[s + PER_WORD / 4];
        u32 b0 = low_halves(a, b), b1 = high_halves(a, b);
        if (ARE_TINY) b0 = enlarged(b0, larger), b1 = enlarged(b1, larger - LESS);
        multiply(total, ones, b0, b1);
#pragma unroll
        for (int t = 0; t < TILES; t++) {
          u32 codes[4];
          take_codes(codes, step.w[t][0][u][j] >> (2 * s * LZ_BITS), step.w[t][1][u][j] >> (2 * s * LZ_BITS));
          multiply(part[t], codes, b0, b1);
        }
      }
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const float scale = float_of(step.scale[t][half].of[u]), bias = float_of(step.bias[t][half].of[u]);
#pragma unroll
        for (int i = 0; i < 2; i++) {
          float& sum = sums[t][2 * half + i];
          sum = fmaf(scale, part[t][2 * half + i], fmaf(bias, total[i], sum));
        }
      }
  }
}

inline bool are_finite(const float (&sums)[TILES][4]) {
  bool all = true;
#pragma unroll
  for (int t = 0; t < TILES; t++)
#pragma unroll
    for (int i = 0; i < 4; i++) all = all && (bits_of(sums[t][i]) & 0x7f800000u) != 0x7f800000u;
  return all;
}

inline void multiply_rows(const Matrix& matrix, const u16* x, int k, bool early) {
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32, groups = k / LZ_GROUP;
  const Weights at = {(const u32*)matrix.weights, matrix.scales, matrix.biases, matrix.rows, groups};
  const bool is_there = lane / 4 < COUNT;
  const u16* own = x + (long long)(is_there ? lane / 4 : 0) * k + lane % 4 * CODES;
  float sums[TILES][4] = {};
  int group = warp * TOGETHER;
  Step step;
  const auto bring_next = [&]() {
    if (group < groups) bring(step, at, matrix.tile, group);
  };
  if (early) bring_next();
  await_earlier();
  if (!early) bring_next();
  bool large = false;
  while (group < groups) {
    add_step(sums, step, own + group * LZ_GROUP, is_there, groups - group, larger_by(large));
    group += WARPS * TOGETHER;
    /* Once more with other factors, where large elements of x may have become infinite. */
    if (ARE_TINY && group >= groups && !large && __ballot_sync(~0u, !are_finite(sums)) != 0) {
      large = true;
      group = warp * TOGETHER;
#pragma unroll
      for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int i = 0; i < 4; i++) sums[t][i] = 0.0f;
    }
    bring_next();
  }
#pragma unroll
  for (int t = 0; t < TILES; t++)
#pragma unroll
    for (int i = 0; i < 4; i++) sums[t][i] *= unit_of(large);
  finish(sums, nullptr, matrix.y, matrix.rows, matrix.tile);
}

#endif

extern "C" __global__ void __launch_bounds__(256, LZ_BLOCKS) few_rows(const u16* x, LZ_MATRICES, const __grid_constant__ Sizes sizes) {
  LZ_FIND_MATRIX(blockIdx.x)
  multiply_rows(matrix, x, sizes.k, sizes.early != 0);
}
