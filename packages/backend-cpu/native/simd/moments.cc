// Means and squared distances of a block: 64 lanes take elements in turn and are joined in a tree, then 16
// lanes take what 64 leave, and one the rest. A lane measures distances d from its first element: the mean is
// that plus Σd/n, the squared distance Σd² − (Σd)²/n. Where the first element is far from the lane's others,
// that distance is a part of the variance, at least a thirtieth of what it adds to Σd²; it costs a few bits
// of 24 where a lane begins with an outlier. Lanes and blocks are joined in double. Rows and columns have the
// same order.
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

// Means and squared distances of several lanes.
template <int Lanes>
struct LaneMoments {
  double mean[Lanes], square[Lanes];
};

template <class S>
LZ_FORCE_INLINE void measure(S first, S sum, S square, double part, double& mean, double& distance) {
  mean = double(first) + double(sum) * part;
  // The last term is 0, or NaN where the first element, which may be the only one, is not finite.
  distance = double(square) - double(sum) * double(sum) * part + double(first - first);
}

// Two of `count` numbers each.
LZ_FORCE_INLINE void join_equal(double& mean, double& square, double more_mean, double more_square,
                                double count) {
  const double apart = more_mean - mean;
  mean = mean + apart * 0.5;
  square = square + more_square + apart * apart * (count * 0.5);
}

// Lanes of m elements each.
template <int Lanes, class T>
HWY_INLINE Moments row_lanes(const T* x, int64_t m) {
  using S = Step<T>;
  const hn::CappedTag<S, 16> d;
  constexpr int64_t N = int64_t(hn::MaxLanes(d)), kVectors = Lanes / N,
                    kTogether = kVectors < 4 ? kVectors : 4;
  HWY_ALIGN S first[Lanes], sum[Lanes], square[Lanes];
  for (int64_t v = 0; v < kVectors; v += kTogether) {
    hn::Vec<decltype(d)> c[kTogether], s[kTogether], q[kTogether];
    for (int64_t g = 0; g < kTogether; g++) {
      c[g] = load(d, x + (v + g) * N);
      s[g] = q[g] = hn::Zero(d);
    }
    for (int64_t i = 1; i < m; i++) {
      for (int64_t g = 0; g < kTogether; g++) {
        const auto p = hn::Sub(load(d, x + i * Lanes + (v + g) * N), c[g]);
        s[g] = hn::Add(s[g], p);
        q[g] = hn::Add(q[g], hn::Mul(p, p));
      }
    }
    for (int64_t g = 0; g < kTogether; g++) {
      hn::Store(c[g], d, first + (v + g) * N);
      hn::Store(s[g], d, sum + (v + g) * N);
      hn::Store(q[g], d, square + (v + g) * N);
    }
  }
  LaneMoments<Lanes> lanes;
  const double part = 1 / double(m);
  for (int64_t k = 0; k < Lanes; k++)
    measure(first[k], sum[k], square[k], part, lanes.mean[k], lanes.square[k]);
  double count = double(m);
  for (int64_t half = Lanes / 2; half > 0; half /= 2, count *= 2)
    for (int64_t k = 0; k < half; k++)
      join_equal(lanes.mean[k], lanes.square[k], lanes.mean[k + half], lanes.square[k + half], count);
  return {lanes.mean[0], lanes.square[0]};
}

// One lane.
template <class T>
HWY_INLINE Moments row_rest(const T* x, int64_t m) {
  using S = Step<T>;
  const S first = value(x[0]);
  S sum = 0, square = 0;
  for (int64_t i = 1; i < m; i++) {
    const S p = value(x[i]) - first;
    sum += p;
    square += p * p;
  }
  Moments one;
  measure(first, sum, square, 1 / double(m), one.mean, one.square);
  return one;
}

// Joins what is next; nothing may have come before.
LZ_FORCE_INLINE void append(Moments& all, int64_t& count, Moments more, int64_t n) {
  all = count == 0 ? more : joined(all, double(count), more, double(n));
  count += n;
}

constexpr int64_t kBlock = 2048, kLanes = 64, kFew = 16;

template <class T>
void rows(const void* data, int64_t count, int64_t stride, int64_t n, Moments* to) {
  const T* x = static_cast<const T*>(data);
  for (int64_t row = 0; row < count; row++, x += stride) {
    Moments all{};
    for (int64_t i = 0; i < n;) {
      const int64_t length = n - i < kBlock ? n - i : kBlock, whole = length / kLanes,
                    few = length % kLanes / kFew;
      if (whole > 0) append(all, i, row_lanes<kLanes>(x + i, whole), whole * kLanes);
      if (few > 0) append(all, i, row_lanes<kFew>(x + i, few), few * kFew);
      if (length % kFew > 0) append(all, i, row_rest(x + i, length % kFew), length % kFew);
    }
    to[row] = all;
  }
}

