// Rows of integer codes times a vector x, by instructions that multiply bytes and add the products in fours
// (AVX512_VNNI) or in pairs (AVX2): two thirds of the instructions that float32 needs. Each element of x
// becomes an integer of two or three bytes ("digits") times a power of two that its group shares, which
// rounds it to 2^-15 or 2^-23 of the group's largest element. One digit is enough for an x that was already
// rounded to 8-bit integers in blocks of 32.
//
// A step covers one vector register, in lanes of 32 bits. Codes of 2, 4 and 8 bits stay packed, a word in
// each lane, and a pass for each code of a byte selects its bits; codes of 3, 5 and 6 bits are first spread
// to bytes, four in each lane (AVX512_VBMI). AVX2 has 2 and 4 bits only.
#ifndef LAZULI_SIMD_QUANTIZED_BYTES_H
#define LAZULI_SIMD_QUANTIZED_BYTES_H

#include <hwy/cache_control.h>
#include <string.h>

#include "simd/byte_digits.h"
#include "simd/byte_products.h"
#include "simd/byte_spread.h"
#include "simd/compiler.h"
#include "simd/lane_sums.h"
#include "simd/quantized.h"
#include "simd/vectors.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

// The distance, in rows, at which rows are prefetched: a multiple of the rows that are multiplied together,
// and about `words` words. They are prefetched in memory order, because memory delivers a single stream two
// to three times as fast as several. The stride is 0 for rows that stand in for one another.
HWY_INLINE int64_t rows_ahead(int64_t rows, int64_t stride, int64_t words = 2048) {
  return (words / (rows * std::max<int64_t>(stride, 1)) + 1) * rows;
}

#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86
#if HWY_TARGET <= HWY_AVX3
using Lanes = __m512i;
constexpr auto kNear = _MM_HINT_T1;
constexpr int64_t kAhead = 2048;
#else
using Lanes = __m256i;
constexpr auto kNear = _MM_HINT_T0;
constexpr int64_t kAhead = 1024;
#endif
constexpr int64_t kLanes = sizeof(Lanes) / 4;
constexpr bool in_words(int bits) { return 32 % bits == 0; }
// Codes in a lane, the passes over its bytes that they take, and the bytes of codes in a step.
constexpr int64_t lane_codes(int bits) { return in_words(bits) ? word_codes(bits) : 4; }
constexpr int64_t lane_steps(int bits) { return in_words(bits) ? byte_steps(bits) : 1; }
constexpr int64_t step_bytes(int bits) { return kLanes * lane_codes(bits) * bits / 8; }

// The layout of an arranged x. With several digits, the powers of two of all groups come first, padded to
// whole vectors. Then, for each step, the digits of x, the most significant first, each with the bytes that
// are multiplied in each pass. With one digit, the scale of each lane ends the step.
constexpr int64_t step_floats(int bits, int digits) {
  return (lane_steps(bits) * digits + (digits == 1 ? 1 : 0)) * kLanes;
}
HWY_INLINE int64_t padded(int64_t groups) { return (groups + kLanes - 1) / kLanes * kLanes; }
HWY_INLINE int64_t bytes_size(int64_t columns, CodeFormat f) {
  const int64_t lanes = columns / lane_codes(f.bits);
  return padded(columns / f.group) + padded(lanes) / kLanes * step_floats(f.bits, 3);
}

// True if rows of a format's codes are multiplied by bytes here.
HWY_INLINE bool takes_bytes(CodeFormat f) {
#if HWY_TARGET <= HWY_AVX3
  return f.code == Code::integer && has_byte_products() && (in_words(f.bits) || spreads_bytes());
#else
  return f.code == Code::integer && (f.bits == 2 || f.bits == 4);
#endif
}

