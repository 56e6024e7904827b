// A lane is a column of the result, which has one word of codes there: what its bytes meet is the same four
// bytes of a row of x in all lanes. Sums of a block are integers; blocks are added in float32, in order.
#include "simd/byte_tiles.h"

#include "simd/byte_digits.h"
#include "simd/byte_products.h"
#include "simd/byte_spread.h"
#include "simd/compiler.h"
#include "simd/vectors.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

// A 127th of the largest magnitude of a block; NaN where an element is not finite.
HWY_INLINE float block_scale(const float* x) {
  const uint32_t bits = largest_bits(x, kRoundedBlock);
  return bits < 0x7f800000u ? bits_as<float>(bits) / 127 : __builtin_nanf("");
}

void round(const float* x, int64_t n, float* y) {
  const Floats d;
  const int64_t N = int64_t(hn::Lanes(d));
  for (int64_t at = 0; at < n; at += kRoundedBlock) {
    const float scale = block_scale(x + at);
    const auto s = hn::Set(d, scale), by = hn::Set(d, scale == 0 ? 1.0f : scale);
    for (int64_t i = at; i < at + kRoundedBlock; i += N)
      hn::StoreU(hn::Mul(hn::Round(hn::Div(hn::LoadU(d, x + i), by)), s), d, y + i);
  }
}

#ifdef LZ_BYTES
// Rows of a tile, of which the sums of a block and of all blocks stay in registers.
constexpr int most_rows(int digits) {
  if (HWY_TARGET == HWY_AVX2) return 4;
  return digits == 1 ? 12 : digits == 2 ? 8 : 6;
}
int32_t rows_of(int digits) { return most_rows(digits); }

int32_t block_of(CodeFormat f, int digits) { return int32_t(digits == 1 ? kRoundedBlock : f.group); }

// On AVX2 passes over the codes are ahead of tiles for several digits.
bool takes(CodeFormat f, int digits) {
  if (f.code == Code::e4m3 || (digits == 1 && f.group % kRoundedBlock != 0)) return false;
#if HWY_TARGET <= HWY_AVX3
  return has_byte_products() && (8 % f.bits == 0 || spreads_bytes());
#else
  return digits == 1 && f.code == Code::integer && f.bits <= 4 && 8 % f.bits == 0;
#endif
}

// Elements of x of which the digits are made at a time.
constexpr int64_t kUnit = 16;

// The order of steps in which a unit's codes are met.
template <int kBits>
struct StepOrder {
  alignas(16) uint8_t of[kUnit];
  constexpr StepOrder() : of() {
    constexpr int kSteps = int(byte_steps(kBits)), kPer = int(word_codes(kBits));
    for (int i = 0; i < kUnit; i++) {
      const int quad = i / 4, word = quad / kSteps, step = quad % kSteps;
      of[i] = uint8_t(word * kPer + i % 4 * kSteps + step);
    }
  }
};

// Values of E2M1 are halves: twice their magnitude, and this much more, are the integers that stand for them.
constexpr int kMiddle = 12;

// A unit as integers of one byte, and `sum` with it added.
HWY_INLINE void round_unit(const float* x, float scale, int8_t* digits, hn::Vec<Floats>& sum) {
  const Floats d;
  const hn::RebindToSigned<Floats> i;
  const hn::Rebind<int8_t, Floats> narrow;
  const auto by = hn::Set(d, scale > 0 ? scale : 1.0f);
  for (int64_t at = 0; at < kUnit; at += int64_t(hn::Lanes(d))) {
    const auto v = hn::LoadU(d, x + at);
    sum = hn::Add(sum, v);
    const auto q = hn::Min(hn::Max(hn::NearestInt(hn::Div(v, by)), hn::Set(i, -127)), hn::Set(i, 127));
    hn::StoreU(hn::DemoteTo(narrow, q), narrow, digits + at);
  }
}

// The same as several digits.
template <int kDigits>
HWY_INLINE void split_unit(const float* x, float factor, int8_t (*digits)[kUnit], hn::Vec<Floats>& sum) {
  const Floats d;
  const hn::RebindToSigned<Floats> i;
  const hn::Rebind<int8_t, Floats> narrow;
  for (int64_t at = 0; at < kUnit; at += int64_t(hn::Lanes(d))) {
    const auto v = hn::LoadU(d, x + at);
    sum = hn::Add(sum, v);
    auto q = hn::NearestInt(hn::Mul(v, hn::Set(d, factor)));
    LZ_UNROLL for (int digit = kDigits - 1; digit >= 0; digit--) {
      const auto low = hn::ShiftRight<24>(hn::ShiftLeft<24>(q));
      hn::StoreU(hn::DemoteTo(narrow, low), narrow, digits[digit] + at);
      q = hn::ShiftRight<8>(hn::Add(q, hn::Set(i, 128)));
    }
  }
}

