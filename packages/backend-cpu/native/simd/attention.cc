// Loops over blocks of attention scores. The online softmax is that of Milakov and Gimelshein, "Online
// normalizer calculation for softmax", 2018.
#include "simd/attention.h"

#include <math.h>

#include "simd/exp.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

using V = hn::Vec<Floats>;

HWY_INLINE V take(const float* x, int64_t i, int64_t n, float rest) {
  const Floats d;
  return i + int64_t(hn::Lanes(d)) <= n ? hn::LoadU(d, x + i) : load_some(d, x + i, n - i, rest);
}
HWY_INLINE void put(V v, float* y, int64_t i, int64_t n) {
  const Floats d;
  const int64_t N = int64_t(hn::Lanes(d));
  store_some(d, v, y + i, i + N <= n ? N : n - i);
}

// Replaces a row by exp(row − shift) and returns its sum.
HWY_INLINE float exponentials(float* row, int64_t n, float shift) {
  const Floats d;
  const int64_t N = int64_t(hn::Lanes(d));
  const V m = hn::Set(d, shift);
  V a = hn::Zero(d), b = a;
  int64_t i = 0;
  for (; i + 2 * N <= n; i += 2 * N) {
    const V p = exp_nonpositive(d, hn::Sub(hn::LoadU(d, row + i), m)),
            q = exp_nonpositive(d, hn::Sub(hn::LoadU(d, row + i + N), m));
    a = hn::Add(a, p);
    b = hn::Add(b, q);
    hn::StoreU(p, d, row + i);
    hn::StoreU(q, d, row + i + N);
  }
  for (; i < n; i += N) {
    const V p = exp_nonpositive(d, hn::Sub(take(row, i, n, -INFINITY), m));
    a = hn::Add(a, p);
    put(p, row, i, n);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b)));
}

void online_softmax(float* scores, int64_t rows, int64_t n, int64_t stride, float* max, float* sum,
                    float* rescale) {
  const Floats d;
  const int64_t N = int64_t(hn::Lanes(d));
  const auto raise = [&](int64_t row) HWY_ATTR LZ_INLINE_LAMBDA {
    const float* x = scores + row * stride;
    V top = hn::Set(d, max[row]);
    for (int64_t i = 0; i < n; i += N) top = hn::Max(take(x, i, n, -INFINITY), top);
    return hn::GetLane(hn::MaxOfLanes(d, top));
  };
  for (int64_t first = 0; first < rows; first += N) {
    const int64_t count = rows - first < N ? rows - first : N;
    HWY_ALIGN float high[hn::MaxLanes(d)], shift[hn::MaxLanes(d)] = {};
    for (int64_t i = 0; i < count; i++) {
      high[i] = raise(first + i);
      // Where nothing but −∞ has been seen there is no maximum to subtract; every exponential is 0.
      shift[i] = high[i] == -INFINITY ? 0 : high[i];
    }
    const V fall = hn::Sub(take(max + first, 0, count, -INFINITY), hn::Load(d, shift));
    put(exp_nonpositive(d, fall), rescale + first, 0, count);
    for (int64_t i = 0; i < count; i++) {
      const int64_t row = first + i;
      sum[row] = sum[row] * rescale[row] + exponentials(scores + row * stride, n, shift[i]);
      max[row] = high[i];
    }
  }
}

void probabilities(float* scores, int64_t rows, int64_t n, int64_t stride, const float* lse) {
  for (int64_t row = 0; row < rows; row++, scores += stride)
    exponentials(scores, n, lse[row] == -INFINITY ? INFINITY : lse[row]);
}

void score_gradient(const float* p, float* dp, int64_t rows, int64_t n, int64_t stride, const float* delta,
                    float scale) {
  for (int64_t row = 0; row < rows; row++, p += stride, dp += stride) {
    for (int64_t i = 0; i < n; i++) dp[i] = p[i] * (dp[i] - delta[row]) * scale;
  }
}

void scale_rows(float* y, int64_t rows, int64_t n, int64_t stride, const float* factor) {
  for (int64_t row = 0; row < rows; row++, y += stride) {
    for (int64_t i = 0; i < n; i++) y[i] *= factor[row];
  }
}

void dot_rows(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t rows, int64_t n,
              float* to) {
  const Floats d;
  const int64_t N = int64_t(hn::Lanes(d));
  for (int64_t row = 0; row < rows; row++, a += a_stride, b += b_stride) {
    V total = hn::Zero(d);
    for (int64_t i = 0; i < n; i += N) total = hn::MulAdd(take(a, i, n, 0), take(b, i, n, 0), total);
    to[row] = hn::GetLane(hn::SumOfLanes(d, total));
  }
}

}  // namespace

const AttentionTable& attention_table() {
  static constexpr AttentionTable table = {online_softmax, probabilities, score_gradient, scale_rows,
                                           dot_rows};
  return table;
}

}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();