// The digits of a step's integers in the order of passes.
template <int kBits, int kDigits>
HWY_INLINE void store_digits(const int32_t* q, int8_t* bytes) {
  constexpr int64_t kSteps = lane_steps(kBits);
#if HWY_TARGET > HWY_AVX3
  if constexpr (kBits == 4) {
    Lanes value[8];
    for (int i = 0; i < 8; i++) value[i] = _mm256_load_si256(reinterpret_cast<const Lanes*>(q) + i);
    LZ_UNROLL for (int digit = kDigits - 1; digit >= 0; digit--) {
      Lanes low[8], in_order[2];
      for (int i = 0; i < 8; i++) {
        low[i] = _mm256_srai_epi32(_mm256_slli_epi32(value[i], 24), 24);
        value[i] = _mm256_srai_epi32(_mm256_add_epi32(value[i], _mm256_set1_epi32(128)), 8);
      }
      for (int i = 0; i < 2; i++) {
        const Lanes packed = _mm256_packs_epi16(_mm256_packs_epi32(low[4 * i], low[4 * i + 1]),
                                                _mm256_packs_epi32(low[4 * i + 2], low[4 * i + 3]));
        in_order[i] = _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
      }
      const auto even = [](Lanes v) HWY_ATTR { return _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8); };
      const auto odd = [](Lanes v) HWY_ATTR { return _mm256_srai_epi16(v, 8); };
      const Lanes passes[2] = {_mm256_packs_epi16(even(in_order[0]), even(in_order[1])),
                               _mm256_packs_epi16(odd(in_order[0]), odd(in_order[1]))};
      for (int step = 0; step < 2; step++)
        _mm256_storeu_si256(reinterpret_cast<Lanes*>(bytes) + 2 * digit + step,
                            _mm256_permute4x64_epi64(passes[step], 0xd8));
    }
    return;
  }
#endif
  LZ_UNROLL for (int64_t step = 0; step < kSteps; step++) {
    for (int64_t j = 0; j < 4 * kLanes; j++) {
      int32_t value = q[kSteps * j + step];
      LZ_UNROLL for (int digit = kDigits - 1; digit >= 0; digit--) {
        bytes[4 * kLanes * (kSteps * digit + step) + j] = int8_t(value);
        value = (value + 128) >> 8;
      }
    }
  }
}

// Writes a part of that layout, of which x has the elements. Returns false where a group has NaN or ∞, or its
// powers of two are out of range.
template <int kBits, int kDigits>
bool arrange_bytes(const float* x, int64_t columns, int64_t group, int64_t first, int64_t length, float* to) {
  constexpr int64_t kPer = lane_codes(kBits), kSteps = lane_steps(kBits), kCodes = kLanes * kPer;
  static_assert(kArrangedPart % kCodes == 0);
  float* powers = to;
  if (kDigits == 1) {
    group = kRoundedBlock;
  } else {
    const int64_t groups = columns / group;
    to += padded(groups);
    for (float* power = powers + groups; first == 0 && power < to; power++) *power = 0;
    powers += first / group;
  }
  to += first / kCodes * step_floats(kBits, kDigits);
  HWY_ALIGN int32_t q[kCodes];
  float factor = 0, scale = 0;
  for (int64_t at = 0; at < length; at += kCodes, to += step_floats(kBits, kDigits)) {
    const int64_t count = length - at < kCodes ? length - at : kCodes;
    for (int64_t i = 0; i < kCodes; i += kPer) {
      if (i < count && (at + i) % group == 0) {
        const uint32_t most = largest_bits(x + at + i, group);
        GroupPower power;
        if (!power_of_group<kDigits>(most, power)) return false;
        if constexpr (kDigits == 1) {
          const float largest = bits_as<float>(most);
          factor = most ? 127 / largest : 0;
          scale = largest / 127;
        } else {
          factor = power.factor;
          powers[(at + i) / group] = power.power;
        }
      }
      if constexpr (kDigits == 1) to[kLanes * kSteps + i / kPer] = i < count ? scale : 0;
      if (i < count) {
        LZ_UNROLL for (int64_t j = 0; j < kPer; j++) q[i + j] =
            int32_t(__builtin_rintf(x[at + i + j] * factor));
      } else {
        LZ_UNROLL for (int64_t j = 0; j < kPer; j++) q[i + j] = 0;
      }
    }
    store_digits<kBits, kDigits>(q, reinterpret_cast<int8_t*>(to));
  }
  return true;
}

