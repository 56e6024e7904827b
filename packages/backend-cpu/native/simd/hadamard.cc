// Two levels of butterflies a pass, so that a row is read half as often; the first two, between neighbours,
// by vectors of every fourth number.
#include "simd/hadamard.h"

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

template <class T>
using Tag = hn::ScalableTag<T>;

template <class V>
HWY_INLINE void butterfly4(V& a, V& b, V& c, V& d) {
  const V p = hn::Add(a, b), q = hn::Sub(a, b), r = hn::Add(c, d), s = hn::Sub(c, d);
  a = hn::Add(p, r);
  b = hn::Add(q, s);
  c = hn::Sub(p, r);
  d = hn::Sub(q, s);
}

template <class T>
void powers(T* row, int64_t n) {
  const Tag<T> d;
  constexpr int64_t L = int64_t(hn::MaxLanes(d));
  int64_t h = 1;
  if (n >= 4 * L) {
    for (int64_t i = 0; i < n; i += 4 * L) {
      hn::Vec<Tag<T>> a, b, c, e;
      hn::LoadInterleaved4(d, row + i, a, b, c, e);
      butterfly4(a, b, c, e);
      hn::StoreInterleaved4(a, b, c, e, d, row + i);
    }
    h = 4;
  }
  for (; h < L && h < n; h *= 2) {
    for (int64_t i = 0; i < n; i += 2 * h) {
      T *x = row + i, *y = x + h;
      LZ_INDEPENDENT
      for (int64_t j = 0; j < h; j++) {
        const T a = x[j], b = y[j];
        x[j] = a + b;
        y[j] = a - b;
      }
    }
  }
  for (; 4 * h <= n; h *= 4) {
    for (int64_t i = 0; i < n; i += 4 * h) {
      for (int64_t j = i; j < i + h; j += L) {
        auto a = hn::LoadU(d, row + j), b = hn::LoadU(d, row + j + h);
        auto c = hn::LoadU(d, row + j + 2 * h), e = hn::LoadU(d, row + j + 3 * h);
        butterfly4(a, b, c, e);
        hn::StoreU(a, d, row + j);
        hn::StoreU(b, d, row + j + h);
        hn::StoreU(c, d, row + j + 2 * h);
        hn::StoreU(e, d, row + j + 3 * h);
      }
    }
  }
  if (h < n) {
    for (int64_t j = 0; j < h; j += L) {
      const auto a = hn::LoadU(d, row + j), b = hn::LoadU(d, row + j + h);
      hn::StoreU(hn::Add(a, b), d, row + j);
      hn::StoreU(hn::Sub(a, b), d, row + j + h);
    }
  }
}

constexpr int64_t kColumns = 64;

template <class T>
void mix(T* rows, int64_t m, int64_t n, const T* signs, T* work) {
  for (int64_t at = 0; at < n; at += kColumns) {
    const int64_t count = n - at < kColumns ? n - at : kColumns;
    for (int64_t j = 0; j < m; j++) {
      for (int64_t q = 0; q < count; q++) work[j * kColumns + q] = rows[j * n + at + q];
    }
    for (int64_t i = 0; i < m; i++) {
      T sums[kColumns] = {};
      for (int64_t j = 0; j < m; j++) {
        const T sign = signs[i * m + j];
        const T* x = work + j * kColumns;
        for (int64_t q = 0; q < count; q++) sums[q] += sign * x[q];
      }
      for (int64_t q = 0; q < count; q++) rows[i * n + at + q] = sums[q];
    }
  }
}

template <class T>
void scale(T* row, int64_t n, T factor) {
  for (int64_t i = 0; i < n; i++) row[i] *= factor;
}

template <class T>
constexpr HadamardTable<T> kTable = {powers<T>, mix<T>, scale<T>};

}  // namespace

const HadamardTables& hadamard_tables() {
  static constexpr HadamardTables tables = {kTable<float>, kTable<double>};
  return tables;
}

}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();
