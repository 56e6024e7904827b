// Rows of codes of E2M1, E4M3 and of 4 to 6 bits times vectors of bfloat16 numbers, by the instruction that
// adds products of pairs of such numbers (AVX512_BF16), which hold each of these codes.
//
// Several vectors are limited by the two units that multiply: one multiplication by scales follows four
// instructions of products, and codes are unpacked by shifts, logic and permutations, which other units do. A
// lane of 32 bits meets codes of one group in a step, and vectors are in the order of the unpacked codes.
// Bytes (quantized_bytes.h) are as fast for the other formats, and faster for few vectors.
#ifndef LAZULI_SIMD_QUANTIZED_BFLOAT16_H
#define LAZULI_SIMD_QUANTIZED_BFLOAT16_H

#include <hwy/cache_control.h>
#include <string.h>

#include "simd/code_values.h"
#include "simd/compiler.h"
#include "simd/quantized_bytes.h"
#include "simd/vector_counts.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

// Vectors that are multiplied together.
constexpr int kMostBfloat16 = 8;
// Codes of a row that are multiplied at once, and registers of their numbers.
constexpr int64_t kStepCodes = 128;
constexpr int kParts = 4;
// The floats that take the room of so many elements, whole steps.
HWY_INLINE int64_t bfloat16_size(int64_t columns) {
  return (columns + kStepCodes - 1) / kStepCodes * kStepCodes / 2;
}

#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
#define LZ_BFLOAT16 __attribute__((target("avx512bf16,avx512vbmi")))
inline bool has_bfloat16_codes() {
  static const bool has = [] {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vbmi");
  }();
  return has;
}

// The bits of a number that bfloat16 holds.
constexpr uint16_t bfloat16_bits(float x) { return uint16_t(__builtin_bit_cast(uint32_t, x) >> 16); }

// The end of a row, of fewer bytes than a step has, with zeros behind it.
constexpr int64_t kMostStepBytes = 128;
HWY_NOINLINE const char* with_zeros(const char* from, int64_t left, char* to) {
  memset(to, 0, kMostStepBytes);
  memcpy(to, from, size_t(left));
  return to;
}

// Numbers of a step's codes: 16-bit lane l of register v has that of code place(v, l), and kOffset more.
// kGroup is the least group of which a lane of 32 bits holds no others' codes.
template <int kBits, Code kCode>
struct Unpacked;

// Numbers from 128 on, of which the lowest bits are the codes in the lowest bits of lanes.
template <int kBits>
HWY_INLINE __m512i offset_numbers(__m512i w) {
  const __m512i codes = _mm512_set1_epi16((1 << kBits) - 1);
  return _mm512_ternarylogic_epi32(w, codes, _mm512_set1_epi16(short(bfloat16_bits(128))), 0xea);
}
template <>
struct Unpacked<4, Code::integer> {
  static constexpr int kGroup = 16;
  static constexpr float kOffset = 128;
  static constexpr int place(int v, int lane) { return lane * 4 + v; }
  HWY_INLINE void operator()(const char* from, __m512i* to) const {
    const __m512i w = _mm512_loadu_si512(from);
    LZ_UNROLL for (int v = 0; v < kParts; v++) to[v] =
        offset_numbers<4>(v == 0 ? w : _mm512_srli_epi16(w, 4 * v));
  }
};

// A table's indices are the lowest five bits.
struct WideTable {
  alignas(64) uint16_t values[32];
};
template <>
struct Unpacked<4, Code::e2m1> {
  static constexpr int kGroup = 16;
  static constexpr float kOffset = 0;
  static constexpr int place(int v, int lane) { return lane * 4 + v; }
  HWY_INLINE void operator()(const char* from, __m512i* to) const {
    const __m512i w = _mm512_loadu_si512(from), all = _mm512_load_si512(table.values);
    LZ_UNROLL for (int v = 0; v < kParts; v++) to[v] =
        _mm512_permutexvar_epi16(v == 0 ? w : _mm512_srli_epi16(w, 4 * v), all);
  }

