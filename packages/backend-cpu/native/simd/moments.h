// Means and squared distances from them, along and across rows, in one reading of memory.
#ifndef LAZULI_SIMD_MOMENTS_H
#define LAZULI_SIMD_MOMENTS_H

#include <stdint.h>

#include "simd/targets.h"

namespace lazuli {

// Moments of some numbers besides their count: their mean and Σ (x − mean)².
struct Moments {
  double mean, square;
};

// Joins `more` of `more_count` numbers to `some` of `count` (Chan, Golub and LeVeque 1979).
inline __attribute__((always_inline)) Moments joined(Moments some, double count, Moments more,
                                                     double more_count) {
  const double share = more_count / (count + more_count), apart = more.mean - some.mean;
  return {some.mean + apart * share, some.square + more.square + apart * apart * count * share};
}

// By dtype, the floating ones.
struct MomentsTable {
  // to[i] of x[i·stride … i·stride + n - 1], for i < rows
  void (*rows[14])(const void* x, int64_t rows, int64_t stride, int64_t n, Moments* to);
  // to[j] of x[j], x[j + stride], …, x[j + (rows - 1)·stride], for j < n
  void (*columns[14])(const void* x, int64_t rows, int64_t stride, int64_t n, Moments* to);
};

LZ_SIMD_TABLE(MomentsTable, moments_table)

}  // namespace lazuli

#endif
