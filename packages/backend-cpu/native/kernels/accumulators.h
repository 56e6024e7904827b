// The wide accumulators of simd/reduce.h: their first values, how two of them meet, and how they are stored.
#ifndef LAZULI_KERNELS_ACCUMULATORS_H
#define LAZULI_KERNELS_ACCUMULATORS_H

#include <complex>
#include <limits>

#include "kernels/call.h"
#include "simd/reduce.h"

namespace lazuli {

// The four kinds of wide accumulator that simd/reduce.h tells of: all that kernels are compiled for.
using wide_complex = std::complex<double>;

inline bool before(wide_complex a, wide_complex b) {
  return a.real() < b.real() || (a.real() == b.real() && a.imag() < b.imag());
}

template <class W>
W identity(ReduceOp op, int32_t dtype) {
  if (op == kSum || op == kAny) return W(0);
  if (op == kProd || op == kAll) return W(1);
  if constexpr (std::is_integral_v<W>) {
    W limit{};
    dispatch_among<integral_types>(dtype, [&]<class T>() {
      limit = W(op == kMax ? std::numeric_limits<T>::min() : std::numeric_limits<T>::max());
    });
    return limit;
  } else if constexpr (std::is_floating_point_v<W>) {
    return op == kMax ? -HUGE_VAL : HUGE_VAL;
  } else {
    return op == kMax ? W(-HUGE_VAL, -HUGE_VAL) : W(HUGE_VAL, HUGE_VAL);
  }
}

inline wide_complex combine(ReduceOp op, wide_complex a, wide_complex b) {
  if (op == kSum) return a + b;
  if (op == kProd) return a * b;
  const auto nan = [](wide_complex v) { return v.real() != v.real() || v.imag() != v.imag(); };
  if (nan(a)) return a;
  return nan(b) || (op == kMax ? before(a, b) : before(b, a)) ? b : a;
}

// lz_dtype of an accumulator, except the complex one.
template <class W>
inline constexpr int32_t dtype_of = std::is_same_v<W, double>    ? LZ_FLOAT64
                                    : std::is_same_v<W, int64_t> ? LZ_INT64
                                                                 : LZ_UINT64;

// Room for the lanes of some columns, and how many columns of a type it has at most.
inline constexpr int64_t kLaneBytes = 1 << 17;
inline int64_t lane_columns(int32_t dtype) {
  return kLaneBytes / kReduceLanes / (itemsize(dtype) == 8 ? 8 : 4);
}

// wide[j] = op(wide[j], x[j], x[j + stride], …) over `rows` rows of n elements, n ≤ lane_columns(): block
// after block.
template <class W>
void reduce_columns(ReduceOp op, int32_t dtype, const void* x, int64_t rows, int64_t stride, int64_t n,
                    W* wide) {
  alignas(64) char lanes[kLaneBytes];
  for (int64_t first = 0; first < rows; first += kReduceBlock) {
    const int64_t count = std::min(kReduceBlock, rows - first);
    reduce_table().columns[op][dtype]({static_cast<const char*>(x) + first * stride * itemsize(dtype),
                                       nullptr, stride, count, 0, count, n, lanes},
                                      wide);
  }
}

// Writes wide results as the output's type.
template <class W>
void store(const lz_operand& y, int64_t at, int64_t step, const W* wide, int64_t n) {
  dispatch_among<every>(y.dtype, [&]<class U>() {
    U* to = data<U>(y) + at;
    for (int64_t i = 0; i < n; i++) {
      if constexpr (std::is_same_v<W, wide_complex>)
        to[i * step] = convert<U>(complex64(float(wide[i].real()), float(wide[i].imag())));
      else
        to[i * step] = convert<U>(wide[i]);
    }
  });
}

// Runs f.operator()<W>() with the accumulator of an element type.
template <class F>
void with_accumulator(int32_t dtype, F&& f) {
  switch (dtype) {
    case LZ_FLOAT16:
    case LZ_BFLOAT16:
    case LZ_FLOAT32:
    case LZ_FLOAT64:
      return f.template operator()<double>();
    case LZ_COMPLEX64:
      return f.template operator()<wide_complex>();
    case LZ_INT8:
    case LZ_INT16:
    case LZ_INT32:
    case LZ_INT64:
      return f.template operator()<int64_t>();
    default:
      return f.template operator()<uint64_t>();
  }
}

}  // namespace lazuli

#endif
