// Scalar functions by the C and C++ libraries: all of float64's and complex64's, and those of float32 that
// have no vector code. Semantics (branches, zeros, NaN) follow @lazuli/core's scalar instructions.
#include <cmath>
#include <complex>

#include "runtime/dtype.h"
#include "runtime/scalar_ops.h"

namespace lazuli {
namespace {

// F is a function or a lambda without captures.
template <class T, auto F>
void unary(void* out, const void* a, const void*, const void*, int64_t n) {
  auto* y = static_cast<T*>(out);
  const auto* x = static_cast<const T*>(a);
  for (int64_t i = 0; i < n; i++) y[i] = F(x[i]);
}

template <class T, class R, auto F, bool kLeft, bool kRight>
void binary(void* out, const void* a, const void* b, const void*, int64_t n) {
  auto* z = static_cast<R*>(out);
  const auto* x = static_cast<const T*>(a);
  const auto* y = static_cast<const T*>(b);
  const T x0 = *x, y0 = *y;
  for (int64_t i = 0; i < n; i++) z[i] = F(kLeft ? x0 : x[i], kRight ? y0 : y[i]);
}

template <class T>
struct Adder {
  MicroTable& table;
  int dtype;
  template <auto F>
  void one(Op op) {
    table.sets[int(op)][dtype] = {unary<T, F>};
  }
  template <auto F>
  void two(Op op) {
    table.sets[int(op)][dtype] = {binary<T, T, F, false, false>, binary<T, T, F, true, false>,
                                  binary<T, T, F, false, true>};
  }
};

template <class T>
T sigmoid(T x) {
  const T e = std::exp(-std::abs(x));
  return x >= T(0) ? T(1) / (T(1) + e) : e / (T(1) + e);
}

// Starts from Winitzki's approximation and refines it by Halley steps on erf, in double precision.
double erfinv(double y) {
  if (std::isnan(y) || std::abs(y) > 1) return std::nan("");
  if (std::abs(y) == 1) return y * HUGE_VAL;
  if (y == 0) return y;
  const double log = std::log1p(-y * y), half = 2 / (M_PI * 0.147) + log / 2;
  double x = std::copysign(std::sqrt(std::sqrt(half * half - log / 0.147) - half), y);
  for (int i = 0; i < 3; i++) {
    // Near ±1 the difference of erf and y would cancel; that of the complements does not.
    const double error = y > 0 ? (1 - y) - std::erfc(x) : std::erfc(-x) - (1 + y);
    const double slope = M_2_SQRTPI * std::exp(-x * x);
    if (slope == 0) break;
    const double step = error / slope;
    x -= step / (1 + x * step);
  }
  return x;
}

template <class T>
T remainder(T x, T y) {
  const T r = std::fmod(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

template <class T>
T logaddexp(T x, T y) {
  if (std::isnan(x) || std::isnan(y)) return x + y;
  const T high = x > y ? x : y, low = x > y ? y : x;
  if (low == -HUGE_VAL || high == HUGE_VAL) return high;
  return high + std::log1p(std::exp(low - high));
}

template <class T>
void add_real(MicroTable& table, int dtype) {
  Adder<T> add{table, dtype};
  add.template one<[](T x) { return T(std::exp(x)); }>(Op::exp);
  add.template one<[](T x) { return T(std::expm1(x)); }>(Op::expm1);
  add.template one<[](T x) { return T(std::log(x)); }>(Op::log);
  add.template one<[](T x) { return T(std::log2(x)); }>(Op::log2);
  add.template one<[](T x) { return T(std::log10(x)); }>(Op::log10);
  add.template one<[](T x) { return T(std::log1p(x)); }>(Op::log1p);
  add.template one<[](T x) { return T(std::sin(x)); }>(Op::sin);
  add.template one<[](T x) { return T(std::cos(x)); }>(Op::cos);
  add.template one<[](T x) { return T(std::tan(x)); }>(Op::tan);
  add.template one<[](T x) { return T(std::asin(x)); }>(Op::arcsin);
  add.template one<[](T x) { return T(std::acos(x)); }>(Op::arccos);
  add.template one<[](T x) { return T(std::atan(x)); }>(Op::arctan);
  add.template one<[](T x) { return T(std::sinh(x)); }>(Op::sinh);
  add.template one<[](T x) { return T(std::cosh(x)); }>(Op::cosh);
  add.template one<[](T x) { return T(std::tanh(x)); }>(Op::tanh);
  add.template one<[](T x) { return T(std::asinh(x)); }>(Op::arcsinh);
  add.template one<[](T x) { return T(std::acosh(x)); }>(Op::arccosh);
  add.template one<[](T x) { return T(std::atanh(x)); }>(Op::arctanh);
  add.template one<[](T x) { return T(std::erf(x)); }>(Op::erf);
  add.template one<[](T x) { return T(erfinv(double(x))); }>(Op::erfinv);
  add.template one<sigmoid<T>>(Op::sigmoid);
  add.template two<remainder<T>>(Op::remainder);
  add.template two<[](T x, T y) { return T(std::pow(x, y)); }>(Op::power);
  add.template two<[](T x, T y) { return T(std::atan2(x, y)); }>(Op::arctan2);
  add.template two<logaddexp<T>>(Op::logaddexp);
}

using C = complex64;

C divide(C x, C y) {
  // Smith's method: scaled by the larger part of the divisor, squares cannot overflow.
  const float a = x.real(), b = x.imag(), c = y.real(), d = y.imag();
  if (c == 0 && d == 0) {
    // Infinite in the direction of the numerator.
    const float infinity = std::copysign(HUGE_VALF, c);
    return {infinity * a, infinity * b};
  }
  if (std::abs(c) >= std::abs(d)) {
    const float r = d / c, den = c + d * r;
    return {(a + b * r) / den, (b - a * r) / den};
  }
  const float r = c / d, den = c * r + d;
  return {(a * r + b) / den, (b * r - a) / den};
}

C sign(C x) {
  const float size = std::hypot(x.real(), x.imag());
  return size == 0 ? x : C(x.real() / size, x.imag() / size);
}

bool is_nan(C x) { return std::isnan(x.real()) || std::isnan(x.imag()); }
bool is_zero(C x) { return x.real() == 0 && x.imag() == 0; }

C power(C x, C y) {
  if (y == C(0)) return C(1);
  if (x == C(0)) return is_nan(y) ? C(NAN, NAN) : C(0);
  // In double precision, because the logarithm's error is multiplied by the exponent.
  const std::complex<double> z = std::exp(std::complex<double>(y) * std::log(std::complex<double>(x)));
  return C(float(z.real()), float(z.imag()));
}

bool less(C x, C y) { return x.real() < y.real() || (x.real() == y.real() && x.imag() < y.imag()); }
C maximum(C x, C y) { return is_nan(x) || less(y, x) ? x : y; }
C minimum(C x, C y) { return is_nan(x) || less(x, y) ? x : y; }
C logaddexp_complex(C x, C y) {
  const C high = less(x, y) ? y : x, low = less(x, y) ? x : y;
  // Two infinities of one sign have no difference.
  if (std::isinf(high.real()) && high.real() == low.real()) return high;
  return high + std::log(C(1) + std::exp(low - high));
}

void complex_abs(void* out, const void* a, const void*, const void*, int64_t n) {
  auto* y = static_cast<float*>(out);
  const auto* x = static_cast<const C*>(a);
  for (int64_t i = 0; i < n; i++) y[i] = std::hypot(x[i].real(), x[i].imag());
}

void complex_not(void* out, const void* a, const void*, const void*, int64_t n) {
  auto* y = static_cast<bool*>(out);
  const auto* x = static_cast<const C*>(a);
  for (int64_t i = 0; i < n; i++) y[i] = is_zero(x[i]);
}

template <auto F>
void compare(MicroTable& table, Op op) {
  table.sets[int(op)][LZ_COMPLEX64] = {binary<C, bool, F, false, false>, binary<C, bool, F, true, false>,
                                       binary<C, bool, F, false, true>};
}

void add_complex(MicroTable& table) {
  Adder<C> add{table, LZ_COMPLEX64};
  add.one<[](C x) { return std::exp(x); }>(Op::exp);
  add.one<[](C x) { return std::exp(x) - C(1); }>(Op::expm1);
  add.one<[](C x) { return std::log(x); }>(Op::log);
  add.one<[](C x) { return std::log(x) * float(M_LOG2E); }>(Op::log2);
  add.one<[](C x) { return std::log(x) * float(M_LOG10E); }>(Op::log10);
  add.one<[](C x) { return std::log(C(1) + x); }>(Op::log1p);
  add.one<[](C x) { return std::sin(x); }>(Op::sin);
  add.one<[](C x) { return std::cos(x); }>(Op::cos);
  add.one<[](C x) { return std::tan(x); }>(Op::tan);
  add.one<[](C x) { return std::asin(x); }>(Op::arcsin);
  add.one<[](C x) { return std::acos(x); }>(Op::arccos);
  add.one<[](C x) { return std::atan(x); }>(Op::arctan);
  add.one<[](C x) { return std::sinh(x); }>(Op::sinh);
  add.one<[](C x) { return std::cosh(x); }>(Op::cosh);
  add.one<[](C x) { return std::tanh(x); }>(Op::tanh);
  add.one<[](C x) { return std::asinh(x); }>(Op::arcsinh);
  add.one<[](C x) { return std::acosh(x); }>(Op::arccosh);
  add.one<[](C x) { return std::atanh(x); }>(Op::arctanh);
  add.one<[](C x) { return std::sqrt(x); }>(Op::sqrt);
  add.one<[](C x) { return divide(C(1), std::sqrt(x)); }>(Op::rsqrt);
  add.one<[](C x) { return divide(C(1), x); }>(Op::reciprocal);
  add.one<[](C x) { return divide(C(1), C(1) + std::exp(-x)); }>(Op::sigmoid);
  add.one<[](C x) { return C(std::floor(x.real()), std::floor(x.imag())); }>(Op::floor);
  add.one<[](C x) { return C(std::ceil(x.real()), std::ceil(x.imag())); }>(Op::ceil);
  add.one<sign>(Op::sign);
  add.two<divide>(Op::divide);
  add.two<power>(Op::power);
  add.two<maximum>(Op::maximum);
  add.two<minimum>(Op::minimum);
  add.two<logaddexp_complex>(Op::logaddexp);
  table.sets[int(Op::abs)][LZ_COMPLEX64] = {complex_abs};
  table.sets[int(Op::logicalNot)][LZ_COMPLEX64] = {complex_not};
  compare<[](C x, C y) { return less(x, y); }>(table, Op::less);
  compare<[](C x, C y) { return less(x, y) || x == y; }>(table, Op::lessEqual);
  compare<[](C x, C y) { return less(y, x); }>(table, Op::greater);
  compare<[](C x, C y) { return less(y, x) || x == y; }>(table, Op::greaterEqual);
  compare<[](C x, C y) { return !is_zero(x) && !is_zero(y); }>(table, Op::logicalAnd);
  compare<[](C x, C y) { return !is_zero(x) || !is_zero(y); }>(table, Op::logicalOr);
}

}  // namespace

void fill_scalar_functions(MicroTable& table) {
  add_real<float>(table, LZ_FLOAT32);
  add_real<double>(table, LZ_FLOAT64);
  add_complex(table);
}

}  // namespace lazuli
