/* Metal's scalar types: fixed widths, half as the compiler's _Float16 where it has one, bfloat as a class. */
#pragma once

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

#ifndef LZ_COPY
#define LZ_COPY __builtin_memcpy
#endif
#ifdef LZ_HALF_CLASS
#include "cuda/half.h"
#define LZ_HALF_CONSTEXPR
#else
typedef _Float16 half;
#define LZ_HALF_CONSTEXPR constexpr
#endif

static_assert(sizeof(long) == 8, "Metal's long has 64 bits");
static_assert(sizeof(half) == 2, "half has 16 bits");

namespace lz {

/* Conversions to bfloat: of whole numbers alone they are implicit, so that `c ? bf : 1.0f` is a float. */
template <class A>
struct ToBfloat {
  typedef int Explicit;
};
#define LZ_WHOLE(I)       \
  template <>             \
  struct ToBfloat<I> {    \
    typedef int Implicit; \
  };
LZ_WHOLE(bool)
LZ_WHOLE(char)
LZ_WHOLE(signed char)
LZ_WHOLE(uchar)
LZ_WHOLE(short)
LZ_WHOLE(ushort)
LZ_WHOLE(int)
LZ_WHOLE(uint)
LZ_WHOLE(long)
LZ_WHOLE(ulong)
#undef LZ_WHOLE

}  // namespace lz

/* bfloat16: the upper half of a float. Arithmetic between two rounds to bfloat; beside a float it is float.
 * Conversion from float is explicit, as in Metal. */
struct bfloat {
  ushort bits;
  bfloat() = default;
  template <class A, class = decltype(float(A())), typename lz::ToBfloat<A>::Explicit = 0>
  explicit bfloat(A value) : bits(round(float(value))) {}
  template <class A, typename lz::ToBfloat<A>::Implicit = 0>
  bfloat(A value) : bits(round(float(value))) {}
  operator float() const {
    const uint word = uint(bits) << 16;
    float f;
    LZ_COPY(&f, &word, 4);
    return f;
  }
  static bfloat of(ushort bits) {
    bfloat b;
    b.bits = bits;
    return b;
  }

 private:
  /* To nearest, ties to even. */
  static ushort round(float f) {
#ifdef LZ_ROUND_BFLOAT
    return LZ_ROUND_BFLOAT(f);
#else
    uint word;
    LZ_COPY(&word, &f, 4);
    if ((word & 0x7fffffffu) > 0x7f800000u) return ushort((word >> 16) | 0x40u);
    return ushort((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
#endif
  }
};

/* Of two bfloats: in one instruction where a platform has that. */
#ifdef LZ_NATIVE_BFLOAT
#define LZ_BFLOAT_BOTH(name, op) bfloat::of(lz_bfloat_##name(a.bits, b.bits))
#else
#define LZ_BFLOAT_BOTH(name, op) bfloat(float(a) op float(b))
#endif
#define LZ_BFLOAT_WITH(op, I, R)                                          \
  inline R operator op(bfloat a, I b) { return R(float(a) op float(b)); } \
  inline R operator op(I a, bfloat b) { return R(float(a) op float(b)); }
// clang-format off
#define LZ_BFLOAT(op, name) \
  inline bfloat operator op(bfloat a, bfloat b) { return LZ_BFLOAT_BOTH(name, op); } \
  LZ_BFLOAT_WITH(op, float, float) \
  LZ_BFLOAT_WITH(op, half, float) \
  LZ_BFLOAT_WITH(op, bool, bfloat) \
  LZ_BFLOAT_WITH(op, char, bfloat) \
  LZ_BFLOAT_WITH(op, uchar, bfloat) \
  LZ_BFLOAT_WITH(op, short, bfloat) \
  LZ_BFLOAT_WITH(op, ushort, bfloat) \
  LZ_BFLOAT_WITH(op, int, bfloat) \
  LZ_BFLOAT_WITH(op, uint, bfloat) \
  LZ_BFLOAT_WITH(op, long, bfloat) \
  LZ_BFLOAT_WITH(op, ulong, bfloat) \
  template <class B> \
  inline bfloat& operator op##=(bfloat& a, const B& b) { return a = bfloat(float(a) op float(b)); }
LZ_BFLOAT(+, add)
LZ_BFLOAT(-, subtract)
LZ_BFLOAT(*, multiply)
#undef LZ_BFLOAT_BOTH
#define LZ_BFLOAT_BOTH(name, op) bfloat(float(a) op float(b))
LZ_BFLOAT(/, divide)
// clang-format on
#undef LZ_BFLOAT
#undef LZ_BFLOAT_BOTH
#undef LZ_BFLOAT_WITH
inline bfloat operator-(bfloat a) { return bfloat(-float(a)); }