template <int kBits, int kDigits>
bool pack_rows(const BytePack& p) {
  static constexpr StepOrder<kBits> order;
  const Floats d;
  const hn::FixedTag<uint8_t, 16> bytes;
  const auto places = hn::Load(bytes, order.of);
  const int64_t block = block_of(p.format, kDigits), blocks = p.depth / block;
  const int64_t per_group = p.format.group / block;
  for (int64_t r = 0; r < p.height; r++) {
    const bool there = r < p.rows;
    const float* x = p.x + r * p.ld;
    auto* to = reinterpret_cast<uint32_t*>(p.codes) + r;
    auto sum = hn::Zero(d);
    for (int64_t b = 0; b < blocks; b++) {
      GroupPower power{};
      float scale = 0;
      if (kDigits == 1 && there) {
        scale = block_scale(x);
      } else if (there) {
        if (!power_of_group<kDigits>(largest_bits(x, block), power)) return false;
        scale = power.power;
      }
      int32_t sums[kDigits] = {};
      for (int64_t at = 0; at < block; at += kUnit, x += kUnit) {
        alignas(16) int8_t digits[kDigits][kUnit] = {};
        if (there && kDigits == 1) round_unit(x, scale, digits[0], sum);
        if (there && kDigits > 1) split_unit<kDigits>(x, power.factor, digits, sum);
        alignas(16) uint32_t quads[kDigits][4];
        LZ_UNROLL for (int digit = 0; digit < kDigits; digit++) {
          const auto q = hn::Load(bytes, reinterpret_cast<const uint8_t*>(digits[digit]));
          hn::Store(hn::TableLookupBytes(q, places), bytes, reinterpret_cast<uint8_t*>(quads[digit]));
          for (int64_t i = 0; p.offsets && i < kUnit; i++) sums[digit] += digits[digit][i];
        }
        for (int64_t quad = 0; quad < 4; quad++) {
          LZ_UNROLL for (int digit = 0; digit < kDigits; digit++, to += p.height)* to = quads[digit][quad];
        }
      }
      p.scales[b * p.height + r] = p.offsets ? 0.5f * scale : scale;
      for (int digit = 0; p.offsets && digit < kDigits; digit++)
        p.offsets[(b * kDigits + digit) * p.height + r] = -kMiddle * sums[digit];
      if ((b + 1) % per_group == 0) {
        p.sums[b / per_group * p.height + r] = hn::GetLane(hn::SumOfLanes(d, sum));
        sum = hn::Zero(d);
      }
    }
  }
  return true;
}

template <int kDigits>
bool pack_digits(const BytePack& p) {
  const int bits = tile_bits(p.format.bits);
  return (bits == 2 ? pack_rows<2, kDigits> : bits == 4 ? pack_rows<4, kDigits> : pack_rows<8, kDigits>)(p);
}

bool pack(const BytePack& p) {
#if HWY_TARGET <= HWY_AVX3
  if (p.digits == 2) return pack_digits<2>(p);
  if (p.digits == 3) return pack_digits<3>(p);
#endif
  return pack_digits<1>(p);
}

// Codes of a step, from words whose low bits they are.
template <int kBits, Code kCode>
HWY_INLINE auto codes_of(hn::Vec<hn::RebindToUnsigned<Floats>> w) {
  const hn::RebindToUnsigned<Floats> u;
  if constexpr (kBits < 8) w = hn::And(w, hn::Set(u, ((1u << kBits) - 1) * 0x01010101u));
  if constexpr (kCode == Code::e2m1) {
    const hn::Repartition<uint8_t, decltype(u)> bytes;
    alignas(16) static constexpr uint8_t values[16] = {
        kMiddle, kMiddle + 1, kMiddle + 2, kMiddle + 3, kMiddle + 4, kMiddle + 6, kMiddle + 8, kMiddle + 12,
        kMiddle, kMiddle - 1, kMiddle - 2, kMiddle - 3, kMiddle - 4, kMiddle - 6, kMiddle - 8, kMiddle - 12};
    return hn::BitCast(u, hn::TableLookupBytes(hn::LoadDup128(bytes, values), hn::BitCast(bytes, w)));
  } else {
    return w;
  }
}

