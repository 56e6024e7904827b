// Shapes and strides of several operands walked together: dropping and merging axes, iterating over runs of the innermost
// axis, and copying any layout into contiguous memory. No arithmetic on elements here.
#ifndef LAZULI_KERNELS_LAYOUT_H
#define LAZULI_KERNELS_LAYOUT_H

#include <array>

#include "kernels/call.h"

namespace lazuli {

// K operands over one index space. Strides count elements.
template <int K>
struct Layout {
  int ndim = 0;
  int64_t shape[kMaxDims];
  int64_t strides[K][kMaxDims];

  void push(int64_t extent, std::array<int64_t, K> step) {
    shape[ndim] = extent;
    for (int k = 0; k < K; k++) strides[k][ndim] = step[k];
    ndim++;
  }
  int64_t size() const {
    int64_t n = 1;
    for (int d = 0; d < ndim; d++) n *= shape[d];
    return n;
  }
  // Drops axes of size 1 and merges neighbours that every operand walks as one.
  void collapse() {
    int kept = 0;
    for (int d = 0; d < ndim; d++) {
      if (shape[d] == 1) continue;
      bool merges = kept > 0;
      for (int k = 0; k < K && merges; k++) merges = strides[k][kept - 1] == strides[k][d] * shape[d];
      const int at = merges ? kept - 1 : kept++;
      shape[at] = merges ? shape[at] * shape[d] : shape[d];
      for (int k = 0; k < K; k++) strides[k][at] = strides[k][d];
    }
    ndim = kept;
  }
};

// A position in the first `ndim` axes of a layout, with every operand's offset kept up to date.
template <int K>
class Cursor {
 public:
  Cursor(const Layout<K>& layout, int ndim, int64_t position) : layout_(layout), ndim_(ndim) {
    for (int d = ndim - 1; d >= 0; d--) {
      index_[d] = position % layout.shape[d];
      position /= layout.shape[d];
      for (int k = 0; k < K; k++) offset[k] += index_[d] * layout.strides[k][d];
    }
  }
  void next() {
    for (int d = ndim_ - 1; d >= 0; d--) {
      for (int k = 0; k < K; k++) offset[k] += layout_.strides[k][d];
      if (++index_[d] < layout_.shape[d]) return;
      for (int k = 0; k < K; k++) offset[k] -= layout_.shape[d] * layout_.strides[k][d];
      index_[d] = 0;
    }
  }
  std::array<int64_t, K> offset{};

 private:
  const Layout<K>& layout_;
  int ndim_;
  int64_t index_[kMaxDims];
};

// Calls f(offsets, count) for the runs along the innermost axis that cover elements [begin, end) of a collapsed layout.
template <int K, class F>
void for_runs(const Layout<K>& layout, int64_t begin, int64_t end, F&& f) {
  if (begin >= end) return;
  if (layout.ndim == 0) return f(std::array<int64_t, K>{}, int64_t{1});
  const int inner = layout.ndim - 1;
  const int64_t run = layout.shape[inner];
  Cursor<K> cursor(layout, inner, begin / run);
  for (int64_t at = begin % run; begin < end; at = 0, cursor.next()) {
    const int64_t count = std::min(run - at, end - begin);
    auto offset = cursor.offset;
    for (int k = 0; k < K; k++) offset[k] += at * layout.strides[k][inner];
    f(offset, count);
    begin += count;
  }
}

inline Layout<1> layout_of(const lz_operand& x) {
  Layout<1> layout;
  for (int d = 0; d < x.ndim; d++) layout.push(x.shape[d], {x.strides[d]});
  return layout;
}

inline bool is_contiguous(const lz_operand& x) {
  if (x.flags & LZ_CONTIGUOUS) return true;
  int64_t expected = 1;
  for (int d = x.ndim - 1; d >= 0; d--) {
    if (x.shape[d] != 1 && x.strides[d] != expected) return false;
    expected *= x.shape[d];
  }
  return true;
}

// Row-major strides of a shape.
inline void row_major(const int64_t* shape, int ndim, int64_t* strides) {
  int64_t step = 1;
  for (int d = ndim - 1; d >= 0; d--) {
    strides[d] = step;
    step *= shape[d];
  }
}

// Copies elements of one width: `layout` has the destination's strides first, then the source's.
template <class U>
void copy_strided(const lz_call& call, Layout<2> layout, U* to, const U* from) {
  layout.collapse();
  const int64_t n = layout.size();
  if (n == 0) return;
  const int inner = layout.ndim - 1;
  const int64_t to_step = layout.ndim ? layout.strides[0][inner] : 1, from_step = layout.ndim ? layout.strides[1][inner] : 1;
  parallel(call, n, to_step == 1 && from_step == 1 ? 0.05 * sizeof(U) : 0.8, [&](int64_t begin, int64_t end) {
    for_runs(layout, begin, end, [&](const std::array<int64_t, 2>& at, int64_t count) {
      U* t = to + at[0];
      const U* f = from + at[1];
      if (to_step == 1 && from_step == 1) std::copy_n(f, count, t);
      else if (to_step == 1 && from_step == 0) std::fill_n(t, count, *f);
      else
        for (int64_t i = 0; i < count; i++) t[i * to_step] = f[i * from_step];
    });
  });
}

// The operand's elements in row-major order: itself when it already is, else a copy in scratch memory.
template <class T>
const T* contiguous(const lz_call& call, const lz_operand& x) {
  if (is_contiguous(x)) return data<const T>(x);
  T* copy = scratch<T>(call, x.size);
  Layout<2> layout;
  int64_t strides[kMaxDims];
  row_major(x.shape, x.ndim, strides);
  for (int d = 0; d < x.ndim; d++) layout.push(x.shape[d], {strides[d], x.strides[d]});
  dispatch_width(x.dtype, [&]<class U>() {
    copy_strided(call, layout, reinterpret_cast<U*>(copy), data<const U>(x));
  });
  return copy;
}

// One element of an operand of any real type, as another type.
template <class To>
To scalar(const lz_operand& x) {
  To value{};
  dispatch_among<every>(x.dtype, [&]<class T>() { value = convert<To>(*data<const T>(x)); });
  return value;
}

}  // namespace lazuli

#endif
