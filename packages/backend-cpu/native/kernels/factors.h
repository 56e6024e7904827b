// LU and QR factorizations of single large real matrices by all threads: LAPACK factors narrow panels, and
// products of matrices do the rest. How a matrix is cut depends on its size alone.
#ifndef LAZULI_KERNELS_FACTORS_H
#define LAZULI_KERNELS_FACTORS_H

#include "kernels/matrices.h"

namespace lazuli {

// True if the matrices of a batch are large and too few for a thread each. T is real then.
template <class T>
bool factors_by_blocks(const Batch& batch) {
  return !is_complex<T> && batch.count < 4 && batch.k() >= 256;
}

// to, columns×rows = the transpose of from, rows×columns.
template <class T>
void transpose_by_all(const lz_call& call, const T* from, int64_t rows, int64_t columns, T* to);

// LAPACK's getrf of a, m×n by columns, pivots included. False where a pivot is 0.
template <class T>
bool lu_by_blocks(const lz_call& call, int64_t m, int64_t n, T* a, int* pivots);

// Solves for the columns of b, n×count, with the transpose of what was factored (see getrs_transposed), by
// all threads.
template <class T>
void solve_by_blocks(const lz_call& call, int64_t n, int64_t count, T* a, int* pivots, T* b);

// Q m×k, R k×n of a, m×n, all by rows; k = min(m, n).
template <class T>
void qr_by_blocks(const lz_call& call, int64_t m, int64_t n, const T* a, T* q, T* r);

}  // namespace lazuli

#endif
