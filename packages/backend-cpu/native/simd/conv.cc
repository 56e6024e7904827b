// Register tiles of convolutions. A tile keeps rows × 2 vectors of sums: one broadcast input element meets
// two vectors of output channels, as in the matrix products of Goto and van de Geijn, "Anatomy of
// high-performance matrix multiplication", 2008.
#include "simd/conv.h"

#include "simd/compiler.h"
#include "simd/vectors.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

// Rows of a tile: two vectors of sums each, and room for the operands. Tiles of pixels have a pointer for
// every row, which want general registers.
#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_AVX2
constexpr int kTileRows = 6, kOuterRows = 6, kPixels = 8;  // 16 registers
#else
constexpr int kTileRows = 12, kOuterRows = 14, kPixels = 14;  // 32 registers
#endif

template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
using Vector = hn::Vec<Tag<T>>;

// Where 512-bit units do two 256-bit operations in a cycle, or one of 512 bits, few columns lose nothing in
// half a vector.
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
template <class T>
using NarrowTag = hn::Half<Tag<T>>;
#else
template <class T>
using NarrowTag = Tag<T>;
#endif

template <class T>
HWY_INLINE int64_t lanes() {
  return int64_t(hn::Lanes(Tag<T>()));
}
template <class T>
HWY_INLINE int64_t narrow_lanes() {
  return int64_t(hn::Lanes(NarrowTag<T>()));
}

// The first `count` elements; nothing beyond them is touched.
template <class T>
HWY_INLINE Vector<T> take(const T* x, int64_t count) {
  const Tag<T> d;
  if (count >= lanes<T>()) return hn::LoadU(d, x);
  HWY_ALIGN T buffer[hn::MaxLanes(d)];
  hn::Store(hn::Zero(d), d, buffer);
  for (int64_t i = 0; i < count; i++) buffer[i] = x[i];
  return hn::Load(d, buffer);
}
template <class T>
HWY_INLINE void put(Vector<T> v, T* y, int64_t count) {
  const Tag<T> d;
  if (count >= lanes<T>()) return hn::StoreU(v, d, y);
  HWY_ALIGN T buffer[hn::MaxLanes(d)];
  hn::Store(v, d, buffer);
  for (int64_t i = 0; i < count; i++) y[i] = buffer[i];
}

// The columns of a tile that does not fill its vectors.
template <class T>
HWY_NOINLINE void finish_part(const T* sums, int rows, int64_t width, T* const* y, int64_t columns,
                              bool add) {
  for (int r = 0; r < rows; r++, sums += width) {
    for (int64_t j = 0; j < columns; j++) y[r][j] = add ? y[r][j] + sums[j] : sums[j];
  }
}

template <class T>
inline constexpr int64_t kLine = 64 / int64_t(sizeof(T));

// Adds the tile to memory, or stores it.
template <class D, int Rows, int Vectors, class T = hn::TFromD<D>>
HWY_INLINE void finish(D d, const hn::Vec<D> (&sum)[Rows][Vectors], T* const* y, int64_t columns, bool add) {
  const int64_t N = int64_t(hn::Lanes(d));
  if (columns < Vectors * N) {
    HWY_ALIGN T sums[Rows * Vectors * hn::MaxLanes(d)];
    LZ_UNROLL for (int r = 0; r < Rows; r++) {
      LZ_UNROLL for (int v = 0; v < Vectors; v++) hn::Store(sum[r][v], d, sums + (r * Vectors + v) * N);
    }
    return finish_part(sums, Rows, Vectors * N, y, columns, add);
  }
  LZ_UNROLL for (int r = 0; r < Rows; r++) {
    LZ_UNROLL for (int v = 0; v < Vectors; v++) {
      T* to = y[r] + v * N;
      hn::StoreU(add ? hn::Add(hn::LoadU(d, to), sum[r][v]) : sum[r][v], d, to);
    }
  }
}

