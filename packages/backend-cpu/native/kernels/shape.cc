// concatenate, pad, sliceUpdate and arange: results put together from pieces at positions that their
// parameters say.
#include "kernels/families.h"
#include "kernels/update.h"

namespace lazuli {
namespace {

// Copies x into y from `first`, an element of y, on.
void copy_to(const lz_call& call, const lz_operand& x, const lz_operand& y, int64_t first) {
  Layout<2> layout;
  int64_t step[kMaxDims];
  row_major(y.shape, y.ndim, step);
  for (int d = 0; d < y.ndim; d++) layout.push(x.shape[d], {step[d], x.strides[d]});
  const int64_t bytes = itemsize(y.dtype);
  copy_strided(call, layout, bytes, data<char>(y) + first * bytes, x.data);
}

void concatenate(const lz_call& call) {
  require(call, call.n_in >= 1 && call.n_out == 1, "[concatenate] expected inputs and 1 output");
  const lz_operand& y = call.out[0];
  const int axis = int(normalize_axis(call, "concatenate", params::Concatenate(call).axis, y.ndim));
  int64_t step = 1, total = 0;
  for (int d = axis + 1; d < y.ndim; d++) step *= y.shape[d];
  for (int i = 0; i < call.n_in; i++) {
    const lz_operand& x = call.in[i];
    bool fits = x.ndim == y.ndim && x.dtype == y.dtype;
    for (int d = 0; d < y.ndim && fits; d++) fits = d == axis || x.shape[d] == y.shape[d];
    require(call, fits, "[concatenate] input %d does not fit the output", i);
    total += x.shape[axis];
  }
  require(call, total == y.shape[axis],
          "[concatenate] the inputs have %lld elements along the axis, the output %lld", (long long)total,
          (long long)y.shape[axis]);
  int64_t at = 0;
  for (int i = 0; i < call.n_in; i++) {
    if (call.in[i].size > 0) copy_to(call, call.in[i], y, at * step);
    at += call.in[i].shape[axis];
  }
}

void pad(const lz_call& call) {
  require_counts(call, "pad", 2, 1);
  const lz_operand &x = call.in[0], &value = call.in[1], &y = call.out[0];
  const params::Pad params(call);
  const auto low = params.low, high = params.high;
  bool fits = x.ndim == y.ndim && int64_t(low.size()) == x.ndim && high.size() == low.size() &&
              x.dtype == y.dtype && value.dtype == x.dtype && value.size == 1;
  int64_t first = 0;
  for (int d = 0; d < x.ndim && fits; d++) {
    fits = low[size_t(d)] >= 0 && high[size_t(d)] >= 0 &&
           y.shape[d] == low[size_t(d)] + x.shape[d] + high[size_t(d)];
    first = first * y.shape[d] + low[size_t(d)];
  }
  require(call, fits, "[pad] the output's shape or dtype does not fit the operands");
  if (x.size < y.size) {
    dispatch_width(y.dtype, [&]<class U>() {
      const U fill = *data<const U>(value);
      parallel(call, y.size, 0.05 * sizeof(U),
               [&](int64_t begin, int64_t end) { std::fill(data<U>(y) + begin, data<U>(y) + end, fill); });
    });
  }
  if (x.size > 0) copy_to(call, x, y, first);
}

void slice_update(const lz_call& call) {
  require_counts(call, "sliceUpdate", 2, 1);
  const lz_operand &x = call.in[0], &values = call.in[1], &y = call.out[0];
  const params::SliceUpdate params(call);
  const auto start = params.start, strides = params.strides;
  const auto mode = int64_t(params.mode);
  require_same(call, "sliceUpdate", x, y);
  bool fits = values.ndim == x.ndim && values.dtype == x.dtype && int64_t(start.size()) == x.ndim &&
              strides.size() == start.size();
  int64_t step[kMaxDims], first = 0;
  row_major(y.shape, y.ndim, step);
  Layout<2> layout;
  for (int d = 0; d < x.ndim && fits; d++) {
    const int64_t n = values.shape[d], begin = start[size_t(d)], each = strides[size_t(d)];
    if (n == 0) continue;
    // The first and the last index along the axis, without overflow for any parameter.
    fits = begin >= 0 && begin < x.shape[d] &&
           (n == 1 || (each != 0 && n - 1 <= (each > 0 ? x.shape[d] - 1 - begin : begin) / std::abs(each)));
    if (!fits) break;
    first += begin * step[d];
    layout.push(n, {n == 1 ? 0 : each * step[d], values.strides[d]});
  }
  require(call, fits, "[sliceUpdate] the update does not fit x");
  copy_into(call, x, y);
  if (values.size == 0) return;
  const int64_t bytes = itemsize(x.dtype);
  char* to = data<char>(y) + first * bytes;
  if (mode == int64_t(Update::set)) return copy_strided(call, layout, bytes, to, values.data);
  const UpdateRun run = find_update(call, "sliceUpdate", mode, x.dtype);
  layout.collapse();
  const int inner = layout.ndim - 1;
  const int64_t to_step = layout.ndim ? layout.strides[0][inner] : 0,
                from_step = layout.ndim ? layout.strides[1][inner] : 0;
  parallel(call, values.size, 1, [&](int64_t begin, int64_t end) {
    for_runs(layout, begin, end, [&](const std::array<int64_t, 2>& at, int64_t count) {
      run(to + at[0] * bytes, to_step, data<const char>(values) + at[1] * bytes, from_step, count);
    });
  });
}

void arange(const lz_call& call) {
  require_counts(call, "arange", 0, 1);
  const lz_operand& y = call.out[0];
  require(call, y.ndim == 1, "[arange] the output must have 1 dimension");
  const params::Arange params(call);
  const double start = params.start, step = params.step;
  dispatch_or_fail<real_types>(call, "arange", y.dtype, [&]<class T>() {
    T* to = data<T>(y);
    parallel(call, y.size, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) to[i] = convert<T>(start + double(i) * step);
    });
  });
}

}  // namespace

void register_shape(Registry& registry) {
  registry.add("concatenate", entry<concatenate>);
  registry.add("pad", entry<pad>);
  registry.add("sliceUpdate", entry<slice_update>);
  registry.add("arange", entry<arange>);
}

}  // namespace lazuli
