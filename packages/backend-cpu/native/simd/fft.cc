// Stockham's form of the mixed-radix transform: each stage reads one buffer and writes another, in an order
// that leaves the result sorted. A buffer holds, for each element, a vector of real parts and a vector of
// imaginary parts.
#include "simd/fft.h"

#include <string.h>

#include <utility>

#include "simd/fft_butterflies.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

template <class T>
constexpr int64_t lane_count() {
  return int64_t(hn::MaxLanes(Lanes<T>()));
}
template <class T>
HWY_INLINE Number<T> get(const T* x) {
  const Lanes<T> d;
  return {hn::Load(d, x), hn::Load(d, x + lane_count<T>())};
}
template <class T>
HWY_INLINE void put(Number<T> v, T* y) {
  const Lanes<T> d;
  hn::Store(v.re, d, y);
  hn::Store(v.im, d, y + lane_count<T>());
}

// y[q + s(r·p + k)] = w^(p·k) · Σ x[q + s(p + m·j)] exp(−2πi jk/r), for p < m and q < s.
template <int R, class T>
void stage(const T* x, T* y, int64_t m, int64_t s, const T* twiddles) {
  const Lanes<T> d;
  constexpr int64_t kNumber = 2 * lane_count<T>();
  const int64_t apart = m * s * kNumber, step = s * kNumber;
  for (int64_t p = 0; p < m; p++, twiddles += 2 * (R - 1), y += (R - 1) * step) {
    for (int64_t q = 0; q < s; q++, x += kNumber, y += kNumber) {
      Number<T> a[R];
      for (int j = 0; j < R; j++) a[j] = get(x + j * apart);
      butterfly<R>(a);
      put(a[0], y);
      if (p == 0) {
        for (int k = 1; k < R; k++) put(a[k], y + k * step);
      } else {
        for (int k = 1; k < R; k++)
          put(multiply(a[k], hn::Set(d, twiddles[2 * k - 2]), hn::Set(d, twiddles[2 * k - 1])), y + k * step);
      }
    }
  }
}

template <class T>
void stage_odd(int r, const T* roots, const T* x, T* y, int64_t m, int64_t s, const T* twiddles) {
  const Lanes<T> d;
  constexpr int64_t kNumber = 2 * lane_count<T>();
  const int64_t apart = m * s * kNumber, step = s * kNumber;
  Number<T> a[kFftLargestRadix], sum[kFftLargestRadix / 2 + 1], difference[kFftLargestRadix / 2 + 1];
  for (int64_t p = 0; p < m; p++, twiddles += 2 * (r - 1), y += (r - 1) * step) {
    for (int64_t q = 0; q < s; q++, x += kNumber, y += kNumber) {
      for (int j = 0; j < r; j++) a[j] = get(x + j * apart);
      butterfly_odd(r, roots, a, sum, difference);
      put(a[0], y);
      for (int k = 1; k < r; k++)
        put(multiply(a[k], hn::Set(d, twiddles[2 * k - 2]), hn::Set(d, twiddles[2 * k - 1])), y + k * step);
    }
  }
}

// Transforms the buffer x with y as the other one; gives the one that holds the result.
template <class T>
T* run_stages(const FftLine<T>& plan, T* x, T* y) {
  int64_t left = plan.n, s = 1;
  for (int i = 0; i < plan.stages; i++) {
    const int r = plan.radix[i];
    left /= r;
    const T* w = plan.twiddles[i];
    switch (r) {
      case 2:
        stage<2>(x, y, left, s, w);
        break;
      case 3:
        stage<3>(x, y, left, s, w);
        break;
      case 4:
        stage<4>(x, y, left, s, w);
        break;
      case 5:
        stage<5>(x, y, left, s, w);
        break;
      case 7:
        stage<7>(x, y, left, s, w);
        break;
      case 8:
        stage<8>(x, y, left, s, w);
        break;
      default:
        stage_odd(r, plan.roots[i], x, y, left, s, w);
    }
    s *= r;
    std::swap(x, y);
  }
  return x;
}

