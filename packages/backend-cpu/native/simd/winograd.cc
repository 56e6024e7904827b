// Winograd transforms by vectors of channels.
#include "simd/winograd.h"

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using Full = hn::ScalableTag<float>;
using Few = hn::CappedTag<float, 4>;
using One = hn::CappedTag<float, 1>;

// Calls f(d, i) for vectors that cover n elements and touch no others. What is left behind the last whole
// vector is done with its neighbours again.
template <class F>
HWY_INLINE void for_vectors(int64_t n, F f) {
  const Full full;
  const int64_t N = int64_t(hn::Lanes(full));
  int64_t i = 0;
  for (; i + N <= n; i += N) f(full, i);
  if (i == n) return;
  if (i > 0) return f(full, n - N);
  const Few few;
  for (; i + 4 <= n; i += 4) f(few, i);
  const One one;
  for (; i < n; i++) f(one, i);
}

void weights(const float* w, int64_t n, float* u, int64_t step) {
  for_vectors(n, [=](auto d, int64_t at) HWY_ATTR {
    using V = hn::Vec<decltype(d)>;
    const float* from = w + at;
    float* to = u + at;
    V t[4][3];
    for (int j = 0; j < 3; j++) {
      const V a = hn::LoadU(d, from + j * n), b = hn::LoadU(d, from + (3 + j) * n),
              c = hn::LoadU(d, from + (6 + j) * n);
      const V sum = hn::Add(a, c);
      t[0][j] = hn::Add(a, a);
      t[1][j] = hn::Add(sum, b);
      t[2][j] = hn::Sub(sum, b);
      t[3][j] = hn::Add(c, c);
    }
    for (int i = 0; i < 4; i++, to += 4 * step) {
      const V sum = hn::Add(t[i][0], t[i][2]);
      hn::StoreU(hn::Add(t[i][0], t[i][0]), d, to);
      hn::StoreU(hn::Add(sum, t[i][1]), d, to + step);
      hn::StoreU(hn::Sub(sum, t[i][1]), d, to + 2 * step);
      hn::StoreU(hn::Add(t[i][2], t[i][2]), d, to + 3 * step);
    }
  });
}

void input(const float* const* x, int64_t n, float* v, int64_t step) {
  for_vectors(n, [=](auto d, int64_t at) HWY_ATTR {
    using V = hn::Vec<decltype(d)>;
    float* to = v + at;
    V t[4][4];
    for (int j = 0; j < 4; j++) {
      const V a = hn::LoadU(d, x[j] + at), b = hn::LoadU(d, x[4 + j] + at), c = hn::LoadU(d, x[8 + j] + at),
              e = hn::LoadU(d, x[12 + j] + at);
      t[0][j] = hn::Sub(a, c);
      t[1][j] = hn::Add(b, c);
      t[2][j] = hn::Sub(c, b);
      t[3][j] = hn::Sub(b, e);
    }
    for (int i = 0; i < 4; i++, to += 4 * step) {
      hn::StoreU(hn::Sub(t[i][0], t[i][2]), d, to);
      hn::StoreU(hn::Add(t[i][1], t[i][2]), d, to + step);
      hn::StoreU(hn::Sub(t[i][2], t[i][1]), d, to + 2 * step);
      hn::StoreU(hn::Sub(t[i][1], t[i][3]), d, to + 3 * step);
    }
  });
}

void output(const float* m, int64_t n, float* const* y, int64_t step) {
  for_vectors(n, [=](auto d, int64_t at) HWY_ATTR {
    using V = hn::Vec<decltype(d)>;
    V t[2][4];
    for (int j = 0; j < 4; j++) {
      const float* from = m + at + j * step;
      const V a = hn::LoadU(d, from), b = hn::LoadU(d, from + 4 * step), c = hn::LoadU(d, from + 8 * step),
              e = hn::LoadU(d, from + 12 * step);
      t[0][j] = hn::Add(hn::Add(a, b), c);
      t[1][j] = hn::Sub(hn::Sub(b, c), e);
    }
    const V quarter = hn::Set(d, 0.25f);
    for (int i = 0; i < 2; i++) {
      const V left = hn::Add(hn::Add(t[i][0], t[i][1]), t[i][2]),
              right = hn::Sub(hn::Sub(t[i][1], t[i][2]), t[i][3]);
      if (y[2 * i]) hn::StoreU(hn::Mul(left, quarter), d, y[2 * i] + at);
      if (y[2 * i + 1]) hn::StoreU(hn::Mul(right, quarter), d, y[2 * i + 1] + at);
    }
  });
}

// Without their sign, floats are in the order of their bits.
uint32_t largest(const float* x, int64_t n) {
  constexpr uint32_t kMagnitude = 0x7fffffff;
  const Full d;
  const hn::RebindToUnsigned<Full> u;
  const int64_t N = int64_t(hn::Lanes(d));
  const auto mask = hn::Set(u, kMagnitude);
  auto a = hn::Zero(u), b = a;
  int64_t i = 0;
  const auto at = [&](int64_t j) HWY_ATTR { return hn::And(hn::BitCast(u, hn::LoadU(d, x + j)), mask); };
  for (; i + 2 * N <= n; i += 2 * N) {
    a = hn::Max(a, at(i));
    b = hn::Max(b, at(i + N));
  }
  if (i + N <= n) a = hn::Max(a, at(i)), i += N;
  uint32_t most = hn::GetLane(hn::MaxOfLanes(u, hn::Max(a, b)));
  const hn::CappedTag<uint32_t, 1> one;
  for (; i < n; i++) {
    const uint32_t bits = hn::GetLane(hn::LoadU(one, reinterpret_cast<const uint32_t*>(x + i))) & kMagnitude;
    most = bits > most ? bits : most;
  }
  return most;
}

}  // namespace

const WinogradTable& winograd_table() {
  static constexpr WinogradTable table{weights, input, output, largest};
  return table;
}

}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();
