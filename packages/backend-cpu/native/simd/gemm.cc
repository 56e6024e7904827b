// One element of a, broadcast, meets two vectors of b, as in Goto and van de Geijn, "Anatomy of
// high-performance matrix multiplication", 2008. An element's sum runs in the order of k, whatever tile it
// falls into.
#include "simd/gemm.h"

#include "simd/compiler.h"
#include "simd/matrix_tiles.h"
#include "simd/vectors.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_AVX2
constexpr int kHeight = 6, kWideHeight = kHeight, kWideVectors = 2;  // 16 registers
constexpr int kFetches = 0;
#else
constexpr int kHeight = 12, kWideHeight = 8, kWideVectors = 3;  // 32 registers
constexpr int kFetches = 1;
#endif
constexpr int64_t kAhead = 8;  // rows of b that are fetched where it is packed

using V = hn::Vec<Floats>;
HWY_INLINE int64_t lanes() { return int64_t(hn::Lanes(Floats())); }

// The first `count` lanes, at least one. Where a target has no masked accesses, lane by lane.
template <class T>
HWY_INLINE V load_part(const T* x, int64_t count) {
  const Floats d;
#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86
  if constexpr (same_type<T, float>) return hn::MaskedLoad(hn::FirstN(d, size_t(count)), d, x);
#endif
  return load_some(d, x, count, 0);
}
HWY_INLINE void store_part(V v, float* y, int64_t count) {
  const Floats d;
#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86
  hn::BlendedStore(v, hn::FirstN(d, size_t(count)), d, y);
#else
  store_some(d, v, y, count);
#endif
}

template <int Rows, int Vectors>
HWY_INLINE void finish(V (&sum)[Rows][Vectors], const GemmSliver& s, const float* addend, float* c) {
  const Floats d;
  const int64_t N = lanes();
  const auto alpha = hn::Set(d, s.alpha), beta = hn::Set(d, s.beta);
  LZ_UNROLL for (int r = 0; r < Rows; r++) {
    LZ_UNROLL for (int v = 0; v < Vectors; v++) sum[r][v] = hn::Mul(sum[r][v], alpha);
  }
  const int64_t last = s.columns - (Vectors - 1) * N;
  // All loads before all stores: rows whose distance is a multiple of a page would wait for each other.
  if (s.beta != 0) {
    LZ_UNROLL for (int r = 0; r < Rows; r++, addend += s.addend_row) {
      LZ_UNROLL for (int v = 0; v < Vectors; v++) {
        const float* x = addend + v * N;
        const V added = v < Vectors - 1 || last == N ? hn::LoadU(d, x) : load_part(x, last);
        sum[r][v] = hn::MulAdd(added, beta, sum[r][v]);
      }
    }
  }
  LZ_UNROLL for (int r = 0; r < Rows; r++, c += s.c_row) {
    LZ_UNROLL for (int v = 0; v < Vectors - 1; v++) hn::StoreU(sum[r][v], d, c + v * N);
    if (last == N)
      hn::StoreU(sum[r][Vectors - 1], d, c + (Vectors - 1) * N);
    else
      store_part(sum[r][Vectors - 1], c + (Vectors - 1) * N, last);
  }
}

enum class Operands {
  columns,       // a's columns are contiguous
  lines,         // a's rows are contiguous
  packed,        // both are packed for wide tiles, whose steps the compiler then knows
  packing_wide,  // as `lines`, and b, which memory has not given yet, is packed on the way
};

