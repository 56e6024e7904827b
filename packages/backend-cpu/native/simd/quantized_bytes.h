// Rows of integer codes times a vector x, by instructions that multiply bytes and add the products in fours
// (AVX512_VNNI) or in pairs (AVX2): two thirds of the instructions that float32 needs. Each element of x
// becomes an integer of two or three bytes ("digits") times a power of two that its group shares, which
// rounds it to 2^-15 or 2^-23 of the group's largest element. One digit is enough for an x that was already
// rounded to 8-bit integers in blocks of 32.
//
// A step covers one vector register, in lanes of 32 bits. Codes of 2, 4 and 8 bits stay packed, a word in
// each lane, and a pass for each code of a byte selects its bits; codes of 3, 5 and 6 bits are spread to
// bytes, four in each lane and pass. AVX2 has 2 and 4 bits only. E2M1 becomes twice its values, and 12 more,
// which are integers; the 12 are a bias of each group.
#ifndef LAZULI_SIMD_QUANTIZED_BYTES_H
#define LAZULI_SIMD_QUANTIZED_BYTES_H

#include <hwy/cache_control.h>
#include <string.h>

#include "simd/byte_digits.h"
#include "simd/byte_products.h"
#include "simd/byte_spread.h"
#include "simd/compiler.h"
#include "simd/e2m1.h"
#include "simd/lane_sums.h"
#include "simd/packed_scales.h"
#include "simd/quantized.h"
#include "simd/vector_counts.h"
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
constexpr int64_t kAhead = 2048;
#else
using Lanes = __m256i;
constexpr int64_t kAhead = 1024;
#endif
constexpr int64_t kLanes = sizeof(Lanes) / 4;
constexpr bool in_words(int bits) { return 32 % bits == 0; }
// Codes in a lane, the passes over its bytes that they take, and the bytes of codes in a step.
constexpr int64_t lane_steps(int bits) { return in_words(bits) ? byte_steps(bits) : bits == 3 ? 2 : 1; }
constexpr int64_t lane_codes(int bits) { return 4 * lane_steps(bits); }
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
  if (f.code == Code::e4m3) return false;
#if HWY_TARGET <= HWY_AVX3
  return has_byte_products();
#else
  return f.bits == 2 || f.bits == 4;
#endif
}

