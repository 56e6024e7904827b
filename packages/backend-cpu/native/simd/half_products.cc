// For a single row of x, rows of b one after the other: a single stream is what memory gives fastest. For
// more, four rows of b at a time, so that their elements are widened once for all.
#include "simd/half_products.h"

#include "simd/compiler.h"
#include "simd/lane_sums.h"
#include "simd/vectors.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

using V = hn::Vec<Floats>;

template <class T>
HWY_INLINE float dot_row(const T* b, int64_t k, const float* x) {
  const Floats d;
  const int64_t N = int64_t(hn::Lanes(d));
  V sum[4];
  for (V& s : sum) s = hn::Zero(d);
  int64_t i = 0;
  for (; i + 4 * N <= k; i += 4 * N) {
    for (int j = 0; j < 4; j++)
      sum[j] = hn::MulAdd(load(d, b + i + j * N), hn::LoadU(d, x + i + j * N), sum[j]);
  }
  for (; i < k; i += N) {
    const int64_t count = i + N <= k ? N : k - i;
    sum[0] = hn::MulAdd(load_some(d, b + i, count, 0), load_some(d, x + i, count, 0), sum[0]);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3]))));
}

template <class T>
void dot(const void* data, int64_t ldb, int64_t rows, int64_t k, const float* x, float* y) {
  for (int64_t r = 0; r < rows; r++) y[r] = dot_row(static_cast<const T*>(data) + r * ldb, k, x);
}

#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
// The first `count` of 32 elements, or all.
HWY_INLINE __mmask32 first_of(int64_t count) {
  return count < 32 ? (__mmask32(1) << count) - 1 : ~__mmask32(0);
}

LZ_PAIRS HWY_NOINLINE float dot_pairs(const bfloat16* b, int64_t k, const bfloat16* x) {
  const Floats d;
  V sum[4];
  for (V& s : sum) s = hn::Zero(d);
  int64_t i = 0;
  for (; i + 128 <= k; i += 128) {
    for (int j = 0; j < 4; j++)
      sum[j].raw = _mm512_dpbf16_ps(sum[j].raw, (__m512bh)_mm512_loadu_si512(b + i + 32 * j),
                                    (__m512bh)_mm512_loadu_si512(x + i + 32 * j));
  }
  for (; i < k; i += 32) {
    const __mmask32 some = first_of(k - i);
    sum[0].raw = _mm512_dpbf16_ps(sum[0].raw, (__m512bh)_mm512_maskz_loadu_epi16(some, b + i),
                                  (__m512bh)_mm512_maskz_loadu_epi16(some, x + i));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3]))));
}

// True if x was bfloat16 before it was widened, which it is again in `to`.
HWY_INLINE bool narrow(const float* x, int64_t n, bfloat16* to) {
  uint32_t lost = 0;
  for (int64_t i = 0; i < n; i++) {
    uint32_t bits;
    memcpy(&bits, x + i, 4);
    lost |= bits << 16;
    to[i].bits = uint16_t(bits >> 16);
  }
  return lost == 0;
}

// By the processor's own products of pairs where x is bfloat16: widening b and reading x by floats takes half
// again as long as memory. These products take subnormal numbers for 0, as those of larger matrices do.
void dot_bfloat16(const void* data, int64_t ldb, int64_t rows, int64_t k, const float* x, float* y) {
  constexpr int64_t kMost = 8192;
  if (k == 0) return dot<bfloat16>(data, ldb, rows, k, x, y);
  HWY_ALIGN bfloat16 narrowed[kMost];
  const auto* b = static_cast<const bfloat16*>(data);
  for (int64_t at = 0; at < k; at += kMost) {
    const int64_t length = k - at < kMost ? k - at : kMost;
    if (!narrow(x + at, length, narrowed)) return dot<bfloat16>(data, ldb, rows, k, x, y);
    for (int64_t r = 0; r < rows; r++) {
      const float sum = dot_pairs(b + r * ldb + at, length, narrowed);
      y[r] = at == 0 ? sum : y[r] + sum;
    }
  }
}
#endif

// Rows of x that are multiplied together.
#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_AVX2
constexpr int kTall = 4;  // 16 registers
constexpr bool kByTwos = true;
#else
constexpr int kTall = 6;  // 32 registers
constexpr bool kByTwos = false;
#endif
constexpr int kWide = 4;

// Rows that follow each other are fetched by the way, so many bytes ahead: the processor itself looks no
// further than a page.
constexpr int64_t kShortRow = 512, kAhead = 4 << 10;
template <class T>
HWY_INLINE void fetch(const T* b, int64_t count) {
  const char* from = reinterpret_cast<const char*>(b) + kAhead;
  for (int64_t at = 0; at < count * int64_t(sizeof(T)); at += 64) __builtin_prefetch(from + at);
}

