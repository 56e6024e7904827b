// Element types for files of simd/, where nothing of runtime/ may be included: half types with conversions
// that compilers vectorise, complex64 as two floats. Everything lives in the target's namespace, so no two
// targets share a function.
#ifndef LAZULI_SIMD_ELEMENTS_H
#define LAZULI_SIMD_ELEMENTS_H

#include <stdint.h>
#include <string.h>

#define LZ_FORCE_INLINE static inline __attribute__((always_inline))
// After a lambda's parameters. A loop's body that is called for whole vectors and for the rest would else
// stay a function.
#define LZ_INLINE_LAMBDA __attribute__((always_inline))

namespace lazuli::LZ_TARGET {
namespace {

template <class To, class From>
LZ_FORCE_INLINE To bits_as(From value) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, value);
}

// Positions in lz_dtype.
enum Dtype { kFloat16 = 9, kFloat32 = 10, kBfloat16 = 11, kFloat64 = 12 };

struct float16 {
  uint16_t bits;
};
struct bfloat16 {
  uint16_t bits;
};
struct complex64 {
  float re, im;
};

template <class A, class B>
inline constexpr bool same_type = false;
template <class A>
inline constexpr bool same_type<A, A> = true;

// float16 → float32: exponent and mantissa move into place, and a product with 2^112 renormalises subnormals
// exactly.
LZ_FORCE_INLINE float to_float(float16 value) {
  const uint32_t sign = uint32_t(value.bits & 0x8000u) << 16;
  const uint32_t rest = uint32_t(value.bits & 0x7fffu) << 13;
  const uint32_t finite = bits_as<uint32_t>(bits_as<float>(rest) * 0x1p112f);
  return bits_as<float>(sign | (rest >= 0x0f800000u ? (rest | 0x7f800000u) : finite));
}
LZ_FORCE_INLINE float to_float(bfloat16 value) { return bits_as<float>(uint32_t(value.bits) << 16); }
LZ_FORCE_INLINE float to_float(float value) { return value; }

template <class T>
LZ_FORCE_INLINE T from_float(float value) {
  const uint32_t all = bits_as<uint32_t>(value);
  const uint32_t rest = all & 0x7fffffffu;
  if constexpr (same_type<T, float>) {
    return value;
  } else if constexpr (same_type<T, bfloat16>) {
    const uint32_t rounded = (all + 0x7fffu + ((all >> 16) & 1u)) >> 16;
    return {uint16_t(rest > 0x7f800000u ? ((all >> 16) | 0x40u) : rounded)};
  } else {
    const uint32_t sign = (all >> 16) & 0x8000u;
    // The exponent is rebiased and 13 bits round to nearest even; overflow carries into infinity.
    const uint32_t normal = (rest - (112u << 23) + 0xfffu + ((rest >> 13) & 1u)) >> 13;
    // Adding 0.5 aligns a subnormal result with the sum's last bit, which the addition rounds.
    const uint32_t subnormal = bits_as<uint32_t>(bits_as<float>(rest) + 0.5f) - 0x3f000000u;
    uint32_t result = rest < 0x38800000u ? subnormal : normal;
    result = rest >= 0x47800000u ? 0x7c00u : result;
    result = rest > 0x7f800000u ? 0x7e00u | ((rest >> 13) & 0x3ffu) : result;
    return {uint16_t(sign | result)};
  }
}

}  // namespace
}  // namespace lazuli::LZ_TARGET

#endif