#if HWY_TARGET <= HWY_AVX3
// `count` scales or biases starting at `at`. There are at most as many as lanes; the other lanes are 0.
HWY_INLINE hn::Vec<Floats> some_scales(const void* data, ScaleKind kind, int64_t at, int64_t count) {
  const auto some = __mmask16(count >= 16 ? 0xffff : (1u << count) - 1);
  if (kind == ScaleKind::float32)
    return hn::Vec<Floats>{_mm512_maskz_loadu_ps(some, static_cast<const float*>(data) + at)};
  const __m256i halves = _mm256_maskz_loadu_epi16(some, static_cast<const uint16_t*>(data) + at);
  if (kind == ScaleKind::float16) return hn::Vec<Floats>{_mm512_cvtph_ps(halves)};
  return hn::Vec<Floats>{_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16))};
}

// The codes of a step for each pass. Only the first `lanes` lanes are read; the others are 0.
template <int kBits>
HWY_INLINE void codes_of(const char* from, int64_t lanes, __m512i (&codes)[lane_steps(kBits)]) {
  if constexpr (in_words(kBits)) {
    auto w =
        lanes >= 16 ? _mm512_loadu_si512(from) : _mm512_maskz_loadu_epi32(__mmask16((1u << lanes) - 1), from);
    const __m512i low = _mm512_set1_epi8(kBits == 8 ? -1 : (1 << (kBits % 8)) - 1);
    constexpr int kSteps = int(lane_steps(kBits));
    LZ_UNROLL for (int s = 0; s < kSteps; s++) {
      codes[s] = kBits == 8 ? w : _mm512_and_si512(w, low);
      w = _mm512_srli_epi32(w, kBits % 8);
    }
  } else {
    const int64_t bytes = std::min<int64_t>(lanes, 16) * kBits / 2;
    codes[0] = spread<kBits>(_mm512_maskz_loadu_epi8(~uint64_t(0) >> (64 - bytes), from));
  }
}

// The products of a step's codes, of kTogether rows, with the matching bytes of a vector.
template <int kBits, int kDigits, int kTogether>
LZ_BYTES HWY_INLINE void multiply_step(const Lanes (&codes)[kTogether][lane_steps(kBits)],
                                       const float* digits, hn::Vec<Floats> (&values)[kTogether]) {
  constexpr int kSteps = int(lane_steps(kBits));
  // Codes of 8 bits times three digits overflow 32 bits: the lowest digit has a sum of its own.
  constexpr bool kApart = kBits == 8 && kDigits == 3;
  const Floats d;
  Lanes part[kTogether];
  hn::Vec<Floats> high[kTogether];
  LZ_UNROLL for (int r = 0; r < kTogether; r++) part[r] = _mm512_setzero_si512();
  LZ_UNROLL for (int byte = 0; byte < kDigits; byte++) {
    if (byte > 0) {
      LZ_UNROLL for (int r = 0; r < kTogether; r++) {
        if (kApart && byte == 2) {
          high[r] = hn::Vec<Floats>{_mm512_cvtepi32_ps(part[r])};
          part[r] = _mm512_setzero_si512();
        } else {
          part[r] = _mm512_slli_epi32(part[r], 8);
        }
      }
    }
    LZ_UNROLL for (int s = 0; s < kSteps; s++) {
      const Lanes bytes = _mm512_loadu_si512(digits + kLanes * (kSteps * byte + s));
      LZ_UNROLL for (int r = 0; r < kTogether; r++) part[r] =
          _mm512_dpbusd_epi32(part[r], codes[r][s], bytes);
    }
  }
  LZ_UNROLL for (int r = 0; r < kTogether; r++) {
    values[r] = hn::Vec<Floats>{_mm512_cvtepi32_ps(part[r])};
    if constexpr (kApart) values[r] = hn::MulAdd(high[r], hn::Set(d, 256.0f), values[r]);
  }
}
#else
// Fewer scales than lanes. Not inlined, as it would hold registers in the common case.
HWY_NOINLINE hn::Vec<Floats> last_scales(const char* from, ScaleKind kind, int64_t count) {
  alignas(32) char some[32] = {};
  memcpy(some, from, size_t(count) * (kind == ScaleKind::float32 ? 4 : 2));
  const __m128i halves = _mm_load_si128(reinterpret_cast<const __m128i*>(some));
  if (kind == ScaleKind::float32) return hn::Load(Floats(), reinterpret_cast<const float*>(some));
  if (kind == ScaleKind::float16) return hn::Vec<Floats>{_mm256_cvtph_ps(halves)};
  return hn::Vec<Floats>{_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16))};
}
HWY_INLINE hn::Vec<Floats> some_scales(const void* data, ScaleKind kind, int64_t at, int64_t count) {
  const char* from = static_cast<const char*>(data) + at * (kind == ScaleKind::float32 ? 4 : 2);
  if (HWY_UNLIKELY(count < kLanes)) return last_scales(from, kind, count);
  if (kind == ScaleKind::float32) return hn::LoadU(Floats(), reinterpret_cast<const float*>(from));
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  if (kind == ScaleKind::float16) return hn::Vec<Floats>{_mm256_cvtph_ps(halves)};
  return hn::Vec<Floats>{_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16))};
}

