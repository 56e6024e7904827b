// Functions of float32 vectors whose range reduction needs more than float32: the lanes widen to float64, so
// that only the last rounding counts. Also sin and cos, which reduce in float64 and then go on in float32.
#ifndef LAZULI_SIMD_MATH_DOUBLE_H
#define LAZULI_SIMD_MATH_DOUBLE_H

#include <math.h>

#include "simd/math.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

// f of the two halves of float32 vectors, as float64.
template <class D, class F, class... V>
HWY_INLINE hn::Vec<D> widened(D d, F f, V... x) {
  const hn::Half<D> half;
  const hn::RepartitionToWide<D> wide;
  const auto low = f(wide, hn::PromoteTo(wide, hn::LowerHalf(half, x))...);
  const auto high = f(wide, hn::PromoteTo(wide, hn::UpperHalf(half, x))...);
  return hn::Combine(d, hn::DemoteTo(half, high), hn::DemoteTo(half, low));
}

// exp to 2e-14, for what becomes float32: beyond [-110, 95] the result is 0 or infinite there.
template <class D, class V>
HWY_INLINE V wide_exp(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V inside = hn::Min(hn::Max(x, hn::Set(d, -110.0)), hn::Set(d, 95.0));
  // Adding 1.5·2^52 rounds to an integer and leaves it in the sum's low bits.
  const V magic = hn::Set(d, 6755399441055744.0);
  const V bits = hn::MulAdd(inside, hn::Set(d, 1.4426950408889634), magic);
  const V n = hn::Sub(bits, magic);
  V r = hn::NegMulAdd(n, hn::Set(d, 0x1.62e42fee00000p-1), inside);
  r = hn::NegMulAdd(n, hn::Set(d, 0x1.a39ef35793c76p-33), r);
  const V q =
      polynomial(d, r, 0.5, 0x1.555555558a59fp-3, 0x1.5555557e2be96p-5, 0x1.1111108d6af3ep-7,
                 0x1.6c163b62c04b2p-10, 0x1.a01b74e317b54p-13, 0x1.a16ede8391a7dp-16, 0x1.71012f8652b75p-19);
  const V p = hn::Add(hn::Set(d, 1.0), hn::MulAdd(hn::Mul(r, r), q, r));
  const V scale = hn::BitCast(d, hn::ShiftLeft<52>(hn::Add(hn::BitCast(di, bits), hn::Set(di, 1023))));
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Mul(p, scale));
}

// log to 3e-14 for widened float32 values, none of which is subnormal here.
template <class D, class V>
HWY_INLINE V wide_log(D d, V x) {
  const hn::RebindToSigned<D> di;
  const auto bits = hn::BitCast(di, x);
  const auto offset = hn::Sub(bits, hn::Set(di, 0x3fe6a09e667f3bcdLL));
  // The exponent, biased by 2048 so that it is not negative, becomes a number in the last bits of 2^52.
  const auto biased = hn::ShiftRight<52>(
      hn::BitCast(hn::RebindToUnsigned<D>(), hn::Add(offset, hn::Set(di, int64_t(2048) << 52))));
  const V e = hn::Sub(hn::BitCast(d, hn::Or(hn::BitCast(di, biased), hn::Set(di, 0x4330000000000000LL))),
                      hn::Set(d, 0x1p52 + 2048));
  const auto high = hn::And(offset, hn::Set(di, int64_t(0xfff0000000000000ULL)));
  const V m = hn::BitCast(d, hn::Sub(bits, high));
  // log(m) = 2·artanh(s) with s = (m - 1)/(m + 1).
  const V one = hn::Set(d, 1.0);
  const V s = hn::Div(hn::Sub(m, one), hn::Add(m, one)), u = hn::Mul(s, s);
  const V l = polynomial(d, u, 0x1.5555555620390p-1, 0x1.999996a367dc3p-2, 0x1.2494149e8aa05p-2,
                         0x1.c62a208f83612p-3, 0x1.91244b6281c9ap-3);
  const V y = hn::Add(hn::Add(s, s), hn::Mul(hn::Mul(s, u), l));
  return log_edges(d, x, hn::MulAdd(e, hn::Set(d, 0.6931471805599453), y));
}

