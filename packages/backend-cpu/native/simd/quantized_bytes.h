// Rows of integer codes of 2, 4 and 8 bits times a vector, by the processor's sums of four products of bytes
// (AVX512_VNNI): two thirds of the steps that products in float32 take. An element of x is an integer of two
// or three bytes times a power of two that its group shares. It is rounded to 2^-15 or 2^-23 of the group's
// largest; the sums that biases are multiplied with are rounded as much. An x that was rounded to integers of
// one byte by blocks of 32 before is those.
#ifndef LAZULI_SIMD_QUANTIZED_BYTES_H
#define LAZULI_SIMD_QUANTIZED_BYTES_H

#include <hwy/cache_control.h>
#include <string.h>

#include "simd/byte_products.h"
#include "simd/compiler.h"
#include "simd/lane_sums.h"
#include "simd/quantized.h"
#include "simd/vectors.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
// The output of arrange_bytes() for the codes of 16 words: of each byte of x, the highest first, and each
// step, what meets its codes; and the scale of each word.
constexpr int64_t byte_block(int bits, int digits) { return (byte_steps(bits) * digits + 1) * 16; }

// sum[r] += Σ_g bias[g] · sums[g] of row first + r. Sums are padded with zeros; rows of biases need not be.
template <int kRows>
HWY_INLINE void add_biases(const PackedRows& p, int64_t first, const float* sums,
                           hn::Vec<Floats> (&sum)[kRows]) {
  if (p.biases == nullptr) return;
  const Floats d;
  const int64_t N = 16, groups = p.columns / p.format.group;
  for (int64_t g = 0; g < groups; g += N) {
    const auto some = hn::FirstN(d, size_t(groups - g));
    const auto x = hn::LoadU(d, sums + g);
    LZ_UNROLL for (int r = 0; r < kRows; r++) sum[r] =
        hn::MulAdd(hn::MaskedLoad(some, d, p.biases + (first + r) * p.scale_stride + g), x, sum[r]);
  }
}

// Returns false where an element is no number or beyond a group's range.
template <int kBits, int kDigits>
bool arrange_bytes(const float* x, int64_t columns, int64_t group, float* to) {
  constexpr float kMost = kDigits == 3 ? 127 * 65536 + 127 * 256 + 127 : 127 * 256 + 127;
  constexpr int64_t kPer = word_codes(kBits), kSteps = byte_steps(kBits), kCodes = 16 * kPer;
  if (kDigits == 1) group = kRoundedBlock;
  HWY_ALIGN int32_t q[kCodes];
  float factor = 0, scale = 0;
  for (int64_t at = 0; at < columns; at += kCodes, to += byte_block(kBits, kDigits)) {
    const int64_t count = columns - at < kCodes ? columns - at : kCodes;
    float* scales = to + kSteps * kDigits * 16;
    for (int64_t i = 0; i < kCodes; i += kPer) {
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
        if constexpr (kDigits == 1) {
          factor = most ? 127 / largest : 0;
          scale = largest / 127;
        } else {
          const auto power = [](int e) {
            const uint32_t bits = uint32_t(e + 127) << 23;
            float value;
            memcpy(&value, &bits, 4);
            return value;
          };
          int e = 8 * kDigits - 2 - exponent;
          if (largest * power(e) > kMost) e--;
          factor = most ? power(e) : 0;
          scale = most ? power(-e) : 0;
        }
      }
      scales[i / kPer] = i < count ? scale : 0;
      for (int64_t j = i; j < i + kPer; j++)
        q[j] = i < count ? int32_t(__builtin_rintf(x[at + j] * factor)) : 0;
    }
    auto* bytes = reinterpret_cast<int8_t*>(to);
    LZ_UNROLL for (int64_t step = 0; step < kSteps; step++) {
      for (int64_t j = 0; j < 64; j++) {
        int32_t value = q[kSteps * j + step];
        LZ_UNROLL for (int digit = kDigits - 1; digit >= 0; digit--) {
          bytes[64 * (kSteps * digit + step) + j] = int8_t(value);
          value = (value + 128) >> 8;
        }
      }
    }
  }
  return true;
}

