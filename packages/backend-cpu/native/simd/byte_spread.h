// Packed codes spread to bytes (AVX512_VBMI).
#ifndef LAZULI_SIMD_BYTE_SPREAD_H
#define LAZULI_SIMD_BYTE_SPREAD_H

#include <hwy/highway.h>
#include <stdint.h>

#include "simd/compiler.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
inline bool spreads_bytes() {
  static const bool spreads = [] {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512vbmi") != 0;
  }();
  return spreads;
}

// Codes of kBits bits spread to bytes, kSteps times eight from each kSteps · kBits bytes: every kSteps-th
// code to the same vector.
template <int kBits, int kSteps>
struct Spread {
  alignas(64) uint8_t from[64];
  alignas(64) uint8_t shift[kSteps][64];
  constexpr Spread() : from(), shift() {
    for (int i = 0; i < 64; i++) {
      const int first = i / 8 * kSteps * kBits + i % 8;
      from[i] = uint8_t(first < 64 ? first : 0);
      for (int s = 0; s < kSteps; s++) shift[s][i] = uint8_t((i % 8 * kSteps + s) * kBits);
    }
  }
};
// In assembly, since not every processor that runs the loops around it has these two.
template <int kBits, int kSteps>
HWY_INLINE void spread(__m512i packed, __m512i (&codes)[kSteps]) {
  static constexpr Spread<kBits, kSteps> order;
  __m512i quads;
  asm("vpermb %2, %1, %0" : "=v"(quads) : "v"(_mm512_load_si512(order.from)), "v"(packed));
  LZ_UNROLL for (int s = 0; s < kSteps; s++) {
    __m512i code;
    asm("vpmultishiftqb %1, %2, %0" : "=v"(code) : "v"(quads), "v"(_mm512_load_si512(order.shift[s])));
    codes[s] = _mm512_and_si512(code, _mm512_set1_epi8((1 << kBits) - 1));
  }
}
#endif

}  // namespace
}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();

#endif