 private:
  static constexpr WideTable table = [] {
    WideTable t{};
    for (int i = 0; i < 32; i++) t.values[i] = bfloat16_bits(i & 8 ? -kE2m1[i % 8] : kE2m1[i % 8]);
    return t;
  }();
};

// Bytes that come to the lanes of 16 bits from 128 bytes, and distances that each lane is shifted by.
struct Gathered {
  alignas(64) uint8_t bytes[64];
  alignas(64) uint16_t shifts[32];
};
// Two codes come to each 16 bits; half of each 32 codes, a quarter of a register, then the other half. Each
// is shifted to the lowest bits.
template <int kBits>
struct UnpackedPairs {
  static constexpr int kGroup = 32;
  static constexpr float kOffset = 128;
  static constexpr int place(int v, int lane) { return lane / 8 * 32 + v / 2 * 16 + lane % 8 * 2 + v % 2; }
  LZ_BFLOAT16 HWY_INLINE void operator()(const char* from, __m512i* to) const {
    const __m512i low = _mm512_loadu_si512(from), high = _mm512_loadu_si512(from + kSecond);
    LZ_UNROLL for (int half = 0; half < 2; half++) {
      const __m512i w = _mm512_permutex2var_epi8(low, _mm512_load_si512(order[half].bytes), high);
      const __m512i first = _mm512_load_si512(order[half].shifts);
      const __m512i second = _mm512_add_epi16(first, _mm512_set1_epi16(kBits));
      to[2 * half] = offset_numbers<kBits>(_mm512_srlv_epi16(w, first));
      to[2 * half + 1] = offset_numbers<kBits>(_mm512_srlv_epi16(w, second));
    }
  }

 private:
  static constexpr int kBytes = kStepCodes * kBits / 8, kSecond = kBytes - 64;
  static constexpr Gathered order_of(int half) {
    Gathered g{};
    for (int lane = 0; lane < 32; lane++) {
      const int bit = place(2 * half, lane) * kBits;
      for (int i = 0; i < 2; i++) {
        const int byte = bit / 8 + i < kBytes ? bit / 8 + i : kBytes - 1;
        g.bytes[2 * lane + i] = uint8_t(byte < 64 ? byte : byte - kSecond + 64);
      }
      g.shifts[lane] = uint16_t(bit % 8);
    }
    return g;
  }
  static constexpr Gathered order[2] = {order_of(0), order_of(1)};
};
template <>
struct Unpacked<5, Code::integer> : UnpackedPairs<5> {};
template <>
struct Unpacked<6, Code::integer> : UnpackedPairs<6> {};

// The bytes of numbers, which two tables have, come together; half of each 32 codes, then the other half.
template <>
struct Unpacked<8, Code::e4m3> {
  static constexpr int kGroup = 32;
  static constexpr float kOffset = 0;
  static constexpr int place(int v, int lane) { return lane / 8 * 32 + v / 2 * 16 + v % 2 * 8 + lane % 8; }
  LZ_BFLOAT16 HWY_INLINE void operator()(const char* from, __m512i* to) const {
    const __m512i a = _mm512_loadu_si512(from), b = _mm512_loadu_si512(from + 64);
    const __m512i halves[2] = {_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd)};
    LZ_UNROLL for (int half = 0; half < 2; half++) {
      const __m512i codes = halves[half];
      const __m512i low =
          _mm512_permutex2var_epi8(_mm512_load_si512(table.low), codes, _mm512_load_si512(table.low + 64));
      const __m512i size =
          _mm512_permutex2var_epi8(_mm512_load_si512(table.high), codes, _mm512_load_si512(table.high + 64));
      const __m512i high = _mm512_ternarylogic_epi32(size, codes, _mm512_set1_epi8(-128), 0xf8);
      to[2 * half] = _mm512_unpacklo_epi8(low, high);
      to[2 * half + 1] = _mm512_unpackhi_epi8(low, high);
    }
  }

 private:
  // Of codes without a sign.
  struct NumberBytes {
    alignas(64) uint8_t low[128], high[128];
  };
  static constexpr NumberBytes table = [] {
    NumberBytes t{};
    for (int code = 0; code < 128; code++) {
      const int exponent = code >> 3, mantissa = code & 7;
      // Subnormal ones are normal numbers here.
      int e = exponent == 0 ? 1 : exponent, m = exponent == 0 ? mantissa : mantissa + 8;
      while (m > 0 && m < 8) m *= 2, e--;
      const int bits = m == 0 ? 0 : (e + 120) << 7 | (m - 8) << 4;
      t.low[code] = uint8_t(bits & 255);
      t.high[code] = uint8_t(bits >> 8);
    }
    return t;
  }();
};

