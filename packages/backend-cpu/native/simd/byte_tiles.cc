// A lane is a column of the result, which has one word of codes there: what its bytes meet is the same four
// bytes of a row of x in all lanes. Sums of a block of 32 are integers; blocks are added in float32, in
// order.
#include "simd/byte_tiles.h"

#include <string.h>

#include "simd/byte_products.h"
#include "simd/compiler.h"
#include "simd/vectors.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

// A 127th of the largest magnitude of a block; NaN where an element is not finite.
HWY_INLINE float block_scale(const float* x) {
  const Floats d;
  const hn::RebindToUnsigned<Floats> u;
  const int64_t N = int64_t(hn::Lanes(d));
  auto most = hn::Zero(u);
  for (int64_t i = 0; i < kRoundedBlock; i += N)
    most = hn::Max(most, hn::And(hn::BitCast(u, hn::LoadU(d, x + i)), hn::Set(u, 0x7fffffffu)));
  const uint32_t bits = hn::GetLane(hn::MaxOfLanes(u, most));
  float largest;
  memcpy(&largest, &bits, 4);
  return bits < 0x7f800000u ? largest / 127 : __builtin_nanf("");
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
constexpr int kMostBits = HWY_TARGET == HWY_AVX2 ? 4 : 8;

// The codes of half a block in the order of steps.
template <int kBits>
struct StepOrder {
  alignas(16) uint8_t of[16];
  constexpr StepOrder() : of() {
    constexpr int kSteps = int(byte_steps(kBits)), kPer = int(word_codes(kBits));
    for (int i = 0; i < 16; i++) {
      const int quad = i / 4, word = quad / kSteps, step = quad % kSteps;
      of[i] = uint8_t(word * kPer + i % 4 * kSteps + step);
    }
  }
};

template <int kBits>
void pack_rows(const BytePack& p) {
  static constexpr StepOrder<kBits> order;
  const Floats d;
  const hn::RebindToSigned<Floats> i;
  const hn::FixedTag<uint8_t, 16> bytes;
  const hn::Rebind<int8_t, Floats> narrow;
  const auto places = hn::Load(bytes, order.of);
  const int64_t N = int64_t(hn::Lanes(d));
  const int64_t blocks = p.depth / kRoundedBlock, per_group = p.format.group / kRoundedBlock;
  for (int64_t r = 0; r < p.height; r++) {
    const bool there = r < p.rows;
    const float* x = p.x + r * p.ld;
    auto sum = hn::Zero(d);
    for (int64_t block = 0; block < blocks; block++, x += kRoundedBlock) {
      alignas(16) int8_t codes[kRoundedBlock] = {};
      alignas(16) uint32_t quads[8];
      float scale = 0;
      if (there) {
        scale = block_scale(x);
        const auto by = hn::Set(d, scale > 0 ? scale : 1.0f);
        for (int64_t at = 0; at < kRoundedBlock; at += N) {
          const auto v = hn::LoadU(d, x + at);
          sum = hn::Add(sum, v);
          const auto q = hn::Min(hn::Max(hn::NearestInt(hn::Div(v, by)), hn::Set(i, -127)), hn::Set(i, 127));
          hn::StoreU(hn::DemoteTo(narrow, q), narrow, codes + at);
        }
      }
      for (int64_t half = 0; half < 2; half++) {
        const auto q = hn::Load(bytes, reinterpret_cast<const uint8_t*>(codes + 16 * half));
        hn::Store(hn::TableLookupBytes(q, places), bytes, reinterpret_cast<uint8_t*>(quads + 4 * half));
      }
      p.scales[block * p.height + r] = scale;
      auto* to = reinterpret_cast<uint32_t*>(p.codes) + block * 8 * p.height + r;
      for (int64_t quad = 0; quad < 8; quad++) to[quad * p.height] = quads[quad];
      if ((block + 1) % per_group == 0) {
        p.sums[block / per_group * p.height + r] = hn::GetLane(hn::SumOfLanes(d, sum));
        sum = hn::Zero(d);
      }
    }
  }
}

void pack(const BytePack& p) {
  (p.format.bits == 2 ? pack_rows<2> : p.format.bits == 4 ? pack_rows<4> : pack_rows<8>)(p);
}

template <int kBits, int kRows>
LZ_BYTES HWY_NOINLINE void multiply_tile(const ByteTile& t) {
  using V = hn::Vec<Floats>;
  const Floats d;
  const hn::RebindToUnsigned<Floats> u;
  constexpr int kSteps = int(byte_steps(kBits)), kWords = int(kRoundedBlock / word_codes(kBits));
  const auto low = hn::Set(u, kBits == 8 ? 0xffffffffu : ((1u << kBits) - 1) * 0x01010101u);
  const int64_t N = int64_t(hn::Lanes(d));
  const int64_t groups = t.depth / t.format.group, per_group = t.format.group / kRoundedBlock;
  const uint32_t* words = t.words;
  const auto* x = reinterpret_cast<const int32_t*>(t.codes);
  const float *x_scales = t.x_scales, *x_sums = t.x_sums;
  V sum[kRows];
  LZ_UNROLL for (int r = 0; r < kRows; r++) sum[r] = hn::Zero(d);
  for (int64_t g = 0; g < groups; g++, x_sums += kRows) {
    const V scale = hn::LoadU(d, t.scales + g * N);
    for (int64_t block = 0; block < per_group; block++, x_scales += kRows) {
      ByteSums part[kRows];
      LZ_UNROLL for (int r = 0; r < kRows; r++) part[r].clear();
      LZ_UNROLL for (int word = 0; word < kWords; word++, words += N) {
        auto w = hn::LoadU(u, words);
        LZ_UNROLL for (int s = 0; s < kSteps; s++, x += kRows) {
          const auto codes = kBits == 8 ? w : hn::And(w, low);
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

template <int kBits, int kRows = kMostRows>
void multiply_height(const ByteTile& t) {
  if constexpr (kRows > 2) {
    if (t.height < kRows) return multiply_height<kBits, kRows - 2>(t);
  }
  multiply_tile<kBits, kRows>(t);
}

void multiply(const ByteTile& t) {
  const int bits = t.format.bits;
  (bits == 2 ? multiply_height<2> : bits == 4 ? multiply_height<4> : multiply_height<kMostBits>)(t);
}
#endif

}  // namespace

const ByteTileTable& byte_tile_table() {
  static constexpr ByteTileTable none = {round, 0, 0, 0, nullptr, nullptr};
#ifdef LZ_BYTES
  static constexpr ByteTileTable table = {round,     kMostRows, int32_t(hn::MaxLanes(Floats())),
                                          kMostBits, pack,      multiply};
#if HWY_TARGET <= HWY_AVX3
  return has_byte_products() ? table : none;
#else
  return table;
#endif
#else
  return none;
#endif
}

}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();
