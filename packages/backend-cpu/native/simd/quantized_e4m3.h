// Rows of E4M3 codes times vectors in float32.
#ifndef LAZULI_SIMD_QUANTIZED_E4M3_H
#define LAZULI_SIMD_QUANTIZED_E4M3_H

#include <hwy/cache_control.h>
#include <string.h>

#include "simd/code_values.h"
#include "simd/compiler.h"
#include "simd/quantized_bytes.h"
#include "simd/vector_counts.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86
// Codes of E4M3 become float16 by moving their bits, 2^8 times too small, which sums make up for at their
// end: elements times 2^8 may be infinite. Two neighbours come from each 16 bits, so that vectors of even
// codes and of odd ones alternate.
constexpr bool in_pairs(CodeFormat f) { return f.code == Code::e4m3 && f.group % 32 == 0; }

// kRows rows that follow each other times kVectors arranged vectors.
template <int kRows, int kVectors>
HWY_INLINE void dot_pairs(const PackedRows& p, int64_t first, const float* x, int64_t x_step, float* y,
                          int64_t y_step) {
  const Floats d;
  const hn::Rebind<int16_t, Floats> pairs;
  const hn::Rebind<hwy::float16_t, Floats> halves;
  const auto kept = hn::Set(pairs, int16_t(0xbf80));
  const int64_t N = int64_t(hn::Lanes(d)), per_group = p.format.group / (2 * N);
  const int64_t groups = p.columns / p.format.group;
  const auto* from = reinterpret_cast<const int16_t*>(p.words + first * p.stride);
  const auto* next = from + rows_ahead(kRows, p.stride) * p.stride * 2;
  V sum[kVectors][kRows];
  LZ_UNROLL for (int m = 0; m < kVectors; m++) {
    LZ_UNROLL for (int r = 0; r < kRows; r++) sum[m][r] = hn::Zero(d);
  }
  for (int64_t group = 0; group < groups; group++) {
    V part[kVectors][kRows];
    LZ_UNROLL for (int m = 0; m < kVectors; m++) {
      LZ_UNROLL for (int r = 0; r < kRows; r++) part[m][r] = hn::Zero(d);
    }
    for (int64_t i = 0; i < per_group; i++, from += N, x += 2 * N) {
      LZ_UNROLL for (int r = 0; r < kRows; r++, next += N) {
        hwy::Prefetch(next);
        const auto v = hn::LoadU(pairs, from + r * p.stride * 2);
        const auto even = hn::And(hn::ShiftRight<1>(hn::ShiftLeft<8>(v)), kept);
        const auto odd = hn::And(hn::ShiftRight<1>(v), kept);
        const V a = hn::PromoteTo(d, hn::BitCast(halves, even)),
                b = hn::PromoteTo(d, hn::BitCast(halves, odd));
        LZ_UNROLL for (int m = 0; m < kVectors; m++) {
          part[m][r] = hn::MulAdd(a, hn::LoadU(d, x + m * x_step), part[m][r]);
          part[m][r] = hn::MulAdd(b, hn::LoadU(d, x + m * x_step + N), part[m][r]);
        }
      }
    }
    LZ_UNROLL for (int r = 0; r < kRows; r++) {
      const V scale = hn::Set(d, p.float_scales(first + r)[group]);
      LZ_UNROLL for (int m = 0; m < kVectors; m++) sum[m][r] = hn::MulAdd(part[m][r], scale, sum[m][r]);
    }
  }
  LZ_UNROLL for (int m = 0; m < kVectors; m++) {
    LZ_UNROLL for (int r = 0; r < kRows; r++) {
      y[m * y_step + r] = 256.0f * hn::GetLane(hn::SumOfLanes(d, sum[m][r]));
    }
  }
}

template <int kVectors>
HWY_NOINLINE void dot_pairs(const PackedRows& p, const float* x, int64_t x_step, float* y, int64_t y_step) {
  int64_t row = 0;
  for (; row + 2 <= p.rows; row += 2) dot_pairs<2, kVectors>(p, row, x, x_step, y + row, y_step);
  if (row < p.rows) dot_pairs<1, kVectors>(p, row, x, x_step, y + row, y_step);
}

// The first of `count` vectors: how many were multiplied.
int64_t dot_pairs(const PackedRows& p, int64_t count, const float* x, int64_t x_step, float* y,
                  int64_t y_step) {
  constexpr int64_t kMost = 4;
  count = std::min(count, kMost);
  by_count<kMost>(count, [&]<int kVectors>() { dot_pairs<kVectors>(p, x, x_step, y, y_step); });
  return count;
}

void arrange_pairs(const float* x, int64_t length, float* to) {
  const Floats d;
  const int64_t N = int64_t(hn::Lanes(d));
  for (int64_t at = 0; at < length; at += 2 * N, to += 2 * N) {
    V even, odd;
    hn::LoadInterleaved2(d, x + at, even, odd);
    hn::StoreU(even, d, to);
    hn::StoreU(odd, d, to + N);
  }
}
#endif

}  // namespace
}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();

#endif
