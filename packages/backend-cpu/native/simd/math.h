// Functions of float32 vectors, for all arguments, within about 2 units in the last place. Polynomials are
// minimax fits (Remez) of what remains after the range reduction that each function states.
#ifndef LAZULI_SIMD_MATH_H
#define LAZULI_SIMD_MATH_H

#include <stdint.h>
// Machine code takes these functions from here as well, through vectors of its own: see machine/traced.h.
#ifndef LAZULI_MACHINE_TRACED_H
#include <hwy/highway.h>
#endif

#include "simd/erf_pieces.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

// c0 + c1·x + c2·x² + …
template <class D, class V, class C>
HWY_INLINE V polynomial(D d, V, C c) {
  return hn::Set(d, c);
}
template <class D, class V, class C, class... Cs>
HWY_INLINE V polynomial(D d, V x, C c, Cs... rest) {
  return hn::MulAdd(polynomial(d, x, rest...), x, hn::Set(d, c));
}

template <class D, class V>
HWY_INLINE V with_sign_of(D d, V magnitude, V sign) {
  return hn::Or(magnitude, hn::And(sign, hn::SignBit(d)));
}

template <class V>
struct Reduced {
  V n, r, bits;  // bits: n as an integer, in the low bits
};

// x = n·ln 2 + r with |r| ≤ ln(2)/2.
template <class D, class V>
HWY_INLINE Reduced<V> reduce_exp(D d, V x) {
  // Adding 1.5·2^23 rounds to an integer and leaves it in the sum's low bits.
  const V magic = hn::Set(d, 12582912.0f);
  const V bits = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic);
  const V n = hn::Sub(bits, magic);
  // ln 2 in two parts, the first of 15 bits, so that n times it is exact.
  V r = hn::NegMulAdd(n, hn::Set(d, 0x1.62e4p-1f), x);
  r = hn::NegMulAdd(n, hn::Set(d, 1.42860677e-6f), r);
  return {n, r, bits};
}

// exp(r) - 1 for |r| ≤ ln(2)/2.
template <class D, class V>
HWY_INLINE V expm1_reduced(D d, V r) {
  const V q =
      polynomial(d, r, 0x1.fffffep-2f, 0x1.5554b4p-3f, 0x1.5556f6p-5f, 0x1.12251p-7f, 0x1.6b97b6p-10f);
  return hn::MulAdd(hn::Mul(r, r), q, r);
}

// 2^(n + k) for an integer n, given as the low bits of a float, with n + k in [-126, 127].
template <int k = 0, class D, class V>
HWY_INLINE V power_of_two(D d, V bits) {
  const hn::RebindToSigned<D> di;
  return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::BitCast(di, bits), hn::Set(di, 127 + k))));
}

// y·2^n for y in [½, 2] and any n that exp needs, rounded once.
template <class D, class V>
HWY_INLINE V times_power_of_two(D d, V y, V n) {
#if defined(LAZULI_MACHINE_TRACED_H)
  if constexpr (hn::MaxLanes(d) == 16) return hn::TimesPowerOfTwo(y, n);
#endif
#if defined(__AVX512F__) && HWY_MAX_BYTES == 64
  return V{_mm512_scalef_ps(y.raw, n.raw)};
#else
  // Two factors reach all subnormal and finite results; the first product is exact.
  const hn::RebindToSigned<D> di;
  const auto whole = hn::ConvertTo(di, n), half = hn::ShiftRight<1>(whole);
  return hn::Mul(hn::Mul(y, power_of_two(d, hn::BitCast(d, half))),
                 power_of_two(d, hn::BitCast(d, hn::Sub(whole, half))));
#endif
}

// x held above or below a limit. NaN stays: where one side is NaN, Max and Min give their second argument on
// x86; elsewhere they may give the side that is a number.
template <class D, class V>
HWY_INLINE V at_least(D d, float low, V x) {
  const V limit = hn::Set(d, low);
#if defined(__x86_64__) || defined(_M_X64)
  return hn::Max(limit, x);
#else
  return hn::IfThenElse(hn::Lt(x, limit), limit, x);
#endif
}
template <class D, class V>
HWY_INLINE V at_most(D d, float high, V x) {
  const V limit = hn::Set(d, high);
#if defined(__x86_64__) || defined(_M_X64)
  return hn::Min(limit, x);
#else
  return hn::IfThenElse(hn::Gt(x, limit), limit, x);
#endif
}
template <class D, class V>
HWY_INLINE V clamp(D d, float low, V x, float high) {
  return at_most(d, high, at_least(d, low, x));
}

// exp for x in [-104, 89] and NaN.
template <class D, class V>
HWY_INLINE V exp_inside(D d, V x) {
  const auto it = reduce_exp(d, x);
  return times_power_of_two(d, hn::Add(hn::Set(d, 1.0f), expm1_reduced(d, it.r)), it.n);
}

// Beyond the clamp's limits the result is 0 or infinite anyway.
template <class D, class V>
HWY_INLINE V exp(D d, V x) {
  return exp_inside(d, clamp(d, -104.0f, x, 89.0f));
}

