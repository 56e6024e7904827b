/* Metal's functions on scalars and vectors: <metal_math>, <metal_integer>, <metal_relational>,
 * <metal_geometric>. Half and bfloat compute in float and round once. The namespaces fast and precise hold
 * the same functions. It is long because Metal has that many. */
#pragma once

/* Functions of the C library and of the compiler, by which platforms differ. */
#ifndef LZ_MATH
#define LZ_MATH(name) __builtin_##name
#define LZ_INFINITY __builtin_inff()
#define LZ_NAN __builtin_nanf("")
#define LZ_ISNAN(x) __builtin_isnan(x)
#define LZ_ISINF(x) __builtin_isinf(x)
#define LZ_ISFINITE(x) __builtin_isfinite(x)
#define LZ_ISNORMAL(x) __builtin_isnormal(x)
#define LZ_SIGNBIT(x) __builtin_signbit(x)
#define LZ_POPCOUNT(x) __builtin_popcountl(x)
#define LZ_CLZ(x) __builtin_clzl(x)
#define LZ_CTZ(x) __builtin_ctzl(x)
#define LZ_MULHI(a, b) long((__int128(a) * b) >> 64)
#define LZ_UMULHI(a, b) ulong(((unsigned __int128)(a) * b) >> 64)
#endif

namespace lz {

/* The type in which a function of floating point computes `T`: integers become float. */
template <class T>
using FloatOf = typename Choice<is_floating<T>, T, float>::type;
/* The common type of a pair of scalars, floating where one is. */
template <class A, class B, class = void>
struct BothOf {};
#ifdef LZ_HALF_CLASS
/* Half converts from and to float, so that the conditional operator cannot choose. */
template <class A, class B>
constexpr bool one_is_half = same<A, half> != same<B, half>;
template <class A, class B>
struct BothOf<A, B, If<one_is_half<A, B> && is_scalar<A> && is_scalar<B>>> {
  typedef typename Choice<is_floating<typename Choice<same<A, half>, B, A>::type>, float, half>::type type;
};
#else
template <class A, class B>
constexpr bool one_is_half = false;
#endif
template <class A, class B>
struct BothOf<A, B, If<!one_is_half<A, B>, VoidOf<decltype(true ? A() : B())>>> {
  typedef decltype(true ? A() : B()) type;
};
template <class A, class B>
using Both = typename BothOf<A, B>::type;
template <class T>
constexpr bool is_unsigned =
    same<T, uchar> || same<T, ushort> || same<T, uint> || same<T, ulong> || same<T, bool>;
template <class T>
struct UnsignedOf {
  typedef
      typename Choice<sizeof(T) == 1, uchar,
                      typename Choice<sizeof(T) == 2, ushort,
                                      typename Choice<sizeof(T) == 4, uint, ulong>::type>::type>::type type;
};

}  // namespace lz

#define M_PI_F 3.14159265358979323846f
#define M_PI_2_F 1.57079632679489661923f
#define M_PI_4_F 0.78539816339744830962f
#define M_1_PI_F 0.31830988618379067154f
#define M_2_PI_F 0.63661977236758134308f
#define M_2_SQRTPI_F 1.12837916709551257390f
#define M_SQRT2_F 1.41421356237309504880f
#define M_SQRT1_2_F 0.70710678118654752440f
#define M_E_F 2.71828182845904523536f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LOG10E_F 0.43429448190325182765f
#define M_LN2_F 0.69314718055994530942f
#define M_LN10_F 2.30258509299404568402f
#define INFINITY (LZ_INFINITY)
#define NAN (LZ_NAN)
#define HUGE_VALF (LZ_INFINITY)
#define MAXFLOAT 3.40282346638528859812e+38f
#define FLT_MAX 3.40282346638528859812e+38f
#define FLT_MIN 1.17549435082228750797e-38f
#define FLT_EPSILON 1.19209289550781250000e-07f
#define HALF_MAX ((half)65504.0f)
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u