// Three rows of a share a pointer, so that a tile's addresses fit into registers. `Fetches`: so many lines
// from `next` on come into the caches for every four steps.
template <int Rows, int Vectors, Operands Are, int Fetches>
HWY_NOINLINE void tile_of(const GemmSliver& s, const float* a, const float* addend, const float* next,
                          float* c) {
  constexpr bool Packed = Are == Operands::packed, Packs = Are == Operands::packing_wide;
  constexpr bool Lines = Packs || Are == Operands::lines;
  const Floats d;
  const int64_t N = lanes();
  V sum[Rows][Vectors];
  LZ_UNROLL for (int r = 0; r < Rows; r++) {
    LZ_UNROLL for (int v = 0; v < Vectors; v++) sum[r][v] = hn::Zero(d);
  }
  const float* b = s.b;
  const int64_t a_step = Packed ? kWideHeight : s.a_step, b_step = Packed ? kWideVectors * N : s.b_step;
  const int64_t row = s.a_row;
  constexpr int kGroups = (Rows + 2) / 3;
  const float* x[kGroups];
  LZ_UNROLL for (int g = 0; g < kGroups; g++) x[g] = Lines ? a + 3 * g * row : nullptr;
  float* to = Packs ? s.packed : nullptr;
  const auto step = [&]() HWY_ATTR LZ_INLINE_LAMBDA {
    V weight[Vectors];
    LZ_UNROLL for (int v = 0; v < Vectors; v++) {
      if constexpr (Packs) __builtin_prefetch(b + kAhead * b_step + v * N);
      weight[v] = hn::LoadU(d, b + v * N);
      if constexpr (Packs) hn::StoreU(weight[v], d, to + v * N);
    }
    if constexpr (Packs) to += kWideVectors * N;
    LZ_UNROLL for (int r = 0; r < Rows; r++) {
      const auto value = hn::Set(d, Lines ? x[r / 3][r % 3 * row] : a[r]);
      LZ_UNROLL for (int v = 0; v < Vectors; v++) sum[r][v] = hn::MulAdd(value, weight[v], sum[r][v]);
    }
    if constexpr (Lines) {
      LZ_UNROLL for (int g = 0; g < kGroups; g++) x[g]++;
    } else {
      a += a_step;
    }
    b += b_step;
  };
  int64_t k = s.depth;
  // Memory of c that nobody has used for a while arrives while the sums run.
  if constexpr (Fetches > 0) {
    // Not so early that it is gone again, and a row at a time: all at once would keep a and b waiting.
    constexpr int64_t kUnrolled = 4, kLast = kUnrolled * Rows;
    const float* row_of_c = c;
    const auto steps = [&](int64_t last, bool fetch_c) HWY_ATTR LZ_INLINE_LAMBDA {
      for (; k >= last + kUnrolled; k -= kUnrolled, next += 16 * Fetches) {
        LZ_UNROLL for (int i = 0; i < Fetches; i++) __builtin_prefetch(next + 16 * i, 0, 2);
        if (fetch_c) {
          LZ_UNROLL for (int v = 0; v < Vectors; v++) __builtin_prefetch(row_of_c + v * N, 1);
          row_of_c += s.c_row;
        }
        LZ_UNROLL for (int i = 0; i < kUnrolled; i++) step();
      }
      for (; k > last; k--) step();
    };
    steps(k > kLast ? kLast : k, false);
    steps(0, true);
  } else {
    LZ_UNROLL for (int v = 0; v < Vectors; v += Vectors > 1 ? Vectors - 1 : 1) {
      LZ_UNROLL for (int r = 0; r < Rows; r++) __builtin_prefetch(c + r * s.c_row + v * N, 1);
    }
    for (; k > 0; k--) step();
  }
  finish<Rows, Vectors>(sum, s, addend, c);
}

using Tile = void (*)(const GemmSliver&, const float* a, const float* addend, const float* next, float* c);

template <int Rows, int Vectors, Operands Are, int Fetches = 0>
Tile tile_for(int64_t rows) {
  if constexpr (Rows > 1) {
    if (rows < Rows) return tile_for<Rows - 1, Vectors, Are, Fetches>(rows);
  }
  return tile_of<Rows, Vectors, Are, Fetches>;
}

