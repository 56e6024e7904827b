// Scales and biases of packed rows as the numbers that they are.
#ifndef LAZULI_SIMD_PACKED_SCALES_H
#define LAZULI_SIMD_PACKED_SCALES_H

#include <stdint.h>

#include "simd/quantized.h"
#include "simd/vectors.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

// As many scales or biases as lanes, which load(tag) gives as the numbers that they are.
template <class Load>
HWY_INLINE hn::Vec<Floats> widened(ScaleKind kind, const Load& load) {
  const Floats d;
  const hn::RebindToUnsigned<Floats> u;
  const hn::Rebind<hwy::float16_t, Floats> halves;
  const hn::Rebind<uint16_t, Floats> shorts;
  const hn::Rebind<uint8_t, Floats> bytes;
  if (kind == ScaleKind::float32) return load(d);
  if (kind == ScaleKind::bfloat16) return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(u, load(shorts))));
  if (kind == ScaleKind::float16) return hn::PromoteTo(d, hn::BitCast(halves, load(shorts)));
  // The lowest power of two is subnormal.
  if (kind == ScaleKind::e8m0)
    return hn::BitCast(d, hn::Max(hn::ShiftLeft<23>(hn::PromoteTo(u, load(bytes))), hn::Set(u, 0x400000)));
  // The bits of E4M3 are those of a float16 that is 2^8 times too small.
  const hn::Rebind<int16_t, Floats> signs;
  const auto v = hn::ShiftLeft<7>(hn::PromoteTo(signs, load(hn::Rebind<int8_t, Floats>())));
  const auto bits = hn::And(v, hn::Set(signs, int16_t(0xbf80)));
  return hn::Mul(hn::PromoteTo(d, hn::BitCast(halves, bits)), hn::Set(d, 256.0f));
}
HWY_INLINE int64_t scale_size(ScaleKind kind) {
  return kind == ScaleKind::float32 ? 4 : kind == ScaleKind::float16 || kind == ScaleKind::bfloat16 ? 2 : 1;
}

}  // namespace
}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();

#endif
