// Reductions of runs of memory, for every operation and element type. Results go to wide accumulators (see
// Wide below), which the caller initialises, so a run can be fed in pieces and pieces can be combined.
#ifndef LAZULI_SIMD_REDUCE_H
#define LAZULI_SIMD_REDUCE_H

#include <stdint.h>

#include "simd/targets.h"

namespace lazuli {

enum ReduceOp { kSum, kProd, kMax, kMin, kAll, kAny, kReduceOps };

// The accumulator of an element type: double for floating types, (double, double) for complex64, int64 for
// signed integers, uint64 for unsigned ones and bool; of `all` and `any`, uint64 for every type.
struct ReduceTable {
  // wide[i] = op(wide[i], x[i·stride … i·stride + n - 1]) for i < rows
  void (*rows[kReduceOps][14])(const void* x, int64_t rows, int64_t stride, int64_t n, void* wide);
  // wide[j] = op(wide[j], x[j], x[j + stride], …, x[j + (rows - 1)·stride]) for j < n
  void (*columns[kReduceOps][14])(const void* x, int64_t rows, int64_t stride, int64_t n, void* wide);
  // The first i < n, and n > 0, with the largest (kMax) or smallest (kMin) x[i], or with a NaN. Null for
  // complex64.
  int64_t (*arg_row[kReduceOps][14])(const void* x, int64_t n);
  // at[j] = the first i with the largest (kMax) or smallest (kMin) of x[j], x[j + stride], …, or with a NaN,
  // for i < rows and j < n ≤ kArgColumns. Null for complex64.
  void (*arg_columns[kReduceOps][14])(const void* x, int64_t rows, int64_t stride, int64_t n, uint32_t* at);
};
inline constexpr int64_t kArgColumns = 1024;

LZ_SIMD_TABLE(ReduceTable, reduce_table)

}  // namespace lazuli

#endif
