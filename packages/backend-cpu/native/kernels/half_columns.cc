// One row is multiplied in registers; more rows by GEMM, in BLAS with panels that are widened to a cache's
// size.
#include "kernels/half_columns.h"

#include <algorithm>

#include "kernels/blas.h"
#include "kernels/gemm.h"
#include "simd/half_products.h"
#include "simd/halves.h"

namespace lazuli {
namespace {
// Of a panel.
constexpr int64_t kColumns = 64, kDepth = 256;
}  // namespace

int64_t half_columns_width(int64_t rows, bool transposed) {
  return rows > 1 ? kColumns : transposed ? 64 : 512;
}

double half_columns_price(int64_t rows, int64_t depth, int64_t columns) {
  return double(columns) * double(depth) * (0.08 + 0.02 * double(rows)) + 100;
}

void multiply_half_columns(const FloatRows& a, const HalfMatrix& b, int64_t column, int64_t n, float alpha,
                           float beta, float* out, int64_t ldo) {
  alignas(64) float panel[kColumns * kDepth];
  const char* from = b.data + 2 * (b.transposed ? column * b.ld : column);
  float* to = out + column;
  if (a.rows == 1) {
    std::fill_n(panel, n, 0.0f);
    if (b.transposed)
      half_product_table().dot[b.dtype](from, b.ld, n, a.depth, a.data, panel);
    else
      half_product_table().add_rows[b.dtype](from, b.ld, a.depth, n, a.data, a.depth, 1, panel, n);
    for (int64_t j = 0; j < n; j++) to[j] = alpha * panel[j] + (beta == 0 ? 0 : beta * to[j]);
    return;
  }
  if (gemm_is_own()) {
    return gemm({{a.data, LZ_FLOAT32, a.transposed, a.ld},
                 {from, b.dtype, b.transposed, b.ld},
                 a.rows,
                 n,
                 a.depth,
                 alpha,
                 beta,
                 to,
                 ldo});
  }
  const auto widen = half_table().widen[b.dtype];
  for (int64_t k = 0; k < a.depth; k += kDepth) {
    const int64_t depth = std::min(kDepth, a.depth - k);
    const int64_t lines = b.transposed ? n : depth, length = b.transposed ? depth : n;
    for (int64_t i = 0; i < lines; i++)
      widen(from + 2 * (b.transposed ? i * b.ld + k : (k + i) * b.ld), panel + i * length, length);
    blas::gemm(a.transposed, b.transposed, a.rows, n, depth, alpha, a.data + (a.transposed ? k * a.ld : k),
               a.ld, panel, length, k > 0 ? 1.0f : beta, to, ldo);
  }
}

}  // namespace lazuli
