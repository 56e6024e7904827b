// Hints to compilers about single loops and functions.
#ifndef LAZULI_SIMD_COMPILER_H
#define LAZULI_SIMD_COMPILER_H

// Unrolls the loop behind it altogether.
#if defined(__clang__)
#define LZ_UNROLL _Pragma("clang loop unroll(full)")
#else
#define LZ_UNROLL _Pragma("GCC unroll 32")
#endif

// A function with products of pairs of bfloat16, to be called where the processor has them.
#define LZ_PAIRS __attribute__((target("avx512bf16")))

#endif
