// The sums of vectors' lanes, of one vector or of four at once, in the same order.
#ifndef LAZULI_SIMD_LANE_SUMS_H
#define LAZULI_SIMD_LANE_SUMS_H

#include "simd/vectors.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

using FourFloats = hn::FixedTag<float, 4>;

// The sum of a vector's blocks of four lanes.
template <class D>
HWY_INLINE hn::Vec<FourFloats> sum_of_blocks(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(d) > 4) {
    const hn::Half<D> half;
    return sum_of_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else {
    return v;
  }
}

HWY_INLINE float lane_sum(hn::Vec<Floats> v) {
  const auto pairs = hn::Add(v, hn::Shuffle1032(v));
  return hn::GetLane(sum_of_blocks(Floats(), hn::Add(pairs, hn::Shuffle2301(pairs))));
}

// lane_sum() of each.
HWY_INLINE hn::Vec<FourFloats> lane_sums(hn::Vec<Floats> v0, hn::Vec<Floats> v1, hn::Vec<Floats> v2,
                                         hn::Vec<Floats> v3) {
  const Floats d;
  const hn::Repartition<double, Floats> wide;
  const auto halves = [d, wide](hn::Vec<Floats> a, hn::Vec<Floats> b) HWY_ATTR {
    return hn::BitCast(wide, hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)));
  };
  const auto p = halves(v0, v1), q = halves(v2, v3);
  return sum_of_blocks(d, hn::Add(hn::BitCast(d, hn::InterleaveLower(wide, p, q)),
                                  hn::BitCast(d, hn::InterleaveUpper(wide, p, q))));
}
// y[i] = lane_sum(v[i])
HWY_INLINE void lane_sums(const hn::Vec<Floats> (&v)[4], float* y) {
  hn::StoreU(lane_sums(v[0], v[1], v[2], v[3]), FourFloats(), y);
}
HWY_INLINE void lane_sums(const hn::Vec<Floats> (&v)[1], float* y) { *y = lane_sum(v[0]); }

}  // namespace
}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();

#endif
