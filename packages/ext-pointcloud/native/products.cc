// Products of gathered matrices and vectors, summed at the rows of the result. The products of one row are
// taken by one thread in the order in which they were given, and summed in double: results do not depend on
// the number of threads.
#include <vector>

#include "kernels.h"

namespace pointcloud {
namespace {

constexpr int64_t kLine = 64;  // bytes of a cache line

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

// Eight elements side by side, which the compiler keeps in as many registers as it needs.
template <class T>
struct Lanes {
  typedef T Type __attribute__((vector_size(8 * sizeof(T))));
};

// total[m] += Σ a[m, c] · b[c], with a's rows `stride` apart. Lanes are summed in the element type.
template <class T>
inline __attribute__((always_inline)) void rows_product(const T* a, int64_t stride, const T* b, int64_t rows,
                                                        int64_t columns, double* __restrict total) {
  using V = typename Lanes<T>::Type;
  for (int64_t m = 0; m < rows; m++) {
    const T* row = a + m * stride;
    V lanes = {};
    int64_t c = 0;
    for (; c + 8 <= columns; c += 8) {
      V x, y;
      std::memcpy(&x, row + c, sizeof x);
      std::memcpy(&y, b + c, sizeof y);
      lanes += x * y;
    }
    T sum = ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
    for (; c < columns; c++) sum += row[c] * b[c];
    total[m] += double(sum);
  }
}
POINTCLOUD_CLONES void by_rows(const float* a, int64_t s, const float* b, int64_t m, int64_t c,
                               double* total) {
  rows_product(a, s, b, m, c, total);
}
POINTCLOUD_CLONES void by_rows(const double* a, int64_t s, const double* b, int64_t m, int64_t c,
                               double* total) {
  rows_product(a, s, b, m, c, total);
}

// The same for a matrix that lies by columns, which are `stride` apart.
template <class T>
inline __attribute__((always_inline)) void columns_product(const T* a, int64_t stride, const T* b,
                                                           int64_t rows, int64_t columns, double* total) {
  for (int64_t c = 0; c < columns; c++)
    for (int64_t m = 0; m < rows; m++) total[m] += double(a[c * stride + m] * b[c]);
}
POINTCLOUD_CLONES void by_columns(const float* a, int64_t s, const float* b, int64_t m, int64_t c,
                                  double* total) {
  columns_product(a, s, b, m, c, total);
}
POINTCLOUD_CLONES void by_columns(const double* a, int64_t s, const double* b, int64_t m, int64_t c,
                                  double* total) {
  columns_product(a, s, b, m, c, total);
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
    const Rows lists = rows_of(call, to, n, y.shape[0]);
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
    const int64_t cells = groups * rows;
    const int64_t fetched = std::min<int64_t>(cells * columns * int64_t(sizeof(T)), 32 * kLine);
    const double price = 20 + 0.3 * double(n) / double(y.shape[0]) * double(cells * columns + 16);
    parallel(call, y.shape[0], price, [&](int64_t begin, int64_t end) {
      std::vector<double> total(static_cast<size_t>(cells));
      for (int64_t r = begin; r < end; r++) {
        std::fill(total.begin(), total.end(), 0.0);
        for (int64_t i = lists.starts[r]; i < lists.starts[r + 1]; i++) {
          const int64_t t = lists.order[i];
          // Products of one row lie anywhere: the next but one is fetched meanwhile.
          const int64_t next = lists.order[std::min(i + 2, n - 1)];
          for (int64_t j = 0; j < fetched; j += kLine) {
            __builtin_prefetch(reinterpret_cast<const char*>(matrices + from_a[next] * steps[0]) + j);
          }
          for (int64_t g = 0; g < groups; g++) {
            const T* matrix = matrices + from_a[t] * steps[0] + g * steps[1];
            const T* vector = vectors + (from_b[t] * groups + g) * columns;
            double* sums = total.data() + g * rows;
            if (across)
              by_columns(matrix, steps[2], vector, rows, columns, sums);
            else
              by_rows(matrix, steps[2], vector, rows, columns, sums);
          }
        }
        for (int64_t j = 0; j < cells; j++) static_cast<T*>(y.data)[r * cells + j] = T(total[size_t(j)]);
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
