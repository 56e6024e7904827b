// Products of gathered matrices and vectors, summed at the rows of the result, in double and in an order that
// does not depend on the number of threads.
#include <vector>

#include "kernels.h"

namespace pointcloud {
namespace {

// Products are summed in this many parts where a row has many: in as many whatever the number of threads.
constexpr int64_t kParts = 16;
// The most sums of a part: they stay in a core's own cache.
constexpr int64_t kPartSums = int64_t{1} << 16;

// The numbers of the products of each row: order[starts[r]] … order[starts[r + 1] - 1].
struct Rows {
  const int64_t* starts;
  const int64_t* order;
};

Rows rows_of(const lz_call* call, const int64_t* rows, int64_t n, int64_t count) {
  int64_t *starts = scratch<int64_t>(call, count + 1), *next = scratch<int64_t>(call, count),
          *order = scratch<int64_t>(call, n);
  std::fill_n(starts, count + 1, 0);
  for (int64_t t = 0; t < n; t++) starts[rows[t] + 1]++;
  for (int64_t r = 0; r < count; r++) starts[r + 1] += starts[r];
  std::copy_n(starts, count, next);
  for (int64_t t = 0; t < n; t++) order[next[rows[t]]++] = t;
  return {starts, order};
}

// The number of products of each row, and the largest of them.
struct Counts {
  const int64_t* of;
  int64_t most;
};

Counts counts_of(const lz_call* call, const int64_t* rows, int64_t n, int64_t count) {
  int64_t *of = scratch<int64_t>(call, count), most = 0;
  std::fill_n(of, count, 0);
  for (int64_t t = 0; t < n; t++) most = std::max(most, ++of[rows[t]]);
  return {of, most};
}

// Eight elements side by side, which the compiler keeps in as many registers as it needs.
template <class T>
struct Lanes {
  typedef T Type __attribute__((vector_size(8 * sizeof(T))));
};

template <class V, class T>
inline __attribute__((always_inline)) void load(V& x, const T* from) {
  std::memcpy(&x, from, sizeof x);
}

// The sums of eight vectors' lanes, by pairs: seven additions for eight sums.
template <class T>
inline __attribute__((always_inline)) void add_lanes(typename Lanes<T>::Type (&x)[8],
                                                     typename Lanes<T>::Type& sums) {
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2)
    x[i / 2] = __builtin_shufflevector(x[i], x[i + 1], 0, 8, 2, 10, 4, 12, 6, 14) +
               __builtin_shufflevector(x[i], x[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
#pragma GCC unroll 2
  for (int i = 0; i < 4; i += 2)
    x[i / 2] = __builtin_shufflevector(x[i], x[i + 1], 0, 1, 8, 9, 4, 5, 12, 13) +
               __builtin_shufflevector(x[i], x[i + 1], 2, 3, 10, 11, 6, 7, 14, 15);
  sums = __builtin_shufflevector(x[0], x[1], 0, 1, 2, 3, 8, 9, 10, 11) +
         __builtin_shufflevector(x[0], x[1], 4, 5, 6, 7, 12, 13, 14, 15);
}

// A matrix of each group, its rows and their elements: `group` and `row` elements apart; vectors lie without
// gaps.
template <class T>
struct Matrices {
  const T* first;
  int64_t groups, rows, columns, group, row;
};

// total[g, m] += Σ a[g, m, c] · b[g, c]. Each sum is in the element type, and the same wherever its row
// stands.
template <class T>
inline __attribute__((always_inline)) void rows_product(const Matrices<T>& a, const T* b,
                                                        double* __restrict total) {
  using V = typename Lanes<T>::Type;
  const int64_t whole = a.columns / 8 * 8;
  for (int64_t g = 0; g < a.groups; g++, b += a.columns, total += a.rows) {
    const T* matrix = a.first + g * a.group;
    for (int64_t m = 0; m < a.rows; m += 8) {
      const int64_t rows = std::min<int64_t>(8, a.rows - m);
      const T* at[8];
      // Rows that are not there repeat the last one.
      for (int i = 0; i < 8; i++) at[i] = matrix + (m + std::min<int64_t>(i, rows - 1)) * a.row;
      V lanes[8] = {};
      for (int64_t c = 0; c < whole; c += 8) {
        V y;
        load(y, b + c);
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
          V x;
          load(x, at[i] + c);
          lanes[i] += x * y;
        }
      }
      V sums;
      add_lanes<T>(lanes, sums);
      for (int64_t c = whole; c < a.columns; c++)
        for (int i = 0; i < 8; i++) sums[i] += at[i][c] * b[c];
      for (int64_t i = 0; i < rows; i++) total[m + i] += double(sums[i]);
    }
  }
}
POINTCLOUD_CLONES void by_rows(const Matrices<float>& a, const float* b, double* total) {
  rows_product(a, b, total);
}
POINTCLOUD_CLONES void by_rows(const Matrices<double>& a, const double* b, double* total) {
  rows_product(a, b, total);
}

// The same for matrices that lie by columns, which are `row` apart.
template <class T>
inline __attribute__((always_inline)) void columns_product(const Matrices<T>& a, const T* b,
                                                           double* __restrict total) {
  for (int64_t g = 0; g < a.groups; g++, b += a.columns, total += a.rows)
    for (int64_t c = 0; c < a.columns; c++) {
      const T* column = a.first + g * a.group + c * a.row;
      for (int64_t m = 0; m < a.rows; m++) total[m] += double(column[m] * b[c]);
    }
}
POINTCLOUD_CLONES void by_columns(const Matrices<float>& a, const float* b, double* total) {
  columns_product(a, b, total);
}
POINTCLOUD_CLONES void by_columns(const Matrices<double>& a, const double* b, double* total) {
  columns_product(a, b, total);
}

// out[m, c] (+)= x[m] · b[c]
template <class To, class T>
inline __attribute__((always_inline)) void outer_product(const T* x, const T* b, int64_t rows,
                                                         int64_t columns, bool first, To* out) {
  for (int64_t m = 0; m < rows; m++) {
    const T scale = x[m];
    To* row = out + m * columns;
    if (first)
      for (int64_t c = 0; c < columns; c++) row[c] = To(scale * b[c]);
    else
      for (int64_t c = 0; c < columns; c++) row[c] += To(scale * b[c]);
  }
}
POINTCLOUD_CLONES void outer(const float* x, const float* b, int64_t m, int64_t c, bool first, float* out) {
  outer_product(x, b, m, c, first, out);
}
POINTCLOUD_CLONES void outer(const float* x, const float* b, int64_t m, int64_t c, bool first, double* out) {
  outer_product(x, b, m, c, first, out);
}
POINTCLOUD_CLONES void outer(const double* x, const double* b, int64_t m, int64_t c, bool first,
                             double* out) {
  outer_product(x, b, m, c, first, out);
}

// a [A, G, M, C], b [B, G, C], positions of T products → [K, G, M]
template <class T>
struct Mvmr {
  static void run(const lz_call* call) {
    const char* op = "mvmr";
    const lz_operand &a = call->in[0], &b = call->in[1], &y = call->out[0];
    const int64_t groups = a.shape[1], rows = a.shape[2], columns = a.shape[3], n = call->in[2].size;
    const int64_t* from_a = positions(call, op, call->in[2], a.shape[0]);
    const int64_t* from_b = positions(call, op, call->in[3], b.shape[0]);
    const int64_t* to = positions(call, op, call->in[4], y.shape[0]);
    if (y.size == 0) return;
    const T* vectors = row_major<T>(call, b);
    // Matrices may lie by rows or by columns.
    const bool across = columns > 1 && a.strides[3] != 1 && (rows == 1 || a.strides[2] == 1);
    const bool along = columns <= 1 || a.strides[3] == 1;
    const bool copied = !across && !along;
    const T* matrices = copied ? row_major<T>(call, a) : static_cast<const T*>(a.data);
    const int64_t steps[3] = {copied ? groups * rows * columns : a.strides[0],
                              copied ? rows * columns : a.strides[1],
                              copied   ? columns
                              : across ? a.strides[3]
                                       : a.strides[2]};
    const int64_t cells = groups * rows, count = y.shape[0];
    const double each = 10 + 0.15 * double(cells * columns + 16);
    T* out = static_cast<T*>(y.data);
    // Adds the t-th product.
    const auto add = [&](int64_t t, double* total) {
      const Matrices<T> pair{matrices + from_a[t] * steps[0], groups, rows, columns, steps[1], steps[2]};
      const T* vector = vectors + from_b[t] * groups * columns;
      if (across)
        by_columns(pair, vector, total);
      else
        by_rows(pair, vector, total);
    };
    const auto store = [&](const double* total, int64_t r) {
      for (int64_t j = 0; j < cells; j++) out[r * cells + j] = T(total[j]);
    };

    // Matrices are read in the order of the products wherever that is possible: anywhere else is another
    // page.
    const Counts counts = counts_of(call, to, n, count);
    if (counts.most <= 1) {
      for (int64_t r = 0; r < count; r++)
        if (counts.of[r] == 0) std::fill_n(out + r * cells, cells, T(0));
      return parallel(call, n, each, [&](int64_t begin, int64_t end) {
        std::vector<double> total(static_cast<size_t>(cells));
        for (int64_t t = begin; t < end; t++) {
          std::fill(total.begin(), total.end(), 0.0);
          add(t, total.data());
          store(total.data(), to[t]);
        }
      });
    }
    if (n >= 2 * kParts * count && count * cells <= kPartSums) {
      double* sums = scratch<double>(call, kParts * count * cells);
      parallel(call, kParts, each * double(n) / kParts, [&](int64_t begin, int64_t end) {
        for (int64_t part = begin; part < end; part++) {
          double* own = sums + part * count * cells;
          std::fill_n(own, count * cells, 0.0);
          for (int64_t t = n * part / kParts; t < n * (part + 1) / kParts; t++) add(t, own + to[t] * cells);
        }
      });
      return parallel(call, count, 0.5 * double(kParts * cells), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; r++) {
          double* total = sums + r * cells;
          for (int64_t part = 1; part < kParts; part++)
            for (int64_t j = 0; j < cells; j++) total[j] += sums[(part * count + r) * cells + j];
          store(total, r);
        }
      });
    }
    const Rows lists = rows_of(call, to, n, count);
    parallel(call, count, 10 + each * double(n) / double(count), [&](int64_t begin, int64_t end) {
      std::vector<double> total(static_cast<size_t>(cells));
      for (int64_t r = begin; r < end; r++) {
        std::fill(total.begin(), total.end(), 0.0);
        for (int64_t i = lists.starts[r]; i < lists.starts[r + 1]; i++) add(lists.order[i], total.data());
        store(total.data(), r);
      }
    });
  }
};

