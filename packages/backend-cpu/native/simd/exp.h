// exp for arguments that are at most about 0, as in every softmax: no overflow to guard against, results
// below the smallest normal number become 0, NaN stays NaN whatever its bits. Relative error below 1.5e-7.
#ifndef LAZULI_SIMD_EXP_H
#define LAZULI_SIMD_EXP_H

#include "simd/vectors.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

// exp(x) = 2^n · exp(r), n = round(x / ln 2), |r| ≤ ln(2)/2, where the Taylor series to degree 6 (its last
// coefficients adjusted for the interval) is exact to a rounding. Valid for x < 88.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_nonpositive(D d, V x) {
  const hn::RebindToUnsigned<D> bits;
  // Adding 1.5·2^23 rounds to an integer and leaves it in the sum's low bits; 127 is there for the exponent
  // of 2^n.
  const auto magic = hn::Set(d, 12582912.0f + 127.0f);
  const auto shifted = hn::MulAdd(x, hn::Set(d, 1.44269504088896341f), magic);
  const auto n = hn::Sub(shifted, magic);
  // ln 2 in two parts, the first with so few bits that n times it is exact.
  auto r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  auto p = hn::Set(d, 1.0f / 720);
  p = hn::MulAdd(p, r, hn::Set(d, 8.3333337e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1666668e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666667e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.5f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  // A product, because a NaN with something added to its bits may be none.
  const auto y = hn::Mul(p, hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(bits, shifted))));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.3365f)), y);
}

}  // namespace
}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();

#endif