// The tiles of a sliver, each by choose(its rows).
template <class F>
HWY_INLINE void tiles(const GemmSliver& s, F choose) {
  const float *a = s.a, *addend = s.addend, *next = s.next;
  float* c = s.c;
  int64_t left = s.rows;
  const Tile whole = choose(s.height);
  for (; left >= s.height; left -= s.height) {
    whole(s, a, addend, next, c);
    a += s.a_tile, addend += s.height * s.addend_row, c += s.height * s.c_row;
    if (next) next += s.next_tile;
  }
  if (left > 0) choose(left)(s, a, addend, next, c);
}

void sliver(const GemmSliver& s) {
  if (s.next && s.a_step == 1 && s.columns > lanes())
    return tiles(s, [](int64_t rows) { return tile_for<kHeight, 2, Operands::lines, kGemmAhead>(rows); });
  tiles(s, [wide = s.columns > lanes(), lines = s.a_step == 1](int64_t rows) {
    return wide    ? lines ? tile_for<kHeight, 2, Operands::lines>(rows)
                           : tile_for<kHeight, 2, Operands::columns>(rows)
           : lines ? tile_for<kHeight, 1, Operands::lines>(rows)
                   : tile_for<kHeight, 1, Operands::columns>(rows);
  });
}

template <int Vectors, Operands Are>
Tile wide_tile_for(int64_t columns, int64_t rows) {
  if constexpr (Vectors > 1) {
    if (columns <= (Vectors - 1) * lanes()) return wide_tile_for<Vectors - 1, Are>(columns, rows);
  }
  return tile_for<kWideHeight, Vectors, Are, kFetches>(rows);
}

template <int Vectors>
Tile packing_tile_for(int64_t columns) {
  if constexpr (Vectors > 1) {
    if (columns <= (Vectors - 1) * lanes()) return packing_tile_for<Vectors - 1>(columns);
  }
  return tile_of<kWideHeight, Vectors, Operands::packing_wide, 0>;
}

void wide_sliver(const GemmSliver& s) {
  if (s.packed) {
    packing_tile_for<kWideVectors>(s.columns)(s, s.a, s.addend, nullptr, s.c);
    GemmSliver rest = s;
    rest.rows -= s.height;
    rest.a += s.a_tile, rest.addend += s.height * s.addend_row, rest.c += s.height * s.c_row;
    rest.next += s.next_tile;
    rest.b = s.packed, rest.b_step = kWideVectors * lanes();
    rest.packed = nullptr;
    return wide_sliver(rest);
  }
  tiles(s, [&s](int64_t rows) {
    return s.a_step == 1 ? wide_tile_for<kWideVectors, Operands::lines>(s.columns, rows)
                         : wide_tile_for<kWideVectors, Operands::packed>(s.columns, rows);
  });
}

// Two neighbours, as one element that nobody looks into, at the distance of one.
struct bfloat16_pair {
  bfloat16 first;
};
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const bfloat16_pair* x) {
  return hn::LoadU(d, reinterpret_cast<const float*>(x));
}
template <class T>
HWY_INLINE float element(const T* x) {
  return to_float(*x);
}
HWY_INLINE float element(const bfloat16_pair* x) {
  float pair;
  memcpy(&pair, x, 4);
  return pair;
}
template <class T>
inline constexpr int64_t kUnit = same_type<T, bfloat16_pair> ? 2 : 1;

// The squares of 4 × 4 of four vectors' blocks, turned.
template <class D>
HWY_INLINE void turn_squares(D d, hn::Vec<D> a, hn::Vec<D> b, hn::Vec<D> c, hn::Vec<D> e, float* to,
                             int64_t height) {
  const auto p = hn::InterleaveLower(d, a, c), q = hn::InterleaveLower(d, b, e);
  const auto r = hn::InterleaveUpper(d, a, c), s = hn::InterleaveUpper(d, b, e);
  hn::StoreU(hn::InterleaveLower(d, p, q), d, to);
  hn::StoreU(hn::InterleaveUpper(d, p, q), d, to + height);
  hn::StoreU(hn::InterleaveLower(d, r, s), d, to + 2 * height);
  hn::StoreU(hn::InterleaveUpper(d, r, s), d, to + 3 * height);
}

