// Rows of softmax and log-sum-exp. Three passes while a row lies in cache: maximum, exponentials with their
// sum, scaling. While exponentials are computed, memory would be idle: the next row is fetched then. A NaN
// anywhere makes the whole row NaN, as the formula does.
#include "simd/softmax.h"

#include <math.h>

#include <hwy/cache_control.h>

#include "simd/exp.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

template <class T>
HWY_INLINE float row_max(const T* x, int64_t n) {
  const Floats d;
  const int64_t N = int64_t(hn::Lanes(d));
  auto a = hn::Set(d, -INFINITY), b = a, c = a, e = a;
  int64_t i = 0;
  for (; i + 4 * N <= n; i += 4 * N) {
    a = hn::Max(load(d, x + i), a);
    b = hn::Max(load(d, x + i + N), b);
    c = hn::Max(load(d, x + i + 2 * N), c);
    e = hn::Max(load(d, x + i + 3 * N), e);
  }
  for (; i + N <= n; i += N) a = hn::Max(load(d, x + i), a);
  if (i < n) b = hn::Max(load_some(d, x + i, n - i, -INFINITY), b);
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(a, b), hn::Max(c, e))));
}

// Σ exp(x - max); `each(i, count, e)` sees the exponentials of x[i … i + count - 1].
template <class T, class F>
HWY_INLINE float sum_exp(const T* x, int64_t n, float max, F each) {
  const Floats d;
  const int64_t N = int64_t(hn::Lanes(d));
  const auto m = hn::Set(d, max);
  auto a = hn::Zero(d), b = a;
  int64_t i = 0;
  for (; i + 2 * N <= n; i += 2 * N) {
    const auto p = exp_nonpositive(d, hn::Sub(load(d, x + i), m));
    const auto q = exp_nonpositive(d, hn::Sub(load(d, x + i + N), m));
    a = hn::Add(a, p);
    b = hn::Add(b, q);
    each(i, N, p);
    each(i + N, N, q);
  }
  for (; i < n; i += N) {
    const int64_t count = n - i < N ? n - i : N;
    const auto in = count == N ? load(d, x + i) : load_some(d, x + i, count, -INFINITY);
    const auto p = exp_nonpositive(d, hn::Sub(in, m));
    a = hn::Add(a, p);
    each(i, count, p);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b)));
}

// The same column of the next row, or some way ahead where rows are short.
template <class T>
HWY_INLINE const T* ahead(const T* x, int64_t stride) {
  constexpr int64_t kLeast = 4096 / int64_t(sizeof(T));
  return x + (stride < kLeast ? kLeast : stride);
}

template <class T>
HWY_INLINE void scale_row(const float* from, float by, T* y, int64_t n) {
  const Floats d;
  const int64_t N = int64_t(hn::Lanes(d));
  const auto scale = hn::Set(d, by);
  int64_t i = 0;
  for (; i + N <= n; i += N) store(d, hn::Mul(hn::LoadU(d, from + i), scale), y + i);
  for (; i < n; i++) y[i] = from_float<T>(from[i] * by);
}

// Around the caches.
HWY_INLINE void stream_row(const float* from, float by, float* y, int64_t n) {
  const Floats d;
  const int64_t N = int64_t(hn::Lanes(d));
  const auto scale = hn::Set(d, by);
  int64_t i = 0;
  for (; i < n && reinterpret_cast<uintptr_t>(y + i) % (sizeof(float) * hn::Lanes(d)) != 0; i++)
    y[i] = from[i] * by;
  for (; i + N <= n; i += N) hn::Stream(hn::Mul(hn::LoadU(d, from + i), scale), d, y + i);
  for (; i < n; i++) y[i] = from[i] * by;
}

template <class T>
void softmax(const void* x_data, int64_t rows, int64_t x_stride, int64_t n, void* y_data, int64_t y_stride,
             bool streaming) {
  constexpr int64_t kKept = 16384;
  const T* x = static_cast<const T*>(x_data);
  T* y = static_cast<T*>(y_data);
  const Floats d;
  using V = hn::Vec<Floats>;
  HWY_ALIGN float kept[kKept];
  for (int64_t row = 0; row < rows; row++, x += x_stride, y += y_stride) {
    const float max = row_max(x, n);
    const T* next = ahead(x, x_stride);
    // Exponentials are kept in float32: the half types could not hold them without rounding twice.
    float* exps = kept;
    if constexpr (same_type<T, float>)
      if (!streaming || n > kKept) exps = y;
    if (same_type<T, float> || n <= kKept) {
      const float sum = sum_exp(x, n, max, [&](int64_t i, int64_t count, V e) LZ_INLINE_LAMBDA {
        hwy::Prefetch(next + i);
        store_some(d, e, exps + i, count);
      });
      if constexpr (same_type<T, float>)
        if (exps == kept) {
          stream_row(exps, 1.0f / sum, y, n);
          continue;
        }
      scale_row(exps, 1.0f / sum, y, n);
    } else {
      const float sum = sum_exp(x, n, max, [](int64_t, int64_t, V) {});
      const auto scale = hn::Set(d, 1.0f / sum);
      sum_exp(x, n, max, [&](int64_t i, int64_t count, V e) LZ_INLINE_LAMBDA {
        store_some(d, hn::Mul(e, scale), y + i, count);
      });
    }
  }
  if (streaming) hwy::FlushStream();
}

template <class T>
void logsumexp(const void* x_data, int64_t rows, int64_t x_stride, int64_t n, void* y_data,
               int64_t y_stride) {
  const T* x = static_cast<const T*>(x_data);
  T* y = static_cast<T*>(y_data);
  for (int64_t row = 0; row < rows; row++, x += x_stride, y += y_stride) {
    const float max = row_max(x, n);
    if (max == INFINITY) {
      bool nan = false;
      for (int64_t i = 0; i < n; i++) nan |= to_float(x[i]) != to_float(x[i]);
      *y = from_float<T>(nan ? NAN : INFINITY);
      continue;
    }
    // Where all are −∞ the differences would be NaN; around 0 the sum is 0, or NaN where there is one.
    const float around = max == -INFINITY ? 0 : max;
    const T* next = ahead(x, x_stride);
    const float sum = sum_exp(
        x, n, around, [&](int64_t i, int64_t, hn::Vec<Floats>) LZ_INLINE_LAMBDA { hwy::Prefetch(next + i); });
    *y = from_float<T>(around + logf(sum));
  }
}

constexpr SoftmaxTable make_table() {
  SoftmaxTable table{};
  table.softmax[kFloat16] = softmax<float16>;
  table.softmax[kBfloat16] = softmax<bfloat16>;
  table.softmax[kFloat32] = softmax<float>;
  table.logsumexp[kFloat16] = logsumexp<float16>;
  table.logsumexp[kBfloat16] = logsumexp<bfloat16>;
  table.logsumexp[kFloat32] = logsumexp<float>;
  return table;
}

}  // namespace

const SoftmaxTable& softmax_table() {
  static constexpr SoftmaxTable table = make_table();
  return table;
}

}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();