template <int kBits>
HWY_INLINE void codes_of(const char* from, int64_t lanes, Lanes (&codes)[lane_steps(kBits)]) {
  Lanes w;
  if (HWY_LIKELY(lanes >= kLanes)) {
    w = _mm256_loadu_si256(reinterpret_cast<const Lanes*>(from));
  } else {
    const Lanes lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    w = _mm256_maskload_epi32(reinterpret_cast<const int*>(from),
                              _mm256_cmpgt_epi32(_mm256_set1_epi32(int(lanes)), lane));
  }
  const Lanes low = _mm256_set1_epi8((1 << kBits) - 1);
  constexpr int kSteps = int(lane_steps(kBits));
  LZ_UNROLL for (int s = 0; s < kSteps; s++) {
    codes[s] = _mm256_and_si256(w, low);
    w = _mm256_srli_epi32(w, kBits);
  }
}

// Pairs of products are summed in 16 bits, which the passes of a step do not overflow.
template <int kBits, int kDigits, int kTogether>
HWY_INLINE void multiply_step(const Lanes (&codes)[kTogether][lane_steps(kBits)], const float* digits,
                              hn::Vec<Floats> (&values)[kTogether]) {
  constexpr int kSteps = int(lane_steps(kBits));
  LZ_UNROLL for (int r = 0; r < kTogether; r++) {
    Lanes part;
    LZ_UNROLL for (int byte = 0; byte < kDigits; byte++) {
      Lanes pairs;
      LZ_UNROLL for (int s = 0; s < kSteps; s++) {
        const auto* bytes = reinterpret_cast<const Lanes*>(digits + kLanes * (kSteps * byte + s));
        const Lanes two = _mm256_maddubs_epi16(codes[r][s], _mm256_loadu_si256(bytes));
        pairs = s == 0 ? two : _mm256_add_epi16(pairs, two);
      }
      // The first of several digits is worth 256 times the next.
      const bool times = byte == 0 && kDigits > 1;
      const Lanes quads = _mm256_madd_epi16(pairs, _mm256_set1_epi16(times ? 256 : 1));
      if (byte == 2) part = _mm256_slli_epi32(part, 8);
      part = byte == 0 ? quads : _mm256_add_epi32(part, quads);
    }
    values[r] = hn::Vec<Floats>{_mm256_cvtepi32_ps(part)};
  }
}
#endif

