// The ways in which scatter, putAlongAxis and sliceUpdate put a value where another one is.
#ifndef LAZULI_KERNELS_UPDATE_H
#define LAZULI_KERNELS_UPDATE_H

#include "kernels/layout.h"

namespace lazuli {

// In the order of the `mode` parameter.
enum class Update { set, add, multiply, maximum, minimum };

template <Update Mode, class T>
inline void update(T& to, T value) {
  if constexpr (Mode == Update::set) {
    to = value;
  } else if constexpr (Mode == Update::maximum || Mode == Update::minimum) {
    const bool better = Mode == Update::maximum ? less(to, value) : less(value, to);
    if (is_nan(to)) return;
    if (better || is_nan(value)) to = value;
  } else if constexpr (std::is_same_v<T, bool>) {
    to = Mode == Update::add ? to || value : to && value;
  } else if constexpr (std::is_integral_v<T>) {
    // Through uint64, where wrapping is defined.
    const uint64_t a = uint64_t(to), b = uint64_t(value);
    to = T(Mode == Update::add ? a + b : a * b);
  } else {
    const compute_t<T> a = load(to), b = load(value);
    to = T(Mode == Update::add ? a + b : a * b);
  }
}

// A run of updates: to[i · to_step] = op(to[i · to_step], from[i · from_step]).
using UpdateRun = void (*)(void* to, int64_t to_step, const void* from, int64_t from_step, int64_t n);

template <Update Mode, class T>
void update_run(void* to_data, int64_t to_step, const void* from_data, int64_t from_step, int64_t n) {
  T* to = static_cast<T*>(to_data);
  const T* from = static_cast<const T*>(from_data);
  if (to_step == 1 && from_step == 1) {
    for (int64_t i = 0; i < n; i++) update<Mode>(to[i], from[i]);
  } else {
    for (int64_t i = 0; i < n; i++) update<Mode>(to[i * to_step], from[i * from_step]);
  }
}

// The loop for a mode and an element type; fails the call for a mode that does not exist.
UpdateRun find_update(const lz_call& call, const char* op, int64_t mode, int32_t dtype);

// Starts an updated copy: x's elements into the contiguous y.
inline void copy_into(const lz_call& call, const lz_operand& x, const lz_operand& y) {
  if (x.data == y.data && is_contiguous(x)) return;
  Layout<2> layout;
  int64_t step[kMaxDims];
  row_major(y.shape, y.ndim, step);
  for (int d = 0; d < y.ndim; d++) layout.push(y.shape[d], {step[d], x.strides[d]});
  copy_strided(call, layout, itemsize(x.dtype), y.data, x.data);
}

}  // namespace lazuli

#endif
