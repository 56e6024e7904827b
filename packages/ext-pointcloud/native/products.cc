// Products of gathered matrices and vectors, summed at the rows of the result in an order that does not
// depend on the number of threads; and both derivatives of the first of them, in one pass over the matrices.
#include <utility>

#include "kernels.h"
#include "matrices.h"
#include "rows.h"

namespace pointcloud {
namespace {

POINTCLOUD_CLONES void by_rows(const Matrices<float>& a, const float* b, float* out) {
  rows_product(a, b, out);
}
POINTCLOUD_CLONES void by_rows(const Matrices<double>& a, const double* b, double* out) {
  rows_product(a, b, out);
}
POINTCLOUD_CLONES void by_columns(const Matrices<float>& a, const float* b, float* out) {
  columns_product(a, b, out);
}
POINTCLOUD_CLONES void by_columns(const Matrices<double>& a, const double* b, double* out) {
  columns_product(a, b, out);
}

// Groups, and rows and columns of the matrices of an outer product.
struct Outer {
  int64_t groups, rows, columns;
  int64_t size() const { return groups * rows * columns; }
};
POINTCLOUD_CLONES void outer(const float* x, const float* b, const Outer& sizes, float* out) {
  outer_product(x, b, sizes.groups, sizes.rows, sizes.columns, out);
}
POINTCLOUD_CLONES void outer(const double* x, const double* b, const Outer& sizes, double* out) {
  outer_product(x, b, sizes.groups, sizes.rows, sizes.columns, out);
}
// Past the caches if `streamed`.
template <class T>
void write_outer(const T* x, const T* b, const Outer& sizes, bool streamed, T* out) {
  T* row = streamed ? own_row<T>(sizes.size()) : out;
  outer(x, b, sizes, row);
  if (streamed) stream(row, out, sizes.size() * int64_t(sizeof(T)));
}
template <class T>
bool streams(const lz_operand& y, const Outer& sizes) {
  return is_streamed(y.data, y.size * int64_t(sizeof(T)), sizes.size() * int64_t(sizeof(T)));
}

// The matrices of an operand [A, G, M, C], where they lie by rows or by columns; copied where they do
// neither.
template <class T>
struct Stack {
  Matrices<T> at;
  int64_t matrix;  // elements from one to the next
  bool across;     // by columns

  Stack(const lz_call* call, const lz_operand& a) {
    const int64_t rows = a.shape[2], columns = a.shape[3];
    across = columns > 1 && a.strides[3] != 1 && (rows == 1 || a.strides[2] == 1);
    if (across || columns <= 1 || a.strides[3] == 1) {
      at = {static_cast<const T*>(a.data),       a.shape[1], rows, columns, a.strides[1],
            across ? a.strides[3] : a.strides[2]};
      matrix = a.strides[0];
    } else {
      at = {row_major<T>(call, a), a.shape[1], rows, columns, rows * columns, columns};
      matrix = a.shape[1] * rows * columns;
    }
  }

  void transpose() {
    std::swap(at.rows, at.columns);
    across = !across;
  }
  // out[g, m] = Σ a[i, g, m, c] · vector[g, c]
  void product(int64_t i, const T* vector, T* out) const {
    Matrices<T> own = at;
    own.first += i * matrix;
    if (across)
      by_columns(own, vector, out);
    else
      by_rows(own, vector, out);
  }
  // Large matrices are fetched by the processor itself.
  void fetch(int64_t i) const {
    const int64_t bytes = at.groups * at.group * int64_t(sizeof(T));
    if (bytes > 0 && bytes <= 4096) pointcloud::fetch(at.first + i * matrix, bytes);
  }
};

// a [A, G, M, C], b [B, G, C], positions of T products → [K, G, M]
template <class T>
struct Mvmr {
  static void run(const lz_call* call) {
    const char* op = "mvmr";
    const lz_operand &a = call->in[0], &b = call->in[1], &y = call->out[0];
    const int64_t n = call->in[2].size;
    const int32_t* from_a = positions(call, op, call->in[2], a.shape[0]);
    const int32_t* from_b = positions(call, op, call->in[3], b.shape[0]);
    const int32_t* to = positions(call, op, call->in[4], y.shape[0]);
    if (y.size == 0) return;
    sum(call, Stack<T>(call, a), row_major<T>(call, b), from_a, from_b, to, n, y, [](int64_t, int64_t) {});
  }

  // `also(t, ahead)` is called with each product and with one that comes later.
  template <class Also>
  static void sum(const lz_call* call, const Stack<T>& stack, const T* vectors, const int32_t* from_a,
                  const int32_t* from_b, const int32_t* to, int64_t n, const lz_operand& y, Also also) {
    const int64_t cells = stack.at.groups * stack.at.rows, width = stack.at.groups * stack.at.columns;
    sum_products(call, to, n, y.shape[0], cells, stack.at.columns, static_cast<T*>(y.data),
                 [&](int64_t t, int64_t end, T* result) {
                   const int64_t ahead = std::min(t + kAhead, end - 1);
                   // The processor itself fetches better what comes in order.
                   if (from_a[ahead] != from_a[t] + kAhead) stack.fetch(from_a[ahead]);
                   fetch(vectors + from_b[ahead] * width,
                         std::min<int64_t>(width * int64_t(sizeof(T)), kFetched));
                   stack.product(from_a[t], vectors + from_b[t] * width, result);
                   also(t, ahead);
                 });
  }
};

// x [X, G, M], b [B, G, C], positions of T products → [K, G, M, C]
template <class T>
struct Vvor {
  static void run(const lz_call* call) {
    const char* op = "vvor";
    const lz_operand &x = call->in[0], &b = call->in[1], &y = call->out[0];
    const int64_t n = call->in[2].size;
    const int32_t* from_x = positions(call, op, call->in[2], x.shape[0]);
    const int32_t* from_b = positions(call, op, call->in[3], b.shape[0]);
    const int32_t* to = positions(call, op, call->in[4], y.shape[0]);
    if (y.size == 0) return;
    sum(call, row_major<T>(call, x), row_major<T>(call, b), from_x, from_b, to, n, y);
  }