constexpr int64_t kColumns = 256;

// The lane of `width` columns that begins at x, of m rows `step` apart.
template <class T>
HWY_INLINE void column_lane(const T* x, int64_t step, int64_t m, int64_t width, double* mean,
                            double* distance) {
  using S = Step<T>;
  const hn::CappedTag<S, 16> d;
  const int64_t N = int64_t(hn::Lanes(d));
  HWY_ALIGN S sum[kColumns], square[kColumns];
  for (int64_t j = 0; j < width; j++) sum[j] = square[j] = 0;
  constexpr int64_t kTogether = 4;
  for (int64_t i = 1; i < m; i += kTogether) {
    const int64_t some = m - i < kTogether ? m - i : kTogether;
    const T* row = x + i * step;
    int64_t j = 0;
    for (; j + N <= width; j += N) {
      const auto c = load(d, x + j);
      auto s = hn::Load(d, sum + j), q = hn::Load(d, square + j);
      const auto take = [&](int64_t k) LZ_INLINE_LAMBDA {
        const auto p = hn::Sub(load(d, row + k * step + j), c);
        s = hn::Add(s, p);
        q = hn::Add(q, hn::Mul(p, p));
      };
      if (some == kTogether) {
        for (int64_t k = 0; k < kTogether; k++) take(k);
      } else {
        for (int64_t k = 0; k < some; k++) take(k);
      }
      hn::Store(s, d, sum + j);
      hn::Store(q, d, square + j);
    }
    for (; j < width; j++) {
      for (int64_t k = 0; k < some; k++) {
        const S p = value(row[k * step + j]) - value(x[j]);
        sum[j] += p;
        square[j] += p * p;
      }
    }
  }
  const double part = 1 / double(m);
  for (int64_t j = 0; j < width; j++) measure(S(value(x[j])), sum[j], square[j], part, mean[j], distance[j]);
}

// Columns in the order of row_lanes(), to the first lane.
template <int Lanes, class T>
HWY_INLINE void column_lanes(const T* x, int64_t stride, int64_t m, int64_t width,
                             LaneMoments<kColumns>* lanes) {
  const auto lane = [&](int64_t k, LaneMoments<kColumns>& to) LZ_INLINE_LAMBDA {
    column_lane(x + k * stride, Lanes * stride, m, width, to.mean, to.square);
  };
  double count = double(m);
  const auto join = [&](LaneMoments<kColumns>& some, const LaneMoments<kColumns>& more, double each)
                        LZ_INLINE_LAMBDA {
                          for (int64_t j = 0; j < width; j++)
                            join_equal(some.mean[j], some.square[j], more.mean[j], more.square[j], each);
                        };
  for (int64_t k = 0; k < kFew; k++) {
    lane(k, lanes[k]);
    if constexpr (Lanes == kLanes) {
      // The first two folds.
      lane(k + 32, lanes[kFew]), join(lanes[k], lanes[kFew], count);
      lane(k + 16, lanes[kFew]), lane(k + 48, lanes[kFew + 1]), join(lanes[kFew], lanes[kFew + 1], count);
      join(lanes[k], lanes[kFew], 2 * count);
    }
  }
  if constexpr (Lanes == kLanes) count *= 4;
  for (int64_t half = kFew / 2; half > 0; half /= 2, count *= 2)
    for (int64_t k = 0; k < half; k++) join(lanes[k], lanes[k + half], count);
}

template <class T>
void columns(const void* data, int64_t count, int64_t stride, int64_t n, Moments* to) {
  LaneMoments<kColumns> lanes[kFew + 2];
  for (int64_t begin = 0; begin < n; begin += kColumns, to += kColumns) {
    const T* x = static_cast<const T*>(data) + begin;
    const int64_t width = n - begin < kColumns ? n - begin : kColumns;
    for (int64_t i = 0; i < count;) {
      const int64_t length = count - i < kBlock ? count - i : kBlock, whole = length / kLanes,
                    few = length % kLanes / kFew;
      const auto take = [&](int64_t some) LZ_INLINE_LAMBDA {
        for (int64_t j = 0; j < width; j++) {
          int64_t before = i;
          append(to[j], before, {lanes[0].mean[j], lanes[0].square[j]}, some);
        }
        i += some;
      };
      if (whole > 0) column_lanes<kLanes>(x + i * stride, stride, whole, width, lanes), take(whole * kLanes);
      if (few > 0) column_lanes<kFew>(x + i * stride, stride, few, width, lanes), take(few * kFew);
      if (const int64_t rest = length % kFew; rest > 0)
        column_lane(x + i * stride, stride, rest, width, lanes[0].mean, lanes[0].square), take(rest);
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
