// Casts between all dtypes, and the conversions and roundings of float16 and bfloat16.
//   float to integer: towards zero, wrapping; NaN gives 0.   anything to bool: whether it is not 0.
//   to float16 and bfloat16: to nearest even, once.   complex64 to real: the real part.
#include <string.h>
#if defined(__AVX512DQ__)
#include <immintrin.h>
#endif

#include "simd/micro_loops.h"

namespace lazuli::LZ_TARGET {
namespace {

struct Bool {
  uint8_t value;
};
struct Half {
  uint16_t bits;
};
struct Bfloat {
  uint16_t bits;
};
struct Pair {
  float re, im;
};

inline uint32_t bits_of(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return u;
}
inline float float_of(uint32_t u) {
  float f;
  memcpy(&f, &u, 4);
  return f;
}

// Branch-free, so that the loops vectorise. The bits, moved into place, are the number scaled by 2^-112,
// subnormals included, and scaling back is exact.
inline float widen(Half h) {
  const uint32_t sign = uint32_t(h.bits & 0x8000u) << 16, magnitude = h.bits & 0x7fffu;
  const float finite = float_of(magnitude << 13) * 0x1p112f;
  const uint32_t bits = magnitude >= 0x7c00u ? (0x7f800000u | magnitude << 13) : bits_of(finite);
  return float_of(sign | bits);
}
inline float widen(Bfloat b) { return float_of(uint32_t(b.bits) << 16); }

inline Half to_half(float f) {
  const uint32_t all = bits_of(f), sign = all >> 16 & 0x8000u, magnitude = all & 0x7fffffffu;
  // Below 2^-14 the addition of 0.5 puts the unit 2^-24 at the sum's last bit, and rounds there.
  const uint32_t small = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  uint32_t h = magnitude < 0x38800000u ? small : normal;
  h = magnitude >= 0x477ff000u ? 0x7c00u : h;
  h = magnitude > 0x7f800000u ? 0x7e00u | (magnitude >> 13 & 0x3ffu)
                              : h;  // Quiet, with its first bits, as processors convert.
  return {uint16_t(sign | h)};
}
inline Bfloat to_bfloat(float f) {
  const uint32_t all = bits_of(f);
  const uint32_t rounded = (all + 0x7fffu + (all >> 16 & 1u)) >> 16;
  return {uint16_t((all & 0x7fffffffu) > 0x7f800000u ? (all >> 16 | 0x40u) : rounded)};
}

// A number that is no float32 becomes the neighbour whose last bit is odd, so that rounding that to a half
// type rounds the number itself. Branch-free as well. The error is scaled so that it stays a float32 where
// the result is subnormal; a number below half the smallest float32 may lose it, and is 0 in either half
// type.
inline float to_odd(double x) {
  const float nearest = float(x);
  const float error = float((x - double(nearest)) * 0x1p100);  // NaN for NaN and infinities
  const uint32_t bits = bits_of(nearest);
  const uint32_t inexact = uint32_t(error < 0.0f) | uint32_t(error > 0.0f);
  const uint32_t towards_zero = (bits_of(error) ^ bits) >> 31;
  return float_of(bits + (inexact & ~bits & 1u) * (1u - 2u * towards_zero));
}
// Integers keep 24 bits from 2^24 on: the last one kept is set when any below it is.
inline int32_t odd_bits(int32_t x) { return (x & ~0xff) | int32_t((x & 0xff) != 0) << 8; }
inline uint32_t odd_bits(uint32_t x) { return (x & ~0xffu) | uint32_t((x & 0xffu) != 0) << 8; }
inline float to_odd(int32_t x) { return float((x < 1 << 24) & (x > -(1 << 24)) ? x : odd_bits(x)); }
inline float to_odd(uint32_t x) { return uint32_t(x) < 1u << 24 ? float(int32_t(x)) : float(odd_bits(x)); }
// The same for 64 bits: at most 24 are kept, and from 2^24 on at least two more than bfloat16 has.
inline uint64_t lost_bits(uint64_t size) {
  const uint64_t small = size >> 24 ? (uint64_t(1) << 14) - 1 : 0;
  const uint64_t large = size >> 52 ? (uint64_t(1) << 40) - 1 : (uint64_t(1) << 28) - 1;
  return size >> 38 ? large : small;
}
inline uint64_t odd_bits(uint64_t x, uint64_t lost) { return (x & ~lost) | ((x & lost) != 0 ? lost + 1 : 0); }
inline float to_odd(int64_t x) {
  return float(int64_t(odd_bits(uint64_t(x), lost_bits(uint64_t(x < 0 ? ~x : x)))));
}
inline float to_odd(uint64_t x) { return float(odd_bits(x, lost_bits(x))); }
// clang-format off
inline float to_odd(float x) { return x; }
inline float to_odd(uint8_t x) { return float(x); }
inline float to_odd(int8_t x) { return float(x); }
inline float to_odd(uint16_t x) { return float(x); }
inline float to_odd(int16_t x) { return float(x); }
// clang-format on

// The number behind a stored value: itself for integers and floats.
template <class T>
inline T number(T x) {
  return x;
}
inline uint8_t number(Bool x) { return x.value; }
inline float number(Half x) { return widen(x); }
inline float number(Bfloat x) { return widen(x); }
inline float number(Pair x) { return x.re; }

// clang-format off
template <class T> struct is_float { static constexpr bool value = false; };
template <> struct is_float<float> { static constexpr bool value = true; };
template <> struct is_float<double> { static constexpr bool value = true; };
// clang-format on

// Modulo 2^64 beyond int64.
template <class F>
inline int64_t wrapped(F x) {
  if (!(x - x == F(0))) return 0;  // NaN and infinities
  if (x >= F(-0x1p63) && x < F(0x1p63)) return int64_t(x);
  const double rest = __builtin_fmod(__builtin_trunc(double(x)), 0x1p64);
  return int64_t(rest < 0 ? uint64_t(0) - uint64_t(-rest) : uint64_t(rest));
}

template <class R, class N>
struct Convert {
  static R run(N x) { return R(x); }
};
// clang-format off
template <class N> struct Convert<Bool, N> { static Bool run(N x) { return {uint8_t(x != N(0))}; } };
template <class N> struct Convert<Half, N> { static Half run(N x) { return to_half(to_odd(x)); } };
template <class N> struct Convert<Bfloat, N> { static Bfloat run(N x) { return to_bfloat(to_odd(x)); } };
template <class N> struct Convert<Pair, N> { static Pair run(N x) { return {float(x), 0.0f}; } };
// clang-format on

template <class A, class R>
void cast_plain(void* out, const void* a, const void*, const void*, int64_t n) {
  auto* y = static_cast<R*>(out);
  const auto* x = static_cast<const A*>(a);
  using N = decltype(number(A{}));
  LZ_INDEPENDENT
  for (int64_t i = 0; i < n; i++) y[i] = Convert<R, N>::run(number(x[i]));
}

// Float to integer: blocks whose values all fit int32 convert with vectors, others one by one.
template <class A, class R>
void cast_to_integer(void* out, const void* a, const void*, const void*, int64_t n) {
  auto* y = static_cast<R*>(out);
  const auto* x = static_cast<const A*>(a);
  constexpr int64_t kBlock = 256;
  for (int64_t from = 0; from < n; from += kBlock) {
    const int64_t m = n - from < kBlock ? n - from : kBlock;
    int fits = 1;
    for (int64_t i = 0; i < m; i++) {
      const auto v = number(x[from + i]);
      fits &= int(v > -2147483648.0f) & int(v < 2147483648.0f);
    }
    if (fits) {
      LZ_INDEPENDENT
      for (int64_t i = 0; i < m; i++) y[from + i] = R(int32_t(number(x[from + i])));
    } else {
      for (int64_t i = 0; i < m; i++) y[from + i] = R(wrapped(number(x[from + i])));
    }
  }
}

void cast_pairs(void* out, const void* a, const void*, const void*, int64_t n) {
  memmove(out, a, size_t(n) * 8);
}

struct PairToBool {
  static uint8_t run(Pair x) { return uint8_t((x.re != 0) | (x.im != 0)); }
};

// clang-format off
template <class T> struct is_integer { static constexpr bool value = T(0.5f) == T(0); };
template <> struct is_integer<Bool> { static constexpr bool value = false; };
template <> struct is_integer<Half> { static constexpr bool value = false; };
template <> struct is_integer<Bfloat> { static constexpr bool value = false; };
template <> struct is_integer<Pair> { static constexpr bool value = false; };
// clang-format on

template <class A, class R>
constexpr Micro cast_of() {
  if constexpr (is_integer<R>::value && is_float<decltype(number(A{}))>::value) {
    return cast_to_integer<A, R>;
  } else {
    return cast_plain<A, R>;
  }
}

template <class A>
void add_casts_from(MicroTable& table, int from) {
  const Micro to[] = {cast_of<A, Bool>(),     cast_of<A, uint8_t>(),  cast_of<A, uint16_t>(),
                      cast_of<A, uint32_t>(), cast_of<A, uint64_t>(), cast_of<A, int8_t>(),
                      cast_of<A, int16_t>(),  cast_of<A, int32_t>(),  cast_of<A, int64_t>(),
                      cast_of<A, Half>(),     cast_of<A, float>(),    cast_of<A, Bfloat>(),
                      cast_of<A, double>(),   cast_of<A, Pair>()};
  for (int i = 0; i < kMicroDtypes; i++) table.casts[from][i] = to[i];
}

template <class A>
struct ToOdd {
  static float run(A x) { return to_odd(x); }
};

#if defined(__AVX512DQ__)
// Rounds towards zero and sets the last bit where something was lost.
inline __m256 odd_lanes(__m512i x, int64_t) {
  const __m256 y = _mm512_cvt_roundepi64_ps(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
  const __mmask8 lost = _mm512_cmpneq_epi64_mask(_mm512_cvttps_epi64(y), x);
  return _mm256_castsi256_ps(
      _mm256_mask_or_epi32(_mm256_castps_si256(y), lost, _mm256_castps_si256(y), _mm256_set1_epi32(1)));
}
inline __m256 odd_lanes(__m512i x, uint64_t) {
  const __m256 y = _mm512_cvt_roundepu64_ps(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
  const __mmask8 lost = _mm512_cmpneq_epu64_mask(_mm512_cvttps_epu64(y), x);
  return _mm256_castsi256_ps(
      _mm256_mask_or_epi32(_mm256_castps_si256(y), lost, _mm256_castps_si256(y), _mm256_set1_epi32(1)));
}
template <class A>
void wide_to_odd(void* out, const void* a, const void* b, const void* c, int64_t n) {
  auto* y = static_cast<float*>(out);
  const auto* x = static_cast<const A*>(a);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(y + i, odd_lanes(_mm512_loadu_si512(x + i), A{}));
  unary_loop<ToOdd<A>, A, float>(y + i, x + i, b, c, n - i);
}
#else
template <class A>
void wide_to_odd(void* out, const void* a, const void* b, const void* c, int64_t n) {
  unary_loop<ToOdd<A>, A, float>(out, a, b, c, n);
}
#endif

struct RoundHalf {
  static float run(float x) { return widen(to_half(x)); }
};
struct RoundBfloat {
  static float run(float x) { return widen(to_bfloat(x)); }
};

void fill(MicroTable& table) {
  add_casts_from<Bool>(table, LZ_BOOL);
  add_casts_from<uint8_t>(table, LZ_UINT8);
  add_casts_from<uint16_t>(table, LZ_UINT16);
  add_casts_from<uint32_t>(table, LZ_UINT32);
  add_casts_from<uint64_t>(table, LZ_UINT64);
  add_casts_from<int8_t>(table, LZ_INT8);
  add_casts_from<int16_t>(table, LZ_INT16);
  add_casts_from<int32_t>(table, LZ_INT32);
  add_casts_from<int64_t>(table, LZ_INT64);
  add_casts_from<Half>(table, LZ_FLOAT16);
  add_casts_from<float>(table, LZ_FLOAT32);
  add_casts_from<Bfloat>(table, LZ_BFLOAT16);
  add_casts_from<double>(table, LZ_FLOAT64);
  add_casts_from<Pair>(table, LZ_COMPLEX64);
  table.casts[LZ_COMPLEX64][LZ_COMPLEX64] = cast_pairs;
  table.casts[LZ_COMPLEX64][LZ_BOOL] = unary_loop<PairToBool, Pair, uint8_t>;
  table.odd[LZ_UINT32] = unary_loop<ToOdd<uint32_t>, uint32_t, float>;
  table.odd[LZ_UINT64] = wide_to_odd<uint64_t>;
  table.odd[LZ_INT32] = unary_loop<ToOdd<int32_t>, int32_t, float>;
  table.odd[LZ_INT64] = wide_to_odd<int64_t>;
  table.odd[LZ_FLOAT64] = unary_loop<ToOdd<double>, double, float>;
  table.round_float16 = unary_loop<RoundHalf, float, float>;
  table.round_bfloat16 = unary_loop<RoundBfloat, float, float>;
}

}  // namespace

const MicroFamily& micro_cast() {
  static constexpr MicroFamily family = {fill};
  return family;
}

}  // namespace lazuli::LZ_TARGET
