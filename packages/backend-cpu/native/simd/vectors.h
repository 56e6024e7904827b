// Highway vectors of float32 from and to memory of any floating type: the half types widen on load and round on store.
#ifndef LAZULI_SIMD_VECTORS_H
#define LAZULI_SIMD_VECTORS_H

#include <hwy/highway.h>

#include "simd/elements.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const float* x) { return hn::LoadU(d, x); }
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const double* x) { return hn::LoadU(d, x); }
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const bfloat16* x) {
  const hn::Rebind<uint16_t, D> half;
  const hn::RebindToUnsigned<D> bits;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(bits, hn::LoadU(half, reinterpret_cast<const uint16_t*>(x)))));
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

}  // namespace
}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();

#endif
