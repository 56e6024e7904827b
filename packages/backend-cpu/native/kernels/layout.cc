// Copies between layouts: runs where both sides are contiguous, square tiles where one side is a transpose of
// the other.
#include "kernels/layout.h"

#include <cstring>

namespace lazuli {
namespace {

// Rows of a tile are long in the source, columns in the destination: fewer pages are visited per byte than
// with squares.
constexpr int64_t kRows = 128, kColumns = 32;

// Destination strides descending, so that writes go forward.
void sort_axes(Layout<2>& layout) {
  for (int i = 1; i < layout.ndim; i++) {
    for (int d = i; d > 0 && std::abs(layout.strides[0][d - 1]) < std::abs(layout.strides[0][d]); d--) {
      std::swap(layout.shape[d], layout.shape[d - 1]);
      for (auto& strides : layout.strides) std::swap(strides[d], strides[d - 1]);
    }
  }
}

template <class U>
void copy_runs(const lz_call& call, const Layout<2>& layout, U* to, const U* from) {
  const int inner = layout.ndim - 1;
  const int64_t to_step = layout.ndim ? layout.strides[0][inner] : 1,
                from_step = layout.ndim ? layout.strides[1][inner] : 1;
  const double price = to_step == 1 && from_step == 1
                           ? 0.05 * sizeof(U) + 5 / double(layout.ndim ? layout.shape[inner] : 1)
                           : 1;
  parallel(call, layout.size(), price, [&](int64_t begin, int64_t end) {
    for_runs(layout, begin, end, [&](const std::array<int64_t, 2>& at, int64_t count) {
      U* t = to + at[0];
      const U* f = from + at[1];
      if (to_step == 1 && from_step == 1)
        std::memcpy(t, f, size_t(count) * sizeof(U));
      else if (to_step == 1 && from_step == 0)
        std::fill_n(t, count, *f);
      else
        for (int64_t i = 0; i < count; i++) t[i * to_step] = f[i * from_step];
    });
  });
}

// The destination is contiguous along the last axis, the source along axis `e`.
template <class U>
void copy_tiles(const lz_call& call, const Layout<2>& layout, int e, U* to, const U* from) {
  const int inner = layout.ndim - 1;
  Layout<2> outer;
  for (int d = 0; d < inner; d++) {
    if (d != e) outer.push(layout.shape[d], {layout.strides[0][d], layout.strides[1][d]});
  }
  const int64_t rows = layout.shape[e], columns = layout.shape[inner];
  const int64_t to_row = layout.strides[0][e], from_column = layout.strides[1][inner];
  const int64_t tiles = (rows + kRows - 1) / kRows;
  parallel(call, outer.size() * tiles, 1.0 * double(std::min(rows, kRows) * columns),
           [&](int64_t begin, int64_t end) {
             for (int64_t at = begin; at < end; at++) {
               const Cursor<2> cursor(outer, outer.ndim, at / tiles);
               const int64_t first = at % tiles * kRows, last = std::min(rows, first + kRows);
               const U* f = from + cursor.offset[1] + first;
               U* t = to + cursor.offset[0] + first * to_row;
               const int64_t height = last - first;
               // Through a buffer, so that both sides are touched a cache line at a time even where strides
               // are powers of two.
               U buffer[kRows][kColumns + 1];
               for (int64_t c = 0; c < columns; c += kColumns) {
                 const int64_t width = std::min(kColumns, columns - c);
                 for (int64_t i = 0; i < width; i++) {
                   for (int64_t r = 0; r < height; r++) buffer[r][i] = f[r + (c + i) * from_column];
                 }
                 for (int64_t r = 0; r < height; r++) {
                   for (int64_t i = 0; i < width; i++) t[r * to_row + c + i] = buffer[r][i];
                 }
               }
             }
           });
}

template <class U>
void copy_typed(const lz_call& call, const Layout<2>& layout, U* to, const U* from) {
  const int inner = layout.ndim - 1;
  if (inner > 0 && layout.strides[0][inner] == 1 && std::abs(layout.strides[1][inner]) > 1) {
    for (int e = 0; e < inner; e++) {
      if (layout.strides[1][e] == 1 && layout.shape[e] >= 4) return copy_tiles(call, layout, e, to, from);
    }
  }
  copy_runs(call, layout, to, from);
}

Layout<2> axis_last_layout(const lz_operand& x, int axis, const int64_t* strides, bool packing) {
  Layout<2> layout;
  int64_t step = x.shape[axis];
  for (int d = x.ndim - 1; d >= 0; d--) {
    const int64_t there = d == axis ? 1 : step;
    if (d != axis) step *= x.shape[d];
    layout.push(x.shape[d], packing ? std::array{there, strides[d]} : std::array{strides[d], there});
  }
  return layout;
}

}  // namespace

void copy_strided(const lz_call& call, Layout<2> layout, int64_t itemsize, void* to, const void* from) {
  if (layout.size() == 0) return;
  sort_axes(layout);
  layout.collapse();
  switch (itemsize) {
    case 1:
      return copy_typed(call, layout, static_cast<uint8_t*>(to), static_cast<const uint8_t*>(from));
    case 2:
      return copy_typed(call, layout, static_cast<uint16_t*>(to), static_cast<const uint16_t*>(from));
    case 4:
      return copy_typed(call, layout, static_cast<uint32_t*>(to), static_cast<const uint32_t*>(from));
    default:
      return copy_typed(call, layout, static_cast<uint64_t*>(to), static_cast<const uint64_t*>(from));
  }
}

void* packed(const lz_call& call, const lz_operand& x) {
  char* copy = scratch<char>(call, x.size * itemsize(x.dtype));
  Layout<2> layout;
  int64_t strides[kMaxDims];
  row_major(x.shape, x.ndim, strides);
  for (int d = 0; d < x.ndim; d++) layout.push(x.shape[d], {strides[d], x.strides[d]});
  copy_strided(call, layout, itemsize(x.dtype), copy, x.data);
  return copy;
}

void* packed_axis_last(const lz_call& call, const lz_operand& x, int axis) {
  char* copy = scratch<char>(call, x.size * itemsize(x.dtype));
  copy_strided(call, axis_last_layout(x, axis, x.strides, true), itemsize(x.dtype), copy, x.data);
  return copy;
}

void unpack_axis_last(const lz_call& call, const lz_operand& y, int axis, const void* from) {
  int64_t strides[kMaxDims];
  row_major(y.shape, y.ndim, strides);
  copy_strided(call, axis_last_layout(y, axis, strides, false), itemsize(y.dtype), y.data, from);
}

}  // namespace lazuli
