// Vectors that write down what is done to them: the part of Highway that simd/math.h uses, so that machine
// code has the very functions of the micro-kernels, operation for operation, and agrees with them bit for
// bit. A function of Highway that simd/math.h comes to use needs a line here.
#ifndef LAZULI_MACHINE_TRACED_H
#define LAZULI_MACHINE_TRACED_H

#include <bit>
#include <cstddef>
#include <cstdint>

#include "machine/sequence.h"

namespace lazuli::machine {

// Where traced operations are written.
inline thread_local Sequence* tracing = nullptr;

}  // namespace lazuli::machine

#define HWY_BEFORE_NAMESPACE() static_assert(true)
#define HWY_AFTER_NAMESPACE() static_assert(true)
#define HWY_INLINE inline
#define HWY_ATTR
#define HWY_NAMESPACE traced

namespace hwy::traced {

using lazuli::machine::Do;

template <class T, size_t kLanes>
struct Tag {};
template <class T>
struct Traced {
  int id = -1;
};
struct Mask {
  int id = -1;
};

template <class T>
uint32_t bits_of(T value) {
  return std::bit_cast<uint32_t>(value);
}
template <class... Ids>
int write(Do what, Ids... ids) {
  return lazuli::machine::tracing->apply(what, ids.id...);
}
template <class... Ids>
int write_detail(Do what, int detail, Ids... ids) {
  return lazuli::machine::tracing->apply_with(detail, what, ids.id...);
}
template <class T>
Traced<T> all(T value) {
  return {lazuli::machine::tracing->literal(bits_of(value))};
}
template <class T>
inline constexpr bool is_float = T(0.5) != T(0);

template <class D>
struct TagTraits;
template <class T, size_t kLanes>
struct TagTraits<Tag<T, kLanes>> {
  using Element = T;
  using Vector = Traced<T>;
  using Signed = Tag<int32_t, kLanes>;
  using Unsigned = Tag<uint32_t, kLanes>;
};
template <class D>
using TFromD = typename TagTraits<D>::Element;
template <class D>
using Vec = typename TagTraits<D>::Vector;
template <class D>
using VFromD = Vec<D>;
template <class D>
using RebindToSigned = typename TagTraits<D>::Signed;
template <class D>
using RebindToUnsigned = typename TagTraits<D>::Unsigned;

template <class T, size_t kLanes>
constexpr size_t Lanes(Tag<T, kLanes>) {
  return kLanes;
}
template <class T, size_t kLanes>
constexpr size_t MaxLanes(Tag<T, kLanes>) {
  return kLanes;
}

// clang-format off
template <class D, class C> Vec<D> Set(D, C value) { return all(TFromD<D>(value)); }
template <class D> Vec<D> Zero(D) { return all(TFromD<D>(0)); }
template <class D> Vec<D> Inf(D) { return all(std::bit_cast<float>(0x7f800000u)); }
template <class D> Vec<D> NaN(D) { return all(std::bit_cast<float>(0x7fffffffu)); }
template <class D> Vec<D> SignBit(D) { return all(std::bit_cast<TFromD<D>>(0x80000000u)); }

template <class D, class T> Vec<D> BitCast(D, Traced<T> x) { return {x.id}; }
// Towards zero. Callers give what fits an int32; for the rest Highway and this differ.
template <size_t kLanes> Traced<int32_t> ConvertTo(Tag<int32_t, kLanes>, Traced<float> x) { return {write(Do::to_int, x)}; }
template <size_t kLanes> Traced<float> ConvertTo(Tag<float, kLanes>, Traced<int32_t> x) { return {write(Do::to_float, x)}; }

template <class T> Traced<T> Add(Traced<T> a, Traced<T> b) { return {write(is_float<T> ? Do::add : Do::int_add, a, b)}; }
template <class T> Traced<T> Sub(Traced<T> a, Traced<T> b) { return {write(is_float<T> ? Do::sub : Do::int_sub, a, b)}; }
template <class T> Traced<T> Mul(Traced<T> a, Traced<T> b) { return {write(is_float<T> ? Do::mul : Do::int_mul, a, b)}; }
template <class T> Traced<T> And(Traced<T> a, Traced<T> b) { return {write(Do::and_, a, b)}; }
template <class T> Traced<T> Or(Traced<T> a, Traced<T> b) { return {write(Do::or_, a, b)}; }
template <class T> Traced<T> Xor(Traced<T> a, Traced<T> b) { return {write(Do::xor_, a, b)}; }
template <class T> Traced<T> AndNot(Traced<T> a, Traced<T> b) { return {write(Do::and_not, a, b)}; }
inline Traced<float> Min(Traced<float> a, Traced<float> b) { return {write(Do::min, a, b)}; }
inline Traced<float> Max(Traced<float> a, Traced<float> b) { return {write(Do::max, a, b)}; }
inline Traced<int32_t> Min(Traced<int32_t> a, Traced<int32_t> b) { return {write(Do::int_min, a, b)}; }
inline Traced<int32_t> Max(Traced<int32_t> a, Traced<int32_t> b) { return {write(Do::int_max, a, b)}; }
inline Traced<float> Div(Traced<float> a, Traced<float> b) { return {write(Do::div, a, b)}; }
inline Traced<float> Sqrt(Traced<float> a) { return {write(Do::sqrt, a)}; }
inline Traced<float> MulAdd(Traced<float> a, Traced<float> b, Traced<float> c) { return {write(Do::mul_add, a, b, c)}; }
inline Traced<float> MulSub(Traced<float> a, Traced<float> b, Traced<float> c) { return {write(Do::mul_sub, a, b, c)}; }
inline Traced<float> NegMulAdd(Traced<float> a, Traced<float> b, Traced<float> c) { return {write(Do::neg_mul_add, a, b, c)}; }
inline Traced<float> Round(Traced<float> a) { return {write_detail(Do::round, lazuli::machine::nearest_even, a)}; }
inline Traced<float> Floor(Traced<float> a) { return {write_detail(Do::round, lazuli::machine::down, a)}; }
inline Traced<float> Ceil(Traced<float> a) { return {write_detail(Do::round, lazuli::machine::up, a)}; }
inline Traced<float> Trunc(Traced<float> a) { return {write_detail(Do::round, lazuli::machine::towards_zero, a)}; }
template <int kBits, class T> Traced<T> ShiftLeft(Traced<T> a) { return {write_detail(Do::shift_left, kBits, a)}; }
template <int kBits> Traced<int32_t> ShiftRight(Traced<int32_t> a) { return {write_detail(Do::shift_right_sign, kBits, a)}; }
template <int kBits> Traced<uint32_t> ShiftRight(Traced<uint32_t> a) { return {write_detail(Do::shift_right, kBits, a)}; }
inline Traced<float> Abs(Traced<float> a) { return And(a, all(std::bit_cast<float>(0x7fffffffu))); }
inline Traced<float> Neg(Traced<float> a) { return Xor(a, all(-0.0f)); }
inline Traced<int32_t> Neg(Traced<int32_t> a) { return Sub(all(0), a); }

template <size_t kLanes> Traced<float> Load(Tag<float, kLanes>, const float* numbers) {
  static_assert(kLanes == 16);
  return {lazuli::machine::tracing->table(numbers)};
}
inline Traced<float> Lookup(Traced<float> table, Traced<float> i) { return {write(Do::lookup, i, table)}; }
inline Traced<float> TimesPowerOfTwo(Traced<float> y, Traced<float> n) { return {write(Do::scale, y, n)}; }

inline Mask Lt(Traced<float> a, Traced<float> b) { return {write_detail(Do::compare, lazuli::machine::less, a, b)}; }
inline Mask Le(Traced<float> a, Traced<float> b) { return {write_detail(Do::compare, lazuli::machine::less_equal, a, b)}; }
inline Mask Gt(Traced<float> a, Traced<float> b) { return {write_detail(Do::compare, lazuli::machine::greater, a, b)}; }
inline Mask Ge(Traced<float> a, Traced<float> b) { return {write_detail(Do::compare, lazuli::machine::greater_equal, a, b)}; }
inline Mask Eq(Traced<float> a, Traced<float> b) { return {write_detail(Do::compare, lazuli::machine::equal, a, b)}; }
inline Mask IsNaN(Traced<float> a) { return {write_detail(Do::compare, lazuli::machine::unordered, a, a)}; }
inline Mask Eq(Traced<int32_t> a, Traced<int32_t> b) { return {write(Do::int_equal, a, b)}; }
inline Mask Gt(Traced<int32_t> a, Traced<int32_t> b) { return {write(Do::int_greater, a, b)}; }
inline Mask Lt(Traced<int32_t> a, Traced<int32_t> b) { return {write(Do::int_greater, b, a)}; }
inline Mask And(Mask a, Mask b) { return {write(Do::mask_and, a, b)}; }
inline Mask Or(Mask a, Mask b) { return {write(Do::mask_or, a, b)}; }
inline Mask Xor(Mask a, Mask b) { return {write(Do::mask_xor, a, b)}; }
inline Mask Not(Mask a) { return {write(Do::mask_not, a)}; }
template <class T> Traced<T> IfThenElse(Mask m, Traced<T> yes, Traced<T> no) { return {write(Do::blend, m, yes, no)}; }
template <class T> Traced<T> IfThenZeroElse(Mask m, Traced<T> no) { return IfThenElse(m, all(T(0)), no); }
template <class T> Traced<T> IfThenElseZero(Mask m, Traced<T> yes) { return IfThenElse(m, yes, all(T(0))); }
template <class T> Traced<T> CopySign(Traced<T> size, Traced<T> sign) { return Or(Abs(size), And(sign, all(-0.0f))); }
template <class T> Traced<T> CopySignToAbs(Traced<T> size, Traced<T> sign) { return {write(Do::copy_sign, size, sign, all(-0.0f))}; }
// clang-format on

}  // namespace hwy::traced

#endif
