/* Metal's library as C++ for OpenCL, in declarations: enough for clang to check types and address spaces of
 * kernels. Nothing of it runs. Functions take arguments of one type, as Metal's overloads do. */
#pragma once
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#pragma OPENCL EXTENSION __cl_clang_function_pointers : enable

// Built into OpenCL under these names.
#define memory_order lz_memory_order
#define memory_order_relaxed lz_memory_order_relaxed
#define atomic_thread_fence lz_atomic_thread_fence
#define atomic_load_explicit lz_atomic_load_explicit
#define atomic_store_explicit lz_atomic_store_explicit
#define atomic_exchange_explicit lz_atomic_exchange_explicit
#define atomic_compare_exchange_weak_explicit lz_atomic_compare_exchange_weak_explicit
#define atomic_fetch_add_explicit lz_atomic_fetch_add_explicit
#define atomic_fetch_sub_explicit lz_atomic_fetch_sub_explicit
#define atomic_fetch_and_explicit lz_atomic_fetch_and_explicit
#define atomic_fetch_or_explicit lz_atomic_fetch_or_explicit
#define atomic_fetch_xor_explicit lz_atomic_fetch_xor_explicit
#define atomic_fetch_max_explicit lz_atomic_fetch_max_explicit
#define atomic_fetch_min_explicit lz_atomic_fetch_min_explicit

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef unsigned long size_t;
typedef long ptrdiff_t;
typedef unsigned long uintptr_t;
typedef long intptr_t;

#define METAL_FUNC inline
#define METAL_CONST __constant
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
#define INFINITY (__builtin_inff())
#define NAN (__builtin_nanf(""))
#define HUGE_VALF (__builtin_inff())
#define MAXFLOAT 3.40282346638528859812e+38f
#define FLT_MAX 3.40282346638528859812e+38f
#define FLT_MIN 1.17549435082228750797e-38f
#define FLT_EPSILON 1.19209289550781250000e-07f
#define HALF_MAX ((half)65504.0f)
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u

template <class I>
struct lz_whole {};
// clang-format off
#define LZ_WHOLE(I) template <> struct lz_whole<I> { static constexpr bool yes = true; };
LZ_WHOLE(bool) LZ_WHOLE(char) LZ_WHOLE(uchar) LZ_WHOLE(short) LZ_WHOLE(ushort)
LZ_WHOLE(int) LZ_WHOLE(uint) LZ_WHOLE(long) LZ_WHOLE(ulong)
#undef LZ_WHOLE
    // clang-format on

    /* Converts from float explicitly, to float implicitly. */
    struct bfloat {
  ushort bits;
  bfloat() = default;
  bfloat(const bfloat&) = default;
  bfloat(const __constant bfloat& b) : bits(b.bits) {}
  bfloat& operator=(const bfloat&) = default;
  explicit bfloat(float);
  explicit bfloat(half);
  /* Of whole numbers alone: a float is none. */
  template <class I, bool = lz_whole<I>::yes>
  bfloat(I);
  operator float() const;
  operator float() const __constant;
};
#define LZ_BFLOAT_WITH(op, I, R) \
  R operator op(bfloat, I);      \
  R operator op(I, bfloat);
// clang-format off
#define LZ_BFLOAT(op) \
  bfloat operator op(bfloat, bfloat); \
  LZ_BFLOAT_WITH(op, float, float) \
  LZ_BFLOAT_WITH(op, half, float) \
  LZ_BFLOAT_WITH(op, int, bfloat) \
  LZ_BFLOAT_WITH(op, uint, bfloat) \
  LZ_BFLOAT_WITH(op, long, bfloat) \
  LZ_BFLOAT_WITH(op, ulong, bfloat) \
  template <class B> \
  bfloat& operator op##=(bfloat& a, const B& b);
LZ_BFLOAT(+)
LZ_BFLOAT(-)
LZ_BFLOAT(*)
LZ_BFLOAT(/)
// clang-format on
bfloat operator-(bfloat);

template <class T>
__local T* lz_local();
/* A value without an address space, for operands of `c ? a : b`. */
template <class T>
constexpr T lz_value(T x) {
  return x;
}

