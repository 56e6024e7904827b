// Register tiles of convolutions. A tile keeps rows × 2 vectors of sums: one broadcast input element meets
// two vectors of output channels, as in the matrix products of Goto and van de Geijn, "Anatomy of
// high-performance matrix multiplication", 2008.
#include "simd/conv.h"

#include "simd/vectors.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

// Rows of a tile: two vectors of sums each, and room for the operands. Tiles of pixels have a pointer for
// every row, which want general registers.
#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_AVX2
constexpr int kTileRows = 6, kOuterRows = 6;  // 16 registers
#else
constexpr int kTileRows = 12, kOuterRows = 14;  // 32 registers
#endif

#if defined(__clang__)
#define LZ_UNROLL _Pragma("clang loop unroll(full)")
#else
#define LZ_UNROLL _Pragma("GCC unroll 16")
#endif

template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
using Vector = hn::Vec<Tag<T>>;

template <class T>
HWY_INLINE int64_t lanes() {
  return int64_t(hn::Lanes(Tag<T>()));
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

// Adds the tile to memory, or stores it.
template <class T, int Rows, int Vectors>
HWY_INLINE void finish(const Vector<T> (&sum)[Rows][Vectors], T* const* y, int64_t columns, bool add) {
  const Tag<T> d;
  const int64_t N = lanes<T>();
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

template <class T, int Rows, int Vectors>
void tile_of(const ConvTile<T>& t) {
  const Tag<T> d;
  const int64_t N = lanes<T>();
  Vector<T> sum[Rows][Vectors];
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
    for (int64_t i = 0; i < length; i++, w += Vectors * N) {
      Vector<T> weight[Vectors];
      LZ_UNROLL for (int v = 0; v < Vectors; v++) weight[v] = hn::LoadU(d, w + v * N);
      LZ_UNROLL for (int r = 0; r < Rows; r++) {
        const auto a = hn::Set(d, x[r][i]);
        LZ_UNROLL for (int v = 0; v < Vectors; v++) sum[r][v] = hn::MulAdd(a, weight[v], sum[r][v]);
      }
    }
  }
  finish<T, Rows, Vectors>(sum, y, t.columns, t.add);
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
  finish<T, Rows, Vectors>(sum, y, t.columns, true);
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
  for_size<kTileRows>(t.rows, t.columns > lanes<T>(),
                      [&]<int Rows, int Vectors>() { tile_of<T, Rows, Vectors>(t); });
}
template <class T>
void outer(const ConvOuter<T>& t) {
  for_size<kOuterRows>(t.rows, t.columns > lanes<T>(),
                       [&]<int Rows, int Vectors>() { outer_of<T, Rows, Vectors>(t); });
}

// `count` lanes of Pixels neighbouring pixels.
template <class T, int Pixels>
HWY_INLINE void lanes_of(const ConvLanes<T>& t, const T* x, T* y, int64_t c, int64_t count) {
  const Tag<T> d;
  Vector<T> sum[Pixels];
  LZ_UNROLL for (int p = 0; p < Pixels; p++) sum[p] = t.add ? take(y + p * t.y_step + c, count) : hn::Zero(d);
  for (int64_t tap = 0; tap < t.taps; tap++) {
    const auto weight = take(t.w + t.w_offsets[tap] + c, count);
    const T* from = x + t.x_offsets[tap] + c;
    LZ_UNROLL for (int p = 0; p < Pixels; p++) sum[p] =
        hn::MulAdd(take(from + p * t.x_step, count), weight, sum[p]);
  }
  LZ_UNROLL for (int p = 0; p < Pixels; p++) put(sum[p], y + p * t.y_step + c, count);
}

// All channels of Pixels pixels. What is left over behind the last whole vector is computed with its
// neighbours again, where there are any and nothing is added up.
template <class T, int Pixels>
HWY_INLINE void lanes_block(const ConvLanes<T>& t, const T* x, T* y) {
  const int64_t N = lanes<T>();
  int64_t c = 0;
  for (; c + N <= t.channels; c += N) lanes_of<T, Pixels>(t, x, y, c, N);
  if (c == t.channels) return;
  if (c > 0 && !t.add)
    lanes_of<T, Pixels>(t, x, y, t.channels - N, N);
  else
    lanes_of<T, Pixels>(t, x, y, c, t.channels - c);
}

template <class T>
void lanewise(const ConvLanes<T>& t) {
  const T* x = t.x;
  T* y = t.y;
  int64_t left = t.pixels;
  for (; left >= 8; left -= 8, x += 8 * t.x_step, y += 8 * t.y_step) lanes_block<T, 8>(t, x, y);
  if (left >= 4) {
    lanes_block<T, 4>(t, x, y);
    left -= 4, x += 4 * t.x_step, y += 4 * t.y_step;
  }
  for (; left > 0; left--, x += t.x_step, y += t.y_step) lanes_block<T, 1>(t, x, y);
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
  return {kTileRows, kOuterRows, int32_t(lanes<T>()), transpose<T>, tile<T>, outer<T>, lanewise<T>, dots<T>};
}

}  // namespace

const ConvTable& conv_table() {
  static const ConvTable table{loops<float>(), loops<double>()};
  return table;
}

}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();
