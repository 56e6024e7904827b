// Cuts an index space into patches of at most a block, for elementwise work on operands that are not
// all contiguous: parts of long rows, several short rows, or square tiles where an operand is transposed.
#ifndef LAZULI_RUNTIME_PATCHES_H
#define LAZULI_RUNTIME_PATCHES_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lazuli {

struct Patches {
  int width = 0;                 // operands
  std::vector<int64_t> shape;    // merged as far as all operands allow
  std::vector<int64_t> strides;  // in bytes, [axis * width + operand]
  int row_axis = -1;  // the axis of a patch's rows, -1 for patches of one row; columns are the last axis
  int64_t tile_rows = 1, tile_cols = 1;

  // From shape and strides, still unmerged, and each operand's element size in bytes.
  void plan(const uint8_t* log_sizes);
  int64_t count() const;
  // Drops axes of one element and merges neighbours that every operand walks as one. plan() does it too.
  void merge();

  int64_t stride(int axis, int operand) const { return strides[size_t(axis * width + operand)]; }
  int64_t row_stride(int operand) const { return row_axis < 0 ? 0 : stride(row_axis, operand); }
  int64_t col_stride(int operand) const { return stride(int(shape.size()) - 1, operand); }
};

// Walks patches in order, keeping every operand's address. Columns move fastest, then rows, then the other
// axes.
class PatchCursor {
 public:
  PatchCursor(const Patches& patches, char* const* bases, char** at, int64_t first);
  void next();
  int64_t rows() const;
  int64_t cols() const;

 private:
  void locate();

  const Patches& patches_;
  char* const* bases_;
  char** at_;  // each operand's address of the patch's first element
  int64_t index_[64] = {};
};

// Moves a patch between strided memory and a contiguous block.
void gather_patch(int log_size, const char* from, int64_t rows, int64_t cols, int64_t row_stride,
                  int64_t col_stride, void* block);
void scatter_patch(int log_size, char* to, int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride,
                   const void* block);

}  // namespace lazuli

#endif