template <class D, int Rows, int Vectors, class T = hn::TFromD<D>>
void tile_of(const ConvTile<T>& t) {
  const D d;
  const int64_t N = int64_t(hn::Lanes(d));
  hn::Vec<D> sum[Rows][Vectors];
  LZ_UNROLL for (int r = 0; r < Rows; r++) {
    LZ_UNROLL for (int v = 0; v < Vectors; v++) sum[r][v] = hn::Zero(d);
  }
  T* y[Rows];
  LZ_UNROLL for (int r = 0; r < Rows; r++) y[r] = t.y[r] + t.column;
  int64_t fetched = 0;
  const T* w = t.w;
  const int64_t length = t.length;
  for (int64_t tap = 0; tap < t.taps; tap++) {
    const T* x[Rows];
    LZ_UNROLL for (int r = 0; r < Rows; r++) x[r] = t.x[r] + t.offsets[tap];
    // The results' lines are fetched while the sums run, some with every tap.
    for (; fetched * t.taps < (tap + 1) * Rows; fetched++) {
      for (int v = 0; v < Vectors; v++) __builtin_prefetch(t.y[fetched] + t.column + v * N, 1);
    }
    const auto add = [&](int64_t i) HWY_ATTR LZ_INLINE_LAMBDA {
      hn::Vec<D> weight[Vectors];
      LZ_UNROLL for (int v = 0; v < Vectors; v++) weight[v] = hn::LoadU(d, w + v * N);
      LZ_UNROLL for (int r = 0; r < Rows; r++) {
        const auto a = hn::Set(d, x[r][i]);
        LZ_UNROLL for (int v = 0; v < Vectors; v++) sum[r][v] = hn::MulAdd(a, weight[v], sum[r][v]);
      }
      w += Vectors * N;
    };
    int64_t i = 0;
    for (; t.next > 0 && i < length;) {
      for (int r = 0; r < t.next; r++) __builtin_prefetch(t.x[Rows + r] + t.offsets[tap] + i);
      const int64_t stop = length - i < kLine<T> ? length : i + kLine<T>;
      for (; i < stop; i++) add(i);
    }
    for (; i < length; i++) add(i);
  }
  finish<D, Rows, Vectors>(d, sum, y, t.columns, t.add);
}

template <class T, int Rows, int Vectors>
void outer_of(const ConvOuter<T>& t) {
  const Tag<T> d;
  const int64_t N = lanes<T>();
  Vector<T> sum[Rows][Vectors];
  LZ_UNROLL for (int r = 0; r < Rows; r++) {
    LZ_UNROLL for (int v = 0; v < Vectors; v++) sum[r][v] = hn::Zero(d);
  }
  const int64_t a_step = t.a_step, b_step = t.b_step;
  for (const ConvRun<T>*run = t.runs, *end = run + t.n_runs; run != end; run++) {
    const T *a = run->a, *b = run->b;
    for (int64_t i = 0; i < run->count; i++, a += a_step, b += b_step) {
      Vector<T> weight[Vectors];
      LZ_UNROLL for (int v = 0; v < Vectors; v++) weight[v] = hn::LoadU(d, b + v * N);
      LZ_UNROLL for (int r = 0; r < Rows; r++) {
        const auto x = hn::Set(d, a[r]);
        LZ_UNROLL for (int v = 0; v < Vectors; v++) sum[r][v] = hn::MulAdd(x, weight[v], sum[r][v]);
      }
    }
  }
  T* y[Rows];
  LZ_UNROLL for (int r = 0; r < Rows; r++) y[r] = t.y + r * t.y_step;
  finish<Tag<T>, Rows, Vectors>(d, sum, y, t.columns, true);
}

// Calls f.operator()<Rows, Vectors>() for the tile's size.
template <int Rows, class F>
HWY_INLINE void for_size(int rows, bool wide, F f) {
  if constexpr (Rows > 1) {
    if (rows < Rows) return for_size<Rows - 1>(rows, wide, f);
  }
  if (wide)
    f.template operator()<Rows, 2>();
  else
    f.template operator()<Rows, 1>();
}

