// Rows rounded to integers of one byte, each 32 numbers with a scale of their own, and tiles of their
// products with packed codes by sums of four products of bytes.
#ifndef LAZULI_SIMD_BYTE_TILES_H
#define LAZULI_SIMD_BYTE_TILES_H

#include "simd/quantized.h"

namespace lazuli {

// `rows` rows of x, of at most `height`, packed for a tile of that even height: what is missing is zeros. For
// each word of codes and each step of it (byte_steps), four bytes of each row; for each block its scale of
// each row; for each group the sum of each row.
struct BytePack {
  CodeFormat format;
  const float* x;
  int64_t ld, rows, height, depth;
  int8_t* codes;
  float *scales, *sums;
};

// y[r · ldy + c] = Σ_k x[r][k] · (scale · code + bias)[c][k]. Word w of column c is at words[w · columns +
// c], the scale of its group g at scales[g · columns + c]; biases may be null.
struct ByteTile {
  CodeFormat format;
  int64_t height, depth;
  const int8_t* codes;
  const float *x_scales, *x_sums;
  const uint32_t* words;
  const float *scales, *biases;
  float* y;
  int64_t ldy;
};

struct ByteTileTable {
  // y = s · round(x / s) with s = max |x| / 127 of each block; NaN where a block has what is not finite.
  // Whole blocks.
  void (*round)(const float* x, int64_t n, float* y);
  // Of a tile: rows at most, columns, and the most bits that codes may have; 0 where the processor has no
  // sums of products of bytes.
  int32_t rows, columns, bits;
  void (*pack)(const BytePack& pack);
  void (*multiply)(const ByteTile& tile);
};

LZ_SIMD_TABLE(ByteTileTable, byte_tile_table)

// True if tiles multiply codes of a format.
inline bool has_byte_tiles(CodeFormat format) {
  return format.code == Code::integer && 8 % format.bits == 0 && format.group % kRoundedBlock == 0 &&
         format.bits <= byte_tile_table().bits;
}

}  // namespace lazuli

#endif
