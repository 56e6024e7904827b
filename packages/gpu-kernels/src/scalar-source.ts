/**
 * Scalar instructions in Metal: an expression over registers, and the functions that Metal's library lacks.
 * The definition they are held to is @lazuli/core's scalar-math.ts.
 */
import {
  bfloat16,
  type Dtype,
  encoder,
  float32,
  newStore,
  type ScalarOp,
  type ScalarValue,
} from "@lazuli/core/engine"
import { complexExpressions, complexFunctions } from "./complex-source"
import { computeType, elementType } from "./metal-types"

type Expression = (x: string, y: string) => string

/** Functions that expressions call, by name, in an order in which each knows those it needs. */
const functions: Record<string, string> = {
  // Kahan's corrections of the rounding of 1 + x and of exp(x).
  lz_log1p: `float lz_log1p(float x) {
  float u = 1.0f + x;
  return u == 1.0f ? x : u == INFINITY ? u : log(u) * (x / (u - 1.0f));
}`,
  lz_expm1: `float lz_expm1(float x) {
  if (fabs(x) < 1e-5f) return x + 0.5f * x * x;
  float u = exp(x);
  if (u == 1.0f) return x;
  float d = u - 1.0f;
  return d == -1.0f || isinf(u) || isnan(u) ? d : d * (x / log(u));
}`,
  // Polynomials fitted for this file at Chebyshev nodes: erf(x)/x in x² below 1, log erfc(x) from 1 to 4. Relative error 2e-7. By
  // `fma`, since compilers that keep to the text contract nothing: gelu of 1 GB takes an H200 0.27 ms instead of 0.31.
  lz_erf: `float lz_erf(float x) {
  float a = fabs(x);
  if (isnan(x)) return x;
  if (a >= 4.0f) return x < 0.0f ? -1.0f : 1.0f;
  if (a < 1.0f) {
    float u = x * x;
    float p = 1.059526766766794e-06f;
    p = fma(p, u, -1.3911698260926642e-05f); p = fma(p, u, 0.00011956946400459856f); p = fma(p, u, -0.0008542670402675867f);
    p = fma(p, u, 0.005223785061389208f); p = fma(p, u, -0.026866134256124496f); p = fma(p, u, 0.11283791065216064f);
    p = fma(p, u, -0.37612637877464294f); p = fma(p, u, 1.128379225730896f);
    return x * p;
  }
  float q = 1.6140616025950294e-06f;
  q = fma(q, a, -4.559062290354632e-05f); q = fma(q, a, 0.0005927695310674608f); q = fma(q, a, -0.004740222357213497f);
  q = fma(q, a, 0.02636471763253212f); q = fma(q, a, -0.10997824370861053f); q = fma(q, a, -0.6319370865821838f);
  q = fma(q, a, -1.1301666498184204f); q = fma(q, a, 0.00030321296071633697f);
  float r = 1.0f - exp(q);
  return x < 0.0f ? -r : r;
}`,
  // M. Giles, "Approximating the erfinv function", GPU Computing Gems 2 (2010): single precision.
  lz_erfinv: `float lz_erfinv(float y) {
  if (fabs(y) == 1.0f) return y * INFINITY;
  float w = -log((1.0f - y) * (1.0f + y));
  float p;
  if (w < 5.0f) {
    w -= 2.5f;
    p = 2.81022636e-08f;
    p = 3.43273939e-07f + p * w; p = -3.5233877e-06f + p * w; p = -4.39150654e-06f + p * w; p = 0.00021858087f + p * w;
    p = -0.00125372503f + p * w; p = -0.00417768164f + p * w; p = 0.246640727f + p * w; p = 1.50140941f + p * w;
  } else {
    w = sqrt(w) - 3.0f;
    p = -0.000200214257f;
    p = 0.000100950558f + p * w; p = 0.00134934322f + p * w; p = -0.00367342844f + p * w; p = 0.00573950773f + p * w;
    p = -0.0076224613f + p * w; p = 0.00943887047f + p * w; p = 1.00167406f + p * w; p = 2.83297682f + p * w;
  }
  return p * y;
}`,
  lz_sigmoid: `float lz_sigmoid(float x) {
  float e = exp(-fabs(x));
  return x >= 0.0f ? 1.0f / (1.0f + e) : e / (1.0f + e);
}`,
  // A float that has a bfloat's value, as such: its upper half.
  lz_brain: `inline bfloat lz_brain(float x) { return as_type<bfloat>(ushort(as_type<uint>(x) >> 16)); }`,
  lz_brain_add: `inline float lz_brain_add(float x, float y) { return float(lz_brain(x) + lz_brain(y)); }`,
  lz_brain_subtract: `inline float lz_brain_subtract(float x, float y) { return float(lz_brain(x) - lz_brain(y)); }`,
  lz_brain_multiply: `inline float lz_brain_multiply(float x, float y) { return float(lz_brain(x) * lz_brain(y)); }`,
  // A platform's quick function may be right to 11 bits, of which a bfloat has 8, and may overflow far out.
  lz_brain_tanh: `inline float lz_brain_tanh(float x) { return x != x ? x : fast::tanh(clamp(x, -9.0f, 9.0f)); }`,
  lz_maximum: `template <typename T> T lz_maximum(T x, T y) { return x != x || x > y ? x : y; }`,
  lz_minimum: `template <typename T> T lz_minimum(T x, T y) { return x != x || x < y ? x : y; }`,
  lz_logaddexp: `float lz_logaddexp(float x, float y) {
  float high = lz_maximum(x, y), low = lz_minimum(x, y);
  return low == -INFINITY || high == INFINITY ? high : high + lz_log1p(exp(low - high));
}`,
  lz_remainder: `float lz_remainder(float x, float y) {
  float r = fmod(x, y);
  return r != 0.0f && (r < 0.0f) != (y < 0.0f) ? r + y : r;
}`,
  lz_power: `float lz_power(float x, float y) {
  return x == 1.0f || (x == -1.0f && isinf(y)) ? 1.0f : pow(x, y);
}`,
  // Integers: a division by zero gives 0; the lowest number divided by -1 wraps.
  lz_int_remainder: `template <typename T> T lz_int_remainder(T x, T y) {
  if (y == T(0)) return T(0);
  if (T(-1) < T(0) && y == T(-1)) return T(0);
  T r = x % y;
  return r != T(0) && (r < T(0)) != (y < T(0)) ? r + y : r;
}`,
  lz_int_divide: `template <typename T> T lz_int_divide(T x, T y) {
  if (y == T(0)) return T(0);
  return T(-1) < T(0) && y == T(-1) ? T(0) - x : x / y;
}`,
  lz_int_power: `template <typename T> T lz_int_power(T x, T y) {
  if (y < T(0)) return T(0);
  T result = T(1);
  for (; y > T(0); y = y / T(2), x = x * x) if (y % T(2) != T(0)) result = result * x;
  return result;
}`,
  // Modulo 2^64, which every step here keeps exact.
  lz_integer: `ulong lz_integer(float x) {
  if (isnan(x) || isinf(x)) return 0ul;
  float r = x - 18446744073709551616.0f * trunc(x / 18446744073709551616.0f);
  return r < 0.0f ? 0ul - ulong(-r) : ulong(r);
}`,
  ...complexFunctions,
}

