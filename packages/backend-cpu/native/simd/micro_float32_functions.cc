// float32 functions with vectors: the loops over math.h and math_double.h.
#include <string.h>

#include "simd/math_double.h"
#include "simd/micro.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

using Floats = hn::ScalableTag<float>;
using Vector = hn::Vec<Floats>;

// Loads the last elements, fewer than a vector, so that no memory beyond them is read. Lanes are independent,
// hence what fills the rest does not matter; 1 is in every function's domain.
HWY_INLINE Vector load_rest(Floats d, const float* x, int64_t count) {
  HWY_ALIGN float lanes[hn::MaxLanes(d)];
  hn::Store(hn::Set(d, 1.0f), d, lanes);
  memcpy(lanes, x, size_t(count) * sizeof(float));
  return hn::Load(d, lanes);
}

HWY_INLINE void store_rest(Floats d, Vector v, float* y, int64_t count) {
  HWY_ALIGN float lanes[hn::MaxLanes(d)];
  hn::Store(v, d, lanes);
  memcpy(y, lanes, size_t(count) * sizeof(float));
}

template <class F>
void unary(void* out, const void* a, const void*, const void*, int64_t n) {
  const Floats d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  auto* y = static_cast<float*>(out);
  const auto* x = static_cast<const float*>(a);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(F::run(d, hn::LoadU(d, x + i)), d, y + i);
  if (i < n) store_rest(d, F::run(d, load_rest(d, x + i, n - i)), y + i, n - i);
}

template <class F, bool kLeft, bool kRight>
void binary(void* out, const void* a, const void* b, const void*, int64_t n) {
  const Floats d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  auto* z = static_cast<float*>(out);
  const auto* x = static_cast<const float*>(a);
  const auto* y = static_cast<const float*>(b);
  const Vector x0 = hn::Set(d, *x), y0 = hn::Set(d, *y);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(F::run(d, kLeft ? x0 : hn::LoadU(d, x + i), kRight ? y0 : hn::LoadU(d, y + i)), d, z + i);
  }
  if (i == n) return;
  const Vector u = kLeft ? x0 : load_rest(d, x + i, n - i), v = kRight ? y0 : load_rest(d, y + i, n - i);
  store_rest(d, F::run(d, u, v), z + i, n - i);
}

// clang-format off
struct Exp { static HWY_INLINE Vector run(Floats d, Vector x) { return exp(d, x); } };
struct Expm1 { static HWY_INLINE Vector run(Floats d, Vector x) { return expm1(d, x); } };
struct Log { static HWY_INLINE Vector run(Floats d, Vector x) { return log(d, x); } };
struct Log1p { static HWY_INLINE Vector run(Floats d, Vector x) { return log1p(d, x); } };
struct Tanh { static HWY_INLINE Vector run(Floats d, Vector x) { return tanh(d, x); } };
struct Sigmoid { static HWY_INLINE Vector run(Floats d, Vector x) { return sigmoid(d, x); } };
struct Erf { static HWY_INLINE Vector run(Floats d, Vector x) { return erf(d, x); } };
struct Sin { static HWY_INLINE Vector run(Floats d, Vector x) { return sin(d, x); } };
struct Cos { static HWY_INLINE Vector run(Floats d, Vector x) { return cos(d, x); } };
struct Tan { static HWY_INLINE Vector run(Floats d, Vector x) { return tan(d, x); } };
// clang-format on

// A function of float64 vectors, given as a struct with `static V wide(D, V…)`, on widened lanes.
template <class F>
struct Widened {
  template <class... V>
  static HWY_INLINE Vector run(Floats d, V... x) {
    return widened(d, [](auto wide, auto... w) HWY_ATTR { return F::wide(wide, w...); }, x...);
  }
};

