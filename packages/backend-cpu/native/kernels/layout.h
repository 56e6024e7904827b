// Shapes and strides of several operands walked together: dropping and merging axes, iterating over runs of
// the innermost axis, and copying any layout into contiguous memory. No arithmetic on elements here.
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

// Calls f(offsets, count) for the runs along the innermost axis that cover elements [begin, end) of a
// collapsed layout.
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

// Copies elements of one size: `layout` has the destination's strides first, then the source's. Order of axes
// is free.
void copy_strided(const lz_call& call, Layout<2> layout, int64_t itemsize, void* to, const void* from);

// A copy of x's elements in row-major order, in scratch memory.
void* packed(const lz_call& call, const lz_operand& x);

// The same with `axis` moved to the end, so that its elements follow each other; and the way back into a
// contiguous y.
void* packed_axis_last(const lz_call& call, const lz_operand& x, int axis);
void unpack_axis_last(const lz_call& call, const lz_operand& y, int axis, const void* from);

// The operand's elements in row-major order: itself when it already is, else a copy.
template <class T>
const T* contiguous(const lz_call& call, const lz_operand& x) {
  return is_contiguous(x) ? data<const T>(x) : static_cast<const T*>(packed(call, x));
}

// True when the elements along `axis` follow each other and rows follow each other too.
inline bool axis_is_last(const lz_operand& x, int axis) {
  for (int d = axis + 1; d < x.ndim; d++) {
    if (x.shape[d] != 1) return false;
  }
  return is_contiguous(x);
}

// Rows along `axis` as contiguous memory: x itself or a copy.
template <class T>
const T* rows_along(const lz_call& call, const lz_operand& x, int axis) {
  return axis_is_last(x, axis) ? data<const T>(x) : static_cast<const T*>(packed_axis_last(call, x, axis));
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