namespace metal {

template <class T, int N>
struct lz_vector {
  typedef T type __attribute__((ext_vector_type(N)));
};
/* clang's vectors hold numbers only. */
template <int N>
struct lz_vector<bfloat, N> {
  struct type {
    bfloat x, y, z, w;
    type() = default;
    type(const type&) = default;
    template <class... A>
    explicit type(A...);
    type& operator=(const type&) = default;
    bfloat& operator[](uint);
    bfloat operator[](uint) const;
  };
};
template <class T, int N>
using vec = typename lz_vector<T, N>::type;
template <class A, class B>
struct lz_same {
  static constexpr bool value = false;
};
template <class A>
struct lz_same<A, A> {
  static constexpr bool value = true;
};
template <class T>
struct lz_identity {
  typedef T type;
};
/* The type of an argument that others decide. */
template <class T>
using lz_exactly = typename lz_identity<T>::type;

}  // namespace metal

// clang-format off
#define LZ_NAMES(T) \
  typedef T T##2 __attribute__((ext_vector_type(2))); \
  typedef T T##3 __attribute__((ext_vector_type(3))); \
  typedef T T##4 __attribute__((ext_vector_type(4)));
// Comparisons of vectors give numbers here.
typedef int bool2 __attribute__((ext_vector_type(2)));
typedef int bool3 __attribute__((ext_vector_type(3)));
typedef int bool4 __attribute__((ext_vector_type(4)));
LZ_NAMES(char)
LZ_NAMES(uchar)
LZ_NAMES(short)
LZ_NAMES(ushort)
LZ_NAMES(int)
LZ_NAMES(uint)
LZ_NAMES(long)
LZ_NAMES(ulong)
LZ_NAMES(half)
LZ_NAMES(float)
#undef LZ_NAMES
// clang-format on
typedef metal::vec<bfloat, 2> bfloat2;
typedef metal::vec<bfloat, 3> bfloat3;
typedef metal::vec<bfloat, 4> bfloat4;

namespace metal {

/* The elements of a type: 1 of scalars. */
template <class T>
struct lz_count {
  static constexpr int value = 0;
};
// clang-format off
#define LZ_COUNT(T, N) template <> struct lz_count<T> { static constexpr int value = N; };
#define LZ_COUNTS(T) LZ_COUNT(T, 1) LZ_COUNT(T##2, 2) LZ_COUNT(T##3, 3) LZ_COUNT(T##4, 4)
LZ_COUNT(bool, 1)
LZ_COUNTS(char) LZ_COUNTS(uchar) LZ_COUNTS(short) LZ_COUNTS(ushort) LZ_COUNTS(int) LZ_COUNTS(uint)
LZ_COUNTS(long) LZ_COUNTS(ulong) LZ_COUNTS(half) LZ_COUNTS(float) LZ_COUNTS(bfloat)
#undef LZ_COUNTS
#undef LZ_COUNT
    // clang-format on
    template <bool B>
    struct lz_only {
};
template <>
struct lz_only<true> {
  typedef int type;
};
/* A vector of a scalar, or of a vector with as many elements. */
template <class V, class A,
          typename lz_only<lz_count<A>::value == 1 || lz_count<A>::value == lz_count<V>::value>::type = 0>
constexpr V lz_convert(A) {
  return V();
}

}  // namespace metal
using metal::lz_convert;
// clang-format off

