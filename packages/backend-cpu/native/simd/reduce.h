// Reductions of runs of memory, for every operation and element type. Results go to wide accumulators (see
// Wide below), which the caller initialises, so a run can be fed in pieces and pieces can be combined.
#ifndef LAZULI_SIMD_REDUCE_H
#define LAZULI_SIMD_REDUCE_H

#include <stdint.h>

#include "simd/targets.h"

namespace lazuli {

enum ReduceOp { kSum, kProd, kMax, kMin, kAll, kAny, kReduceOps };

// Order of the additions: blocks of this many, and the blocks one after the other. Within a block, 64
// lanes take elements in turn and are folded in a tree, 16 lanes take what 64 leave, and the rest is added
// one by one. Rows and columns of memory have the same order, so a result depends on the elements alone.
// Complex numbers are combined one by one.
inline constexpr int64_t kReduceBlock = 2048, kReduceLanes = 64;

// Some rows of a block of `rows` rows of n elements: `count` of them, a multiple of 64 unless they are the
// last, where `done` came before.
struct BlockRows {
  const void* x;
  const int64_t* at;  // where rows begin in x; null where they are `stride` apart
  int64_t stride, count, done, rows, n;
  void* lanes;  // 64·n values of the type that elements are computed as, kept from one part of a block to the
                // next
};

// The accumulator of an element type: double for floating types, (double, double) for complex64, int64 for
// signed integers, uint64 for unsigned ones and bool; of `all` and `any`, uint64 for every type.
struct ReduceTable {
  // wide[i] = op(wide[i], x[i·stride … i·stride + n - 1]) for i < rows
  void (*rows[kReduceOps][14])(const void* x, int64_t rows, int64_t stride, int64_t n, void* wide);
  // wide[j] = op(wide[j], a block's elements in column j), when its last rows come
  void (*columns[kReduceOps][14])(const BlockRows& rows, void* wide);
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
