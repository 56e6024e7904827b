// Products of pairs of bfloat16 by tiles of a matrix unit (AMX): 16 rows of 16 pairs of a times 16 pairs of
// 16 columns of b at a time. Tiles are a template's parameter, so that the loops around them are tested on
// any processor, with tiles in plain C++.
#ifndef LAZULI_SIMD_MATRIX_TILES_H
#define LAZULI_SIMD_MATRIX_TILES_H

#include <stdlib.h>
#include <string.h>
#if defined(__linux__) && defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "simd/compiler.h"
#include "simd/gemm.h"
#include "simd/vectors.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
// Of a tile: rows, and elements of four bytes in a row of it.
constexpr int64_t kTile = 16;

// Tiles 0 to 3 are sums, 4 and 5 of a, 6 and 7 of b, which alone have all rows.
struct PlainTiles {
  float sum[4][kTile][kTile];
  uint32_t pairs[8][kTile][kTile];
  int64_t rows;
  void begin(int64_t count) { rows = count; }
  void end() {}
  template <int kSum>
  void zero() {
    memset(sum[kSum], 0, sizeof sum[kSum]);
  }
  template <int kSum>
  void resume(const float* from, int64_t stride) {
    for (int64_t i = 0; i < rows; i++) memcpy(sum[kSum][i], from + i * stride, sizeof sum[kSum][i]);
  }
  template <int kTo>
  void load(const float* from, int64_t stride) {
    for (int64_t i = 0; i < (kTo < 6 ? rows : kTile); i++)
      memcpy(pairs[kTo][i], from + i * stride, sizeof pairs[kTo][i]);
  }
  template <int kSum, int kA, int kB>
  void multiply() {
    const auto element = [](uint32_t bits) {
      float value;
      memcpy(&value, &bits, 4);
      return value;
    };
    for (int64_t i = 0; i < rows; i++) {
      for (int64_t k = 0; k < kTile; k++) {
        const uint32_t a = pairs[kA][i][k];
        for (int64_t j = 0; j < kTile; j++) {
          const uint32_t b = pairs[kB][k][j];
          sum[kSum][i][j] +=
              element(a << 16) * element(b << 16) + element(a & 0xffff0000u) * element(b & 0xffff0000u);
        }
      }
    }
  }
  template <int kSum>
  void store(float* to, int64_t stride) const {
    for (int64_t i = 0; i < rows; i++) memcpy(to + i * stride, sum[kSum][i], sizeof sum[kSum][i]);
  }
};

#if defined(__linux__)
#define LZ_MATRIX __attribute__((target("amx-tile,amx-bf16")))
struct MatrixTiles {
  LZ_MATRIX HWY_INLINE void begin(int64_t rows) {
    struct alignas(64) {
      uint8_t palette = 1, start = 0, reserved[14] = {};
      uint16_t bytes[16] = {};
      uint8_t rows[16] = {};
    } shape;
    for (int i = 0; i < 8; i++) shape.bytes[i] = 64, shape.rows[i] = uint8_t(i < 6 ? rows : kTile);
    _tile_loadconfig(&shape);
  }
  LZ_MATRIX HWY_INLINE void end() { _tile_release(); }
  template <int kSum>
  LZ_MATRIX HWY_INLINE void zero() {
    if constexpr (kSum == 0) _tile_zero(0);
    if constexpr (kSum == 1) _tile_zero(1);
    if constexpr (kSum == 2) _tile_zero(2);
    if constexpr (kSum == 3) _tile_zero(3);
  }
  template <int kSum>
  LZ_MATRIX HWY_INLINE void resume(const float* from, int64_t stride) {
    load<kSum>(from, stride);
  }
  template <int kTo>
  LZ_MATRIX HWY_INLINE void load(const float* from, int64_t stride) {
    if constexpr (kTo == 0) _tile_loadd(0, from, stride * 4);
    if constexpr (kTo == 1) _tile_loadd(1, from, stride * 4);
    if constexpr (kTo == 2) _tile_loadd(2, from, stride * 4);
    if constexpr (kTo == 3) _tile_loadd(3, from, stride * 4);
    if constexpr (kTo == 4) _tile_loadd(4, from, stride * 4);
    if constexpr (kTo == 5) _tile_loadd(5, from, stride * 4);
    if constexpr (kTo == 6) _tile_loadd(6, from, stride * 4);
    if constexpr (kTo == 7) _tile_loadd(7, from, stride * 4);
  }
  template <int kSum, int kA, int kB>
  LZ_MATRIX HWY_INLINE void multiply() {
    if constexpr (kSum == 0) _tile_dpbf16ps(0, 4, 6);
    if constexpr (kSum == 1) _tile_dpbf16ps(1, 4, 7);
    if constexpr (kSum == 2) _tile_dpbf16ps(2, 5, 6);
    if constexpr (kSum == 3) _tile_dpbf16ps(3, 5, 7);
  }
  template <int kSum>
  LZ_MATRIX HWY_INLINE void store(float* to, int64_t stride) {
    if constexpr (kSum == 0) _tile_stored(0, to, stride * 4);
    if constexpr (kSum == 1) _tile_stored(1, to, stride * 4);
    if constexpr (kSum == 2) _tile_stored(2, to, stride * 4);
    if constexpr (kSum == 3) _tile_stored(3, to, stride * 4);
  }
};

