// Packed codes spread to bytes (AVX-512), by permutations of bytes where the processor has them (VBMI).
#ifndef LAZULI_SIMD_BYTE_SPREAD_H
#define LAZULI_SIMD_BYTE_SPREAD_H

#include <hwy/highway.h>
#include <stdint.h>

#include "simd/compiler.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
inline bool permutes_bytes() {
  static const bool permutes = [] {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512vbmi") != 0;
  }();
  return permutes;
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
// The same by a permutation of words, then one within lanes of 16 bytes. Codes of two neighbouring bytes come
// to the same 16 bits, and are shifted to the lowest bits and from there to those of the upper byte.
template <int kBits, int kSteps>
struct SpreadPairs {
  static constexpr int kCodes = 2 * kSteps;
  alignas(64) uint32_t words[16];
  alignas(64) uint8_t bytes[64];
  alignas(64) uint16_t shifts[32];
  constexpr SpreadPairs() : words(), bytes(), shifts() {
    for (int lane = 0; lane < 4; lane++) {
      const int first = lane * 8 * kCodes * kBits / 8, word = first / 4;
      for (int i = 0; i < 4; i++) words[4 * lane + i] = uint32_t(word + i < 16 ? word + i : 15);
      for (int i = 0; i < 8; i++) {
        const int bit = i * kCodes * kBits, byte = first - 4 * word + bit / 8;
        bytes[16 * lane + 2 * i] = uint8_t(byte);
        bytes[16 * lane + 2 * i + 1] = uint8_t(byte + 1);
        shifts[8 * lane + i] = uint16_t(bit % 8);
      }
    }
  }
};

template <int kBits, bool kVbmi, int kSteps>
HWY_INLINE void spread(__m512i packed, __m512i (&codes)[kSteps]) {
  const __m512i low = _mm512_set1_epi8((1 << kBits) - 1);
  if constexpr (kVbmi) {
    static constexpr Spread<kBits, kSteps> order;
    // In assembly, since not every processor that runs the loops around it has these two.
    __m512i quads;
    asm("vpermb %2, %1, %0" : "=v"(quads) : "v"(_mm512_load_si512(order.from)), "v"(packed));
    LZ_UNROLL for (int s = 0; s < kSteps; s++) {
      __m512i code;
      asm("vpmultishiftqb %1, %2, %0" : "=v"(code) : "v"(quads), "v"(_mm512_load_si512(order.shift[s])));
      codes[s] = _mm512_and_si512(code, low);
    }
  } else {
    static constexpr SpreadPairs<kBits, kSteps> order;
    const __m512i words = _mm512_permutexvar_epi32(_mm512_load_si512(order.words), packed);
    const __m512i pairs = _mm512_srlv_epi16(_mm512_shuffle_epi8(words, _mm512_load_si512(order.bytes)),
                                            _mm512_load_si512(order.shifts));
    const __m512i both = _mm512_ternarylogic_epi32(_mm512_set1_epi16(255), pairs,
                                                   _mm512_slli_epi16(pairs, 8 - kSteps * kBits), 0xca);
    LZ_UNROLL for (int s = 0; s < kSteps; s++) codes[s] =
        _mm512_and_si512(s == 0 ? both : _mm512_srli_epi16(both, s * kBits), low);
  }
}
#else
constexpr bool permutes_bytes() { return false; }
#endif

}  // namespace
}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();

#endif
