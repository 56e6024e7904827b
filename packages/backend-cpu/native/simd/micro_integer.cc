// The eight integer types, and bool. Overflow wraps, a division by zero gives 0, a shift by the width or more
// brings in nothing but the sign.
#include "simd/micro_loops.h"

namespace lazuli::LZ_TARGET {
namespace {

template <class T>
inline constexpr bool is_signed = T(-1) < T(0);

template <int kBytes>
struct Unsigned;
// clang-format off
template <> struct Unsigned<1> { using type = uint8_t; };
template <> struct Unsigned<2> { using type = uint16_t; };
template <> struct Unsigned<4> { using type = uint32_t; };
template <> struct Unsigned<8> { using type = uint64_t; };
// clang-format on

// Arithmetic that wraps: unsigned, and at least 32 bits wide, because narrower types would promote to int.
template <class T>
using Word = typename Unsigned<sizeof(T) < 4 ? 4 : sizeof(T)>::type;
template <class T>
constexpr Word<T> word(T x) {
  return Word<T>(x);
}

// clang-format off
struct Negative { template <class T> static T run(T x) { return T(Word<T>(0) - word(x)); } };
struct Abs { template <class T> static T run(T x) { return x < T(0) ? Negative::run(x) : x; } };
struct Sign { template <class T> static T run(T x) { return T(int(x > T(0)) - int(x < T(0))); } };
struct Add { template <class T> static T run(T x, T y) { return T(word(x) + word(y)); } };
struct Subtract { template <class T> static T run(T x, T y) { return T(word(x) - word(y)); } };
struct Multiply { template <class T> static T run(T x, T y) { return T(word(x) * word(y)); } };
struct Square { template <class T> static T run(T x) { return Multiply::run(x, x); } };
struct Maximum { template <class T> static T run(T x, T y) { return x > y ? x : y; } };
struct Minimum { template <class T> static T run(T x, T y) { return x < y ? x : y; } };
struct And { template <class T> static T run(T x, T y) { return T(x & y); } };
struct Or { template <class T> static T run(T x, T y) { return T(x | y); } };
struct Xor { template <class T> static T run(T x, T y) { return T(x ^ y); } };
struct Invert { template <class T> static T run(T x) { return T(~x); } };
// clang-format on

// The quotient towards zero, as in MLX. -1 is apart because the quotient of the least number by it would
// trap.
struct FloorDivide {
  template <class T>
  static T run(T x, T y) {
    if (y == T(0)) return T(0);
    if constexpr (is_signed<T>) {
      if (y == T(-1)) return Negative::run(x);
    }
    return T(x / y);
  }
};

// With the divisor's sign, as Python's %.
struct Remainder {
  template <class T>
  static T run(T x, T y) {
    if (y == T(0)) return T(0);
    if constexpr (is_signed<T>) {
      if (y == T(-1)) return T(0);
      const T r = T(x % y);
      return r != T(0) && (r < T(0)) != (y < T(0)) ? T(r + y) : r;
    }
    return T(x % y);
  }
};

// By squaring; a negative exponent gives 0, of 1 too, as in MLX.
struct Power {
  template <class T>
  static T run(T x, T y) {
    if (y < T(0)) return T(0);
    Word<T> result = 1, base = word(x);
    for (Word<T> n = word(y); n; n >>= 1, base *= base)
      if (n & 1) result *= base;
    return T(result);
  }
};

struct LeftShift {
  template <class T>
  static T run(T x, T y) {
    constexpr int kBits = int(sizeof(T)) * 8;
    return Word<T>(y) < Word<T>(kBits) ? T(word(x) << (word(y) & Word<T>(kBits - 1))) : T(0);
  }
};

struct RightShift {
  template <class T>
  static T run(T x, T y) {
    constexpr int kBits = int(sizeof(T)) * 8;
    const bool inside = Word<T>(y) < Word<T>(kBits);
    const T shifted = T(x >> (word(y) & Word<T>(kBits - 1)));
    if constexpr (is_signed<T>) return inside ? shifted : T(x >> (kBits - 1));
    return inside ? shifted : T(0);
  }
};

template <class T>
void add_integer(MicroTable& table, int dtype) {
  constexpr Op kSame[] = {Op::floor, Op::ceil, Op::round};
  for (Op same : kSame) add_unary<Identity, T>(table, same, dtype);
  add_unary<Negative, T>(table, Op::negative, dtype);
  add_unary<Abs, T>(table, Op::abs, dtype);
  add_unary<Sign, T>(table, Op::sign, dtype);
  add_unary<Square, T>(table, Op::square, dtype);
  add_unary<Invert, T>(table, Op::bitwiseInvert, dtype);
  add_binary<Add, T>(table, Op::add, dtype);
  add_binary<Subtract, T>(table, Op::subtract, dtype);
  add_binary<Multiply, T>(table, Op::multiply, dtype);
  add_binary<FloorDivide, T>(table, Op::floorDivide, dtype);
  add_binary<Remainder, T>(table, Op::remainder, dtype);
  add_binary<Power, T>(table, Op::power, dtype);
  add_binary<Maximum, T>(table, Op::maximum, dtype);
  add_binary<Minimum, T>(table, Op::minimum, dtype);
  add_binary<And, T>(table, Op::bitwiseAnd, dtype);
  add_binary<Or, T>(table, Op::bitwiseOr, dtype);
  add_binary<Xor, T>(table, Op::bitwiseXor, dtype);
  add_binary<LeftShift, T>(table, Op::leftShift, dtype);
  add_binary<RightShift, T>(table, Op::rightShift, dtype);
  add_comparisons<T>(table, dtype);
  add_select<T>(table, dtype);
}

// bool is a byte of 0 or 1. Sums and products are or and and.
struct BoolInvert {
  static uint8_t run(uint8_t x) { return x ^ 1; }
};

void add_bool(MicroTable& table) {
  using T = uint8_t;
  constexpr Op kSame[] = {Op::abs, Op::sign, Op::floor, Op::ceil, Op::round, Op::square};
  constexpr Op kAny[] = {Op::add, Op::maximum, Op::bitwiseOr},
               kAll[] = {Op::multiply, Op::minimum, Op::bitwiseAnd};
  for (Op same : kSame) add_unary<Identity, T>(table, same, LZ_BOOL);
  add_unary<BoolInvert, T>(table, Op::bitwiseInvert, LZ_BOOL);
  for (Op any : kAny) add_binary<Or, T>(table, any, LZ_BOOL);
  for (Op all : kAll) add_binary<And, T>(table, all, LZ_BOOL);
  add_binary<Xor, T>(table, Op::bitwiseXor, LZ_BOOL);
  add_comparisons<T>(table, LZ_BOOL);
  add_select<T>(table, LZ_BOOL);
}

void fill(MicroTable& table) {
  add_bool(table);
  add_integer<uint8_t>(table, LZ_UINT8);
  add_integer<uint16_t>(table, LZ_UINT16);
  add_integer<uint32_t>(table, LZ_UINT32);
  add_integer<uint64_t>(table, LZ_UINT64);
  add_integer<int8_t>(table, LZ_INT8);
  add_integer<int16_t>(table, LZ_INT16);
  add_integer<int32_t>(table, LZ_INT32);
  add_integer<int64_t>(table, LZ_INT64);
}

}  // namespace

const MicroFamily& micro_integer() {
  static constexpr MicroFamily family = {fill};
  return family;
}

}  // namespace lazuli::LZ_TARGET
