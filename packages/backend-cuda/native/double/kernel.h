/* The stand-in for CUDA's own words when the test double compiles a kernel for the CPU, and what the
 * double and a compiled kernel know of each other. One thread of the host runs everything, so that memory is
 * shared as it is. */
#pragma once

#include <math.h>
#include <stddef.h>
#include <string.h>

struct uint3 {
  unsigned x, y, z;
};
struct uint4 {
  unsigned x, y, z, w;
};
struct float4 {
  float x, y, z, w;
};

/* The exchanges between threads of a warp. */
enum class LzExchange : int { kMask, kShuffle, kBallot, kMeet };

/* The double's services to a kernel. */
struct LzHost {
  uint3 thread, block, block_size, grid_size;
  void* shared;
  void (*barrier)();
  unsigned (*exchange)(LzExchange, const void* site, unsigned mask, unsigned value, int lane);
};
/* A kernel as the double sees it. */
struct LzKernel {
  const char* name;
  void (*call)(void** arguments);
  int max_threads;
  int count;
  const size_t* sizes;
  bool waits;  // for earlier work by itself
};

#ifdef LZ_DOUBLE_KERNEL

#define __global__
#define __device__
#define __shared__ static
#define __constant__
#define __grid_constant__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __restrict__

extern "C" {
__attribute__((visibility("default"))) LzHost* lz_host;
}
#define threadIdx lz_host->thread
#define blockIdx lz_host->block
#define blockDim lz_host->block_size
#define gridDim lz_host->grid_size

#define LZ_SITE __builtin_return_address(0)
__attribute__((noinline)) static void __syncthreads() { lz_host->barrier(); }
__attribute__((noinline)) static unsigned __activemask() {
  return lz_host->exchange(LzExchange::kMask, LZ_SITE, 0, 0, 0);
}
__attribute__((noinline)) static void __syncwarp(unsigned mask = ~0u) {
  lz_host->exchange(LzExchange::kMeet, LZ_SITE, mask, 0, 0);
}
__attribute__((noinline)) static unsigned __shfl_sync(unsigned mask, unsigned value, int lane) {
  return lz_host->exchange(LzExchange::kShuffle, LZ_SITE, mask, value, lane);
}
__attribute__((noinline)) static unsigned __ballot_sync(unsigned mask, bool value) {
  return lz_host->exchange(LzExchange::kBallot, LZ_SITE, mask, value, 0);
}

static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)(x)) : 64; }
static inline long long __mul64hi(long long a, long long b) { return (long long)((__int128(a) * b) >> 64); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)(((unsigned __int128)(a)*b) >> 64);
}
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }

#define LZ_ATOMIC(name, expression) \
  template <class T>                \
  inline T name(T* p, T v) {        \
    const T old = *p;               \
    *p = T(expression);             \
    return old;                     \
  }
LZ_ATOMIC(atomicAdd, old + v)
LZ_ATOMIC(atomicSub, old - v)
LZ_ATOMIC(atomicMin, v < old ? v : old)
LZ_ATOMIC(atomicMax, old < v ? v : old)
LZ_ATOMIC(atomicAnd, old& v)
LZ_ATOMIC(atomicOr, old | v)
LZ_ATOMIC(atomicXor, old ^ v)
LZ_ATOMIC(atomicExch, v)
#undef LZ_ATOMIC
template <class T>
inline T atomicCAS(T* p, T expected, T v) {
  const T old = *p;
  if (old == expected) *p = v;
  return old;
}

/* A kernel's arguments from their addresses. */
template <int... I>
struct LzIndices {};
template <int N, int... I>
struct LzCount : LzCount<N - 1, N - 1, I...> {};
template <int... I>
struct LzCount<0, I...> {
  typedef LzIndices<I...> type;
};
template <class... A, int... I>
inline void lz_call_with(void (*f)(A...), void** a, LzIndices<I...>) {
  f(*static_cast<A*>(a[I])...);
}
template <auto F>
struct LzEntry;
template <class... A, void (*F)(A...)>
struct LzEntry<F> {
  static constexpr size_t sizes[] = {sizeof(A)...};
  static void call(void** a) { lz_call_with(F, a, typename LzCount<int(sizeof...(A))>::type()); }
  static constexpr LzKernel describe(const char* name, int max_threads, bool waits) {
    return {name, &call, max_threads, int(sizeof...(A)), sizes, waits};
  }
};

#endif