// True where the processor has tiles and the kernel lets this process use them, which it must be asked for.
bool has_matrix_tiles() {
  constexpr int kAskPermission = 0x1023, kTileData = 18;
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  const bool tiles = (d >> 24 & 1) && (d >> 22 & 1);
  return tiles && syscall(SYS_arch_prctl, kAskPermission, kTileData) == 0;
}
#else
#define LZ_MATRIX
using MatrixTiles = PlainTiles;
bool has_matrix_tiles() { return false; }
#endif

// Up to two tiles of rows times one or two of columns, added to what `to` has where `added`. Rows of a are
// a_row apart and as long as the depth, a multiple of kTile; what a tile has beyond the rows that there are
// may be anything.
template <class Tiles, bool kTall, bool kWide>
LZ_MATRIX HWY_NOINLINE void sum_tiles(Tiles& t, const GemmSliver& s, const float* a, bool added, float* to,
                                      int64_t ld) {
  float* below = to + kTile * ld;
  if (added) {
    t.template resume<0>(to, ld);
    if constexpr (kWide) t.template resume<1>(to + kTile, ld);
    if constexpr (kTall) t.template resume<2>(below, ld);
    if constexpr (kTall && kWide) t.template resume<3>(below + kTile, ld);
  } else {
    t.template zero<0>();
    if constexpr (kWide) t.template zero<1>();
    if constexpr (kTall) t.template zero<2>();
    if constexpr (kTall && kWide) t.template zero<3>();
  }
  const float* b = s.b;
  for (int64_t k = 0; k < s.depth; k += kTile, a += kTile, b += kTile * s.b_step) {
    t.template load<4>(a, s.a_row);
    t.template load<6>(b, s.b_step);
    if constexpr (kWide) t.template load<7>(b + kTile, s.b_step);
    t.template multiply<0, 4, 6>();
    if constexpr (kWide) t.template multiply<1, 4, 7>();
    if constexpr (kTall) {
      t.template load<5>(a + kTile * s.a_row, s.a_row);
      t.template multiply<2, 5, 6>();
      if constexpr (kWide) t.template multiply<3, 5, 7>();
    }
  }
  t.template store<0>(to, ld);
  if constexpr (kWide) t.template store<1>(to + kTile, ld);
  if constexpr (kTall) t.template store<2>(below, ld);
  if constexpr (kTall && kWide) t.template store<3>(below + kTile, ld);
}

template <class Tiles>
LZ_MATRIX void matrix_sliver(const GemmSliver& s) {
  constexpr int64_t kStep = 2 * kTile;
  HWY_ALIGN float sums[kStep * kStep];
  Tiles tiles;
  tiles.begin(kTile);
  const bool wide = s.columns > kTile, whole = s.columns == kTile || s.columns == kStep;
  // Sums begin with those of the block of the depth before, in whole tiles and in parts.
  const bool resumes = s.beta == 1 && s.alpha == 1;
  for (int64_t i = 0; i < s.rows; i += s.height) {
    const int64_t rows = s.rows - i < s.height ? s.rows - i : s.height;
    const float* a = s.a + i / s.height * s.a_tile;
    const float* addend = s.addend + i * s.addend_row;
    float* c = s.c + i * s.c_row;
    const bool tall = rows > kTile;
    const bool direct = whole && (rows == kTile || rows == kStep) && s.alpha == 1 &&
                        (s.beta == 0 || (resumes && addend == c && s.addend_row == s.c_row));
    float* to = direct ? c : sums;
    const int64_t ld = direct ? s.c_row : kStep;
    if (resumes && !direct) {
      for (int64_t r = 0; r < rows; r++)
        memcpy(sums + r * kStep, addend + r * s.addend_row, size_t(s.columns) * sizeof(float));
    }
    const auto sum = tall   ? wide ? sum_tiles<Tiles, true, true> : sum_tiles<Tiles, true, false>
                     : wide ? sum_tiles<Tiles, false, true>
                            : sum_tiles<Tiles, false, false>;
    sum(tiles, s, a, resumes, to, ld);
    if (direct) continue;
    for (int64_t r = 0; r < rows; r++, c += s.c_row, addend += s.addend_row) {
      const float* from = sums + r * kStep;
      if (resumes) {
        memcpy(c, from, size_t(s.columns) * sizeof(float));
      } else if (s.beta == 0) {
        for (int32_t j = 0; j < s.columns; j++) c[j] = from[j] * s.alpha;
      } else {
        for (int32_t j = 0; j < s.columns; j++) c[j] = addend[j] * s.beta + from[j] * s.alpha;
      }
    }
  }
  tiles.end();
}

