// argmax and argmin along one axis: the index of the first extreme element, or of the first NaN where there
// is one. The loops are in simd/reduce.cc.
#include <complex>

#include "kernels/families.h"
#include "kernels/layout.h"
#include "simd/reduce.h"

namespace lazuli {
namespace {

template <class T>
uint32_t extreme(const T* x, int64_t n, ReduceOp op, int32_t dtype) {
  if constexpr (is_complex<T>) {
    int64_t best = 0;
    for (int64_t i = 1; i < n && !is_nan(x[best]); i++) {
      if (is_nan(x[i]) || (op == kMax ? less(x[best], x[i]) : less(x[i], x[best]))) best = i;
    }
    return uint32_t(best);
  } else {
    return uint32_t(reduce_table().arg_row[op][dtype](x, n));
  }
}

static_assert(std::is_same_v<params::Argmin, params::Argmax>);

void argreduce(const lz_call& call, const char* op, ReduceOp reduce) {
  require_counts(call, op, 1, 1);
  const lz_operand &x = call.in[0], &y = call.out[0];
  const int axis = int(normalize_axis(call, op, params::Argmax(call).axis, x.ndim));
  bool fits = y.ndim == x.ndim && y.dtype == LZ_UINT32;
  for (int d = 0; d < x.ndim && fits; d++) fits = y.shape[d] == (d == axis ? 1 : x.shape[d]);
  require(call, fits, "[%s] the output's shape or dtype does not fit the input's", op);
  if (y.size == 0) return;
  const int64_t n = x.shape[axis];
  require(call, n > 0, "[%s] the axis has no elements", op);
  require(call, n <= UINT32_MAX, "[%s] the axis has more than 2^32 - 1 elements", op);
  // Before a contiguous rest, rows are compared element by element.
  int64_t width = 1;
  for (int d = axis + 1; d < x.ndim; d++) width *= x.shape[d];
  const auto across = reduce_table().arg_columns[reduce][x.dtype];
  if (across && width >= 16 && is_contiguous(x)) {
    const int64_t blocks = (width + kArgColumns - 1) / kArgColumns, size = itemsize(x.dtype);
    return parallel(call, y.size / width * blocks,
                    (2 + 0.15 * double(size)) * double(n * std::min(width, kArgColumns)),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; i++) {
                        const int64_t outer = i / blocks, at = i % blocks * kArgColumns;
                        across(data<const char>(x) + (outer * n * width + at) * size, n, width,
                               std::min(kArgColumns, width - at), data<uint32_t>(y) + outer * width + at);
                      }
                    });
  }
  dispatch_among<every>(x.dtype, [&]<class T>() {
    const T* from = rows_along<T>(call, x, axis);
    uint32_t* to = data<uint32_t>(y);
    parallel(call, y.size, 10 + 0.15 * sizeof(T) * double(n), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; row++) to[row] = extreme(from + row * n, n, reduce, x.dtype);
    });
  });
}

void argmax(const lz_call& call) { argreduce(call, "argmax", kMax); }
void argmin(const lz_call& call) { argreduce(call, "argmin", kMin); }

}  // namespace

void register_argreduce(Registry& registry) {
  registry.add("argmax", entry<argmax>);
  registry.add("argmin", entry<argmin>);
}

}  // namespace lazuli
