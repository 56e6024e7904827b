// A lane is a column of the result, which has one word of codes there: what its bytes meet is the same four
// bytes of a row of x in all lanes. Sums of a block are integers; blocks are added in float32, in order.
#include "simd/byte_tiles.h"

#include "simd/byte_digits.h"
#include "simd/byte_products.h"
#include "simd/byte_spread.h"
#include "simd/compiler.h"
#include "simd/e2m1.h"
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
constexpr int kMostRows = HWY_TARGET == HWY_AVX2 ? 4 : 12;

bool takes(CodeFormat f) {
  if (f.code == Code::e4m3 || f.group % kRoundedBlock != 0) return false;
#if HWY_TARGET <= HWY_AVX3
  return has_byte_products();
#else
  return f.code == Code::integer && f.bits <= 4 && 8 % f.bits == 0;
#endif
}

// Elements of x that are rounded at a time.
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

// A unit as integers of one byte, and `sum` with it added.
HWY_INLINE void round_unit(const float* x, float scale, int8_t* to, hn::Vec<Floats>& sum) {
  const Floats d;
  const hn::RebindToSigned<Floats> i;
  const hn::Rebind<int8_t, Floats> narrow;
  const auto by = hn::Set(d, scale > 0 ? scale : 1.0f);
  for (int64_t at = 0; at < kUnit; at += int64_t(hn::Lanes(d))) {
    const auto v = hn::LoadU(d, x + at);
    sum = hn::Add(sum, v);
    const auto q = hn::Min(hn::Max(hn::NearestInt(hn::Div(v, by)), hn::Set(i, -127)), hn::Set(i, 127));
    hn::StoreU(hn::DemoteTo(narrow, q), narrow, to + at);
  }
}

template <int kBits>
void pack_rows(const BytePack& p) {
  static constexpr StepOrder<kBits> order;
  const Floats d;
  const hn::FixedTag<uint8_t, 16> bytes;
  const auto places = hn::Load(bytes, order.of);
  const int64_t blocks = p.depth / kRoundedBlock, per_group = p.format.group / kRoundedBlock;
  for (int64_t r = 0; r < p.height; r++) {
    const bool there = r < p.rows;
    const float* x = p.x + r * p.ld;
    auto* to = reinterpret_cast<uint32_t*>(p.codes) + r;
    auto sum = hn::Zero(d);
    for (int64_t b = 0; b < blocks; b++) {
      const float scale = there ? block_scale(x) : 0;
      int32_t integers = 0;
      for (int64_t at = 0; at < kRoundedBlock; at += kUnit, x += kUnit) {
        alignas(16) int8_t rounded[kUnit] = {};
        if (there) round_unit(x, scale, rounded, sum);
        alignas(16) uint32_t quads[4];
        const auto q = hn::Load(bytes, reinterpret_cast<const uint8_t*>(rounded));
        hn::Store(hn::TableLookupBytes(q, places), bytes, reinterpret_cast<uint8_t*>(quads));
        for (int64_t i = 0; p.offsets && i < kUnit; i++) integers += rounded[i];
        for (int64_t quad = 0; quad < 4; quad++, to += p.height) *to = quads[quad];
      }
      p.scales[b * p.height + r] = p.offsets ? 0.5f * scale : scale;
      if (p.offsets) p.offsets[b * p.height + r] = -kMiddle * integers;
      if ((b + 1) % per_group == 0) {
        p.sums[b / per_group * p.height + r] = hn::GetLane(hn::SumOfLanes(d, sum));
        sum = hn::Zero(d);
      }
    }
  }
}

void pack(const BytePack& p) {
  const int bits = tile_bits(p.format.bits);
  (bits == 2 ? pack_rows<2> : bits == 4 ? pack_rows<4> : pack_rows<8>)(p);
}

// Codes of a step, from words whose low bits they are.
template <int kBits, Code kCode>
HWY_INLINE auto codes_of(hn::Vec<hn::RebindToUnsigned<Floats>> w) {
  const hn::RebindToUnsigned<Floats> u;
  if constexpr (kBits < 8) w = hn::And(w, hn::Set(u, ((1u << kBits) - 1) * 0x01010101u));
  if constexpr (kCode == Code::e2m1) w.raw = e2m1_integers(w.raw);
  return w;
}

