// Shared by the kernels that multiply with the tiles of simd/gemm.h: sizes of blocks, and operands packed.
#ifndef LAZULI_KERNELS_GEMM_TILES_H
#define LAZULI_KERNELS_GEMM_TILES_H

#include "kernels/gemm.h"
#include "simd/gemm.h"

namespace lazuli {

// Of a block of a, which stays in the second cache.
inline constexpr int64_t kGemmDepth = 512, kGemmRows = 144;

inline int64_t parts(int64_t n, int64_t most) { return (n + most - 1) / most; }
inline int64_t even_part(int64_t n, int64_t most) { return parts(n, parts(n, most)); }

// From tile to tile of what is packed: powers of two would share a few lines of the first cache.
inline int64_t tile_step(int64_t height, int64_t depth) { return height * depth + 32; }

// The operands as packed and multiplied: float32, or pairs of bfloat16. Depths count its elements.
struct GemmKind {
  bool pairs;
  GemmKind(int32_t a, int32_t b) : pairs(gemm_table().pair_sliver && a == LZ_BFLOAT16 && b == LZ_BFLOAT16) {}
  int64_t depth(int64_t k) const { return pairs ? (k + 1) / 2 : k; }
  int64_t elements(int64_t depth) const { return pairs ? 2 * depth : depth; }
  auto sliver() const { return pairs ? gemm_table().pair_sliver : gemm_table().sliver; }

  // Packs rows of a, or columns of b (the same of its transpose), into tiles; k is the matrix' own.
  void pack(const GemmOperand& x, bool columns, int64_t count, int64_t k, int64_t height, float* to,
            bool fill) const {
    const GemmTable& table = gemm_table();
    const bool contiguous = x.transposed != columns;
    const auto how = pairs ? contiguous ? table.pair_copy : table.pair_turn
                           : (contiguous ? table.copy : table.turn)[x.dtype];
    how({x.data, to, x.ld, count, k, height, tile_step(height, depth(k)), fill});
  }
};

inline void set_packed(GemmSliver& s, const float* a, int64_t height) {
  s.a = a;
  s.a_tile = tile_step(height, s.depth), s.a_row = 1, s.a_step = height;
  s.height = int32_t(height);
}

}  // namespace lazuli

#endif
