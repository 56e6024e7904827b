// Row-major GEMM and GEMV of one signature for float, double and complex64. The BLAS library runs
// single-threaded: work is spread over this package's pool, in pieces that depend on the problem's size
// alone.
#ifndef LAZULI_KERNELS_BLAS_H
#define LAZULI_KERNELS_BLAS_H

#include <complex>
#include <cstdint>

#if defined(LAZULI_ACCELERATE)
#include <Accelerate/Accelerate.h>
#else
#include <cblas.h>
#endif

namespace lazuli::blas {

// Call once before any other function.
inline void use_one_thread() {
#if defined(LAZULI_OPENBLAS)
  openblas_set_num_threads(1);
#endif
}

inline CBLAS_TRANSPOSE flag(bool transposed) { return transposed ? CblasTrans : CblasNoTrans; }

// BLAS leaves the result of empty sums as it was, and takes no distances of 0. Gives whether there is nothing
// left to do.
template <class T>
bool empty_sums(int64_t rows, int64_t columns, int64_t length, T beta, T* y, int64_t row_step, int64_t step) {
  if (rows == 0 || columns == 0) return true;
  if (length > 0) return false;
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < columns; j++) {
      T& to = y[i * row_step + j * step];
      to = beta == T(0) ? T(0) : beta * to;
    }
  return true;
}

// C = alpha · op(A) op(B) + beta · C, all row-major, sizes and leading dimensions below 2^31.
inline void gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda,
                 const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  if (empty_sums(m, n, k, beta, c, ldc, 1)) return;
  cblas_sgemm(CblasRowMajor, flag(ta), flag(tb), int(m), int(n), int(k), alpha, a, int(lda), b, int(ldb),
              beta, c, int(ldc));
}
inline void gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, double alpha, const double* a,
                 int64_t lda, const double* b, int64_t ldb, double beta, double* c, int64_t ldc) {
  if (empty_sums(m, n, k, beta, c, ldc, 1)) return;
  cblas_dgemm(CblasRowMajor, flag(ta), flag(tb), int(m), int(n), int(k), alpha, a, int(lda), b, int(ldb),
              beta, c, int(ldc));
}
inline void gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, std::complex<float> alpha,
                 const std::complex<float>* a, int64_t lda, const std::complex<float>* b, int64_t ldb,
                 std::complex<float> beta, std::complex<float>* c, int64_t ldc) {
  if (empty_sums(m, n, k, beta, c, ldc, 1)) return;
  cblas_cgemm(CblasRowMajor, flag(ta), flag(tb), int(m), int(n), int(k), &alpha, a, int(lda), b, int(ldb),
              &beta, c, int(ldc));
}

// y = alpha · op(A) x + beta · y; A is stored row-major with `rows` rows.
inline void gemv(bool ta, int64_t rows, int64_t columns, float alpha, const float* a, int64_t lda,
                 const float* x, int64_t incx, float beta, float* y, int64_t incy) {
  if (empty_sums(1, ta ? columns : rows, ta ? rows : columns, beta, y, 0, incy)) return;
  cblas_sgemv(CblasRowMajor, flag(ta), int(rows), int(columns), alpha, a, int(lda), x, int(incx), beta, y,
              int(incy));
}
inline void gemv(bool ta, int64_t rows, int64_t columns, double alpha, const double* a, int64_t lda,
                 const double* x, int64_t incx, double beta, double* y, int64_t incy) {
  if (empty_sums(1, ta ? columns : rows, ta ? rows : columns, beta, y, 0, incy)) return;
  cblas_dgemv(CblasRowMajor, flag(ta), int(rows), int(columns), alpha, a, int(lda), x, int(incx), beta, y,
              int(incy));
}
inline void gemv(bool ta, int64_t rows, int64_t columns, std::complex<float> alpha,
                 const std::complex<float>* a, int64_t lda, const std::complex<float>* x, int64_t incx,
                 std::complex<float> beta, std::complex<float>* y, int64_t incy) {
  if (empty_sums(1, ta ? columns : rows, ta ? rows : columns, beta, y, 0, incy)) return;
  cblas_cgemv(CblasRowMajor, flag(ta), int(rows), int(columns), &alpha, a, int(lda), x, int(incx), &beta, y,
              int(incy));
}

// b ← op(a)⁻¹ · b, or b · op(a)⁻¹ unless `left`, for one triangle of a, perhaps with ones for its diagonal; b
// m×n, all row-major.
inline void trsm(bool left, bool upper, bool transposed, bool unit, int64_t m, int64_t n, const float* a,
                 int64_t lda, float* b, int64_t ldb) {
  cblas_strsm(CblasRowMajor, left ? CblasLeft : CblasRight, upper ? CblasUpper : CblasLower, flag(transposed),
              unit ? CblasUnit : CblasNonUnit, int(m), int(n), 1, a, int(lda), b, int(ldb));
}
inline void trsm(bool left, bool upper, bool transposed, bool unit, int64_t m, int64_t n, const double* a,
                 int64_t lda, double* b, int64_t ldb) {
  cblas_dtrsm(CblasRowMajor, left ? CblasLeft : CblasRight, upper ? CblasUpper : CblasLower, flag(transposed),
              unit ? CblasUnit : CblasNonUnit, int(m), int(n), 1, a, int(lda), b, int(ldb));
}

// b ← a⁻¹ · b for one triangle of a, n×n, and b, n×columns, row-major without gaps.
inline void solve_triangular(bool upper, int64_t n, int64_t columns, const float* a, float* b) {
  cblas_strsm(CblasRowMajor, CblasLeft, upper ? CblasUpper : CblasLower, CblasNoTrans, CblasNonUnit, int(n),
              int(columns), 1, a, int(n), b, int(columns));
}
inline void solve_triangular(bool upper, int64_t n, int64_t columns, const double* a, double* b) {
  cblas_dtrsm(CblasRowMajor, CblasLeft, upper ? CblasUpper : CblasLower, CblasNoTrans, CblasNonUnit, int(n),
              int(columns), 1, a, int(n), b, int(columns));
}
inline void solve_triangular(bool upper, int64_t n, int64_t columns, const std::complex<float>* a,
                             std::complex<float>* b) {
  const std::complex<float> one = 1;
  cblas_ctrsm(CblasRowMajor, CblasLeft, upper ? CblasUpper : CblasLower, CblasNoTrans, CblasNonUnit, int(n),
              int(columns), &one, a, int(n), b, int(columns));
}

}  // namespace lazuli::blas

#endif
