// Rows of packed codes: unpacking them, and their products with a vector without unpacking them to memory.
#ifndef LAZULI_SIMD_QUANTIZED_H
#define LAZULI_SIMD_QUANTIZED_H

#include <stdint.h>

#include "simd/targets.h"

namespace lazuli {

// The number that a code stands for before its scale: an unsigned integer of 2 to 8 bits, or a float of 4
// (E2M1) or 8 (E4M3) bits.
enum class Code { integer, e2m1, e4m3 };

struct CodeFormat {
  int bits;
  Code code;
  int64_t group;  // codes that share a scale: a power of two from 16 on
};

// The numbers that scales and biases are: powers of two (E8M0) and E4M3 without biases.
enum class ScaleKind { float32, float16, bfloat16, e8m0, e4m3 };

// Packed rows of `columns` codes with scales, and biases unless null. Where a vector is floats, scales
// and biases are of float32, and rows of them readable for 16 elements beyond their end: as zeros, unless
// reads_no_padding().
struct PackedRows {
  CodeFormat format;
  const uint32_t* words;
  int64_t stride;
  int64_t rows, columns;
  ScaleKind kind;
  const void *scales, *biases;
  int64_t scale_stride, bias_stride;
  // Of a row, where they are of float32.
  const float* float_scales(int64_t row) const {
    return static_cast<const float*>(scales) + row * scale_stride;
  }
  const float* float_biases(int64_t row) const {
    return static_cast<const float*>(biases) + row * bias_stride;
  }
};

// Elements of x that share a scale where x is rounded to integers of one byte.
inline constexpr int64_t kRoundedBlock = 32;

inline constexpr int64_t kArrangedPart = 512;
// Instead of a number of digits.
inline constexpr int kAsBfloat16 = -1;

// Vectors as arrange() gives them, all in the same way, x_step floats apart, and their sums over groups,
// padded as scales are.
struct Arranged {
  const float* x;
  int64_t x_step;
  const float* sums;
  int64_t sums_step, count;
  // Where rows are a part of the columns, which vectors of bfloat16 numbers may meet one after another: its
  // first column, and sums of lanes that go from part to part, up to kCarriedRows rows of them.
  int64_t first = 0;
  float* carried = nullptr;
  bool last = true;
};
inline constexpr int64_t kCarriedRows = 16;
// Floats for each vector.
inline constexpr int64_t kCarried = 16 * (kCarriedRows + 3 * 4);

struct QuantizedTable {
  // True if vectors may be rounded to bytes.
  bool (*takes_bytes)(CodeFormat format);
  // True if vectors of bfloat16 numbers may stay such.
  bool (*takes_bfloat16)(CodeFormat format);
  // y[i] = the value of code i, for n codes that fill whole words.
  void (*decode)(const uint32_t* words, int64_t n, CodeFormat format, float* y);
  // y = scale · code + bias; without biases where they are null.
  void (*expand)(const uint32_t* words, int64_t n, CodeFormat format, const float* scales,
                 const float* biases, float* y);
  // True if dot() takes nothing of what follows a row of scales or biases.
  bool (*reads_no_padding)(int64_t columns, CodeFormat format);
  // The number of floats that arrange() writes.
  int64_t (*arranged_size)(int64_t columns, CodeFormat format);
  // Puts elements [first, first + length) of a vector, which x has, into the order in which dot() meets the
  // codes; parts begin at multiples of kArrangedPart. Where takes_bytes(), they may be rounded to integers of
  // so many bytes: of one only if they were rounded before, as round() does. Where takes_bfloat16(), they may
  // stay bfloat16. Without digits they are floats, which the whole vector must be where this returns false.
  bool (*arrange)(const float* x, int64_t columns, CodeFormat format, int digits, int64_t first,
                  int64_t length, float* to);
  // The sums of a vector's groups, of which the last one ends at `length`.
  void (*sum_groups)(const float* x, int64_t length, int64_t group, float* sums);
  // Vectors of so many digits for which codes are unpacked once.
  int64_t (*most_vectors)(int digits);
  // y[m · y_step + r] = Σ_k (scale · code + bias) · x[m][k]
  void (*dot)(const PackedRows& rows, const Arranged& x, float* y, int64_t y_step);
};

LZ_SIMD_TABLE(QuantizedTable, quantized_table)

}  // namespace lazuli

#endif
