// Products of float32 matrices by this package's own tiles (simd/gemm.cc) where they are as fast as the BLAS
// library or faster, else by that library. Operands of the half types widen on the way.
#ifndef LAZULI_KERNELS_GEMM_H
#define LAZULI_KERNELS_GEMM_H

#include "kernels/call.h"
#include "runtime/pieces.h"

namespace lazuli {

// A matrix stored by rows, or its transpose is, `ld` elements from one to the next.
struct GemmOperand {
  const void* data;
  int32_t dtype;
  bool transposed;
  int64_t ld;

  GemmOperand at(int64_t row, int64_t column) const {
    const int64_t offset = transposed ? column * ld + row : row * ld + column;
    return {static_cast<const char*>(data) + offset * itemsize(dtype), dtype, transposed, ld};
  }
};

// Rows of what a product is added to, `ld` elements apart: 0 for one row that serves all. Without data, the
// result's own.
struct GemmAddend {
  const float* data = nullptr;
  int64_t ld = 0;

  GemmAddend at(int64_t row, int64_t column) const { return {data ? data + row * ld + column : nullptr, ld}; }
};

// c = alpha · a @ b + beta · addend for a m×k and b k×n, of any sizes. A factor beta of 0 does not read the
// addend, which may have data of its own where gemm_is_own(). An element depends on its row of a, its column
// of b and k alone, however the product is cut. `epilogue` hears of every part of c once, when it is done.
struct GemmProblem {
  GemmOperand a, b;
  int64_t m, n, k;
  float alpha, beta;
  float* c;
  int64_t ldc;
  Epilogue epilogue = {};
  GemmAddend addend = {};
  // Where the result goes as a half type when a part of it is done, `narrow_ld` elements from row to row: c
  // is then scratch.
  char* narrow = nullptr;
  int32_t narrow_dtype = 0;
  int64_t narrow_ld = 0;
  // Of the product that this is a part of, where it is one: what decides between ways to sum must not know
  // the parts.
  int64_t all_rows = 0;
  // The operands of what the calling thread will probably multiply next, which lie as these do; or null.
  const void *next_a = nullptr, *next_b = nullptr;

  // Rows and columns of c that are done, `ld` elements from row to row: in c, or elsewhere where they are
  // narrowed.
  void done(int64_t i, int64_t rows, int64_t j, int64_t columns, const float* from, int64_t ld) const;
  void done(int64_t i, int64_t rows, int64_t j, int64_t columns) const {
    done(i, rows, j, columns, c + i * ldc + j, ldc);
  }
  // These rows and columns of c.
  GemmProblem part(int64_t i, int64_t rows, int64_t j, int64_t columns) const {
    GemmProblem part = *this;
    part.a = a.at(i, 0), part.b = b.at(0, j);
    part.m = rows, part.n = columns;
    part.c += i * ldc + j;
    if (narrow) part.narrow += 2 * (i * narrow_ld + j);
    part.epilogue = epilogue.at(i, j);
    part.addend = addend.at(i, j);
    part.all_rows = m;
    return part;
  }
  GemmAddend added() const { return addend.data ? addend : GemmAddend{c, ldc}; }
};

// So few rows of a are multiplied with b's rows as memory gives them.
inline constexpr int64_t kFewSums = 16;
// Nanoseconds of one multiplication.
inline constexpr double kGemmPrice = 0.018;

// True if gemm() computes by itself; only then it takes the half types.
bool gemm_is_own();
// True if a matrix unit multiplies few rows of bfloat16 with rows of a large b as they lie.
bool gemm_takes_strips(int64_t m, int64_t n, int64_t k);
// By the calling thread.
void gemm(const GemmProblem& p);
// By all threads, with operands packed once for all of them or by each task, where gemm_is_own().
void gemm(const lz_call& call, const GemmProblem& p);
// The same in tasks of so many tiles by so many slivers.
struct GemmTiling {
  int64_t tiles, slivers;
  bool pack_a;
  bool share_b = true;  // packed for all tasks; needless only of a depth of one block
};
GemmTiling choose_tiling(const GemmProblem& p, int threads);
void gemm(const lz_call& call, const GemmProblem& p, const GemmTiling& tiling);
// True if that is worth its preparations.
bool gemm_is_large(int64_t m, int64_t n, int64_t k);
// Good multiples of rows and columns to cut a product into.
int64_t gemm_height();
int64_t gemm_width();

// The call's output = a @ b as the kernel matmul computes it, for operands of any layout; failures name `op`.
void multiply_matrices(const lz_call& call, const char* op, const lz_operand& a, const lz_operand& b);

}  // namespace lazuli

#endif
