// Singular values and eigenvalues, by LAPACK: a matrix of the batch a task of the pool.
//
// LAPACK stores by columns, so a row-major matrix is to it the transpose. The transpose's singular vectors
// and a Hermitian matrix's eigenvectors are where they should be; only general eigenvalues copy.
//
// A matrix with a NaN or an infinity gives NaN, because the iterations need not end on it.
#include "kernels/blas.h"
#include "kernels/families.h"
#include "kernels/lapack.h"
#include "kernels/matrices.h"

namespace lazuli {
namespace {

template <class T>
void fill_identity(T* x, int64_t count, int64_t n) {
  std::fill_n(x, count * n * n, T(0));
  for (int64_t i = 0; i < count * n; i++) x[i / n * n * n + i % n * (n + 1)] = T(1);
}

// Of the transpose: its left vectors are the rows of Vᴴ, by columns, and its right ones those of U. Job 'A'
// is for all vectors, 'S' for as many as there are singular values, 'N' for none.
template <class T>
void svd_typed(const lz_call& call, const Batch& batch, char job) {
  constexpr const char* op = "linalg.svd";
  using R = real_t<T>;
  const int64_t m = batch.rows, n = batch.columns, k = batch.k(), most = std::max(m, n);
  const int64_t us = job == 'A' ? m : job == 'S' ? k : 0, vs = job == 'A' ? n : us == 0 ? 0 : k;
  T* u = job == 'N' ? nullptr : data<T>(call.out[0]);
  R* s = data<R>(call.out[job == 'N' ? 0 : 1]);
  T* vt = job == 'N' ? nullptr : data<T>(call.out[2]);
  if (k == 0) {
    if (us == m && u != nullptr) fill_identity(u, batch.count, m);
    if (vs == n && vt != nullptr) fill_identity(vt, batch.count, n);
    return;
  }
  const T* from = contiguous<T>(call, call.in[0]);
  const int right = int(std::max<int64_t>(us, 1));
  T best{};
  int none = 0;
  R spare{};
  lapack::gesdd(job, int(n), int(m), &best, int(n), &spare, &best, int(n), &best, right, &best, -1, &spare,
                &none);
  const int length = work_length(call, op, best);
  const int64_t reals = !is_complex<T> ? 0
                        : job == 'N'   ? 7 * k
                                       : std::max(5 * k * k + 7 * k, 2 * k * (most + k) + k);
  const auto carve = [&](Pieces& pieces) {
    return std::tuple{pieces.take<T>(m * n), pieces.take<T>(length), pieces.take<R>(reals),
                      pieces.take<int>(8 * k)};
  };
  Pieces measure;
  carve(measure);
  const double cost = cost_of<T>((job == 'N' ? 4.0 : 12.0) * double(m) * double(n) * double(k));
  each_matrix(call, op, "the singular values did not converge", batch.count, measure.used(), cost,
              [&](int64_t i, Pieces pieces) {
                auto [a, work, rwork, iwork] = carve(pieces);
                const T* x = from + i * m * n;
                T *left = vt ? vt + i * vs * n : a, *other = u ? u + i * m * us : a;
                if (!all_finite(x, m * n)) {
                  std::fill_n(s + i * k, k, kNan<T>);
                  if (u) std::fill_n(other, m * us, T(kNan<T>));
                  if (vt) std::fill_n(left, vs * n, T(kNan<T>));
                  return true;
                }
                std::copy_n(x, m * n, a);
                return lapack::gesdd(job, int(n), int(m), a, int(n), s + i * k, left, int(n), other, right,
                                     work, length, rwork, iwork) == 0;
              });
}

void svd(const lz_call& call) {
  constexpr const char* op = "linalg.svd";
  require_counts(call, "svd", 1, 3);
  const bool full = params::Svd(call).full;
  const Batch batch(call, op, call.in[0]);
  const int32_t dtype = call.in[0].dtype;
  require_output(call, op, call.out[0], dtype, batch.count * batch.rows * (full ? batch.rows : batch.k()));
  require_output(call, op, call.out[1], real_dtype(dtype), batch.count * batch.k());
  require_output(call, op, call.out[2], dtype,
                 batch.count * batch.columns * (full ? batch.columns : batch.k()));
  dispatch_or_fail<lapack_types>(call, op, call.in[0].dtype,
                                 [&]<class T>() { svd_typed<T>(call, batch, full ? 'A' : 'S'); });
}

void singular_values(const lz_call& call) {
  constexpr const char* op = "linalg.svd";
  require_counts(call, "singularValues", 1, 1);
  const Batch batch(call, op, call.in[0]);
  require_output(call, op, call.out[0], real_dtype(call.in[0].dtype), batch.count * batch.k());
  dispatch_or_fail<lapack_types>(call, op, call.in[0].dtype,
                                 [&]<class T>() { svd_typed<T>(call, batch, 'N'); });
}

// By columns, the matrix is the conjugate, with the other triangle; its vectors are the rows of the conjugate
// of Vᵀ.
template <class T>
void eigh_typed(const lz_call& call, const char* op, const Batch& batch, bool upper, bool vectors) {
  using R = real_t<T>;
  const int64_t n = batch.rows;
  const T* from = contiguous<T>(call, call.in[0]);
  R* w = data<R>(call.out[0]);
  T* v = vectors ? data<T>(call.out[1]) : nullptr;
  const char job = vectors ? 'V' : 'N', uplo = upper ? 'L' : 'U';
  T best{};
  R best_real{};
  int best_integer = 1;
  lapack::heevd(job, uplo, int(n), &best, int(n), &best_real, &best, -1, &best_real, -1, &best_integer, -1);
  const int length = work_length(call, op, best), integers = best_integer;
  const int reals = is_complex<T> ? work_length(call, op, best_real) : 1;
  const auto carve = [&](Pieces& pieces) {
    return std::tuple{pieces.take<T>(n * n), pieces.take<T>(length), pieces.take<R>(reals),
                      pieces.take<int>(integers)};
  };
  Pieces measure;
  carve(measure);
  each_matrix(call, op, "the eigenvalues did not converge", batch.count, measure.used(),
              cost_of<T>((vectors ? 9.0 : 2.0) * cube(n)), [&](int64_t i, Pieces pieces) {
                auto [a, work, rwork, iwork] = carve(pieces);
                const T* x = from + i * n * n;
                if (!all_finite(x, n, upper)) {
                  std::fill_n(w + i * n, n, kNan<T>);
                  if (v) std::fill_n(v + i * n * n, n * n, T(kNan<T>));
                  return true;
                }
                std::copy_n(x, n * n, a);
                if (lapack::heevd(job, uplo, int(n), a, int(n), w + i * n, work, length, rwork, reals, iwork,
                                  integers) != 0) {
                  return false;
                }
                if (v == nullptr) return true;
                if constexpr (is_complex<T>)
                  std::transform(a, a + n * n, a, [](T z) { return std::conj(z); });
                transpose(a, n, n, v + i * n * n);
                return true;
              });
}

static_assert(std::is_same_v<params::Eigvalsh, params::Eigh>);

template <bool Vectors>
void eigh(const lz_call& call) {
  constexpr const char* op = Vectors ? "linalg.eigh" : "linalg.eigvalsh";
  require_counts(call, Vectors ? "eigh" : "eigvalsh", 1, Vectors ? 2 : 1);
  const bool upper = params::Eigh(call).uplo == params::Eigh::Uplo::U;
  const Batch batch = squares(call, op, call.in[0]);
  require_output(call, op, call.out[0], real_dtype(call.in[0].dtype), batch.count * batch.rows);
  if (Vectors) require_same(call, op, call.in[0], call.out[1]);
  if (call.in[0].size == 0) return;
  dispatch_or_fail<lapack_types>(call, op, call.in[0].dtype,
                                 [&]<class T>() { eigh_typed<T>(call, op, batch, upper, Vectors); });
}

// Real matrices have pairs of conjugate eigenvalues; LAPACK gives the real and the imaginary part of the
// first one's vector as two columns.
template <class R>
void unpack_vectors(const R* w, const R* v, int64_t n, complex64* to) {
  for (int64_t j = 0; j < n; j++) {
    const bool pair = w[n + j] != 0 && j + 1 < n;
    for (int64_t i = 0; i < n; i++) {
      const float re = float(v[j * n + i]), im = pair ? float(v[(j + 1) * n + i]) : 0;
      to[i * n + j] = {re, im};
      if (pair) to[i * n + j + 1] = {re, -im};
    }
    j += pair;
  }
}

template <class T>
void eig_typed(const lz_call& call, const char* op, const Batch& batch, bool vectors) {
  using R = real_t<T>;
  const int64_t n = batch.rows;
  const T* from = contiguous<T>(call, call.in[0]);
  auto* ws = data<complex64>(call.out[0]);
  auto* vs = vectors ? data<complex64>(call.out[1]) : nullptr;
  const char job = vectors ? 'V' : 'N';
  T best{};
  R spare{};
  lapack::geev(job, int(n), &best, int(n), &best, &best, int(n), &best, -1, &spare);
  const int length = work_length(call, op, best);
  const auto carve = [&](Pieces& pieces) {
    return std::tuple{pieces.take<T>(n * n), pieces.take<T>(2 * n), pieces.take<T>(vectors ? n * n : 1),
                      pieces.take<T>(length), pieces.take<R>(2 * n)};
  };
  Pieces measure;
  carve(measure);
  each_matrix(call, op, "the eigenvalues did not converge", batch.count, measure.used(),
              cost_of<T>((vectors ? 25.0 : 10.0) * cube(n)), [&](int64_t i, Pieces pieces) {
                auto [a, w, v, work, rwork] = carve(pieces);
                const T* x = from + i * n * n;
                complex64 *values = ws + i * n, *to = vs ? vs + i * n * n : nullptr;
                if (!all_finite(x, n * n)) {
                  const complex64 nan(kNan<complex64>, kNan<complex64>);
                  std::fill_n(values, n, nan);
                  if (to) std::fill_n(to, n * n, nan);
                  return true;
                }
                transpose(x, n, n, a);
                if (lapack::geev(job, int(n), a, int(n), w, v, int(n), work, length, rwork) != 0)
                  return false;
                if constexpr (is_complex<T>) {
                  std::copy_n(w, n, values);
                  if (to) transpose(v, n, n, to);
                } else {
                  for (int64_t j = 0; j < n; j++) values[j] = {float(w[j]), float(w[n + j])};
                  if (to) unpack_vectors(w, v, n, to);
                }
                return true;
              });
}

template <bool Vectors>
void eig(const lz_call& call) {
  constexpr const char* op = Vectors ? "linalg.eig" : "linalg.eigvals";
  require_counts(call, Vectors ? "eig" : "eigvals", 1, Vectors ? 2 : 1);
  const Batch batch = squares(call, op, call.in[0]);
  require_output(call, op, call.out[0], LZ_COMPLEX64, batch.count * batch.rows);
  if (Vectors) require_output(call, op, call.out[1], LZ_COMPLEX64, call.in[0].size);
  if (call.in[0].size == 0) return;
  dispatch_or_fail<lapack_types>(call, op, call.in[0].dtype,
                                 [&]<class T>() { eig_typed<T>(call, op, batch, Vectors); });
}

}  // namespace

void register_eigen(Registry& registry) {
  blas::use_one_thread();
  registry.add("svd", entry<svd>, kLapackDtypes);
  registry.add("singularValues", entry<singular_values>, kLapackDtypes);
  registry.add("eigh", entry<eigh<true>>, kLapackDtypes);
  registry.add("eigvalsh", entry<eigh<false>>, kLapackDtypes);
  registry.add("eig", entry<eig<true>>, kLapackDtypes);
  registry.add("eigvals", entry<eig<false>>, kLapackDtypes);
}

}  // namespace lazuli
