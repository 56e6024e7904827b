// Columns of the product of a few float32 rows with a matrix of a half type, which is not widened as a whole.
#ifndef LAZULI_KERNELS_HALF_COLUMNS_H
#define LAZULI_KERNELS_HALF_COLUMNS_H

#include <cstdint>

namespace lazuli {

struct FloatRows {
  const float* data;
  bool transposed;
  int64_t ld;
  int64_t rows, depth;
};

struct HalfMatrix {
  const char* data;
  int32_t dtype;
  // True if its columns are stored as rows, ld elements apart.
  bool transposed;
  int64_t ld;
};

// The number of columns to give to one call, and about how many nanoseconds it takes.
int64_t half_columns_width(int64_t rows, bool transposed);
double half_columns_price(int64_t rows, int64_t depth, int64_t columns);

// Columns [column, column + n) of out = alpha · a @ b + beta · out, n at most the width above.
void multiply_half_columns(const FloatRows& a, const HalfMatrix& b, int64_t column, int64_t n, float alpha,
                           float beta, float* out, int64_t ldo);

}  // namespace lazuli

#endif