// Four rows of codes times kVectors arranged vectors, x_step apart, so that each code is unpacked once.
// kTogether rows at a time share the loads of the vectors; with 1, rows are read in memory order. Codes are
// prefetched to the second-level cache, since the first holds the vectors; on AVX2, whose loads and products
// take longer, to the first. With kWhole each step lies in one group, and its factor is broadcast from
// memory: a permutation of lanes takes two steps of the few units that have it.
template <int kBits, int kVectors, int kDigits, int kTogether, bool kWhole>
LZ_BYTES HWY_NOINLINE void dot_bytes(const PackedRows& p, const Arranged& a, float* y, int64_t y_step) {
  using V = hn::Vec<Floats>;
  const Floats d;
  const hn::RebindToUnsigned<Floats> u;
  constexpr int kRows = 4, kSteps = int(lane_steps(kBits));
  const int64_t groups = p.columns / p.format.group, stride = 4 * p.stride;
  const int shift = __builtin_ctzll(uint64_t(p.format.group) / lane_codes(kBits));
  const int64_t ahead = rows_ahead(kTogether, p.stride, kAhead);
  const char *from = reinterpret_cast<const char*>(p.words), *next = from + ahead * stride;
  V sums[kVectors][kRows];
  LZ_UNROLL for (int first = 0; first < kRows; first += kTogether) {
    const float* x = a.x + (kDigits > 1 ? padded(groups) : 0);
    int64_t lanes = p.columns / lane_codes(kBits);
    V sum[kVectors][kTogether];
    LZ_UNROLL for (int m = 0; m < kVectors; m++) {
      LZ_UNROLL for (int r = 0; r < kTogether; r++) sum[m][r] = hn::Zero(d);
    }
    const char* row = from + first * stride;
    for (int64_t group = 0; group < groups; group += kLanes) {
      V factor[kVectors][kTogether];
      LZ_UNROLL for (int r = 0; r < kTogether; r++) {
        const auto some = [&](const void* data, int64_t step) HWY_ATTR {
          const int64_t at = (first + r) * step + group, size = p.kind == ScaleKind::float32 ? 4 : 2;
          hwy::Prefetch(static_cast<const char*>(data) + (at + ahead * step) * size);
          return some_scales(data, p.kind, at, groups - group);
        };
        const V scale = some(p.scales, p.scale_stride);
        LZ_UNROLL for (int m = 0; m < kVectors; m++) factor[m][r] =
            kDigits > 1 ? hn::Mul(scale, hn::LoadU(d, a.x + m * a.x_step + group)) : scale;
        if (p.biases == nullptr) continue;
        const V bias = some(p.biases, p.bias_stride);
        LZ_UNROLL for (int m = 0; m < kVectors; m++) sum[m][r] =
            hn::MulAdd(bias, hn::LoadU(d, a.sums + m * a.sums_step + group), sum[m][r]);
      }
      alignas(64) float one_by_one[kVectors][kTogether][kLanes];
      if constexpr (kWhole) {
        LZ_UNROLL for (int m = 0; m < kVectors; m++) {
          LZ_UNROLL for (int r = 0; r < kTogether; r++) hn::Store(factor[m][r], d, one_by_one[m][r]);
        }
      }
      // kLanes groups take as many steps as one group has lanes.
      auto lane = hn::Iota(u, 0);
      const int64_t steps = std::min<int64_t>(int64_t(1) << shift, (lanes + kLanes - 1) / kLanes);
      for (int64_t step = 0; step < steps; step++, lanes -= kLanes) {
        const auto of_group = hn::IndicesFromVec(d, hn::ShiftRightSame(lane, shift));
        lane = hn::Add(lane, hn::Set(u, uint32_t(kLanes)));
        Lanes codes[kTogether][kSteps];
        LZ_UNROLL for (int r = 0; r < kTogether; r++, next += step_bytes(kBits)) {
          _mm_prefetch(next, kNear);
          codes_of<kBits>(row + r * stride, lanes, codes[r]);
        }
        LZ_UNROLL for (int m = 0; m < kVectors; m++) {
          const float* digits = x + m * a.x_step;
          V values[kTogether];
          multiply_step<kBits, kDigits, kTogether>(codes, digits, values);
          LZ_UNROLL for (int r = 0; r < kTogether; r++) {
            V value = values[r];
            if constexpr (kDigits == 1) value = hn::Mul(value, hn::LoadU(d, digits + kLanes * kSteps));
            V by;
            if constexpr (kWhole)
              by = hn::Set(d, one_by_one[m][r][step * kLanes >> shift]);
            else
              by = hn::TableLookupLanes(factor[m][r], of_group);
            sum[m][r] = hn::MulAdd(value, by, sum[m][r]);
          }
        }
        row += step_bytes(kBits);
        x += step_floats(kBits, kDigits);
      }
    }
    LZ_UNROLL for (int m = 0; m < kVectors; m++) {
      LZ_UNROLL for (int r = 0; r < kTogether; r++) sums[m][first + r] = sum[m][r];
    }
  }
  LZ_UNROLL for (int m = 0; m < kVectors; m++) lane_sums(sums[m], y + m * y_step);
}