template <class D, class V>
HWY_INLINE V expm1(D d, V x) {
  // ½·exp(x) - ½ = 2^(n-1)·p + (2^(n-1) - ½) with p = exp(r) - 1. Below -18 the result rounds to -1.
  const auto it = reduce_exp(d, clamp(d, -18.0f, x, 89.0f));
  const V scale = power_of_two<-1>(d, it.bits);
  const V y = hn::MulAdd(scale, expm1_reduced(d, it.r), hn::Sub(scale, hn::Set(d, 0.5f)));
  // Half of a subnormal number may not be one, and -0 keeps its sign.
  return hn::IfThenElse(hn::Lt(hn::Abs(x), hn::Set(d, 0x1p-100f)), x, hn::Add(y, y));
}

// log(2^e·(1 + f)) for f in [√½ - 1, √2 - 1]: e·ln 2 + f - f²/2 + f³·R(f).
template <class D, class V>
HWY_INLINE V log_reduced(D d, V e, V f) {
  const V square = hn::Mul(f, f);
  const V r = polynomial(d, f, 0x1.555546p-2f, -0x1.ffffeep-3f, 0x1.99a54cp-3f, -0x1.5562f2p-3f,
                         0x1.233248p-3f, -0x1.fb408ap-4f, 0x1.e65559p-4f, -0x1.e2fc5cp-4f, 0x1.1b4dfap-4f);
  V y = hn::MulAdd(hn::Mul(square, f), r, hn::Mul(e, hn::Set(d, 1.42860677e-6f)));
  y = hn::NegMulAdd(square, hn::Set(d, 0.5f), y);
  return hn::MulAdd(e, hn::Set(d, 0x1.62e4p-1f), hn::Add(f, y));
}

// Splits a positive normal x into 2^e·m with m in [√½, √2).
template <class D, class V>
HWY_INLINE void split(D d, V x, V& e, V& m) {
  const hn::RebindToSigned<D> di;
  const auto bits = hn::BitCast(di, x);
  const auto exponent = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(di, 0x3f3504f3)));
  e = hn::ConvertTo(d, exponent);
  m = hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(exponent)));
}

// The logarithm of 0, negative numbers, infinity and NaN; y elsewhere.
template <class D, class V>
HWY_INLINE V log_edges(D d, V x, V y) {
  const V infinity = hn::Inf(d);
  y = hn::IfThenElse(hn::Eq(x, infinity), infinity, y);
  y = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(infinity), y);
  return hn::IfThenElse(hn::Or(hn::Lt(x, hn::Zero(d)), hn::IsNaN(x)), hn::NaN(d), y);
}

template <class D, class V>
HWY_INLINE V log(D d, V x) {
  const auto small = hn::Lt(x, hn::Set(d, 0x1p-126f));
  V e, m;
  split(d, hn::IfThenElse(small, hn::Mul(x, hn::Set(d, 0x1p24f)), x), e, m);
  e = hn::IfThenElse(small, hn::Sub(e, hn::Set(d, 24.0f)), e);
  return log_edges(d, x, log_reduced(d, e, hn::Sub(m, hn::Set(d, 1.0f))));
}

template <class D, class V>
HWY_INLINE V log1p(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V u = hn::Add(one, x);
  // The rounding error of the sum, exactly; it joins f at the scale of m.
  const V lost = hn::IfThenElse(hn::Gt(x, one), hn::Sub(one, hn::Sub(u, x)), hn::Sub(x, hn::Sub(u, one)));
  V e, m;
  split(d, u, e, m);
  const hn::RebindToSigned<D> di;
  const V scale = power_of_two(d, hn::BitCast(d, hn::Neg(hn::Min(hn::ConvertTo(di, e), hn::Set(di, 126)))));
  const V f = hn::MulAdd(hn::IfThenZeroElse(hn::Gt(x, hn::Set(d, 0x1p25f)), lost), scale, hn::Sub(m, one));
  const V y = log_edges(d, u, log_reduced(d, e, f));
  return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, y);
}

template <class D, class V>
HWY_INLINE V tanh(D d, V x) {
  // (1 - w)/(1 + w) with w = exp(-2|x|) = 2^n + 2^n·p: for small x n is 0 and nothing cancels. From 10 on the
  // result is 1.
  const V one = hn::Set(d, 1.0f);
  const auto it = reduce_exp(d, at_least(d, -20.0f, hn::Mul(hn::Abs(x), hn::Set(d, -2.0f))));
  const V p = expm1_reduced(d, it.r), scale = power_of_two(d, it.bits);
  const V y =
      hn::Div(hn::NegMulAdd(scale, p, hn::Sub(one, scale)), hn::MulAdd(scale, p, hn::Add(one, scale)));
  return hn::CopySignToAbs(y, x);
}