// kRows rows of codes times kVectors arranged vectors, x_step apart, which meet each code that is unpacked
// once.
template <int kBits, int kRows, int kVectors, int kDigits>
LZ_BYTES HWY_NOINLINE void dot_bytes(const PackedRows& p, int64_t first, const Arranged& a, float* y,
                                     int64_t y_step) {
  using V = hn::Vec<Floats>;
  const Floats d;
  const hn::RebindToUnsigned<Floats> u;
  constexpr int kSteps = int(byte_steps(kBits)), kPer = int(word_codes(kBits));
  // Codes of 8 bits times three bytes are beyond 32 bits: their lowest byte is summed apart.
  constexpr bool kApart = kBits == 8 && kDigits == 3;
  const int64_t N = 16, count = p.columns / kPer, stride = p.stride, scale_stride = p.scale_stride;
  const int shift = __builtin_ctzll(uint64_t(p.format.group) / kPer);
  const auto lanes = hn::IndicesFromVec(d, hn::ShiftRightSame(hn::Iota(u, 0), shift));
  const auto low = hn::Set(u, kBits == 8 ? 0xffffffffu : ((1u << kBits) - 1) * 0x01010101u);
  const uint32_t* words = p.words + first * stride;
  const float* scales = p.scales + first * scale_stride;
  // Memory is asked for so many rows ahead, of short rows more; rows of no columns are 0 apart.
  constexpr int64_t kAhead = 2048;
  const int64_t block_words = kRows * std::max<int64_t>(stride, 1);
  const int64_t ahead = (kAhead / block_words + 1) * block_words;
  HWY_ALIGN uint32_t last[kRows * N] = {};
  V sum[kVectors][kRows];
  LZ_UNROLL for (int m = 0; m < kVectors; m++) {
    LZ_UNROLL for (int r = 0; r < kRows; r++) sum[m][r] = hn::Zero(d);
  }
  const float* x = a.x;
  for (int64_t at = 0; at < count; at += N, x += byte_block(kBits, kDigits)) {
    const uint32_t* from = words + at;
    int64_t step = stride;
    LZ_UNROLL for (int r = 0; r < kRows; r++) hwy::Prefetch(from + r * stride + ahead);
    if (at + N > count) {
      for (int r = 0; r < kRows; r++) memcpy(last + r * N, from + r * stride, size_t(count - at) * 4);
      from = last;
      step = N;
    }
    __m512i codes[kRows][kSteps];
    V scale[kRows];
    LZ_UNROLL for (int r = 0; r < kRows; r++) {
      auto w = hn::LoadU(u, from + r * step);
      LZ_UNROLL for (int s = 0; s < kSteps; s++) {
        codes[r][s] = kBits == 8 ? w.raw : hn::And(w, low).raw;
        w = hn::ShiftRight<kBits % 8>(w);
      }
      scale[r] = hn::TableLookupLanes(hn::LoadU(d, scales + r * scale_stride + (at >> shift)), lanes);
    }
    LZ_UNROLL for (int m = 0; m < kVectors; m++) {
      const float* digits = x + m * a.x_step;
      __m512i part[kRows];
      V high[kRows];
      LZ_UNROLL for (int r = 0; r < kRows; r++) part[r] = _mm512_setzero_si512();
      LZ_UNROLL for (int byte = 0; byte < kDigits; byte++) {
        if (byte > 0) {
          LZ_UNROLL for (int r = 0; r < kRows; r++) {
            if (kApart && byte == 2) {
              high[r] = V{_mm512_cvtepi32_ps(part[r])};
              part[r] = _mm512_setzero_si512();
            } else {
              part[r] = _mm512_slli_epi32(part[r], 8);
            }
          }
        }
        LZ_UNROLL for (int s = 0; s < kSteps; s++) {
          const __m512i bytes = _mm512_loadu_si512(digits + 16 * (kSteps * byte + s));
          LZ_UNROLL for (int r = 0; r < kRows; r++) part[r] =
              _mm512_dpbusd_epi32(part[r], codes[r][s], bytes);
        }
      }
      const V power = hn::LoadU(d, digits + 16 * kSteps * kDigits);
      LZ_UNROLL for (int r = 0; r < kRows; r++) {
        V value{_mm512_cvtepi32_ps(part[r])};
        if constexpr (kApart) value = hn::MulAdd(high[r], hn::Set(d, 256.0f), value);
        sum[m][r] = hn::MulAdd(hn::Mul(value, power), scale[r], sum[m][r]);
      }
    }
  }
  LZ_UNROLL for (int m = 0; m < kVectors; m++) {
    add_biases<kRows>(p, first, a.sums + m * a.sums_step, sum[m]);
    lane_sums(sum[m], y + m * y_step + first);
  }
}

template <int kBits, int kVectors, int kDigits>
void dot_bytes(const PackedRows& p, const Arranged& a, float* y, int64_t y_step) {
  int64_t row = 0;
  for (; row + 4 <= p.rows; row += 4) dot_bytes<kBits, 4, kVectors, kDigits>(p, row, a, y, y_step);
  for (; row < p.rows; row++) dot_bytes<kBits, 1, kVectors, kDigits>(p, row, a, y, y_step);
}

template <int kBits>
void dot_bytes(const PackedRows& p, const Arranged& a, bool two, int digits, float* y, int64_t y_step) {
  const auto f = digits == 1   ? two ? dot_bytes<kBits, 2, 1> : dot_bytes<kBits, 1, 1>
                 : digits == 2 ? two ? dot_bytes<kBits, 2, 2> : dot_bytes<kBits, 1, 2>
                 : two         ? dot_bytes<kBits, 2, 3>
                               : dot_bytes<kBits, 1, 3>;
  f(p, a, y, y_step);
}

void dot_bytes(const PackedRows& p, const Arranged& a, bool two, int digits, float* y, int64_t y_step) {
  const auto f = p.format.bits == 2 ? dot_bytes<2> : p.format.bits == 4 ? dot_bytes<4> : dot_bytes<8>;
  f(p, a, two, digits, y, y_step);
}

bool arrange_bytes(const float* x, int64_t columns, CodeFormat format, int digits, float* to) {
  const auto of = [digits](auto one, auto two, auto three) {
    return digits == 1 ? one : digits == 2 ? two : three;
  };
  const auto f = format.bits == 2   ? of(arrange_bytes<2, 1>, arrange_bytes<2, 2>, arrange_bytes<2, 3>)
                 : format.bits == 4 ? of(arrange_bytes<4, 1>, arrange_bytes<4, 2>, arrange_bytes<4, 3>)
                                    : of(arrange_bytes<8, 1>, arrange_bytes<8, 2>, arrange_bytes<8, 3>);
  return f(x, columns, format.group, to);
}
#endif

}  // namespace
}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();

#endif
