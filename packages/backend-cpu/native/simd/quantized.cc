// Codes of 2, 4 and 8 bits stay in the lanes of their words: step j looks at bits [j · bits, (j + 1) · bits)
// of every word, and the vector they are multiplied with was arranged to match. Codes of 3, 5 and 6 bits
// cross words and are unpacked to a small buffer. quantized_bytes.h has a shorter way for integers and E2M1.
#include "simd/quantized.h"

#include <algorithm>

#include <hwy/cache_control.h>

#include "simd/code_values.h"
#include "simd/compiler.h"
#include "simd/lane_sums.h"
#include "simd/quantized_across.h"
#include "simd/quantized_bfloat16.h"
#include "simd/quantized_bytes.h"
#include "simd/quantized_e4m3.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

HWY_INLINE int log2_of(int64_t n) {
  int k = 0;
  while ((int64_t(1) << k) < n) k++;
  return k;
}

HWY_INLINE W some_words(const uint32_t* words, int64_t count) {
  const Words u;
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  return hn::MaskedLoad(hn::FirstN(u, size_t(count)), u, words);
#else
  HWY_ALIGN uint32_t lanes[hn::MaxLanes(u)] = {};
  for (int64_t i = 0; i < count; i++) lanes[i] = words[i];
  return hn::Load(u, lanes);
#endif
}

// Integer codes between the lowest and bit 24 are converted where they are, 2^k times too large, which saves
// a shift; arrange() makes up for it. The others go through the table where there is one: both kinds of steps
// together keep all of a processor's vector units busy.
constexpr bool in_place(int bits, Code code, int step) {
  return code == Code::integer && step > 0 && step * bits < 24;
}

// part[r] += (code `J` of every lane) · x, and so on for the codes after it.
template <int kBits, Code kCode, int kRows, int J = 0>
HWY_INLINE void steps(const W (&w)[kRows], const float* x, V table, V (&part)[kRows]) {
  const Floats d;
  const Words u;
  const hn::RebindToSigned<Floats> i;
  const V v = hn::Load(d, x + J * int64_t(hn::Lanes(d)));
  for (int r = 0; r < kRows; r++) {
    V value;
    if constexpr (in_place(kBits, kCode, J))
      value = hn::ConvertTo(d, hn::BitCast(i, hn::And(w[r], hn::Set(u, ((1u << kBits) - 1) << (J * kBits)))));
    else if constexpr (J > 0)
      value = value_of<kBits, kCode>(hn::ShiftRight<J * kBits>(w[r]), table);
    else
      value = value_of<kBits, kCode>(w[r], table);
    part[r] = hn::MulAdd(value, v, part[r]);
  }
  if constexpr (J + 1 < 32 / kBits) steps<kBits, kCode, kRows, J + 1>(w, x, table, part);
}

// Products of `kRows` rows that follow each other with one arranged vector.
template <int kBits, Code kCode, int kRows>
HWY_INLINE void dot_some(const PackedRows& p, int64_t first, const float* x, V table, float* y) {
  const Floats d;
  const Words u;
  constexpr int kPer = 32 / kBits;
  const int64_t N = int64_t(hn::Lanes(d)), count = p.columns / kPer;
  const int shift = log2_of(p.format.group / kPer);
  const auto lane_of = hn::IndicesFromVec(d, hn::ShiftRightSame(hn::Iota(u, 0), shift));
  const uint32_t* words[kRows];
  const float* scales[kRows];
  V sum[kRows];
  for (int r = 0; r < kRows; r++) {
    words[r] = p.words + (first + r) * p.stride;
    scales[r] = p.float_scales(first + r);
    sum[r] = hn::Zero(d);
  }
  const uint32_t* next = words[0] + rows_ahead(kRows, p.stride) * p.stride;
  for (int64_t at = 0; at < count; at += N, x += N * kPer) {
    W w[kRows];
    V part[kRows];
    for (int r = 0; r < kRows; r++, next += N) {
      w[r] = at + N <= count ? hn::LoadU(u, words[r] + at) : some_words(words[r] + at, count - at);
      hwy::Prefetch(next);
      part[r] = hn::Zero(d);
    }
    steps<kBits, kCode, kRows>(w, x, table, part);
    for (int r = 0; r < kRows; r++) {
      const V scale = hn::TableLookupLanes(hn::LoadU(d, scales[r] + (at >> shift)), lane_of);
      sum[r] = hn::MulAdd(part[r], scale, sum[r]);
    }
  }
  for (int r = 0; r < kRows; r++) y[r] = hn::GetLane(hn::SumOfLanes(d, sum[r]));
}