// Two vectors' even bytes, then their odd ones.
HWY_INLINE void split_bytes(const int8_t* from, int8_t* even, int8_t* odd) {
  const hn::Repartition<int8_t, Floats> bytes;
  const auto a = hn::LoadU(bytes, from), b = hn::LoadU(bytes, from + 4 * kLanes);
  hn::StoreU(hn::ConcatEven(bytes, b, a), bytes, even);
  hn::StoreU(hn::ConcatOdd(bytes, b, a), bytes, odd);
}
// A step's bytes in the order of passes.
template <int kSteps>
HWY_INLINE void store_passes(const int8_t* q, int8_t* to) {
  constexpr int64_t kBytes = 4 * kLanes;
  if constexpr (kSteps == 1) {
    memcpy(to, q, kBytes);
  } else if constexpr (kSteps == 2) {
    split_bytes(q, to, to + kBytes);
  } else {
    HWY_ALIGN int8_t even[2 * kBytes], odd[2 * kBytes];
    for (int i = 0; i < 2; i++) split_bytes(q + 2 * i * kBytes, even + i * kBytes, odd + i * kBytes);
    split_bytes(even, to, to + 2 * kBytes);
    split_bytes(odd, to + kBytes, to + 3 * kBytes);
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
  const Floats d;
  HWY_ALIGN int8_t q[kDigits][kCodes];
  float factor = 0, scale = 0;
  for (int64_t at = 0; at < length; at += kCodes, to += step_floats(kBits, kDigits)) {
    const int64_t count = length - at < kCodes ? length - at : kCodes;
    for (int64_t i = 0; i < kCodes; i += kLanes) {
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
      split_digits<kDigits>(i < count ? hn::Mul(hn::LoadU(d, x + at + i), hn::Set(d, factor)) : hn::Zero(d),
                            &q[0][i], kCodes);
      for (int64_t j = i; kDigits == 1 && j < i + kLanes; j += kPer)
        to[kLanes * kSteps + j / kPer] = i < count ? scale : 0;
    }
    LZ_UNROLL for (int digit = 0; digit < kDigits; digit++)
        store_passes<int(kSteps)>(q[digit], reinterpret_cast<int8_t*>(to + kLanes * kSteps * digit));
  }
  return true;
}

#if HWY_TARGET <= HWY_AVX3
// The first `count` lanes, or all.
using Some = __mmask16;
HWY_INLINE Some first_lanes(int64_t count) { return Some(count >= 16 ? 0xffff : (1u << count) - 1); }
// So many scales or biases; the other lanes are 0 (the lowest one of E8M0).
HWY_INLINE hn::Vec<Floats> some_scales(const char* from, ScaleKind kind, Some some) {
  return widened(kind, [&](auto tag) HWY_ATTR {
    using T = hn::TFromD<decltype(tag)>;
    return hn::MaskedLoad(hn::Mask<decltype(tag)>{some}, tag, reinterpret_cast<const T*>(from));
  });
}

// The codes of a step for each pass. Only the first `lanes` lanes are read, and what follows them in a row;
// the others are 0.
template <int kBits, Code kCode, bool kVbmi>
HWY_INLINE void codes_of(const char* from, int64_t lanes, Lanes (&codes)[lane_steps(kBits)]) {
  constexpr int kSteps = int(lane_steps(kBits));
  Lanes w;
  constexpr int64_t kBytes = step_bytes(kBits);
  if (HWY_LIKELY(lanes * kBytes >= kLanes * 64))
    w = _mm512_loadu_si512(from);
  else
    w = _mm512_maskz_loadu_epi8(~uint64_t(0) >> (64 - std::min(lanes, kLanes) * kBytes / kLanes), from);
  if constexpr (in_words(kBits)) {
    const Lanes low = _mm512_set1_epi8(kBits == 8 ? -1 : (1 << (kBits % 8)) - 1);
    LZ_UNROLL for (int s = 0; s < kSteps; s++) {
      codes[s] = kBits == 8 ? w : _mm512_and_si512(w, low);
      if constexpr (kCode == Code::e2m1) codes[s] = e2m1_integers(codes[s]);
      w = _mm512_srli_epi32(w, kBits % 8);
    }
  } else {
    spread<kBits, kVbmi>(w, codes);
  }
}

// The products of a step's codes, of kTogether rows, with the matching bytes of a vector.
template <int kBits, int kDigits, int kTogether>
LZ_BYTES HWY_INLINE void multiply_step(const Lanes (&codes)[kTogether][lane_steps(kBits)],
                                       const float* digits, hn::Vec<Floats>* values) {
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
using Some = int64_t;
HWY_INLINE Some first_lanes(int64_t count) { return count; }
HWY_INLINE hn::Vec<Floats> all_scales(const char* from, ScaleKind kind) {
  return widened(kind, [&](auto tag) HWY_ATTR {
    return hn::LoadU(tag, reinterpret_cast<const hn::TFromD<decltype(tag)>*>(from));
  });
}
// Fewer scales than lanes. Not inlined, as it would hold registers in the common case.
HWY_NOINLINE hn::Vec<Floats> last_scales(const char* from, ScaleKind kind, int64_t count) {
  alignas(32) char some[32] = {};
  memcpy(some, from, size_t(count * scale_size(kind)));
  return all_scales(some, kind);
}
HWY_INLINE hn::Vec<Floats> some_scales(const char* from, ScaleKind kind, Some some) {
  return HWY_UNLIKELY(some < kLanes) ? last_scales(from, kind, some) : all_scales(from, kind);
}

template <int kBits, Code kCode, bool>
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
    if constexpr (kCode == Code::e2m1) codes[s] = e2m1_integers(codes[s]);
    w = _mm256_srli_epi32(w, kBits);
  }
}

