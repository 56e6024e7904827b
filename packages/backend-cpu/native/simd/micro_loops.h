// Loops from a scalar function to micro-kernels, vectorised by the compiler for the target. Included by
// simd/micro_*.cc, inside no namespace.
#ifndef LAZULI_SIMD_MICRO_LOOPS_H
#define LAZULI_SIMD_MICRO_LOOPS_H

#include "simd/micro.h"

namespace lazuli::LZ_TARGET {
namespace {

// F is a type with `static R run(A)` or `static R run(A, A)`: a template argument, so that it is inlined.
template <class F, class A, class R>
void unary_loop(void* out, const void* a, const void*, const void*, int64_t n) {
  auto* y = static_cast<R*>(out);
  const auto* x = static_cast<const A*>(a);
  LZ_INDEPENDENT
  for (int64_t i = 0; i < n; i++) y[i] = R(F::run(x[i]));
}

// kLeft, kRight: the side is one element.
template <class F, class A, class R, bool kLeft, bool kRight>
void binary_loop(void* out, const void* a, const void* b, const void*, int64_t n) {
  auto* z = static_cast<R*>(out);
  const auto* x = static_cast<const A*>(a);
  const auto* y = static_cast<const A*>(b);
  if constexpr (kLeft) {
    const A left = *x;
    LZ_INDEPENDENT
    for (int64_t i = 0; i < n; i++) z[i] = R(F::run(left, y[i]));
  } else if constexpr (kRight) {
    const A right = *y;
    LZ_INDEPENDENT
    for (int64_t i = 0; i < n; i++) z[i] = R(F::run(x[i], right));
  } else {
    LZ_INDEPENDENT
    for (int64_t i = 0; i < n; i++) z[i] = R(F::run(x[i], y[i]));
  }
}

template <class T, bool kLeft, bool kRight>
void select_loop(void* out, const void* condition, const void* b, const void* c, int64_t n) {
  auto* z = static_cast<T*>(out);
  const auto* p = static_cast<const uint8_t*>(condition);
  const auto* x = static_cast<const T*>(b);
  const auto* y = static_cast<const T*>(c);
  const T x0 = *x, y0 = *y;
  LZ_INDEPENDENT
  for (int64_t i = 0; i < n; i++) {
    const T yes = kLeft ? x0 : x[i], no = kRight ? y0 : y[i];
    z[i] = p[i] ? yes : no;
  }
}

template <class F, class A, class R = A>
void add_unary(MicroTable& table, Op op, int dtype) {
  table.sets[int(op)][dtype] = {unary_loop<F, A, R>};
}

template <class F, class A, class R = A>
void add_binary(MicroTable& table, Op op, int dtype) {
  table.sets[int(op)][dtype] = {binary_loop<F, A, R, false, false>, binary_loop<F, A, R, true, false>,
                                binary_loop<F, A, R, false, true>};
}

template <class T>
void add_select(MicroTable& table, int dtype) {
  table.sets[int(Op::select)][dtype] = {select_loop<T, false, false>, select_loop<T, true, false>,
                                        select_loop<T, false, true>, select_loop<T, true, true>};
}

// Definitions that every ordered type has in the same words.
// clang-format off
struct Equal { template <class T> static bool run(T x, T y) { return x == y; } };
struct NotEqual { template <class T> static bool run(T x, T y) { return x != y; } };
struct Less { template <class T> static bool run(T x, T y) { return x < y; } };
struct LessEqual { template <class T> static bool run(T x, T y) { return x <= y; } };
struct Greater { template <class T> static bool run(T x, T y) { return x > y; } };
struct GreaterEqual { template <class T> static bool run(T x, T y) { return x >= y; } };
struct LogicalAnd { template <class T> static bool run(T x, T y) { return bool(x != T(0)) & bool(y != T(0)); } };
struct LogicalOr { template <class T> static bool run(T x, T y) { return bool(x != T(0)) | bool(y != T(0)); } };
struct LogicalNot { template <class T> static bool run(T x) { return x == T(0); } };
struct Identity { template <class T> static T run(T x) { return x; } };
struct Zero { template <class T> static T run(T) { return T(0); } };
// clang-format on

template <class T>
void add_comparisons(MicroTable& table, int dtype) {
  add_binary<Equal, T, uint8_t>(table, Op::equal, dtype);
  add_binary<NotEqual, T, uint8_t>(table, Op::notEqual, dtype);
  add_binary<Less, T, uint8_t>(table, Op::less, dtype);
  add_binary<LessEqual, T, uint8_t>(table, Op::lessEqual, dtype);
  add_binary<Greater, T, uint8_t>(table, Op::greater, dtype);
  add_binary<GreaterEqual, T, uint8_t>(table, Op::greaterEqual, dtype);
  add_binary<LogicalAnd, T, uint8_t>(table, Op::logicalAnd, dtype);
  add_binary<LogicalOr, T, uint8_t>(table, Op::logicalOr, dtype);
  add_unary<LogicalNot, T, uint8_t>(table, Op::logicalNot, dtype);
  add_unary<Identity, T>(table, Op::conjugate, dtype);
  add_unary<Identity, T>(table, Op::real, dtype);
  add_unary<Zero, T>(table, Op::imag, dtype);
}

}  // namespace
}  // namespace lazuli::LZ_TARGET

#endif