template <class T>
void tile(const ConvTile<T>& t) {
  if (t.columns <= narrow_lanes<T>())
    return for_size<kTileRows>(t.rows, false,
                               [&]<int Rows, int Vectors>() { tile_of<NarrowTag<T>, Rows, 1>(t); });
  for_size<kTileRows>(t.rows, t.columns > lanes<T>(),
                      [&]<int Rows, int Vectors>() { tile_of<Tag<T>, Rows, Vectors>(t); });
}
template <class T>
void outer(const ConvOuter<T>& t) {
  for_size<kOuterRows>(t.rows, t.columns > lanes<T>(),
                       [&]<int Rows, int Vectors>() { outer_of<T, Rows, Vectors>(t); });
}

// `count` lanes of Pixels neighbouring pixels, in Vectors vectors of which the last one may be a part.
template <class T, int Pixels, int Vectors>
HWY_INLINE void lanes_of(const ConvLanes<T>& t, const T* x, T* y, int64_t c, int64_t count) {
  const Tag<T> d;
  const int64_t N = lanes<T>(), last = count - (Vectors - 1) * N;
  const auto some = [&](const T* from, int v) HWY_ATTR LZ_INLINE_LAMBDA {
    return v < Vectors - 1 ? hn::LoadU(d, from + v * N) : take(from + v * N, last);
  };
  Vector<T> sum[Pixels][Vectors];
  LZ_UNROLL for (int p = 0; p < Pixels; p++) {
    LZ_UNROLL for (int v = 0; v < Vectors; v++) sum[p][v] =
        t.add ? some(y + p * t.y_step + c, v) : hn::Zero(d);
  }
  for (int64_t tap = 0; tap < t.taps; tap++) {
    const T *w = t.w + t.w_offsets[tap] + c, *from = x + t.x_offsets[tap] + c;
    for (int64_t r = 0; r < t.run; r++, w += t.channels, from += t.x_step) {
      LZ_UNROLL for (int v = 0; v < Vectors; v++) {
        const auto weight = some(w, v);
        LZ_UNROLL for (int p = 0; p < Pixels; p++) sum[p][v] =
            hn::MulAdd(some(from + p * t.x_step, v), weight, sum[p][v]);
      }
    }
  }
  LZ_UNROLL for (int p = 0; p < Pixels; p++) {
    LZ_UNROLL for (int v = 0; v < Vectors; v++)
        put(sum[p][v], y + p * t.y_step + c + v * N, v < Vectors - 1 ? N : last);
  }
}

// A vector of lanes of Pixels neighbouring pixels, whose taps are runs of Run neighbours: an input vector is
// read once for all pixels that a run's taps bring it to. At an `Edge` only those exist whose bit is set: the
// first and the last ones may not.
template <class T, int Pixels, int Run, bool Edge>
HWY_INLINE void lanes_of_run(const ConvLanes<T>& t, const T* x, T* y, int64_t c, uint32_t existing) {
  const Tag<T> d;
  Vector<T> sum[Pixels];
  LZ_UNROLL for (int p = 0; p < Pixels; p++) sum[p] =
      t.add ? hn::LoadU(d, y + p * t.y_step + c) : hn::Zero(d);
  const int64_t step = t.x_step;
  for (int64_t tap = 0; tap < t.taps; tap++) {
    const T *w = t.w + t.w_offsets[tap] + c, *from = x + t.x_offsets[tap] + c;
    Vector<T> weight[Run];
    LZ_UNROLL for (int r = 0; r < Run; r++) weight[r] = hn::LoadU(d, w + r * t.channels);
    LZ_UNROLL for (int i = 0; i < Pixels + Run - 1; i++) {
      if (Edge && (i < Run - 1 || i >= Pixels) && !(existing >> i & 1)) continue;
      const auto value = hn::LoadU(d, from + i * step);
      LZ_UNROLL for (int r = 0; r < Run; r++) {
        if (i >= r && i - r < Pixels) sum[i - r] = hn::MulAdd(value, weight[r], sum[i - r]);
      }
    }
  }
  LZ_UNROLL for (int p = 0; p < Pixels; p++) hn::StoreU(sum[p], d, y + p * t.y_step + c);
}