// Transposes the square of as many vectors as a vector has lanes: within blocks of 128 bits first, then the
// blocks.
template <class T>
HWY_INLINE void transpose(Vector<T>* v) {
  using V = Vector<T>;
  const Lanes<T> d;
  constexpr int kLanes = int(lane_count<T>()), kBlock = 16 / sizeof(T), kBlocks = kLanes / kBlock;
  for (int g = 0; g < kLanes; g += kBlock) {
    if constexpr (kBlock == 2) {
      const V a = v[g], b = v[g + 1];
      v[g] = hn::InterleaveLower(d, a, b);
      v[g + 1] = hn::InterleaveUpper(d, a, b);
    } else {
      const hn::RepartitionToWide<Lanes<T>> wide;
      const auto ab = hn::BitCast(wide, hn::InterleaveLower(d, v[g], v[g + 1]));
      const auto cd = hn::BitCast(wide, hn::InterleaveLower(d, v[g + 2], v[g + 3]));
      const auto ef = hn::BitCast(wide, hn::InterleaveUpper(d, v[g], v[g + 1]));
      const auto gh = hn::BitCast(wide, hn::InterleaveUpper(d, v[g + 2], v[g + 3]));
      v[g] = hn::BitCast(d, hn::InterleaveLower(wide, ab, cd));
      v[g + 1] = hn::BitCast(d, hn::InterleaveUpper(wide, ab, cd));
      v[g + 2] = hn::BitCast(d, hn::InterleaveLower(wide, ef, gh));
      v[g + 3] = hn::BitCast(d, hn::InterleaveUpper(wide, ef, gh));
    }
  }
  if constexpr (kBlocks > 1) {
    // Block b of v[c + kBlock·g] changes places with block g of v[c + kBlock·b]: first halves, then single
    // blocks.
    for (int c = 0; c < kBlock; c++) {
      for (int g = 0; g < kBlocks / 2; g++) {
        const int at = c + kBlock * g, to = at + kBlock * (kBlocks / 2);
        const V a = v[at], b = v[to];
        v[at] = hn::ConcatLowerLower(d, b, a);
        v[to] = hn::ConcatUpperUpper(d, b, a);
      }
      if constexpr (kBlocks == 4) {
        for (int g = 0; g < kBlocks; g += 2) {
          const int at = c + kBlock * g, to = at + kBlock;
          const V a = v[at], b = v[to];
          v[at] = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(b), a);
          v[to] = hn::OddEvenBlocks(b, hn::SwapAdjacentBlocks(a));
        }
      }
    }
  }
}

// Rows are moved a square at a time: a vector of each, half as many numbers as there are lanes.
template <class T, bool All>
void load_rows(const FftSide<const T>& in, int64_t n, int64_t count, T* to) {
  const Lanes<T> d;
  constexpr int64_t L = lane_count<T>(), kNumbers = L / 2;
  const T* rows[L];
  for (int64_t l = 0; l < count; l++) rows[l] = in.data + in.offsets[l];
  HWY_ALIGN T tail[L * L];
  for (int64_t i = 0; i < n; i += kNumbers) {
    const int64_t numbers = n - i < kNumbers ? n - i : kNumbers;
    Vector<T> v[L];
    if (numbers < kNumbers) {
      memset(tail, 0, sizeof(tail));
      for (int64_t l = 0; l < count; l++)
        memcpy(tail + l * L, rows[l] + 2 * i, size_t(numbers) * 2 * sizeof(T));
      for (int64_t l = 0; l < L; l++) v[l] = hn::Load(d, tail + l * L);
    } else {
      for (int64_t l = 0; l < L; l++) v[l] = All || l < count ? hn::LoadU(d, rows[l] + 2 * i) : hn::Zero(d);
    }
    transpose<T>(v);
    const int re = in.swap ? 1 : 0;
    if (numbers == kNumbers) {
      for (int64_t k = 0; k < L; k++, to += L) hn::Store(v[k], d, to + (k & 1 ? -re * L : re * L));
    } else {
      for (int64_t k = 0; k < L; k++) hn::Store(v[k], d, tail + k * L);
      for (int64_t k = 0; k < numbers; k++, to += 2 * L) {
        const Number<T> a = get(tail + k * 2 * L);
        put(in.swap ? Number<T>{a.im, a.re} : a, to);
      }
    }
  }
}

template <class T>
void load_columns(const FftSide<const T>& in, int64_t n, int64_t count, T* to) {
  const Lanes<T> d;
  constexpr int64_t L = lane_count<T>();
  HWY_ALIGN T some[2 * L] = {};
  const T* from = in.data + in.offsets[0];
  for (int64_t i = 0; i < n; i++, from += in.step, to += 2 * L) {
    Number<T> a;
    if (count < L) memcpy(some, from, size_t(count) * 2 * sizeof(T));
    hn::LoadInterleaved2(d, count < L ? some : from, a.re, a.im);
    if (in.swap) std::swap(a.re, a.im);
    put(a, to);
  }
}

