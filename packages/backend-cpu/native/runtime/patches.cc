#include "runtime/patches.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "runtime/program.h"

namespace lazuli {
namespace {

// Rows from here on are worked on one at a time, where they lie.
constexpr int64_t kLongRow = 64;
constexpr int64_t kTile = 16;
// Columns further apart than this do not share a cache line.
constexpr int64_t kLine = 64;

// Contiguous rows between locations `to_stride` and `from_stride` apart. A full tile's row is one
// constant-size move.
template <class T>
void copy_rows(char* to, const char* from, int64_t rows, int64_t cols, int64_t to_stride,
               int64_t from_stride) {
  if (cols == kTile) {
    for (int64_t r = 0; r < rows; r++)
      std::memcpy(to + r * to_stride, from + r * from_stride, kTile * sizeof(T));
  } else if (cols >= 32) {
    for (int64_t r = 0; r < rows; r++)
      std::memcpy(to + r * to_stride, from + r * from_stride, size_t(cols) * sizeof(T));
  } else {
    for (int64_t r = 0; r < rows; r++, to += to_stride, from += from_stride)
      for (int64_t c = 0; c < cols; c++) reinterpret_cast<T*>(to)[c] = reinterpret_cast<const T*>(from)[c];
  }
}

template <class T>
void gather(const char* from, int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride, T* block) {
  constexpr auto kSize = int64_t(sizeof(T));
  if (col_stride == 0) {
    for (int64_t r = 0; r < rows; r++)
      std::fill_n(block + r * cols, cols, *reinterpret_cast<const T*>(from + r * row_stride));
  } else if (col_stride == kSize) {
    copy_rows<T>(reinterpret_cast<char*>(block), from, rows, cols, cols * kSize, row_stride);
  } else if (row_stride == kSize && cols == kTile) {
    // A column's elements share a cache line, which is used up before the next is needed. The next tile's
    // columns follow; they lie too far apart for the processor to guess.
    for (int64_t c = 0; c < kTile; c++, from += col_stride) {
      __builtin_prefetch(from + kTile * col_stride);
      for (int64_t r = 0; r < rows; r++) block[r * kTile + c] = reinterpret_cast<const T*>(from)[r];
    }
  } else {
    for (int64_t r = 0; r < rows; r++, from += row_stride)
      for (int64_t c = 0; c < cols; c++)
        block[r * cols + c] = *reinterpret_cast<const T*>(from + c * col_stride);
  }
}

template <class T>
void scatter(char* to, int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride, const T* block) {
  constexpr auto kSize = int64_t(sizeof(T));
  if (col_stride == kSize)
    return copy_rows<T>(to, reinterpret_cast<const char*>(block), rows, cols, row_stride, cols * kSize);
  for (int64_t r = 0; r < rows; r++, to += row_stride)
    for (int64_t c = 0; c < cols; c++) *reinterpret_cast<T*>(to + c * col_stride) = block[r * cols + c];
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

void gather_patch(int log_size, const char* from, int64_t rows, int64_t cols, int64_t row_stride,
                  int64_t col_stride, void* block) {
  switch (log_size) {
    case 0:
      return gather(from, rows, cols, row_stride, col_stride, static_cast<uint8_t*>(block));
    case 1:
      return gather(from, rows, cols, row_stride, col_stride, static_cast<uint16_t*>(block));
    case 2:
      return gather(from, rows, cols, row_stride, col_stride, static_cast<uint32_t*>(block));
    default:
      return gather(from, rows, cols, row_stride, col_stride, static_cast<uint64_t*>(block));
  }
}

void scatter_patch(int log_size, char* to, int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride,
                   const void* block) {
  switch (log_size) {
    case 0:
      return scatter(to, rows, cols, row_stride, col_stride, static_cast<const uint8_t*>(block));
    case 1:
      return scatter(to, rows, cols, row_stride, col_stride, static_cast<const uint16_t*>(block));
    case 2:
      return scatter(to, rows, cols, row_stride, col_stride, static_cast<const uint32_t*>(block));
    default:
      return scatter(to, rows, cols, row_stride, col_stride, static_cast<const uint64_t*>(block));
  }
}

void Patches::merge() {
  int kept = 0;
  for (int axis = 0; axis < int(shape.size()); axis++) {
    if (shape[axis] == 1) continue;
    bool merges = kept > 0;
    for (int i = 0; merges && i < width; i++) merges = stride(kept - 1, i) == stride(axis, i) * shape[axis];
    if (!merges) kept++;
    shape[kept - 1] = merges ? shape[kept - 1] * shape[axis] : shape[axis];
    for (int i = 0; i < width; i++)
      strides[size_t((kept - 1) * width + i)] = strides[size_t(axis * width + i)];
  }
  shape.resize(size_t(kept));
  strides.resize(size_t(kept * width));
}

void Patches::plan(const uint8_t* log_sizes) {
  merge();
  const int last = int(shape.size()) - 1;
  const int64_t length = shape[last];
  row_axis = -1;
  tile_rows = 1;
  tile_cols = std::min(length, kBlock);
  if (last == 0) return;
  // An operand whose neighbours in memory lie along another axis is read in tiles.
  for (int i = 0; i < width && row_axis < 0; i++) {
    if (std::abs(stride(last, i)) < kLine) continue;
    for (int axis = 0; axis < last; axis++) {
      if (std::abs(stride(axis, i)) == int64_t(1) << log_sizes[i] && shape[axis] >= 4) row_axis = axis;
    }
  }
  if (row_axis >= 0) {
    tile_cols = std::min(length, kTile);
    tile_rows = std::min(shape[row_axis], kBlock / tile_cols);
  } else if (length < kLongRow) {
    row_axis = last - 1;
    tile_cols = length;
    tile_rows = std::min(shape[row_axis], kBlock / length);
  }
}

int64_t Patches::count() const {
  int64_t total = 1;
  const int last = int(shape.size()) - 1;
  for (int axis = 0; axis <= last; axis++) {
    total *= axis == last       ? ceil_div(shape[axis], tile_cols)
             : axis == row_axis ? ceil_div(shape[axis], tile_rows)
                                : shape[axis];
  }
  return total;
}

PatchCursor::PatchCursor(const Patches& patches, char* const* bases, char** at, int64_t first)
    : patches_(patches), bases_(bases), at_(at) {
  const int last = int(patches.shape.size()) - 1;
  const auto take = [&](int axis, int64_t tile) {
    const int64_t tiles = ceil_div(patches.shape[axis], tile);
    index_[axis] = first % tiles * tile;
    first /= tiles;
  };
  take(last, patches.tile_cols);
  if (patches.row_axis >= 0) take(patches.row_axis, patches.tile_rows);
  for (int axis = last - 1; axis >= 0; axis--)
    if (axis != patches.row_axis) take(axis, 1);
  locate();
}

void PatchCursor::locate() {
  for (int i = 0; i < patches_.width; i++) at_[i] = bases_[i];
  for (int axis = 0; axis < int(patches_.shape.size()); axis++) {
    if (index_[axis] == 0) continue;
    for (int i = 0; i < patches_.width; i++) at_[i] += index_[axis] * patches_.stride(axis, i);
  }
}

void PatchCursor::next() {
  const int last = int(patches_.shape.size()) - 1;
  index_[last] += patches_.tile_cols;
  if (index_[last] < patches_.shape[last]) {
    for (int i = 0; i < patches_.width; i++) at_[i] += patches_.tile_cols * patches_.stride(last, i);
    return;
  }
  index_[last] = 0;
  const auto advance = [&](int axis, int64_t tile) {
    index_[axis] += tile;
    if (index_[axis] < patches_.shape[axis]) return true;
    index_[axis] = 0;
    return false;
  };
  bool more = patches_.row_axis >= 0 && advance(patches_.row_axis, patches_.tile_rows);
  for (int axis = last - 1; axis >= 0 && !more; axis--) {
    if (axis != patches_.row_axis) more = advance(axis, 1);
  }
  locate();
}

int64_t PatchCursor::rows() const {
  if (patches_.row_axis < 0) return 1;
  return std::min(patches_.tile_rows, patches_.shape[patches_.row_axis] - index_[patches_.row_axis]);
}

int64_t PatchCursor::cols() const {
  const int last = int(patches_.shape.size()) - 1;
  return std::min(patches_.tile_cols, patches_.shape[last] - index_[last]);
}

}  // namespace lazuli
