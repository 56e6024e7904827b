// Rows of integer codes of 4 bits times a vector, by the processor's sums of four products of bytes
// (AVX512_VNNI): two thirds of the steps that products in float32 take. An element of x is an integer of two
// or three bytes times a power of two that its group shares. It is rounded to 2^-15 or 2^-23 of the group's
// largest; the sums that biases are multiplied with are rounded as much.
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
// The output of arrange_bytes() for the codes of 16 words: the bytes, the highest first, of each word's even
// elements and of its odd ones; and the power of two of each word.
constexpr int64_t kByteCodes = 128;
constexpr int64_t byte_block(int digits) { return (2 * digits + 1) * 16; }

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

bool has_byte_products() {
  static const bool has = [] {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512vnni") != 0;
  }();
  return has;
}

// Returns false where an element is no number or beyond a group's range.
template <int kDigits>
bool arrange_bytes(const float* x, int64_t columns, int64_t group, float* to) {
  constexpr float kMost = kDigits == 3 ? 127 * 65536 + 127 * 256 + 127 : 127 * 256 + 127;
  HWY_ALIGN int32_t q[kByteCodes];
  float factor = 0, scale = 0;
  for (int64_t at = 0; at < columns; at += kByteCodes, to += byte_block(kDigits)) {
    const int64_t count = columns - at < kByteCodes ? columns - at : kByteCodes;
    float* scales = to + 2 * kDigits * 16;
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
        int e = 8 * kDigits - 2 - exponent;
        if (largest * power(e) > kMost) e--;
        factor = most ? power(e) : 0;
        scale = most ? power(-e) : 0;
      }
      scales[i / 8] = i < count ? scale : 0;
      for (int64_t j = i; j < i + 8; j++) q[j] = i < count ? int32_t(__builtin_rintf(x[at + j] * factor)) : 0;
    }
    auto* bytes = reinterpret_cast<int8_t*>(to);
    for (int64_t j = 0; j < kByteCodes / 2; j++) {
      int32_t even = q[2 * j], odd = q[2 * j + 1];
      LZ_UNROLL for (int digit = kDigits - 1; digit >= 0; digit--) {
        bytes[128 * digit + j] = int8_t(even);
        bytes[128 * digit + 64 + j] = int8_t(odd);
        even = (even + 128) >> 8, odd = (odd + 128) >> 8;
      }
    }
  }
  return true;
}

// The sums of the lanes of four vectors.
HWY_INLINE void sums_of(const hn::Vec<Floats> (&v)[4], float* y) {
  const Floats d;
  const hn::Repartition<double, Floats> wide;
  const auto halves = [d, wide](hn::Vec<Floats> a, hn::Vec<Floats> b) {
    return hn::BitCast(wide, hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)));
  };
  const auto p = halves(v[0], v[1]), q = halves(v[2], v[3]);
  const auto blocks = hn::Add(hn::BitCast(d, hn::InterleaveLower(wide, p, q)),
                              hn::BitCast(d, hn::InterleaveUpper(wide, p, q)));
  const hn::FixedTag<float, 8> eight;
  const hn::FixedTag<float, 4> four;
  const auto pair = hn::Add(hn::LowerHalf(eight, blocks), hn::UpperHalf(eight, blocks));
  hn::StoreU(hn::Add(hn::LowerHalf(four, pair), hn::UpperHalf(four, pair)), four, y);
}

// kRows rows of codes times kVectors arranged vectors, x_step apart, which meet each code that is unpacked
// once.
template <int kRows, int kVectors, int kDigits>
LZ_BYTES HWY_NOINLINE void dot_bytes(const PackedRows& p, int64_t first, const Arranged& a, float* y,
                                     int64_t y_step) {
  using V = hn::Vec<Floats>;
  const Floats d;
  const hn::RebindToUnsigned<Floats> u;
  const int64_t N = 16, count = p.columns / 8, stride = p.stride, scale_stride = p.scale_stride;
  const int shift = __builtin_ctzll(uint64_t(p.format.group) / 8);
  const auto lanes = hn::IndicesFromVec(d, hn::ShiftRightSame(hn::Iota(u, 0), shift));
  const auto low = hn::Set(u, 0x0f0f0f0fu);
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
  for (int64_t at = 0; at < count; at += N, x += byte_block(kDigits)) {
    const uint32_t* from = words + at;
    int64_t step = stride;
    LZ_UNROLL for (int r = 0; r < kRows; r++) hwy::Prefetch(from + r * stride + ahead);
    if (at + N > count) {
      for (int r = 0; r < kRows; r++) memcpy(last + r * N, from + r * stride, size_t(count - at) * 4);
      from = last;
      step = N;
    }
    __m512i even[kRows], odd[kRows];
    V scale[kRows];
    LZ_UNROLL for (int r = 0; r < kRows; r++) {
      const auto w = hn::LoadU(u, from + r * step);
      even[r] = hn::And(w, low).raw;
      odd[r] = hn::And(hn::ShiftRight<4>(w), low).raw;
      scale[r] = hn::TableLookupLanes(hn::LoadU(d, scales + r * scale_stride + (at >> shift)), lanes);
    }
    LZ_UNROLL for (int m = 0; m < kVectors; m++) {
      const float* digits = x + m * a.x_step;
      __m512i part[kRows];
      LZ_UNROLL for (int r = 0; r < kRows; r++) part[r] = _mm512_setzero_si512();
      LZ_UNROLL for (int byte = 0; byte < kDigits; byte++) {
        const __m512i e = _mm512_loadu_si512(digits + 32 * byte),
                      o = _mm512_loadu_si512(digits + 32 * byte + 16);
        LZ_UNROLL for (int r = 0; r < kRows; r++) {
          if (byte > 0) part[r] = _mm512_slli_epi32(part[r], 8);
          part[r] = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(part[r], even[r], e), odd[r], o);
        }
      }
      const V power = hn::LoadU(d, digits + 32 * kDigits);
      LZ_UNROLL for (int r = 0; r < kRows; r++) sum[m][r] =
          hn::MulAdd(hn::Mul(V{_mm512_cvtepi32_ps(part[r])}, power), scale[r], sum[m][r]);
    }
  }
  LZ_UNROLL for (int m = 0; m < kVectors; m++) {
    add_biases<kRows>(p, first, a.sums + m * a.sums_step, sum[m]);
    if constexpr (kRows == 4) {
      sums_of(sum[m], y + m * y_step + first);
    } else {
      LZ_UNROLL for (int r = 0; r < kRows; r++) y[m * y_step + first + r] =
          hn::GetLane(hn::SumOfLanes(d, sum[m][r]));
    }
  }
}

template <int kVectors, int kDigits>
void dot_bytes(const PackedRows& p, const Arranged& a, float* y, int64_t y_step) {
  int64_t row = 0;
  for (; row + 4 <= p.rows; row += 4) dot_bytes<4, kVectors, kDigits>(p, row, a, y, y_step);
  for (; row < p.rows; row++) dot_bytes<1, kVectors, kDigits>(p, row, a, y, y_step);
}

void dot_bytes(const PackedRows& p, const Arranged& a, bool two, int digits, float* y, int64_t y_step) {
  const auto f = digits == 2 ? two ? dot_bytes<2, 2> : dot_bytes<1, 2>
                 : two       ? dot_bytes<2, 3>
                             : dot_bytes<1, 3>;
  f(p, a, y, y_step);
}
#endif

}  // namespace
}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();

#endif