/** The source of the functions that a text calls, those that they call themselves included. */
export function functionsFor(text: string): string {
  const needed = new Set<string>()
  const visit = (source: string): void => {
    for (const name of source.match(/\blz_\w+/g) ?? []) {
      if (needed.has(name) || !(name in functions)) continue
      needed.add(name)
      visit(functions[name])
    }
  }
  visit(text)
  return Object.keys(functions)
    .filter((name) => needed.has(name))
    .map((name) => `${functions[name]}\n`)
    .join("")
}

const call =
  (name: string): Expression =>
  (x) =>
    `${name}(${x})`
const call2 =
  (name: string): Expression =>
  (x, y) =>
    `${name}(${x}, ${y})`
const infix =
  (sign: string): Expression =>
  (x, y) =>
    `${x} ${sign} ${y}`

const anyKind: Partial<Record<ScalarOp, Expression>> = {
  square: (x) => `${x} * ${x}`,
  conjugate: (x) => x,
  real: (x) => x,
  add: infix("+"),
  subtract: infix("-"),
  multiply: infix("*"),
  maximum: call2("lz_maximum"),
  minimum: call2("lz_minimum"),
  equal: infix("=="),
  notEqual: infix("!="),
  less: infix("<"),
  lessEqual: infix("<="),
  greater: infix(">"),
  greaterEqual: infix(">="),
  logicalNot: (x) => `!bool(${x})`,
  logicalAnd: (x, y) => `bool(${x}) && bool(${y})`,
  logicalOr: (x, y) => `bool(${x}) || bool(${y})`,
}