namespace metal {

/* The bits of one type read as another of its size. */
template <class T, class A>
inline T bits_as(const A& a) {
  static_assert(sizeof(T) == sizeof(A), "as_type needs types of one size");
  T t;
  LZ_COPY(static_cast<void*>(&t), &a, sizeof(T));
  return t;
}

/* name(x) for scalars by an expression on a float x, and for vectors element by element. */
#define LZ_FLOAT1(name, expression)                                            \
  template <class T, lz::If<lz::is_scalar<T>, int> = 0>                        \
  inline lz::FloatOf<T> name(T a) {                                            \
    const float x = float(a);                                                  \
    return lz::FloatOf<T>(expression);                                         \
  }                                                                            \
  template <class A, class V = lz::VecOf<A>>                                   \
  inline V name(const A& a) {                                                  \
    V x(a), r;                                                                 \
    for (int i = 0; i < lz::Count<V>::value; i++) r.data[i] = name(x.data[i]); \
    return r;                                                                  \
  }
/* The same with two arguments; scalars beside vectors are repeated. */
#define LZ_VECTOR2(name)                                                                     \
  template <class A, class B, class V = lz::VecOf<A>,                                        \
            lz::If<lz::is_scalar<B> || lz::Count<B>::value == lz::Count<V>::value, int> = 0> \
  inline V name(const A& a, const B& b) {                                                    \
    V x(a), y(b), r;                                                                         \
    for (int i = 0; i < lz::Count<V>::value; i++) r.data[i] = name(x.data[i], y.data[i]);    \
    return r;                                                                                \
  }                                                                                          \
  template <class A, class B, class V = lz::VecOf<B>, lz::If<lz::is_scalar<A>, char> = 0>    \
  inline V name(const A& a, const B& b) {                                                    \
    return name(V(a), V(b));                                                                 \
  }
#define LZ_FLOAT2(name, expression)                                                  \
  template <class S, class T, lz::If<lz::is_scalar<S> && lz::is_scalar<T>, int> = 0> \
  inline lz::FloatOf<lz::Both<S, T>> name(S a, T b) {                                \
    const float x = float(a), y = float(b);                                          \
    return lz::FloatOf<lz::Both<S, T>>(expression);                                  \
  }                                                                                  \
  LZ_VECTOR2(name)

#define LZ_TANH(x) LZ_MATH(tanhf)(x)
// clang-format off
#define LZ_FUNCTIONS \
  LZ_FLOAT1(acos, LZ_MATH(acosf)(x)) \
  LZ_FLOAT1(acosh, LZ_MATH(acoshf)(x)) \
  LZ_FLOAT1(asin, LZ_MATH(asinf)(x)) \
  LZ_FLOAT1(asinh, LZ_MATH(asinhf)(x)) \
  LZ_FLOAT1(atan, LZ_MATH(atanf)(x)) \
  LZ_FLOAT1(atanh, LZ_MATH(atanhf)(x)) \
  LZ_FLOAT1(ceil, LZ_MATH(ceilf)(x)) \
  LZ_FLOAT1(cos, LZ_MATH(cosf)(x)) \
  LZ_FLOAT1( cosh, LZ_MATH(coshf)(x)) \
  LZ_FLOAT1(cospi, LZ_MATH(cosf)(x * M_PI_F)) \
  LZ_FLOAT1(exp, LZ_MATH(expf)(x)) \
  LZ_FLOAT1(exp2, LZ_MATH(exp2f)(x)) \
  LZ_FLOAT1(exp10, LZ_MATH(powf)(10.0f, x)) \
  LZ_FLOAT1( fabs, LZ_MATH(fabsf)(x)) \
  LZ_FLOAT1(floor, LZ_MATH(floorf)(x)) \
  LZ_FLOAT1(fract, LZ_MATH(fminf)(x - LZ_MATH(floorf)(x), 0x1.fffffep-1f)) \
  LZ_FLOAT1( log, LZ_MATH(logf)(x)) \
  LZ_FLOAT1(log2, LZ_MATH(log2f)(x)) \
  LZ_FLOAT1(log10, LZ_MATH(log10f)(x)) \
  LZ_FLOAT1(rint, LZ_MATH(rintf)(x)) \
  LZ_FLOAT1(round, LZ_MATH(roundf)(x)) \
  LZ_FLOAT1( rsqrt, 1.0f / LZ_MATH(sqrtf)(x)) \
  LZ_FLOAT1(sin, LZ_MATH(sinf)(x)) \
  LZ_FLOAT1(sinh, LZ_MATH(sinhf)(x)) \
  LZ_FLOAT1(sinpi, LZ_MATH(sinf)(x * M_PI_F)) \
  LZ_FLOAT1( sqrt, LZ_MATH(sqrtf)(x)) \
  LZ_FLOAT1(tan, LZ_MATH(tanf)(x)) \
  LZ_FLOAT1(tanh, LZ_TANH(x)) \
  LZ_FLOAT1( tanpi, LZ_MATH(tanf)(x * M_PI_F)) \
  LZ_FLOAT1(trunc, LZ_MATH(truncf)(x)) \
  LZ_FLOAT1(saturate, LZ_MATH(fminf)(LZ_MATH(fmaxf)(x, 0.0f), 1.0f)) \
  LZ_FLOAT2( atan2, LZ_MATH(atan2f)(x, y)) \
  LZ_FLOAT2(copysign, LZ_MATH(copysignf)(x, y)) \
  LZ_FLOAT2(fdim, LZ_MATH(fdimf)(x, y)) \
  LZ_FLOAT2(fmax, LZ_MATH(fmaxf)(x, y)) \
  LZ_FLOAT2(fmin, LZ_MATH(fminf)(x, y)) \
  LZ_FLOAT2( fmod, LZ_MATH(fmodf)(x, y)) \
  LZ_FLOAT2(pow, LZ_MATH(powf)(x, y)) \
  LZ_FLOAT2(powr, LZ_MATH(powf)(x, y)) \
  LZ_FLOAT2(nextafter, LZ_MATH(nextafterf)(x, y)) \
  LZ_FLOAT2(step, y < x ? 0.0f : 1.0f) \
  LZ_FLOAT2(divide, x / y)
// clang-format on

LZ_FUNCTIONS
namespace precise {
LZ_FUNCTIONS
}
#ifdef LZ_FAST_TANH
#undef LZ_TANH
#define LZ_TANH(x) LZ_FAST_TANH(x)
#endif
namespace fast {
LZ_FUNCTIONS
}

template <class T, lz::If<lz::is_scalar<T>, int> = 0>
inline T abs(T a) {
  if constexpr (lz::is_unsigned<T>)
    return a;
  else if constexpr (lz::is_floating<T>)
    return T(LZ_MATH(fabsf)(float(a)));
  else
    return a < T(0) ? T(-a) : a;
}
template <class A, class V = lz::VecOf<A>>
inline V abs(const A& a) {
  V x(a), r;
  for (int i = 0; i < lz::Count<V>::value; i++) r.data[i] = abs(x.data[i]);
  return r;
}
template <class T, lz::If<lz::is_scalar<T>, int> = 0>
inline T sign(T a) {
  return a > T(0) ? T(1) : a < T(0) ? T(-1) : a == a ? a : T(0);
}
template <class A, class V = lz::VecOf<A>>
inline V sign(const A& a) {
  V x(a), r;
  for (int i = 0; i < lz::Count<V>::value; i++) r.data[i] = sign(x.data[i]);
  return r;
}

/* NaN loses, as in fmax and fmin. */
template <class S, class T, lz::If<lz::is_scalar<S> && lz::is_scalar<T>, int> = 0>
inline lz::Both<S, T> max(S a, T b) {
  typedef lz::Both<S, T> R;
  const R x = R(a), y = R(b);
  if constexpr (lz::is_floating<R>)
    return R(LZ_MATH(fmaxf)(float(x), float(y)));
  else
    return x < y ? y : x;
}
template <class S, class T, lz::If<lz::is_scalar<S> && lz::is_scalar<T>, int> = 0>
inline lz::Both<S, T> min(S a, T b) {
  typedef lz::Both<S, T> R;
  const R x = R(a), y = R(b);
  if constexpr (lz::is_floating<R>)
    return R(LZ_MATH(fminf)(float(x), float(y)));
  else
    return y < x ? y : x;
}
LZ_VECTOR2(max)
LZ_VECTOR2(min)
template <class A, class B, class C>
inline auto max3(A a, B b, C c) {
  return max(max(a, b), c);
}
template <class A, class B, class C>
inline auto min3(A a, B b, C c) {
  return min(min(a, b), c);
}
template <class X, class A, class B>
inline auto clamp(X x, A low, B high) {
  return min(max(x, low), high);
}
namespace precise {
using metal::abs;
using metal::clamp;
using metal::max;
using metal::min;
}  // namespace precise
namespace fast {
using metal::abs;
using metal::clamp;
using metal::max;
using metal::min;
}  // namespace fast

template <class T, lz::If<lz::is_scalar<T>, int> = 0>
inline T fma(T a, T b, T c) {
  return T(LZ_MATH(fmaf)(float(a), float(b), float(c)));
}
template <class A, class V = lz::VecOf<A>>
inline V fma(const A& a, const V& b, const V& c) {
  V x(a), r;
  for (int i = 0; i < lz::Count<V>::value; i++) r.data[i] = fma(x.data[i], b.data[i], c.data[i]);
  return r;
}
template <class A, class B, class C>
inline auto mix(A a, B b, C t) {
  return a + (b - a) * t;
}
template <class A, class B, class X>
inline auto smoothstep(A low, B high, X x) {
  auto t = clamp((x - low) / (high - low), X(0), X(1));
  return t * t * (X(3) - X(2) * t);
}
template <class T>
inline T ldexp(T x, int n) {
  return T(LZ_MATH(ldexpf)(float(x), n));
}
template <class T>
inline T frexp(T x, int& n) {
  return T(LZ_MATH(frexpf)(float(x), &n));
}
template <class T>
inline T modf(T x, T& whole) {
  whole = trunc(x);
  return T(x - whole);
}
template <class T>
inline int ilogb(T x) {
  return LZ_MATH(ilogbf)(float(x));
}
template <class T>
inline T sincos(T x, T& c) {
  c = cos(x);
  return sin(x);
}

/* <metal_relational> */
#define LZ_TEST(name, expression)                                              \
  template <class T, lz::If<lz::is_scalar<T>, int> = 0>                        \
  inline bool name(T a) {                                                      \
    const float x = float(a);                                                  \
    return expression;                                                         \
  }                                                                            \
  template <class A, class V = lz::VecOf<A>>                                   \
  inline vec<bool, lz::Count<V>::value> name(const A& a) {                     \
    V x(a);                                                                    \
    vec<bool, lz::Count<V>::value> r;                                          \
    for (int i = 0; i < lz::Count<V>::value; i++) r.data[i] = name(x.data[i]); \
    return r;                                                                  \
  }
// clang-format off
LZ_TEST(isnan, LZ_ISNAN(x))
LZ_TEST(isinf, LZ_ISINF(x))
LZ_TEST(isfinite, LZ_ISFINITE(x))
LZ_TEST(isnormal, LZ_ISNORMAL(x))
LZ_TEST(signbit, LZ_SIGNBIT(x))
// clang-format on
#undef LZ_TEST
inline bool any(bool b) { return b; }
inline bool all(bool b) { return b; }
template <int N>
inline bool any(const vec<bool, N>& v) {
  bool r = false;
  for (int i = 0; i < N; i++) r = r || v.data[i];
  return r;
}
template <int N>
inline bool all(const vec<bool, N>& v) {
  bool r = true;
  for (int i = 0; i < N; i++) r = r && v.data[i];
  return r;
}
/* b where c holds, a elsewhere. */
template <class S, class T, lz::If<lz::is_scalar<S> && lz::is_scalar<T>, int> = 0>
inline lz::Both<S, T> select(S a, T b, bool c) {
  return c ? lz::Both<S, T>(b) : lz::Both<S, T>(a);
}
template <class A, class V = lz::VecOf<A>>
inline V select(const A& a, const V& b, const vec<bool, lz::Count<V>::value>& c) {
  V x(a), r;
  for (int i = 0; i < lz::Count<V>::value; i++) r.data[i] = c.data[i] ? b.data[i] : x.data[i];
  return r;
}

/* <metal_integer> */
#define LZ_INTEGER(name, expression)                    \
  template <class T, lz::If<lz::is_scalar<T>, int> = 0> \
  inline T name(T a) {                                  \
    typedef typename lz::UnsignedOf<T>::type U;         \
    const U x = U(a);                                   \
    const int bits = int(sizeof(T) * 8);                \
    return T(expression);                               \
  }
// clang-format off
LZ_INTEGER(popcount, LZ_POPCOUNT(ulong(x)))
LZ_INTEGER(clz, x == 0 ? bits : LZ_CLZ(ulong(x)) - (64 - bits))
LZ_INTEGER(ctz, x == 0 ? bits : LZ_CTZ(ulong(x)))
// clang-format on
#undef LZ_INTEGER
template <class T>
inline T mulhi(T a, T b) {
  if constexpr (sizeof(T) < 8)
    return T((typename lz::Choice<lz::is_unsigned<T>, ulong, long>::type(a) * b) >> (sizeof(T) * 8));
  else if constexpr (lz::is_unsigned<T>)
    return T(LZ_UMULHI(a, b));
  else
    return T(LZ_MULHI(a, b));
}
template <class T>
inline T absdiff(T a, T b) {
  return a > b ? T(a - b) : T(b - a);
}
template <class T>
inline T rotate(T a, T n) {
  const int bits = sizeof(T) * 8, k = int(n) & (bits - 1);
  typedef typename lz::UnsignedOf<T>::type U;
  return k == 0 ? a : T((U(a) << k) | (U(a) >> (bits - k)));
}
template <class T>
inline T reverse_bits(T a) {
  T r = 0;
  for (unsigned i = 0; i < sizeof(T) * 8; i++) r |= T(((a >> i) & 1) << (sizeof(T) * 8 - 1 - i));
  return r;
}
template <class T>
inline T extract_bits(T x, uint offset, uint bits) {
  return bits == 0 ? T(0) : T(T(x << (sizeof(T) * 8 - offset - bits)) >> (sizeof(T) * 8 - bits));
}
inline int mul24(int a, int b) { return a * b; }
inline uint mul24(uint a, uint b) { return a * b; }
inline int mad24(int a, int b, int c) { return a * b + c; }
inline uint mad24(uint a, uint b, uint c) { return a * b + c; }

/* <metal_geometric> */
template <class A, class V = lz::VecOf<A>>
inline auto dot(const A& a, const V& b) {
  V x(a);
  auto s = x.data[0] * b.data[0];
  for (int i = 1; i < lz::Count<V>::value; i++) s = s + x.data[i] * b.data[i];
  return s;
}
template <class A, class V = lz::VecOf<A>>
inline auto length_squared(const A& a) {
  return dot(V(a), V(a));
}
template <class A, class V = lz::VecOf<A>>
inline auto length(const A& a) {
  return sqrt(dot(V(a), V(a)));
}
template <class A, class V = lz::VecOf<A>>
inline auto distance(const A& a, const V& b) {
  return length(V(a) - b);
}
template <class A, class V = lz::VecOf<A>>
inline V normalize(const A& a) {
  return V(a) / length(a);
}
template <class T>
inline vec<T, 3> cross(const vec<T, 3>& a, const vec<T, 3>& b) {
  return vec<T, 3>(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x);
}

/* <metal_limits> */
template <class T>
struct numeric_limits;
#define LZ_INTEGER_LIMITS(T, low, high)                      \
  template <>                                                \
  struct numeric_limits<T> {                                 \
    static constexpr bool is_specialized = true;             \
    static constexpr bool is_integer = true;                 \
    static constexpr bool is_signed = !lz::is_unsigned<T>;   \
    static constexpr int digits = sizeof(T) * 8 - is_signed; \
    static constexpr T min() { return low; }                 \
    static constexpr T max() { return high; }                \
    static constexpr T lowest() { return low; }              \
  };
// clang-format off
LZ_INTEGER_LIMITS(bool, false, true)
LZ_INTEGER_LIMITS(char, -128, 127)
LZ_INTEGER_LIMITS(signed char, -128, 127)
LZ_INTEGER_LIMITS(uchar, 0, 255)
LZ_INTEGER_LIMITS(short, -32768, 32767)
LZ_INTEGER_LIMITS(ushort, 0, 65535)
LZ_INTEGER_LIMITS(int, INT_MIN, INT_MAX)
LZ_INTEGER_LIMITS(uint, 0, UINT_MAX)
LZ_INTEGER_LIMITS(long, -0x7fffffffffffffffL - 1, 0x7fffffffffffffffL)
LZ_INTEGER_LIMITS(ulong, 0, ~0ul)
// clang-format on
#undef LZ_INTEGER_LIMITS
#define LZ_FLOAT_LIMITS(T, from, low, high, eps)        \
  template <>                                           \
  struct numeric_limits<T> {                            \
    static constexpr bool is_specialized = true;        \
    static constexpr bool is_integer = false;           \
    static constexpr bool is_signed = true;             \
    static from T min() { return T(low); }              \
    static from T max() { return T(high); }             \
    static from T lowest() { return T(-high); }         \
    static from T epsilon() { return T(eps); }          \
    static from T infinity() { return T(LZ_INFINITY); } \
    static from T quiet_NaN() { return T(LZ_NAN); }     \
  };
// clang-format off
LZ_FLOAT_LIMITS(float, constexpr, FLT_MIN, FLT_MAX, FLT_EPSILON)
LZ_FLOAT_LIMITS(half, LZ_HALF_CONSTEXPR, 6.103515625e-05f, 65504.0f, 9.765625e-04f)
LZ_FLOAT_LIMITS(bfloat, , FLT_MIN, 3.3895313892515355e+38f, 7.8125e-03f)
// clang-format on
#undef LZ_FLOAT_LIMITS

/* <metal_type_traits> */
template <class T, T V>
struct integral_constant {
  static constexpr T value = V;
  typedef T value_type;
  typedef integral_constant type;
  constexpr operator T() const { return V; }
  constexpr T operator()() const { return V; }
};
template <bool B>
using bool_constant = integral_constant<bool, B>;
typedef bool_constant<true> true_type;
typedef bool_constant<false> false_type;
template <bool B, class T = void>
using enable_if_t = lz::If<B, T>;
template <bool B, class T = void>
using enable_if = lz::EnableIf<B, T>;
template <bool B, class T, class F>
using conditional = lz::Choice<B, T, F>;
template <bool B, class T, class F>
using conditional_t = typename lz::Choice<B, T, F>::type;
template <class A, class B>
constexpr bool is_same_v = lz::same<A, B>;
template <class A, class B>
struct is_same : bool_constant<lz::same<A, B>> {};
template <class T>
constexpr bool is_floating_point_v = lz::is_floating<lz::plain<T>>;
template <class T>
constexpr bool is_integral_v = lz::is_scalar<lz::plain<T>> && !lz::is_floating<lz::plain<T>>;
template <class T>
constexpr bool is_arithmetic_v = lz::is_scalar<lz::plain<T>>;
template <class T>
constexpr bool is_unsigned_v = lz::is_unsigned<lz::plain<T>>;
template <class T>
struct is_floating_point : bool_constant<is_floating_point_v<T>> {};
template <class T>
struct is_integral : bool_constant<is_integral_v<T>> {};
template <class T>
struct is_arithmetic : bool_constant<is_arithmetic_v<T>> {};
template <class T>
struct is_unsigned : bool_constant<is_unsigned_v<T>> {};
template <class T>
struct remove_cv {
  typedef lz::plain<T> type;
};
template <class T>
using remove_cv_t = lz::plain<T>;
template <class T>
using remove_reference_t = lz::plain<T>;
template <class T>
using make_unsigned_t = typename lz::UnsignedOf<T>::type;
template <class T>
using make_unsigned = lz::UnsignedOf<T>;

}  // namespace metal

template <class T, class A>
inline T as_type(const A& a) {
  return metal::bits_as<T>(a);
}
