// A number of vectors that are multiplied together, as a template argument.
#ifndef LAZULI_SIMD_VECTOR_COUNTS_H
#define LAZULI_SIMD_VECTOR_COUNTS_H

#include <stdint.h>

#include "simd/vectors.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

// Calls f with `count`, which is at most kMost, as its template argument.
template <int kMost, class F>
HWY_INLINE void by_count(int64_t count, F&& f) {
  if constexpr (kMost > 1) {
    if (count < kMost) return by_count<kMost - 1>(count, f);
  }
  f.template operator()<kMost>();
}

}  // namespace
}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();

#endif