struct Log2 {
  template <class D, class V>
  static HWY_INLINE V wide(D d, V x) {
    return hn::Mul(wide_log(d, x), hn::Set(d, 1.4426950408889634));
  }
};
struct Log10 {
  template <class D, class V>
  static HWY_INLINE V wide(D d, V x) {
    return hn::Mul(wide_log(d, x), hn::Set(d, 0.43429448190325183));
  }
};
// Odd functions lose their small values to cancellation; there two terms of the series do. k is the second's
// coefficient.
template <class D, class V>
HWY_INLINE V odd_function(D d, V x, V positive, double k) {
  const V a = hn::Abs(x), series = hn::MulAdd(hn::Mul(hn::Mul(a, a), a), hn::Set(d, k), a);
  return with_sign_of(d, hn::IfThenElse(hn::Lt(a, hn::Set(d, 1e-3)), series, positive), x);
}
struct Sinh {
  template <class D, class V>
  static HWY_INLINE V wide(D d, V x) {
    const V e = wide_exp(d, hn::Abs(x));
    return odd_function(d, x, hn::Mul(hn::Sub(e, hn::Div(hn::Set(d, 1.0), e)), hn::Set(d, 0.5)), 1.0 / 6);
  }
};
struct Cosh {
  template <class D, class V>
  static HWY_INLINE V wide(D d, V x) {
    const V e = wide_exp(d, hn::Abs(x));
    return hn::Mul(hn::Add(e, hn::Div(hn::Set(d, 1.0), e)), hn::Set(d, 0.5));
  }
};
struct Arcsinh {
  template <class D, class V>
  static HWY_INLINE V wide(D d, V x) {
    const V a = hn::Abs(x);
    return odd_function(d, x, wide_log(d, hn::Add(a, hn::Sqrt(hn::MulAdd(a, a, hn::Set(d, 1.0))))), -1.0 / 6);
  }
};
struct Arccosh {
  template <class D, class V>
  static HWY_INLINE V wide(D d, V x) {
    const V one = hn::Set(d, 1.0), y = wide_log(d, hn::Add(x, hn::Sqrt(hn::MulSub(x, x, one))));
    return hn::IfThenElse(hn::Lt(x, one), hn::NaN(d), y);
  }
};
struct Arctanh {
  template <class D, class V>
  static HWY_INLINE V wide(D d, V x) {
    const V a = hn::Abs(x), one = hn::Set(d, 1.0);
    const V y = hn::Mul(wide_log(d, hn::Div(hn::Add(one, a), hn::Sub(one, a))), hn::Set(d, 0.5));
    return odd_function(d, x, y, 1.0 / 3);
  }
};
struct Arcsin {
  template <class D, class V>
  static HWY_INLINE V wide(D d, V x) {
    return wide_arcsin(d, x);
  }
};
struct Arccos {
  template <class D, class V>
  static HWY_INLINE V wide(D d, V x) {
    return hn::Sub(hn::Set(d, kHalfPi), wide_arcsin(d, x));
  }
};
struct Arctan {
  template <class D, class V>
  static HWY_INLINE V wide(D d, V x) {
    return wide_arctan2(d, x, hn::Set(d, 1.0));
  }
};
struct Erfinv {
  template <class D, class V>
  static HWY_INLINE V wide(D d, V x) {
    return wide_erfinv(d, x);
  }
};
struct Arctan2 {
  template <class D, class V>
  static HWY_INLINE V wide(D d, V y, V x) {
    return wide_arctan2(d, y, x);
  }
};
struct Power {
  template <class D, class V>
  static HWY_INLINE V wide(D d, V x, V y) {
    return wide_power(d, x, y);
  }
};
struct Logaddexp {
  static HWY_INLINE Vector run(Floats d, Vector x, Vector y) { return logaddexp(d, x, y); }
};

template <class F>
void one(MicroTable& table, Op op) {
  table.sets[int(op)][LZ_FLOAT32] = {unary<F>};
}

template <class F>
void two(MicroTable& table, Op op) {
  table.sets[int(op)][LZ_FLOAT32] = {binary<F, false, false>, binary<F, true, false>, binary<F, false, true>};
}

void fill(MicroTable& table) {
  one<Exp>(table, Op::exp);
  one<Expm1>(table, Op::expm1);
  one<Log>(table, Op::log);
  one<Log1p>(table, Op::log1p);
  one<Tanh>(table, Op::tanh);
  one<Sigmoid>(table, Op::sigmoid);
  one<Erf>(table, Op::erf);
  one<Sin>(table, Op::sin);
  one<Cos>(table, Op::cos);
  one<Tan>(table, Op::tan);
  one<Widened<Log2>>(table, Op::log2);
  one<Widened<Log10>>(table, Op::log10);
  one<Widened<Sinh>>(table, Op::sinh);
  one<Widened<Cosh>>(table, Op::cosh);
  one<Widened<Arcsinh>>(table, Op::arcsinh);
  one<Widened<Arccosh>>(table, Op::arccosh);
  one<Widened<Arctanh>>(table, Op::arctanh);
  one<Widened<Arcsin>>(table, Op::arcsin);
  one<Widened<Arccos>>(table, Op::arccos);
  one<Widened<Arctan>>(table, Op::arctan);
  one<Widened<Erfinv>>(table, Op::erfinv);
  two<Widened<Arctan2>>(table, Op::arctan2);
  two<Widened<Power>>(table, Op::power);
  two<Logaddexp>(table, Op::logaddexp);
}

}  // namespace

const MicroFamily& micro_float32_functions() {
  static constexpr MicroFamily family = {fill};
  return family;
}

}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();
