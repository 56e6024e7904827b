// rope: pairs of an array's first features turned by position · scale / frequency. Angles are computed in
// float32, step by step as the primitive's decomposition does, whose bits these are; float64 decomposes.
#include "simd/rope.h"

#include <cmath>
#include <cstring>

#include "kernels/families.h"
#include "kernels/layout.h"
#include "runtime/scalar_ops.h"

namespace lazuli {
namespace {

// y = f(x) for n numbers, as elementwise programs compute it.
void apply(Op f, const float* x, float* y, int64_t n) {
  micro_table().sets[int(f)][LZ_FLOAT32].dense(y, x, nullptr, nullptr, n);
}

// The factors of positions.
void write_rates(const lz_call& call, const params::Rope& params, int64_t half, float* rates) {
  if (!params.base) {
    const float* freqs = contiguous<float>(call, call.in[2]);
    return apply(Op::reciprocal, freqs, rates, half);
  }
  const float step = float(-std::log(*params.base) / double(half));
  for (int64_t i = 0; i < half; i++) rates[i] = float(i) * step;
  apply(Op::exp, rates, rates, half);
}

void rope(const lz_call& call) {
  constexpr const char* op = "rope";
  const params::Rope params(call);
  require_counts(call, op, params.base ? 2 : 3, 1);
  const lz_operand &x = call.in[0], &offset = call.in[1], &y = call.out[0];
  require_same(call, op, x, y);
  const int nd = x.ndim;
  require(call, nd >= 3 && offset.ndim <= 1 && params.dims > 0 && params.dims % 2 == 0,
          "[%s] the shapes do not fit", op);
  const int64_t n = x.shape[nd - 1], length = x.shape[nd - 2], half = params.dims / 2;
  bool fits = params.dims <= n && (offset.size == 1 || offset.size == x.shape[0]);
  if (!params.base)
    fits = fits && call.in[2].ndim == 1 && call.in[2].shape[0] == half && call.in[2].dtype == LZ_FLOAT32;
  require(call, fits, "[%s] the shapes do not fit", op);
  const auto rotate = rope_table().rotate[x.dtype];
  if (rotate == nullptr) fail_dtype(call, op, x.dtype);
  if (y.size == 0) return;

  // Sines and cosines of all positions of all examples that begin apart.
  const int64_t positions = offset.size * length;
  float *rates = scratch<float>(call, half), *cos = scratch<float>(call, 2 * positions * half),
        *sin = cos + positions * half;
  write_rates(call, params, half, rates);
  dispatch_or_fail<every>(call, op, offset.dtype, [&]<class T>() {
    const T* begins = contiguous<T>(call, offset);
    for (int64_t i = 0; i < positions; i++) {
      const float at = (float(i % length) + convert<float>(begins[i / length])) * float(params.scale);
      for (int64_t j = 0; j < half; j++) sin[i * half + j] = at * rates[j];
    }
  });
  constexpr int64_t kEach = 64;
  parallel(call, (positions + kEach - 1) / kEach, double(kEach * half) * 2, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * kEach * half, count = std::min(positions, end * kEach) * half - first;
    apply(Op::cos, sin + first, cos + first, count);
    apply(Op::sin, sin + first, sin + first, count);
    for (int64_t i = first; params.inverse && i < first + count; i++) sin[i] = -sin[i];
  });

  // Rows wherever they lie, if their elements follow each other.
  const int64_t size = itemsize(x.dtype);
  const bool in_place = n == 1 || x.strides[nd - 1] == 1;
  const char* from = in_place ? data<const char>(x) : static_cast<const char*>(packed(call, x));
  int64_t strides[kMaxDims];
  row_major(x.shape, nd, strides);
  Layout<2> rows;
  for (int d = 0; d < nd - 1; d++) rows.push(x.shape[d], {in_place ? x.strides[d] : strides[d], strides[d]});
  const int64_t count = x.size / n, of_example = count / x.shape[0];
  parallel(call, count, 10 + 0.5 * double(n), [&](int64_t begin, int64_t end) {
    Cursor<2> cursor(rows, nd - 1, begin);
    for (int64_t row = begin; row < end; row++, cursor.next()) {
      const char* in = from + cursor.offset[0] * size;
      char* out = data<char>(y) + cursor.offset[1] * size;
      const int64_t example = offset.size == 1 ? 0 : row / of_example,
                    at = (example * length + row % length) * half;
      rotate(in, half, params.traditional, cos + at, sin + at, out);
      if (n > params.dims)
        std::memcpy(out + params.dims * size, in + params.dims * size, size_t((n - params.dims) * size));
    }
  });
}

}  // namespace

void register_rope(Registry& registry) {
  registry.add("rope", entry<rope>, kFloatingDtypes & ~(1u << LZ_FLOAT64));
}

}  // namespace lazuli
