/* half where the compiler has no type for it: sixteen bits that compute in float and round once, which gives
 * the correctly rounded result of every operator. Conversions from and to float are implicit, as in Metal. */
#pragma once

namespace lz {

inline ushort half_of(float f) {
#ifdef __CUDA_ARCH__
  ushort bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(f));
  return bits;
#else
  const _Float16 h = _Float16(f);
  ushort bits;
  LZ_COPY(&bits, &h, 2);
  return bits;
#endif
}
inline float float_of_half(ushort bits) {
#ifdef __CUDA_ARCH__
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(bits));
  return f;
#else
  _Float16 h;
  LZ_COPY(&h, &bits, 2);
  return float(h);
#endif
}

}  // namespace lz

struct half {
  ushort bits;
  half() = default;
  template <class A, class = decltype(float(A()))>
  half(A value) : bits(lz::half_of(float(value))) {}
  operator float() const { return lz::float_of_half(bits); }
};

#define LZ_HALF_WITH(op, I, R)                                          \
  inline R operator op(half a, I b) { return R(float(a) op float(b)); } \
  inline R operator op(I a, half b) { return R(float(a) op float(b)); }
// clang-format off
#define LZ_HALF(op) \
  inline half operator op(half a, half b) { return half(float(a) op float(b)); } \
  LZ_HALF_WITH(op, float, float) \
  LZ_HALF_WITH(op, bool, half) \
  LZ_HALF_WITH(op, char, half) \
  LZ_HALF_WITH(op, uchar, half) \
  LZ_HALF_WITH(op, short, half) \
  LZ_HALF_WITH(op, ushort, half) \
  LZ_HALF_WITH(op, int, half) \
  LZ_HALF_WITH(op, uint, half) \
  LZ_HALF_WITH(op, long, half) \
  LZ_HALF_WITH(op, ulong, half) \
  template <class B> \
  inline half& operator op##=(half& a, const B& b) { return a = half(float(a) op float(b)); }
LZ_HALF(+)
LZ_HALF(-)
LZ_HALF(*)
LZ_HALF(/)
// clang-format on
#undef LZ_HALF
#undef LZ_HALF_WITH
inline half operator-(half a) {
  half r;
  r.bits = ushort(a.bits ^ 0x8000u);
  return r;
}

/* A branch of `c ? a : b` as it is beside the other: of a half and a float a float, of a half and an integer
 * a half; `0` beside a pointer is none. msl/conditional.ts writes these. */
namespace lz {

template <class T>
struct Bare {
  typedef T type;
};
template <class T>
struct Bare<T&> : Bare<T> {};
template <class T>
struct Bare<T&&> : Bare<T> {};
template <class T>
struct Bare<const T> : Bare<T> {};
template <class T>
struct Bare<volatile T> : Bare<T> {};

/* 1 for integers, 2 for floats, 3 for half. */
template <class T>
constexpr int rank = 0;
#define LZ_RANK(T, n) \
  template <>         \
  constexpr int rank<T> = n;
LZ_RANK(bool, 1)
LZ_RANK(char, 1)
LZ_RANK(signed char, 1)
LZ_RANK(uchar, 1)
LZ_RANK(short, 1)
LZ_RANK(ushort, 1)
LZ_RANK(int, 1)
LZ_RANK(uint, 1)
LZ_RANK(long, 1)
LZ_RANK(ulong, 1)
LZ_RANK(float, 2)
LZ_RANK(double, 2)
LZ_RANK(half, 3)
#undef LZ_RANK

/* Otherwise it stays as it is. */
template <class T, class Other, int own = rank<typename Bare<T>::type>, int other = rank<Other>>
struct Branch {
  typedef T type;
};
template <class T, class Other>
struct Branch<T, Other, 3, 2> {
  typedef float type;
};
template <class T, class Other>
struct Branch<T, Other, 1, 3> {
  typedef half type;
};
template <class T, class Other>
struct Branch<T, Other*, 1, 0> {
  typedef Other* type;
};

template <class Other>
struct Beside {};
template <class Other, class T>
constexpr typename Branch<T, typename Bare<Other>::type>::type operator,(Beside<Other>, T&& x) {
  return (typename Branch<T, typename Bare<Other>::type>::type)(x);
}

}  // namespace lz
