// Products of rows of float32, few or one, with a matrix of float32 or a half type, which is read once, in
// its order.
#ifndef LAZULI_SIMD_HALF_PRODUCTS_H
#define LAZULI_SIMD_HALF_PRODUCTS_H

#include <stdint.h>

#include "simd/targets.h"

namespace lazuli {

// By dtype; null for types other than float32 and the halves.
struct HalfProductTable {
  // y[r] = Σ_k b[r · ldb + k] · x[k]
  void (*dot[14])(const void* b, int64_t ldb, int64_t rows, int64_t k, const float* x, float* y);
  // y[i · ldy + r] = Σ_k b[r · ldb + k] · x[i · ldx + k] for i < m
  void (*dots[14])(const void* b, int64_t ldb, int64_t rows, int64_t k, const float* x, int64_t ldx,
                   int64_t m, float* y, int64_t ldy);
  // y[i · ldy + j] += Σ_r b[r · ldb + j] · x[i · ldx + r] for i < m
  void (*add_rows[14])(const void* b, int64_t ldb, int64_t rows, int64_t n, const float* x, int64_t ldx,
                       int64_t m, float* y, int64_t ldy);
};

LZ_SIMD_TABLE(HalfProductTable, half_product_table)

}  // namespace lazuli

#endif
