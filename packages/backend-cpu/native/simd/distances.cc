// Four rows by two vectors of columns: eight sums in registers, so that a column is loaded once for four
// rows.
#include "simd/distances.h"

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
using Vec = hn::Vec<Tag<T>>;

template <DistanceNorm norm, class T>
HWY_INLINE Vec<T> with(Vec<T> total, Vec<T> d) {
  const Tag<T> tag;
  if constexpr (norm == DistanceNorm::euclidean) return hn::MulAdd(d, d, total);
  if constexpr (norm == DistanceNorm::sum) return hn::Add(total, hn::Abs(d));
  if constexpr (norm == DistanceNorm::largest) {
    const auto size = hn::Abs(d);
    return hn::IfThenElse(hn::Or(hn::Gt(size, total), hn::IsNaN(size)), size, total);
  }
  return hn::Add(total, hn::IfThenZeroElse(hn::Eq(d, hn::Zero(tag)), hn::Set(tag, T(1))));
}

template <DistanceNorm norm, int rows, class T>
void tile(const T* x, const T* y, int64_t width, int64_t columns, T* out, int64_t stride) {
  const Tag<T> tag;
  const int64_t L = int64_t(hn::Lanes(tag));
  for (int64_t j = 0; j < columns; j += 2 * L) {
    Vec<T> first[rows], second[rows];
    for (int i = 0; i < rows; i++) first[i] = second[i] = hn::Zero(tag);
    for (int64_t k = 0; k < width; k++) {
      const auto a = hn::LoadU(tag, y + k * kDistanceColumns + j);
      const auto b = hn::LoadU(tag, y + k * kDistanceColumns + j + L);
      for (int i = 0; i < rows; i++) {
        const auto at = hn::Set(tag, x[i * width + k]);
        first[i] = with<norm, T>(first[i], hn::Sub(at, a));
        second[i] = with<norm, T>(second[i], hn::Sub(at, b));
      }
    }
    for (int i = 0; i < rows; i++) {
      if constexpr (norm == DistanceNorm::euclidean) {
        first[i] = hn::Sqrt(first[i]);
        second[i] = hn::Sqrt(second[i]);
      }
      T* to = out + i * stride + j;
      if (j + 2 * L <= columns) {
        hn::StoreU(first[i], tag, to);
        hn::StoreU(second[i], tag, to + L);
        continue;
      }
      T rest[2 * hn::MaxLanes(tag)];
      hn::StoreU(first[i], tag, rest);
      hn::StoreU(second[i], tag, rest + L);
      for (int64_t c = 0; c < columns - j; c++) to[c] = rest[c];
    }
  }
}

template <DistanceNorm norm, class T>
void rows_of(const T* x, int64_t rows, const T* y, int64_t width, int64_t columns, T* out, int64_t stride) {
  int64_t i = 0;
  for (; i + 4 <= rows; i += 4) tile<norm, 4>(x + i * width, y, width, columns, out + i * stride, stride);
  for (; i < rows; i++) tile<norm, 1>(x + i * width, y, width, columns, out + i * stride, stride);
}

template <class T>
void block(DistanceNorm norm, const T* x, int64_t rows, const T* y, int64_t width, int64_t columns, T* out,
           int64_t stride) {
  switch (norm) {
    case DistanceNorm::euclidean:
      return rows_of<DistanceNorm::euclidean>(x, rows, y, width, columns, out, stride);
    case DistanceNorm::sum:
      return rows_of<DistanceNorm::sum>(x, rows, y, width, columns, out, stride);
    case DistanceNorm::largest:
      return rows_of<DistanceNorm::largest>(x, rows, y, width, columns, out, stride);
    case DistanceNorm::count:
      return rows_of<DistanceNorm::count>(x, rows, y, width, columns, out, stride);
  }
}

}  // namespace

const DistanceTables& distance_tables() {
  static constexpr DistanceTables tables = {{block<float>}, {block<double>}};
  return tables;
}

}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();