#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
// Four floats of each fourth row.
template <class T>
HWY_INLINE hn::Vec<hn::FixedTag<float, 16>> fours(const T* x, int64_t ld) {
  const hn::FixedTag<float, 4> d;
  __m512 v = _mm512_castps128_ps512(load(d, x).raw);
  v = _mm512_mask_broadcast_f32x4(v, 0x00f0, load(d, x + 4 * ld).raw);
  v = _mm512_mask_broadcast_f32x4(v, 0x0f00, load(d, x + 8 * ld).raw);
  v = _mm512_mask_broadcast_f32x4(v, 0xf000, load(d, x + 12 * ld).raw);
  return hn::Vec<hn::FixedTag<float, 16>>{v};
}
#endif

// Squares of 4 × 4 are turned in registers, four at once where those have as many.
template <class T>
void turn_tile(const T* from, int64_t ld, int64_t count, int64_t depth, float* to, int64_t height,
               bool fill) {
  int64_t i = 0;
  const auto rest = [&](int64_t k, int64_t rows) {
    for (; k < depth; k++) {
      for (int64_t j = 0; j < rows; j++) to[k * height + i + j] = element(from + (i + j) * ld + k * kUnit<T>);
    }
  };
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  for (; i + 16 <= count; i += 16) {
    int64_t k = 0;
    for (; k + 4 <= depth; k += 4) {
      const T* x = from + i * ld + k * kUnit<T>;
      turn_squares(hn::FixedTag<float, 16>(), fours(x, ld), fours(x + ld, ld), fours(x + 2 * ld, ld),
                   fours(x + 3 * ld, ld), to + k * height + i, height);
    }
    rest(k, 16);
  }
#endif
  for (; i + 4 <= count; i += 4) {
    int64_t k = 0;
    for (; k + 4 <= depth; k += 4) {
      const hn::FixedTag<float, 4> d;
      const T* x = from + i * ld + k * kUnit<T>;
      turn_squares(d, load(d, x), load(d, x + ld), load(d, x + 2 * ld), load(d, x + 3 * ld),
                   to + k * height + i, height);
    }
    rest(k, 4);
  }
  rest(0, count - i);
  for (i = count; i < height && fill; i++) {
    for (int64_t k = 0; k < depth; k++) to[k * height + i] = 0;
  }
}

template <class T>
void turn(const GemmPack& p) {
  const T* from = static_cast<const T*>(p.from);
  float* to = p.to;
  for (int64_t left = p.count; left > 0; left -= p.height, from += p.height * p.ld, to += p.tile)
    turn_tile(from, p.ld, left < p.height ? left : p.height, p.depth, to, p.height, p.fill);
}

// Row after row of what is stored, so that memory is read in its order.
template <class T>
void copy(const GemmPack& p) {
  const Floats d;
  const hn::FixedTag<float, 4> four;
  const int64_t N = lanes(), height = p.height;
  const bool vectors = height % N == 0 && p.fill;
  const T* from = static_cast<const T*>(p.from);
  float* line = p.to;
  for (int64_t k = 0; k < p.depth; k++, from += p.ld, line += height) {
    float* to = line;
    const T* x = from;
    int64_t left = p.count;
    if (height % N == 0) {
      for (; left >= height; left -= height, x += height, to += p.tile) {
        for (int64_t i = 0; i < height; i += N) {
          __builtin_prefetch(x + 4 * p.ld + i);
          hn::StoreU(load(d, x + i), d, to + i);
        }
      }
    }
    for (; left > 0; left -= height, x += height, to += p.tile) {
      const int64_t count = left < height ? left : height;
      int64_t i = 0;
      if (vectors) {
        for (; i < count; i += N)
          hn::StoreU(i + N <= count ? load(d, x + i) : load_part(x + i, count - i), d, to + i);
        for (; i < height; i += N) hn::StoreU(hn::Zero(d), d, to + i);
        continue;
      }
      for (; i + 4 <= count; i += 4) hn::StoreU(load(four, x + i), four, to + i);
      for (; i < count; i++) to[i] = to_float(x[i]);
      for (; i < height && p.fill; i++) to[i] = 0;
    }
  }
}