// 1/(1 + w) with w = exp(-x) = 2^n + 2^n·p. From 17 on the result rounds to 1. Where n is more than 100, w is
// all of the sum, and what is left of n scales the result.
template <class D, class V>
HWY_INLINE V sigmoid(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const auto it = reduce_exp(d, clamp(d, -20.0f, hn::Neg(x), 104.0f));
  const V bits = hn::Min(it.bits, hn::Set(d, 12582912.0f + 100.0f)), scale = power_of_two(d, bits);
  const V sum = hn::Add(one, scale);
  const V lost = hn::Sub(hn::Min(one, scale), hn::Sub(sum, hn::Max(one, scale)));
  const V y = hn::Div(one, hn::Add(sum, hn::MulAdd(scale, expm1_reduced(d, it.r), lost)));
  return times_power_of_two(d, y, hn::Sub(bits, it.bits));
}

// table[i mod 16] in every lane, i being the lane's bits.
#if defined(LAZULI_MACHINE_TRACED_H)
template <class D, class V>
HWY_INLINE V lookup(D d, const float* table, V i) {
  return hn::Lookup(hn::Load(d, table), i);
}
#elif defined(__AVX512F__) && HWY_MAX_BYTES == 64
template <class D, class V>
HWY_INLINE V lookup(D d, const float* table, V i) {
  return V{_mm512_permutexvar_ps(hn::BitCast(hn::RebindToSigned<D>(), i).raw, hn::Load(d, table).raw)};
}
#else
template <class D, class V>
HWY_INLINE V lookup(D d, const float*, V) {
  return hn::Zero(d);  // never called
}
#endif

template <class D, class V>
HWY_INLINE V erf_by_pieces(D d, V x) {
  using P = ErfPieces;
  const V a = at_most(d, P::kCenter[15], hn::Abs(x));
  // As in reduce_exp; a NaN's piece does not matter.
  const V piece = hn::MulAdd(a, hn::Set(d, 3.95f), hn::Set(d, 12582912.0f));
  const V r = hn::Sub(a, lookup(d, P::kCenter, piece));
  V q = hn::MulAdd(lookup(d, P::kC5, piece), r, lookup(d, P::kC4, piece));
  q = hn::MulAdd(q, r, lookup(d, P::kC3, piece));
  q = hn::MulAdd(q, r, lookup(d, P::kC2, piece));
  q = hn::MulAdd(q, r, lookup(d, P::kC1, piece));
  // The first piece has no value, and its r is a; no other r is as large as a value.
  return hn::CopySignToAbs(hn::MulAdd(r, q, hn::Max(lookup(d, P::kValue, piece), r)), x);
}

// log(1 + t) for t in [0, 1].
template <class D, class V>
HWY_INLINE V log1p_fraction(D d, V t) {
  const V q = polynomial(d, t, -0x1.ffffd2p-2f, 0x1.554dd4p-2f, -0x1.ff249ep-3f, 0x1.93510cp-3f,
                         -0x1.3a597ap-3f, 0x1.b50b32p-4f, -0x1.d78b46p-5f, 0x1.4a24ap-6f, -0x1.b1650ep-9f);
  return hn::MulAdd(hn::Mul(t, t), q, t);
}

// log(exp(x) + exp(y)) = max(x, y) + log(1 + exp(-|x - y|)). Equal numbers may be infinite.
template <class D, class V>
HWY_INLINE V logaddexp(D d, V x, V y) {
  const V apart = hn::IfThenZeroElse(hn::Eq(x, y), hn::Or(hn::Sub(x, y), hn::SignBit(d)));
  const V t = exp_inside(d, at_least(d, -104.0f, apart));
  return hn::Add(hn::Max(x, y), log1p_fraction(d, t));
}

template <class D, class V>
HWY_INLINE V erf(D d, V x) {
  if constexpr (hn::MaxLanes(d) == 16) return erf_by_pieces(d, x);
  // 1 - exp(-P) with P a fit of -log(erfc), as (1 - 2^n) - 2^n·(exp(r) - 1): for small x n is 0 and nothing
  // cancels. From 4 on the result is 1.
  const V a = at_most(d, 4.0f, hn::Abs(x));
  const V p = hn::MulAdd(
      polynomial(d, a, 0x1.06eba8p-3f, 0x1.45f3p-1f, 0x1.a4f8c4p-4f, -0x1.39b7c8p-6f, -0x1.637fbep-13f,
                 0x1.b74634p-10f, -0x1.4e2c1cp-11f, 0x1.f29314p-14f, -0x1.3b0ca6p-17f),
      a, a);
  const V magic = hn::Set(d, 12582912.0f);
  const V bits = hn::NegMulAdd(p, hn::Set(d, 1.44269504f), magic);
  // Where n is not 0, the error of this ln 2 counts for little beside the rest.
  const V r = hn::Neg(hn::MulAdd(hn::Sub(bits, magic), hn::Set(d, 0.693147181f), p));
  const V scale = power_of_two(d, bits);
  const V y = hn::NegMulAdd(scale, expm1_reduced(d, r), hn::Sub(hn::Set(d, 1.0f), scale));
  return hn::CopySignToAbs(y, x);
}

}  // namespace
}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();

#endif
