// A vector of floats is two of doubles, whose lanes add up in a tree; one addition in each then waits for the
// vector before.
#include "simd/scan.h"

#include <hwy/cache_control.h>

#include "simd/vectors.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

using V = hn::Vec<Floats>;
using Half = hn::Half<Floats>;
using Doubles = hn::Rebind<double, Half>;
using D = hn::Vec<Doubles>;
constexpr int64_t kMost = int64_t(hn::MaxLanes(Doubles()));

HWY_INLINE D lower(V v) { return hn::PromoteTo(Doubles(), hn::LowerHalf(Half(), v)); }
HWY_INLINE D upper(V v) { return hn::PromoteTo(Doubles(), hn::UpperHalf(Half(), v)); }

template <class T>
double sum(const void* data, int64_t n) {
  const T* x = static_cast<const T*>(data);
  const Floats d;
  const int64_t N = int64_t(hn::Lanes(d));
  D parts[4] = {hn::Zero(Doubles()), hn::Zero(Doubles()), hn::Zero(Doubles()), hn::Zero(Doubles())};
  int64_t i = 0;
  for (; i + 2 * N <= n; i += 2 * N) {
    const V a = load(d, x + i), b = load(d, x + i + N);
    parts[0] = hn::Add(parts[0], lower(a));
    parts[1] = hn::Add(parts[1], upper(a));
    parts[2] = hn::Add(parts[2], lower(b));
    parts[3] = hn::Add(parts[3], upper(b));
  }
  double rest = 0;
  for (; i < n; i++) rest += double(to_float(x[i]));
  return rest + hn::GetLane(hn::SumOfLanes(
                    Doubles(), hn::Add(hn::Add(parts[0], parts[1]), hn::Add(parts[2], parts[3]))));
}

// A vector whose lane i is lane i - kBy of another, or 0.
template <int kBy>
struct Shifted {
  const Doubles d;
  hn::Mask<Doubles> there;
  decltype(hn::IndicesFromVec(Doubles(), hn::Iota(hn::RebindToUnsigned<Doubles>(), 0))) from;
  Shifted() : there(), from(shifted()) {
    const hn::RebindToSigned<Doubles> i;
    there = hn::RebindMask(d, hn::Gt(hn::Iota(i, 0), hn::Set(i, kBy - 1)));
  }
  static auto shifted() {
    const hn::RebindToUnsigned<Doubles> u;
    HWY_ALIGN uint64_t lanes[kMost];
    for (int64_t i = 0; i < kMost; i++) lanes[i] = uint64_t(i < kBy ? 0 : i - kBy);
    return hn::IndicesFromVec(Doubles(), hn::Load(u, lanes));
  }
  HWY_INLINE D operator()(D v) const { return hn::IfThenElseZero(there, hn::TableLookupLanes(v, from)); }
};

HWY_INLINE void stream(Floats d, V v, float* y) { hn::Stream(v, d, y); }
template <class T>
HWY_INLINE void stream(Floats d, V v, T* y) {
  store(d, v, y);
}

template <class T>
double sums(const void* data, void* to, int64_t n, bool inclusive, bool streaming, double total) {
  const T* x = static_cast<const T*>(data);
  T* y = static_cast<T*>(to);
  const Floats d;
  const Doubles dd;
  const hn::RebindToUnsigned<Doubles> u;
  const int64_t N = int64_t(hn::Lanes(d));
  const Shifted<1> by1;
  const Shifted<2> by2;
  const Shifted<4> by4;
  const auto last = hn::IndicesFromVec(dd, hn::Set(u, uint64_t(kMost - 1)));
  const auto one = [&](int64_t i) {
    const double next = total + double(to_float(x[i]));
    y[i] = from_float<T>(float(inclusive ? next : total));
    total = next;
  };
  const auto running = [&](D v) LZ_INLINE_LAMBDA {
    v = hn::Add(v, by1(v));
    if (kMost > 2) v = hn::Add(v, by2(v));
    if (kMost > 4) v = hn::Add(v, by4(v));
    return v;
  };
  int64_t i = 0;
  if (streaming)
    for (; i < n && reinterpret_cast<uintptr_t>(y + i) % (sizeof(float) * hn::Lanes(d)) != 0; i++) one(i);
  D before = hn::Set(dd, total);
  for (; i + N <= n; i += N) {
    const V in = load(d, x + i);
    const D low = running(lower(in)), up = running(upper(in)), half = hn::TableLookupLanes(low, last);
    const D high = hn::Add(half, up);
    const D a = inclusive ? low : by1(low), b = inclusive ? high : hn::Add(half, by1(up));
    const V out =
        hn::Combine(d, hn::DemoteTo(Half(), hn::Add(before, b)), hn::DemoteTo(Half(), hn::Add(before, a)));
    if (streaming)
      stream(d, out, y + i);
    else
      store(d, out, y + i);
    before = hn::Add(before, hn::TableLookupLanes(high, last));
  }
  total = hn::GetLane(before);
  for (; i < n; i++) one(i);
  if (streaming) hwy::FlushStream();
  return total;
}

constexpr ScanTable make_table() {
  ScanTable table{};
  table.sum[kFloat16] = sum<float16>;
  table.sum[kBfloat16] = sum<bfloat16>;
  table.sum[kFloat32] = sum<float>;
  table.sums[kFloat16] = sums<float16>;
  table.sums[kBfloat16] = sums<bfloat16>;
  table.sums[kFloat32] = sums<float>;
  return table;
}

}  // namespace

const ScanTable& scan_table() {
  static constexpr ScanTable table = make_table();
  return table;
}

}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();
