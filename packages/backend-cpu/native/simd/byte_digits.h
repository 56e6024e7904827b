// Floats of a group as integers of two or three bytes ("digits", the most significant one signed) times a
// power of two that the group shares: that rounds them to 2^-15 or 2^-23 of its largest.
#ifndef LAZULI_SIMD_BYTE_DIGITS_H
#define LAZULI_SIMD_BYTE_DIGITS_H

#include "simd/compiler.h"
#include "simd/vectors.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

// The largest magnitude of elements, as bits, which are in its order; more than those of ∞ for NaN.
HWY_INLINE uint32_t largest_bits(const float* x, int64_t count) {
  const Floats d;
  const hn::RebindToUnsigned<Floats> u;
  auto most = hn::Zero(u);
  for (int64_t i = 0; i < count; i += int64_t(hn::Lanes(d)))
    most = hn::Max(most, hn::And(hn::BitCast(u, hn::LoadU(d, x + i)), hn::Set(u, 0x7fffffffu)));
  return hn::GetLane(hn::MaxOfLanes(u, most));
}

// Elements times `factor` are the integers, which times `power` are the elements; both are 0 for zeros.
struct GroupPower {
  float factor, power;
};

// False where the largest magnitude is not finite or the powers of two are out of range.
template <int kDigits>
HWY_INLINE bool power_of_group(uint32_t most, GroupPower& to) {
  constexpr float kMost = kDigits == 3 ? 127 * 65536 + 127 * 256 + 127 : 127 * 256 + 127;
  to = {0, 0};
  if (most == 0) return true;
  const int exponent = int(most >> 23) - 127;
  if (exponent < -60 || exponent > 127) return false;
  const auto power = [](int e) { return bits_as<float>(uint32_t(e + 127) << 23); };
  int e = 8 * kDigits - 2 - exponent;
  if (bits_as<float>(most) * power(e) > kMost) e--;
  to = {power(e), power(-e)};
  return true;
}

// The digits of numbers as the nearest integers, each a byte a lane, so many bytes apart.
template <int kDigits>
HWY_INLINE void split_digits(hn::Vec<Floats> v, int8_t* to, int64_t apart) {
  const hn::RebindToSigned<Floats> i;
  const hn::Rebind<int8_t, Floats> narrow;
  auto q = hn::NearestInt(v);
  LZ_UNROLL for (int digit = kDigits - 1; digit >= 0; digit--) {
    const auto low = hn::ShiftRight<24>(hn::ShiftLeft<24>(q));
    hn::StoreU(hn::DemoteTo(narrow, low), narrow, to + digit * apart);
    q = hn::ShiftRight<8>(hn::Add(q, hn::Set(i, 128)));
  }
}

}  // namespace
}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();

#endif
