// LU, QR and Cholesky factorizations and equations, by LAPACK: a matrix of the batch a task of the pool.
// Where they are few and large, LU and QR go by blocks (factors.cc), one matrix after the other by all
// threads.
//
// LAPACK stores by columns, so a row-major matrix is to it the transpose. Where the transpose's factors are
// the factors' transposes (Cholesky, QR by way of LQ) nothing is rearranged; LU copies.
//
// A matrix with a NaN or an infinity gives NaN.
#include "kernels/blas.h"
#include "kernels/factors.h"
#include "kernels/families.h"
#include "kernels/lapack.h"
#include "kernels/matrices.h"

namespace lazuli {
namespace {

// each_matrix() that tells solve(i, pieces, blocks) whether to factor by blocks; then it runs on the kernel's
// own thread.
template <class T, class F>
void each_factored(const lz_call& call, const char* op, const char* failure, const Batch& batch,
                   int64_t bytes, double cost, F&& solve) {
  if (!factors_by_blocks<T>(batch)) {
    return each_matrix(call, op, failure, batch.count, bytes, cost,
                       [&](int64_t i, Pieces pieces) { return solve(i, pieces, false); });
  }
  char* memory = scratch<char>(call, std::max<int64_t>(bytes, 1));
  for (int64_t i = 0; i < batch.count; i++)
    require(call, solve(i, Pieces(memory), true), "[%s] %s", op, failure);
}

template <class T>
void transpose_matrix(const lz_call& call, bool blocks, const T* from, int64_t rows, int64_t columns, T* to) {
  if constexpr (!is_complex<T>) {
    if (blocks) return transpose_by_all(call, from, rows, columns, to);
  }
  transpose(from, rows, columns, to);
}

// Of a m×n by columns. False where a pivot is 0.
template <class T>
bool factor_lu(const lz_call& call, bool blocks, int64_t m, int64_t n, T* a, int* pivots) {
  if constexpr (!is_complex<T>) {
    if (blocks) return lu_by_blocks(call, m, n, a, pivots);
  }
  return lapack::getrf(int(m), int(n), a, int(m), pivots) == 0;
}

// Factors the transpose of a matrix by columns, which is the matrix itself. Pivots count from 1.
template <class T>
void lu_typed(const lz_call& call, const Batch& batch) {
  const T* from = contiguous<T>(call, call.in[0]);
  T* packed = data<T>(call.out[0]);
  auto* pivots = data<uint32_t>(call.out[1]);
  auto* permutation = data<uint32_t>(call.out[2]);
  const int64_t m = batch.rows, k = batch.k(), size = batch.size();
  const auto carve = [&](Pieces& pieces) {
    return std::tuple{pieces.take<T>(size), pieces.take<int>(k), pieces.take<uint32_t>(m)};
  };
  Pieces measure;
  carve(measure);
  const double cost = cost_of<T>(double(m) * double(batch.columns) * double(k));
  each_factored<T>(call, "linalg.lu", "", batch, measure.used(), cost,
                   [&](int64_t i, Pieces pieces, bool blocks) {
                     auto [a, exchanged, order] = carve(pieces);
                     const T* x = from + i * size;
                     T* y = packed + i * size;
                     const bool good = all_finite(x, size);
                     if (size > 0 && good) {
                       transpose_matrix(call, blocks, x, m, batch.columns, a);
                       factor_lu(call, blocks, m, batch.columns, a, exchanged);
                       transpose_matrix(call, blocks, a, batch.columns, m, y);
                     } else {
                       std::fill_n(y, size, T(kNan<T>));
                       for (int64_t j = 0; j < k; j++) exchanged[j] = int(j) + 1;
                     }
                     for (int64_t j = 0; j < m; j++) order[j] = uint32_t(j);
                     for (int64_t j = 0; j < k; j++) {
                       pivots[i * k + j] = uint32_t(exchanged[j] - 1);
                       std::swap(order[j], order[exchanged[j] - 1]);
                     }
                     for (int64_t j = 0; j < m; j++) permutation[i * m + order[j]] = uint32_t(j);
                     return true;
                   });
}

void lu(const lz_call& call) {
  require_counts(call, "lu", 1, 3);
  const Batch batch(call, "linalg.lu", call.in[0]);
  require_output(call, "linalg.lu", call.out[0], call.in[0].dtype, batch.count * batch.size());
  require_output(call, "linalg.lu", call.out[1], LZ_UINT32, batch.count * batch.k());
  require_output(call, "linalg.lu", call.out[2], LZ_UINT32, batch.count * batch.rows);
  dispatch_or_fail<lapack_types>(call, "linalg.lu", call.in[0].dtype,
                                 [&]<class T>() { lu_typed<T>(call, batch); });
}

// Row-major, a's transpose is factored, and the transpose of that solved.
template <class T>
void solve_typed(const lz_call& call, const Batch& batch, int64_t columns) {
  const T* as = contiguous<T>(call, call.in[0]);
  const T* bs = contiguous<T>(call, call.in[1]);
  T* xs = data<T>(call.out[0]);
  const int64_t n = batch.rows, size = n * columns;
  const auto carve = [&](Pieces& pieces) {
    return std::tuple{pieces.take<T>(n * n), pieces.take<T>(size), pieces.take<int>(n)};
  };
  Pieces measure;
  carve(measure);
  const double cost = cost_of<T>(0.7 * cube(n) + 2.0 * double(n) * double(size));
  each_factored<T>(call, "linalg.solve", "the matrix is singular", batch, measure.used(), cost,
                   [&](int64_t i, Pieces pieces, bool blocks) {
                     auto [a, b, pivots] = carve(pieces);
                     T* x = xs + i * size;
                     if (!all_finite(as + i * n * n, n * n)) {
                       std::fill_n(x, size, T(kNan<T>));
                       return true;
                     }
                     std::copy_n(as + i * n * n, n * n, a);
                     transpose_matrix(call, blocks, bs + i * size, n, columns, b);
                     if (!factor_lu(call, blocks, n, n, a, pivots)) return false;
                     bool solved = false;
                     if constexpr (!is_complex<T>) {
                       solved = blocks;
                       if (blocks) solve_by_blocks(call, n, columns, a, pivots, b);
                     }
                     if (!solved)
                       lapack::getrs_transposed(batch.n(), int(columns), a, batch.n(), pivots, b, batch.n());
                     transpose_matrix(call, blocks, b, columns, n, x);
                     return true;
                   });
}

// The columns of b, after the checks that solve and solveTriangular share.
int64_t require_equation(const lz_call& call, const char* op, const Batch& batch) {
  const Batch b(call, op, call.in[1]);
  require(call, b.rows == batch.rows && b.count == batch.count && call.in[1].dtype == call.in[0].dtype,
          "[%s] the shapes or dtypes of the operands do not fit", op);
  require_same(call, op, call.in[1], call.out[0]);
  return b.columns;
}

void solve(const lz_call& call) {
  require_counts(call, "solve", 2, 1);
  const Batch batch = squares(call, "linalg.solve", call.in[0]);
  const int64_t columns = require_equation(call, "linalg.solve", batch);
  if (call.out[0].size == 0) return;
  dispatch_or_fail<lapack_types>(call, "linalg.solve", call.in[0].dtype,
                                 [&]<class T>() { solve_typed<T>(call, batch, columns); });
}

// The transpose of the transpose's inverse, in place.
void inv(const lz_call& call) {
  constexpr const char* op = "linalg.inv";
  require_counts(call, "inv", 1, 1);
  const Batch batch = squares(call, op, call.in[0]);
  require_same(call, op, call.in[0], call.out[0]);
  if (call.out[0].size == 0) return;
  dispatch_or_fail<lapack_types>(call, op, call.in[0].dtype, [&]<class T>() {
    const T* from = contiguous<T>(call, call.in[0]);
    T* to = data<T>(call.out[0]);
    const int n = batch.n();
    T best{};
    int none = 0;
    lapack::getri(n, &best, n, &none, &best, -1);
    const int length = work_length(call, op, best);
    const auto carve = [&](Pieces& pieces) {
      return std::tuple{pieces.take<int>(n), pieces.take<T>(length)};
    };
    Pieces measure;
    carve(measure);
    each_factored<T>(call, op, "the matrix is singular", batch, measure.used(), cost_of<T>(2 * cube(n)),
                     [&](int64_t i, Pieces pieces, bool blocks) {
                       auto [pivots, work] = carve(pieces);
                       T* y = to + i * batch.size();
                       std::copy_n(from + i * batch.size(), batch.size(), y);
                       if (!all_finite(y, batch.size())) {
                         std::fill_n(y, batch.size(), T(kNan<T>));
                         return true;
                       }
                       return factor_lu(call, blocks, n, n, y, pivots) &&
                              lapack::getri(n, y, n, pivots, work, length) == 0;
                     });
  });
}

void solve_triangular(const lz_call& call) {
  constexpr const char* op = "linalg.solveTriangular";
  require_counts(call, "solveTriangular", 2, 1);
  const bool upper = params::SolveTriangular(call).upper;
  const Batch batch = squares(call, op, call.in[0]);
  const int64_t columns = require_equation(call, op, batch);
  if (call.out[0].size == 0) return;
  dispatch_or_fail<lapack_types>(call, op, call.in[0].dtype, [&]<class T>() {
    const T* as = contiguous<T>(call, call.in[0]);
    const T* bs = contiguous<T>(call, call.in[1]);
    T* xs = data<T>(call.out[0]);
    const int64_t n = batch.rows, size = n * columns;
    const double cost = cost_of<T>(double(n) * double(size));
    each_matrix(call, op, "the matrix is singular", batch.count, 1, cost, [&](int64_t i, Pieces) {
      const T* a = as + i * n * n;
      for (int64_t j = 0; j < n; j++) {
        if (a[j * n + j] == T(0)) return false;
      }
      std::copy_n(bs + i * size, size, xs + i * size);
      blas::solve_triangular(upper, n, columns, a, xs + i * size);
      return true;
    });
  });
}

// By columns, the given triangle is the other one of the transpose, the conjugate of a Hermitian matrix, and
// the factor its transpose.
void cholesky(const lz_call& call) {
  constexpr const char* op = "linalg.cholesky";
  require_counts(call, "cholesky", 1, 1);
  const bool upper = params::Cholesky(call).upper;
  const Batch batch = squares(call, op, call.in[0]);
  require_same(call, op, call.in[0], call.out[0]);
  if (call.out[0].size == 0) return;
  dispatch_or_fail<lapack_types>(call, op, call.in[0].dtype, [&]<class T>() {
    const T* from = contiguous<T>(call, call.in[0]);
    T* to = data<T>(call.out[0]);
    const int64_t n = batch.rows;
    each_matrix(call, op, "the matrix is not positive definite", batch.count, 1, cost_of<T>(cube(n) / 3),
                [&](int64_t i, Pieces) {
                  T* y = to + i * n * n;
                  std::copy_n(from + i * n * n, n * n, y);
                  const bool good = all_finite(y, n, upper);
                  if (good && lapack::potrf(upper ? 'L' : 'U', int(n), y, int(n)) > 0) return false;
                  for (int64_t row = 0; row < n; row++) {
                    const int64_t first = upper ? row : 0, last = upper ? n : row + 1;
                    std::fill(y + row * n, y + row * n + first, T(0));
                    std::fill(y + row * n + last, y + row * n + n, T(0));
                    if (!good) std::fill(y + row * n + first, y + row * n + last, T(kNan<T>));
                  }
                  return true;
                });
  });
}

// LQ of the transpose: its L is R's transpose, its Q Q's.
template <class T>
void qr_typed(const lz_call& call, const Batch& batch) {
  constexpr const char* op = "linalg.qr";
  const T* from = contiguous<T>(call, call.in[0]);
  T *qs = data<T>(call.out[0]), *rs = data<T>(call.out[1]);
  const int m = batch.m(), n = batch.n(), k = batch.k();
  T best[2];
  lapack::gelqf(n, m, best, n, best, best, -1);
  lapack::unglq(k, m, best, n, best, best + 1, -1);
  const int length = std::max(work_length(call, op, best[0]), work_length(call, op, best[1]));
  const auto carve = [&](Pieces& pieces) {
    return std::tuple{pieces.take<T>(batch.size()), pieces.take<T>(k), pieces.take<T>(length)};
  };
  Pieces measure;
  carve(measure);
  const double cost = cost_of<T>(3.0 * double(m) * double(n) * double(k));
  each_factored<T>(call, op, "", batch, measure.used(), cost, [&](int64_t i, Pieces pieces, bool blocks) {
    auto [a, tau, work] = carve(pieces);
    const T* x = from + i * batch.size();
    T *q = qs + i * m * int64_t(k), *r = rs + i * k * int64_t(n);
    if (!all_finite(x, batch.size())) {
      std::fill_n(q, m * int64_t(k), T(kNan<T>));
      std::fill_n(r, k * int64_t(n), T(kNan<T>));
      return true;
    }
    if constexpr (!is_complex<T>) {
      if (blocks) {
        qr_by_blocks(call, m, n, x, q, r);
        return true;
      }
    }
    std::copy_n(x, batch.size(), a);
    lapack::gelqf(n, m, a, n, tau, work, length);
    for (int64_t row = 0; row < k; row++) {
      std::fill_n(r + row * n, row, T(0));
      std::copy(a + row * n + row, a + row * n + n, r + row * n + row);
    }
    lapack::unglq(k, m, a, n, tau, work, length);
    for (int64_t row = 0; row < m; row++) std::copy_n(a + row * n, k, q + row * k);
    return true;
  });
}

void qr(const lz_call& call) {
  require_counts(call, "qr", 1, 2);
  const Batch batch(call, "linalg.qr", call.in[0]);
  require_output(call, "linalg.qr", call.out[0], call.in[0].dtype, batch.count * batch.rows * batch.k());
  require_output(call, "linalg.qr", call.out[1], call.in[0].dtype, batch.count * batch.k() * batch.columns);
  if (call.in[0].size == 0) return;
  dispatch_or_fail<lapack_types>(call, "linalg.qr", call.in[0].dtype,
                                 [&]<class T>() { qr_typed<T>(call, batch); });
}

}  // namespace

void register_linalg(Registry& registry) {
  blas::use_one_thread();
  registry.add("lu", entry<lu>, kLapackDtypes);
  registry.add("solve", entry<solve>, kLapackDtypes);
  registry.add("inv", entry<inv>, kLapackDtypes);
  registry.add("solveTriangular", entry<solve_triangular>, kLapackDtypes);
  registry.add("cholesky", entry<cholesky>, kLapackDtypes);
  registry.add("qr", entry<qr>, kLapackDtypes);
}

}  // namespace lazuli