// arctan of a in [0, 1], to 4e-10.
template <class D, class V>
HWY_INLINE V wide_arctan(D d, V a) {
  const V u = hn::Mul(a, a);
  const V p =
      polynomial(d, u, -0x1.5555515f85350p-2, 0x1.9997fcfa8c693p-3, -0x1.247502720c453p-3,
                 0x1.c5070ae7897f3p-4, -0x1.69383bd5e198ep-4, 0x1.14df0e70628edp-4, -0x1.7033061d0eb5cp-5,
                 0x1.74e6ff4a03042p-6, -0x1.e671d270a4a58p-8, 0x1.297f623527a12p-10);
  return hn::MulAdd(hn::Mul(a, u), p, a);
}

inline constexpr double kPi = 3.14159265358979323846, kHalfPi = 1.57079632679489661923;

template <class D, class V>
HWY_INLINE V wide_arctan2(D d, V y, V x) {
  const V ay = hn::Abs(y), ax = hn::Abs(x), zero = hn::Zero(d);
  const auto steep = hn::Gt(ay, ax);
  const V low = hn::IfThenElse(steep, ax, ay), high = hn::IfThenElse(steep, ay, ax);
  V a = hn::Div(low, high);
  a = hn::IfThenElse(hn::Eq(low, high), hn::IfThenElse(hn::Eq(low, zero), zero, hn::Set(d, 1.0)), a);
  V r = wide_arctan(d, a);
  r = hn::IfThenElse(steep, hn::Sub(hn::Set(d, kHalfPi), r), r);
  // The sign bit and not a comparison: arctan2(0, -0) is π.
  const hn::RebindToSigned<D> di;
  const auto left = hn::RebindMask(d, hn::Lt(hn::BitCast(di, x), hn::Zero(di)));
  r = hn::IfThenElse(left, hn::Sub(hn::Set(d, kPi), r), r);
  r = with_sign_of(d, r, y);
  return hn::IfThenElse(hn::Or(hn::IsNaN(x), hn::IsNaN(y)), hn::NaN(d), r);
}

template <class D, class V>
HWY_INLINE V wide_arcsin(D d, V x) {
  const V a = hn::Abs(x), half = hn::Set(d, 0.5);
  const auto small = hn::Le(a, half);
  // Above ½: arcsin(a) = π/2 - 2·arcsin(√((1 - a)/2)).
  const V u = hn::IfThenElse(small, hn::Mul(a, a), hn::Mul(hn::Sub(hn::Set(d, 1.0), a), half));
  const V s = hn::IfThenElse(small, a, hn::Sqrt(u));
  const V p =
      polynomial(d, u, 0x1.55555609ab63cp-3, 0x1.3332a7a46f7dap-4, 0x1.6ddb3cf8af0d8p-5, 0x1.ed514c23c5473p-6,
                 0x1.93679ab62e503p-6, 0x1.e8c39a87b35f4p-8, 0x1.1c51808e9c4fdp-5);
  const V r = hn::MulAdd(hn::Mul(s, u), p, s);
  return with_sign_of(d, hn::IfThenElse(small, r, hn::Sub(hn::Set(d, kHalfPi), hn::Add(r, r))), x);
}

