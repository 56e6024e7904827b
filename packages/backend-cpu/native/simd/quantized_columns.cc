// A lane is a row: where a code lies in its word is then known to the compiler, for codes that cross words
// too, and a group's scales are a vector.
#include "simd/quantized_columns.h"

#include "simd/code_values.h"
#include "simd/compiler.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

// Code `kCodeIndex` of every lane's words.
template <int kBits, Code kCode, int kIndex>
HWY_INLINE V code_at(const W* w, V table) {
  constexpr int bit = kIndex * kBits, word = bit / 32, shift = bit % 32;
  W moved = hn::ShiftRight<shift>(w[word]);
  if constexpr (shift + kBits > 32) moved = hn::Or(moved, hn::ShiftLeft<32 - shift>(w[word + 1]));
  return value_of<kBits, kCode>(moved, table);
}

// One that is no number becomes that of the lowest payload, which rounding cannot carry over into a number.
HWY_INLINE V quiet(V v) {
  const Floats d;
  return hn::IfThenElse(hn::IsNaN(v), hn::BitCast(d, hn::Set(Words(), 0x7fc00000u)), v);
}

// Writes codes kIndex and kIndex + 1, and those after them, of a block that begins with words w.
template <int kBits, Code kCode, int kIndex, int kCount, class Store>
HWY_INLINE void codes_from(const W* w, V table, V scale, V bias, const Store& store) {
  const V first = hn::MulAdd(code_at<kBits, kCode, kIndex>(w, table), scale, bias);
  const V second = hn::MulAdd(code_at<kBits, kCode, kIndex + 1>(w, table), scale, bias);
  store(kIndex, first, second);
  if constexpr (kIndex + 2 < kCount)
    codes_from<kBits, kCode, kIndex + 2, kCount>(w, table, scale, bias, store);
}

// Blocks of the fewest whole words that codes fill: at most 16 codes where groups may have 16.
template <int kBits>
inline constexpr int kBlockWords = 32 % kBits == 0  ? 1
                                   : kBits % 2 == 0 ? kBits / 2
                                                    : kBits;
template <int kBits>
inline constexpr int kBlockCodes = kBlockWords<kBits> * 32 / kBits;

// StoreAt makes what writes the codes of a block, from the position of its first one in the vector's columns.
template <int kBits, Code kCode, class StoreAt>
HWY_INLINE void unpack_as(const TurnedCodes& t, const StoreAt& store_at) {
  const Floats d;
  const Words u;
  constexpr int kWords = kBlockWords<kBits>, kCodes = kBlockCodes<kBits>;
  const int64_t N = int64_t(hn::Lanes(d)), width = 2 * N;
  const V table = table_of(t.format);
  const uint32_t* words = t.words;
  for (int64_t k = 0, group = 0; k < t.depth; group++) {
    V scale[2], bias[2];
    LZ_UNROLL for (int v = 0; v < 2; v++) {
      scale[v] = quiet(hn::LoadU(d, t.scales + group * width + v * N));
      bias[v] = t.biases ? quiet(hn::LoadU(d, t.biases + group * width + v * N)) : hn::Zero(d);
    }
    for (const int64_t end = k + t.format.group; k < end; k += kCodes, words += kWords * width) {
      LZ_UNROLL for (int v = 0; v < 2; v++) {
        W w[kWords];
        LZ_UNROLL for (int i = 0; i < kWords; i++) w[i] = hn::LoadU(u, words + i * width + v * N);
        codes_from<kBits, kCode, 0, kCodes>(w, table, scale[v], bias[v], store_at(k, v * N));
      }
    }
  }
}

// f<bits, code>() for a format.
template <template <int, Code> class F, class... Args>
HWY_INLINE void by_format(CodeFormat format, const Args&... args) {
  switch (format.bits) {
    case 2:
      return F<2, Code::integer>::run(args...);
    case 3:
      return F<3, Code::integer>::run(args...);
    case 4:
      if (format.code == Code::e2m1) return F<4, Code::e2m1>::run(args...);
      return F<4, Code::integer>::run(args...);
    case 5:
      return F<5, Code::integer>::run(args...);
    case 6:
      return F<6, Code::integer>::run(args...);
    default:
      if (format.code == Code::e4m3) return F<8, Code::e4m3>::run(args...);
      return F<8, Code::integer>::run(args...);
  }
}

template <int kBits, Code kCode>
struct InFloats {
  static HWY_NOINLINE void run(const TurnedCodes& t, float* to) {
    const int64_t width = 2 * int64_t(hn::Lanes(Floats()));
    unpack_as<kBits, kCode>(t, [to, width](int64_t k, int64_t lane) {
      float* block = to + k * width + lane;
      return [block, width](int index, V first, V second) {
        hn::StoreU(first, Floats(), block + index * width);
        hn::StoreU(second, Floats(), block + (index + 1) * width);
      };
    });
  }
};

void unpack(const TurnedCodes& codes, float* to) { by_format<InFloats>(codes.format, codes, to); }

#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
// Rounded by arithmetic, as the processor's instruction does (but for subnormal numbers, which meet products
// that take them for 0): a function for that instruction would not be inlined.
HWY_INLINE W pair_of(V first, V second) {
  const Words u;
  const auto rounded = [u](V v) {
    const W bits = hn::BitCast(u, v);
    return hn::Add(bits, hn::Add(hn::Set(u, 0x7fffu), hn::And(hn::ShiftRight<16>(bits), hn::Set(u, 1u))));
  };
  return hn::Or(hn::ShiftRight<16>(rounded(first)), hn::And(rounded(second), hn::Set(u, 0xffff0000u)));
}

template <int kBits, Code kCode>
struct InPairs {
  static HWY_NOINLINE void run(const TurnedCodes& t, float* to) {
    constexpr int64_t kWidth = 32;
    unpack_as<kBits, kCode>(t, [to](int64_t k, int64_t lane) {
      float* block = to + k / 2 * kWidth + lane;
      return [block](int index, V first, V second) {
        hn::StoreU(hn::BitCast(Floats(), pair_of(first, second)), Floats(), block + index / 2 * kWidth);
      };
    });
  }
};

void unpack_pairs(const TurnedCodes& codes, float* to) { by_format<InPairs>(codes.format, codes, to); }
#endif

}  // namespace

const QuantizedColumnsTable& quantized_columns_table() {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  static constexpr QuantizedColumnsTable table = {unpack, unpack_pairs};
#else
  static constexpr QuantizedColumnsTable table = {unpack, nullptr};
#endif
  return table;
}

}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();
