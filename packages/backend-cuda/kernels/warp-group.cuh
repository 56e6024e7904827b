/* Products of groups of four warps, which Hopper's tensor cores take from shared memory while the warps go on, and the same by plain loops
 * where the test double compiles for the CPU. Matrices are in panels of rows of 64 elements of 16 bits, which begin at multiples of 1,024
 * bytes; chunks of 16 bytes are permuted within the eight of a row. */
#pragma once
#include "tensor-core.cuh"

typedef unsigned long long u64;
constexpr int PANEL = 64;
/* Bytes of eight rows. */
constexpr u32 EIGHT_ROWS = 1024;

/* Where a chunk of a row is in its panel, in elements. */
inline int in_panel(int row, int chunk) { return row * PANEL + ((chunk ^ (row & 7)) << 3); }

#ifdef __CUDA_ARCH__

/* As the instruction takes it: the location, the bytes from a panel to the next, those from eight rows to the next, and the permutation. */
typedef u64 Matrix;
inline Matrix matrix_at(const u16* at, u32 panels) {
  return u64((shared_address(at) & 0x3ffff) >> 4) | u64(panels >> 4) << 16 | u64(EIGHT_ROWS >> 4) << 32 | u64(1) << 62;
}
inline Matrix moved(Matrix m, int elements) { return m + u64(elements * 2 >> 4); }
/* Before products that read what the warps wrote to shared memory, and before those that take registers which they wrote. */
inline void show_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
inline void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/* Until so many groups of products are under way at most. */
template <int N>
inline void await_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
/* 4 bytes; a zero where `there` is false. */
inline void copy_word_ahead(Shared to, const void* from, bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(there ? 4 : 0));
}

#ifdef LZ_BRAIN
#define LZ_TYPES ".f32.bf16.bf16 "
#else
#define LZ_TYPES ".f32.f16.f16 "
#endif
#define LZ_FOUR(c, n) "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
#define LZ_32(c, n) \
  LZ_FOUR(c, n), LZ_FOUR(c, n + 1), LZ_FOUR(c, n + 2), LZ_FOUR(c, n + 3), LZ_FOUR(c, n + 4), LZ_FOUR(c, n + 5), \
      LZ_FOUR(c, n + 6), LZ_FOUR(c, n + 7)
#define LZ_FIRST_32                                                                                        \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27," \
  "%28,%29,%30,%31"
#define LZ_NEXT_32                                                                                            \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,"  \
  "%58,%59,%60,%61,%62,%63"

/* c = a · bᵀ of 64 rows of a and 64 of b, 16 elements each; c is added to where `adds`. */
inline void multiply_rows(float (&c)[8][4], Matrix a, Matrix b, bool adds) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16" LZ_TYPES "{" LZ_FIRST_32
      "}, %32, %33, p, 1, 1, 0, 0;}"
      : LZ_32(c, 0)
      : "l"(a), "l"(b), "r"(int(adds)));
}
/* c += a · b of 64 rows of a, in registers as products leave them, and 16 rows of b. */
inline void multiply_columns(float (&c)[8][4], const u32 (&a)[4], Matrix b) {
  asm volatile(
      "{.reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n64k16" LZ_TYPES "{" LZ_FIRST_32
      "}, {%32,%33,%34,%35}, %36, p, 1, 1, 1;}"
      : LZ_32(c, 0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
inline void multiply_columns(float (&c)[16][4], const u32 (&a)[4], Matrix b) {
  asm volatile(
      "{.reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n128k16" LZ_TYPES "{" LZ_FIRST_32
      "," LZ_NEXT_32 "}, {%64,%65,%66,%67}, %68, p, 1, 1, 1;}"
      : LZ_32(c, 0), LZ_32(c, 8)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#else

struct Matrix {
  unsigned long long at;
  u32 panels;
};
inline Matrix matrix_at(const u16* at, u32 panels) { return {(unsigned long long)at, panels}; }
inline Matrix moved(Matrix m, int elements) { return {m.at + elements * 2, m.panels}; }
inline void show_shared() {}
inline void begin_products() {}
inline void end_products() {}
template <int N>
inline void await_products() {}
inline void copy_word_ahead(Shared to, const void* from, bool there) {
  if (there) memcpy((void*)to, from, 4);
  else memset((void*)to, 0, 4);
}
/* An element of rows, and of panels of columns, as the hardware permutes addresses. */
inline u16 permuted_at(unsigned long long at) { return *(const u16*)(at ^ (at >> 7 & 7) << 4); }
inline u16 of_rows(Matrix m, int row, int k) {
  return permuted_at(m.at + row / 8 * EIGHT_ROWS + row % 8 * 2 * PANEL + 2 * k);
}
inline u16 of_columns(Matrix m, int k, int n) {
  return permuted_at(m.at + n / PANEL * m.panels + k / 8 * EIGHT_ROWS + k % 8 * 2 * PANEL + n % PANEL * 2);
}
inline void multiply_rows(float (&c)[8][4], Matrix a, Matrix b, bool adds) {
  const int first = int(threadIdx.x) / 32 % 4 * 16 + lane() / 4;
  for (int n = 0; n < 8; n++)
    for (int i = 0; i < 4; i++) {
      float sum = adds ? c[n][i] : 0.0f;
      for (int k = 0; k < 16; k++)
        sum += float_of(of_rows(a, first + i / 2 * 8, k)) * float_of(of_rows(b, n * 8 + lane() % 4 * 2 + i % 2, k));
      c[n][i] = sum;
    }
}
template <int N>
inline void multiply_columns(float (&c)[N][4], const u32 (&a)[4], Matrix b) {
  const int k = lane() % 4 * 2;
  for (int n = 0; n < N; n++) {
    const int column = n * 8 + lane() / 4;
    auto pair = [&](int row) { return of_columns(b, row, column) | u32(of_columns(b, row + 1, column)) << 16; };
    multiply(c[n], a, pair(k), pair(k + 8));
  }
}

#endif
