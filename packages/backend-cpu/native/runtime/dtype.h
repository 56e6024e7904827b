// The element types as C++ types, and the one way from a dtype's number to code for its type: dispatch().
// For code compiled once. Files in simd/ do not include it (see README.md).
#ifndef LAZULI_RUNTIME_DTYPE_H
#define LAZULI_RUNTIME_DTYPE_H

#include <lazuli/kernel.h>

#include <bit>
#include <complex>
#include <cstdint>
#include <type_traits>

namespace lazuli {

inline constexpr int kDtypes = 14;

constexpr float half_to_float(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000u) << 16;
  const uint32_t magnitude = h & 0x7fffu;
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  if (magnitude >= 0x0400u) return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
  // Subnormal: the magnitude counts units of 2^-24.
  const float value = float(magnitude) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}

// Rounds to nearest even.
constexpr uint16_t float_to_half(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  const uint16_t sign = uint16_t(bits >> 16 & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return uint16_t(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
  if (magnitude >= 0x477ff000u) return uint16_t(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {
    // Adding 0.5 aligns the units of 2^-24 with the last bit of the sum, which the addition then rounds.
    const float sum = std::bit_cast<float>(magnitude) + 0.5f;
    return uint16_t(sign | (std::bit_cast<uint32_t>(sum) - 0x3f000000u));
  }
  const uint32_t odd = magnitude >> 13 & 1u;
  return uint16_t(sign | ((magnitude - (112u << 23) + 0xfffu + odd) >> 13));
}

constexpr float bfloat_to_float(uint16_t b) { return std::bit_cast<float>(uint32_t(b) << 16); }

// Rounds to nearest even.
constexpr uint16_t float_to_bfloat(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return uint16_t(bits >> 16 | 0x40u);
  return uint16_t((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

// A number on its way to a half type. What is no float32 becomes the neighbour whose last bit is odd, so that
// rounding that to nearest rounds the number itself (Boldo, Melquiond: Emulation of FMA and correctly rounded
// sums, 2008).
template <class N>
constexpr float float_to_odd(N x) {
  if constexpr (std::is_same_v<N, double>) {
    const float nearest = float(x);
    const double back = nearest;
    const uint32_t bits = std::bit_cast<uint32_t>(nearest);
    if (back == x || x != x || (bits & 1u)) return nearest;
    return std::bit_cast<float>((x < 0 ? -x > -back : x > back) ? bits + 1 : bits - 1);
  } else if constexpr (std::is_integral_v<N> && sizeof(N) >= 4) {
    const uint64_t size = x < 0 ? 0 - uint64_t(x) : uint64_t(x);
    const int shift = size >> 24 ? std::bit_width(size) - 24 : 0;
    const uint64_t kept = size >> shift, odd = kept << shift != size;
    const float wide = float(kept | odd) * float(uint64_t(1) << shift);
    return x < 0 ? -wide : wide;
  } else {
    return float(x);
  }
}

struct float16 {
  uint16_t bits;
  float16() = default;
  constexpr float16(float f) : bits(float_to_half(f)) {}
  constexpr operator float() const { return half_to_float(bits); }
};

struct bfloat16 {
  uint16_t bits;
  bfloat16() = default;
  constexpr bfloat16(float f) : bits(float_to_bfloat(f)) {}
  constexpr operator float() const { return bfloat_to_float(bits); }
};

using complex64 = std::complex<float>;

constexpr int64_t itemsize(int32_t dtype) {
  constexpr int8_t sizes[kDtypes] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 2, 8, 8};
  return sizes[dtype];
}

constexpr const char* dtype_name(int32_t dtype) {
  constexpr const char* names[kDtypes] = {"bool",    "uint8",    "uint16",  "uint32",   "uint64",
                                          "int8",    "int16",    "int32",   "int64",    "float16",
                                          "float32", "bfloat16", "float64", "complex64"};
  return dtype >= 0 && dtype < kDtypes ? names[dtype] : "?";
}

template <class T>
struct type_tag {
  using type = T;
};

// Calls f with the type_tag of the dtype's C++ type: `dispatch(dtype, [&](auto tag) { using T = typename
// decltype(tag)::type; … })`. The dtype must be valid; the runtime has checked it.
template <class F>
decltype(auto) dispatch(int32_t dtype, F&& f) {
  switch (dtype) {
    case LZ_BOOL:
      return f(type_tag<bool>{});
    case LZ_UINT8:
      return f(type_tag<uint8_t>{});
    case LZ_UINT16:
      return f(type_tag<uint16_t>{});
    case LZ_UINT32:
      return f(type_tag<uint32_t>{});
    case LZ_UINT64:
      return f(type_tag<uint64_t>{});
    case LZ_INT8:
      return f(type_tag<int8_t>{});
    case LZ_INT16:
      return f(type_tag<int16_t>{});
    case LZ_INT32:
      return f(type_tag<int32_t>{});
    case LZ_INT64:
      return f(type_tag<int64_t>{});
    case LZ_FLOAT16:
      return f(type_tag<float16>{});
    case LZ_FLOAT32:
      return f(type_tag<float>{});
    case LZ_BFLOAT16:
      return f(type_tag<bfloat16>{});
    case LZ_FLOAT64:
      return f(type_tag<double>{});
    default:
      return f(type_tag<complex64>{});
  }
}

}  // namespace lazuli

#endif