template <int kBits, Code kCode>
void dot_in_lanes(const PackedRows& p, const float* x, float* y) {
  const V table = table_of(p.format);
  int64_t row = 0;
  for (; row + 4 <= p.rows; row += 4) dot_some<kBits, kCode, 4>(p, row, x, table, y + row);
  for (; row < p.rows; row++) dot_some<kBits, kCode, 1>(p, row, x, table, y + row);
}

// Of an even number of bits 16 codes fill whole words too, and may be the last.
template <int kBits>
void decode_across(const uint32_t* words, int64_t n, float* y) {
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) unpack32<kBits>(words + i / 32 * kBits, i + 32 >= n, y + i);
  if (i == n) return;
  uint32_t some[kBits] = {};
  float all[32];
  memcpy(some, words + i / 32 * kBits, size_t(kBits) * 2);
  unpack32<kBits>(some, true, all);
  memcpy(y + i, all, 16 * sizeof(float));
}

template <int kBits, Code kCode>
void decode_in_lanes(const uint32_t* words, int64_t n, V table, float* y) {
  const Floats d;
  const Words u;
  constexpr int kPer = 32 / kBits;
  const int64_t N = int64_t(hn::Lanes(d));
  // A word's codes become neighbours: each word is repeated over kPer lanes and shifted by the lane's share.
  const auto lane = hn::And(hn::Iota(u, 0), hn::Set(u, uint32_t(kPer - 1)));
  const auto shift = hn::Mul(lane, hn::Set(u, uint32_t(kBits)));
  int64_t i = 0;
  if (N >= kPer) {
    const auto lane_of = hn::IndicesFromVec(u, hn::ShiftRightSame(hn::Iota(u, 0), log2_of(kPer)));
    for (; i + N <= n; i += N) {
      const W w = hn::TableLookupLanes(some_words(words + i / kPer, N / kPer), lane_of);
      hn::StoreU(value_of<kBits, kCode>(hn::Shr(w, shift), table), d, y + i);
    }
  } else {
    for (; i < n; i += N) {
      const auto from = hn::Set(u, words[i / kPer]);
      const auto start = hn::Set(u, uint32_t(i % kPer) * kBits);
      const auto step = hn::Mul(hn::Iota(u, 0), hn::Set(u, uint32_t(kBits)));
      hn::StoreU(value_of<kBits, kCode>(hn::Shr(from, hn::Add(start, step)), table), d, y + i);
    }
  }
  if (i < n) {
    const W w =
        hn::TableLookupLanes(some_words(words + i / kPer, (n - i) / kPer),
                             hn::IndicesFromVec(u, hn::ShiftRightSame(hn::Iota(u, 0), log2_of(kPer))));
    store_some(d, value_of<kBits, kCode>(hn::Shr(w, shift), table), y + i, n - i);
  }
}

void decode(const uint32_t* words, int64_t n, CodeFormat format, float* y) {
  const V table = table_of(format);
  switch (format.bits) {
    case 2:
      return decode_in_lanes<2, Code::integer>(words, n, table, y);
    case 3:
      return decode_across<3>(words, n, y);
    case 4:
      if (format.code == Code::e2m1) return decode_in_lanes<4, Code::e2m1>(words, n, table, y);
      return decode_in_lanes<4, Code::integer>(words, n, table, y);
    case 5:
      return decode_across<5>(words, n, y);
    case 6:
      return decode_across<6>(words, n, y);
    default:
      if (format.code == Code::e4m3) return decode_in_lanes<8, Code::e4m3>(words, n, table, y);
      return decode_in_lanes<8, Code::integer>(words, n, table, y);
  }
}

