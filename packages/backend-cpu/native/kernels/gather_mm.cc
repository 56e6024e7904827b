// gatherMm and segmentedMm. Rows of a that meet the same matrix of b, in neighbouring products, become one
// product, so that b is read once. The half types are computed in float32.
#include <cstring>
#include <vector>

#include "kernels/blas.h"
#include "kernels/families.h"
#include "kernels/half_columns.h"
#include "kernels/source.h"
#include "simd/halves.h"

namespace lazuli {
namespace {

// A stack of matrices as BLAS takes them: by rows, or their transposes by rows.
struct Stack {
  Source source;
  bool transposed;
  int64_t ld, step;
};

// b as it is where its matrices are stored by rows or columns, else a copy. A copy of a half type is float32.
Stack stack_of(const lz_call& call, const lz_operand& x) {
  Source s(x);
  const int64_t rows = s.shape[1], columns = s.shape[2];
  const auto by_rows = [](int64_t n, int64_t length, int64_t step, int64_t unit) {
    return (length == 1 || unit == 1) && (n == 1 || (step >= length && step <= INT32_MAX));
  };
  if (by_rows(rows, columns, s.strides[1], s.strides[2]))
    return {s, false, rows == 1 ? std::max<int64_t>(columns, 1) : s.strides[1], s.strides[0]};
  if (by_rows(columns, rows, s.strides[2], s.strides[1]))
    return {s, true, columns == 1 ? std::max<int64_t>(rows, 1) : s.strides[2], s.strides[0]};
  s = densify(call, s, 1);
  return {s, false, std::max<int64_t>(columns, 1), s.strides[0]};
}

struct Job {
  int64_t matrix, first, rows;
};

// y[first + i] = x[first + i] @ b[matrix]: x holds the rows of all jobs, in T.
template <class T>
void multiply_jobs(const lz_call& call, const std::vector<Job>& jobs, const T* x, const Stack& b, int64_t k,
                   int64_t n, T* y) {
  const int32_t dtype = b.source.dtype;
  const bool half = half_table().widen[dtype] != nullptr;
  for (const Job& job : jobs) {
    const T* rows = x + job.first * k;
    T* to = y + job.first * n;
    const char* matrix = static_cast<const char*>(b.source.data) + job.matrix * b.step * itemsize(dtype);
    const int64_t width = half ? half_columns_width(job.rows, b.transposed) : 256,
                  tasks = (n + width - 1) / width;
    const double price = half_columns_price(job.rows, k, std::min(width, n)) * double(sizeof(T) / 4);
    parallel(call, tasks, price, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; task++) {
        const int64_t column = task * width, columns = std::min(width, n - column);
        if constexpr (std::is_same_v<T, float>) {
          if (half) {
            multiply_half_columns({rows, false, k, job.rows, k}, {matrix, dtype, b.transposed, b.ld}, column,
                                  columns, 1, 0, to, n);
            continue;
          }
        }
        const T* from = reinterpret_cast<const T*>(matrix) + (b.transposed ? column * b.ld : column);
        if (job.rows == 1)
          blas::gemv(!b.transposed, b.transposed ? columns : k, b.transposed ? k : columns, T(1), from, b.ld,
                     rows, 1, T(0), to + column, 1);
        else
          blas::gemm(false, b.transposed, job.rows, columns, k, T(1), rows, k, from, b.ld, T(0), to + column,
                     n);
      }
    });
  }
}

// Where a result of type T is computed: in itself, or in scratch to be narrowed.
template <class T, class F>
void into_result(const lz_call& call, F&& compute) {
  const lz_operand& y = call.out[0];
  const auto narrow = half_table().narrow[y.dtype];
  T* to = narrow ? scratch<T>(call, y.size) : data<T>(y);
  compute(to);
  if constexpr (std::is_same_v<T, float>) {
    if (narrow)
      parallel(call, y.size, 0.3, [&](int64_t begin, int64_t end) {
        narrow(to + begin, data<char>(y) + 2 * begin, end - begin);
      });
  }
}

template <class T>
void gather_rows(const lz_call& call, const std::vector<int64_t>& lhs, const std::vector<int64_t>& rhs) {
  const lz_operand &a = call.in[0], &b = call.in[1], &y = call.out[0];
  const int64_t rows = a.shape[1], k = a.shape[2], n = b.shape[2], size = rows * k;
  const T* from = static_cast<const T*>(densify(call, Source(a), 0).data);
  T* gathered = scratch<T>(call, y.shape[0] * size);
  std::vector<Job> jobs;
  for (size_t i = 0; i < lhs.size(); i++) {
    if (size > 0) std::memcpy(gathered + int64_t(i) * size, from + lhs[i] * size, size_t(size) * sizeof(T));
    if (!jobs.empty() && jobs.back().matrix == rhs[i])
      jobs.back().rows += rows;
    else
      jobs.push_back({rhs[i], int64_t(i) * rows, rows});
  }
  into_result<T>(call, [&](T* to) {
    if (k == 0)
      std::fill_n(to, y.size, T(0));
    else
      multiply_jobs<T>(call, jobs, gathered, stack_of(call, b), k, n, to);
  });
}

