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

// Rows are moved a few pairs of numbers at a time through a small buffer in which a pair of every lane stands
// together: so each copy moves two numbers, and whole vectors are stored before they are read in other
// pieces.
constexpr int kPairs = 8;

template <class T>
void load_rows(const FftSide<const T>& in, int64_t n, int64_t count, T* to) {
  const Lanes<T> d;
  constexpr int64_t L = lane_count<T>();
  HWY_ALIGN T block[kPairs * 4 * L];
  memset(block, 0, sizeof(block));
  for (int64_t i = 0; i < n; i += 2 * kPairs) {
    const int64_t numbers = n - i < 2 * kPairs ? n - i : 2 * kPairs;
    for (int64_t l = 0; l < count; l++) {
      const T* from = in.data + in.offsets[l] + 2 * i;
      T* at = block + 4 * l;
      if (numbers == 2 * kPairs) {
        for (int k = 0; k < kPairs; k++) memcpy(at + k * 4 * L, from + 4 * k, 4 * sizeof(T));
      } else {
        for (int64_t k = 0; k < numbers; k++)
          memcpy(at + k / 2 * 4 * L + k % 2 * 2, from + 2 * k, 2 * sizeof(T));
      }
    }
    for (int64_t k = 0; k < numbers; k += 2, to += 4 * L) {
      Number<T> a, b;
      hn::LoadInterleaved4(d, block + k * 2 * L, a.re, a.im, b.re, b.im);
      if (in.swap) std::swap(a.re, a.im), std::swap(b.re, b.im);
      put(a, to);
      if (k + 1 < numbers) put(b, to + 2 * L);
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
  if (in.step == 2) return load_rows(in, n, count, to);
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

// What happens to element i on its way out.
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
  constexpr int64_t L = lane_count<T>();
  HWY_ALIGN T block[kPairs * 4 * L];
  for (int64_t i = 0; i < n; i += 2 * kPairs) {
    const int64_t numbers = n - i < 2 * kPairs ? n - i : 2 * kPairs;
    for (int64_t k = 0; k < numbers; k += 2) {
      const T* at = from + (i + k) * 2 * L;
      const Number<T> a = finish(at, i + k);
      const Number<T> b = k + 1 < numbers ? finish(at + 2 * L, i + k + 1) : a;
      hn::StoreInterleaved4(a.re, a.im, b.re, b.im, d, block + k * 2 * L);
    }
    for (int64_t l = 0; l < count; l++) {
      T* to = out.data + out.offsets[l] + 2 * i;
      const T* at = block + 4 * l;
      if (numbers == 2 * kPairs) {
        for (int k = 0; k < kPairs; k++) memcpy(to + 4 * k, at + k * 4 * L, 4 * sizeof(T));
      } else {
        for (int64_t k = 0; k < numbers; k++)
          memcpy(to + 2 * k, at + k / 2 * 4 * L + k % 2 * 2, 2 * sizeof(T));
      }
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
  T *x = work, *y = work + plan.length() * kNumber;
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

// With e = z[k] + conj z[h−k] and o = −i·w^k·(z[k] − conj z[h−k]): x[k] = (e + o)/2 and x[h−k] = conj(e −
// o)/2.
template <class T>
void unpack(T* z, int64_t h, const T* w, T scale) {
  const Lanes<T> d;
  constexpr int64_t L = lane_count<T>();
  const T *cosines = w, *sines = w + h / 2 + 1;
  const T re = z[0], im = z[1], half = scale / 2;
  z[0] = (re + im) * scale;
  z[1] = 0;
  z[2 * h] = (re - im) * scale;
  z[2 * h + 1] = 0;
  int64_t k = 1;
  const Vector<T> factor = hn::Set(d, half);
  for (; 2 * (k + L) - 2 < h; k += L) {
    Number<T> a, b;
    hn::LoadInterleaved2(d, z + 2 * k, a.re, a.im);
    hn::LoadInterleaved2(d, z + 2 * (h - k - L + 1), b.re, b.im);
    b = {hn::Reverse(d, b.re), hn::Neg(hn::Reverse(d, b.im))};
    const Number<T> e = add(a, b), t = subtract(a, b);
    const Number<T> o = multiply(t, hn::LoadU(d, cosines + k), hn::LoadU(d, sines + k));
    const Number<T> p = minus_i(e, o), q = plus_i(e, o);
    hn::StoreInterleaved2(hn::Mul(p.re, factor), hn::Mul(p.im, factor), d, z + 2 * k);
    hn::StoreInterleaved2(hn::Reverse(d, hn::Mul(q.re, factor)),
                          hn::Neg(hn::Reverse(d, hn::Mul(q.im, factor))), d, z + 2 * (h - k - L + 1));
  }
  for (; 2 * k <= h; k++) {
    T *a = z + 2 * k, *b = z + 2 * (h - k);
    const T e_re = a[0] + b[0], e_im = a[1] - b[1], t_re = a[0] - b[0], t_im = a[1] + b[1];
    const T o_re = t_re * cosines[k] - t_im * sines[k], o_im = t_re * sines[k] + t_im * cosines[k];
    a[0] = (e_re + o_im) * half;
    a[1] = (e_im - o_re) * half;
    if (a == b) break;
    b[0] = (e_re - o_im) * half;
    b[1] = -(e_im + o_re) * half;
  }
}

// With e = x[k] + conj x[h−k] and o = i·w^−k·(x[k] − conj x[h−k]): z[k] = e + o and z[h−k] = conj(e − o).
template <class T>
void pack(const T* x, T* z, int64_t h, const T* w) {
  const Lanes<T> d;
  constexpr int64_t L = lane_count<T>();
  const T *cosines = w, *sines = w + h / 2 + 1;
  const T first = x[0], last = x[2 * h];
  z[0] = first + last;
  z[1] = first - last;
  int64_t k = 1;
  for (; 2 * (k + L) - 2 < h; k += L) {
    Number<T> a, b;
    hn::LoadInterleaved2(d, x + 2 * k, a.re, a.im);
    hn::LoadInterleaved2(d, x + 2 * (h - k - L + 1), b.re, b.im);
    b = {hn::Reverse(d, b.re), hn::Neg(hn::Reverse(d, b.im))};
    const Number<T> e = add(a, b), t = subtract(a, b);
    const Number<T> o = multiply(t, hn::LoadU(d, cosines + k), hn::Neg(hn::LoadU(d, sines + k)));
    const Number<T> p = plus_i(e, o), q = minus_i(e, o);
    hn::StoreInterleaved2(p.re, p.im, d, z + 2 * k);
    hn::StoreInterleaved2(hn::Reverse(d, q.re), hn::Neg(hn::Reverse(d, q.im)), d, z + 2 * (h - k - L + 1));
  }
  for (; 2 * k <= h; k++) {
    const T *a = x + 2 * k, *b = x + 2 * (h - k);
    const T e_re = a[0] + b[0], e_im = a[1] - b[1], t_re = a[0] - b[0], t_im = a[1] + b[1];
    const T o_re = t_re * cosines[k] + t_im * sines[k], o_im = t_im * cosines[k] - t_re * sines[k];
    z[2 * k] = e_re - o_im;
    z[2 * k + 1] = e_im + o_re;
    z[2 * (h - k)] = 2 * k == h ? z[2 * k] : e_re + o_im;
    z[2 * (h - k) + 1] = 2 * k == h ? z[2 * k + 1] : o_re - e_im;
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
constexpr FftTable<T> kTable = {lane_count<T>(), lines<T>, unpack<T>, pack<T>, multiply_rows<T>};

}  // namespace

const FftTables& fft_tables() {
  static constexpr FftTables tables = {kTable<float>, kTable<double>};
  return tables;
}

}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();
