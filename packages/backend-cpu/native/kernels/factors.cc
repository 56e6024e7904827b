// Right-looking block algorithms, as in Dongarra, Duff, Sorensen and van der Vorst, "Numerical linear algebra
// for high-performance computers", 1998, chapter 5; Householder reflections of a panel are applied together
// as in Schreiber and Van Loan, "A storage-efficient WY representation for products of Householder
// transformations", 1989.
#include "kernels/factors.h"

#include "kernels/blas.h"
#include "kernels/gemm.h"
#include "kernels/lapack.h"
#include "simd/gemm.h"

namespace lazuli {
namespace {

int64_t parts(int64_t n, int64_t most) { return (n + most - 1) / most; }

// c = alpha · op(a) op(b) + beta · c by the calling thread, all by rows.
template <class T>
void product(bool ta, bool tb, int64_t m, int64_t n, int64_t k, T alpha, const T* a, int64_t lda, const T* b,
             int64_t ldb, T beta, T* c, int64_t ldc) {
  if (m == 0 || n == 0) return;
  if constexpr (std::is_same_v<T, float>)
    gemm({{a, LZ_FLOAT32, ta, lda}, {b, LZ_FLOAT32, tb, ldb}, m, n, k, alpha, beta, c, ldc});
  else
    blas::gemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

template <class F>
void each(const lz_call& call, int64_t tasks, double price, F&& f) {
  parallel(call, tasks, price, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; task++) f(task);
  });
}

constexpr int64_t kColumns = 64;

}  // namespace

template <class T>
void transpose_by_all(const lz_call& call, const T* from, int64_t rows, int64_t columns, T* to) {
  each(call, parts(rows, kColumns), 0.5 * double(kColumns) * double(columns), [&](int64_t task) {
    const int64_t i = task * kColumns, count = std::min(kColumns, rows - i);
    if constexpr (std::is_same_v<T, float>) {
      gemm_table().turn[LZ_FLOAT32]({from + i * columns, to + i, columns, count, columns, rows, 0, false});
    } else {
      for (int64_t j = 0; j < columns; j++) {
        for (int64_t l = i; l < i + count; l++) to[j * rows + l] = from[l * columns + j];
      }
    }
  });
}

template <class T>
void solve_by_blocks(const lz_call& call, int64_t n, int64_t count, T* a, int* pivots, T* b) {
  each(call, parts(count, kColumns), cost_of<T>(2.0 * double(n) * double(n) * double(kColumns)),
       [&](int64_t task) {
         const int64_t at = task * kColumns;
         lapack::getrs_transposed(int(n), int(std::min(kColumns, count - at)), a, int(n), pivots, b + at * n,
                                  int(n));
       });
}

template <class T>
bool lu_by_blocks(const lz_call& call, int64_t m, int64_t n, T* a, int* pivots) {
  constexpr int64_t kPanel = 64;
  const int64_t most = std::min(m, n);
  bool regular = true;
  for (int64_t k = 0; k < most; k += kPanel) {
    const int64_t width = std::min(kPanel, most - k), next = k + width;
    T* corner = a + k * m + k;
    regular = lapack::getrf(int(m - k), int(width), corner, int(m), pivots + k) == 0 && regular;
    for (int64_t i = k; i < next; i++) pivots[i] += int(k);
    // Columns before the panel have their rows exchanged; those behind it are reduced too.
    const int64_t before = parts(k, kColumns), behind = parts(n - next, kColumns);
    const double price = cost_of<T>(double(m - k) * double(width) * double(kColumns)) + 1000;
    each(call, before + behind, price, [&](int64_t task) {
      const int64_t first = task < before ? task * kColumns : next + (task - before) * kColumns;
      const int64_t count = std::min(kColumns, (task < before ? k : n) - first);
      T* columns = a + first * m;
      for (int64_t j = 0; j < count; j++) {
        for (int64_t i = k; i < next; i++) std::swap(columns[j * m + i], columns[j * m + pivots[i] - 1]);
      }
      if (task < before) return;
      // By rows all of this is transposed.
      blas::trsm(false, true, false, true, count, width, corner, m, columns + k, m);
      product<T>(false, false, count, m - next, width, -1, columns + k, m, corner + width, m, 1,
                 columns + next, m);
    });
  }
  return regular;
}

