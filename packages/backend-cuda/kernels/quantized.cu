/* Products of a few rows with packed weights (mode affine), bound by the weights' bytes: a warp has some rows of
 * weights, and every lane reads 16 bytes of each at a time. Σ x · (scale · code + bias) is scale · Σ x · code +
 * bias · Σ x for the codes of a group. A code becomes a float by its bits where they lie, times a power of two by
 * which x is divided: conversions of integers take four times as long. Before this text stand LZ_BITS (4 or 8),
 * LZ_GROUP (codes of a group), LZ_COUNT (rows of x), LZ_ROWS (rows of weights of a warp) and, for bfloat16,
 * LZ_BRAIN, or for float32, LZ_WIDE. */
#define LZ_KERNELS
#include "tensor-core.cuh"

constexpr int WARPS = 8, ROWS = LZ_ROWS, COUNT = LZ_COUNT, CODES = 128 / LZ_BITS, PER_WORD = 32 / LZ_BITS;
constexpr u32 MASK = (1u << LZ_BITS) - 1;
/* Codes that a float's mantissa holds together. */
constexpr int TOGETHER = 23 / LZ_BITS;

/* Code i of a word times 2^(LZ_BITS · (i % TOGETHER)): as the mantissa of a number from 2^23 on, less 2^23. */
inline float code_of(u32 word, int i) {
  const u32 moved = word >> (i / TOGETHER * TOGETHER * LZ_BITS);
  const u32 bits = (moved & (MASK << (i % TOGETHER * LZ_BITS))) | 0x4b000000u;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value - 8388608.0f;
}

#ifdef LZ_WIDE
typedef float Element;
inline float value_of(float x) { return x; }
inline float element_of(float x) { return x; }
#else
typedef u16 Element;
inline float value_of(u16 x) { return float_of(x); }
inline u16 element_of(float x) { return u16(pack(x, 0.0f)); }
#endif

struct Sizes {
  int rows, k;
};
struct alignas(16) Chunk {
  u32 word[4];
};

extern "C" __global__ void __launch_bounds__(256) few_rows(const u32* weights, const Element* scales,
                                                           const Element* biases, const Element* x, Element* y,
                                                           const __grid_constant__ Sizes sizes) {
  const int lane = int(threadIdx.x) % 32;
  const int first = (int(blockIdx.x) * WARPS + int(threadIdx.x) / 32) * ROWS;
  const int chunks = sizes.k / CODES, groups = sizes.k / LZ_GROUP;
  float sums[COUNT][ROWS] = {};
  for (int chunk = lane; chunk < chunks; chunk += 32) {
    Chunk packed[ROWS];
    float scale[ROWS], bias[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      const long long row = first + r < sizes.rows ? first + r : sizes.rows - 1;
      packed[r] = ((const Chunk*)weights)[row * chunks + chunk];
      const long long group = row * groups + chunk * CODES / LZ_GROUP;
      scale[r] = value_of(scales[group]);
      bias[r] = value_of(biases[group]);
    }
    float total[COUNT] = {}, part[COUNT][ROWS] = {};
#pragma unroll
    for (int w = 0; w < 4; w++) {
      float codes[ROWS][PER_WORD];
#pragma unroll
      for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int i = 0; i < PER_WORD; i++) codes[r][i] = code_of(packed[r].word[w], i);
#pragma unroll
      for (int m = 0; m < COUNT; m++) {
        Element some[PER_WORD];
        const Element* own = x + (long long)m * sizes.k + chunk * CODES + w * PER_WORD;
        memcpy(some, __builtin_assume_aligned(own, PER_WORD * sizeof(Element)), sizeof some);
#pragma unroll
        for (int i = 0; i < PER_WORD; i++) {
          const float value = value_of(some[i]);
          const float factor = value * (1.0f / float(1 << (i % TOGETHER * LZ_BITS)));
          total[m] += value;
#pragma unroll
          for (int r = 0; r < ROWS; r++) part[m][r] += factor * codes[r][i];
        }
      }
    }
#pragma unroll
    for (int m = 0; m < COUNT; m++)
#pragma unroll
      for (int r = 0; r < ROWS; r++) sums[m][r] += scale[r] * part[m][r] + bias[r] * total[m];
  }
#pragma unroll
  for (int m = 0; m < COUNT; m++)
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      float sum = sums[m][r];
#pragma unroll
      for (int by = 16; by > 0; by /= 2) sum += from_neighbour(sum, by);
      if (lane == 0 && first + r < sizes.rows) y[(long long)m * sizes.rows + first + r] = element_of(sum);
    }
}