template <class T>
void load_lanes(const FftSide<const T>& in, int64_t n, int64_t count, T* to) {
  constexpr int64_t L = lane_count<T>();
  if (in.columns) return load_columns(in, n, count, to);
  if (in.step == 2)
    return count == L ? load_rows<T, true>(in, n, count, to) : load_rows<T, false>(in, n, count, to);
  const int64_t re = in.swap ? L : 0, im = in.swap ? 0 : L;
  if (count < L) memset(to, 0, size_t(n) * 2 * L * sizeof(T));
  for (int64_t i = 0; i < n; i++, to += 2 * L) {
    for (int64_t l = 0; l < count; l++) {
      const T* from = in.data + in.offsets[l] + i * in.step;
      to[re + l] = from[0];
      to[im + l] = from[1];
    }
  }
}

// The last step of element i on its way out.
template <class T>
struct Finish {
  Vector<T> scale;
  bool scaled, swap;
  const T* twist;
  HWY_INLINE Number<T> operator()(const T* from, int64_t i) const {
    Number<T> a = get(from);
    if (twist) {
      const Lanes<T> d;
      const T* w = twist + i * 2 * lane_count<T>();
      a = multiply(a, hn::LoadU(d, w), hn::LoadU(d, w + lane_count<T>()));
    }
    if (scaled) a = {hn::Mul(a.re, scale), hn::Mul(a.im, scale)};
    if (swap) std::swap(a.re, a.im);
    return a;
  }
};

template <class T>
void store_rows(const FftSide<T>& out, int64_t n, int64_t count, const T* from, const Finish<T>& finish) {
  const Lanes<T> d;
  constexpr int64_t L = lane_count<T>(), kNumbers = L / 2;
  T* rows[L];
  for (int64_t l = 0; l < count; l++) rows[l] = out.data + out.offsets[l];
  HWY_ALIGN T tail[L * L];
  int64_t i = 0;
  for (; i + kNumbers <= n; i += kNumbers) {
    Vector<T> v[L];
    for (int64_t k = 0; k < kNumbers; k++) {
      const Number<T> a = finish(from + (i + k) * 2 * L, i + k);
      v[2 * k] = a.re;
      v[2 * k + 1] = a.im;
    }
    transpose<T>(v);
    if (count == L) {
      for (int64_t l = 0; l < L; l++) hn::StoreU(v[l], d, rows[l] + 2 * i);
    } else {
      for (int64_t l = 0; l < L; l++) hn::Store(v[l], d, tail + l * L);
      for (int64_t l = 0; l < count; l++) memcpy(rows[l] + 2 * i, tail + l * L, sizeof(T) * L);
    }
  }
  for (; i < n; i++) {
    put(finish(from + i * 2 * L, i), tail);
    for (int64_t l = 0; l < count; l++) {
      rows[l][2 * i] = tail[l];
      rows[l][2 * i + 1] = tail[L + l];
    }
  }
}

template <class T>
void store_lanes(const FftSide<T>& out, int64_t n, int64_t count, const T* from, const Finish<T>& finish) {
  const Lanes<T> d;
  constexpr int64_t L = lane_count<T>();
  HWY_ALIGN T number[2 * L];
  if (out.columns) {
    T* to = out.data + out.offsets[0];
    for (int64_t i = 0; i < n; i++, from += 2 * L, to += out.step) {
      const Number<T> a = finish(from, i);
      hn::StoreInterleaved2(a.re, a.im, d, count < L ? number : to);
      if (count < L) memcpy(to, number, size_t(count) * 2 * sizeof(T));
    }
    return;
  }
  if (out.step == 2) return store_rows(out, n, count, from, finish);
  for (int64_t i = 0; i < n; i++, from += 2 * L) {
    put(finish(from, i), number);
    for (int64_t l = 0; l < count; l++) {
      T* to = out.data + out.offsets[l] + i * out.step;
      to[0] = number[l];
      to[1] = number[L + l];
    }
  }
}

