// The numbers that packed codes stand for, in vectors of words.
#ifndef LAZULI_SIMD_CODE_VALUES_H
#define LAZULI_SIMD_CODE_VALUES_H

#include "simd/quantized.h"
#include "simd/vectors.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

using V = hn::Vec<Floats>;
using Words = hn::RebindToUnsigned<Floats>;
using W = hn::Vec<Words>;

constexpr bool has_tables() {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  return true;
#else
  return false;
#endif
}

// Of E2M1's codes without a sign.
constexpr float kE2m1[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

// Sixteen values by the low four bits of each lane.
HWY_INLINE V table_of(CodeFormat format) {
  const Floats d;
  HWY_ALIGN float values[16 > hn::MaxLanes(d) ? 16 : hn::MaxLanes(d)];
  for (int i = 0; i < 16; i++) {
    if (format.code == Code::e2m1)
      values[i] = i < 8 ? kE2m1[i] : -kE2m1[i - 8];
    else
      values[i] = float(i & ((1 << format.bits) - 1));
  }
  return hn::Load(d, values);
}

// The values of the codes in the low bits of each lane, whatever is above them.
template <int kBits, Code kCode>
HWY_INLINE V value_of(W w, V table) {
  const Floats d;
  const Words u;
  const hn::RebindToSigned<Floats> i;
  if constexpr (kBits <= 4 && has_tables()) {
    return hn::TableLookupLanes(table, hn::IndicesFromVec(d, w));
#if HWY_TARGET == HWY_AVX2
  } else if constexpr (kCode == Code::e2m1) {
    // Magnitudes are a table of eight.
    const V magnitude = hn::TableLookupLanes(table, hn::IndicesFromVec(d, hn::And(w, hn::Set(u, 7))));
    return hn::Or(magnitude, hn::BitCast(d, hn::And(hn::ShiftLeft<28>(w), hn::Set(u, 0x80000000u))));
#endif
  } else if constexpr (kCode == Code::integer) {
    return hn::ConvertTo(d, hn::BitCast(i, hn::And(w, hn::Set(u, (1u << kBits) - 1))));
  } else {
    // Sign, exponent and mantissa move to where a float32 has them, with its bias. Subnormal values, which
    // then have a hidden bit too many, are (1 + m) · 2^e where they should be m · 2^(e + 1).
    constexpr int kMantissa = kBits == 4 ? 22 : 20;
    constexpr uint32_t kBias = kBits == 4 ? 126 : 120;
    const auto sign = hn::ShiftLeft<31>(hn::ShiftRight<kBits - 1>(w));
    const auto rest = hn::ShiftLeft<kMantissa>(hn::And(w, hn::Set(u, (1u << (kBits - 1)) - 1)));
    const V normal = hn::BitCast(d, hn::Add(rest, hn::Set(u, kBias << 23)));
    const V subnormal = hn::MulSub(normal, hn::Set(d, 2.0f), hn::Set(d, kBits == 4 ? 1.0f : 0x1p-6f));
    const auto is_normal = hn::Gt(hn::BitCast(i, rest), hn::Set(i, (1 << 23) - 1));
    const V value = hn::IfThenElse(hn::RebindMask(d, is_normal), normal, subnormal);
    return hn::BitCast(d, hn::Or(hn::BitCast(u, value), sign));
  }
}

}  // namespace
}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();

#endif
