/* The words of kernels in CUDA's own language besides NVRTC's: fixed widths, half and bfloat16 by CUDA's
 * names, cooperative groups, and places of elements in strided arrays. In place of CUDA's headers, which
 * need not be there. */
#pragma once

#include "prelude.h"

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef lzm::int64_t int64_t;
typedef lzm::uint64_t uint64_t;

#ifndef INFINITY
#define INFINITY __builtin_bit_cast(float, 0x7f800000u)
#endif
#ifndef NAN
#define NAN __builtin_bit_cast(float, 0x7fc00000u)
#endif
#define inf INFINITY

/* Conversions from and to numbers are implicit; beside a float or a double the result is one. */
#define LZ_NARROW_OPERATOR(name, op)                                            \
  inline name operator op(name a, name b) { return float(a) op float(b); }      \
  inline name operator op(name a, int b) { return float(a) op float(b); }       \
  inline name operator op(int a, name b) { return float(a) op float(b); }       \
  inline float operator op(name a, float b) { return float(a) op b; }           \
  inline float operator op(float a, name b) { return a op float(b); }           \
  inline double operator op(name a, double b) { return double(float(a)) op b; } \
  inline double operator op(double a, name b) { return a op double(float(b)); } \
  template <class A>                                                            \
  inline name& operator op## = (name & a, const A& b) {                         \
    return a = name(float(a) op float(b));                                      \
  }
#define LZ_NARROW(name, base)                                                           \
  struct name {                                                                         \
    base value;                                                                         \
    name() = default;                                                                   \
    template <class A, class = decltype(float(A()))>                                    \
    name(A from) : value(float(from)) {}                                                \
    operator float() const { return float(value); }                                     \
  };                                                                                    \
  LZ_NARROW_OPERATOR(name, +)                                                           \
  LZ_NARROW_OPERATOR(name, -)                                                           \
  LZ_NARROW_OPERATOR(name, *)                                                           \
  LZ_NARROW_OPERATOR(name, /)                                                           \
  inline name operator-(name a) { return -float(a); }                                   \
  inline name __hadd(name a, name b) { return a + b; }                                  \
  inline name __hsub(name a, name b) { return a - b; }                                  \
  inline name __hmul(name a, name b) { return a * b; }                                  \
  inline name __hdiv(name a, name b) { return a / b; }                                  \
  inline name __hfma(name a, name b, name c) { return float(a) * float(b) + float(c); } \
  inline name __hmax(name a, name b) { return float(a) > float(b) ? a : b; }            \
  inline name __hmin(name a, name b) { return float(b) > float(a) ? a : b; }            \
  inline name __hneg(name a) { return -a; }                                             \
  inline bool __hgt(name a, name b) { return float(a) > float(b); }                     \
  inline bool __hlt(name a, name b) { return float(a) < float(b); }                     \
  inline bool __hge(name a, name b) { return float(a) >= float(b); }                    \
  inline bool __hle(name a, name b) { return float(a) <= float(b); }                    \
  inline bool __heq(name a, name b) { return float(a) == float(b); }                    \
  inline bool __hisnan(name a) { return float(a) != float(a); }                         \
  struct alignas(4) name##2 { name x, y; };
LZ_NARROW(__half, lzm::half)
LZ_NARROW(__nv_bfloat16, lzm::bfloat)
#undef LZ_NARROW
#undef LZ_NARROW_OPERATOR
typedef __half half;
typedef __half2 half2;
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;
inline float __half2float(__half a) { return float(a); }
inline __half __float2half(float a) { return a; }
inline __half __float2half_rn(float a) { return a; }
inline float __bfloat162float(__nv_bfloat16 a) { return float(a); }
inline __nv_bfloat16 __float2bfloat16(float a) { return a; }
inline __nv_bfloat16 __float2bfloat16_rn(float a) { return a; }

