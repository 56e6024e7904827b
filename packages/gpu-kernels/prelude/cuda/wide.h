/* Numbers of 64 bits, which Metal does not have: the type of float64 in generated sources, and functions on
 * it. */
#pragma once

typedef double lz_double;

#define LZ_WIDE1(name) \
  inline double lz_wide_##name(double x) { return ::name(x); }
#define LZ_WIDE2(name) \
  inline double lz_wide_##name(double x, double y) { return ::name(x, y); }
// clang-format off
LZ_WIDE1(fabs) LZ_WIDE1(floor) LZ_WIDE1(ceil) LZ_WIDE1(rint) LZ_WIDE1(trunc) LZ_WIDE1(sqrt)
LZ_WIDE1(exp) LZ_WIDE1(expm1) LZ_WIDE1(log) LZ_WIDE1(log2) LZ_WIDE1(log10) LZ_WIDE1(log1p) LZ_WIDE1(erf)
LZ_WIDE1(sin) LZ_WIDE1(cos) LZ_WIDE1(tan) LZ_WIDE1(asin) LZ_WIDE1(acos) LZ_WIDE1(atan)
LZ_WIDE1(sinh) LZ_WIDE1(cosh) LZ_WIDE1(tanh) LZ_WIDE1(asinh) LZ_WIDE1(acosh) LZ_WIDE1(atanh)
LZ_WIDE2(fmod) LZ_WIDE2(pow) LZ_WIDE2(atan2)
// clang-format on
#undef LZ_WIDE1
#undef LZ_WIDE2

                inline double lz_wide_sigmoid(double x) {
  const double e = lz_wide_exp(-lz_wide_fabs(x));
  return x >= 0 ? 1 / (1 + e) : e / (1 + e);
}
inline double lz_wide_remainder(double x, double y) {
  const double r = lz_wide_fmod(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
inline double lz_wide_power(double x, double y) {
  return x == 1 || (x == -1 && lz_wide_fabs(y) == double(INFINITY)) ? 1 : lz_wide_pow(x, y);
}
inline double lz_wide_logaddexp(double x, double y) {
  const double high = x != x || x > y ? x : y, low = x != x || x < y ? x : y;
  return low == -double(INFINITY) || high == double(INFINITY) ? high
                                                              : high + lz_wide_log1p(lz_wide_exp(low - high));
}
/* Modulo 2^64; what is no number is 0. */
inline ulong lz_wide_integer(double x) {
  if (x != x || lz_wide_fabs(x) == double(INFINITY)) return 0;
  constexpr double kAll = 18446744073709551616.0;
  const double r = x - kAll * lz_wide_trunc(x / kAll);
  return r < 0 ? 0 - ulong(-r) : ulong(r);
}
