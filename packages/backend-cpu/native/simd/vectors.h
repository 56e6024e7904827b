// Highway vectors of float32 from and to memory of any floating type: the half types widen on load and round
// on store.
#ifndef LAZULI_SIMD_VECTORS_H
#define LAZULI_SIMD_VECTORS_H

#include <hwy/highway.h>

#include "simd/elements.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const float* x) {
  return hn::LoadU(d, x);
}
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const double* x) {
  return hn::LoadU(d, x);
}
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const bfloat16* x) {
  const hn::Rebind<uint16_t, D> half;
  const hn::RebindToUnsigned<D> bits;
  return hn::BitCast(
      d, hn::ShiftLeft<16>(hn::PromoteTo(bits, hn::LoadU(half, reinterpret_cast<const uint16_t*>(x)))));
}
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const float16* x) {
#if HWY_TARGET == HWY_SSE4
  // Without F16C, Highway's own widening knows neither NaN nor infinity. The same steps as to_float().
  const hn::Rebind<uint16_t, D> half;
  const hn::RebindToUnsigned<D> u;
  const auto bits = hn::PromoteTo(u, hn::LoadU(half, reinterpret_cast<const uint16_t*>(x)));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(u, 0x8000u)));
  const auto rest = hn::ShiftLeft<13>(hn::And(bits, hn::Set(u, 0x7fffu)));
  const auto finite = hn::BitCast(u, hn::Mul(hn::BitCast(d, rest), hn::Set(d, 0x1p112f)));
  const auto special = hn::Gt(rest, hn::Set(u, 0x0f7fffffu));
  return hn::BitCast(d, hn::Or(sign, hn::IfThenElse(special, hn::Or(rest, hn::Set(u, 0x7f800000u)), finite)));
#else
  const hn::Rebind<hwy::float16_t, D> half;
  return hn::PromoteTo(d, hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(x)));
#endif
}

using Floats = hn::ScalableTag<float>;

// Loads and stores of fewer elements than a vector has lanes: nothing beyond `count` elements is touched.
template <class T>
HWY_INLINE hn::Vec<Floats> load_some(Floats d, const T* x, int64_t count, float rest) {
  HWY_ALIGN float lanes[hn::MaxLanes(d)];
  hn::Store(hn::Set(d, rest), d, lanes);
  for (int64_t i = 0; i < count; i++) lanes[i] = to_float(x[i]);
  return hn::Load(d, lanes);
}
HWY_INLINE void store(Floats d, hn::Vec<Floats> v, float* y) { hn::StoreU(v, d, y); }
HWY_INLINE void store(Floats d, hn::Vec<Floats> v, bfloat16* y) {
  const hn::RebindToUnsigned<Floats> u;
  const hn::Rebind<uint16_t, Floats> half;
  const auto all = hn::BitCast(u, v);
  const auto odd = hn::And(hn::ShiftRight<16>(all), hn::Set(u, 1u));
  const auto rounded = hn::Add(hn::Add(all, hn::Set(u, 0x7fffu)), odd);
  const auto quiet = hn::Or(all, hn::Set(u, 0x400000u));
  const auto bits = hn::ShiftRight<16>(hn::IfThenElse(hn::RebindMask(u, hn::IsNaN(v)), quiet, rounded));
  const hn::RebindToSigned<Floats> i;
  hn::StoreU(hn::DemoteTo(half, hn::BitCast(i, bits)), half, reinterpret_cast<uint16_t*>(y));
}
HWY_INLINE void store(Floats d, hn::Vec<Floats> v, float16* y) {
#if HWY_TARGET == HWY_SSE4
  HWY_ALIGN float lanes[hn::MaxLanes(d)];
  hn::Store(v, d, lanes);
  for (size_t i = 0; i < hn::MaxLanes(d); i++) y[i] = from_float<float16>(lanes[i]);
#else
  const hn::Rebind<hwy::float16_t, Floats> half;
  hn::StoreU(hn::DemoteTo(half, v), half, reinterpret_cast<hwy::float16_t*>(y));
#endif
}
template <class T>
HWY_INLINE void store_some(Floats d, hn::Vec<Floats> v, T* y, int64_t count) {
  if (count == int64_t(hn::MaxLanes(d))) return store(d, v, y);
  HWY_ALIGN float lanes[hn::MaxLanes(d)];
  hn::Store(v, d, lanes);
  for (int64_t i = 0; i < count; i++) y[i] = from_float<T>(lanes[i]);
}

}  // namespace
}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();

#endif
