// float64 arithmetic, and complex64 where it is plain arithmetic on pairs. Functions of both are the C
// library's (runtime/scalar_functions.cc).
#include "simd/micro_float.h"

namespace lazuli::LZ_TARGET {
namespace {

struct Pair {
  float re, im;
};

struct PairAdd {
  static Pair run(Pair x, Pair y) { return {x.re + y.re, x.im + y.im}; }
};
struct PairSubtract {
  static Pair run(Pair x, Pair y) { return {x.re - y.re, x.im - y.im}; }
};
struct PairMultiply {
  static Pair run(Pair x, Pair y) { return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re}; }
};
struct PairNegative {
  static Pair run(Pair x) { return {-x.re, -x.im}; }
};
struct PairConjugate {
  static Pair run(Pair x) { return {x.re, -x.im}; }
};
struct PairSquare {
  static Pair run(Pair x) { return PairMultiply::run(x, x); }
};
struct PairReal {
  static float run(Pair x) { return x.re; }
};
struct PairImag {
  static float run(Pair x) { return x.im; }
};
struct PairEqual {
  static bool run(Pair x, Pair y) { return bool(x.re == y.re) & bool(x.im == y.im); }
};
struct PairNotEqual {
  static bool run(Pair x, Pair y) { return bool(x.re != y.re) | bool(x.im != y.im); }
};
struct PairOf {
  static Pair run(float re, float im) { return {re, im}; }
};

void fill(MicroTable& table) {
  add_float<double>(table, LZ_FLOAT64);
  add_binary<PairAdd, Pair>(table, Op::add, LZ_COMPLEX64);
  add_binary<PairSubtract, Pair>(table, Op::subtract, LZ_COMPLEX64);
  add_binary<PairMultiply, Pair>(table, Op::multiply, LZ_COMPLEX64);
  add_unary<PairNegative, Pair>(table, Op::negative, LZ_COMPLEX64);
  add_unary<PairConjugate, Pair>(table, Op::conjugate, LZ_COMPLEX64);
  add_unary<PairSquare, Pair>(table, Op::square, LZ_COMPLEX64);
  add_unary<PairReal, Pair, float>(table, Op::real, LZ_COMPLEX64);
  add_unary<PairImag, Pair, float>(table, Op::imag, LZ_COMPLEX64);
  add_binary<PairEqual, Pair, uint8_t>(table, Op::equal, LZ_COMPLEX64);
  add_binary<PairNotEqual, Pair, uint8_t>(table, Op::notEqual, LZ_COMPLEX64);
  add_binary<PairOf, float, Pair>(table, Op::complex, LZ_FLOAT32);
  add_select<uint64_t>(table, LZ_COMPLEX64);
}

}  // namespace

const MicroFamily& micro_float64() {
  static constexpr MicroFamily family = {fill};
  return family;
}

}  // namespace lazuli::LZ_TARGET