template <class T>
void lines(const FftLine<T>& plan, const FftSide<const T>& in, const FftSide<T>& out, int64_t count, T scale,
           const T* twist, T* work) {
  const Lanes<T> d;
  constexpr int64_t kNumber = 2 * lane_count<T>();
  T *x = work, *y = work + (plan.length() + kFftGap) * kNumber;
  load_lanes(in, plan.n, count, x);
  if (plan.inner) {
    for (int64_t i = 0; i < plan.n; i++) {
      T* at = x + i * kNumber;
      put(multiply(get(at), hn::Set(d, plan.chirp[2 * i]), hn::Set(d, plan.chirp[2 * i + 1])), at);
    }
    memset(x + plan.n * kNumber, 0, size_t(plan.length() - plan.n) * kNumber * sizeof(T));
    T* spectrum = run_stages(*plan.inner, x, y);
    T* other = spectrum == x ? y : x;
    // With its parts exchanged before and after, the forward transform is the inverse one.
    for (int64_t i = 0; i < plan.length(); i++) {
      T* at = spectrum + i * kNumber;
      const Number<T> v =
          multiply(get(at), hn::Set(d, plan.filter[2 * i]), hn::Set(d, plan.filter[2 * i + 1]));
      put(Number<T>{v.im, v.re}, at);
    }
    x = run_stages(*plan.inner, spectrum, other);
    for (int64_t i = 0; i < plan.n; i++) {
      T* at = x + i * kNumber;
      const Number<T> v = get(at);
      put(multiply(Number<T>{v.im, v.re}, hn::Set(d, plan.chirp[2 * i]), hn::Set(d, plan.chirp[2 * i + 1])),
          at);
    }
  } else {
    x = run_stages(plan, x, y);
  }
  store_lanes(out, plan.n, count, x, Finish<T>{hn::Set(d, scale), scale != T(1), out.swap, twist});
}

template <class D>
struct Pair {
  hn::Vec<D> re, im;
};
// Numbers k, k + 1, … of a row, and those opposite to them: conj x[h−k], conj x[h−k−1], …
template <class D, class T>
HWY_INLINE Pair<D> forwards(D d, const T* x, int64_t k) {
  Pair<D> a;
  hn::LoadInterleaved2(d, x + 2 * k, a.re, a.im);
  return a;
}
template <class D, class T>
HWY_INLINE Pair<D> backwards(D d, const T* x, int64_t h, int64_t k) {
  Pair<D> a;
  hn::LoadInterleaved2(d, x + 2 * (h - k - int64_t(hn::MaxLanes(d)) + 1), a.re, a.im);
  return {hn::Reverse(d, a.re), hn::Neg(hn::Reverse(d, a.im))};
}
template <class D, class T>
HWY_INLINE void put_backwards(D d, Pair<D> a, T* x, int64_t h, int64_t k) {
  hn::StoreInterleaved2(hn::Reverse(d, a.re), hn::Neg(hn::Reverse(d, a.im)), d,
                        x + 2 * (h - k - int64_t(hn::MaxLanes(d)) + 1));
}

// Shared by unpack() and pack(), for the numbers from k on that fill vectors of D; gives the first that is
// left. With e = x[k] + conj x[h−k] and o = turn · w^±k · (x[k] − conj x[h−k]), the results are factor · (e +
// o) and factor · conj(e − o); `turn` is −i and the exponent k for unpack(), i and −k for pack().
template <bool Unpack, class D, class T>
HWY_INLINE int64_t combine(D d, const T* x, T* y, int64_t h, const T* w, T factor, int64_t k) {
  constexpr int64_t L = int64_t(hn::MaxLanes(D()));
  const T *cosines = w, *sines = w + h / 2 + 1;
  const auto scale = hn::Set(d, factor);
  for (; 2 * (k + L) - 2 < h; k += L) {
    const Pair<D> a = forwards(d, x, k), b = backwards(d, x, h, k);
    const auto e_re = hn::Add(a.re, b.re), e_im = hn::Add(a.im, b.im);
    const auto t_re = hn::Sub(a.re, b.re), t_im = hn::Sub(a.im, b.im);
    const auto c = hn::LoadU(d, cosines + k), s = hn::LoadU(d, sines + k);
    // The two cases differ by the sign of i: o = ∓i·(c ± i·s)·t.
    auto o_re = hn::MulAdd(t_im, c, hn::Mul(t_re, s)), o_im = hn::NegMulAdd(t_re, c, hn::Mul(t_im, s));
    if constexpr (!Unpack) {
      o_re = hn::NegMulAdd(t_im, c, hn::Mul(t_re, s));
      o_im = hn::MulAdd(t_re, c, hn::Mul(t_im, s));
    }
    hn::StoreInterleaved2(hn::Mul(hn::Add(e_re, o_re), scale), hn::Mul(hn::Add(e_im, o_im), scale), d,
                          y + 2 * k);
    put_backwards(d, Pair<D>{hn::Mul(hn::Sub(e_re, o_re), scale), hn::Mul(hn::Sub(e_im, o_im), scale)}, y, h,
                  k);
  }
  return k;
}

