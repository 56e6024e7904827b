// LAPACK's functions of one name for float, double and complex64: Accelerate's, or the Fortran symbols of
// OpenBLAS. All matrices are stored by columns.
#ifndef LAZULI_KERNELS_LAPACK_H
#define LAZULI_KERNELS_LAPACK_H

#include <complex>
#include <cstddef>

#if defined(LAZULI_ACCELERATE)
#include <Accelerate/Accelerate.h>
// Fortran passes the lengths of strings behind all other arguments; Accelerate's functions take none.
#define LAZULI_LENGTH
#else
#define LAZULI_LENGTH , std::size_t{1}

extern "C" {
#define LAZULI_DECLARE(T, p, unitary)                                                                   \
  void p##getrf_(const int*, const int*, T*, const int*, int*, int*);                                   \
  void p##getrs_(const char*, const int*, const int*, const T*, const int*, const int*, T*, const int*, \
                 int*, std::size_t);                                                                    \
  void p##getri_(const int*, T*, const int*, const int*, T*, const int*, int*);                         \
  void p##potrf_(const char*, const int*, T*, const int*, int*, std::size_t);                           \
  void p##gelqf_(const int*, const int*, T*, const int*, T*, T*, const int*, int*);                     \
  void p##unitary##lq_(const int*, const int*, const int*, T*, const int*, const T*, T*, const int*, int*);
LAZULI_DECLARE(float, s, org)
LAZULI_DECLARE(double, d, org)
LAZULI_DECLARE(std::complex<float>, c, ung)
#undef LAZULI_DECLARE
#define LAZULI_DECLARE(T, p)                                                                                 \
  void p##geqrf_(const int*, const int*, T*, const int*, T*, T*, const int*, int*);                          \
  void p##gesdd_(const char*, const int*, const int*, T*, const int*, T*, T*, const int*, T*, const int*,    \
                 T*, const int*, int*, int*, std::size_t);                                                   \
  void p##syevd_(const char*, const char*, const int*, T*, const int*, T*, T*, const int*, int*, const int*, \
                 int*, std::size_t, std::size_t);                                                            \
  void p##geev_(const char*, const char*, const int*, T*, const int*, T*, T*, T*, const int*, T*,            \
                const int*, T*, const int*, int*, std::size_t, std::size_t);
LAZULI_DECLARE(float, s)
LAZULI_DECLARE(double, d)
#undef LAZULI_DECLARE
void cgesdd_(const char*, const int*, const int*, std::complex<float>*, const int*, float*,
             std::complex<float>*, const int*, std::complex<float>*, const int*, std::complex<float>*,
             const int*, float*, int*, int*, std::size_t);
void cheevd_(const char*, const char*, const int*, std::complex<float>*, const int*, float*,
             std::complex<float>*, const int*, float*, const int*, int*, const int*, int*, std::size_t,
             std::size_t);
void cgeev_(const char*, const char*, const int*, std::complex<float>*, const int*, std::complex<float>*,
            std::complex<float>*, const int*, std::complex<float>*, const int*, std::complex<float>*,
            const int*, float*, int*, std::size_t, std::size_t);
}
#endif