void gather_mm(const lz_call& call) {
  constexpr const char* op = "gatherMm";
  require_counts(call, op, 4, 1);
  const lz_operand &a = call.in[0], &b = call.in[1], &y = call.out[0], *lists = call.in + 2;
  bool fits = a.ndim == 3 && b.ndim == 3 && y.ndim == 3 && a.dtype == b.dtype && a.dtype == y.dtype;
  fits = fits && a.shape[2] == b.shape[1] && y.shape[1] == a.shape[1] && y.shape[2] == b.shape[2] &&
         lists[0].size == y.shape[0] && lists[1].size == y.shape[0] &&
         std::max({a.shape[1], a.shape[2], b.shape[2], y.shape[0] * a.shape[1]}) <= INT32_MAX;
  require(call, fits, "[%s] the shapes or dtypes of the operands do not fit", op);
  const auto lhs = read_indices(call, op, lists[0], a.shape[0]);
  const auto rhs = read_indices(call, op, lists[1], b.shape[0]);
  if (y.size == 0) return;
  if (a.dtype == LZ_FLOAT64)
    gather_rows<double>(call, lhs, rhs);
  else
    gather_rows<float>(call, lhs, rhs);
}

template <class T>
void multiply_segments(const lz_call& call) {
  const lz_operand &a = call.in[0], &b = call.in[1], &segments = call.in[2], &y = call.out[0];
  const int64_t m = a.shape[0], k = a.shape[1], n = b.shape[1];
  std::vector<int64_t> bounds(size_t(segments.size));
  dispatch_or_fail<index_types>(call, "segmentedMm", segments.dtype, [&]<class I>() {
    for (int64_t i = 0; i < segments.size; i++) {
      const I raw = data<const I>(segments)[i / 2 * segments.strides[0] + i % 2 * segments.strides[1]];
      const bool beyond = std::is_unsigned_v<I> ? uint64_t(raw) > uint64_t(k) : int64_t(raw) > k;
      bounds[size_t(i)] = beyond ? k : std::max<int64_t>(int64_t(raw), 0);
    }
  });
  const T* x = static_cast<const T*>(densify(call, Source(a), 0).data);
  const T* w = static_cast<const T*>(densify(call, Source(b), 0).data);
  into_result<T>(call, [&](T* to) {
    parallel(call, y.shape[0], 200 + 0.03 * double(m) * double(n) * double(k),
             [&](int64_t begin, int64_t end) {
               for (int64_t s = begin; s < end; s++) {
                 const int64_t first = bounds[size_t(2 * s)], last = bounds[size_t(2 * s + 1)];
                 if (first >= last)
                   std::fill_n(to + s * m * n, m * n, T(0));
                 else
                   blas::gemm(false, false, m, n, last - first, T(1), x + first, k, w + first * n, n, T(0),
                              to + s * m * n, n);
               }
             });
  });
}

void segmented_mm(const lz_call& call) {
  constexpr const char* op = "segmentedMm";
  require_counts(call, op, 3, 1);
  const lz_operand &a = call.in[0], &b = call.in[1], &segments = call.in[2], &y = call.out[0];
  bool fits = a.ndim == 2 && b.ndim == 2 && segments.ndim == 2 && y.ndim == 3 && a.dtype == b.dtype &&
              a.dtype == y.dtype && a.shape[1] == b.shape[0] && segments.shape[1] == 2;
  fits = fits && y.shape[0] == segments.shape[0] && y.shape[1] == a.shape[0] && y.shape[2] == b.shape[1] &&
         std::max({a.shape[0], a.shape[1], b.shape[1]}) <= INT32_MAX;
  require(call, fits, "[%s] the shapes or dtypes of the operands do not fit", op);
  if (y.size == 0) return;
  if (a.dtype == LZ_FLOAT64)
    multiply_segments<double>(call);
  else
    multiply_segments<float>(call);
}

}  // namespace

void register_gather_mm(Registry& registry) {
  registry.add("gatherMm", entry<gather_mm>, kFloatingDtypes);
  registry.add("segmentedMm", entry<segmented_mm>, kFloatingDtypes);
}

}  // namespace lazuli
