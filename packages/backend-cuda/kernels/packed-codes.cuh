/* Codes of packed weights as operands of tensor cores. Before this text stand LZ_BITS (4 or 8), LZ_GROUP (weights of a group) and, for
 * bfloat16, LZ_BRAIN. */
#pragma once
#include "tensor-core.cuh"

/* Of a group: codes and words of a lane. Of a step: groups, whose words are 32 bytes of a row for each lane. */
constexpr int CODES = LZ_GROUP / 4, WORDS = CODES * LZ_BITS / 32, TOGETHER = WORDS < 8 ? 8 / WORDS : 1;
constexpr int PER_WORD = 32 / LZ_BITS;
#ifdef LZ_BRAIN
constexpr u32 ONES = 0x3f803f80u;
#else
constexpr u32 ONES = 0x3c003c00u;
#endif

/* (word & mask) | ones as one instruction; compilers make two of it, and such work is what limits these products. */
inline u32 masked_or(u32 word, u32 mask, u32 ones) {
#ifdef __CUDA_ARCH__
  u32 both;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(both) : "r"(word), "r"(mask), "r"(ones));
  return both;
#else
  return (word & mask) | ones;
#endif
}

/* The lowest codes of the halves of a word as elements, more by OFFSET. */
#if defined(LZ_BRAIN) && LZ_BITS == 4
constexpr float OFFSET = 128.0f;
#else
constexpr float OFFSET = 0.0f;
#endif
inline u32 elements_of(u32 word) {
  constexpr u32 MASK = LZ_BITS == 4 ? 0x000f000fu : 0x00ff00ffu;
#if defined(LZ_BRAIN) && LZ_BITS == 4
  return masked_or(word, MASK, 0x43004300u);
#elif defined(__CUDA_ARCH__) && !defined(LZ_BRAIN)
  u32 both;
  asm("sub.f16x2 %0, %1, %2;" : "=r"(both) : "r"(masked_or(word, MASK, 0x64006400u)), "r"(0x64006400u));
  return both;
#else
  const u32 codes = word & MASK;
  const float low = float_from((codes & 0xffffu) | 0x4b000000u) - 8388608.0f;
  const float high = float_from((codes >> 16) | 0x4b000000u) - 8388608.0f;
  return pack(low, high);
#endif
}
inline u32 low_halves(u32 a, u32 b) { return (a & 0xffffu) | b << 16; }
inline u32 high_halves(u32 a, u32 b) { return a >> 16 | (b & 0xffff0000u); }
