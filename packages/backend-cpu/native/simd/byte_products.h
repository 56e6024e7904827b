// Sums of four products of bytes, an unsigned one and a signed one each, for packed codes that fill bytes
// evenly: a word's codes take 8 / bits steps, each of which looks at `bits` bits of every byte.
#ifndef LAZULI_SIMD_BYTE_PRODUCTS_H
#define LAZULI_SIMD_BYTE_PRODUCTS_H

#include <hwy/highway.h>
#include <stdint.h>

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

#if HWY_ARCH_X86
constexpr int64_t word_codes(int bits) { return 32 / bits; }
constexpr int64_t byte_steps(int bits) { return 8 / bits; }

#if HWY_TARGET <= HWY_AVX3
#define LZ_BYTES __attribute__((target("avx512vnni")))
inline bool has_byte_products() {
  static const bool has = [] {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512vnni") != 0;
  }();
  return has;
}

// The sums of a block of products a lane.
struct ByteSums {
  __m512i sum;
  LZ_BYTES HWY_INLINE void clear() { sum = _mm512_setzero_si512(); }
  LZ_BYTES HWY_INLINE void set(int32_t x) { sum = _mm512_set1_epi32(x); }
  // In assembly, since compilers do not let the instruction repeat x itself.
  LZ_BYTES HWY_INLINE void add(__m512i codes, const int32_t& x) {
    asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(codes), "m"(x));
  }
  LZ_BYTES HWY_INLINE __m512 floats() const { return _mm512_cvtepi32_ps(sum); }
};
#elif HWY_TARGET == HWY_AVX2
#define LZ_BYTES
// The same for blocks of 32 codes of 4 bits and less: pairs of 8 products are within 16 bits.
struct ByteSums {
  __m256i sum;
  HWY_INLINE void clear() { sum = _mm256_setzero_si256(); }
  HWY_INLINE void add(__m256i codes, const int32_t& x) {
    sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(codes, _mm256_set1_epi32(x)));
  }
  HWY_INLINE __m256 floats() const {
    return _mm256_cvtepi32_ps(_mm256_madd_epi16(sum, _mm256_set1_epi16(1)));
  }
};
#endif
#endif

}  // namespace
}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();

#endif
