// Packed codes spread to bytes (AVX512_VBMI).
#ifndef LAZULI_SIMD_BYTE_SPREAD_H
#define LAZULI_SIMD_BYTE_SPREAD_H

#include <hwy/highway.h>
#include <stdint.h>

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

// Codes of kBits bits that fill as many bytes of each eight, spread to bytes.
template <int kBits>
struct Spread {
  alignas(64) uint8_t from[64];
  alignas(64) uint8_t shift[64];
  constexpr Spread() : from(), shift() {
    for (int i = 0; i < 64; i++) {
      from[i] = uint8_t(i / 8 * kBits + i % 8 < 8 * kBits ? i / 8 * kBits + i % 8 : 0);
      shift[i] = uint8_t(i % 8 * kBits);
    }
  }
};
// In assembly, since not every processor that runs the loops around it has these two.
template <int kBits>
HWY_INLINE __m512i spread(__m512i packed) {
  static constexpr Spread<kBits> order;
  __m512i codes;
  asm("vpermb %2, %1, %0" : "=v"(codes) : "v"(_mm512_load_si512(order.from)), "v"(packed));
  asm("vpmultishiftqb %1, %2, %0" : "=v"(codes) : "v"(codes), "v"(_mm512_load_si512(order.shift)));
  return _mm512_and_si512(codes, _mm512_set1_epi8((1 << kBits) - 1));
}
#endif

}  // namespace
}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();

#endif