template <class T, int kM, int kN>
HWY_INLINE void add_dots(const T* b, int64_t ldb, int64_t k, const float* x, int64_t ldx, V (&sum)[kM][kN]) {
  const Floats d;
  const int64_t N = int64_t(hn::Lanes(d));
  LZ_UNROLL for (int i = 0; i < kM; i++) { LZ_UNROLL for (int r = 0; r < kN; r++) sum[i][r] = hn::Zero(d); }
  int64_t at = 0;
  for (; at + N <= k; at += N) {
    V w[kN];
    LZ_UNROLL for (int r = 0; r < kN; r++) w[r] = load(d, b + r * ldb + at);
    LZ_UNROLL for (int i = 0; i < kM; i++) {
      const V v = hn::LoadU(d, x + i * ldx + at);
      LZ_UNROLL for (int r = 0; r < kN; r++) sum[i][r] = hn::MulAdd(v, w[r], sum[i][r]);
    }
  }
  if (at < k) {
    V w[kN];
    LZ_UNROLL for (int r = 0; r < kN; r++) w[r] = load_some(d, b + r * ldb + at, k - at, 0);
    LZ_UNROLL for (int i = 0; i < kM; i++) {
      const V v = load_some(d, x + i * ldx + at, k - at, 0);
      LZ_UNROLL for (int r = 0; r < kN; r++) sum[i][r] = hn::MulAdd(v, w[r], sum[i][r]);
    }
  }
}

// kN rows of b.
template <class T, int kM, int kN>
HWY_INLINE void dots_tile(const T* b, int64_t ldb, int64_t k, const float* x, int64_t ldx, float* y,
                          int64_t ldy) {
  V sum[kM][kN];
  add_dots(b, ldb, k, x, ldx, sum);
  LZ_UNROLL for (int i = 0; i < kM; i++) lane_sums(sum[i], y + i * ldy);
}

// Four rows of x and four of b, two at a time.
template <class T>
HWY_INLINE void dots_of_four(const T* b, int64_t ldb, int64_t k, const float* x, int64_t ldx, float* y,
                             int64_t ldy) {
  const FourFloats d;
  hn::Vec<FourFloats> sums[2][2];
  LZ_UNROLL for (int half = 0; half < 2; half++) {
    V sum[4][2];
    add_dots(b + 2 * half * ldb, ldb, k, x, ldx, sum);
    LZ_UNROLL for (int i = 0; i < 2; i++) sums[half][i] =
        lane_sums(sum[2 * i][0], sum[2 * i][1], sum[2 * i + 1][0], sum[2 * i + 1][1]);
  }
  LZ_UNROLL for (int i = 0; i < 2; i++) {
    hn::StoreU(hn::ConcatLowerLower(d, sums[1][i], sums[0][i]), d, y + 2 * i * ldy);
    hn::StoreU(hn::ConcatUpperUpper(d, sums[1][i], sums[0][i]), d, y + (2 * i + 1) * ldy);
  }
}

// Rows of b, a multiple of kN.
template <class T, int kM, int kN>
HWY_NOINLINE void dots_of(const T* b, int64_t ldb, int64_t rows, int64_t k, const float* x, int64_t ldx,
                          float* y, int64_t ldy) {
  const bool is_short = ldb == k && k * int64_t(sizeof(T)) <= kShortRow;
  for (int64_t r = 0; r < rows; r += kN, b += kN * ldb, y += kN) {
    if (is_short) fetch(b, kN * k);
    if constexpr (kByTwos && kM == 4 && kN == 4)
      dots_of_four(b, ldb, k, x, ldx, y, ldy);
    else
      dots_tile<T, kM, kN>(b, ldb, k, x, ldx, y, ldy);
  }
}

template <class T, int kN, int kM = kTall>
HWY_INLINE void dots_of_rows(const T* b, int64_t ldb, int64_t rows, int64_t k, const float* x, int64_t ldx,
                             int64_t m, float* y, int64_t ldy) {
  if constexpr (kM == kTall) {
    for (; m >= kM; m -= kM, x += kM * ldx, y += kM * ldy)
      dots_of<T, kM, kN>(b, ldb, rows, k, x, ldx, y, ldy);
  } else if (m == kM) {
    return dots_of<T, kM, kN>(b, ldb, rows, k, x, ldx, y, ldy);
  }
  if constexpr (kM > 1) dots_of_rows<T, kN, kM - 1>(b, ldb, rows, k, x, ldx, m, y, ldy);
}