// Calls f with the bits and the kind of a format's codes as its template arguments.
template <class F>
HWY_INLINE void by_unpacked(CodeFormat format, F&& f) {
  if (format.code == Code::e4m3) return f.template operator()<8, Code::e4m3>();
  if (format.code == Code::e2m1) return f.template operator()<4, Code::e2m1>();
  switch (format.bits) {
    case 4:
      return f.template operator()<4, Code::integer>();
    case 5:
      return f.template operator()<5, Code::integer>();
    case 6:
      return f.template operator()<6, Code::integer>();
  }
}

// True if rows of a format's codes are multiplied as bfloat16 here.
HWY_INLINE bool takes_bfloat16(CodeFormat format) {
  bool takes = false;
  by_unpacked(format, [&]<int kBits, Code kCode>() {
    takes = format.group >= Unpacked<kBits, kCode>::kGroup && format.group <= kStepCodes;
  });
  return takes && has_bfloat16_codes();
}

// For each lane of a step's registers the place of its element, and those of the last two registers.
template <int kBits, Code kCode>
struct Places {
  alignas(64) uint16_t lanes[kParts][32];
  uint32_t last[kParts];
  constexpr Places() : lanes(), last() {
    for (int v = 0; v < kParts; v++) {
      for (int lane = 0; lane < 32; lane++) {
        const int place = Unpacked<kBits, kCode>::place(v, lane);
        lanes[v][lane] = uint16_t(place);
        last[v] |= uint32_t(place >= 64) << lane;
      }
    }
  }
};

// Returns false where numbers are too large to be multiplied by codes with their offset, or none.
template <int kBits, Code kCode>
bool arrange_bfloat16(const float* x, int64_t length, float* to) {
  static constexpr Places<kBits, kCode> places;
  const __m512i most = _mm512_set1_epi32(int(__builtin_bit_cast(uint32_t, 0x1p110f)));
  for (int64_t at = 0; at < length; at += kStepCodes, to += kStepCodes / 2) {
    __m512i from[kParts];
    __mmask16 large = 0;
    LZ_UNROLL for (int v = 0; v < kParts; v++) {
      __m256i half[2];
      LZ_UNROLL for (int i = 0; i < 2; i++) {
        const int64_t first = at + 32 * v + 16 * i;
        const __m512i bits = _mm512_castps_si512(
            _mm512_maskz_loadu_ps(first_lanes(std::max<int64_t>(length - first, 0)), x + first));
        large |= _mm512_cmpgt_epi32_mask(_mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff)), most);
        half[i] = _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16));
      }
      from[v] = _mm512_inserti64x4(_mm512_castsi256_si512(half[0]), half[1], 1);
    }
    if (large) return false;
    LZ_UNROLL for (int v = 0; v < kParts; v++) {
      const __m512i lanes = _mm512_load_si512(places.lanes[v]);
      const __m512i first = _mm512_permutex2var_epi16(from[0], lanes, from[1]);
      const __m512i last = _mm512_permutex2var_epi16(from[2], lanes, from[3]);
      _mm512_storeu_si512(to + 16 * v, _mm512_mask_blend_epi16(places.last[v], first, last));
    }
  }
  return true;
}
bool arrange_bfloat16(const float* x, CodeFormat format, int64_t length, float* to) {
  bool arranged = false;
  by_unpacked(format,
              [&]<int kBits, Code kCode>() { arranged = arrange_bfloat16<kBits, kCode>(x, length, to); });
  return arranged;
}