const floating: Partial<Record<ScalarOp, Expression>> = {
  ...anyKind,
  negative: (x) => `-${x}`,
  abs: call("fabs"),
  sign: (x) => `float(${x} > 0.0f) - float(${x} < 0.0f)`,
  floor: call("floor"),
  ceil: call("ceil"),
  round: call("rint"),
  sqrt: call("precise::sqrt"),
  rsqrt: (x) => `1.0f / precise::sqrt(${x})`,
  reciprocal: (x) => `1.0f / ${x}`,
  exp: call("precise::exp"),
  expm1: call("lz_expm1"),
  log: call("precise::log"),
  log2: call("precise::log2"),
  log10: call("precise::log10"),
  log1p: call("lz_log1p"),
  sin: call("precise::sin"),
  cos: call("precise::cos"),
  tan: call("precise::tan"),
  arcsin: call("precise::asin"),
  arccos: call("precise::acos"),
  arctan: call("precise::atan"),
  sinh: call("precise::sinh"),
  cosh: call("precise::cosh"),
  tanh: call("precise::tanh"),
  arcsinh: call("precise::asinh"),
  arccosh: call("precise::acosh"),
  arctanh: call("precise::atanh"),
  erf: call("lz_erf"),
  erfinv: call("lz_erfinv"),
  sigmoid: call("lz_sigmoid"),
  imag: () => "0.0f",
  divide: infix("/"),
  floorDivide: (x, y) => `floor(${x} / ${y})`,
  remainder: call2("lz_remainder"),
  power: call2("lz_power"),
  arctan2: call2("precise::atan2"),
  logaddexp: call2("lz_logaddexp"),
  complex: (x, y) => `float2(${x}, ${y})`,
}

/** float64, by functions of the prelude. */
const wide: Partial<Record<ScalarOp, Expression>> = {
  ...floating,
  abs: call("lz_wide_fabs"),
  sign: (x) => `lz_double(${x} > 0.0f) - lz_double(${x} < 0.0f)`,
  floor: call("lz_wide_floor"),
  ceil: call("lz_wide_ceil"),
  round: call("lz_wide_rint"),
  sqrt: call("lz_wide_sqrt"),
  rsqrt: (x) => `1.0f / lz_wide_sqrt(${x})`,
  exp: call("lz_wide_exp"),
  expm1: call("lz_wide_expm1"),
  log: call("lz_wide_log"),
  log2: call("lz_wide_log2"),
  log10: call("lz_wide_log10"),
  log1p: call("lz_wide_log1p"),
  sin: call("lz_wide_sin"),
  cos: call("lz_wide_cos"),
  tan: call("lz_wide_tan"),
  arcsin: call("lz_wide_asin"),
  arccos: call("lz_wide_acos"),
  arctan: call("lz_wide_atan"),
  sinh: call("lz_wide_sinh"),
  cosh: call("lz_wide_cosh"),
  tanh: call("lz_wide_tanh"),
  arcsinh: call("lz_wide_asinh"),
  arccosh: call("lz_wide_acosh"),
  arctanh: call("lz_wide_atanh"),
  erf: call("lz_wide_erf"),
  erfinv: undefined,
  sigmoid: call("lz_wide_sigmoid"),
  floorDivide: (x, y) => `lz_wide_floor(${x} / ${y})`,
  remainder: call2("lz_wide_remainder"),
  power: call2("lz_wide_power"),
  arctan2: call2("lz_wide_atan2"),
  logaddexp: call2("lz_wide_logaddexp"),
  complex: (x, y) => `float2(float(${x}), float(${y}))`,
}

function integer(op: ScalarOp, dtype: Dtype): Expression | undefined {
  const type = computeType(dtype)
  const bits = dtype.size * 8
  const signed = dtype.kind === "signed"
  switch (op) {
    // Through the unsigned type, in which an overflow wraps.
    case "add":
    case "subtract":
    case "multiply": {
      const wide = dtype.size === 8 ? "ulong" : "uint"
      const sign = { add: "+", subtract: "-", multiply: "*" }[op]
      return (x, y) => `${type}(${wide}(${x}) ${sign} ${wide}(${y}))`
    }
    case "square":
      return (x) => `${x} * ${x}`
    case "negative":
      return (x) => `${type}(0) - ${x}`
    case "abs":
      return (x) => (signed ? `(${x} < 0 ? ${type}(0) - ${x} : ${x})` : x)
    case "sign":
      return (x) => `${type}(${x} > 0) - ${type}(${x} < 0)`
    case "floor":
    case "ceil":
    case "round":
      return (x) => x
    case "imag":
      return () => `${type}(0)`
    case "bitwiseInvert":
      return (x) => `~${x}`
    case "floorDivide":
      return call2("lz_int_divide")
    case "remainder":
      return call2("lz_int_remainder")
    case "power":
      return call2("lz_int_power")
    case "bitwiseAnd":
      return infix("&")
    case "bitwiseOr":
      return infix("|")
    case "bitwiseXor":
      return infix("^")
    case "leftShift":
      return (x, y) => `(${y} >= 0 && ${y} < ${bits} ? ${x} << ${y} : ${type}(0))`
    case "rightShift":
      return signed
        ? (x, y) => `${x} >> (${y} >= 0 && ${y} < ${bits} ? ${y} : ${type}(${bits - 1}))`
        : (x, y) => `(${y} < ${bits} ? ${x} >> ${y} : ${type}(0))`
    default:
      return anyKind[op]
  }
}