// Of a strip of b that is interleaved at a time, and from where on the next rows are fetched.
constexpr int64_t kStripDepth = 128, kStripAhead = 64;

// Pairs of neighbours in each column of a strip of b, `deep` of its rows from k on, as slivers of 32 columns
// that are `step` apart, in the order in which Highway interleaves them. What memory gives next is fetched by
// the way: the processor does not see so many short runs coming.
HWY_INLINE void interleave(const GemmStrip& p, int64_t k, int64_t deep, float* to, int64_t step) {
  const hn::FixedTag<uint16_t, 32> d;
  const auto row = [&p](int64_t at) {
    return at < p.depth ? p.b + at * p.b_row : p.next ? p.next + (at - p.depth) * p.b_row : nullptr;
  };
  const auto store = [d](auto low, auto high, float* pairs) HWY_ATTR LZ_INLINE_LAMBDA {
    hn::Store(hn::InterleaveLower(d, low, high), d, reinterpret_cast<uint16_t*>(pairs));
    hn::Store(hn::InterleaveUpper(d, low, high), d, reinterpret_cast<uint16_t*>(pairs + kTile));
  };
  for (int64_t i = 0; i < deep; i += 2, to += 2 * kTile) {
    const uint16_t *x = row(k + i), *y = k + i + 1 < p.depth ? x + p.b_row : nullptr;
    const uint16_t *next = row(k + i + kStripAhead), *after = row(k + i + 1 + kStripAhead);
    float* pairs = to;
    int64_t j = 0;
    for (; j + 32 <= p.columns; j += 32, pairs += step) {
      if (next) __builtin_prefetch(next + j, 0, 2);
      if (after) __builtin_prefetch(after + j, 0, 2);
      store(hn::LoadU(d, x + j), y ? hn::LoadU(d, y + j) : hn::Zero(d), pairs);
    }
    if (j == p.columns) continue;
    const auto rest = hn::FirstN(d, size_t(p.columns - j));
    store(hn::MaskedLoad(rest, d, x + j), y ? hn::MaskedLoad(rest, d, y + j) : hn::Zero(d), pairs);
  }
}

template <class Tiles>
LZ_MATRIX void matrix_strip(const GemmStrip& p) {
  constexpr int64_t kWide = 2 * kTile, kStep = kStripDepth / 2 * kWide;
  HWY_ALIGN float pairs[kGemmStrip / kWide * kStep];
  Tiles tiles;
  tiles.begin(p.rows);
  GemmSliver s{};
  s.a_row = p.a_row;
  s.b_step = kWide;
  for (int64_t k = 0; k < p.depth; k += kStripDepth) {
    const int64_t deep = p.depth - k < kStripDepth ? p.depth - k : kStripDepth, count = (deep + 1) / 2;
    interleave(p, k, deep, pairs, kStep);
    s.depth = (count + kTile - 1) / kTile * kTile;
    for (int64_t j = 0; j < p.columns; j += kWide) {
      float* b = pairs + j / kWide * kStep;
      memset(b + count * kWide, 0, size_t((s.depth - count) * kWide) * sizeof(float));
      s.b = b;
      sum_tiles<Tiles, false, true>(tiles, s, p.a + k / 2, k > 0, p.c + j, p.c_row);
    }
  }
  tiles.end();
  // Columns back into their order, four by four.
  for (int64_t i = 0; i < p.rows; i++) {
    for (int64_t j = 0; j < p.columns; j += kWide) {
      float *c = p.c + i * p.c_row + j, sums[kWide];
      memcpy(sums, c, sizeof sums);
      for (int q = 0; q < 4; q++) {
        memcpy(c + 8 * q, sums + 4 * q, 16);
        memcpy(c + 8 * q + 4, sums + kTile + 4 * q, 16);
      }
    }
  }
}

struct MatrixLoops {
  void (*sliver)(const GemmSliver&);
  void (*strip)(const GemmStrip&);
};

// By tiles as LAZULI_TILES names them: `0` none, `plain` those in C++, else the processor's. Null where there
// are none.
MatrixLoops choose_matrix_loops() {
  const char* wish = getenv("LAZULI_TILES");
  if (wish && strcmp(wish, "plain") == 0) return {matrix_sliver<PlainTiles>, matrix_strip<PlainTiles>};
  if ((wish && strcmp(wish, "0") == 0) || !has_matrix_tiles()) return {};
  return {matrix_sliver<MatrixTiles>, matrix_strip<MatrixTiles>};
}
#endif

}  // namespace
}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();

#endif