// In assembly, since compilers keep numbers of the type for bfloat16 in memory.
HWY_INLINE void add_pairs(__m512& sum, __m512i a, __m512i b) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
}

// Rows of codes, whole fours, times kVectors arranged vectors, x_step apart. kTogether rows share the loads
// of vectors.
template <int kBits, Code kCode, ScaleKind kKind, int kVectors>
LZ_BFLOAT16 HWY_NOINLINE void dot_bfloat16(const PackedRows& p, const Arranged& a, float* y, int64_t y_step) {
  using U = Unpacked<kBits, kCode>;
  const Floats d;
  const hn::RebindToUnsigned<Floats> u;
  constexpr int64_t kBytes = kStepCodes * kBits / 8;
  constexpr int kTogether = 2;
  const U unpack;
  const int64_t groups = p.columns / p.format.group, stride = 4 * p.stride, size = scale_size(kKind);
  const int shift =
      __builtin_ctzll(uint64_t(p.format.group)) - __builtin_ctzll(uint64_t(kStepCodes / kLanes));
  const int64_t length = p.columns * kBits / 8, gap = stride - length;
  const int64_t ahead = rows_ahead(kTogether, length / 4, kAhead);
  const int64_t scale_step = p.scale_stride * size, bias_step = p.bias_stride * size;
  const char *from = reinterpret_cast<const char*>(p.words), *next = from + ahead * stride;
  const auto* scales = static_cast<const char*>(p.scales);
  const auto* biases = static_cast<const char*>(p.biases);
  V sums[kVectors][kRows];
  float* carried = a.carried;
  const char* asked_row = next;
  for (int64_t done = 0; done < p.rows; done += kTogether) {
    const float* x = a.x;
    const char* row = from;
    int64_t left = length;
    __m512 sum[kVectors][kTogether];
    LZ_UNROLL for (int m = 0; m < kVectors; m++) {
      LZ_UNROLL for (int r = 0; r < kTogether; r++) sum[m][r] =
          a.first == 0 ? _mm512_setzero_ps() : _mm512_loadu_ps(carried + 16 * (kTogether * m + r));
    }
    for (int64_t group = 0; group < groups; group += kLanes) {
      // A part of the columns of the next row does not follow that of a row.
      for (; gap != 0 && next >= asked_row + length; asked_row += stride) next += gap;
      const Some some = first_lanes(groups - group);
      V scale[kTogether];
      LZ_UNROLL for (int r = 0; r < kTogether; r++) {
        const auto read = [&](const char* data, int64_t step) HWY_ATTR {
          return scales_of(data + r * step + group * size, ahead * step, kKind, some);
        };
        scale[r] = read(scales, scale_step);
        if constexpr (kCode == Code::integer) {
          const V bias = hn::NegMulAdd(scale[r], hn::Set(d, U::kOffset), read(biases, bias_step));
          LZ_UNROLL for (int m = 0; m < kVectors; m++) sum[m][r] =
              _mm512_fmadd_ps(bias.raw, _mm512_loadu_ps(a.sums + m * a.sums_step + group), sum[m][r]);
        }
      }
      // kLanes groups take as many steps as one group has lanes.
      auto lane = hn::Iota(u, 0);
      for (int64_t step = 0; step < int64_t(1) << shift && left > 0; step++, left -= kBytes) {
        const auto of_group = hn::IndicesFromVec(d, hn::ShiftRightSame(lane, shift));
        lane = hn::Add(lane, hn::Set(u, uint32_t(kLanes)));
        const char* rows[kTogether];
        LZ_UNROLL for (int r = 0; r < kTogether; r++) rows[r] = row + r * stride;
        alignas(64) char ends[kTogether][kMostStepBytes];
        if (HWY_UNLIKELY(left < kBytes)) {
          for (int r = 0; r < kTogether; r++) rows[r] = with_zeros(rows[r], left, ends[r]);
        }
        __m512i codes[kTogether][kParts];
        __m512 by[kTogether];
        LZ_UNROLL for (int r = 0; r < kTogether; r++, next += kBytes) {
          LZ_UNROLL for (int64_t i = 0; i < kBytes; i += 64) hwy::Prefetch(next + i);
          unpack(rows[r], codes[r]);
          by[r] = hn::TableLookupLanes(scale[r], of_group).raw;
        }
        LZ_UNROLL for (int m = 0; m < kVectors; m++) {
          __m512 part[kTogether];
          LZ_UNROLL for (int r = 0; r < kTogether; r++) part[r] = _mm512_setzero_ps();
          LZ_UNROLL for (int v = 0; v < kParts; v++) {
            const float* at = x + m * a.x_step + 16 * v;
            const __m512i both = _mm512_loadu_si512(at);
            LZ_UNROLL for (int r = 0; r < kTogether; r++) add_pairs(part[r], codes[r][v], both);
          }
          LZ_UNROLL for (int r = 0; r < kTogether; r++) sum[m][r] =
              _mm512_fmadd_ps(part[r], by[r], sum[m][r]);
        }
        row += kBytes;
        x += kStepCodes / 2;
      }
    }
    const int64_t first = done % kRows;
    LZ_UNROLL for (int m = 0; m < kVectors; m++) {
      LZ_UNROLL for (int r = 0; r < kTogether; r++) {
        sums[m][first + r] = V{sum[m][r]};
        if (!a.last) _mm512_storeu_ps(carried + 16 * (kTogether * m + r), sum[m][r]);
      }
    }
    if (!a.last || a.first > 0) carried += 16 * kVectors * kTogether;
    if (a.last && first + kTogether == kRows) {
      for (int m = 0; m < kVectors; m++) lane_sums(sums[m], y + done - first + m * y_step);
    }
    from += kTogether * stride;
    scales += kTogether * scale_step;
    if constexpr (kCode == Code::integer) biases += kTogether * bias_step;
  }
}

