// Products of a float32 vector with a matrix of a half type, which is read once and widened in registers.
#ifndef LAZULI_SIMD_HALF_PRODUCTS_H
#define LAZULI_SIMD_HALF_PRODUCTS_H

#include <stdint.h>

#include "simd/targets.h"

namespace lazuli {

// By dtype; null for types other than the two.
struct HalfProductTable {
  // y[r] = Σ_k b[r · ldb + k] · x[k]
  void (*dot[14])(const void* b, int64_t ldb, int64_t rows, int64_t k, const float* x, float* y);
  // y[j] += Σ_r b[r · ldb + j] · x[r]
  void (*add_rows[14])(const void* b, int64_t ldb, int64_t rows, int64_t n, const float* x, float* y);
};

LZ_SIMD_TABLE(HalfProductTable, half_product_table)

}  // namespace lazuli

#endif
