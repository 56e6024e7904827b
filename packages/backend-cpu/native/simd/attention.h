// Attention's work on a block of scores between its matrix products.
#ifndef LAZULI_SIMD_ATTENTION_H
#define LAZULI_SIMD_ATTENTION_H

#include <stdint.h>

#include "simd/targets.h"

namespace lazuli {

// Blocks are row-major, `stride` elements from row to row, n of which count.
struct AttentionTable {
  // One step of the online softmax. For every row: raises max[i] to the row's maximum, replaces scores by
  // exp(score − max[i]), sets sum[i] = sum[i] · rescale[i] + Σ of those, and rescale[i] = exp(old max[i] −
  // new max[i]).
  void (*online_softmax)(float* scores, int64_t rows, int64_t n, int64_t stride, float* max, float* sum,
                         float* rescale);
  // scores = exp(scores − lse[i]), 0 where lse[i] is −∞
  void (*probabilities)(float* scores, int64_t rows, int64_t n, int64_t stride, const float* lse);
  // dp = p · (dp − delta[i]) · scale
  void (*score_gradient)(const float* p, float* dp, int64_t rows, int64_t n, int64_t stride,
                         const float* delta, float scale);
  // y[i · stride + j] *= factor[i]
  void (*scale_rows)(float* y, int64_t rows, int64_t n, int64_t stride, const float* factor);
  // to[i] = Σ_j a[i · a_stride + j] · b[i · b_stride + j]
  void (*dot_rows)(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t rows,
                   int64_t n, float* to);
};

LZ_SIMD_TABLE(AttentionTable, attention_table)

}  // namespace lazuli

#endif