namespace metal {

#define LZ_ONE(name) template <class T> T name(T);
#define LZ_TWO(name) template <class T> T name(T, T);
#define LZ_FLOATS \
  LZ_ONE(acos) LZ_ONE(acosh) LZ_ONE(asin) LZ_ONE(asinh) LZ_ONE(atan) LZ_ONE(atanh) LZ_ONE(ceil) LZ_ONE(cos) LZ_ONE(cosh) \
  LZ_ONE(cospi) LZ_ONE(exp) LZ_ONE(exp2) LZ_ONE(exp10) LZ_ONE(fabs) LZ_ONE(floor) LZ_ONE(fract) LZ_ONE(log) LZ_ONE(log2) \
  LZ_ONE(log10) LZ_ONE(rint) LZ_ONE(round) LZ_ONE(rsqrt) LZ_ONE(sin) LZ_ONE(sinh) LZ_ONE(sinpi) LZ_ONE(sqrt) LZ_ONE(tan) \
  LZ_ONE(tanh) LZ_ONE(tanpi) LZ_ONE(trunc) LZ_ONE(saturate) LZ_ONE(abs) LZ_ONE(sign) \
  LZ_TWO(atan2) LZ_TWO(copysign) LZ_TWO(fdim) LZ_TWO(fmax) LZ_TWO(fmin) LZ_TWO(fmod) LZ_TWO(pow) LZ_TWO(powr) \
  LZ_TWO(nextafter) LZ_TWO(step) LZ_TWO(divide) LZ_TWO(max) LZ_TWO(min) \
  template <class T> T clamp(T, lz_exactly<T>, lz_exactly<T>); \
  template <class T> T fma(T, T, T);
LZ_FLOATS
namespace precise {
LZ_FLOATS
}
namespace fast {
LZ_FLOATS
}
template <class T> T max3(T, T, T);
template <class T> T min3(T, T, T);
template <class T> T mix(T, T, T);
template <class T> T smoothstep(T, T, T);
template <class T> T ldexp(T, int);
template <class T> T frexp(T, __private int&);
template <class T> T modf(T, __private T&);
template <class T> T sincos(T, __private T&);
template <class T> int ilogb(T);
template <class T> bool isnan(T);
template <class T> bool isinf(T);
template <class T> bool isfinite(T);
template <class T> bool isnormal(T);
template <class T> bool signbit(T);
template <class T> bool any(T);
template <class T> bool all(T);
template <class T, class B> T select(T, T, B);
LZ_ONE(popcount) LZ_ONE(clz) LZ_ONE(ctz) LZ_ONE(reverse_bits)
LZ_TWO(mulhi) LZ_TWO(absdiff) LZ_TWO(rotate)
template <class T> T extract_bits(T, uint, uint);
int mul24(int, int);
uint mul24(uint, uint);
int mad24(int, int, int);
uint mad24(uint, uint, uint);
// clang-format on
template <class T>
auto dot(T a, T b) -> decltype(a.x * b.x);
template <class T>
auto length(T a) -> decltype(a.x);
template <class T>
auto distance(T a, T b) -> decltype(a.x);
template <class T>
T normalize(T);
template <class T>
T cross(T, T);

template <class T>
struct numeric_limits {
  static constexpr T min() { return T(); }
  static constexpr T max() { return T(); }
  static constexpr T lowest() { return T(); }
  static constexpr T epsilon() { return T(); }
  static constexpr T infinity() { return T(); }
  static constexpr T quiet_NaN() { return T(); }
};
template <class A, class B>
constexpr bool is_same_v = lz_same<A, B>::value;
template <bool B, class T, class F>
struct conditional {
  typedef T type;
};
template <class T, class F>
struct conditional<false, T, F> {
  typedef F type;
};
template <bool B, class T, class F>
using conditional_t = typename conditional<B, T, F>::type;
template <bool B, class T = void>
struct enable_if {};
template <class T>
struct enable_if<true, T> {
  typedef T type;
};
template <bool B, class T = void>
using enable_if_t = typename enable_if<B, T>::type;

enum memory_order { memory_order_relaxed };
enum class mem_flags {
  mem_none = 0,
  mem_device = 1,
  mem_threadgroup = 2,
  mem_texture = 4,
  mem_threadgroup_imageblock = 8
};
constexpr mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(int(a) | int(b)); }
template <class T>
struct atomic {
  T value;
};
// clang-format off
#define LZ_ATOMICS(S) \
  template <class T> T atomic_load_explicit(const volatile S atomic<T>*, memory_order); \
  template <class T> void atomic_store_explicit(volatile S atomic<T>*, lz_exactly<T>, memory_order); \
  template <class T> T atomic_exchange_explicit(volatile S atomic<T>*, lz_exactly<T>, memory_order); \
  template <class T> bool atomic_compare_exchange_weak_explicit(volatile S atomic<T>*, __private lz_exactly<T>*, lz_exactly<T>, memory_order, memory_order); \
  template <class T> T atomic_fetch_add_explicit(volatile S atomic<T>*, lz_exactly<T>, memory_order); \
  template <class T> T atomic_fetch_sub_explicit(volatile S atomic<T>*, lz_exactly<T>, memory_order); \
  template <class T> T atomic_fetch_and_explicit(volatile S atomic<T>*, lz_exactly<T>, memory_order); \
  template <class T> T atomic_fetch_or_explicit(volatile S atomic<T>*, lz_exactly<T>, memory_order); \
  template <class T> T atomic_fetch_xor_explicit(volatile S atomic<T>*, lz_exactly<T>, memory_order); \
  template <class T> T atomic_fetch_max_explicit(volatile S atomic<T>*, lz_exactly<T>, memory_order); \
  template <class T> T atomic_fetch_min_explicit(volatile S atomic<T>*, lz_exactly<T>, memory_order);
