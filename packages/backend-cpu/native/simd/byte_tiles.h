// Rows of x as integers of a byte, with a scale for each 32 numbers, to which they were rounded before
// (round), and tiles of their products with packed codes by sums of four products of bytes.
#ifndef LAZULI_SIMD_BYTE_TILES_H
#define LAZULI_SIMD_BYTE_TILES_H

#include "simd/quantized.h"

namespace lazuli {

// The codes of a tile lie as they came, or spread to bytes.
constexpr int tile_bits(int bits) { return 8 % bits == 0 ? bits : 8; }

// `rows` rows of x, of at most `height`, packed for a tile of that even height: what is missing is zeros. For
// each word of codes and each step of it (byte_steps), four elements of each row; for each block its scale of
// each row; for each group the sum of each row. Codes that are no integers come with `offsets`: what their
// sums begin with, for each block and row.
struct BytePack {
  CodeFormat format;
  const float* x;
  int64_t ld, rows, height, depth;
  int8_t* codes;
  float *scales, *sums;
  int32_t* offsets;
};

// y[r · ldy + c] = Σ_k x[r][k] · (scale · code + bias)[c][k]. Word w of column c is at words[w · columns +
// c], the scale of its group g at scales[g · columns + c]; biases may be null. What is at `ahead`, as many
// bytes as the codes had, is asked for meanwhile unless null.
struct ByteTile {
  CodeFormat format;
  int64_t height, depth;
  const int8_t* codes;
  const float *x_scales, *x_sums;
  const int32_t* offsets;
  const uint32_t* words;
  const float *scales, *biases;
  const char* ahead;
  float* y;
  int64_t ldy;
};

struct ByteTileTable {
  // y = s · round(x / s) with s = max |x| / 127 of each block; NaN where a block has what is not finite.
  // Whole blocks.
  void (*round)(const float* x, int64_t n, float* y);
  // True if there are tiles for codes of a format.
  bool (*takes)(CodeFormat format);
  // Columns of a tile, and its rows at most.
  int32_t columns, rows;
  void (*pack)(const BytePack& pack);
  void (*multiply)(const ByteTile& tile);
  // n codes of a format with other tile_bits(), as bytes.
  void (*spread)(const uint32_t* words, int64_t n, int bits, uint8_t* to);
};

LZ_SIMD_TABLE(ByteTileTable, byte_tile_table)

}  // namespace lazuli

#endif
