/**
 * Complex arithmetic in Metal, on `float2`: real part, imaginary part. Principal branches, as @lazuli/core's complex.ts defines them.
 */
import type { ScalarOp } from "@lazuli/core/engine"

type Expression = (x: string, y: string) => string

/** Functions that expressions call, by name, in an order in which each knows those it needs. */
export const complexFunctions: Record<string, string> = {
  lz_hypot: `float lz_hypot(float a, float b) {
  a = fabs(a); b = fabs(b);
  if (isinf(a) || isinf(b)) return INFINITY;
  float high = a > b ? a : b, low = a > b ? b : a;
  if (isnan(a) || isnan(b)) return a + b;
  if (high == 0.0f) return 0.0f;
  float r = low / high;
  return high * precise::sqrt(1.0f + r * r);
}`,
  lz_cmul: `float2 lz_cmul(float2 x, float2 y) { return float2(x.x * y.x - x.y * y.y, x.x * y.y + x.y * y.x); }`,
  // Smith's method; a division by zero is infinite in the direction of the numerator.
  lz_cdiv: `float2 lz_cdiv(float2 x, float2 y) {
  float c = y.x, d = y.y;
  if (c == 0.0f && d == 0.0f) {
    float far = copysign(INFINITY, c);
    return float2(far * x.x, far * x.y);
  }
  if (fabs(c) >= fabs(d)) {
    float r = d / c, den = c + d * r;
    return float2((x.x + x.y * r) / den, (x.y - x.x * r) / den);
  }
  float r = c / d, den = c * r + d;
  return float2((x.x * r + x.y) / den, (x.y * r - x.x) / den);
}`,
  // A product in which an infinite factor is infinite in its direction, whatever is NaN beside it.
  lz_boundless: `bool lz_boundless(float2 z) { return isinf(z.x) || isinf(z.y); }`,
  lz_direction: `float lz_direction(float t, bool boundless) {
  if (boundless) return copysign(isinf(t) ? 1.0f : 0.0f, t);
  return isnan(t) ? copysign(0.0f, t) : t;
}`,
  lz_directed: `float2 lz_directed(float2 x, float2 y) {
  float2 plain = lz_cmul(x, y);
  if (!isnan(plain.x) || !isnan(plain.y)) return plain;
  bool a = lz_boundless(x), b = lz_boundless(y);
  if (!a && !b && !isinf(x.x * y.x) && !isinf(x.y * y.y) && !isinf(x.x * y.y) && !isinf(x.y * y.x)) return plain;
  float2 to = lz_cmul(float2(lz_direction(x.x, a), lz_direction(x.y, a)), float2(lz_direction(y.x, b), lz_direction(y.y, b)));
  return float2(INFINITY * to.x, INFINITY * to.y);
}`,
  lz_cexp: `float2 lz_cexp(float2 x) {
  if (!isfinite(x.y)) {
    if (x.x == -INFINITY) return float2(0.0f, copysign(0.0f, x.y));
    if (x.x == INFINITY) return float2(INFINITY, NAN);
  }
  float e = precise::exp(x.x);
  return x.y == 0.0f ? float2(e, x.y) : float2(e * precise::cos(x.y), e * precise::sin(x.y));
}`,
  lz_clog: `float2 lz_clog(float2 x) { return float2(precise::log(lz_hypot(x.x, x.y)), precise::atan2(x.y, x.x)); }`,
  lz_csqrt: `float2 lz_csqrt(float2 x) {
  if (isinf(x.y)) return float2(INFINITY, x.y);
  if (x.x == INFINITY) return float2(INFINITY, isnan(x.y) ? NAN : copysign(0.0f, x.y));
  if (x.x == -INFINITY) return isnan(x.y) ? float2(NAN, INFINITY) : float2(0.0f, copysign(INFINITY, x.y));
  float m = lz_hypot(x.x, x.y);
  if (m == 0.0f) return float2(0.0f, x.y);
  float t = precise::sqrt(m * 0.5f + fabs(x.x) * 0.5f);
  return x.x >= 0.0f ? float2(t, x.y / (2.0f * t)) : float2(fabs(x.y) / (2.0f * t), copysign(t, x.y));
}`,
  // An infinite part times a sine or cosine, which a zero argument makes zero.
  lz_times: `float lz_times(float size, float part) { return part == 0.0f ? copysign(0.0f, size) * part : size * part; }`,
  lz_csinh: `float2 lz_csinh(float2 x) {
  if (!isfinite(x.y)) return float2(x.x == 0.0f || isinf(x.x) ? x.x : NAN, NAN);
  if (x.y == 0.0f) return float2(precise::sinh(x.x), x.y);
  return float2(lz_times(precise::sinh(x.x), precise::cos(x.y)), lz_times(precise::cosh(x.x), precise::sin(x.y)));
}`,
  lz_ccosh: `float2 lz_ccosh(float2 x) {
  if (!isfinite(x.y)) return x.x == 0.0f ? float2(NAN, 0.0f) : float2(isinf(x.x) ? INFINITY : NAN, NAN);
  if (x.y == 0.0f) return float2(precise::cosh(x.x), copysign(1.0f, x.x) * x.y);
  return float2(lz_times(precise::cosh(x.x), precise::cos(x.y)), lz_times(precise::sinh(x.x), precise::sin(x.y)));
}`,
  lz_ctanh: `float2 lz_ctanh(float2 x) {
  if (isinf(x.x)) return float2(copysign(1.0f, x.x), isfinite(x.y) ? 0.0f * precise::sin(2.0f * x.y) : copysign(0.0f, x.y));
  if (!isfinite(x.y)) return float2(x.x == 0.0f ? x.x : NAN, NAN);
  if (isnan(x.x)) return float2(NAN, x.y == 0.0f ? x.y : NAN);
  if (fabs(x.x) > 20.0f) return float2(copysign(1.0f, x.x), 0.0f * precise::sin(2.0f * x.y));
  float den = precise::cosh(2.0f * x.x) + precise::cos(2.0f * x.y);
  return float2(precise::sinh(2.0f * x.x) / den, precise::sin(2.0f * x.y) / den);
}`,
  lz_times_i: `float2 lz_times_i(float2 x) { return float2(-x.y, x.x); }`,
  lz_over_i: `float2 lz_over_i(float2 x) { return float2(x.y, -x.x); }`,
  // Kahan, "Branch cuts for complex elementary functions", 1987.
  lz_carctanh: `float2 lz_carctanh(float2 z) {
  float x = z.x, y = z.y;
  if (isinf(y)) return float2(copysign(0.0f, x), copysign(M_PI_2_F, y));
  if (isinf(x)) return float2(copysign(0.0f, x), isnan(y) ? NAN : copysign(M_PI_2_F, y));
  if (isnan(y)) return float2(x == 0.0f ? x : NAN, NAN);
  if (isnan(x)) return float2(NAN, NAN);
  if (fabs(x) == 1.0f && y == 0.0f) return float2(copysign(INFINITY, x), y);
  if (fabs(x) > 1e15f || fabs(y) > 1e15f) {
    float scale = 1.0f / (fabs(x) > fabs(y) ? fabs(x) : fabs(y));
    float u = x * scale, v = y * scale;
    return float2(u / (u * u + v * v) * scale, y < 0.0f ? -M_PI_2_F : M_PI_2_F);
  }
  float gap = (1.0f - x) * (1.0f - x) + y * y;
  return float2(0.25f * lz_log1p(4.0f * x / gap), 0.5f * precise::atan2(2.0f * y, (1.0f - x) * (1.0f + x) - y * y));
}`,
  lz_finite: `bool lz_finite(float2 z) { return isfinite(z.x) && isfinite(z.y); }`,
  // Of numbers with an infinite or NaN part.
  lz_boundless_arcsinh: `float2 lz_boundless_arcsinh(float2 z) {
  float x = z.x, y = z.y;
  if (isinf(x)) return float2(x, isnan(y) ? NAN : copysign(isinf(y) ? M_PI_4_F : 0.0f, y));
  if (isinf(y)) return float2(copysign(INFINITY, x), isnan(x) ? NAN : copysign(M_PI_2_F, y));
  return isnan(x) && y == 0.0f ? float2(NAN, y) : float2(NAN, NAN);
}`,
  lz_boundless_arccos: `float2 lz_boundless_arccos(float2 z) {
  float x = z.x, y = z.y;
  if (isinf(x)) {
    if (isnan(y)) return float2(NAN, INFINITY);
    float angle = isinf(y) ? M_PI_4_F : 0.0f;
    return float2(x > 0.0f ? angle : M_PI_F - angle, copysign(INFINITY, -y));
  }
  if (isinf(y)) return float2(isnan(x) ? NAN : M_PI_2_F, -y);
  return float2(x == 0.0f ? M_PI_2_F : NAN, NAN);
}`,
  lz_carcsin: `float2 lz_carcsin(float2 z) {
  if (!lz_finite(z)) return lz_over_i(lz_boundless_arcsinh(lz_times_i(z)));
  float2 p = lz_csqrt(float2(1.0f - z.x, -z.y)), q = lz_csqrt(float2(1.0f + z.x, z.y));
  return float2(precise::atan2(z.x, p.x * q.x - p.y * q.y), precise::asinh(p.x * q.y - p.y * q.x));
}`,
  lz_carcsinh: `float2 lz_carcsinh(float2 z) {
  return lz_finite(z) ? lz_over_i(lz_carcsin(lz_times_i(z))) : lz_boundless_arcsinh(z);
}`,
  lz_carccos: `float2 lz_carccos(float2 z) {
  if (!lz_finite(z)) return lz_boundless_arccos(z);
  float2 p = lz_csqrt(float2(1.0f - z.x, -z.y)), q = lz_csqrt(float2(1.0f + z.x, z.y));
  return float2(2.0f * precise::atan2(p.x, q.x), precise::asinh(q.x * p.y - q.y * p.x));
}`,
  lz_carccosh: `float2 lz_carccosh(float2 z) {
  if (!lz_finite(z)) {
    float2 w = lz_boundless_arccos(z);
    return float2(fabs(w.y), isnan(w.x) ? NAN : copysign(w.x, z.y));
  }
  float2 p = lz_csqrt(float2(z.x - 1.0f, z.y)), q = lz_csqrt(float2(z.x + 1.0f, z.y));
  return float2(precise::asinh(p.x * q.x + p.y * q.y), 2.0f * precise::atan2(p.y, q.x));
}`,
  lz_csign: `float2 lz_csign(float2 x) {
  if (x.x == 0.0f && x.y == 0.0f) return x;
  float scale = 1.0f / lz_hypot(x.x, x.y);
  return x * scale;
}`,
  lz_ceq: `bool lz_ceq(float2 x, float2 y) { return x.x == y.x && x.y == y.y; }`,
  lz_cless: `bool lz_cless(float2 x, float2 y) { return x.x < y.x || (x.x == y.x && x.y < y.y); }`,
  lz_cmaximum: `float2 lz_cmaximum(float2 x, float2 y) { return isnan(x.x) || isnan(x.y) || lz_cless(y, x) ? x : y; }`,
  lz_cminimum: `float2 lz_cminimum(float2 x, float2 y) { return isnan(x.x) || isnan(x.y) || lz_cless(x, y) ? x : y; }`,
  lz_cpower: `float2 lz_cpower(float2 x, float2 y) {
  if (y.x == 0.0f && y.y == 0.0f) return float2(1.0f, 0.0f);
  if (x.x == 0.0f && x.y == 0.0f) return isnan(y.x) || isnan(y.y) ? float2(NAN, NAN) : float2(0.0f, 0.0f);
  return lz_cexp(lz_directed(y, lz_clog(x)));
}`,
  lz_clogaddexp: `float2 lz_clogaddexp(float2 x, float2 y) {
  bool swap = lz_cless(x, y);
  float2 high = swap ? y : x, low = swap ? x : y;
  // Two infinities of one sign have no difference.
  if (isinf(high.x) && high.x == low.x) return high;
  return high + lz_clog(float2(1.0f, 0.0f) + lz_cexp(low - high));
}`,
}