void expand(const uint32_t* words, int64_t n, CodeFormat format, const float* scales, const float* biases,
            float* y) {
  decode(words, n, format, y);
  for (int64_t at = 0; at < n; at += format.group, scales++) {
    const float scale = *scales, bias = biases ? biases[at / format.group] : 0;
    for (int64_t i = at; i < at + format.group; i++) y[i] = y[i] * scale + bias;
  }
}

#if !(HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86)
bool takes_bytes(CodeFormat) { return false; }
constexpr int kMostVectors = 1;
#endif
int64_t most_vectors(int digits) { return digits == kAsBfloat16 ? kMostBfloat16 : kMostVectors; }
bool stays_in_lanes(CodeFormat format) { return 32 % format.bits == 0; }

// In front of an arranged vector: of how many bytes an element is, 0 for those in float32, or kAsBfloat16.
constexpr int64_t kArrangedHead = 16;

int64_t arranged_size(int64_t columns, CodeFormat format) {
  const int64_t N = int64_t(hn::Lanes(Floats())), per = 32 / format.bits;
  const int64_t floats = stays_in_lanes(format) ? (columns / per + N - 1) / N * N * per : columns;
#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86
  return kArrangedHead + std::max({floats, bytes_size(columns, format), bfloat16_size(columns)});
#else
  return kArrangedHead + floats;
#endif
}

bool reads_no_padding(int64_t columns, CodeFormat format) {
  return widens_halves(format) || !stays_in_lanes(format) ||
         columns * format.bits / 32 % int64_t(hn::Lanes(Floats())) == 0;
}

bool arrange(const float* x, int64_t columns, CodeFormat format, int digits, int64_t first, int64_t length,
             float* to) {
  if (first == 0) to[0] = float(digits);
  to += kArrangedHead;
#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86
  if (digits > 0) return arrange_bytes(x, columns, format, digits, first, length, to);
#endif
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  if (digits == kAsBfloat16) return arrange_bfloat16(x, format, length, to + first / 2);
#endif
  to += first;
  if (!stays_in_lanes(format) || widens_halves(format)) {
    memcpy(to, x, size_t(length) * 4);
    return true;
  }
  const int64_t N = int64_t(hn::Lanes(Floats())), per = 32 / format.bits, count = length / per;
  const hn::RebindToSigned<Floats> i;
  const auto offsets = hn::Mul(hn::Iota(i, 0), hn::Set(i, int32_t(per)));
  for (int64_t at = 0; at < count; at += N) {
    for (int j = 0; j < int(per); j++) {
      const float factor = in_place(format.bits, format.code, j) ? 1.0f / float(1 << (j * format.bits)) : 1;
      if (at + N <= count) {
        const Floats d;
        hn::StoreU(hn::Mul(hn::GatherIndex(d, x + at * per + j, offsets), hn::Set(d, factor)), d, to);
        to += N;
        continue;
      }
      for (int64_t lane = 0; lane < N; lane++)
        *to++ = at + lane < count ? x[(at + lane) * per + j] * factor : 0;
    }
  }
  return true;
}

// Groups have 16 elements at least: the sums of those that are so far apart come together by halves.
void sum_groups(const float* x, int64_t length, int64_t group, float* sums) {
  const Floats d;
  constexpr int kParts = 16 / int(hn::MaxLanes(d));
  const int64_t N = int64_t(hn::Lanes(d));
  for (const float* const last = x + length; x < last; sums++) {
    V sum[kParts];
    LZ_UNROLL for (int i = 0; i < kParts; i++) sum[i] = hn::Zero(d);
    for (const float* const end = x + group; x < end; x += 16) {
      LZ_UNROLL for (int i = 0; i < kParts; i++) sum[i] = hn::Add(sum[i], hn::LoadU(d, x + i * N));
    }
    LZ_UNROLL for (int half = kParts / 2; half > 0; half /= 2) {
      LZ_UNROLL for (int i = 0; i < half; i++) sum[i] = hn::Add(sum[i], sum[i + half]);
    }
    auto all = sum_of_blocks(d, sum[0]);
    all = hn::Add(all, hn::Shuffle1032(all));
    *sums = hn::GetLane(hn::Add(all, hn::Shuffle2301(all)));
  }
}

