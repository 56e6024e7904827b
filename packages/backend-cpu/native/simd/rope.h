// Rotations of pairs of numbers, for float16, bfloat16 and float32 data, computed in float32.
#ifndef LAZULI_SIMD_ROPE_H
#define LAZULI_SIMD_ROPE_H

#include <stdint.h>

#include "simd/targets.h"

namespace lazuli {

// By dtype; null for the others. y = x with the pairs (x[i], x[half + i]), or (x[2i], x[2i + 1]) where they
// are neighbours, turned: (p cos − q sin, p sin + q cos). Products and sums round, each, as those of an
// elementwise program do.
struct RopeTable {
  void (*rotate[14])(const void* x, int64_t half, bool neighbours, const float* cos, const float* sin,
                     void* y);
};

LZ_SIMD_TABLE(RopeTable, rope_table)

}  // namespace lazuli

#endif
