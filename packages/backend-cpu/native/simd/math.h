// Functions of float32 vectors, for all arguments, within about 2 units in the last place. Polynomials are
// minimax fits (Remez) of what remains after the range reduction that each function states.
#ifndef LAZULI_SIMD_MATH_H
#define LAZULI_SIMD_MATH_H

#include <hwy/highway.h>
#include <stdint.h>

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
      polynomial(d, r, 0.5f, 0x1.555556p-3f, 0x1.5554aep-5f, 0x1.11109p-7f, 0x1.6d7526p-10f, 0x1.a1a242p-13f);
  return hn::MulAdd(hn::Mul(r, r), q, r);
}

// 2^n for an integer n in [-126, 127], given as the low bits of a float.
template <class D, class V>
HWY_INLINE V power_of_two(D d, V bits) {
  const hn::RebindToSigned<D> di;
  return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::BitCast(di, bits), hn::Set(di, 127))));
}

// exp where the result is a normal number: x in [-87, 88].
template <class D, class V>
HWY_INLINE V exp_normal(D d, V x) {
  const auto it = reduce_exp(d, x);
  return hn::Mul(hn::Add(hn::Set(d, 1.0f), expm1_reduced(d, it.r)), power_of_two(d, it.bits));
}

template <class D, class V>
HWY_INLINE V exp(D d, V x) {
  // Beyond these the result is 0 or infinite anyway; within, two factors reach all subnormal and finite
  // results.
  const V inside = hn::Min(hn::Max(x, hn::Set(d, -104.0f)), hn::Set(d, 89.0f));
  const auto it = reduce_exp(d, inside);
  const hn::RebindToSigned<D> di;
  const auto n = hn::ConvertTo(di, it.n);
  const auto half = hn::ShiftRight<1>(n);
  const V p = hn::Add(hn::Set(d, 1.0f), expm1_reduced(d, it.r));
  const V y = hn::Mul(hn::Mul(p, power_of_two(d, hn::BitCast(d, half))),
                      power_of_two(d, hn::BitCast(d, hn::Sub(n, half))));
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

template <class D, class V>
HWY_INLINE V expm1(D d, V x) {
  // exp(x) - 1 = 2^n·(p + (1 - 2^-n)) with p = exp(r) - 1. Below -18 the result rounds to -1.
  const V inside = hn::Min(hn::Max(x, hn::Set(d, -18.0f)), hn::Set(d, 89.0f));
  const auto it = reduce_exp(d, inside);
  const hn::RebindToSigned<D> di;
  const auto n = hn::ConvertTo(di, it.n);
  const auto half = hn::ShiftRight<1>(n);
  const V p = expm1_reduced(d, it.r);
  // Above 2^25 the 1 no longer shows, and 2^-n need not be formed.
  const V down = power_of_two(d, hn::BitCast(d, hn::Neg(hn::Min(n, hn::Set(di, 26)))));
  const V sum = hn::Add(p, hn::Sub(hn::Set(d, 1.0f), down));
  const V y = hn::Mul(hn::Mul(sum, power_of_two(d, hn::BitCast(d, half))),
                      power_of_two(d, hn::BitCast(d, hn::Sub(n, half))));
  // Zeros keep their sign, NaN stays.
  return hn::IfThenElse(hn::Or(hn::IsNaN(x), hn::Eq(x, hn::Zero(d))), x, y);
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

// What a logarithm gives for 0, negative numbers, infinity and NaN; y elsewhere.
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
  // What the sum lost, exactly; it joins f at the scale of m.
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
  const V one = hn::Set(d, 1.0f);
  const V a = hn::Abs(x), u = hn::Mul(x, x);
  // x + x³·T(x²) below 0.63, 1 - 2/(exp(2a) + 1) above; from 10 on that is 1.
  const V t =
      polynomial(d, u, -0x1.55553p-2f, 0x1.11068ep-3f, -0x1.b8265cp-5f, 0x1.518b12p-6f, -0x1.72fc3cp-8f);
  const V small = hn::MulAdd(hn::Mul(u, x), t, x);
  const V twice = hn::Min(hn::Add(a, a), hn::Set(d, 20.0f));
  const V large = hn::Sub(one, hn::Div(hn::Set(d, 2.0f), hn::Add(exp_normal(d, twice), one)));
  const V y = hn::IfThenElse(hn::Lt(a, hn::Set(d, 0.63f)), small, with_sign_of(d, large, x));
  return hn::IfThenElse(hn::Or(hn::IsNaN(x), hn::Eq(x, hn::Zero(d))), x, y);
}

template <class D, class V>
HWY_INLINE V sigmoid(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V e = exp(d, hn::Neg(hn::Abs(x)));
  const V y = hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one), hn::Add(one, e));
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

template <class D, class V>
HWY_INLINE V erf(D d, V x) {
  const V a = hn::Min(hn::Abs(x), hn::Set(d, 4.0f)), u = hn::Mul(x, x);
  // x + x·E(x²) below 1; above, 1 - exp(-P) with P a fit of -log(erfc), whose errors count for little beside
  // the 1.
  const V small = hn::MulAdd(x,
                             polynomial(d, u, 0x1.06eba8p-3f, -0x1.81273ep-2f, 0x1.ce2d2p-4f, -0x1.b7fbb4p-6f,
                                        0x1.5419f4p-8f, -0x1.a485e6p-11f, 0x1.4ae4bap-14f),
                             x);
  const V p = polynomial(d, a, -0x1.8b3ecap-13f, 0x1.212c2cp+0f, 0x1.4434fp-1f, 0x1.bc18cep-4f,
                         -0x1.9d0bdp-6f, 0x1.1398f2p-8f, -0x1.ceead4p-12f, 0x1.6c066ap-16f);
  const V large = hn::Sub(hn::Set(d, 1.0f), exp_normal(d, hn::Neg(p)));
  const V y = hn::IfThenElse(hn::Lt(a, hn::Set(d, 1.0f)), small, with_sign_of(d, large, x));
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

}  // namespace
}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();

#endif
