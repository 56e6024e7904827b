#include "collectives/elements.h"

#include <lazuli/kernel.h>

#include <cstring>
#include <type_traits>

namespace lazuli::dist {
namespace {

float bits_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
uint32_t float_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

struct Bfloat16 {
  uint16_t bits;
  operator float() const { return bits_float(uint32_t(bits) << 16); }
  static Bfloat16 of(float value) {
    const uint32_t b = float_bits(value);
    if ((b & 0x7fffffff) > 0x7f800000) return {uint16_t(b >> 16 | 0x40)};
    return {uint16_t((b + 0x7fff + (b >> 16 & 1)) >> 16)};
  }
};

struct Float16 {
  uint16_t bits;
  operator float() const {
    const uint32_t sign = uint32_t(bits & 0x8000) << 16, rest = bits & 0x7fff;
    if (rest >= 0x7c00) return bits_float(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    if (rest >= 0x400) return bits_float(sign | ((rest << 13) + 0x38000000));
    const float small = float(rest) * 0x1p-24f;
    return sign ? -small : small;
  }
  static Float16 of(float value) {
    const uint32_t b = float_bits(value), sign = b >> 16 & 0x8000;
    uint32_t rest = b & 0x7fffffff;
    if (rest > 0x7f800000) return {uint16_t(sign | 0x7e00)};
    if (rest >= 0x477ff000) return {uint16_t(sign | 0x7c00)};
    if (rest < 0x38800000) {
      // Adding 0.5 rounds to multiples of 2^-24.
      const uint32_t rounded = float_bits(bits_float(rest) + 0.5f) - 0x3f000000;
      return {uint16_t(sign | rounded)};
    }
    rest += 0xfff + (rest >> 13 & 1);
    return {uint16_t(sign | ((rest - 0x38000000) >> 13))};
  }
};

struct Complex {
  float re, im;
};

template <class T>
T larger(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return a > b || a != a ? a : b;
  return a > b ? a : b;
}
template <class T>
T smaller(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return a < b || a != a ? a : b;
  return a < b ? a : b;
}

template <Reduction R, class T>
T one(T a, T b) {
  if constexpr (std::is_same_v<T, Bfloat16> || std::is_same_v<T, Float16>) {
    return T::of(one<R>(float(a), float(b)));
  } else if constexpr (std::is_same_v<T, Complex>) {
    if constexpr (R == Reduction::sum) return {a.re + b.re, a.im + b.im};
    if (a.re != a.re || a.im != a.im) return a;
    if (b.re != b.re || b.im != b.im) return b;
    const bool greater = a.re != b.re ? a.re > b.re : a.im > b.im;
    return greater == (R == Reduction::max) ? a : b;
  } else if constexpr (std::is_same_v<T, bool>) {
    return R == Reduction::min ? a && b : a || b;
  } else if constexpr (R == Reduction::sum) {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return T(U(a) + U(b));
    } else {
      return a + b;
    }
  } else if constexpr (R == Reduction::max) {
    return larger(a, b);
  } else {
    return smaller(a, b);
  }
}

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__)
#define LAZULI_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define LAZULI_CLONES
#endif

template <Reduction R, class T>
void loop(void* out, const void* a, const void* b, int64_t count) {
  auto* o = static_cast<T*>(out);
  auto* x = static_cast<const T*>(a);
  auto* y = static_cast<const T*>(b);
  for (int64_t i = 0; i < count; i++) o[i] = one<R>(x[i], y[i]);
}

// The commonest, for whichever vectors the processor has.
LAZULI_CLONES void sum_floats(float* out, const float* a, const float* b, int64_t count) {
  for (int64_t i = 0; i < count; i++) out[i] = a[i] + b[i];
}

template <Reduction R>
void by_dtype(int dtype, void* out, const void* a, const void* b, int64_t n) {
  switch (dtype) {
    case LZ_BOOL:
      return loop<R, bool>(out, a, b, n);
    case LZ_UINT8:
      return loop<R, uint8_t>(out, a, b, n);
    case LZ_UINT16:
      return loop<R, uint16_t>(out, a, b, n);
    case LZ_UINT32:
      return loop<R, uint32_t>(out, a, b, n);
    case LZ_UINT64:
      return loop<R, uint64_t>(out, a, b, n);
    case LZ_INT8:
      return loop<R, int8_t>(out, a, b, n);
    case LZ_INT16:
      return loop<R, int16_t>(out, a, b, n);
    case LZ_INT32:
      return loop<R, int32_t>(out, a, b, n);
    case LZ_INT64:
      return loop<R, int64_t>(out, a, b, n);
    case LZ_FLOAT16:
      return loop<R, Float16>(out, a, b, n);
    case LZ_FLOAT32:
      if (R == Reduction::sum)
        return sum_floats(static_cast<float*>(out), static_cast<const float*>(a),
                          static_cast<const float*>(b), n);
      return loop<R, float>(out, a, b, n);
    case LZ_BFLOAT16:
      return loop<R, Bfloat16>(out, a, b, n);
    case LZ_FLOAT64:
      return loop<R, double>(out, a, b, n);
    case LZ_COMPLEX64:
      return loop<R, Complex>(out, a, b, n);
    default:
      return;
  }
}

}  // namespace

size_t size_of(int dtype) {
  static const size_t sizes[] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 2, 8, 8};
  return dtype >= 0 && dtype < 14 ? sizes[dtype] : 0;
}

void reduce(Reduction reduction, int dtype, void* out, const void* a, const void* b, int64_t count) {
  switch (reduction) {
    case Reduction::sum:
      return by_dtype<Reduction::sum>(dtype, out, a, b, count);
    case Reduction::max:
      return by_dtype<Reduction::max>(dtype, out, a, b, count);
    case Reduction::min:
      return by_dtype<Reduction::min>(dtype, out, a, b, count);
  }
}

}  // namespace lazuli::dist
