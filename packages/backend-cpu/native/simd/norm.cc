// With r = 1/√(var + eps) and x̂ = (x − mean)·r (layer) or x·r (rms, var the mean square), y = x̂·w + b, and
// for a cotangent g:
//   dx = r·(gw − mean(gw) − x̂·mean(gw·x̂)) with gw = g·w; without the mean(gw) term for rms. dw = Σ g·x̂, db =
//   Σ g over rows.
// Variances are taken around the mean in a second pass over the row, which is in cache by then.
#include "simd/norm.h"

#include <hwy/cache_control.h>
#include <math.h>

#include "simd/vectors.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

using V = hn::Vec<Floats>;

// Calls f(i, count) for the row's vectors; count is the number of lanes but for the last.
template <class F>
HWY_INLINE void for_vectors(int64_t n, F f) {
  const int64_t N = int64_t(hn::Lanes(Floats()));
  int64_t i = 0;
  for (; i + N <= n; i += N) f(i, N);
  if (i < n) f(i, n - i);
}

template <class T>
HWY_INLINE V take(const T* x, int64_t i, int64_t count, float rest = 0) {
  const Floats d;
  return count == int64_t(hn::Lanes(d)) ? load(d, x + i) : load_some(d, x + i, count, rest);
}

// Two running sums of values of each vector, by f(i, count) → pair.
struct Pair {
  V a, b;
};
struct Sums {
  float a, b;
};
template <class F>
HWY_INLINE Sums sum_pairs(int64_t n, F f) {
  const Floats d;
  const int64_t N = int64_t(hn::Lanes(d));
  V a0 = hn::Zero(d), b0 = a0, a1 = a0, b1 = a0;
  int64_t i = 0;
  for (; i + 2 * N <= n; i += 2 * N) {
    const Pair p = f(i, N), q = f(i + N, N);
    a0 = hn::Add(a0, p.a), b0 = hn::Add(b0, p.b);
    a1 = hn::Add(a1, q.a), b1 = hn::Add(b1, q.b);
  }
  for (; i < n; i += N) {
    const Pair p = f(i, n - i < N ? n - i : N);
    a0 = hn::Add(a0, p.a), b0 = hn::Add(b0, p.b);
  }
  return {hn::GetLane(hn::SumOfLanes(d, hn::Add(a0, a1))), hn::GetLane(hn::SumOfLanes(d, hn::Add(b0, b1)))};
}

struct Moments {
  float mean, scale;
};
template <bool Layer, class T>
HWY_INLINE Moments moments(const T* x, int64_t n, float eps) {
  const Floats d;
  float mean = 0;
  if constexpr (Layer) {
    mean = sum_pairs(n, [&](int64_t i, int64_t count)
                            LZ_INLINE_LAMBDA { return Pair{take(x, i, count), hn::Zero(d)}; })
               .a /
           float(n);
  }
  const V m = hn::Set(d, mean);
  const float square = sum_pairs(n, [&](int64_t i, int64_t count) LZ_INLINE_LAMBDA {
                         const V c = hn::Sub(take(x, i, count, mean), m);
                         return Pair{hn::Mul(c, c), hn::Zero(d)};
                       }).a;
  return {mean, 1.0f / sqrtf(square / float(n) + eps)};
}

template <bool Layer, bool Streaming, class T>
HWY_INLINE void norm_rows(const void* x_data, int64_t rows, int64_t n, float eps, const float* weight,
                          const float* bias, void* y_data) {
  const Floats d;
  const T* x = static_cast<const T*>(x_data);
  T* y = static_cast<T*>(y_data);
  for (int64_t row = 0; row < rows; row++, x += n, y += n) {
    const Moments stats = moments<Layer>(x, n, eps);
    const V mean = hn::Set(d, stats.mean), scale = hn::Set(d, stats.scale);
    for_vectors(n, [&](int64_t i, int64_t count) LZ_INLINE_LAMBDA {
      V v = hn::Mul(hn::Sub(take(x, i, count), mean), scale);
      if (weight) v = hn::Mul(v, take(weight, i, count));
      if (bias) v = hn::Add(v, take(bias, i, count));
      hwy::Prefetch(x + n + i);
      if constexpr (Streaming && same_type<T, float>) {
        hn::Stream(v, d, y + i);
      } else {
        store_some(d, v, y + i, count);
      }
    });
  }
  if constexpr (Streaming) hwy::FlushStream();
}

