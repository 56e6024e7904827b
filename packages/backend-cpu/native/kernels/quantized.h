// A product with packed weights, as the kernels of quantizedMatmul and gatherQmm share it.
#ifndef LAZULI_KERNELS_QUANTIZED_H
#define LAZULI_KERNELS_QUANTIZED_H

#include <cstring>
#include <span>
#include <vector>

#include "kernels/packed_format.h"
#include "runtime/pieces.h"
#include "simd/halves.h"

namespace lazuli {

// Readable zeros after a row of scales.
inline constexpr int64_t kScalePad = 16;

// Rows of scales or biases of any dtype they may have.
struct PackedScales {
  const char* data = nullptr;
  int32_t dtype = 0;
  int mode = 0;
  ScaleKind kind() const {
    switch (dtype) {
      case LZ_FLOAT32:
        return ScaleKind::float32;
      case LZ_FLOAT16:
        return ScaleKind::float16;
      case LZ_BFLOAT16:
        return ScaleKind::bfloat16;
      default:
        return mode == kNvfp4 ? ScaleKind::e4m3 : ScaleKind::e8m0;
    }
  }
  // In float32, for the product of packed weights.
  void read(const char* from, int64_t n, float* to) const {
    if (dtype == LZ_FLOAT32) {
      std::memcpy(to, from, size_t(n) * 4);
    } else if (const auto widen = half_table().widen[dtype]) {
      widen(from, to, n);
    } else {
      decode_scales(mode, reinterpret_cast<const uint8_t*>(from), n, to);
    }
  }
};

// Rows [first, first + rows) of x and y meet one packed matrix.
struct PackedJob {
  const uint32_t* words;
  const char *scales, *biases;
  int64_t first, rows;
};

struct PackedProduct {
  const char* op;
  Format format;
  bool transpose;
  int64_t k, n;
  // Of packed rows: their elements, and the distances between rows in words and in scales' elements.
  int64_t columns, groups, stride, scale_stride, bias_stride;
  PackedScales scale, bias;
  std::vector<PackedJob> jobs;
  // Rows that follow each other: as they came or `rounded` to 8 bits, and in float32 where that is wanted.
  bool rounded = false;
  const void* rows;
  int32_t dtype;
  const float* x = nullptr;
  float* y = nullptr;
  // The result itself, where parts of it are finished at once.
  void* out = nullptr;
  int32_t out_dtype;
  Epilogue epilogue;

  // The integers of a byte that an element of x becomes, where it is multiplied by bytes.
  int digits() const { return rounded ? 1 : out_dtype == LZ_FLOAT32 ? 3 : 2; }
  void add(PackedJob job) {
    if (!jobs.empty()) {
      PackedJob& last = jobs.back();
      if (last.words == job.words && last.scales == job.scales && last.biases == job.biases) {
        last.rows += job.rows;
        return;
      }
    }
    jobs.push_back(job);
  }
  // Scales and biases of `count` groups of a packed row, from group `group` on, each padded.
  void read_scales(const PackedJob& job, int64_t row, int64_t group, int64_t count, float* scales,
                   float* biases) const {
    scale.read(job.scales + (row * scale_stride + group) * itemsize(scale.dtype), count, scales);
    std::fill_n(scales + count, kScalePad, 0.0f);
    if (job.biases == nullptr) return;
    bias.read(job.biases + (row * bias_stride + group) * itemsize(bias.dtype), count, biases);
    std::fill_n(biases + count, kScalePad, 0.0f);
  }
};

// A product of few rows among several with the same rows, and its share of their tasks.
struct FewRows {
  const PackedProduct* p;
  const PackedJob* job;
  int64_t begin = 0, end = 0;
};
inline constexpr int64_t kFewRows = 16;

// y = x Wᵀ for few rows of x and one or more W: rows of these are read once. They are alike but for their
// weights, columns and results.
void few_rows(const lz_call& call, std::span<FewRows> products);

// y = x Wᵀ or x W by the tiles of matrix products, with operands packed on the way; bfloat16 by its own
// products where the processor has them, which rounds scale · code + bias to bfloat16. Writes p.y, or p.out
// with the epilogue where that is set. Only where gemm_is_own().
void packed_tiles(const lz_call& call, const PackedProduct& p, const PackedJob& job);

// The same of rows in float32 (p.x) that were rounded to integers of a byte.
bool has_byte_tiles(const PackedProduct& p);
void byte_tiles(const lz_call& call, const PackedProduct& p, const PackedJob& job);

}  // namespace lazuli

#endif