const ONE = "float2(1.0f, 0.0f)"
const call =
  (name: string): Expression =>
  (x) =>
    `${name}(${x})`
const call2 =
  (name: string): Expression =>
  (x, y) =>
    `${name}(${x}, ${y})`
const each =
  (name: string): Expression =>
  (x) =>
    `float2(${name}(${x}.x), ${name}(${x}.y))`
const through =
  (name: string): Expression =>
  (x) =>
    `lz_over_i(${name}(lz_times_i(${x})))`
const isTrue = (x: string): string => `(${x}.x != 0.0f || ${x}.y != 0.0f)`

/** Instructions on complex64; arguments are names of registers. */
export const complexExpressions: Partial<Record<ScalarOp, Expression>> = {
  negative: (x) => `-${x}`,
  abs: (x) => `lz_hypot(${x}.x, ${x}.y)`,
  sign: call("lz_csign"),
  sqrt: call("lz_csqrt"),
  rsqrt: (x) => `lz_cdiv(${ONE}, lz_csqrt(${x}))`,
  square: (x) => `lz_cmul(${x}, ${x})`,
  reciprocal: (x) => `lz_cdiv(${ONE}, ${x})`,
  exp: call("lz_cexp"),
  expm1: (x) => `lz_cexp(${x}) - ${ONE}`,
  log: call("lz_clog"),
  log2: (x) => `lz_clog(${x}) * M_LOG2E_F`,
  log10: (x) => `lz_clog(${x}) * M_LOG10E_F`,
  log1p: (x) => `lz_clog(${ONE} + ${x})`,
  sin: through("lz_csinh"),
  cos: (x) => `lz_ccosh(lz_times_i(${x}))`,
  tan: through("lz_ctanh"),
  arcsin: call("lz_carcsin"),
  arccos: call("lz_carccos"),
  arctan: through("lz_carctanh"),
  sinh: call("lz_csinh"),
  cosh: call("lz_ccosh"),
  tanh: call("lz_ctanh"),
  arcsinh: call("lz_carcsinh"),
  arccosh: call("lz_carccosh"),
  arctanh: call("lz_carctanh"),
  sigmoid: (x) => `lz_cdiv(${ONE}, ${ONE} + lz_cexp(-${x}))`,
  round: each("rint"),
  floor: each("floor"),
  ceil: each("ceil"),
  logicalNot: (x) => `!${isTrue(x)}`,
  conjugate: (x) => `float2(${x}.x, -${x}.y)`,
  real: (x) => `${x}.x`,
  imag: (x) => `${x}.y`,
  add: (x, y) => `${x} + ${y}`,
  subtract: (x, y) => `${x} - ${y}`,
  multiply: call2("lz_cmul"),
  divide: call2("lz_cdiv"),
  power: call2("lz_cpower"),
  maximum: call2("lz_cmaximum"),
  minimum: call2("lz_cminimum"),
  logaddexp: call2("lz_clogaddexp"),
  logicalAnd: (x, y) => `${isTrue(x)} && ${isTrue(y)}`,
  logicalOr: (x, y) => `${isTrue(x)} || ${isTrue(y)}`,
  equal: call2("lz_ceq"),
  notEqual: (x, y) => `!lz_ceq(${x}, ${y})`,
  less: call2("lz_cless"),
  lessEqual: (x, y) => `lz_cless(${x}, ${y}) || lz_ceq(${x}, ${y})`,
  greater: (x, y) => `lz_cless(${y}, ${x})`,
  greaterEqual: (x, y) => `lz_cless(${y}, ${x}) || lz_ceq(${x}, ${y})`,
}
