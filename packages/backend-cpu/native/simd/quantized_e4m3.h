// Rows of E4M3 codes times vectors: in float32, or as pairs of bfloat16 (AVX512_BF16), which hold every code,
// where the vectors' elements are of that type too.
#ifndef LAZULI_SIMD_QUANTIZED_E4M3_H
#define LAZULI_SIMD_QUANTIZED_E4M3_H

#include <hwy/cache_control.h>
#include <string.h>

#include "simd/code_values.h"
#include "simd/compiler.h"
#include "simd/quantized_bytes.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86
HWY_INLINE const float* e4m3_scales(const PackedRows& p, int64_t row) {
  return static_cast<const float*>(p.scales) + row * p.scale_stride;
}

// Codes of E4M3 become float16 by moving their bits, 2^8 times too small, which arrange() makes up for; two
// neighbours come from each 16 bits, so that vectors of even codes and of odd ones alternate.
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
      const V scale = hn::Set(d, e4m3_scales(p, first + r)[group]);
      LZ_UNROLL for (int m = 0; m < kVectors; m++) sum[m][r] = hn::MulAdd(part[m][r], scale, sum[m][r]);
    }
  }
  LZ_UNROLL for (int m = 0; m < kVectors; m++) {
    LZ_UNROLL for (int r = 0; r < kRows; r++) y[m * y_step + r] = hn::GetLane(hn::SumOfLanes(d, sum[m][r]));
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
  const auto f = count >= 4   ? dot_pairs<4>
                 : count == 3 ? dot_pairs<3>
                 : count == 2 ? dot_pairs<2>
                              : dot_pairs<1>;
  f(p, x, x_step, y, y_step);
  return count < 4 ? count : 4;
}

void arrange_pairs(const float* x, int64_t length, float* to) {
  const Floats d;
  const int64_t N = int64_t(hn::Lanes(d));
  for (int64_t at = 0; at < length; at += 2 * N, to += 2 * N) {
    V even, odd;
    hn::LoadInterleaved2(d, x + at, even, odd);
    hn::StoreU(hn::Mul(even, hn::Set(d, 256.0f)), d, to);
    hn::StoreU(hn::Mul(odd, hn::Set(d, 256.0f)), d, to + N);
  }
}

#if HWY_TARGET <= HWY_AVX3
#define LZ_BFLOAT16 __attribute__((target("avx512bf16,avx512vbmi")))
inline bool has_bfloat16_codes() {
  static const bool has = [] {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vbmi");
  }();
  return has;
}
// True if rows of a format's codes are multiplied as bfloat16 here.
HWY_INLINE bool takes_bfloat16(CodeFormat f) {
  return f.code == Code::e4m3 && f.group == 32 && has_bfloat16_codes();
}

// The bytes of all codes without a sign as bfloat16.
struct E4m3Bytes {
  alignas(64) uint8_t low[128], high[128];
  constexpr E4m3Bytes() : low(), high() {
    for (int code = 0; code < 128; code++) {
      const int exponent = code >> 3, mantissa = code & 7;
      // Subnormal ones are normal numbers here.
      int e = exponent == 0 ? 1 : exponent, m = exponent == 0 ? mantissa : mantissa + 8;
      while (m > 0 && m < 8) m *= 2, e--;
      const int bits = m == 0 ? 0 : (e + 120) << 7 | (m - 8) << 4;
      low[code] = uint8_t(bits & 255);
      high[code] = uint8_t(bits >> 8);
    }
  }
};

// Elements that meet 64 codes: those of each first eight of sixteen codes, then the others.
constexpr int64_t kBfloat16Step = 64;
void arrange_bfloat16(const float* x, int64_t length, float* to) {
  const hn::FixedTag<uint32_t, 8> eight;
  const hn::FixedTag<uint16_t, 8> halves;
  auto* out = reinterpret_cast<uint16_t*>(to);
  for (int64_t at = 0; at < length; at += kBfloat16Step, out += kBfloat16Step) {
    for (int64_t i = 0; i < kBfloat16Step; i += 8) {
      uint16_t* place = out + i % 16 * 4 + i / 16 * 8;
      auto bits = hn::Zero(eight);
      if (at + i < length) bits = hn::BitCast(eight, hn::LoadU(hn::FixedTag<float, 8>(), x + at + i));
      hn::StoreU(hn::TruncateTo(halves, hn::ShiftRight<16>(bits)), halves, place);
    }
  }
}

