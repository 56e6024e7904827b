/* Several matrices that are multiplied by the same rows in one launch: their tiles are numbered one after another. Before this text stands
 * LZ_PARTS (matrices, at most 3); a kernel says with TILE_ROWS how many rows of a matrix a tile has. */
#pragma once
#include "tensor-core.cuh"

/* `early` is 1 of matrices that may be read before earlier work has ended. */
struct Sizes {
  int k, early, rows[LZ_PARTS];
};
/* A matrix and the number of a tile; what its kind of weights does not have is anything. */
struct Matrix {
  const u16 *weights, *scales, *biases;
  u16* y;
  int rows, tile;
};
struct alignas(16) Chunk {
  u32 word[4];
};

#define LZ_MATRIX(n) const u16 *weights##n, const u16 *scales##n, const u16 *biases##n, u16 *y##n
#define LZ_NEXT(n)                                                                            \
  if (const int before = (matrix.rows + TILE_ROWS - 1) / TILE_ROWS; matrix.tile >= before) \
    matrix = {weights##n, scales##n, biases##n, y##n, sizes.rows[n], matrix.tile - before};

/* The parameters of a kernel, which `sizes` follows, and what a tile of all of them is after the first matrix. */
#if LZ_PARTS == 1
#define LZ_MATRICES LZ_MATRIX(0)
#define LZ_OTHERS
#elif LZ_PARTS == 2
#define LZ_MATRICES LZ_MATRIX(0), LZ_MATRIX(1)
#define LZ_OTHERS LZ_NEXT(1)
#else
#define LZ_MATRICES LZ_MATRIX(0), LZ_MATRIX(1), LZ_MATRIX(2)
#define LZ_OTHERS LZ_NEXT(1) LZ_NEXT(2)
#endif

/* Declares `matrix`, the one that has a tile. */
#define LZ_FIND_MATRIX(tile)                                                    \
  Matrix matrix = {weights0, scales0, biases0, y0, sizes.rows[0], int(tile)}; \
  LZ_OTHERS