template <int kBits, Code kCode, ScaleKind kKind>
void dot_bfloat16_by(int64_t count, const PackedRows& p, const Arranged& a, float* y, int64_t y_step) {
  by_count<kMostBfloat16>(count, [&]<int kVectors>() {
    in_fours<kVectors>(dot_bfloat16<kBits, kCode, kKind, kVectors>, p, a, y, y_step);
  });
}

// `count` vectors, at most kMostBfloat16. Integers have scales and biases of bfloat16, others scales of a
// byte.
void dot_bfloat16(const PackedRows& p, const Arranged& a, int64_t count, float* y, int64_t y_step) {
  by_unpacked(p.format, [&]<int kBits, Code kCode>() {
    if constexpr (kCode == Code::integer)
      dot_bfloat16_by<kBits, kCode, ScaleKind::bfloat16>(count, p, a, y, y_step);
    else if (kCode == Code::e4m3 || p.kind == ScaleKind::e8m0)
      dot_bfloat16_by<kBits, kCode, ScaleKind::e8m0>(count, p, a, y, y_step);
    else if constexpr (kCode == Code::e2m1)
      dot_bfloat16_by<kBits, kCode, ScaleKind::e4m3>(count, p, a, y, y_step);
  });
}
#else
bool takes_bfloat16(CodeFormat) { return false; }
#endif

}  // namespace
}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();

#endif