// In assembly, since compilers keep numbers of the type for bfloat16 in memory.
HWY_INLINE void add_pairs(__m512& sum, __m512i a, const float* b) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(_mm512_loadu_si512(b)));
}

// As dot_pairs(): kRows rows that follow each other times kVectors vectors.
template <int kRows, int kVectors>
LZ_BFLOAT16 HWY_INLINE void dot_bfloat16(const PackedRows& p, int64_t first, const float* x, int64_t x_step,
                                         float* y, int64_t y_step) {
  static constexpr E4m3Bytes bytes;
  const __m512i low0 = _mm512_load_si512(bytes.low), low1 = _mm512_load_si512(bytes.low + 64);
  const __m512i high0 = _mm512_load_si512(bytes.high), high1 = _mm512_load_si512(bytes.high + 64);
  const __m512i sign = _mm512_set1_epi8(-128);
  const Floats d;
  const int64_t stride = 4 * p.stride;
  const char *from = reinterpret_cast<const char*>(p.words + first * p.stride),
             *next = from + rows_ahead(kRows, p.stride) * stride;
  const float* scales = e4m3_scales(p, first);
  __m512 sum[kVectors][kRows];
  LZ_UNROLL for (int m = 0; m < kVectors; m++) {
    LZ_UNROLL for (int r = 0; r < kRows; r++) sum[m][r] = _mm512_setzero_ps();
  }
  int64_t group = 0;
  for (int64_t left = p.columns; left > 0; left -= kBfloat16Step, from += 64, x += kBfloat16Step / 2) {
    const int64_t second = left > 32 ? 1 : 0;
    LZ_UNROLL for (int r = 0; r < kRows; r++, next += 64) {
      hwy::Prefetch(next);
      const char* at = from + r * stride;
      const __m512i codes = HWY_LIKELY(second) ? _mm512_loadu_si512(at) : _mm512_maskz_loadu_epi32(0xff, at);
      const __m512i low = _mm512_permutex2var_epi8(low0, codes, low1);
      const __m512i all = _mm512_permutex2var_epi8(high0, codes, high1);
      const __m512i high = _mm512_ternarylogic_epi32(all, codes, sign, 0xf8);
      const __m512i a = _mm512_unpacklo_epi8(low, high), b = _mm512_unpackhi_epi8(low, high);
      const float* scale = scales + r * p.scale_stride + group;
      const __m512 by =
          _mm512_mask_broadcastss_ps(_mm512_set1_ps(scale[0]), 0xff00, _mm_load_ss(scale + second));
      LZ_UNROLL for (int m = 0; m < kVectors; m++) {
        __m512 part = _mm512_setzero_ps();
        add_pairs(part, a, x + m * x_step);
        add_pairs(part, b, x + m * x_step + 16);
        sum[m][r] = _mm512_fmadd_ps(part, by, sum[m][r]);
      }
    }
    group += 2;
  }
  LZ_UNROLL for (int m = 0; m < kVectors; m++) {
    LZ_UNROLL for (int r = 0; r < kRows; r++) y[m * y_step + r] =
        hn::GetLane(hn::SumOfLanes(d, hn::Vec<Floats>{sum[m][r]}));
  }
}

template <int kVectors>
LZ_BFLOAT16 HWY_NOINLINE void dot_bfloat16(const PackedRows& p, const float* x, int64_t x_step, float* y,
                                           int64_t y_step) {
  constexpr int kRows = 4;
  int64_t row = 0;
  for (; row + kRows <= p.rows; row += kRows)
    dot_bfloat16<kRows, kVectors>(p, row, x, x_step, y + row, y_step);
  for (; row < p.rows; row++) dot_bfloat16<1, kVectors>(p, row, x, x_step, y + row, y_step);
}

template <int kVectors = kMostVectors>
void dot_bfloat16(const PackedRows& p, int64_t count, const float* x, int64_t x_step, float* y,
                  int64_t y_step) {
  if constexpr (kVectors > 1) {
    if (count < kVectors) return dot_bfloat16<kVectors - 1>(p, count, x, x_step, y, y_step);
  }
  dot_bfloat16<kVectors>(p, x, x_step, y, y_step);
}
#endif
#endif

}  // namespace
}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();

#endif
