/* Words of tensor cores and asynchronous copies in PTX, and the same by exchanges of a warp where the test
 * double compiles for the CPU. T is 16 bits wide: LZ_BRAIN says which of the two it is. */
#pragma once

#include "ahead.h"

typedef unsigned int u32;
typedef unsigned short u16;

/* The bits of a float that products in 19 bits take. */
constexpr u32 SHORT_BITS = 0xffffe000u;

#ifdef __CUDA_ARCH__

#define INFINITY __int_as_float(0x7f800000)
typedef u32 Shared;
inline Shared shared_address(const void* p) { return u32(__cvta_generic_to_shared(p)); }
/* 16 bytes; zeros where `there` is false. */
inline void copy_ahead(Shared to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0));
}
inline void commit_copies() { asm volatile("cp.async.commit_group;"); }
/* Brings 128 bytes to the second cache. */
inline void fetch_ahead(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
template <int N>
inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N));
}
/* Four matrices of 8 by 8, whose rows' addresses the lanes give. */
inline void load_matrices(u32 (&m)[4], Shared at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(at));
}
inline void load_transposed(u32 (&m)[4], Shared at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(at));
}
/* c += a · b, of 16 by 16 and 16 by 8. */
inline void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#ifdef LZ_BRAIN
#define LZ_MMA "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
#else
#define LZ_MMA "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
#endif
  asm volatile(LZ_MMA " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#undef LZ_MMA
}
/* The same of 16 by 8 and 8 by 8 in floats, of which it takes 19 bits. */
inline void multiply_short(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/* The same where nothing was there before. */
inline void multiply_first(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
      : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
}
inline u32 bits_of(float x) { return __float_as_uint(x); }
inline float float_from(u32 bits) { return __uint_as_float(bits); }
inline u32 pack(float low, float high) {
  u32 both;
#ifdef LZ_BRAIN
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
#else
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
#endif
  return both;
}
inline float float_of(u16 bits) {
#ifdef LZ_BRAIN
  return __uint_as_float(u32(bits) << 16);
#else
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(bits));
  return f;
#endif
}
inline float low_float(u32 pair) {
#ifdef LZ_BRAIN
  return __uint_as_float(pair << 16);
#else
  return float_of(u16(pair));
#endif
}
inline float high_float(u32 pair) {
#ifdef LZ_BRAIN
  return __uint_as_float(pair & 0xffff0000u);
#else
  return float_of(u16(pair >> 16));
#endif
}
inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/* Keeps an address, which compilers would work out anew where it is used. */
template <class T>
inline T* held(T* p) {
  asm volatile("" : "+l"(p));
  return p;
}
inline float from_neighbour(float x, int mask) { return __shfl_xor_sync(~0u, x, mask); }
inline float from_lane(float x, int lane) { return __shfl_sync(~0u, x, lane); }
inline float log_of(float x) { return __logf(x); }

#else

#include "lazuli_kernel.h"

typedef const char* Shared;
inline Shared shared_address(const void* p) { return (Shared)p; }
inline void copy_ahead(Shared to, const void* from, bool there) {
  if (there) memcpy((void*)to, from, 16);
  else memset((void*)to, 0, 16);
}
inline void commit_copies() {}
inline void fetch_ahead(const void*) {}
template <int N>
inline void wait_for_copies() {}
inline int lane() { return int(threadIdx.x % 32); }
inline u32 exchange(u32 x, int from) { return __shfl_sync(~0u, x, from); }
inline u16 element(int matrix, int row, int column, Shared at) {
  const unsigned long long own = (unsigned long long)at;
  const int from = matrix * 8 + row;
  const unsigned long long p = exchange(u32(own), from) | (unsigned long long)exchange(u32(own >> 32), from) << 32;
  u16 x;
  memcpy(&x, (const char*)p + 2 * column, 2);
  return x;
}
inline void load_matrices(u32 (&m)[4], Shared at) {
  const int row = lane() / 4, column = lane() % 4 * 2;
  for (int i = 0; i < 4; i++) m[i] = element(i, row, column, at) | u32(element(i, row, column + 1, at)) << 16;
}
inline void load_transposed(u32 (&m)[4], Shared at) {
  const int column = lane() / 4, row = lane() % 4 * 2;
  for (int i = 0; i < 4; i++) m[i] = element(i, row, column, at) | u32(element(i, row + 1, column, at)) << 16;
}
#ifdef LZ_BRAIN
typedef lzm::bfloat Narrow;
#else
typedef lzm::half Narrow;
#endif
inline float float_of(u16 bits) {
  Narrow x;
  x.bits = bits;
  return float(x);
}
inline float low_float(u32 pair) { return float_of(u16(pair)); }
inline float high_float(u32 pair) { return float_of(u16(pair >> 16)); }
inline u32 pack(float low, float high) { return Narrow(low).bits | u32(Narrow(high).bits) << 16; }
inline void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  const int row = lane() / 4 * 4, column = lane() % 4 * 2;
  for (int k = 0; k < 8; k++) {
    const int high = k / 4;
    const u32 upper = exchange(high ? a[2] : a[0], row + k % 4), lower = exchange(high ? a[3] : a[1], row + k % 4);
    for (int i = 0; i < 2; i++) {
      const u32 right = exchange(high ? b1 : b0, (column + i) * 4 + k % 4);
      for (int half = 0; half < 2; half++) {
        const float r = float_of(u16(right >> 16 * half));
        c[i] += float_of(u16(upper >> 16 * half)) * r;
        c[2 + i] += float_of(u16(lower >> 16 * half)) * r;
      }
    }
  }
}
inline u32 bits_of(float x) {
  u32 bits;
  memcpy(&bits, &x, 4);
  return bits;
}
inline float float_from(u32 bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}
inline float shortened(u32 bits) { return float_from(bits & SHORT_BITS); }
inline void multiply_short(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  const int row = lane() / 4 * 4, column = lane() % 4 * 2;
  for (int k = 0; k < 8; k++) {
    const int high = k / 4;
    const float upper = shortened(exchange(high ? a[2] : a[0], row + k % 4));
    const float lower = shortened(exchange(high ? a[3] : a[1], row + k % 4));
    for (int i = 0; i < 2; i++) {
      const float r = shortened(exchange(high ? b1 : b0, (column + i) * 4 + k % 4));
      c[i] += upper * r;
      c[2 + i] += lower * r;
    }
  }
}
inline void multiply_first(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  for (float& x : c) x = 0.0f;
  multiply_short(c, a, b0, b1);
}
inline float power_of_two(float x) { return exp2f(x); }
template <class T>
inline T* held(T* p) {
  return p;
}
inline float from_lane(float x, int lane) { return float_from(exchange(bits_of(x), lane)); }
inline float from_neighbour(float x, int mask) { return from_lane(x, lane() ^ mask); }
inline float log_of(float x) { return logf(x); }

#endif

/* A float as products in 19 bits take it, and what is left of it. */
struct Split {
  u32 high, low;
};
inline Split split(float x) {
  const u32 high = bits_of(x) & SHORT_BITS;
  return {high, bits_of(x - float_from(high))};
}
