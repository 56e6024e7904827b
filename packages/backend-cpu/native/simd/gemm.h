// The inner loops of matrix products of floats: tiles of the result that stay in registers while their sums
// run, and the packing of operands into the order in which tiles read them. Blocking and threads are the
// caller's business.
#ifndef LAZULI_SIMD_GEMM_H
#define LAZULI_SIMD_GEMM_H

#include <stdint.h>

#include "simd/targets.h"

namespace lazuli {

// rows × columns of a result, at most as many columns as a sliver has:
//   c[i · c_row + j] = alpha · Σ_k a(i, k) · b[k · b_step + j] + beta · addend[i · addend_row + j]
// Rows form tiles of `height`. Row r of tile t is at a + t · a_tile + r · a_row, from k to k it is a_step
// further, and one of a_row and a_step is 1. b's rows can be read for a whole sliver, or for one vector where
// that is enough.
struct GemmSliver {
  const float *a, *b, *addend;
  const float*
      next;       // to be fetched, next_tile further from tile to tile; null for sliver() where nothing is
  float* packed;  // where wide_sliver()'s first tile, a whole one, packs b for the others; or null
  float* c;
  int64_t a_tile, a_row, a_step, b_step, c_row, addend_row, next_tile;
  int64_t rows, depth;
  int32_t height, columns;
  float alpha, beta;
};

// Lines of 16 floats that sliver() fetches from `next` on, for four steps of its depth.
inline constexpr int kGemmAhead = 2;

// Columns of a strip, at most.
inline constexpr int64_t kGemmStrip = 128;
// c = a @ b for few rows of bfloat16, of a strip of columns of b, which is read once and as it lies. a's rows
// have pairs of elements for whole tiles of a matrix unit, c's have room for whole slivers.
struct GemmStrip {
  const float* a;
  const uint16_t *b, *next;  // `next`: what will be read behind b, to be fetched, or null
  float* c;
  int64_t a_row, b_row, c_row;
  int64_t rows, columns, depth;  // `depth` counts elements
};

struct GemmPack {
  const void* from;
  float* to;
  int64_t ld, count, depth, height, tile;
  bool fill;
};

struct GemmTable {
  int32_t height;  // of a tile, at most
  int32_t lanes;   // of a vector; a sliver is twice as wide
  void (*sliver)(const GemmSliver&);
  // The same for products of float32 that all threads share, with b packed: its tiles take fewer loads a
  // multiplication.
  int32_t wide_height, wide_vectors;
  void (*wide_sliver)(const GemmSliver&);
  // Packing, by dtype, of float32 and the half types, which widen. Elements (i, k), i < count and k < depth,
  // go to to[i / height · tile + k · height + i % height]; zeros fill up the last tile's height when `fill`.
  // turn() reads them from from[i · ld + k], copy() from from[k · ld + i].
  void (*turn[14])(const GemmPack&);
  void (*copy[14])(const GemmPack&);
  // The same for bfloat16 by pairs of neighbours in k, where the processor multiplies those, else null: an
  // element of four bytes is a pair, the last one perhaps with a zero. `depth` counts pairs in the product
  // and elements in packing. Subnormal elements count as 0.
  // Where the processor has a matrix unit (`matrix`) these are its products: a's rows are then contiguous,
  // packed by matrix_rows() from rows and by matrix_turned() from those of the transpose to to[i / height ·
  // tile + i % height · d + pair]; d, the depth in pairs, is a multiple of 16 for both operands, and zeros
  // fill it up. matrix_strip() gives the same sums for few rows.
  void (*pair_sliver)(const GemmSliver&);
  bool matrix;
  void (*matrix_strip)(const GemmStrip&);
  void (*matrix_rows)(const GemmPack&);
  void (*matrix_turned)(const GemmPack&);
  void (*pair_turn)(const GemmPack&);
  void (*pair_copy)(const GemmPack&);
};

LZ_SIMD_TABLE(GemmTable, gemm_table)

}  // namespace lazuli

#endif
