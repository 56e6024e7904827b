// The traits of an element type beyond runtime/dtype.h: the type it computes in, its order, NaN,
// conversion between any two types, and dispatch over a subset of the types. half types compute in float32.
#ifndef LAZULI_KERNELS_ELEMENTS_H
#define LAZULI_KERNELS_ELEMENTS_H

#include <cmath>
#include <limits>
#include <type_traits>

#include "runtime/dtype.h"

namespace lazuli {

template <class T>
inline constexpr bool is_half = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;
template <class T>
inline constexpr bool is_complex = std::is_same_v<T, complex64>;
template <class T>
inline constexpr bool is_floating = is_half<T> || std::is_floating_point_v<T>;

template <class T>
using compute_t = std::conditional_t<is_half<T>, float, T>;

template <class T>
compute_t<T> load(T value) {
  return value;
}

template <class T>
bool is_nan(T value) {
  if constexpr (is_complex<T>)
    return value.real() != value.real() || value.imag() != value.imag();
  else if constexpr (is_half<T>)
    return is_nan(float(value));
  else if constexpr (std::is_floating_point_v<T>)
    return value != value;
  else
    return false;
}

// Complex numbers are ordered by real part, then by imaginary part, as NumPy and MLX order them.
template <class T>
bool less(T a, T b) {
  if constexpr (is_complex<T>)
    return a.real() < b.real() || (a.real() == b.real() && a.imag() < b.imag());
  else if constexpr (is_half<T>)
    return float(a) < float(b);
  else
    return a < b;
}

// Order with every NaN after every number: a strict weak order for sorting.
template <class T>
bool less_nan_last(T a, T b) {
  return is_nan(a) ? false : is_nan(b) ? true : less(a, b);
}

// A cast between any two element types. What does not fit an integer type wraps; NaN and what exceeds 64 bits
// become 0.
template <class To, class From>
To convert(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (is_half<From>) {
    return convert<To>(float(value));
  } else if constexpr (is_complex<From>) {
    if constexpr (std::is_same_v<To, bool>)
      return value != From(0);
    else
      return convert<To>(value.real());
  } else if constexpr (is_half<To>) {
    return To(float_to_odd(value));
  } else if constexpr (is_complex<To>) {
    return To(float(value));
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != From(0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    if (value >= From(0x1p63) && value < From(0x1p64)) return To(uint64_t(value));
    return value >= From(-0x1p63) && value < From(0x1p63) ? To(int64_t(value)) : To(0);
  } else {
    return To(value);
  }
}

inline bool is_integral(int32_t dtype) { return dtype <= LZ_INT64; }

struct every {
  template <class T>
  static constexpr bool accepts = true;
};
struct real_types {
  template <class T>
  static constexpr bool accepts = !is_complex<T>;
};
struct floating_types {
  template <class T>
  static constexpr bool accepts = is_floating<T>;
};
struct inexact_types {
  template <class T>
  static constexpr bool accepts = is_floating<T> || is_complex<T>;
};
struct integral_types {
  template <class T>
  static constexpr bool accepts = std::is_integral_v<T>;
};
struct index_types {
  template <class T>
  static constexpr bool accepts = std::is_integral_v<T> && !std::is_same_v<T, bool>;
};

// dispatch() to f.operator()<T>() for the types of a set; false, calling nothing, for the others.
template <class Set, class F>
bool dispatch_among(int32_t dtype, F&& f) {
  return dispatch(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (Set::template accepts<T>) f.template operator()<T>();
    return Set::template accepts<T>;
  });
}

// For kernels that only move elements: an unsigned integer of the element's width stands for the type.
template <class F>
void dispatch_width(int32_t dtype, F&& f) {
  switch (itemsize(dtype)) {
    case 1:
      return f.template operator()<uint8_t>();
    case 2:
      return f.template operator()<uint16_t>();
    case 4:
      return f.template operator()<uint32_t>();
    default:
      return f.template operator()<uint64_t>();
  }
}

}  // namespace lazuli

#endif