struct complex64_t {
  float x, y;
  complex64_t() = default;
  complex64_t(float re, float im = 0) : x(re), y(im) {}
  float real() const { return x; }
  float imag() const { return y; }
};
inline complex64_t operator+(complex64_t a, complex64_t b) { return complex64_t(a.x + b.x, a.y + b.y); }
inline complex64_t operator-(complex64_t a, complex64_t b) { return complex64_t(a.x - b.x, a.y - b.y); }
inline complex64_t operator*(complex64_t a, complex64_t b) {
  return complex64_t(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

/* Sizes and strides of an argument. */
constexpr int MAX_NDIM = 10;
template <class T>
struct LzSizes {
  T values[MAX_NDIM];
  const T* data() const { return values; }
  const T& operator[](int i) const { return values[i]; }
};
typedef LzSizes<int32_t> Shape;
typedef LzSizes<int64_t> Strides;

template <class Index = int64_t>
inline Index elem_to_loc(Index elem, const int32_t* shape, const int64_t* strides, int ndim) {
  Index location = 0;
  for (int axis = ndim - 1; axis >= 0 && elem > 0; axis--) {
    location += elem % Index(shape[axis]) * Index(strides[axis]);
    elem /= Index(shape[axis]);
  }
  return location;
}

namespace cooperative_groups {

struct thread_block {
  static void sync() { ::__syncthreads(); }
  static unsigned thread_rank() {
    return ::threadIdx.x + ::blockDim.x * (::threadIdx.y + ::blockDim.y * ::threadIdx.z);
  }
  static unsigned size() { return ::blockDim.x * ::blockDim.y * ::blockDim.z; }
  static unsigned num_threads() { return size(); }
  static uint3 thread_index() { return {::threadIdx.x, ::threadIdx.y, ::threadIdx.z}; }
  static uint3 group_index() { return {::blockIdx.x, ::blockIdx.y, ::blockIdx.z}; }
  static uint3 dim_threads() { return {::blockDim.x, ::blockDim.y, ::blockDim.z}; }
  static uint3 group_dim() { return dim_threads(); }
};
inline thread_block this_thread_block() { return {}; }

struct grid_group {
  static unsigned long long block_rank() {
    return ::blockIdx.x +
           (unsigned long long)::gridDim.x * (::blockIdx.y + (unsigned long long)::gridDim.y * ::blockIdx.z);
  }
  static unsigned long long num_blocks() {
    return (unsigned long long)::gridDim.x * ::gridDim.y * ::gridDim.z;
  }
  static unsigned long long thread_rank() {
    return block_rank() * thread_block::size() + thread_block::thread_rank();
  }
  static unsigned long long size() { return num_blocks() * thread_block::size(); }
  static unsigned long long num_threads() { return size(); }
  static uint3 dim_blocks() { return {::gridDim.x, ::gridDim.y, ::gridDim.z}; }
};
inline grid_group this_grid() { return {}; }

/* `N` neighbours of a warp. */
template <unsigned N, class Parent = thread_block>
struct thread_block_tile {
  static_assert(N > 0 && N <= 32 && (N & (N - 1)) == 0, "a tile has 1 to 32 threads, a power of two");
  static unsigned lane() { return thread_block::thread_rank() % 32; }
  static unsigned thread_rank() { return thread_block::thread_rank() % N; }
  static constexpr unsigned size() { return N; }
  static constexpr unsigned num_threads() { return N; }
  static unsigned meta_group_rank() { return thread_block::thread_rank() / N; }
  static unsigned meta_group_size() { return (thread_block::size() + N - 1) / N; }
  static unsigned mask() { return N == 32 ? ~0u : ((1u << N % 32) - 1) << lane() / N * N; }
  static void sync() { ::__syncwarp(mask()); }
  template <class T>
  static T shfl(const T& x, int from) {
    lzm::lz::Words<T> w(x);
    const unsigned to = lane() / N * N + unsigned(from) % N;
    for (int i = 0; i < lzm::lz::Words<T>::count; i++) w.word[i] = ::__shfl_sync(mask(), w.word[i], int(to));
    return w.value();
  }
  template <class T>
  static T shfl_down(const T& x, unsigned by) {
    return shfl(x, int(thread_rank() + by < N ? thread_rank() + by : thread_rank()));
  }
  template <class T>
  static T shfl_up(const T& x, unsigned by) {
    return shfl(x, int(thread_rank() >= by ? thread_rank() - by : thread_rank()));
  }
  template <class T>
  static T shfl_xor(const T& x, unsigned by) {
    return shfl(x, int(thread_rank() ^ by));
  }
  static unsigned ballot(int x) { return (::__ballot_sync(mask(), x) & mask()) >> lane() / N * N; }
  static bool any(int x) { return ballot(x) != 0; }
  static bool all(int x) { return ballot(!x) == 0; }
};
template <unsigned N, class Parent>
inline thread_block_tile<N, Parent> tiled_partition(const Parent&) {
  return {};
}

#define LZ_COMBINE(name, expression)                                  \
  template <class T = void>                                           \
  struct name {                                                       \
    T operator()(const T& a, const T& b) const { return expression; } \
  };
LZ_COMBINE(plus, a + b)
LZ_COMBINE(less, b < a ? b : a)
LZ_COMBINE(greater, a < b ? b : a)
#undef LZ_COMBINE
/* The combination of all values of a tile, for each of its threads. */
template <unsigned N, class Parent, class T, class F>
inline T reduce(const thread_block_tile<N, Parent>& tile, T x, F f) {
  for (unsigned by = N / 2; by > 0; by /= 2) x = f(x, tile.shfl_xor(x, by));
  return x;
}

}  // namespace cooperative_groups
namespace cg = cooperative_groups;
