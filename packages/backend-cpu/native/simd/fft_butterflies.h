// The small transforms that larger ones are made of, on vectors of lanes: sizes 2, 3, 4, 5, 7, 8 and any odd
// size. Winograd and Rader save multiplications that fused multiply-adds make free; these are the plain
// forms.
#ifndef LAZULI_SIMD_FFT_BUTTERFLIES_H
#define LAZULI_SIMD_FFT_BUTTERFLIES_H

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

template <class T>
using Lanes = hn::ScalableTag<T>;
template <class T>
using Vector = hn::Vec<Lanes<T>>;

// One complex number a lane.
template <class T>
struct Number {
  Vector<T> re, im;
};
template <class T>
HWY_INLINE Number<T> add(Number<T> a, Number<T> b) {
  return {hn::Add(a.re, b.re), hn::Add(a.im, b.im)};
}
template <class T>
HWY_INLINE Number<T> subtract(Number<T> a, Number<T> b) {
  return {hn::Sub(a.re, b.re), hn::Sub(a.im, b.im)};
}
// a·(re + i·im)
template <class T>
HWY_INLINE Number<T> multiply(Number<T> a, Vector<T> re, Vector<T> im) {
  return {hn::NegMulAdd(a.im, im, hn::Mul(a.re, re)), hn::MulAdd(a.im, re, hn::Mul(a.re, im))};
}
// a − i·b and a + i·b
template <class T>
HWY_INLINE Number<T> minus_i(Number<T> a, Number<T> b) {
  return {hn::Add(a.re, b.im), hn::Sub(a.im, b.re)};
}
template <class T>
HWY_INLINE Number<T> plus_i(Number<T> a, Number<T> b) {
  return {hn::Sub(a.re, b.im), hn::Add(a.im, b.re)};
}

template <class T>
HWY_INLINE void butterfly4(Number<T>& a, Number<T>& b, Number<T>& c, Number<T>& d) {
  const Number<T> s = add(a, c), t = subtract(a, c), u = add(b, d), v = subtract(b, d);
  a = add(s, u);
  b = minus_i(t, v);
  c = subtract(s, u);
  d = plus_i(t, v);
}

// cos and sin of 2πj/R for j ≤ R/2.
template <int R>
struct Circle;
template <>
struct Circle<3> {
  static constexpr double cos[] = {1, -0.5};
  static constexpr double sin[] = {0, 0.86602540378443864676};
};
template <>
struct Circle<5> {
  static constexpr double cos[] = {1, 0.30901699437494742410, -0.80901699437494742410};
  static constexpr double sin[] = {0, 0.95105651629515357212, 0.58778525229247312917};
};
template <>
struct Circle<7> {
  static constexpr double cos[] = {1, 0.62348980185873353053, -0.22252093395631440429,
                                   -0.90096886790241912624};
  static constexpr double sin[] = {0, 0.78183148246802980871, 0.97492791218182360702, 0.43388373911755812048};
};

// a[k] = Σ a[j] exp(−2πi jk/R). For odd R the terms j and R−j share their products, and so do the results k
// and R−k.
template <int R, class T>
HWY_INLINE void butterfly(Number<T>* a) {
  const Lanes<T> d;
  if constexpr (R == 2) {
    const Number<T> t = subtract(a[0], a[1]);
    a[0] = add(a[0], a[1]);
    a[1] = t;
  } else if constexpr (R == 4) {
    butterfly4(a[0], a[1], a[2], a[3]);
  } else if constexpr (R == 8) {
    butterfly4(a[0], a[2], a[4], a[6]);
    butterfly4(a[1], a[3], a[5], a[7]);
    const Vector<T> half = hn::Set(d, T(0.70710678118654752440));
    const Number<T> x = a[3], z = a[7];
    const Number<T> w1 = {hn::Mul(hn::Add(x.re, x.im), half), hn::Mul(hn::Sub(x.im, x.re), half)};
    const Number<T> w3 = {hn::Mul(hn::Sub(z.im, z.re), half), hn::Mul(hn::Add(z.re, z.im), half)};  // negated
    const Number<T> e0 = a[0], e1 = a[2], e2 = a[4], e3 = a[6], o0 = a[1], o2 = a[5];
    a[0] = add(e0, o0);
    a[4] = subtract(e0, o0);
    a[1] = add(e1, w1);
    a[5] = subtract(e1, w1);
    a[2] = minus_i(e2, o2);
    a[6] = plus_i(e2, o2);
    a[3] = {hn::Add(e3.re, w3.re), hn::Sub(e3.im, w3.im)};
    a[7] = {hn::Sub(e3.re, w3.re), hn::Add(e3.im, w3.im)};
  } else {
    constexpr int H = R / 2;
    Number<T> sum[H + 1], difference[H + 1];
    Number<T> total = a[0];
    for (int j = 1; j <= H; j++) {
      sum[j] = add(a[j], a[R - j]);
      difference[j] = subtract(a[j], a[R - j]);
      total = add(total, sum[j]);
    }
    const Number<T> first = a[0];
    a[0] = total;
    for (int k = 1; k <= H; k++) {
      Number<T> even = first, odd = {hn::Zero(d), hn::Zero(d)};
      for (int j = 1; j <= H; j++) {
        const int turn = j * k % R;
        const Vector<T> c = hn::Set(d, T(Circle<R>::cos[turn <= H ? turn : R - turn]));
        const Vector<T> s = hn::Set(d, T(turn <= H ? Circle<R>::sin[turn] : -Circle<R>::sin[R - turn]));
        even = {hn::MulAdd(sum[j].re, c, even.re), hn::MulAdd(sum[j].im, c, even.im)};
        odd = {hn::MulAdd(difference[j].re, s, odd.re), hn::MulAdd(difference[j].im, s, odd.im)};
      }
      a[k] = minus_i(even, odd);
      a[R - k] = plus_i(even, odd);
    }
  }
}

// The same for an odd size known at run time, with `roots` the cosines and then the sines of 2πj/radix for j
// < radix.
template <class T>
HWY_INLINE void butterfly_odd(int radix, const T* roots, Number<T>* a, Number<T>* sum,
                              Number<T>* difference) {
  const Lanes<T> d;
  const int half = radix / 2;
  Number<T> total = a[0];
  for (int j = 1; j <= half; j++) {
    sum[j] = add(a[j], a[radix - j]);
    difference[j] = subtract(a[j], a[radix - j]);
    total = add(total, sum[j]);
  }
  const Number<T> first = a[0];
  a[0] = total;
  for (int k = 1; k <= half; k++) {
    Number<T> even = first, odd = {hn::Zero(d), hn::Zero(d)};
    for (int j = 1, turn = k; j <= half; j++) {
      const Vector<T> c = hn::Set(d, roots[turn]), s = hn::Set(d, roots[radix + turn]);
      even = {hn::MulAdd(sum[j].re, c, even.re), hn::MulAdd(sum[j].im, c, even.im)};
      odd = {hn::MulAdd(difference[j].re, s, odd.re), hn::MulAdd(difference[j].im, s, odd.im)};
      turn += k;
      if (turn >= radix) turn -= radix;
    }
    a[k] = minus_i(even, odd);
    a[radix - k] = plus_i(even, odd);
  }
}

}  // namespace
}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();

#endif
