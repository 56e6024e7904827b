// Rows of E4M3 codes times vectors in float32. Each lane adds its products in order, however many vectors
// there are.
#ifndef LAZULI_SIMD_QUANTIZED_E4M3_H
#define LAZULI_SIMD_QUANTIZED_E4M3_H

#include <algorithm>

#include <hwy/cache_control.h>

#include "simd/code_values.h"
#include "simd/compiler.h"
#include "simd/lane_sums.h"
#include "simd/quantized_bytes.h"
#include "simd/vector_counts.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86
// Codes of E4M3 become float16 by moving their bits, 2^8 times too small, which sums make up for at their
// end: elements times 2^8 may be infinite.
constexpr int64_t kHalvesGroup = 32;
constexpr bool widens_halves(CodeFormat f) { return f.code == Code::e4m3 && f.group == kHalvesGroup; }

// Codes of a row that are unpacked together before they meet all vectors, and the rows and vectors of which
// sums stay in registers.
constexpr int64_t kBlock = 256;
constexpr int kTallest = 8;
constexpr int kWide = HWY_TARGET <= HWY_AVX3 ? 2 : 1;

// A block of codes as float16. To convert them from memory takes one instruction less than from registers.
struct HalvesBlock {
  alignas(64) int16_t bits[kBlock];

  HWY_INLINE void read(const int8_t* from, const int8_t* next, int64_t count) {
    const hn::ScalableTag<int16_t> shorts;
    const hn::Rebind<int8_t, decltype(shorts)> bytes;
    const auto kept = hn::Set(shorts, int16_t(0xbf80));
    for (int64_t at = 0; at < count; at += kHalvesGroup) {
      hwy::Prefetch(next + at);
      LZ_UNROLL for (int64_t i = 0; i < kHalvesGroup; i += int64_t(hn::MaxLanes(shorts))) {
        const auto v = hn::PromoteTo(shorts, hn::LoadU(bytes, from + at + i));
        hn::Store(hn::And(hn::ShiftLeft<7>(v), kept), shorts, bits + at + i);
      }
    }
  }
  HWY_INLINE V times(int64_t i, V scale) const {
    const Floats d;
    const hn::Rebind<hwy::float16_t, Floats> halves;
    return hn::Mul(hn::PromoteTo(d, hn::Load(halves, reinterpret_cast<const hwy::float16_t*>(bits) + i)),
                   scale);
  }
};

// kTall rows that follow each other times kVectors arranged vectors, which meet codes as they are unpacked.
template <int kTall, int kVectors>
HWY_NOINLINE void dot_directly(const PackedRows& p, int64_t first, const float* x, int64_t x_step, float* y,
                               int64_t y_step) {
  const Floats d;
  constexpr int64_t N = int64_t(hn::MaxLanes(d));
  const int64_t ahead = 4 * p.stride * rows_ahead(kTall, p.stride);
  const auto* from = reinterpret_cast<const int8_t*>(p.words + first * p.stride);
  const int8_t* next = from + ahead;
  HalvesBlock codes[kTall];
  V sum[kVectors][kTall];
  LZ_UNROLL for (int m = 0; m < kVectors; m++) {
    LZ_UNROLL for (int r = 0; r < kTall; r++) sum[m][r] = hn::Zero(d);
  }
  for (int64_t at = 0; at < p.columns; at += kBlock) {
    const int64_t block = std::min(kBlock, p.columns - at);
    for (int r = 0; r < kTall; r++, next += block) codes[r].read(from + r * 4 * p.stride + at, next, block);
    for (int64_t i = 0; i < block; i += kHalvesGroup) {
      V scale[kTall];
      LZ_UNROLL for (int r = 0; r < kTall; r++) scale[r] =
          hn::Set(d, p.float_scales(first + r)[(at + i) / kHalvesGroup]);
      LZ_UNROLL for (int64_t j = i; j < i + kHalvesGroup; j += N) {
        V code[kTall];
        LZ_UNROLL for (int r = 0; r < kTall; r++) code[r] = codes[r].times(j, scale[r]);
        LZ_UNROLL for (int m = 0; m < kVectors; m++) {
          const V v = hn::LoadU(d, x + m * x_step + at + j);
          LZ_UNROLL for (int r = 0; r < kTall; r++) sum[m][r] = hn::MulAdd(code[r], v, sum[m][r]);
        }
      }
    }
  }
  LZ_UNROLL for (int m = 0; m < kVectors; m++) {
    LZ_UNROLL for (int r = 0; r < kTall; r++) y[m * y_step + first + r] = 256.0f * lane_sum(sum[m][r]);
  }
}

