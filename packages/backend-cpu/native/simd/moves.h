// Moving much memory: rows from many locations, and sums with rows.
#ifndef LAZULI_SIMD_MOVES_H
#define LAZULI_SIMD_MOVES_H

#include <stdint.h>

#include "simd/targets.h"

namespace lazuli {

struct MoveTable {
  // Row i of `to`, of so many bytes, is what begins offsets[i] · scale bytes from `from`. Rows ahead are
  // fetched while others are copied. `streaming`: they are too many to stay in the caches.
  void (*gather)(const char* from, const int64_t* offsets, int64_t scale, int64_t rows, int64_t bytes,
                 char* to, bool streaming);
  // to[j·to_step + i] = from[i·step + j] for i < rows and j < columns, by the size of an element; null for
  // other sizes.
  void (*transpose[9])(const void* from, int64_t step, int64_t rows, int64_t columns, void* to,
                       int64_t to_step);
  // to[i] += from[i] for i < n.
  void (*add_float)(float* to, const float* from, int64_t n);
  void (*add_double)(double* to, const double* from, int64_t n);
};

LZ_SIMD_TABLE(MoveTable, move_table)

}  // namespace lazuli

#endif