template <class D, class V>
HWY_INLINE V wide_power(D d, V x, V y) {
  const V one = hn::Set(d, 1.0), half = hn::Set(d, 0.5), zero = hn::Zero(d), a = hn::Abs(x);
  V r = wide_exp(d, hn::Mul(y, wide_log(d, a)));
  const auto integer = hn::Eq(hn::Round(y), y);
  const V halved = hn::Mul(y, half);
  const auto odd = hn::And(integer, hn::Ne(hn::Round(halved), halved));
  r = hn::IfThenElse(odd, with_sign_of(d, r, x), r);
  const auto negative = hn::And(hn::Lt(x, zero), hn::Ne(a, hn::Inf(d)));
  r = hn::IfThenElse(hn::AndNot(integer, negative), hn::NaN(d), r);
  // ∓1 to an infinite power is 1, as in C and not in JavaScript; so is 1 to NaN, and NaN to 0.
  r = hn::IfThenElse(hn::And(hn::Eq(a, one), hn::Eq(hn::Abs(y), hn::Inf(d))), one, r);
  return hn::IfThenElse(hn::Or(hn::Eq(x, one), hn::Eq(y, zero)), one, r);
}

// erfinv(x) = x·P(w), w = -log(1 - x²), in two pieces: P in w - 2.5 below 5, in √w - 3.15 above.
template <class D, class V>
HWY_INLINE V wide_erfinv(D d, V x) {
  const V one = hn::Set(d, 1.0);
  const V w = hn::Neg(wide_log(d, hn::Mul(hn::Sub(one, x), hn::Add(one, x))));
  const V t = hn::Sub(w, hn::Set(d, 2.5)), s = hn::Sub(hn::Sqrt(hn::Max(w, hn::Zero(d))), hn::Set(d, 3.15));
  const V centre = polynomial(d, t, 0x1.805c5d073f533p+0, 0x1.f91e8b0a2b8fbp-3, -0x1.11c4201b8f346p-8,
                              -0x1.48664571b2343p-10, 0x1.c9c597cbd4528p-13, -0x1.4cfcf4c5149c2p-18,
                              -0x1.ccfc4e9b79edcp-19, 0x1.f43f48632df0cp-22, 0x1.35df6eff2c76dp-26,
                              -0x1.2d6e2b04ddf18p-27, 0x1.70f1c7d57d00ap-32);
  const V tail =
      polynomial(d, s, 0x1.7de09f36e1e3ap+1, 0x1.010a2b6092ceap+0, 0x1.b4d76e8811171p-8,
                 -0x1.4396756efbae5p-8, 0x1.c787ef94c52a6p-9, -0x1.31cde0a73b706p-9, 0x1.4a10a02c4dbd5p-10,
                 -0x1.6a121b0c1be03p-12, -0x1.3bb3e3f372733p-13, 0x1.00829b8216b3ap-13);
  const V y = hn::Mul(x, hn::IfThenElse(hn::Lt(w, hn::Set(d, 5.0)), centre, tail));
  const V edge = hn::IfThenElse(hn::Eq(hn::Abs(x), one), with_sign_of(d, hn::Inf(d), x), y);
  return hn::IfThenElse(hn::Gt(hn::Abs(x), one), hn::NaN(d), edge);
}

// The quarter turns in x and the rest in [-π/4, π/4], for |x| < 2^20.
template <class D, class V>
HWY_INLINE V reduce_angle(D d, V x, V& n) {
  n = hn::Round(hn::Mul(x, hn::Set(d, 0.63661977236758134)));
  // π/2 in two parts, the first of 33 bits, so that n times it is exact.
  V r = hn::NegMulAdd(n, hn::Set(d, 0x1.921fb544p+0), x);
  return hn::NegMulAdd(n, hn::Set(d, 0x1.0b4611a626331p-34), r);
}

inline constexpr float kLargeAngle = 0x1p20f;