template <bool Unpack, class T>
HWY_INLINE void combine_row(const T* x, T* y, int64_t h, const T* w, T factor) {
  const T *cosines = w, *sines = w + h / 2 + 1;
  int64_t k = combine<Unpack>(Lanes<T>(), x, y, h, w, factor, 1);
  k = combine<Unpack>(hn::CappedTag<T, 16 / sizeof(T)>(), x, y, h, w, factor, k);
  for (; 2 * k <= h; k++) {
    const T *a = x + 2 * k, *b = x + 2 * (h - k);
    const T e_re = a[0] + b[0], e_im = a[1] - b[1], t_re = a[0] - b[0], t_im = a[1] + b[1];
    const T c = Unpack ? cosines[k] : -cosines[k], s = sines[k];
    const T o_re = t_im * c + t_re * s, o_im = t_im * s - t_re * c;
    y[2 * (h - k)] = (e_re - o_re) * factor;
    y[2 * (h - k) + 1] = (o_im - e_im) * factor;
    y[2 * k] = (e_re + o_re) * factor;
    y[2 * k + 1] = (e_im + o_im) * factor;
  }
}

template <class T>
void unpack(T* z, int64_t h, const T* w, T scale) {
  const T re = z[0], im = z[1];
  combine_row<true>(z, z, h, w, scale / 2);
  z[0] = (re + im) * scale;
  z[1] = 0;
  z[2 * h] = (re - im) * scale;
  z[2 * h + 1] = 0;
}

template <class T>
void pack(const T* x, T* z, int64_t h, const T* w) {
  const T first = x[0], last = x[2 * h];
  combine_row<false>(x, z, h, w, T(1));
  z[0] = first + last;
  z[1] = first - last;
}

template <class T>
void transpose(const T* x, int64_t x_step, T* y, int64_t y_step, int64_t rows, int64_t columns) {
  const Lanes<T> d;
  constexpr int64_t L = lane_count<T>();
  for (int64_t i = 0; i < rows; i += L) {
    int64_t j = 0;
    for (; i + L <= rows && j + L <= columns; j += L) {
      Vector<T> v[L];
      for (int64_t k = 0; k < L; k++) v[k] = hn::LoadU(d, x + (i + k) * x_step + j);
      transpose<T>(v);
      for (int64_t k = 0; k < L; k++) hn::StoreU(v[k], d, y + (j + k) * y_step + i);
    }
    for (; j < columns; j++) {
      for (int64_t k = i; k < rows && k < i + L; k++) y[j * y_step + k] = x[k * x_step + j];
    }
  }
}

template <class T>
void multiply_rows(const T* x, const T* a, T* y, int64_t n) {
  const Lanes<T> d;
  constexpr int64_t L = lane_count<T>();
  int64_t i = 0;
  for (; i + L <= n; i += L) {
    Number<T> u, v;
    hn::LoadInterleaved2(d, x + 2 * i, u.re, u.im);
    hn::LoadInterleaved2(d, a + 2 * i, v.re, v.im);
    u = multiply(u, v.re, v.im);
    hn::StoreInterleaved2(u.re, u.im, d, y + 2 * i);
  }
  for (; i < n; i++) {
    const T re = x[2 * i] * a[2 * i] - x[2 * i + 1] * a[2 * i + 1];
    const T im = x[2 * i] * a[2 * i + 1] + x[2 * i + 1] * a[2 * i];
    y[2 * i] = re;
    y[2 * i + 1] = im;
  }
}

template <class T>
constexpr FftTable<T> kTable = {lane_count<T>(), lines<T>,     unpack<T>,
                                pack<T>,         transpose<T>, multiply_rows<T>};

}  // namespace

const FftTables& fft_tables() {
  static constexpr FftTables tables = {kTable<float>, kTable<double>};
  return tables;
}

}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();