namespace lazuli::lapack {

// Each gives LAPACK's `info`: 0, or k > 0 for what went wrong with the k-th element. `work` has room for
// `lwork` values; lwork = -1 asks for the best length, which is then work[0].
#define LAZULI_WRAP(T, p, unitary)                                                           \
  inline int getrf(int m, int n, T* a, int lda, int* pivots) {                               \
    int info = 0;                                                                            \
    p##getrf_(&m, &n, a, &lda, pivots, &info);                                               \
    return info;                                                                             \
  }                                                                                          \
  /* The transpose of what was factored, times x = b. */                                     \
  inline int getrs_transposed(int n, int count, T* a, int lda, int* pivots, T* b, int ldb) { \
    int info = 0;                                                                            \
    p##getrs_("T", &n, &count, a, &lda, pivots, b, &ldb, &info LAZULI_LENGTH);               \
    return info;                                                                             \
  }                                                                                          \
  /* The inverse of what was factored. */                                                    \
  inline int getri(int n, T* a, int lda, int* pivots, T* work, int lwork) {                  \
    int info = 0;                                                                            \
    p##getri_(&n, a, &lda, pivots, work, &lwork, &info);                                     \
    return info;                                                                             \
  }                                                                                          \
  inline int potrf(char uplo, int n, T* a, int lda) {                                        \
    int info = 0;                                                                            \
    p##potrf_(&uplo, &n, a, &lda, &info LAZULI_LENGTH);                                      \
    return info;                                                                             \
  }                                                                                          \
  inline int gelqf(int m, int n, T* a, int lda, T* tau, T* work, int lwork) {                \
    int info = 0;                                                                            \
    p##gelqf_(&m, &n, a, &lda, tau, work, &lwork, &info);                                    \
    return info;                                                                             \
  }                                                                                          \
  /* Q of gelqf, k rows. */                                                                  \
  inline int unglq(int k, int n, T* a, int lda, T* tau, T* work, int lwork) {                \
    int info = 0;                                                                            \
    p##unitary##lq_(&k, &n, &k, a, &lda, tau, work, &lwork, &info);                          \
    return info;                                                                             \
  }
LAZULI_WRAP(float, s, org)
LAZULI_WRAP(double, d, org)
LAZULI_WRAP(std::complex<float>, c, ung)
#undef LAZULI_WRAP

#define LAZULI_WRAP(T, p)                                                                                    \
  inline int geqrf(int m, int n, T* a, int lda, T* tau, T* work, int lwork) {                                \
    int info = 0;                                                                                            \
    p##geqrf_(&m, &n, a, &lda, tau, work, &lwork, &info);                                                    \
    return info;                                                                                             \
  }                                                                                                          \
  inline int gesdd(char job, int m, int n, T* a, int lda, T* s, T* u, int ldu, T* vt, int ldvt, T* work,     \
                   int lwork, T*, int* iwork) {                                                              \
    int info = 0;                                                                                            \
    p##gesdd_(&job, &m, &n, a, &lda, s, u, &ldu, vt, &ldvt, work, &lwork, iwork, &info LAZULI_LENGTH);       \
    return info;                                                                                             \
  }                                                                                                          \
  inline int heevd(char job, char uplo, int n, T* a, int lda, T* w, T* work, int lwork, T*, int, int* iwork, \
                   int liwork) {                                                                             \
    int info = 0;                                                                                            \
    p##syevd_(&job, &uplo, &n, a, &lda, w, work, &lwork, iwork, &liwork, &info LAZULI_LENGTH LAZULI_LENGTH); \
    return info;                                                                                             \
  }                                                                                                          \
  /* Eigenvalues in two halves of w: real parts, imaginary parts. */                                         \
  inline int geev(char job, int n, T* a, int lda, T* w, T* v, int ldv, T* work, int lwork, T*) {             \
    int info = 0;                                                                                            \
    p##geev_("N", &job, &n, a, &lda, w, w + n, nullptr, &ldv, v, &ldv, work, &lwork,                         \
             &info LAZULI_LENGTH LAZULI_LENGTH);                                                             \
    return info;                                                                                             \
  }
LAZULI_WRAP(float, s)
LAZULI_WRAP(double, d)
#undef LAZULI_WRAP

inline int gesdd(char job, int m, int n, std::complex<float>* a, int lda, float* s, std::complex<float>* u,
                 int ldu, std::complex<float>* vt, int ldvt, std::complex<float>* work, int lwork,
                 float* rwork, int* iwork) {
  int info = 0;
  cgesdd_(&job, &m, &n, a, &lda, s, u, &ldu, vt, &ldvt, work, &lwork, rwork, iwork, &info LAZULI_LENGTH);
  return info;
}
inline int heevd(char job, char uplo, int n, std::complex<float>* a, int lda, float* w,
                 std::complex<float>* work, int lwork, float* rwork, int lrwork, int* iwork, int liwork) {
  int info = 0;
  cheevd_(&job, &uplo, &n, a, &lda, w, work, &lwork, rwork, &lrwork, iwork, &liwork,
          &info LAZULI_LENGTH LAZULI_LENGTH);
  return info;
}
inline int geev(char job, int n, std::complex<float>* a, int lda, std::complex<float>* w,
                std::complex<float>* v, int ldv, std::complex<float>* work, int lwork, float* rwork) {
  int info = 0;
  cgeev_("N", &job, &n, a, &lda, w, nullptr, &ldv, v, &ldv, work, &lwork, rwork,
         &info LAZULI_LENGTH LAZULI_LENGTH);
  return info;
}

}  // namespace lazuli::lapack

#undef LAZULI_LENGTH

#endif
