// The transforms around the products of a Winograd convolution F(2×2, 3×3), after Lavin and Gray, "Fast
// algorithms for convolutional neural networks", 2015. The sixteen elements of a transform lie `step` apart.
#ifndef LAZULI_SIMD_WINOGRAD_H
#define LAZULI_SIMD_WINOGRAD_H

#include <stdint.h>

#include "simd/targets.h"

namespace lazuli {

struct WinogradTable {
  // n kernels of 3 × 3, w[element · n + i]: u = 4 · G w Gᵀ, so that nothing is rounded but sums.
  void (*weights)(const float* w, int64_t n, float* u, int64_t step);
  // A tile of 4 × 4 pixels of n channels: v = Bᵀ x B.
  void (*input)(const float* const* x, int64_t n, float* v, int64_t step);
  // n columns of 2 × 2 pixels, of which those without a pointer are left out: y = Aᵀ m A / 4.
  void (*output)(const float* m, int64_t n, float* const* y, int64_t step);
  // The bits of the largest magnitude, which are larger still where there is a NaN.
  uint32_t (*largest)(const float* x, int64_t n);
};

LZ_SIMD_TABLE(WinogradTable, winograd_table)

}  // namespace lazuli

#endif
