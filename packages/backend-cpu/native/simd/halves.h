// Whole arrays of float16 and bfloat16 to float32 and back, rounding to nearest even.
#ifndef LAZULI_SIMD_HALVES_H
#define LAZULI_SIMD_HALVES_H

#include <stdint.h>

#include "simd/targets.h"

namespace lazuli {

// By dtype; null for types other than the two.
struct HalfTable {
  void (*widen[14])(const void* x, float* y, int64_t n);
  void (*narrow[14])(const float* x, void* y, int64_t n);
};

LZ_SIMD_TABLE(HalfTable, half_table)

}  // namespace lazuli

#endif