// The rows starting at `row`.
HWY_INLINE PackedRows rows_from(PackedRows p, int64_t row) {
  const int64_t size = p.kind == ScaleKind::float32 ? 4 : 2;
  p.words += row * p.stride;
  p.scales = static_cast<const char*>(p.scales) + row * p.scale_stride * size;
  if (p.biases != nullptr) p.biases = static_cast<const char*>(p.biases) + row * p.bias_stride * size;
  return p;
}

template <int kBits, int kVectors, int kDigits>
void dot_bytes_of(const PackedRows& p, const Arranged& a, float* y, int64_t y_step) {
#if HWY_TARGET <= HWY_AVX3
  // With more products for each load of codes, or vectors that the first cache does not hold, loading these
  // anew for each row would be slower than memory.
  constexpr int64_t kMostProducts = 4, kMostBytes = 1 << 15;
  auto of_four = dot_bytes<kBits, kVectors, kDigits, 4, false>;
  if constexpr (kVectors * lane_steps(kBits) * kDigits <= kMostProducts) {
    if (p.columns * kVectors * kDigits <= kMostBytes) of_four = dot_bytes<kBits, kVectors, kDigits, 1, false>;
  }
#else
  // AVX2 has too few registers for more.
  constexpr int kTogether = kVectors == 1 ? 4 : 2;
  const auto of_four = p.format.group >= kLanes * lane_codes(kBits)
                           ? dot_bytes<kBits, kVectors, kDigits, kTogether, true>
                           : dot_bytes<kBits, kVectors, kDigits, kTogether, false>;
#endif
  int64_t row = 0;
  for (; row + 4 <= p.rows; row += 4) of_four(rows_from(p, row), a, y + row, y_step);
  for (; row < p.rows; row++) {
    PackedRows four = rows_from(p, row);
    four.stride = four.scale_stride = four.bias_stride = 0;
    float same[kVectors * 4];
    of_four(four, a, same, 4);
    for (int m = 0; m < kVectors; m++) y[m * y_step + row] = same[4 * m];
  }
}

template <int kBits>
void dot_bytes_of(const PackedRows& p, const Arranged& a, bool two, int digits, float* y, int64_t y_step) {
  const auto f = digits == 1   ? two ? dot_bytes_of<kBits, 2, 1> : dot_bytes_of<kBits, 1, 1>
                 : digits == 2 ? two ? dot_bytes_of<kBits, 2, 2> : dot_bytes_of<kBits, 1, 2>
                 : two         ? dot_bytes_of<kBits, 2, 3>
                               : dot_bytes_of<kBits, 1, 3>;
  f(p, a, y, y_step);
}

// Calls f with the bits of a format as its template argument.
template <class F>
HWY_INLINE auto by_bits(int bits, F&& f) {
#if HWY_TARGET <= HWY_AVX3
  switch (bits) {
    case 2:
      return f.template operator()<2>();
    case 3:
      return f.template operator()<3>();
    case 4:
      return f.template operator()<4>();
    case 5:
      return f.template operator()<5>();
    case 6:
      return f.template operator()<6>();
    default:
      return f.template operator()<8>();
  }
#else
  return bits == 2 ? f.template operator()<2>() : f.template operator()<4>();
#endif
}

void dot_bytes(const PackedRows& p, const Arranged& a, bool two, int digits, float* y, int64_t y_step) {
  by_bits(p.format.bits, [&]<int kBits>() { dot_bytes_of<kBits>(p, a, two, digits, y, y_step); });
}

bool arrange_bytes(const float* x, int64_t columns, CodeFormat format, int digits, int64_t first,
                   int64_t length, float* to) {
  return by_bits(format.bits, [&]<int kBits>() {
    const auto f = digits == 1   ? arrange_bytes<kBits, 1>
                   : digits == 2 ? arrange_bytes<kBits, 2>
                                 : arrange_bytes<kBits, 3>;
    return f(x, columns, format.group, first, length, to);
  });
}
#endif

}  // namespace
}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();

#endif