// sin(x + quarters·π/2).
template <class D, class V>
HWY_INLINE V sine(D d, V x, int32_t quarters) {
  const hn::Half<D> half;
  const hn::RepartitionToWide<D> wide;
  const hn::RebindToSigned<D> di;
  const hn::Rebind<int32_t, decltype(wide)> turns;
  hn::Vec<decltype(wide)> n0, n1;
  const auto r0 = reduce_angle(wide, hn::PromoteTo(wide, hn::LowerHalf(half, x)), n0);
  const auto r1 = reduce_angle(wide, hn::PromoteTo(wide, hn::UpperHalf(half, x)), n1);
  const V r = hn::Combine(d, hn::DemoteTo(half, r1), hn::DemoteTo(half, r0));
  const auto n =
      hn::Add(hn::Combine(di, hn::DemoteTo(turns, n1), hn::DemoteTo(turns, n0)), hn::Set(di, quarters));
  const V u = hn::Mul(r, r);
  const V s = hn::MulAdd(
      hn::Mul(u, r), polynomial(d, u, -0x1.555556p-3f, 0x1.111108p-7f, -0x1.a00f98p-13f, 0x1.6cd73p-19f), r);
  const V tail = polynomial(d, u, 0x1.555556p-5f, -0x1.6c16b8p-10f, 0x1.a0111cp-16f, -0x1.2429fcp-22f);
  const V c = hn::MulAdd(hn::Mul(u, u), tail, hn::NegMulAdd(u, hn::Set(d, 0.5f), hn::Set(d, 1.0f)));
  const auto odd = hn::RebindMask(d, hn::Ne(hn::And(n, hn::Set(di, 1)), hn::Zero(di)));
  const V sign = hn::BitCast(d, hn::ShiftLeft<30>(hn::And(n, hn::Set(di, 2))));
  return hn::Xor(hn::IfThenElse(odd, c, s), sign);
}

// The lanes beyond kLargeAngle by the C library, which alone reduces them well.
template <class D, class V, class F>
HWY_INLINE V patch_large_angles(D d, V x, V y, F f) {
  const auto large = hn::Ge(hn::Abs(x), hn::Set(d, kLargeAngle));
  if (hn::AllFalse(d, large)) [[likely]]
    return y;
  HWY_ALIGN float angles[hn::MaxLanes(d)], values[hn::MaxLanes(d)];
  hn::Store(x, d, angles);
  hn::Store(y, d, values);
  for (size_t i = 0; i < hn::MaxLanes(d); i++) {
    if (!(fabsf(angles[i]) < kLargeAngle)) values[i] = float(f(double(angles[i])));
  }
  return hn::Load(d, values);
}

template <class D, class V>
HWY_INLINE V sin(D d, V x) {
  // Zeros keep their sign.
  const V y = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, sine(d, x, 0));
  return patch_large_angles(d, x, y, [](double a) { return ::sin(a); });
}

template <class D, class V>
HWY_INLINE V cos(D d, V x) {
  return patch_large_angles(d, x, sine(d, x, 1), [](double a) { return ::cos(a); });
}

template <class D, class V>
HWY_INLINE V tan(D d, V x) {
  const auto f = [](auto wide, auto a) HWY_ATTR {
    decltype(a) n;
    const auto r = reduce_angle(wide, a, n), u = hn::Mul(r, r);
    const auto s =
        hn::MulAdd(hn::Mul(u, r),
                   polynomial(wide, u, -0x1.5555554p-3, 0x1.1111073p-7, -0x1.a00f98p-13, 0x1.6cd73p-19), r);
    const auto tail = polynomial(wide, u, 0x1.5555554cp-5, -0x1.6c16b8p-10, 0x1.a0111cp-16, -0x1.2429fcp-22);
    const auto c = hn::MulAdd(hn::Mul(u, u), tail, hn::NegMulAdd(u, hn::Set(wide, 0.5), hn::Set(wide, 1.0)));
    const auto half = hn::Mul(n, hn::Set(wide, 0.5));
    const auto odd = hn::Ne(hn::Round(half), half);
    return hn::Div(hn::IfThenElse(odd, hn::Neg(c), s), hn::IfThenElse(odd, s, c));
  };
  const V y = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, widened(d, f, x));
  return patch_large_angles(d, x, y, [](double a) { return ::tan(a); });
}

}  // namespace
}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();

#endif