// Adds the products of kTall rows of a block with kVectors vectors to sums, a vector of lanes each.
template <int kTall, int kVectors>
HWY_INLINE void add_block(const float* codes, int64_t count, const float* x, int64_t x_step, float* sums) {
  const Floats d;
  const int64_t N = int64_t(hn::Lanes(d));
  V sum[kVectors][kTall];
  LZ_UNROLL for (int m = 0; m < kVectors; m++) {
    LZ_UNROLL for (int r = 0; r < kTall; r++) sum[m][r] = hn::Load(d, sums + (m * kTall + r) * N);
  }
  for (int64_t i = 0; i < count; i += N) {
    V code[kTall];
    LZ_UNROLL for (int r = 0; r < kTall; r++) code[r] = hn::Load(d, codes + r * kBlock + i);
    LZ_UNROLL for (int m = 0; m < kVectors; m++) {
      const V v = hn::LoadU(d, x + m * x_step + i);
      LZ_UNROLL for (int r = 0; r < kTall; r++) sum[m][r] = hn::MulAdd(code[r], v, sum[m][r]);
    }
  }
  LZ_UNROLL for (int m = 0; m < kVectors; m++) {
    LZ_UNROLL for (int r = 0; r < kTall; r++) hn::Store(sum[m][r], d, sums + (m * kTall + r) * N);
  }
}

// kTall rows that follow each other times `count` arranged vectors, by blocks.
constexpr int kMostWidened = 16;
template <int kTall>
HWY_NOINLINE void dot_widened(const PackedRows& p, int64_t first, int64_t count, const float* x,
                              int64_t x_step, float* y, int64_t y_step) {
  const Floats d;
  constexpr int64_t N = int64_t(hn::MaxLanes(d));
  const int64_t ahead = 4 * p.stride * rows_ahead(kTall, p.stride);
  alignas(64) float codes[kTall * kBlock], sums[kMostWidened * kTall * hn::MaxLanes(d)];
  for (int64_t i = 0; i < count * kTall; i++) hn::Store(hn::Zero(d), d, sums + i * N);
  const auto* from = reinterpret_cast<const int8_t*>(p.words + first * p.stride);
  const int8_t* next = from + ahead;
  for (int64_t at = 0; at < p.columns; at += kBlock) {
    const int64_t block = std::min(kBlock, p.columns - at);
    for (int r = 0; r < kTall; r++, next += block) {
      HalvesBlock halves;
      halves.read(from + r * 4 * p.stride + at, next, block);
      const float* scales = p.float_scales(first + r) + at / kHalvesGroup;
      for (int64_t i = 0; i < block; i += kHalvesGroup, scales++) {
        LZ_UNROLL for (int64_t j = i; j < i + kHalvesGroup; j += N)
            hn::Store(halves.times(j, hn::Set(d, *scales)), d, codes + r * kBlock + j);
      }
    }
    for (int64_t m = 0; m < count; m += kWide) {
      by_count<kWide>(std::min<int64_t>(kWide, count - m), [&]<int kVectors>() HWY_ATTR {
        add_block<kTall, kVectors>(codes, block, x + m * x_step + at, x_step, sums + m * kTall * N);
      });
    }
  }
  for (int64_t m = 0; m < count; m++) {
    for (int r = 0; r < kTall; r++)
      y[m * y_step + first + r] = 256.0f * lane_sum(hn::Load(d, sums + (m * kTall + r) * N));
  }
}

// The first of `count` vectors: how many were multiplied.
int64_t dot_widened(const PackedRows& p, int64_t count, const float* x, int64_t x_step, float* y,
                    int64_t y_step) {
  count = std::min<int64_t>(count, kMostWidened);
  int64_t row = 0;
  // More would not stay in the first cache beside each other.
  constexpr int kDirect = 4;
  if (count <= kDirect) {
    by_count<kDirect>(count, [&]<int kVectors>() {
      for (; row + 2 <= p.rows; row += 2) dot_directly<2, kVectors>(p, row, x, x_step, y, y_step);
      for (; row < p.rows; row++) dot_directly<1, kVectors>(p, row, x, x_step, y, y_step);
    });
    return count;
  }
  for (; row + kTallest <= p.rows; row += kTallest)
    dot_widened<kTallest>(p, row, count, x, x_step, y, y_step);
  for (; row < p.rows; row++) dot_widened<1>(p, row, count, x, x_step, y, y_step);
  return count;
}
#else
constexpr bool widens_halves(CodeFormat) { return false; }
#endif

}  // namespace
}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();

#endif