template <class T>
void dots(const void* data, int64_t ldb, int64_t rows, int64_t k, const float* x, int64_t ldx, int64_t m,
          float* y, int64_t ldy) {
  const T* b = static_cast<const T*>(data);
  const int64_t fours = rows / kWide * kWide;
  // Where rows of x take several turns, each row of b is read once.
  const int64_t step = m <= kTall ? fours : kWide;
  int64_t r = 0;
  for (; r < fours; r += step) dots_of_rows<T, kWide>(b + r * ldb, ldb, step, k, x, ldx, m, y + r, ldy);
  for (; r < rows; r++) dots_of_rows<T, 1>(b + r * ldb, ldb, 1, k, x, ldx, m, y + r, ldy);
}

#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
template <int kM, int kN>
LZ_PAIRS HWY_NOINLINE void pair_dots_of(const bfloat16* b, int64_t ldb, int64_t k, const bfloat16* x,
                                        int64_t ldx, float* y, int64_t ldy, bool first) {
  const Floats d;
  V sum[kM][kN];
  LZ_UNROLL for (int i = 0; i < kM; i++) { LZ_UNROLL for (int r = 0; r < kN; r++) sum[i][r] = hn::Zero(d); }
  for (int64_t at = 0; at < k; at += 32) {
    const __mmask32 some = first_of(k - at);
    __m512bh w[kN];
    LZ_UNROLL for (int r = 0; r < kN; r++) w[r] = (__m512bh)_mm512_maskz_loadu_epi16(some, b + r * ldb + at);
    LZ_UNROLL for (int i = 0; i < kM; i++) {
      const auto v = (__m512bh)_mm512_maskz_loadu_epi16(some, x + i * ldx + at);
      LZ_UNROLL for (int r = 0; r < kN; r++) sum[i][r].raw = _mm512_dpbf16_ps(sum[i][r].raw, v, w[r]);
    }
  }
  LZ_UNROLL for (int i = 0; i < kM; i++) {
    float sums[kN], *to = y + i * ldy;
    lane_sums(sum[i], sums);
    LZ_UNROLL for (int r = 0; r < kN; r++) to[r] = first ? sums[r] : to[r] + sums[r];
  }
}

template <int kN, int kM = kTall>
void pair_dots_of_rows(const bfloat16* b, int64_t ldb, int64_t k, const bfloat16* x, int64_t ldx, int64_t m,
                       float* y, int64_t ldy, bool first) {
  for (; m >= kM; m -= kM, x += kM * ldx, y += kM * ldy)
    pair_dots_of<kM, kN>(b, ldb, k, x, ldx, y, ldy, first);
  if constexpr (kM > 1) pair_dots_of_rows<kN, kM - 1>(b, ldb, k, x, ldx, m, y, ldy, first);
}

// As dot_bfloat16().
void dots_bfloat16(const void* data, int64_t ldb, int64_t rows, int64_t k, const float* x, int64_t ldx,
                   int64_t m, float* y, int64_t ldy) {
  constexpr int64_t kRoom = 65536, kApart = 32;
  HWY_ALIGN bfloat16 narrowed[kRoom];
  const int64_t most = m > 0 ? (kRoom / m - kApart) / 32 * 32 : 0;
  if (most < 256 || k == 0) return dots<bfloat16>(data, ldb, rows, k, x, ldx, m, y, ldy);
  const auto* b = static_cast<const bfloat16*>(data);
  for (int64_t at = 0; at < k; at += most) {
    const int64_t length = k - at < most ? k - at : most, ld = length + kApart;
    bool exact = true;
    for (int64_t i = 0; i < m && exact; i++) exact = narrow(x + i * ldx + at, length, narrowed + i * ld);
    if (!exact) return dots<bfloat16>(data, ldb, rows, k, x, ldx, m, y, ldy);
    const bool is_short = ldb == k && k * int64_t(sizeof(bfloat16)) <= kShortRow;
    int64_t r = 0;
    for (; r + kWide <= rows; r += kWide) {
      if (is_short) fetch(b + r * ldb, kWide * k);
      pair_dots_of_rows<kWide>(b + r * ldb + at, ldb, length, narrowed, ld, m, y + r, ldy, at == 0);
    }
    for (; r < rows; r++)
      pair_dots_of_rows<1>(b + r * ldb + at, ldb, length, narrowed, ld, m, y + r, ldy, at == 0);
  }
}
#endif