// All channels of Pixels pixels, the first of which is the row's pixel `at`. What is left over behind the
// last whole vector is computed with its neighbours again, where there are any and nothing is added up.
template <class T, int Pixels, int Run>
void lanes_block(const ConvLanes<T>& t, int64_t at) {
  const int64_t N = lanes<T>(), low = t.low - at, high = t.high - at;
  const T* x = t.x + at * t.x_step;
  T* y = t.y + at * t.y_step;
  constexpr int kReach = Pixels + Run - 1;
  const uint32_t above = low > 0 ? ~0u << low : ~0u, below = high < kReach ? ~(~0u << high) : ~0u;
  const bool edge = (above & below) != ~0u;
  const auto vector = [&](int64_t c) HWY_ATTR LZ_INLINE_LAMBDA {
    if constexpr (Run > 1) {
      if (edge)
        lanes_of_run<T, Pixels, Run, true>(t, x, y, c, above & below);
      else
        lanes_of_run<T, Pixels, Run, false>(t, x, y, c, ~0u);
    } else {
      lanes_of<T, Pixels, 1>(t, x, y, c, N);
    }
  };
  int64_t c = 0;
  if constexpr (Pixels == 1) {
    for (; c + 4 * N <= t.channels; c += 4 * N) lanes_of<T, 1, 4>(t, x, y, c, 4 * N);
  }
  for (; c + N <= t.channels; c += N) vector(c);
  if (c == t.channels) return;
  if (c > 0 && !t.add)
    vector(t.channels - N);
  else
    lanes_of<T, Pixels, 1>(t, x, y, c, t.channels - c);
}

template <class T, int Run>
void lanewise_of(const ConvLanes<T>& t) {
  int64_t at = 0;
  for (; at + kPixels <= t.pixels; at += kPixels) lanes_block<T, kPixels, Run>(t, at);
  if (kPixels > 8 && at + 8 <= t.pixels) lanes_block<T, 8, Run>(t, at), at += 8;
  for (; at + 4 <= t.pixels; at += 4) lanes_block<T, 4, Run>(t, at);
  if (at == t.pixels) return;
  // The last few are computed with their neighbours again.
  if (t.pixels >= 4 && !t.add) return lanes_block<T, 4, Run>(t, t.pixels - 4);
  for (; at < t.pixels; at++) lanes_block<T, 1, 1>(t, at);
}

template <class T>
void lanewise(const ConvLanes<T>& t) {
  switch (t.run) {
    case 3:
      return lanewise_of<T, 3>(t);
    case 4:
      return lanewise_of<T, 4>(t);
    case 5:
      return lanewise_of<T, 5>(t);
    case 7:
      return lanewise_of<T, 7>(t);
    default:
      return lanewise_of<T, 1>(t);
  }
}
// Blocks of one pixel and parts of vectors know no edges, others those of pixels that have a tap.
template <class T>
bool edges(const ConvLanes<T>& t) {
  const bool runs = (t.run >= 3 && t.run <= 5) || t.run == 7;
  return runs && t.low < t.run && t.high >= t.pixels && t.pixels >= 4 && t.channels >= lanes<T>() && !t.add;
}

template <class T, int Taps, int Vectors>
HWY_INLINE void dots_of(const ConvDots<T>& t, int64_t c) {
  const Tag<T> d;
  const int64_t N = lanes<T>();
  // Where there are few sums, each is kept in two parts, so that additions do not wait for each other.
  constexpr int kParts = Taps * Vectors < 8 ? 2 : 1;
  Vector<T> sum[kParts][Taps][Vectors];
  LZ_UNROLL for (int part = 0; part < kParts; part++) {
    LZ_UNROLL for (int k = 0; k < Taps; k++) {
      LZ_UNROLL for (int v = 0; v < Vectors; v++) sum[part][k][v] = hn::Zero(d);
    }
  }
  const auto add = [&](const T* a, const T* b, int part) HWY_ATTR LZ_INLINE_LAMBDA {
    LZ_UNROLL for (int v = 0; v < Vectors; v++) {
      const auto y = hn::LoadU(d, b + v * N);
      LZ_UNROLL for (int k = 0; k < Taps; k++) sum[part][k][v] =
          hn::MulAdd(hn::LoadU(d, a + t.offsets[k] + v * N), y, sum[part][k][v]);
    }
  };
  for (const ConvRun<T>*run = t.runs, *end = run + t.n_runs; run != end; run++) {
    const T *a = run->a + c, *b = run->b + c;
    int64_t i = 0;
    for (; i + kParts <= run->count; i += kParts) {
      LZ_UNROLL for (int part = 0; part < kParts; part++, a += t.a_step, b += t.b_step) add(a, b, part);
    }
    if (i < run->count) add(a, b, 0);
  }
  LZ_UNROLL for (int k = 0; k < Taps; k++) {
    LZ_UNROLL for (int v = 0; v < Vectors; v++) {
      T* y = t.y + k * t.y_step + c + v * N;
      auto all = sum[0][k][v];
      if constexpr (kParts == 2) all = hn::Add(all, sum[1][k][v]);
      hn::StoreU(hn::Add(hn::LoadU(d, y), all), d, y);
    }
  }
}

