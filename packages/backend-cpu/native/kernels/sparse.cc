// sparseMatmul and sampledMatmul. Values of a sparse matrix are first put in the order of their rows, by
// counting, unless they are so already: each row is then computed by one thread, its values in the order in
// which they were given.
#include <vector>

#include "kernels/families.h"
#include "kernels/layout.h"

namespace lazuli {
namespace {

// Sums in the type of the elements are added to wider ones after so many terms, so that errors do not grow
// with their number.
constexpr int64_t kTerms = 32, kColumns = 256;
constexpr int64_t kLanes = 8;  // elements of a loop that is unrolled

template <class C>
using wide_t = std::conditional_t<is_complex<C>, std::complex<double>, double>;

const int64_t* read_positions(const lz_call& call, const char* op, const char* what, const lz_operand& list,
                              int64_t count) {
  int64_t* out = scratch<int64_t>(call, list.size);
  dispatch_or_fail<index_types>(call, op, list.dtype, [&]<class T>() {
    const T* from = contiguous<T>(call, list);
    for (int64_t i = 0; i < list.size; i++) {
      out[i] = int64_t(from[i]);
      if (uint64_t(from[i]) < uint64_t(count)) continue;
      if (std::is_signed_v<T>)
        fail(call, "[%s] %s %lld is out of bounds for a matrix with %lld %ss", op, what, (long long)from[i],
             (long long)count, what);
      fail(call, "[%s] %s %llu is out of bounds for a matrix with %lld %ss", op, what,
           (unsigned long long)from[i], (long long)count, what);
    }
  });
  return out;
}

// starts[r] … starts[r + 1] are the values of row r, numbers of which are in `order`, or themselves where
// that is null.
struct Rows {
  const int64_t* starts;
  const int64_t* order = nullptr;
};

Rows rows_of(const lz_call& call, const int64_t* rows, int64_t n, int64_t count) {
  int64_t* starts = scratch<int64_t>(call, count + 1);
  std::fill_n(starts, count + 1, 0);
  bool sorted = true;
  for (int64_t t = 0; t < n; t++) {
    starts[rows[t] + 1]++;
    sorted &= t == 0 || rows[t - 1] <= rows[t];
  }
  for (int64_t r = 0; r < count; r++) starts[r + 1] += starts[r];
  if (sorted) return {starts};
  int64_t *order = scratch<int64_t>(call, n), *next = scratch<int64_t>(call, count);
  std::copy_n(starts, count, next);
  for (int64_t t = 0; t < n; t++) order[next[rows[t]]++] = t;
  return {starts, order};
}

template <class S>
void multiply_rows(const lz_call& call, const Rows& rows, const int64_t* columns) {
  using C = compute_t<S>;
  const lz_operand &values = call.in[0], &dense = call.in[3], &y = call.out[0];
  const int64_t count = y.shape[0], n = y.shape[1];
  const S *v = contiguous<S>(call, values), *x = contiguous<S>(call, dense);
  S* to = data<S>(y);
  // Few rows are shared by threads in blocks of columns.
  const int64_t width = count >= 64 ? kColumns : std::clamp<int64_t>((n + 7) / 8, 16, kColumns);
  const int64_t blocks = (n + width - 1) / width, tasks = count * blocks;
  const double price = 10 + 0.4 * double(values.size) / double(count) * double(std::min(n, width) + 8);
  parallel(call, tasks, price, [&](int64_t begin, int64_t end) {
    C part[kColumns];
    wide_t<C> total[kColumns];
    for (int64_t task = begin; task < end; task++) {
      const int64_t r = task / blocks, column = task % blocks * width, m = std::min(width, n - column);
      const int64_t first = rows.starts[r], last = rows.starts[r + 1];
      const bool longer = last - first > kTerms;
      if (longer) std::fill_n(total, m, wide_t<C>(0));
      std::fill_n(part, m, C(0));
      for (int64_t i = first; i < last; i++) {
        const int64_t t = rows.order ? rows.order[i] : i;
        const C scale = load(v[t]);
        const S* from = x + columns[t] * n + column;
        int64_t j = 0;
        for (; j + kLanes <= m; j += kLanes)
          for (int64_t k = 0; k < kLanes; k++) part[j + k] += scale * load(from[j + k]);
        for (; j < m; j++) part[j] += scale * load(from[j]);
        if (longer && ((i - first) % kTerms == kTerms - 1 || i == last - 1)) {
          for (int64_t c = 0; c < m; c++) total[c] += wide_t<C>(part[c]);
          std::fill_n(part, m, C(0));
        }
      }
      for (int64_t j = 0; j < m; j++) to[r * n + column + j] = longer ? S(C(total[j])) : S(part[j]);
    }
  });
}

void sparse_matmul(const lz_call& call) {
  constexpr const char* op = "sparseMatmul";
  require_counts(call, op, 4, 1);
  const lz_operand &values = call.in[0], &rows = call.in[1], &columns = call.in[2], &dense = call.in[3],
                   &y = call.out[0];
  bool fits = values.ndim == 1 && dense.ndim == 2 && y.ndim == 2 && same_shape(values, rows) &&
              same_shape(values, columns) && values.dtype == dense.dtype && y.dtype == dense.dtype;
  fits = fits && y.shape[1] == dense.shape[1];
  require(call, fits, "[%s] the shapes or dtypes of the operands do not fit", op);
  const int64_t* at_row = read_positions(call, op, "row", rows, y.shape[0]);
  const int64_t* at_column = read_positions(call, op, "column", columns, dense.shape[0]);
  if (y.size == 0) return;
  const Rows lists = rows_of(call, at_row, values.size, y.shape[0]);
  dispatch_or_fail<inexact_types>(call, op, y.dtype,
                                  [&]<class S>() { multiply_rows<S>(call, lists, at_column); });
}

template <class S>
void multiply_samples(const lz_call& call, const int64_t* rows, const int64_t* columns) {
  using C = compute_t<S>;
  const lz_operand &a = call.in[0], &y = call.out[0];
  const int64_t n = a.shape[1];
  const S *left = contiguous<S>(call, a), *right = contiguous<S>(call, call.in[1]);
  S* to = data<S>(y);
  parallel(call, y.size, 5 + 0.4 * double(n), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; t++) {
      const S *p = left + rows[t] * n, *q = right + columns[t] * n;
      wide_t<C> total(0);
      for (int64_t from = 0; from < n; from += kColumns) {
        const int64_t last = std::min(n, from + kColumns);
        C lanes[kLanes] = {};
        int64_t j = from;
        for (; j + kLanes <= last; j += kLanes)
          for (int64_t k = 0; k < kLanes; k++) lanes[k] += load(p[j + k]) * load(q[j + k]);
        for (; j < last; j++) lanes[0] += load(p[j]) * load(q[j]);
        for (int64_t k = 0; k < kLanes; k++) total += wide_t<C>(lanes[k]);
      }
      to[t] = S(C(total));
    }
  });
}

void sampled_matmul(const lz_call& call) {
  constexpr const char* op = "sampledMatmul";
  require_counts(call, op, 4, 1);
  const lz_operand &a = call.in[0], &b = call.in[1], &rows = call.in[2], &columns = call.in[3],
                   &y = call.out[0];
  const bool fits = a.ndim == 2 && b.ndim == 2 && rows.ndim == 1 && same_shape(rows, columns) &&
                    same_shape(rows, y) && a.shape[1] == b.shape[1] && a.dtype == b.dtype &&
                    y.dtype == a.dtype;
  require(call, fits, "[%s] the shapes or dtypes of the operands do not fit", op);
  const int64_t* at_row = read_positions(call, op, "row", rows, a.shape[0]);
  const int64_t* at_column = read_positions(call, op, "column", columns, b.shape[0]);
  if (y.size == 0) return;
  dispatch_or_fail<inexact_types>(call, op, y.dtype,
                                  [&]<class S>() { multiply_samples<S>(call, at_row, at_column); });
}

}  // namespace

void register_sparse(Registry& registry) {
  registry.add("sparseMatmul", entry<sparse_matmul>);
  registry.add("sampledMatmul", entry<sampled_matmul>);
}

}  // namespace lazuli
