// Rows of packed codes, unpacked into the order in which the tiles of simd/gemm.h read columns of b.
#ifndef LAZULI_SIMD_QUANTIZED_COLUMNS_H
#define LAZULI_SIMD_QUANTIZED_COLUMNS_H

#include "simd/quantized.h"

namespace lazuli {

// The codes of as many rows as a sliver is wide, turned: word w of row r is at words[w · width + r], the
// scale of its group g at scales[g · width + r]. `depth` codes of each, whole groups.
struct TurnedCodes {
  CodeFormat format;
  const uint32_t* words;
  const float *scales, *biases;  // biases are null where there are none
  int64_t depth;
};

struct QuantizedColumnsTable {
  // to[k · width + r] = scale · code + bias
  void (*unpack)(const TurnedCodes& codes, float* to);
  // The same in pairs of bfloat16, rounded to nearest; null where no processor of the target multiplies
  // those.
  void (*unpack_pairs)(const TurnedCodes& codes, float* to);
};

LZ_SIMD_TABLE(QuantizedColumnsTable, quantized_columns_table)

}  // namespace lazuli

#endif