#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
template <int Rows, int Vectors>
LZ_PAIRS HWY_NOINLINE void pair_tile_of(const GemmSliver& s, const float* a, const float* addend,
                                        const float*, float* c) {
  const Floats d;
  V sum[Rows][Vectors];
  LZ_UNROLL for (int r = 0; r < Rows; r++) {
    __builtin_prefetch(c + r * s.c_row, 1);
    LZ_UNROLL for (int v = 0; v < Vectors; v++) sum[r][v] = hn::Zero(d);
  }
  const float* b = s.b;
  const int64_t a_step = s.a_step, b_step = s.b_step;
  for (int64_t k = s.depth; k > 0; k--, b += b_step, a += a_step) {
    __m512bh weight[Vectors];
    LZ_UNROLL for (int v = 0; v < Vectors; v++) weight[v] = (__m512bh)_mm512_loadu_ps(b + v * 16);
    LZ_UNROLL for (int r = 0; r < Rows; r++) {
      const auto value = (__m512bh)_mm512_set1_ps(a[r]);
      LZ_UNROLL for (int v = 0; v < Vectors; v++) sum[r][v].raw =
          _mm512_dpbf16_ps(sum[r][v].raw, value, weight[v]);
    }
  }
  finish<Rows, Vectors>(sum, s, addend, c);
}

template <int Rows, int Vectors>
Tile pair_tile_for(int64_t rows) {
  if constexpr (Rows > 1) {
    if (rows < Rows) return pair_tile_for<Rows - 1, Vectors>(rows);
  }
  return pair_tile_of<Rows, Vectors>;
}

void pair_sliver(const GemmSliver& s) {
  tiles(s, [wide = s.columns > lanes()](int64_t rows) {
    return wide ? pair_tile_for<kHeight, 2>(rows) : pair_tile_for<kHeight, 1>(rows);
  });
}

// Two elements that follow each other are a float's bits: what is left is turning those.
void pair_turn(const GemmPack& p) {
  const auto* from = static_cast<const uint16_t*>(p.from);
  const int64_t pairs = p.depth / 2;
  float* to = p.to;
  for (int64_t left = p.count; left > 0; left -= p.height, from += p.height * p.ld, to += p.tile) {
    const int64_t count = left < p.height ? left : p.height;
    turn_tile(reinterpret_cast<const bfloat16_pair*>(from), p.ld, count, pairs, to, p.height, p.fill);
    if (p.depth % 2 == 0) continue;
    for (int64_t i = 0; i < (p.fill ? p.height : count); i++) {
      const uint32_t last = i < count ? from[i * p.ld + p.depth - 1] : 0;
      memcpy(to + pairs * p.height + i, &last, 4);
    }
  }
}