template <class T>
void qr_by_blocks(const lz_call& call, int64_t m, int64_t n, const T* from, T* q, T* r) {
  constexpr int64_t kPanel = 64;
  const int64_t most = std::min(m, n), panels = parts(most, kPanel);
  T* a = scratch<T>(call, m * n);
  std::copy_n(from, m * n, a);
  T* panel = scratch<T>(call, m * kPanel);
  // The reflections' vectors as columns, with ones and zeros where LAPACK has R, and a triangle for each
  // panel: H₁ … H_w = I − V T Vᵀ.
  T* vectors = scratch<T>(call, m * most);
  std::fill_n(vectors, m * most, T(0));
  T* triangles = scratch<T>(call, panels * kPanel * kPanel);
  T best{};
  lapack::geqrf(int(m), int(kPanel), &best, int(m), &best, &best, -1);
  const int length = work_length(call, "linalg.qr", best);
  T *work = scratch<T>(call, length), tau[kPanel], gram[kPanel * kPanel];
  // x −= V op(T) Vᵀ x for columns [first, last) of x, rows from `row` on.
  const auto reflect = [&](int64_t row, bool transposed, T* x, int64_t first, int64_t last, int64_t ld) {
    const int64_t width = std::min(kPanel, most - row), rows = m - row;
    const T *v = vectors + row * most + row, *t = triangles + row * kPanel;
    each(call, parts(last - first, kColumns),
         cost_of<T>(2.0 * double(rows) * double(width) * double(kColumns)), [&](int64_t task) {
           T one[kPanel * kColumns], two[kPanel * kColumns];
           const int64_t at = first + task * kColumns, count = std::min(kColumns, last - at);
           T* columns = x + row * ld + at;
           product<T>(true, false, width, count, rows, 1, v, most, columns, ld, 0, one, kColumns);
           product<T>(transposed, false, width, count, width, 1, t, kPanel, one, kColumns, 0, two, kColumns);
           product<T>(false, false, rows, count, width, -1, v, most, two, kColumns, 1, columns, ld);
         });
  };
  for (int64_t k = 0; k < most; k += kPanel) {
    const int64_t width = std::min(kPanel, most - k), rows = m - k;
    for (int64_t i = 0; i < rows; i++) {
      for (int64_t j = 0; j < width; j++) panel[j * rows + i] = a[(k + i) * n + k + j];
    }
    lapack::geqrf(int(rows), int(width), panel, int(rows), tau, work, length);
    T *v = vectors + k * most + k, *t = triangles + k * kPanel;
    for (int64_t i = 0; i < rows; i++) {
      for (int64_t j = 0; j < width; j++) {
        if (j < i) v[i * most + j] = panel[j * rows + i];
        if (j >= i) a[(k + i) * n + k + j] = panel[j * rows + i];
        if (j == i) v[i * most + j] = 1;
      }
    }
    product<T>(true, false, width, width, rows, 1, v, most, v, most, 0, gram, kPanel);
    std::fill_n(t, kPanel * kPanel, T(0));
    for (int64_t j = 0; j < width; j++) {
      t[j * kPanel + j] = tau[j];
      for (int64_t i = 0; i < j; i++) {
        T sum = 0;
        for (int64_t l = i; l < j; l++) sum += t[i * kPanel + l] * gram[l * kPanel + j];
        t[i * kPanel + j] = -tau[j] * sum;
      }
    }
    reflect(k, true, a, k + width, n, n);
  }
  for (int64_t i = 0; i < most; i++) {
    std::fill_n(r + i * n, i, T(0));
    std::copy(a + i * n + i, a + i * n + n, r + i * n + i);
  }
  std::fill_n(q, m * most, T(0));
  for (int64_t i = 0; i < most; i++) q[i * most + i] = 1;
  for (int64_t k = (panels - 1) * kPanel; k >= 0; k -= kPanel) reflect(k, false, q, k, most, most);
}

template void transpose_by_all<float>(const lz_call&, const float*, int64_t, int64_t, float*);
template void transpose_by_all<double>(const lz_call&, const double*, int64_t, int64_t, double*);
template void solve_by_blocks<float>(const lz_call&, int64_t, int64_t, float*, int*, float*);
template void solve_by_blocks<double>(const lz_call&, int64_t, int64_t, double*, int*, double*);
template bool lu_by_blocks<float>(const lz_call&, int64_t, int64_t, float*, int*);
template bool lu_by_blocks<double>(const lz_call&, int64_t, int64_t, double*, int*);
template void qr_by_blocks<float>(const lz_call&, int64_t, int64_t, const float*, float*, float*);
template void qr_by_blocks<double>(const lz_call&, int64_t, int64_t, const double*, double*, double*);

}  // namespace lazuli