template <bool Layer, class T>
HWY_INLINE void norm(const void* x, int64_t rows, int64_t n, float eps, const float* weight,
                     const float* bias, void* y, bool streaming) {
  // Around the caches only whole vectors where they are aligned.
  const auto bytes = int64_t(sizeof(float) * hn::Lanes(Floats()));
  if (same_type<T, float> && streaming && reinterpret_cast<uintptr_t>(y) % bytes == 0 && n * 4 % bytes == 0) {
    norm_rows<Layer, true, T>(x, rows, n, eps, weight, bias, y);
  } else {
    norm_rows<Layer, false, T>(x, rows, n, eps, weight, bias, y);
  }
}

template <bool Layer, class T>
HWY_INLINE void norm_vjp(const void* x_data, const void* g_data, int64_t rows, int64_t n, float eps,
                         const float* weight, void* dx_data, float* dweight, float* dbias) {
  const Floats d;
  const T *x = static_cast<const T*>(x_data), *g = static_cast<const T*>(g_data);
  T* dx = static_cast<T*>(dx_data);
  for (int64_t row = 0; row < rows; row++, x += n, g += n, dx += n) {
    const Moments stats = moments<Layer>(x, n, eps);
    const V mean = hn::Set(d, stats.mean), scale = hn::Set(d, stats.scale);
    const Sums sums = sum_pairs(n, [&](int64_t i, int64_t count) LZ_INLINE_LAMBDA {
      const V hat = hn::Mul(hn::Sub(take(x, i, count, stats.mean), mean), scale), in = take(g, i, count);
      const V gw = weight ? hn::Mul(in, take(weight, i, count)) : in;
      if (dweight) store_some(d, hn::MulAdd(in, hat, take(dweight, i, count)), dweight + i, count);
      if (dbias) store_some(d, hn::Add(in, take(dbias, i, count)), dbias + i, count);
      return Pair{gw, hn::Mul(gw, hat)};
    });
    const V shift = hn::Set(d, Layer ? sums.a / float(n) : 0.0f), slope = hn::Set(d, sums.b / float(n));
    for_vectors(n, [&](int64_t i, int64_t count) LZ_INLINE_LAMBDA {
      const V hat = hn::Mul(hn::Sub(take(x, i, count), mean), scale), in = take(g, i, count);
      const V gw = weight ? hn::Mul(in, take(weight, i, count)) : in;
      store_some(d, hn::Mul(scale, hn::Sub(hn::Sub(gw, shift), hn::Mul(hat, slope))), dx + i, count);
    });
  }
}

template <class T>
void layer(const void* x, int64_t rows, int64_t n, float eps, const float* weight, const float* bias, void* y,
           bool streaming) {
  norm<true, T>(x, rows, n, eps, weight, bias, y, streaming);
}
template <class T>
void rms(const void* x, int64_t rows, int64_t n, float eps, const float* weight, void* y, bool streaming) {
  norm<false, T>(x, rows, n, eps, weight, nullptr, y, streaming);
}
template <class T>
void layer_vjp(const void* x, const void* g, int64_t rows, int64_t n, float eps, const float* weight,
               void* dx, float* dweight, float* dbias) {
  norm_vjp<true, T>(x, g, rows, n, eps, weight, dx, dweight, dbias);
}
template <class T>
void rms_vjp(const void* x, const void* g, int64_t rows, int64_t n, float eps, const float* weight, void* dx,
             float* dweight) {
  norm_vjp<false, T>(x, g, rows, n, eps, weight, dx, dweight, nullptr);
}

template <class T>
constexpr void fill(NormTable& table, int dtype) {
  table.layer[dtype] = layer<T>;
  table.rms[dtype] = rms<T>;
  table.layer_vjp[dtype] = layer_vjp<T>;
  table.rms_vjp[dtype] = rms_vjp<T>;
}

constexpr NormTable make_table() {
  NormTable table{};
  fill<float16>(table, kFloat16);
  fill<bfloat16>(table, kBfloat16);
  fill<float>(table, kFloat32);
  return table;
}

}  // namespace

const NormTable& norm_table() {
  static constexpr NormTable table = make_table();
  return table;
}

}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();