void pair_copy(const GemmPack& p) {
  const Floats d;
  const hn::Rebind<uint16_t, Floats> half;
  const hn::RebindToUnsigned<Floats> u;
  const int64_t N = lanes(), height = p.height;
  const auto* from = static_cast<const uint16_t*>(p.from);
  float* line = p.to;
  for (int64_t k = 0; k < p.depth; k += 2, from += 2 * p.ld, line += height) {
    const uint16_t *x = from, *y = k + 1 < p.depth ? from + p.ld : nullptr;
    float* to = line;
    for (int64_t left = p.count; left > 0;
         left -= height, x += height, y = y ? y + height : y, to += p.tile) {
      const int64_t count = left < height ? left : height;
      int64_t i = 0;
      for (; i + N <= count; i += N) {
        const auto low = hn::PromoteTo(u, hn::LoadU(half, x + i));
        const auto high = y ? hn::PromoteTo(u, hn::LoadU(half, y + i)) : hn::Zero(u);
        hn::StoreU(hn::BitCast(d, hn::Or(low, hn::ShiftLeft<16>(high))), d, to + i);
      }
      for (; i < (p.fill ? height : count); i++) {
        const uint32_t pair = i < count ? uint32_t(x[i]) | (y ? uint32_t(y[i]) << 16 : 0) : 0;
        memcpy(to + i, &pair, 4);
      }
    }
  }
}

// Pairs of bfloat16 in rows, for a matrix unit.
int64_t matrix_depth(int64_t k) { return ((k + 1) / 2 + kTile - 1) / kTile * kTile; }

// to[k · step + i] = from[i · ld + k]
void turn_part(const float* from, int64_t ld, int64_t count, int64_t depth, float* to, int64_t step) {
  turn_tile(from, ld, count, depth, to, step, false);
}

void matrix_rows(const GemmPack& p) {
  const int64_t depth = matrix_depth(p.depth);
  const auto* from = static_cast<const uint16_t*>(p.from);
  for (int64_t i = 0; i < p.count; i++, from += p.ld) {
    float* to = p.to + i / p.height * p.tile + i % p.height * depth;
    memcpy(to, from, size_t(p.depth) * 2);
    memset(reinterpret_cast<uint16_t*>(to) + p.depth, 0, size_t(2 * depth - p.depth) * 2);
  }
}

void matrix_turned(const GemmPack& p) {
  constexpr int64_t kPart = 256;  // elements of a depth that are turned at a time
  HWY_ALIGN float pairs[kPart / 2 * 2 * kTile];
  const int64_t depth = matrix_depth(p.depth);
  const auto* from = static_cast<const uint16_t*>(p.from);
  for (int64_t i = 0; i < p.count; i += p.height) {
    const int64_t count = p.count - i < p.height ? p.count - i : p.height;
    float* to = p.to + i / p.height * p.tile;
    for (int64_t k = 0; k < p.depth; k += kPart) {
      const int64_t length = p.depth - k < kPart ? p.depth - k : kPart;
      pair_copy({from + k * p.ld + i, pairs, p.ld, count, length, p.height, 0, true});
      turn_part(pairs, p.height, (length + 1) / 2, count, to + k / 2, depth);
    }
    for (int64_t r = 0; r < count; r++) {
      for (int64_t pair = (p.depth + 1) / 2; pair < depth; pair++) to[r * depth + pair] = 0;
    }
  }
}
#endif

GemmTable make_table() {
  GemmTable table{};
  table.height = kHeight;
  table.lanes = int32_t(lanes());
  table.sliver = sliver;
  table.wide_height = kWideHeight, table.wide_vectors = kWideVectors;
  table.wide_sliver = wide_sliver;
  table.turn[kFloat32] = turn<float>;
  table.turn[kFloat16] = turn<float16>;
  table.turn[kBfloat16] = turn<bfloat16>;
  table.copy[kFloat32] = copy<float>;
  table.copy[kFloat16] = copy<float16>;
  table.copy[kBfloat16] = copy<bfloat16>;
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512bf16")) table.pair_sliver = pair_sliver;
  if (const MatrixLoops matrix = choose_matrix_loops(); matrix.sliver)
    table.pair_sliver = matrix.sliver, table.matrix = true, table.matrix_strip = matrix.strip;
  table.pair_turn = pair_turn, table.pair_copy = pair_copy;
  table.matrix_rows = matrix_rows, table.matrix_turned = matrix_turned;
#endif
  return table;
}

}  // namespace

const GemmTable& gemm_table() {
  static const GemmTable table = make_table();
  return table;
}

}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();
