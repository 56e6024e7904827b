// softmax and log-sum-exp of rows of float16, bfloat16 and float32, computed in float32.
#ifndef LAZULI_SIMD_SOFTMAX_H
#define LAZULI_SIMD_SOFTMAX_H

#include <stdint.h>

#include "simd/targets.h"

namespace lazuli {

struct SoftmaxTable {
  // y[row·y_stride + j] = exp(x[row·x_stride + j]) / Σ_k exp(x[row·x_stride + k]); by dtype, null for the
  // others. `streaming`: y is too large to stay in the caches, and is not x.
  void (*softmax[14])(const void* x, int64_t rows, int64_t x_stride, int64_t n, void* y, int64_t y_stride,
                      bool streaming);
  // y[row·y_stride] = log Σ_k exp(x[row·x_stride + k])
  void (*logsumexp[14])(const void* x, int64_t rows, int64_t x_stride, int64_t n, void* y, int64_t y_stride);
};

LZ_SIMD_TABLE(SoftmaxTable, softmax_table)

}  // namespace lazuli

#endif