const boolean: Partial<Record<ScalarOp, Expression>> = {
  ...anyKind,
  add: infix("|"),
  multiply: infix("&"),
  bitwiseAnd: infix("&"),
  bitwiseOr: infix("|"),
  bitwiseXor: infix("^"),
  subtract: undefined,
  square: (x) => x,
  abs: (x) => x,
  sign: (x) => x,
}

/** The expression of an instruction on arguments of `dtype` in Metal; undefined where there is none. */
export function expressionFor(op: ScalarOp, dtype: Dtype): Expression | undefined {
  if (!elementType(dtype)) return undefined
  if (dtype.kind === "complex") return complexExpressions[op]
  if (dtype.kind === "floating") return (dtype.size === 8 ? wide : floating)[op]
  return dtype.kind === "bool" ? boolean[op] : integer(op, dtype)
}

/** Functions that platforms have for bfloat16, and whose results need no rounding. */
const brain: Partial<Record<ScalarOp, Expression>> = {
  add: call2("lz_brain_add"),
  subtract: call2("lz_brain_subtract"),
  multiply: call2("lz_brain_multiply"),
  square: (x) => `lz_brain_multiply(${x}, ${x})`,
  tanh: (x) => rounded(`lz_brain_tanh(${x})`, bfloat16),
}

/** An instruction on arguments of `from`, rounded to the dtype of its result; undefined where there is none. */
export function instructionFor(op: ScalarOp, from: Dtype, to: Dtype): Expression | undefined {
  const own = from === bfloat16 && to === bfloat16 ? brain[op] : undefined
  if (own) return own
  const expression = expressionFor(op, from)
  return expression && ((x, y) => rounded(expression(x, y), to))
}

/** A value of the compute type as the dtype would store it. */
export function rounded(expression: string, dtype: Dtype): string {
  const type = elementType(dtype) as string
  const compute = computeType(dtype)
  return type === compute ? `${type}(${expression})` : `${compute}(${type}(${expression}))`
}

/** Conversion between dtypes: truncation towards zero, wrapping; NaN is 0 as an integer. */
export function conversion(x: string, from: Dtype, to: Dtype): string {
  if (from.kind === "complex") {
    if (to.kind === "complex") return x
    if (to.kind === "bool") return `${x}.x != 0.0f || ${x}.y != 0.0f`
    return conversion(`${x}.x`, float32, to)
  }
  if (to.kind === "complex") return `float2(float(${x}), 0.0f)`
  if (to.kind === "bool") return `bool(${x})`
  if (from.kind === "floating" && to.kind !== "floating")
    return rounded(`${from.size === 8 ? "lz_wide_integer" : "lz_integer"}(${x})`, to)
  return rounded(x, to)
}

/** The bytes of a scalar of the dtype. */
export function bytesOf(value: ScalarValue, dtype: Dtype): ArrayBufferView {
  const store = newStore(dtype, 1)
  if (typeof value === "object") {
    store[0] = value.re
    store[1] = value.im
  } else store[0] = encoder(dtype)(value as number) as never
  return store
}

/** A constant of the compute type, to the bit. */
export function constantSource(value: ScalarValue, dtype: Dtype): string {
  if (dtype.kind === "bool") return String(Boolean(value))
  const store = bytesOf(value, dtype) as Uint8Array
  if (dtype.kind === "complex") {
    const [re, im] = new Uint32Array(store.buffer)
    return `float2(as_type<float>(0x${re.toString(16)}u), as_type<float>(0x${im.toString(16)}u))`
  }
  const type = elementType(dtype) as string
  if (dtype.kind === "floating" && dtype.size === 8)
    return `as_type<${type}>(0x${new BigUint64Array(store.buffer)[0].toString(16)}ul)`
  if (dtype.kind === "floating") {
    const bits = dtype.size === 4 ? new Uint32Array(store.buffer)[0] : new Uint16Array(store.buffer)[0]
    return `float(as_type<${type}>(${dtype.size === 4 ? "uint" : "ushort"}(0x${bits.toString(16)}u)))`
  }
  const compute = computeType(dtype)
  if (dtype.size === 8) return `${compute}(0x${new BigUint64Array(store.buffer)[0].toString(16)}ul)`
  return `${compute}(0x${(Number(store[0]) >>> 0).toString(16)}u)`
}
