/* The stand-in for <metal_stdlib> when Metal source becomes CUDA C++, for NVRTC (-default-device) and
 * for clang. No header is included. All of it is in a namespace of its own, because CUDA has vectors and
 * functions of the same names. */
#pragma once

#undef INFINITY
#undef NAN
#undef HUGE_VALF
#undef MAXFLOAT
#undef FLT_MAX
#undef FLT_MIN
#undef FLT_EPSILON
#undef INT_MAX
#undef INT_MIN
#undef UINT_MAX

#ifndef __METAL__
#define __METAL__ 1
#define __METAL_VERSION__ 320
#define __HAVE_BFLOAT__ 1
#endif
#define METAL_FUNC inline
#define METAL_CONST const

/* Arrays that small loops index stay in registers only if the loops are unrolled. */
#ifdef __CUDA_ARCH__
#define LZ_UNROLL _Pragma("unroll")
#else
#define LZ_UNROLL
#endif

#define LZ_HALF_CLASS
#define LZ_COPY ::memcpy
#define LZ_MATH(name) ::name
#define LZ_INFINITY __builtin_bit_cast(float, 0x7f800000u)
#define LZ_NAN __builtin_bit_cast(float, 0x7fc00000u)
#define LZ_ISNAN(x) ((bits_as<uint>(x) & 0x7fffffffu) > 0x7f800000u)
#define LZ_ISINF(x) ((bits_as<uint>(x) & 0x7fffffffu) == 0x7f800000u)
#define LZ_ISFINITE(x) ((bits_as<uint>(x) & 0x7f800000u) != 0x7f800000u)
#define LZ_ISNORMAL(x) ((bits_as<uint>(x) & 0x7f800000u) - 0x00800000u < 0x7f000000u)
#define LZ_SIGNBIT(x) (bits_as<uint>(x) >> 31 != 0)
#define LZ_POPCOUNT(x) ::__popcll(x)
#define LZ_CLZ(x) ::__clzll((long long)(x))
#define LZ_CTZ(x) (::__ffsll((long long)(x)) - 1)
#define LZ_MULHI(a, b) ::__mul64hi(a, b)
#define LZ_UMULHI(a, b) ::__umul64hi(a, b)
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define LZ_ROUND_BFLOAT(f) lz_round_bfloat(f)
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define LZ_NATIVE_BFLOAT
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 750
#define LZ_FAST_TANH(x) lz_fast_tanh(x)
#endif

namespace lzm {

#ifdef LZ_NATIVE_BFLOAT
#define LZ_BFLOAT_INSTRUCTION(name, instruction)                               \
  inline unsigned short lz_bfloat_##name(unsigned short a, unsigned short b) { \
    unsigned short c;                                                          \
    asm(instruction ".rn.bf16 %0, %1, %2;" : "=h"(c) : "h"(a), "h"(b));        \
    return c;                                                                  \
  }
LZ_BFLOAT_INSTRUCTION(add, "add")
LZ_BFLOAT_INSTRUCTION(subtract, "sub")
LZ_BFLOAT_INSTRUCTION(multiply, "mul")
#undef LZ_BFLOAT_INSTRUCTION
#endif

#ifdef LZ_FAST_TANH
inline float lz_fast_tanh(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#endif

#ifdef LZ_ROUND_BFLOAT
inline unsigned short lz_round_bfloat(float f) {
  unsigned short bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(f));
  return bits;
}
#endif

#include "../scalar.h"

#include "../vector.h"

#include "../math.h"

#include "wide.h"

#include "atomic.h"

#include "../combine.h"

#include "simdgroup.h"

#include "entry.h"

}  // namespace lzm
