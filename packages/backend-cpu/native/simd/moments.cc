// Σ d and Σ d² with d = x − m for some m near the mean: the mean is m + Σd/n, the squared distance Σ d² −
// (Σd)²/n. A row's first block gives m in a pass of its own, while it stays in cache; for a later one m is
// the mean of what came before. Where that is far from the block's own mean, the distance of the two is a
// part of the variance, at least a fifth of what m adds to Σ d²: it costs two or three bits of 24. Blocks are
// joined in double.
#include "simd/moments.h"

#include "simd/vectors.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

template <class T>
constexpr auto step_of() {
  if constexpr (same_type<T, double>)
    return double{};
  else
    return float{};
}
// The type that an element is computed as.
template <class T>
using Step = decltype(step_of<T>());

LZ_FORCE_INLINE double value(double x) { return x; }
template <class T>
LZ_FORCE_INLINE float value(T x) {
  return to_float(x);
}

template <class S>
LZ_FORCE_INLINE Moments corrected(S m, double sum, double square, double n) {
  return {double(m) + sum / n, square - sum * sum / n};
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::TFromD<D> total(D d, V a, V b, V c, V e) {
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e))));
}

// The mean, rounded.
template <class T>
HWY_INLINE Step<T> mean_of(const T* x, int64_t n) {
  using S = Step<T>;
  const hn::ScalableTag<S> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t N = int64_t(hn::Lanes(d));
  V a = hn::Zero(d), b = a, c = a, e = a;
  int64_t i = 0;
  for (; i + 4 * N <= n; i += 4 * N) {
    a = hn::Add(a, load(d, x + i));
    b = hn::Add(b, load(d, x + i + N));
    c = hn::Add(c, load(d, x + i + 2 * N));
    e = hn::Add(e, load(d, x + i + 3 * N));
  }
  S rest = 0;
  for (int64_t j = i; j < n; j++) rest += value(x[j]);
  return (total(d, a, b, c, e) + rest) / S(n);
}

template <class T>
HWY_INLINE Moments block(const T* x, int64_t n, Step<T> m) {
  using S = Step<T>;
  const hn::ScalableTag<S> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t N = int64_t(hn::Lanes(d));
  V a = hn::Zero(d), b = a, c = a, e = a;
  int64_t i = 0;
  const V center = hn::Set(d, m);
  V a2 = a, b2 = a, c2 = a, e2 = a;
  for (; i + 4 * N <= n; i += 4 * N) {
    const V p = hn::Sub(load(d, x + i), center), q = hn::Sub(load(d, x + i + N), center);
    const V r = hn::Sub(load(d, x + i + 2 * N), center), s = hn::Sub(load(d, x + i + 3 * N), center);
    a = hn::Add(a, p), b = hn::Add(b, q), c = hn::Add(c, r), e = hn::Add(e, s);
    a2 = hn::MulAdd(p, p, a2), b2 = hn::MulAdd(q, q, b2);
    c2 = hn::MulAdd(r, r, c2), e2 = hn::MulAdd(s, s, e2);
  }
  double sum = double(total(d, a, b, c, e)), square = double(total(d, a2, b2, c2, e2));
  for (; i < n; i++) {
    const double p = double(value(x[i]) - m);
    sum += p;
    square += p * p;
  }
  return corrected(m, sum, square, double(n));
}

template <class T>
void rows(const void* data, int64_t count, int64_t stride, int64_t n, Moments* to) {
  // 64 numbers a lane.
  const int64_t kBlock = 256 * int64_t(hn::Lanes(hn::ScalableTag<Step<T>>())),
                kFirst = kBlock < 1024 ? kBlock : 1024;
  const T* x = static_cast<const T*>(data);
  for (int64_t row = 0; row < count; row++, x += stride) {
    const int64_t first = n < kFirst ? n : kFirst;
    Moments all = block(x, first, mean_of(x, first));
    for (int64_t i = kFirst; i < n; i += kBlock) {
      const int64_t length = n - i < kBlock ? n - i : kBlock;
      Moments more = block(x + i, length, Step<T>(all.mean));
      // Numbers at another level altogether are measured from their own.
      if (!std::isfinite(more.square)) more = block(x + i, length, mean_of(x + i, length));
      all = joined(all, double(i), more, double(length));
    }
    to[row] = all;
  }
}

template <class T>
void columns(const void* data, int64_t count, int64_t stride, int64_t n, Moments* to) {
  using S = Step<T>;
  constexpr int64_t kColumns = 2048, kRows = 16;
  S mean[kColumns], sum[kColumns], square[kColumns];
  for (int64_t begin = 0; begin < n; begin += kColumns) {
    const T* x = static_cast<const T*>(data) + begin;
    const int64_t width = n - begin < kColumns ? n - begin : kColumns;
    for (int64_t first = 0; first < count; first += kRows) {
      const int64_t height = count - first < kRows ? count - first : kRows;
      const T* tile = x + first * stride;
      for (int64_t j = 0; j < width; j++) mean[j] = value(tile[j]);
      for (int64_t i = 1; i < height; i++) {
        const T* row = tile + i * stride;
        for (int64_t j = 0; j < width; j++) mean[j] += value(row[j]);
      }
      const S part = S(1) / S(height);
      for (int64_t j = 0; j < width; j++) {
        mean[j] *= part;
        const S p = value(tile[j]) - mean[j];
        sum[j] = p;
        square[j] = p * p;
      }
      for (int64_t i = 1; i < height; i++) {
        const T* row = tile + i * stride;
        for (int64_t j = 0; j < width; j++) {
          const S p = value(row[j]) - mean[j];
          sum[j] += p;
          square[j] += p * p;
        }
      }
      Moments* at = to + begin;
      const double size = double(height);
      if (first == 0) {
        for (int64_t j = 0; j < width; j++)
          at[j] = corrected(mean[j], double(sum[j]), double(square[j]), size);
        continue;
      }
      for (int64_t j = 0; j < width; j++) {
        const Moments more = corrected(mean[j], double(sum[j]), double(square[j]), size);
        at[j] = joined(at[j], double(first), more, size);
      }
    }
  }
}

template <class T>
constexpr void fill(MomentsTable& table, int dtype) {
  table.rows[dtype] = rows<T>;
  table.columns[dtype] = columns<T>;
}

constexpr MomentsTable make_table() {
  MomentsTable table{};
  fill<float16>(table, kFloat16);
  fill<bfloat16>(table, kBfloat16);
  fill<float>(table, kFloat32);
  fill<double>(table, kFloat64);
  return table;
}

}  // namespace

const MomentsTable& moments_table() {
  static constexpr MomentsTable table = make_table();
  return table;
}

}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();
