// Codes of 3, 5 and 6 bits, which cross words, as floats, and their products with a vector.
#ifndef LAZULI_SIMD_QUANTIZED_ACROSS_H
#define LAZULI_SIMD_QUANTIZED_ACROSS_H

#include <hwy/cache_control.h>
#include <string.h>

#include "simd/code_values.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

// Codes of kBits bits, 32 at a time: they fill kBits words.
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
// Each code's two bytes come together in a lane of 16 bits, which is shifted by the code's own distance.
// Blocks of 16 bytes have 8 codes; the upper two are filled from byte 4 · (kBits - 4) on, so that nothing
// behind the words is read; words of 3 bits end before that, and what follows them is read unless they are
// the `last`.
template <int kBits>
struct Across {
  alignas(64) uint8_t bytes[64];
  alignas(64) uint16_t shifts[32];
  static constexpr int kUpper = kBits > 4 ? 4 * (kBits - 4) : 0;
  constexpr Across() : bytes(), shifts() {
    for (int code = 0; code < 32; code++) {
      const int byte = code * kBits / 8 - (code < 16 ? 0 : kUpper);
      bytes[2 * code] = uint8_t(byte);
      bytes[2 * code + 1] = uint8_t((byte + 1) % 16);
      shifts[code] = uint16_t(code * kBits % 8);
    }
  }
};
template <int kBits>
HWY_INLINE void unpack32(const uint32_t* words, bool last, V& low, V& high) {
  static constexpr Across<kBits> across;
  const Floats d;
  const hn::RebindToSigned<Floats> i;
  const hn::FixedTag<uint8_t, 64> all;
  const hn::FixedTag<uint8_t, 32> half;
  const hn::FixedTag<uint16_t, 32> lanes;
  const hn::FixedTag<uint16_t, 16> lower;
  const auto* from = reinterpret_cast<const uint8_t*>(words);
  auto packed = hn::Undefined(all);
  if (kBits == 3 && last) {
    const hn::FixedTag<uint32_t, 4> block;
    const auto one =
        hn::BitCast(hn::FixedTag<uint8_t, 16>(), hn::MaskedLoad(hn::FirstN(block, 3), block, words));
    const auto two = hn::Combine(half, one, one);
    packed = hn::Combine(all, two, two);
  } else if (kBits == 3) {
    packed = hn::LoadDup128(all, from);
  } else {
    packed = hn::Combine(all, hn::LoadDup128(half, from + Across<kBits>::kUpper), hn::LoadDup128(half, from));
  }
  const auto pairs = hn::BitCast(lanes, hn::TableLookupBytes(packed, hn::Load(all, across.bytes)));
  const auto codes =
      hn::And(hn::Shr(pairs, hn::Load(lanes, across.shifts)), hn::Set(lanes, uint16_t((1u << kBits) - 1)));
  low = hn::ConvertTo(d, hn::PromoteTo(i, hn::LowerHalf(lower, codes)));
  high = hn::ConvertTo(d, hn::PromoteTo(i, hn::UpperHalf(lower, codes)));
}
template <int kBits>
HWY_INLINE void unpack32(const uint32_t* words, bool last, float* y) {
  V low, high;
  unpack32<kBits>(words, last, low, high);
  hn::StoreU(low, Floats(), y);
  hn::StoreU(high, Floats(), y + 16);
}

// Sixteen codes in groups of so many are the last of a row: what would be read with them is not there.
template <int kBits>
HWY_INLINE void unpack16(const uint32_t* words, V& low) {
  uint32_t some[kBits] = {};
  memcpy(some, words, size_t(kBits) * 2);
  V none;
  unpack32<kBits>(some, true, low, none);
}

