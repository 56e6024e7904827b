/* Codes of packed weights as operands of tensor cores. Before this text stand LZ_BITS (4 or 8), LZ_GROUP (weights of a group) and, for
 * bfloat16, LZ_BRAIN. */
#pragma once
#include "tensor-core.cuh"

/* Of a group: codes and words of a lane. Of a step: groups, whose words are 32 bytes of a row for each lane. */
constexpr int CODES = LZ_GROUP / 4, WORDS = CODES * LZ_BITS / 32, TOGETHER = WORDS < 8 ? 8 / WORDS : 1;
constexpr int PER_WORD = 32 / LZ_BITS;

/* Bfloat16 numbers grow with their bits up to 2^-125, by 2^-133: codes of 4 bits are such multiples where they stand, the lower one of a
 * byte and, 16 times as large, the upper one. Elements of x are made larger meanwhile, those for upper codes 16 times less. */
#if defined(LZ_BRAIN) && LZ_BITS == 4
constexpr bool ARE_TINY = true;
#else
constexpr bool ARE_TINY = false;
#endif
/* The factors of two elements, 2^72 or, of large ones, 2^6, and what makes up for them and for codes; for upper codes LESS is taken off. */
inline u32 larger_by(bool large) { return large ? 0x42804280u : 0x63806380u; }
inline float unit_of(bool large) { return !ARE_TINY ? 1.0f : large ? 0x1p127f : 0x1p61f; }
constexpr u32 LESS = 0x02000200u;
/* Elements from 2^55 on are large: the others' factor would make infinity of them, and theirs does from 2^122 on. Sums of elements that are
 * not large lose digits below about 2^-60. Rows that few-rows.cu multiplies together are large together. */
inline bool is_large(u32 pair) { return (pair & 0x7fffu) >= 0x5b00u || (pair & 0x7fff0000u) >= 0x5b000000u; }

/* One as two elements, for lower and upper codes. */
#ifdef LZ_BRAIN
constexpr u32 ONES[2] = {ARE_TINY ? 0x00010001u : 0x3f803f80u, ARE_TINY ? 0x00100010u : 0x3f803f80u};
#else
constexpr u32 ONES[2] = {0x3c003c00u, 0x3c003c00u};
#endif

/* The lowest codes of the halves of a word as elements. */
inline u32 elements_of(u32 word) {
  constexpr u32 MASK = LZ_BITS == 4 ? 0x000f000fu : 0x00ff00ffu;
#if defined(__CUDA_ARCH__) && !defined(LZ_BRAIN)
  u32 both;
  /* (word & MASK) | 1024 as one instruction; compilers make two of it, and such work is what limits these products. */
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(both) : "r"(word), "r"(MASK), "r"(0x64006400u));
  asm("sub.f16x2 %0, %1, %2;" : "=r"(both) : "r"(both), "r"(0x64006400u));
  return both;
#else
  const u32 codes = word & MASK;
  const float low = float_from((codes & 0xffffu) | 0x4b000000u) - 8388608.0f;
  const float high = float_from((codes >> 16) | 0x4b000000u) - 8388608.0f;
  return pack(low, high);
#endif
}
/* Four codes of each of a lane's two rows, as one product takes them. */
inline void take_codes(u32 (&codes)[4], u32 upper, u32 lower) {
  if (ARE_TINY) {
    codes[0] = upper & 0x000f000fu, codes[1] = lower & 0x000f000fu;
    codes[2] = upper & 0x00f000f0u, codes[3] = lower & 0x00f000f0u;
  } else {
    codes[0] = elements_of(upper), codes[1] = elements_of(lower);
    codes[2] = elements_of(upper >> LZ_BITS), codes[3] = elements_of(lower >> LZ_BITS);
  }
}
/* Two elements times two powers of two. */
inline u32 enlarged(u32 pair, u32 by) {
#if !defined(LZ_BRAIN)
  return pair;
#elif defined(__CUDA_ARCH__)
  u32 both;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(both) : "r"(pair), "r"(by), "r"(0x80008000u));
  return both;
#else
  return pack(float_of(u16(pair)) * float_of(u16(by)), float_of(u16(pair >> 16)) * float_of(u16(by >> 16)));
#endif
}
inline u32 low_halves(u32 a, u32 b) { return (a & 0xffffu) | b << 16; }
inline u32 high_halves(u32 a, u32 b) { return a >> 16 | (b & 0xffff0000u); }
