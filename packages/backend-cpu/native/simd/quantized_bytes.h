// Rows of integer codes of 4 bits times a vector, by the processor's sums of four products of bytes
// (AVX512_VNNI): two thirds of the steps that products in float32 take. An element of x is an integer of
// three bytes times a power of two that its group shares. It is rounded to 2^-23 of the group's largest; the
// sums that biases are multiplied with are rounded as much.
#ifndef LAZULI_SIMD_QUANTIZED_BYTES_H
#define LAZULI_SIMD_QUANTIZED_BYTES_H

#include <hwy/cache_control.h>
#include <string.h>

#include "simd/compiler.h"
#include "simd/quantized.h"
#include "simd/vectors.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
#define LZ_BYTES __attribute__((target("avx512vnni")))
// The output of arrange_bytes() for the codes of 16 words: three bytes, the highest first, of each word's
// even elements and of its odd ones; and the power of two of each word.
constexpr int64_t kByteCodes = 128, kByteBlock = 7 * 16;

bool has_byte_products() {
  static const bool has = [] {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512vnni") != 0;
  }();
  return has;
}

// Returns false where an element is no number or beyond a group's range.
bool arrange_bytes(const float* x, int64_t columns, int64_t group, float* to) {
  constexpr float kMost = 127 * 65536 + 127 * 256 + 127;
  HWY_ALIGN int32_t q[kByteCodes];
  float factor = 0, scale = 0;
  for (int64_t at = 0; at < columns; at += kByteCodes, to += kByteBlock) {
    const int64_t count = columns - at < kByteCodes ? columns - at : kByteCodes;
    float* scales = to + 6 * 16;
    for (int64_t i = 0; i < kByteCodes; i += 8) {
      if (i < count && (at + i) % group == 0) {
        uint32_t most = 0;
        for (int64_t j = 0; j < group; j++) {
          uint32_t bits;
          memcpy(&bits, x + at + i + j, 4);
          bits &= 0x7fffffffu;
          most = bits > most ? bits : most;
        }
        const int exponent = int(most >> 23) - 127;
        if (most != 0 && (exponent < -90 || exponent > 127)) return false;
        float largest;
        memcpy(&largest, &most, 4);
        const auto power = [](int e) {
          const uint32_t bits = uint32_t(e + 127) << 23;
          float value;
          memcpy(&value, &bits, 4);
          return value;
        };
        int e = 22 - exponent;
        if (largest * power(e) > kMost) e--;
        factor = most ? power(e) : 0;
        scale = most ? power(-e) : 0;
      }
      scales[i / 8] = i < count ? scale : 0;
      for (int64_t j = i; j < i + 8; j++) q[j] = i < count ? int32_t(__builtin_rintf(x[at + j] * factor)) : 0;
    }
    auto* bytes = reinterpret_cast<int8_t*>(to);
    for (int64_t j = 0; j < kByteCodes / 2; j++) {
      const int32_t even = q[2 * j], odd = q[2 * j + 1];
      const int32_t even8 = (even + 128) >> 8, odd8 = (odd + 128) >> 8;
      bytes[j] = int8_t((even8 + 128) >> 8);
      bytes[64 + j] = int8_t((odd8 + 128) >> 8);
      bytes[128 + j] = int8_t(even8);
      bytes[192 + j] = int8_t(odd8);
      bytes[256 + j] = int8_t(even);
      bytes[320 + j] = int8_t(odd);
    }
  }
  return true;
}

template <int kRows>
LZ_BYTES HWY_NOINLINE void dot_bytes(const PackedRows& p, int64_t first, const float* x, float* y) {
  using V = hn::Vec<Floats>;
  const Floats d;
  const hn::RebindToUnsigned<Floats> u;
  const int64_t N = 16, count = p.columns / 8, stride = p.stride, scale_stride = p.scale_stride;
  const int shift = __builtin_ctzll(uint64_t(p.format.group) / 8);
  const auto places = hn::IndicesFromVec(d, hn::ShiftRightSame(hn::Iota(u, 0), shift));
  const auto low = hn::Set(u, 0x0f0f0f0fu);
  const uint32_t* words = p.words + first * stride;
  const float* scales = p.scales + first * scale_stride;
  HWY_ALIGN uint32_t last[kRows * N] = {};
  V sum[kRows];
  LZ_UNROLL for (int r = 0; r < kRows; r++) sum[r] = hn::Zero(d);
  for (int64_t at = 0; at < count; at += N, x += kByteBlock) {
    const uint32_t* from = words + at;
    int64_t step = stride;
    if (at + N > count) {
      for (int r = 0; r < kRows; r++) memcpy(last + r * N, from + r * stride, size_t(count - at) * 4);
      from = last;
      step = N;
    }
    __m512i even[kRows], odd[kRows], part[kRows];
    LZ_UNROLL for (int r = 0; r < kRows; r++) {
      const auto w = hn::LoadU(u, from + r * step);
      hwy::Prefetch(words + (kRows + r) * stride + at);
      even[r] = hn::And(w, low).raw;
      odd[r] = hn::And(hn::ShiftRight<4>(w), low).raw;
      part[r] = _mm512_setzero_si512();
    }
    LZ_UNROLL for (int byte = 0; byte < 3; byte++) {
      const __m512i e = _mm512_loadu_si512(x + 32 * byte), o = _mm512_loadu_si512(x + 32 * byte + 16);
      LZ_UNROLL for (int r = 0; r < kRows; r++) {
        if (byte > 0) part[r] = _mm512_slli_epi32(part[r], 8);
        part[r] = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(part[r], even[r], e), odd[r], o);
      }
    }
    const V power = hn::LoadU(d, x + 96);
    LZ_UNROLL for (int r = 0; r < kRows; r++) {
      const V scale = hn::TableLookupLanes(hn::LoadU(d, scales + r * scale_stride + (at >> shift)), places);
      sum[r] = hn::MulAdd(hn::Mul(V{_mm512_cvtepi32_ps(part[r])}, power), scale, sum[r]);
    }
  }
  LZ_UNROLL for (int r = 0; r < kRows; r++) y[r] = hn::GetLane(hn::SumOfLanes(d, sum[r]));
}

void dot_bytes(const PackedRows& p, const float* x, float* y) {
  int64_t row = 0;
  for (; row + 4 <= p.rows; row += 4) dot_bytes<4>(p, row, x, y + row);
  for (; row < p.rows; row++) dot_bytes<1>(p, row, x, y + row);
}
#endif

}  // namespace
}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();

#endif
