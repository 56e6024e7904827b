// softmax and logsumexp along one axis. Rows of float32 and the half types go to simd/softmax.cc; float64 has
// its loop here. An axis that is not contiguous is copied to be so, and the result back. Everything is
// computed in at least float32, so `precise` changes nothing.
#include "simd/softmax.h"

#include <cmath>

#include "kernels/families.h"
#include "kernels/layout.h"
#include "runtime/blocks.h"

namespace lazuli {
namespace {

double row_max(const double* x, int64_t n) {
  double max = -INFINITY;
  for (int64_t i = 0; i < n; i++) max = x[i] > max ? x[i] : max;
  return max;
}

void softmax_f64(const void* x_data, int64_t rows, int64_t x_stride, int64_t n, void* y_data,
                 int64_t y_stride, bool) {
  for (int64_t row = 0; row < rows; row++) {
    const double* x = static_cast<const double*>(x_data) + row * x_stride;
    double* y = static_cast<double*>(y_data) + row * y_stride;
    const double max = row_max(x, n);
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += y[i] = std::exp(x[i] - max);
    for (int64_t i = 0; i < n; i++) y[i] /= sum;
  }
}

void logsumexp_f64(const void* x_data, int64_t rows, int64_t x_stride, int64_t n, void* y_data,
                   int64_t y_stride) {
  for (int64_t row = 0; row < rows; row++) {
    const double* x = static_cast<const double*>(x_data) + row * x_stride;
    const double max = row_max(x, n), around = std::isfinite(max) ? max : 0;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += std::exp(x[i] - around);
    static_cast<double*>(y_data)[row * y_stride] = around + std::log(sum);
  }
}

// Runs kernel(x, rows, x_stride, n, y, y_stride) along `axis` of x; y has rows of `width` elements.
template <class F>
void run_rows(const lz_call& call, F&& kernel, int axis, int64_t width) {
  const lz_operand &x = call.in[0], &y = call.out[0];
  const int64_t n = x.shape[axis], size = itemsize(x.dtype);
  if (y.size == 0) return;
  const int64_t rows = y.size / width;
  const double price = (x.dtype == LZ_FLOAT64 ? 8.0 : x.dtype == LZ_FLOAT32 ? 0.6 : 1.2) * double(n) + 10;
  bool last = true;
  for (int d = axis + 1; d < x.ndim; d++) last &= x.shape[d] == 1;
  if (last && (n == 1 || x.strides[axis] == 1)) {
    // Rows in place, wherever they lie.
    Layout<2> outer;
    int64_t y_strides[kMaxDims];
    row_major(y.shape, y.ndim, y_strides);
    for (int d = 0; d < axis; d++) outer.push(x.shape[d], {x.strides[d], y_strides[d]});
    outer.collapse();
    const int inner = outer.ndim - 1;
    const int64_t x_stride = outer.ndim ? outer.strides[0][inner] : 0,
                  y_stride = outer.ndim ? outer.strides[1][inner] : 0;
    return parallel(call, rows, price, [&](int64_t begin, int64_t end) {
      for_runs(outer, begin, end, [&](const std::array<int64_t, 2>& at, int64_t count) {
        kernel(data<const char>(x) + at[0] * size, count, x_stride, n, data<char>(y) + at[1] * size,
               y_stride);
      });
    });
  }
  const char* from = static_cast<const char*>(packed_axis_last(call, x, axis));
  char* to = width == 1 ? data<char>(y) : const_cast<char*>(from);
  parallel(call, rows, price, [&](int64_t begin, int64_t end) {
    kernel(from + begin * n * size, end - begin, n, n, to + begin * width * size, width);
  });
  if (width != 1) unpack_axis_last(call, y, axis, to);
}

void softmax(const lz_call& call) {
  require_counts(call, "softmax", 1, 1);
  const lz_operand &x = call.in[0], &y = call.out[0];
  require_same(call, "softmax", x, y);
  const int64_t axis = params::Softmax(call).axis;
  if (x.ndim == 0) {
    return dispatch_or_fail<floating_types>(call, "softmax", x.dtype, [&]<class T>() {
      const auto v = compute_t<T>(*data<const T>(x));
      *data<T>(y) = T(v - v == 0 ? 1 : NAN);
    });
  }
  const auto kernel = x.dtype == LZ_FLOAT64 ? softmax_f64 : softmax_table().softmax[x.dtype];
  if (kernel == nullptr) fail_dtype(call, "softmax", x.dtype);
  const int at = int(normalize_axis(call, "softmax", axis, x.ndim));
  const bool streaming = size_t(x.size) * 2 * size_t(itemsize(x.dtype)) > last_level_cache();
  run_rows(
      call,
      [&](const void* from, int64_t rows, int64_t x_stride, int64_t n, void* to, int64_t y_stride) {
        // Scratch is computed in place, and read again.
        kernel(from, rows, x_stride, n, to, y_stride, streaming && from != to);
      },
      at, x.shape[at]);
}

void logsumexp(const lz_call& call) {
  require_counts(call, "logsumexp", 1, 1);
  const lz_operand &x = call.in[0], &y = call.out[0];
  const int axis = int(normalize_axis(call, "logsumexp", params::Logsumexp(call).axis, x.ndim));
  bool fits = y.ndim == x.ndim && y.dtype == x.dtype;
  for (int d = 0; d < x.ndim && fits; d++) fits = y.shape[d] == (d == axis ? 1 : x.shape[d]);
  require(call, fits, "[logsumexp] the output's shape or dtype does not fit the input's");
  const auto kernel = x.dtype == LZ_FLOAT64 ? logsumexp_f64 : softmax_table().logsumexp[x.dtype];
  if (kernel == nullptr) fail_dtype(call, "logsumexp", x.dtype);
  run_rows(call, kernel, axis, 1);
}

}  // namespace

void register_softmax(Registry& registry) {
  registry.add("softmax", entry<softmax>, kFloatingDtypes);
  registry.add("logsumexp", entry<logsumexp>, kFloatingDtypes);
}

}  // namespace lazuli
