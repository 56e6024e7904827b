// Shared by the kernels that multiply with the tiles of simd/gemm.h: sizes of blocks, and operands packed.
#ifndef LAZULI_KERNELS_GEMM_TILES_H
#define LAZULI_KERNELS_GEMM_TILES_H

#include <cstring>

#include "kernels/gemm.h"
#include "simd/gemm.h"

namespace lazuli {

// Of a block of a, which stays in the second cache.
inline constexpr int64_t kGemmDepth = 512, kGemmRows = 144;
// Rows of a matrix unit's tile, and pairs in one.
inline constexpr int64_t kMatrixTile = 16;

inline int64_t parts(int64_t n, int64_t most) { return (n + most - 1) / most; }
inline int64_t even_part(int64_t n, int64_t most) { return parts(n, parts(n, most)); }

// From tile to tile of what is packed: powers of two would share a few lines of the first cache.
inline int64_t tile_step(int64_t height, int64_t depth) { return height * depth + 32; }

// The operands as packed and multiplied: float32, or pairs of bfloat16, by vectors or by a matrix unit.
// Depths count its elements.
struct GemmKind {
  bool pairs, matrix;
  GemmKind(int32_t a, int32_t b)
      : pairs(gemm_table().pair_sliver && a == LZ_BFLOAT16 && b == LZ_BFLOAT16),
        matrix(pairs && gemm_table().matrix) {}
  int64_t depth(int64_t k) const {
    return matrix ? parts(k, 2 * kMatrixTile) * kMatrixTile : pairs ? (k + 1) / 2 : k;
  }
  int64_t elements(int64_t depth) const { return pairs ? 2 * depth : depth; }
  // Of a block at most: what meets the rows of a matrix unit's block stays in the first cache.
  int64_t most_depth() const { return matrix ? kGemmDepth / 2 : kGemmDepth; }
  // The depth of a block, of all blocks but the last, for a whole depth.
  int64_t block_depth(int64_t depth) const {
    const int64_t unit = matrix ? kMatrixTile : 4;
    return parts(even_part(depth, most_depth()), unit) * unit;
  }
  // Of tiles that share these rows about equally.
  int64_t height(int64_t rows) const {
    return !matrix              ? even_part(rows, gemm_table().height)
           : rows > kMatrixTile ? 2 * kMatrixTile
                                : kMatrixTile;
  }
  auto sliver() const { return pairs ? gemm_table().pair_sliver : gemm_table().sliver; }
  // The tiles of what all threads share.
  int64_t wide_height() const {
    return matrix ? 2 * kMatrixTile : pairs ? gemm_table().height : gemm_table().wide_height;
  }
  int64_t wide_width() const { return (pairs ? 2 : gemm_table().wide_vectors) * gemm_table().lanes; }
  auto wide_sliver() const { return pairs ? gemm_table().pair_sliver : gemm_table().wide_sliver; }

  // Packs rows of a, or columns of b (the same of its transpose), into tiles; k is the matrix' own.
  void pack(const GemmOperand& x, bool columns, int64_t count, int64_t k, int64_t height, float* to,
            bool fill) const {
    const GemmTable& table = gemm_table();
    const bool contiguous = x.transposed != columns;
    const auto how = matrix && !columns ? contiguous ? table.matrix_turned : table.matrix_rows
                     : pairs            ? contiguous ? table.pair_copy : table.pair_turn
                                        : (contiguous ? table.copy : table.turn)[x.dtype];
    const int64_t step = tile_step(height, depth(k));
    how({x.data, to, x.ld, count, k, height, step, fill});
    for (int64_t i = 0; columns && i < count; i += height, to += step) end_columns(to, height, k);
  }
  // Fills a sliver's columns up to the depth at which they are multiplied.
  void end_columns(float* to, int64_t width, int64_t k) const {
    if (!matrix) return;
    const int64_t pairs = (k + 1) / 2;
    std::memset(to + pairs * width, 0, size_t((depth(k) - pairs) * width) * sizeof(float));
  }

  // Rows as they were packed, of tiles that are `tile` apart.
  void set_packed(GemmSliver& s, const float* a, int64_t height, int64_t tile) const {
    s.a = a;
    s.a_tile = tile;
    s.a_row = matrix ? s.depth : 1, s.a_step = matrix ? 1 : height;
    s.height = int32_t(height);
  }
};

}  // namespace lazuli

#endif