template <int kBits>
void dot_across(const PackedRows& p, const float* x, float* y) {
  for (int64_t row = 0; row < p.rows; row++)
    y[row] =
        dot_row_across<kBits>(p.words + row * p.stride, p.columns, p.format.group, p.float_scales(row), x);
}

void dot_one(const PackedRows& p, const float* x, const float* sums, float* y) {
  const Floats d;
  const int64_t N = int64_t(hn::Lanes(d));
  const CodeFormat f = p.format;
  if (f.bits == 3)
    dot_across<3>(p, x, y);
  else if (f.bits == 5)
    dot_across<5>(p, x, y);
  else if (f.bits == 6)
    dot_across<6>(p, x, y);
  else if (f.bits == 2)
    dot_in_lanes<2, Code::integer>(p, x, y);
  else if (f.bits == 4 && f.code == Code::integer)
    dot_in_lanes<4, Code::integer>(p, x, y);
  else if (f.bits == 4)
    dot_in_lanes<4, Code::e2m1>(p, x, y);
  else if (f.code == Code::integer)
    dot_in_lanes<8, Code::integer>(p, x, y);
  else
    dot_in_lanes<8, Code::e4m3>(p, x, y);
  if (p.biases == nullptr) return;
  const int64_t groups = p.columns / f.group;
  for (int64_t row = 0; row < p.rows; row++) {
    const float* biases = p.float_biases(row);
    V sum = hn::Zero(d);
    for (int64_t g = 0; g < groups; g += N)
      sum = hn::MulAdd(g + N <= groups ? hn::LoadU(d, biases + g) : load_some(d, biases + g, groups - g, 0),
                       hn::LoadU(d, sums + g), sum);
    y[row] += hn::GetLane(hn::SumOfLanes(d, sum));
  }
}

void dot(const PackedRows& p, const Arranged& a, float* y, int64_t y_step) {
  for (int64_t m = 0; m < a.count; m++) {
    const float* x = a.x + m * a.x_step;
    Arranged part{x + kArrangedHead, a.x_step, a.sums + m * a.sums_step, a.sums_step, 1};
#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86
    if (x[0] != 0) {
      // Equal shares.
      const int digits = int(x[0]);
      const int64_t passes = (a.count - m - 1) / most_vectors(digits) + 1,
                    count = (a.count - m - 1) / passes + 1;
#if HWY_TARGET <= HWY_AVX3
      if (digits == kAsBfloat16) {
        part.x += a.first / 2;
        part.sums += a.first / p.format.group;
        part.first = a.first;
        part.carried = a.carried ? a.carried + m * kCarried : nullptr;
        part.last = a.last;
        dot_bfloat16(p, part, count, y + m * y_step, y_step);
      } else
#endif
        dot_bytes(p, part, count, digits, y + m * y_step, y_step);
      m += count - 1;
      continue;
    }
    if (widens_halves(p.format)) {
      m += dot_widened(p, a.count - m, part.x, a.x_step, y + m * y_step, y_step) - 1;
      continue;
    }
#endif
    dot_one(p, part.x, part.sums, y + m * y_step);
  }
}

}  // namespace

const QuantizedTable& quantized_table() {
  static constexpr QuantizedTable table = {
      takes_bytes,   takes_bfloat16, decode,     expand,       reads_no_padding,
      arranged_size, arrange,        sum_groups, most_vectors, dot};
  return table;
}

}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();
