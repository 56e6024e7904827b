// Counting and marking the elements that equal an extreme.
#ifndef LAZULI_SIMD_EXTREMES_H
#define LAZULI_SIMD_EXTREMES_H

#include <stdint.h>

#include "simd/targets.h"

namespace lazuli {

// By dtype, the floating ones.
struct ExtremesTable {
  // The number of the n elements that equal *extreme.
  int64_t (*count[14])(const void* x, int64_t n, const void* extreme);
  // to[i] = choice[0] where x[i] equals *extreme, choice[1] elsewhere; past the caches, if `streaming`.
  void (*write[14])(const void* x, int64_t n, const void* extreme, const void* choice, void* to,
                    bool streaming);
  // Both at once: what `count` gives.
  int64_t (*count_and_write[14])(const void* x, int64_t n, const void* extreme, const void* choice, void* to,
                                 bool streaming);
  // The same of columns, each with an extreme, a count and choices of its own.
  void (*count_columns[14])(const void* x, int64_t n, const void* extremes, int32_t* counts);
  void (*write_columns[14])(const void* x, int64_t n, const void* extremes, const void* hits,
                            const void* misses, void* to, bool streaming);
  void (*count_and_write_columns[14])(const void* x, int64_t n, const void* extremes, int32_t* counts,
                                      const void* hits, const void* misses, void* to, bool streaming);
};

LZ_SIMD_TABLE(ExtremesTable, extremes_table)

}  // namespace lazuli

#endif