// x [X, G, M], b [B, G, C], positions of T products → [K, G, M, C]
template <class T>
struct Vvor {
  static void run(const lz_call* call) {
    const char* op = "vvor";
    const lz_operand &x = call->in[0], &b = call->in[1], &y = call->out[0];
    const int64_t groups = x.shape[1], rows = x.shape[2], columns = b.shape[2], n = call->in[2].size;
    const int64_t* from_x = positions(call, op, call->in[2], x.shape[0]);
    const int64_t* from_b = positions(call, op, call->in[3], b.shape[0]);
    const int64_t* to = positions(call, op, call->in[4], y.shape[0]);
    if (y.size == 0) return;
    const Rows lists = rows_of(call, to, n, y.shape[0]);
    const T *left = row_major<T>(call, x), *right = row_major<T>(call, b);
    const int64_t each = rows * columns, cells = groups * each;
    const double price = 20 + 0.2 * double(std::max(n, y.shape[0])) / double(y.shape[0]) * double(cells + 16);
    parallel(call, y.shape[0], price, [&](int64_t begin, int64_t end) {
      std::vector<double> total;
      for (int64_t r = begin; r < end; r++) {
        const int64_t first = lists.starts[r], last = lists.starts[r + 1];
        T* out = static_cast<T*>(y.data) + r * cells;
        const auto visit = [&](auto* into) {
          for (int64_t i = first; i < last; i++) {
            const int64_t t = lists.order[i];
            for (int64_t g = 0; g < groups; g++)
              outer(left + (from_x[t] * groups + g) * rows, right + (from_b[t] * groups + g) * columns, rows,
                    columns, i == first, into + g * each);
          }
        };
        if (first == last) {
          std::fill_n(out, cells, T(0));
        } else if (last == first + 1) {
          visit(out);
        } else {
          total.resize(static_cast<size_t>(cells));
          visit(total.data());
          for (int64_t j = 0; j < cells; j++) out[j] = T(total[size_t(j)]);
        }
      }
    });
  }
};

}  // namespace

lz_status mvmr(const lz_call* call) { return run<Mvmr>(call); }
lz_status vvor(const lz_call* call) { return run<Vvor>(call); }

}  // namespace pointcloud
