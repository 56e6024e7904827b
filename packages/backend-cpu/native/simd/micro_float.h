// The exact arithmetic of float32 and float64: every function here is one or a few IEEE operations, so all
// targets agree. Included by simd/micro_float32.cc and micro_float64.cc.
#ifndef LAZULI_SIMD_MICRO_FLOAT_H
#define LAZULI_SIMD_MICRO_FLOAT_H

#include "simd/micro_loops.h"

namespace lazuli::LZ_TARGET {
namespace {

inline float root(float x) { return __builtin_sqrtf(x); }
inline double root(double x) { return __builtin_sqrt(x); }
inline float down(float x) { return __builtin_floorf(x); }
inline double down(double x) { return __builtin_floor(x); }
inline float up(float x) { return __builtin_ceilf(x); }
inline double up(double x) { return __builtin_ceil(x); }
inline float even(float x) { return __builtin_rintf(x); }
inline double even(double x) { return __builtin_rint(x); }
inline float magnitude(float x) { return __builtin_fabsf(x); }
inline double magnitude(double x) { return __builtin_fabs(x); }

// clang-format off
struct Negative { template <class T> static T run(T x) { return -x; } };
struct Abs { template <class T> static T run(T x) { return magnitude(x); } };
// NaN and ±0 give +0.
struct Sign { template <class T> static T run(T x) { return T(x > T(0)) - T(x < T(0)); } };
struct Floor { template <class T> static T run(T x) { return down(x); } };
struct Ceil { template <class T> static T run(T x) { return up(x); } };
struct Round { template <class T> static T run(T x) { return even(x); } };
struct Sqrt { template <class T> static T run(T x) { return root(x); } };
struct Rsqrt { template <class T> static T run(T x) { return T(1) / root(x); } };
struct Square { template <class T> static T run(T x) { return x * x; } };
struct Reciprocal { template <class T> static T run(T x) { return T(1) / x; } };
struct Add { template <class T> static T run(T x, T y) { return x + y; } };
struct Subtract { template <class T> static T run(T x, T y) { return x - y; } };
struct Multiply { template <class T> static T run(T x, T y) { return x * y; } };
struct Divide { template <class T> static T run(T x, T y) { return x / y; } };
struct FloorDivide { template <class T> static T run(T x, T y) { return down(x / y); } };
// NaN wins, as in NumPy's maximum; of equal values the second.
struct Maximum { template <class T> static T run(T x, T y) { return (x != x) | (x > y) ? x : y; } };
struct Minimum { template <class T> static T run(T x, T y) { return (x != x) | (x < y) ? x : y; } };
// clang-format on

template <class T>
void add_float(MicroTable& table, int dtype) {
  add_unary<Negative, T>(table, Op::negative, dtype);
  add_unary<Abs, T>(table, Op::abs, dtype);
  add_unary<Sign, T>(table, Op::sign, dtype);
  add_unary<Floor, T>(table, Op::floor, dtype);
  add_unary<Ceil, T>(table, Op::ceil, dtype);
  add_unary<Round, T>(table, Op::round, dtype);
  add_unary<Sqrt, T>(table, Op::sqrt, dtype);
  add_unary<Rsqrt, T>(table, Op::rsqrt, dtype);
  add_unary<Square, T>(table, Op::square, dtype);
  add_unary<Reciprocal, T>(table, Op::reciprocal, dtype);
  add_binary<Add, T>(table, Op::add, dtype);
  add_binary<Subtract, T>(table, Op::subtract, dtype);
  add_binary<Multiply, T>(table, Op::multiply, dtype);
  add_binary<Divide, T>(table, Op::divide, dtype);
  add_binary<FloorDivide, T>(table, Op::floorDivide, dtype);
  add_binary<Maximum, T>(table, Op::maximum, dtype);
  add_binary<Minimum, T>(table, Op::minimum, dtype);
  add_comparisons<T>(table, dtype);
  add_select<T>(table, dtype);
}

}  // namespace
}  // namespace lazuli::LZ_TARGET

#endif