// The rows behind these are fetched by the way: they lie apart, where the processor does not look ahead.
template <class T, int kRows>
HWY_INLINE void add_some(const T* b, int64_t ldb, int64_t n, const float* x, int64_t ldx, int64_t m, float* y,
                         int64_t ldy) {
  const Floats d;
  const int64_t N = int64_t(hn::Lanes(d));
  int64_t at = 0;
  for (; at + N <= n; at += N) {
    V w[kRows];
    LZ_UNROLL for (int r = 0; r < kRows; r++) {
      w[r] = load(d, b + r * ldb + at);
      __builtin_prefetch(b + (kRows + r) * ldb + at);
    }
    for (int64_t i = 0; i < m; i++) {
      const float* factor = x + i * ldx;
      V sum = hn::LoadU(d, y + i * ldy + at);
      LZ_UNROLL for (int r = 0; r < kRows; r++) sum = hn::MulAdd(w[r], hn::Set(d, factor[r]), sum);
      hn::StoreU(sum, d, y + i * ldy + at);
    }
  }
  if (at == n) return;
  for (int64_t i = 0; i < m; i++) {
    V sum = load_some(d, y + i * ldy + at, n - at, 0);
    for (int r = 0; r < kRows; r++)
      sum = hn::MulAdd(load_some(d, b + r * ldb + at, n - at, 0), hn::Set(d, x[i * ldx + r]), sum);
    store_some(d, sum, y + i * ldy + at, n - at);
  }
}

// The same for kM rows of y, whose sums stay in registers, and two vectors of columns at a time: for a b
// that a cache holds. What lies behind it is fetched evenly by the way: memory would else wait between the
// passes that come to a new line.
template <class T, int kM>
HWY_NOINLINE void add_near(const T* b, int64_t ldb, int64_t rows, int64_t n, const float* x, int64_t ldx,
                           float* y, int64_t ldy) {
  constexpr int kN = 2;
  const Floats d;
  const int64_t N = int64_t(hn::Lanes(d)), step = (ldb == n ? kN * N : ldb) * int64_t(sizeof(T));
  const char* next = reinterpret_cast<const char*>(b + rows * ldb);
  for (int64_t at = 0; at < n; at += kN * N) {
    V sum[kM][kN];
    LZ_UNROLL for (int i = 0; i < kM; i++) {
      LZ_UNROLL for (int j = 0; j < kN; j++) sum[i][j] = hn::LoadU(d, y + i * ldy + at + j * N);
    }
    const T* from = b + at;
    if (ldb != n) next = reinterpret_cast<const char*>(from + rows * ldb);
    for (int64_t r = 0; r < rows; r++, from += ldb, next += step) {
      __builtin_prefetch(next);
      V w[kN];
      LZ_UNROLL for (int j = 0; j < kN; j++) w[j] = load(d, from + j * N);
      LZ_UNROLL for (int i = 0; i < kM; i++) {
        const V factor = hn::Set(d, x[i * ldx + r]);
        LZ_UNROLL for (int j = 0; j < kN; j++) sum[i][j] = hn::MulAdd(w[j], factor, sum[i][j]);
      }
    }
    LZ_UNROLL for (int i = 0; i < kM; i++) {
      LZ_UNROLL for (int j = 0; j < kN; j++) hn::StoreU(sum[i][j], d, y + i * ldy + at + j * N);
    }
  }
}
constexpr int64_t kNear = 64 << 10;

template <class T>
void add_rows(const void* data, int64_t ldb, int64_t rows, int64_t n, const float* x, int64_t ldx, int64_t m,
              float* y, int64_t ldy) {
  const T* b = static_cast<const T*>(data);
  if (rows * n * int64_t(sizeof(T)) <= kNear && n % (2 * int64_t(hn::Lanes(Floats()))) == 0) {
    for (; m >= 4; m -= 4, x += 4 * ldx, y += 4 * ldy) add_near<T, 4>(b, ldb, rows, n, x, ldx, y, ldy);
    if (m == 3) return add_near<T, 3>(b, ldb, rows, n, x, ldx, y, ldy);
    if (m == 2) return add_near<T, 2>(b, ldb, rows, n, x, ldx, y, ldy);
    if (m == 0) return;
  }
  int64_t r = 0;
  for (; r + 8 <= rows; r += 8) add_some<T, 8>(b + r * ldb, ldb, n, x + r, ldx, m, y, ldy);
  for (; r < rows; r++) add_some<T, 1>(b + r * ldb, ldb, n, x + r, ldx, m, y, ldy);
}

HalfProductTable make_table() {
  HalfProductTable table{};
  table.dot[kFloat16] = dot<float16>;
  table.dot[kBfloat16] = dot<bfloat16>;
  table.dots[kFloat32] = dots<float>;
  table.dots[kFloat16] = dots<float16>;
  table.dots[kBfloat16] = dots<bfloat16>;
  table.add_rows[kFloat32] = add_rows<float>;
  table.add_rows[kFloat16] = add_rows<float16>;
  table.add_rows[kBfloat16] = add_rows<bfloat16>;
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512bf16"))
    table.dot[kBfloat16] = dot_bfloat16, table.dots[kBfloat16] = dots_bfloat16;
#endif
  return table;
}

}  // namespace

const HalfProductTable& half_product_table() {
  static const HalfProductTable table = make_table();
  return table;
}

}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();