template <class T, int Taps>
HWY_INLINE void dots_of_taps(const ConvDots<T>& t) {
  const int64_t N = lanes<T>();
  int64_t c = 0;
  for (; c + 4 * N <= t.channels; c += 4 * N) dots_of<T, Taps, 4>(t, c);
  for (; c + N <= t.channels; c += N) dots_of<T, Taps, 1>(t, c);
  for (; c < t.channels; c++) {
    for (int k = 0; k < Taps; k++) {
      T sum = 0;
      for (const ConvRun<T>*run = t.runs, *end = run + t.n_runs; run != end; run++) {
        const T *a = run->a + t.offsets[k] + c, *b = run->b + c;
        for (int64_t i = 0; i < run->count; i++) sum += a[i * t.a_step] * b[i * t.b_step];
      }
      t.y[k * t.y_step + c] += sum;
    }
  }
}

template <class T>
void dots(const ConvDots<T>& t) {
  if (t.taps == 3)
    dots_of_taps<T, 3>(t);
  else if (t.taps == 2)
    dots_of_taps<T, 2>(t);
  else
    dots_of_taps<T, 1>(t);
}

// Squares of 4 × 4 floats are turned in registers.
template <class T>
void transpose(const T* from, int64_t from_step, int64_t rows, int64_t n, T* to, int64_t to_step) {
  int64_t j = 0;
  if constexpr (sizeof(T) == 4) {
    const hn::FixedTag<T, 4> d;
    for (; j + 4 <= rows; j += 4) {
      const T* row = from + j * from_step;
      int64_t i = 0;
      for (; i + 4 <= n; i += 4) {
        const auto a = hn::LoadU(d, row + i), b = hn::LoadU(d, row + from_step + i),
                   c = hn::LoadU(d, row + 2 * from_step + i), e = hn::LoadU(d, row + 3 * from_step + i);
        const auto p = hn::InterleaveLower(d, a, c), q = hn::InterleaveLower(d, b, e);
        const auto r = hn::InterleaveUpper(d, a, c), s = hn::InterleaveUpper(d, b, e);
        T* square = to + i * to_step + j;
        hn::StoreU(hn::InterleaveLower(d, p, q), d, square);
        hn::StoreU(hn::InterleaveUpper(d, p, q), d, square + to_step);
        hn::StoreU(hn::InterleaveLower(d, r, s), d, square + 2 * to_step);
        hn::StoreU(hn::InterleaveUpper(d, r, s), d, square + 3 * to_step);
      }
      for (; i < n; i++) {
        for (int64_t k = 0; k < 4; k++) to[i * to_step + j + k] = row[k * from_step + i];
      }
    }
  }
  for (; j < rows; j++) {
    for (int64_t i = 0; i < n; i++) to[i * to_step + j] = from[j * from_step + i];
  }
}

template <class T>
ConvLoops<T> loops() {
  return {kTileRows,
          kOuterRows,
          int32_t(lanes<T>()),
          int32_t(narrow_lanes<T>()),
          transpose<T>,
          tile<T>,
          outer<T>,
          lanewise<T>,
          edges<T>,
          dots<T>};
}

}  // namespace

const ConvTable& conv_table() {
  static const ConvTable table{loops<float>(), loops<double>()};
  return table;
}

}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();