LZ_ATOMICS(__global)
LZ_ATOMICS(__local)
#undef LZ_ATOMICS
// clang-format on
void atomic_thread_fence(mem_flags, memory_order);

void threadgroup_barrier(mem_flags);
void simdgroup_barrier(mem_flags);
// clang-format off
#define LZ_REDUCE(name) \
  template <class T> T simd_##name(T); \
  template <class T> T quad_##name(T);
LZ_REDUCE(sum)
LZ_REDUCE(product)
LZ_REDUCE(max)
LZ_REDUCE(min)
LZ_REDUCE(and)
LZ_REDUCE(or)
LZ_REDUCE(xor)
LZ_ONE(simd_prefix_inclusive_sum) LZ_ONE(simd_prefix_exclusive_sum)
LZ_ONE(simd_prefix_inclusive_product) LZ_ONE(simd_prefix_exclusive_product) LZ_ONE(simd_broadcast_first)
#define LZ_SHUFFLE(name) template <class T> T name(T, ushort);
LZ_SHUFFLE(simd_shuffle) LZ_SHUFFLE(simd_broadcast) LZ_SHUFFLE(simd_shuffle_down) LZ_SHUFFLE(simd_shuffle_up)
LZ_SHUFFLE(simd_shuffle_xor) LZ_SHUFFLE(simd_shuffle_rotate_down) LZ_SHUFFLE(simd_shuffle_rotate_up)
LZ_SHUFFLE(quad_broadcast) LZ_SHUFFLE(quad_shuffle) LZ_SHUFFLE(quad_shuffle_xor) LZ_SHUFFLE(quad_shuffle_down)
LZ_SHUFFLE(quad_shuffle_up)
template <class T> T simd_shuffle_and_fill_down(T, T, ushort);
template <class T> T simd_shuffle_and_fill_up(T, T, ushort);
// clang-format on
class simd_vote {
 public:
  typedef ulong vote_t;
  explicit operator vote_t() const;
  bool any() const;
  bool all() const;
};
simd_vote simd_ballot(bool);
bool simd_all(bool);
bool simd_any(bool);
simd_vote simd_active_threads_mask();
bool simd_is_first();

template <class T, int C = 8, int R = 8>
struct simdgroup_matrix {
  simdgroup_matrix() = default;
  explicit simdgroup_matrix(T);
  __private vec<T, 2>& thread_elements();
};
template <class T, int C, int R>
simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T);
// clang-format off
#define LZ_MATRICES(S) \
  template <class T, int C, int R> void simdgroup_load(__private simdgroup_matrix<T, C, R>&, const S T*, ulong = 8, ulong2 = 0, bool = false); \
  template <class T, int C, int R> void simdgroup_store(simdgroup_matrix<T, C, R>, S T*, ulong = 8, ulong2 = 0, bool = false);
LZ_MATRICES(__global)
LZ_MATRICES(__local)
#undef LZ_MATRICES
// clang-format on
template <class T, class A, class B, class U, int N>
void simdgroup_multiply_accumulate(__private simdgroup_matrix<T, N, N>&, __private simdgroup_matrix<A, N, N>&,
                                   __private simdgroup_matrix<B, N, N>&,
                                   __private simdgroup_matrix<U, N, N>&);
template <class T, class A, class B, int N>
void simdgroup_multiply(__private simdgroup_matrix<T, N, N>&, __private simdgroup_matrix<A, N, N>&,
                        __private simdgroup_matrix<B, N, N>&);
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;

}  // namespace metal

template <class T, class A>
T as_type(A);
// OpenCL has types of these names.
typedef metal::atomic<int> lz_atomic_int;
typedef metal::atomic<uint> lz_atomic_uint;
typedef metal::atomic<float> lz_atomic_float;
typedef metal::atomic<bool> lz_atomic_bool;
typedef metal::atomic<ulong> lz_atomic_ulong;
using metal::memory_order_relaxed;
#define atomic_int lz_atomic_int
#define atomic_uint lz_atomic_uint
#define atomic_float lz_atomic_float
#define atomic_bool lz_atomic_bool
#define atomic_ulong lz_atomic_ulong
using metal::simdgroup_bfloat8x8;
using metal::simdgroup_float8x8;
using metal::simdgroup_half8x8;