template <int kBits, Code kCode, int kRows>
LZ_BYTES HWY_NOINLINE void multiply_tile(const ByteTile& t) {
  using V = hn::Vec<Floats>;
  const Floats d;
  const hn::RebindToUnsigned<Floats> u;
  constexpr int kSteps = int(byte_steps(kBits)), kWords = int(kRoundedBlock / word_codes(kBits));
  const int64_t N = int64_t(hn::Lanes(d));
  const int64_t groups = t.depth / t.format.group, per_group = t.format.group / kRoundedBlock;
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
      ByteSums part[kRows];
      LZ_UNROLL for (int r = 0; r < kRows; r++) {
        if constexpr (kCode == Code::e2m1)
          part[r].set(offsets[r]);
        else
          part[r].clear();
      }
      if constexpr (kCode == Code::e2m1) offsets += kRows;
      LZ_UNROLL for (int word = 0; word < kWords; word++, words += N, ahead += step) {
        _mm_prefetch(ahead, _MM_HINT_T1);
        auto w = hn::LoadU(u, words);
        LZ_UNROLL for (int s = 0; s < kSteps; s++, x += kRows) {
          const auto codes = codes_of<kBits, kCode>(w);
          LZ_UNROLL for (int r = 0; r < kRows; r++) part[r].add(codes.raw, x[r]);
          w = hn::ShiftRight<kBits % 8>(w);
        }
      }
      LZ_UNROLL for (int r = 0; r < kRows; r++) sum[r] =
          hn::MulAdd(V{part[r].floats()}, hn::Mul(scale, hn::Set(d, x_scales[r])), sum[r]);
    }
    if (t.biases != nullptr) {
      const V bias = hn::LoadU(d, t.biases + g * N);
      LZ_UNROLL for (int r = 0; r < kRows; r++) sum[r] = hn::MulAdd(bias, hn::Set(d, x_sums[r]), sum[r]);
    }
  }
  LZ_UNROLL for (int r = 0; r < kRows; r++) hn::StoreU(sum[r], d, t.y + r * t.ldy);
}

template <int kBits, Code kCode, int kRows = kMostRows>
void multiply_height(const ByteTile& t) {
  if constexpr (kRows > 2) {
    if (t.height < kRows) return multiply_height<kBits, kCode, kRows - 2>(t);
  }
  multiply_tile<kBits, kCode, kRows>(t);
}

void multiply(const ByteTile& t) {
  const int bits = tile_bits(t.format.bits);
#if HWY_TARGET <= HWY_AVX3
  if (t.format.code == Code::e2m1) return multiply_height<4, Code::e2m1>(t);
  if (bits == 8) return multiply_height<8, Code::integer>(t);
#endif
  (bits == 2 ? multiply_height<2, Code::integer> : multiply_height<4, Code::integer>)(t);
}

#if HWY_TARGET <= HWY_AVX3
template <int kBits, bool kVbmi>
void spread_codes(const uint32_t* words, int64_t n, uint8_t* to) {
  const auto* from = reinterpret_cast<const char*>(words);
  for (int64_t at = 0; at < n; at += 64, from += 8 * kBits) {
    const int64_t count = std::min<int64_t>(64, n - at);
    const auto some = ~uint64_t(0) >> (64 - count * kBits / 8);
    __m512i codes[1];
    spread<kBits, kVbmi>(_mm512_maskz_loadu_epi8(some, from), codes);
    _mm512_mask_storeu_epi8(to + at, ~uint64_t(0) >> (64 - count), codes[0]);
  }
}
template <bool kVbmi>
void spread(const uint32_t* words, int64_t n, int bits, uint8_t* to) {
  (bits == 3   ? spread_codes<3, kVbmi>
   : bits == 5 ? spread_codes<5, kVbmi>
               : spread_codes<6, kVbmi>)(words, n, to);
}
void spread(const uint32_t* words, int64_t n, int bits, uint8_t* to) {
  (permutes_bytes() ? spread<true> : spread<false>)(words, n, bits, to);
}
#else
constexpr decltype(ByteTileTable::spread) spread = nullptr;
#endif
#endif

}  // namespace

const ByteTileTable& byte_tile_table() {
#ifdef LZ_BYTES
  static constexpr ByteTileTable table = {round,    takes, int32_t(hn::MaxLanes(Floats())), kMostRows, pack,
                                          multiply, spread};
#else
  static constexpr ByteTileTable table = {round,  [](CodeFormat) { return false; }, 0, 0, nullptr, nullptr,
                                          nullptr};
#endif
  return table;
}

}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();