// Pairs of products are summed in 16 bits, which the passes of a step do not overflow.
template <int kBits, int kDigits, int kTogether>
HWY_INLINE void multiply_step(const Lanes (&codes)[kTogether][lane_steps(kBits)], const float* digits,
                              hn::Vec<Floats>* values) {
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

// Scales or biases of a row; those of a row that begins `ahead` bytes later are prefetched.
HWY_INLINE hn::Vec<Floats> scales_of(const char* from, int64_t ahead, ScaleKind kind, Some some) {
  hwy::Prefetch(from + ahead);
  return some_scales(from, kind, some);
}

// f of whole fours of rows; the last ones stand in for those that are missing, each with the room of four.
constexpr int kRows = 4;
template <int kVectors, class F>
HWY_INLINE void in_fours(F* f, const PackedRows& p, Arranged a, float* y, int64_t y_step) {
  PackedRows rows = p;
  rows.rows = p.rows / kRows * kRows;
  if (rows.rows > 0) f(rows, a, y, y_step);
  for (int64_t row = rows.rows; row < p.rows; row++) {
    PackedRows same = p;
    const int64_t size = scale_size(p.kind);
    same.words += row * p.stride;
    same.scales = static_cast<const char*>(p.scales) + row * p.scale_stride * size;
    if (p.biases != nullptr) same.biases = static_cast<const char*>(p.biases) + row * p.bias_stride * size;
    same.stride = same.scale_stride = same.bias_stride = 0;
    same.rows = kRows;
    if (a.carried != nullptr) a.carried += 16 * kVectors * (row == rows.rows ? row : kRows);
    float results[kVectors * kRows] = {};
    f(same, a, results, kRows);
    for (int m = 0; m < kVectors; m++) y[m * y_step + row] = results[kRows * m];
  }
}

// Rows of codes, whole fours, times kVectors arranged vectors, x_step apart, so that each code is unpacked
// once. kTogether rows at a time share the loads of the vectors; with 1, rows are read in memory order. With
// kWhole each step lies in one group, and its factor is broadcast from memory: a permutation of lanes takes
// two steps of the few units that have it. kVbmi is for codes that are spread.
template <int kBits, Code kCode, int kVectors, int kDigits, int kTogether, bool kWhole, bool kVbmi>
LZ_BYTES HWY_NOINLINE void dot_bytes(const PackedRows& p, const Arranged& a, float* y, int64_t y_step) {
  using V = hn::Vec<Floats>;
  const Floats d;
  const hn::RebindToUnsigned<Floats> u;
  constexpr int kSteps = int(lane_steps(kBits)), kSums = kVectors * kTogether;
  const int64_t groups = p.columns / p.format.group, stride = 4 * p.stride, size = scale_size(p.kind);
  const int shift = __builtin_ctzll(uint64_t(p.format.group)) - __builtin_ctzll(uint64_t(lane_codes(kBits)));
  const int64_t ahead = rows_ahead(kTogether, p.stride, kAhead);
  const int64_t scale_step = p.scale_stride * size, bias_step = p.bias_stride * size;
  const char *from = reinterpret_cast<const char*>(p.words), *next = from + ahead * stride;
  const auto* scales = static_cast<const char*>(p.scales);
  const auto* biases = static_cast<const char*>(p.biases);
  V sums[kVectors][kRows];
  for (int64_t done = 0; done < p.rows; done += kTogether) {
    const float* x = a.x + (kDigits > 1 ? padded(groups) : 0);
    int64_t lanes = p.columns / lane_codes(kBits);
    V sum[kSums];
    LZ_UNROLL for (int i = 0; i < kSums; i++) sum[i] = hn::Zero(d);
    const char* row = from;
    for (int64_t group = 0; group < groups; group += kLanes) {
      const Some some = first_lanes(groups - group);
      V scale[kTogether], bias[kTogether], factor[kSums];
      LZ_UNROLL for (int r = 0; r < kTogether; r++) {
        const auto read = [&](const char* data, int64_t step) HWY_ATTR {
          return scales_of(data + r * step + group * size, ahead * step, p.kind, some);
        };
        scale[r] = read(scales, scale_step);
        if constexpr (kCode == Code::e2m1) {
          scale[r] = hn::Mul(scale[r], hn::Set(d, 0.5f));
          bias[r] = hn::Mul(scale[r], hn::Set(d, float(-kMiddle)));
        } else {
          bias[r] = biases != nullptr ? read(biases, bias_step) : hn::Zero(d);
        }
      }
      LZ_UNROLL for (int i = 0; i < kSums; i++) {
        const int m = i / kTogether, r = i % kTogether;
        factor[i] = kDigits > 1 ? hn::Mul(scale[r], hn::LoadU(d, a.x + m * a.x_step + group)) : scale[r];
        sum[i] = hn::MulAdd(bias[r], hn::LoadU(d, a.sums + m * a.sums_step + group), sum[i]);
      }
      alignas(64) float one_by_one[kSums][kLanes];
      if constexpr (kWhole) {
        LZ_UNROLL for (int i = 0; i < kSums; i++) hn::Store(factor[i], d, one_by_one[i]);
      }
      // kLanes groups take as many steps as one group has lanes.
      auto lane = hn::Iota(u, 0);
      const int64_t steps = std::min<int64_t>(int64_t(1) << shift, (lanes + kLanes - 1) / kLanes);
      for (int64_t step = 0; step < steps; step++, lanes -= kLanes) {
        const auto of_group = hn::IndicesFromVec(d, hn::ShiftRightSame(lane, shift));
        lane = hn::Add(lane, hn::Set(u, uint32_t(kLanes)));
        Lanes codes[kTogether][kSteps];
        LZ_UNROLL for (int r = 0; r < kTogether; r++, next += step_bytes(kBits)) {
          hwy::Prefetch(next);
          codes_of<kBits, kCode, kVbmi>(row + r * stride, lanes, codes[r]);
        }
        LZ_UNROLL for (int m = 0; m < kVectors; m++) {
          const float* digits = x + m * a.x_step;
          V values[kTogether];
          multiply_step<kBits, kDigits, kTogether>(codes, digits, values);
          LZ_UNROLL for (int r = 0; r < kTogether; r++) {
            const int i = m * kTogether + r;
            V by;
            if constexpr (kWhole)
              by = hn::Set(d, one_by_one[i][step * kLanes >> shift]);
            else
              by = hn::TableLookupLanes(factor[i], of_group);
            // Scales first: those of x may be so large that whole numbers times them are infinite.
            if constexpr (kDigits == 1) by = hn::Mul(by, hn::LoadU(d, digits + kLanes * kSteps));
            sum[i] = hn::MulAdd(values[r], by, sum[i]);
          }
        }
        row += step_bytes(kBits);
        x += step_floats(kBits, kDigits);
      }
    }
    const int64_t first = done % kRows;
    LZ_UNROLL for (int i = 0; i < kSums; i++) sums[i / kTogether][first + i % kTogether] = sum[i];
    if (first + kTogether == kRows) {
      for (int m = 0; m < kVectors; m++) lane_sums(sums[m], y + done - first + m * y_step);
    }
    from += kTogether * stride;
    scales += kTogether * scale_step;
    if (biases != nullptr) biases += kTogether * bias_step;
  }
}

template <int kBits, Code kCode, int kVectors, int kDigits>
void dot_bytes_of(const PackedRows& p, const Arranged& a, float* y, int64_t y_step) {
#if HWY_TARGET <= HWY_AVX3
  // One at a time, rows come in the order of memory; with more work for each load of codes, or vectors that
  // the first cache does not hold, loading these anew for each row would be slower than memory.
  constexpr int64_t kMostProducts = 4, kMostBytes = 1 << 15;
  constexpr int kTogether = 4;
  constexpr bool kAlone =
      kCode == Code::integer && in_words(kBits) && kVectors * lane_steps(kBits) * kDigits <= kMostProducts;
  const bool alone = kAlone && p.columns * kVectors * kDigits <= kMostBytes;
#else
  // AVX2 has too few registers for more.
  constexpr int kTogether = kVectors == 1 ? 4 : 2;
  constexpr bool kAlone = false, alone = false;
#endif
  // Groups have 128 codes at most, those of E2M1 32.
  constexpr int64_t kStep = kLanes * lane_codes(kBits);
  constexpr bool kMayBeWhole = kCode == Code::integer && kStep <= 128;
  const auto choose = [&]<bool kWhole>() {
    if constexpr (kAlone) {
      if (alone) return dot_bytes<kBits, kCode, kVectors, kDigits, 1, kWhole, false>;
    }
    if constexpr (!in_words(kBits)) {
      if (permutes_bytes()) return dot_bytes<kBits, kCode, kVectors, kDigits, kTogether, kWhole, true>;
    }
    return dot_bytes<kBits, kCode, kVectors, kDigits, kTogether, kWhole, false>;
  };
  const auto f = kMayBeWhole && p.format.group >= kStep ? choose.template operator()<kMayBeWhole>()
                                                        : choose.template operator()<false>();
  in_fours<kVectors>(f, p, a, y, y_step);
}

// Vectors that are multiplied together.
constexpr int kMostVectors = HWY_TARGET <= HWY_AVX3 ? 4 : 2;

// Calls f with the bits and the kind of a format's codes as its template arguments.
template <class F>
HWY_INLINE auto by_codes(CodeFormat format, F&& f) {
  if (format.code == Code::e2m1) return f.template operator()<4, Code::e2m1>();
#if HWY_TARGET <= HWY_AVX3
  switch (format.bits) {
    case 2:
      return f.template operator()<2, Code::integer>();
    case 3:
      return f.template operator()<3, Code::integer>();
    case 4:
      return f.template operator()<4, Code::integer>();
    case 5:
      return f.template operator()<5, Code::integer>();
    case 6:
      return f.template operator()<6, Code::integer>();
    default:
      return f.template operator()<8, Code::integer>();
  }
#else
  return format.bits == 2 ? f.template operator()<2, Code::integer>()
                          : f.template operator()<4, Code::integer>();
#endif
}

// `count` vectors of so many digits, at most kMostVectors.
void dot_bytes(const PackedRows& p, const Arranged& a, int64_t count, int digits, float* y, int64_t y_step) {
  by_codes(p.format, [&]<int kBits, Code kCode>() {
    by_count<kMostVectors>(count, [&]<int kVectors>() {
      const auto f = digits == 1   ? dot_bytes_of<kBits, kCode, kVectors, 1>
                     : digits == 2 ? dot_bytes_of<kBits, kCode, kVectors, 2>
                                   : dot_bytes_of<kBits, kCode, kVectors, 3>;
      f(p, a, y, y_step);
    });
  });
}

bool arrange_bytes(const float* x, int64_t columns, CodeFormat format, int digits, int64_t first,
                   int64_t length, float* to) {
  return by_codes(format, [&]<int kBits, Code>() {
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