// Σ_g scale[g] · Σ_k code · x over a row, in order.
template <int kBits>
float dot_row_across(const uint32_t* words, int64_t columns, int64_t group, const float* scales,
                     const float* x) {
  const Floats d;
  V sum = hn::Zero(d);
  if (kBits % 2 == 0 && group == 16) {
    V low, high;
    for (int64_t at = 0; at + 32 <= columns; at += 32, words += kBits, scales += 2) {
      unpack32<kBits>(words, at + 32 >= columns, low, high);
      sum = hn::MulAdd(hn::Mul(low, hn::LoadU(d, x + at)), hn::Set(d, scales[0]), sum);
      sum = hn::MulAdd(hn::Mul(high, hn::LoadU(d, x + at + 16)), hn::Set(d, scales[1]), sum);
    }
    if (columns % 32 != 0) {
      unpack16<kBits>(words, low);
      sum = hn::MulAdd(hn::Mul(low, hn::LoadU(d, x + columns - 16)), hn::Set(d, *scales), sum);
    }
    return hn::GetLane(hn::SumOfLanes(d, sum));
  }
  for (int64_t at = 0; at < columns; at += group, scales++) {
    V a = hn::Zero(d), b = a;
    for (int64_t i = at; i < at + group; i += 32, words += kBits) {
      V low, high;
      unpack32<kBits>(words, i + 32 >= columns, low, high);
      a = hn::MulAdd(low, hn::LoadU(d, x + i), a);
      b = hn::MulAdd(high, hn::LoadU(d, x + i + 16), b);
    }
    sum = hn::MulAdd(hn::Add(a, b), hn::Set(d, *scales), sum);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}
#else
template <int kBits>
HWY_INLINE void unpack_some(const uint32_t* words, int count, float* y) {
  uint64_t held = 0;
  int have = 0;
  for (int k = 0; k < count; k++) {
    if (have < kBits) {
      held |= uint64_t(*words++) << have;
      have += 32;
    }
    y[k] = float(held & ((1u << kBits) - 1));
    held >>= kBits;
    have -= kBits;
  }
}
template <int kBits>
HWY_INLINE void unpack32(const uint32_t* words, bool, float* y) {
  unpack_some<kBits>(words, 32, y);
}

#if HWY_TARGET == HWY_AVX2
// The bytes of each code's four, and its distance in them, for eight codes whose bytes begin at `skip` of the
// 16 that are loaded.
template <int kBits>
struct Eight {
  alignas(32) uint8_t bytes[32];
  alignas(32) uint32_t shifts[8];
  constexpr explicit Eight(int skip) : bytes(), shifts() {
    for (int code = 0; code < 8; code++) {
      const int first = skip + code * kBits / 8;
      for (int i = 0; i < 4; i++) bytes[4 * code + i] = uint8_t(first + i < 16 ? first + i : 15);
      shifts[code] = uint32_t(code * kBits % 8);
    }
  }
};
template <int kBits, bool kLast>
HWY_INLINE V eight_codes(const uint8_t* from) {
  // The last ones are loaded with what lies before them, since nothing behind them may be read.
  constexpr int kSkip = kLast ? 16 - kBits : 0;
  static constexpr Eight<kBits> order(kSkip);
  const Floats d;
  const Words u;
  const hn::RebindToSigned<Floats> i;
  const hn::Repartition<uint8_t, Floats> bytes;
  const auto packed = hn::LoadDup128(bytes, from - kSkip);
  const W four = hn::BitCast(u, hn::TableLookupBytes(packed, hn::Load(bytes, order.bytes)));
  const W codes = hn::And(hn::Shr(four, hn::Load(u, order.shifts)), hn::Set(u, (1u << kBits) - 1));
  return hn::ConvertTo(d, hn::BitCast(i, codes));
}

#endif

// Through a buffer, group by group.
template <int kBits>
HWY_NOINLINE float dot_row_by_buffer(const uint32_t* words, int64_t columns, int64_t group,
                                     const float* scales, const float* x) {
  const Floats d;
  const int64_t N = int64_t(hn::Lanes(d));
  HWY_ALIGN float codes[32];
  V sum = hn::Zero(d);
  for (int64_t at = 0; at < columns; at += group, scales++) {
    V a = hn::Zero(d), b = a;
    const int64_t count = group < 32 ? group : 32;
    for (int64_t i = at; i < at + group; i += count, words += count * kBits / 32) {
      unpack_some<kBits>(words, int(count), codes);
      for (int64_t j = 0; j < count; j += 2 * N) {
        a = hn::MulAdd(hn::Load(d, codes + j), hn::LoadU(d, x + i + j), a);
        b = hn::MulAdd(hn::Load(d, codes + j + N), hn::LoadU(d, x + i + j + N), b);
      }
    }
    sum = hn::MulAdd(hn::Add(a, b), hn::Set(d, *scales), sum);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// Σ_g scale[g] · Σ_k code · x over a row.
template <int kBits>
float dot_row_across(const uint32_t* words, int64_t columns, int64_t group, const float* scales,
                     const float* x) {
#if HWY_TARGET == HWY_AVX2
  // Eight codes fill kBits bytes, of which 16 are loaded: all are the row's own where it has so many.
  if (columns * kBits >= 256) {
    const Floats d;
    const auto* from = reinterpret_cast<const uint8_t*>(words);
    V sum = hn::Zero(d);
    for (int64_t at = 0; at < columns; at += group, scales++) {
      V a = hn::Zero(d), b = a;
      for (int64_t i = at; i < at + group; i += 16, from += 2 * kBits) {
        hwy::Prefetch(from + 4096);
        const bool last = (columns - i - 8) * kBits < 128;
        const V low = last ? eight_codes<kBits, true>(from) : eight_codes<kBits, false>(from);
        const V high =
            last ? eight_codes<kBits, true>(from + kBits) : eight_codes<kBits, false>(from + kBits);
        a = hn::MulAdd(low, hn::LoadU(d, x + i), a);
        b = hn::MulAdd(high, hn::LoadU(d, x + i + 8), b);
      }
      sum = hn::MulAdd(hn::Add(a, b), hn::Set(d, *scales), sum);
    }
    return hn::GetLane(hn::SumOfLanes(d, sum));
  }
#endif
  return dot_row_by_buffer<kBits>(words, columns, group, scales, x);
}
#endif

}  // namespace
}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();

#endif