template <int kBits, Code kCode, int kDigits, int kRows>
LZ_BYTES HWY_NOINLINE void multiply_tile(const ByteTile& t) {
  using V = hn::Vec<Floats>;
  const Floats d;
  const hn::RebindToUnsigned<Floats> u;
  constexpr int kSteps = int(byte_steps(kBits));
  // Sums of one digit are cleared for 32 codes, all of which are unrolled.
  constexpr int kWords = int((kDigits == 1 ? kRoundedBlock : kUnit) / word_codes(kBits));
  const int64_t N = int64_t(hn::Lanes(d));
  const int64_t block = block_of(t.format, kDigits), per_group = t.format.group / block;
  const int64_t groups = t.depth / t.format.group, parts = kDigits == 1 ? 1 : block / kUnit;
  const int64_t step = t.ahead ? 4 * N * t.format.bits / kBits : 0;
  const char* ahead = t.ahead ? t.ahead : reinterpret_cast<const char*>(t.words);
  const uint32_t* words = t.words;
  const auto* x = reinterpret_cast<const int32_t*>(t.codes);
  const float *x_scales = t.x_scales, *x_sums = t.x_sums;
  const int32_t* offsets = t.offsets;
  V sum[kRows];
  LZ_UNROLL for (int r = 0; r < kRows; r++) sum[r] = hn::Zero(d);
  for (int64_t g = 0; g < groups; g++, x_sums += kRows) {
    const V scale = hn::LoadU(d, t.scales + g * N);
    for (int64_t b = 0; b < per_group; b++, x_scales += kRows) {
      ByteSums part[kDigits][kRows];
      LZ_UNROLL for (int digit = 0; digit < kDigits; digit++) {
        LZ_UNROLL for (int r = 0; r < kRows; r++) {
          if constexpr (kCode == Code::e2m1)
            part[digit][r].set(offsets[digit * kRows + r]);
          else
            part[digit][r].clear();
        }
      }
      if constexpr (kCode == Code::e2m1) offsets += kDigits * kRows;
      for (int64_t i = 0; i < parts; i++) {
        LZ_UNROLL for (int word = 0; word < kWords; word++, words += N, ahead += step) {
          _mm_prefetch(ahead, _MM_HINT_T1);
          auto w = hn::LoadU(u, words);
          LZ_UNROLL for (int s = 0; s < kSteps; s++) {
            const auto codes = codes_of<kBits, kCode>(w);
            LZ_UNROLL for (int digit = 0; digit < kDigits; digit++, x += kRows) {
              LZ_UNROLL for (int r = 0; r < kRows; r++) part[digit][r].add(codes.raw, x[r]);
            }
            w = hn::ShiftRight<kBits % 8>(w);
          }
        }
      }
      LZ_UNROLL for (int r = 0; r < kRows; r++) {
        V all{part[kDigits > 1][r].floats()};
        if constexpr (kDigits > 1) all = V{part[0][r].floats_with(part[1][r])};
        // A third digit is apart: all three exceed 32 bits.
        if constexpr (kDigits > 2) all = hn::MulAdd(all, hn::Set(d, 256.0f), V{part[2][r].floats()});
        sum[r] = hn::MulAdd(all, hn::Mul(scale, hn::Set(d, x_scales[r])), sum[r]);
      }
    }
    if (t.biases != nullptr) {
      const V bias = hn::LoadU(d, t.biases + g * N);
      LZ_UNROLL for (int r = 0; r < kRows; r++) sum[r] = hn::MulAdd(bias, hn::Set(d, x_sums[r]), sum[r]);
    }
  }
  LZ_UNROLL for (int r = 0; r < kRows; r++) hn::StoreU(sum[r], d, t.y + r * t.ldy);
}

template <int kBits, Code kCode, int kDigits, int kRows = most_rows(kDigits)>
void multiply_height(const ByteTile& t) {
  if constexpr (kRows > 2) {
    if (t.height < kRows) return multiply_height<kBits, kCode, kDigits, kRows - 2>(t);
  }
  multiply_tile<kBits, kCode, kDigits, kRows>(t);
}

template <int kDigits>
void multiply_digits(const ByteTile& t) {
  const int bits = tile_bits(t.format.bits);
#if HWY_TARGET <= HWY_AVX3
  if (t.format.code == Code::e2m1) return multiply_height<4, Code::e2m1, kDigits>(t);
  if (bits == 8) return multiply_height<8, Code::integer, kDigits>(t);
#endif
  (bits == 2 ? multiply_height<2, Code::integer, kDigits> : multiply_height<4, Code::integer, kDigits>)(t);
}

void multiply(const ByteTile& t) {
#if HWY_TARGET <= HWY_AVX3
  if (t.digits == 2) return multiply_digits<2>(t);
  if (t.digits == 3) return multiply_digits<3>(t);
#endif
  multiply_digits<1>(t);
}

#if HWY_TARGET <= HWY_AVX3
template <int kBits>
void spread_codes(const uint32_t* words, int64_t n, uint8_t* to) {
  const auto* from = reinterpret_cast<const char*>(words);
  for (int64_t at = 0; at < n; at += 64, from += 8 * kBits) {
    const int64_t count = std::min<int64_t>(64, n - at);
    const auto some = ~uint64_t(0) >> (64 - count * kBits / 8);
    const __m512i codes = spread<kBits>(_mm512_maskz_loadu_epi8(some, from));
    _mm512_mask_storeu_epi8(to + at, ~uint64_t(0) >> (64 - count), codes);
  }
}
void spread(const uint32_t* words, int64_t n, int bits, uint8_t* to) {
  (bits == 3 ? spread_codes<3> : bits == 5 ? spread_codes<5> : spread_codes<6>)(words, n, to);
}
#else
constexpr decltype(ByteTileTable::spread) spread = nullptr;
#endif
#endif

}  // namespace

const ByteTileTable& byte_tile_table() {
#ifdef LZ_BYTES
  static constexpr ByteTileTable table = {
      round, takes, int32_t(hn::MaxLanes(Floats())), rows_of, block_of, pack, multiply, spread};
#else
  static constexpr ByteTileTable table = {
      round, [](CodeFormat, int) { return false; }, 0, nullptr, nullptr, nullptr, nullptr, nullptr};
#endif
  return table;
}

}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();