  static void sum(const lz_call* call, const T* left, const T* right, const int32_t* from_x,
                  const int32_t* from_b, const int32_t* to, int64_t n, const lz_operand& y) {
    const Outer sizes{y.shape[1], y.shape[2], y.shape[3]};
    const int64_t height = sizes.groups * sizes.rows, width = sizes.groups * sizes.columns,
                  cells = sizes.size(), count = y.shape[0];
    T* out = static_cast<T*>(y.data);
    const auto product = [&](int64_t t, bool streamed, T* result) {
      write_outer(left + from_x[t] * height, right + from_b[t] * width, sizes, streamed, result);
    };
    const auto fetch_pair = [&](int64_t t) {
      fetch(left + from_x[t] * height, std::min<int64_t>(height * int64_t(sizeof(T)), kFetched));
      fetch(right + from_b[t] * width, std::min<int64_t>(width * int64_t(sizeof(T)), kFetched));
    };
    const double each = price_of(cells + 16);
    if (rows_alone(call, to, n, count)) {
      // Large results are written fastest in their own order; operands are small beside them.
      const int32_t* of_rows = products_of_rows(call, to, n, count);
      const bool streamed = streams<T>(y, sizes);
      return parallel(call, count, each, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; r++) {
          const int32_t t = of_rows[r], next = of_rows[std::min(r + kAhead, end - 1)];
          if (next >= 0) fetch_pair(next);
          if (t >= 0)
            product(t, streamed, out + r * cells);
          else
            std::fill_n(out + r * cells, cells, T(0));
        }
        end_of_stream();
      });
    }
    const Rows lists = rows_of(call, to, n, count);
    parallel(call, count, 10 + each * double(n) / double(count), [&](int64_t begin, int64_t end) {
      std::vector<double> total(static_cast<size_t>(cells));
      std::vector<T> result(static_cast<size_t>(cells));
      for (int64_t r = begin; r < end; r++) {
        std::fill(total.begin(), total.end(), 0.0);
        for (int64_t i = lists.starts[r]; i < lists.starts[r + 1]; i++) {
          fetch_pair(lists.order[std::min<int64_t>(i + kAhead, lists.starts[end] - 1)]);
          product(lists.order[i], false, result.data());
          add_to(result.data(), cells, total.data());
        }
        for (int64_t j = 0; j < cells; j++) out[r * cells + j] = T(total[size_t(j)]);
      }
    });
  }
};

// The derivatives of mvmr: a [A, G, M, C], b [B, G, C], g [K, G, M], positions of T products → [A, G, M, C]
// and [B, G, C]. Matrices are read once, and each is written beside, where none is in several products.
template <class T>
struct MvmrGradients {
  static void run(const lz_call* call) {
    const char* op = "mvmr";
    const lz_operand &a = call->in[0], &b = call->in[1], &g = call->in[2], &of_a = call->out[0],
                     &of_b = call->out[1];
    const int64_t n = call->in[3].size;
    const int32_t* from_a = positions(call, op, call->in[3], a.shape[0]);
    const int32_t* from_b = positions(call, op, call->in[4], b.shape[0]);
    const int32_t* to = positions(call, op, call->in[5], g.shape[0]);
    const T *vectors = row_major<T>(call, b), *rows = row_major<T>(call, g);
    Stack<T> stack(call, a);
    stack.transpose();
    const Outer sizes{a.shape[1], a.shape[2], a.shape[3]};
    const int64_t height = sizes.groups * sizes.rows, width = sizes.groups * sizes.columns;
    const uint64_t* alone = rows_alone(call, from_a, n, a.shape[0]);
    if (alone == nullptr || of_b.size == 0) {
      if (of_a.size > 0) Vvor<T>::sum(call, rows, vectors, to, from_b, from_a, n, of_a);
      if (of_b.size > 0)
        Mvmr<T>::sum(call, stack, rows, from_a, to, from_b, n, of_b, [](int64_t, int64_t) {});
      return;
    }
    T* out = static_cast<T*>(of_a.data);
    clear_others(call, alone, n, a.shape[0], sizes.size(), out);
    const bool streamed = streams<T>(of_a, sizes);
    Mvmr<T>::sum(call, stack, rows, from_a, to, from_b, n, of_b, [&](int64_t t, int64_t ahead) {
      fetch(vectors + from_b[ahead] * width, std::min<int64_t>(width * int64_t(sizeof(T)), kFetched));
      write_outer(rows + to[t] * height, vectors + from_b[t] * width, sizes, streamed,
                  out + from_a[t] * sizes.size());
    });
  }
};

}  // namespace

lz_status mvmr(const lz_call* call) { return run<Mvmr>(call); }
lz_status mvmr_gradients(const lz_call* call) { return run<MvmrGradients>(call); }
lz_status vvor(const lz_call* call) { return run<Vvor>(call); }

}  // namespace pointcloud
