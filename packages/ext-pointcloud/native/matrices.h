// Matrices by vectors, and vectors by vectors, in groups, one pair at a time. Sums are in the element type,
// and the same wherever a row stands.
#ifndef LAZULI_POINTCLOUD_MATRICES_H
#define LAZULI_POINTCLOUD_MATRICES_H

#include <algorithm>

#include "lanes.h"

namespace pointcloud {

// A matrix of each group, its rows and their elements: `group` and `row` elements apart; vectors lie without
// gaps.
template <class T>
struct Matrices {
  const T* first;
  int64_t groups, rows, columns, group, row;
};

// The sums of eight vectors' lanes, by pairs: seven additions for eight sums.
template <class V>
POINTCLOUD_INLINE void add_lanes(V (&x)[8], V& sums) {
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2)
    x[i / 2] = __builtin_shufflevector(x[i], x[i + 1], 0, 2, 8, 10, 4, 6, 12, 14) +
               __builtin_shufflevector(x[i], x[i + 1], 1, 3, 9, 11, 5, 7, 13, 15);
#pragma GCC unroll 2
  for (int i = 0; i < 4; i += 2)
    x[i / 2] = __builtin_shufflevector(x[i], x[i + 1], 0, 2, 8, 10, 4, 6, 12, 14) +
               __builtin_shufflevector(x[i], x[i + 1], 1, 3, 9, 11, 5, 7, 13, 15);
  sums = __builtin_shufflevector(x[0], x[1], 0, 1, 2, 3, 8, 9, 10, 11) +
         __builtin_shufflevector(x[0], x[1], 4, 5, 6, 7, 12, 13, 14, 15);
}

// The products of up to eight rows, `row` elements apart; rows that are not there repeat the last one.
template <bool Eight, class T>
POINTCLOUD_INLINE void eight_rows(const T* matrix, int64_t row, int64_t rows, int64_t columns, const T* b,
                                  T* __restrict out) {
  using V = typename Lanes<T>::Type;
  const auto at = [&](int64_t i) { return matrix + (Eight ? i : std::min(i, rows - 1)) * row; };
  V lanes[8];
  int64_t c = 0;
  if (columns >= kLanes) {
    V y;
    load(y, b);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
      load(lanes[i], at(i));
      lanes[i] *= y;
    }
    for (c = kLanes; c + kLanes <= columns; c += kLanes) {
      load(y, b + c);
#pragma GCC unroll 8
      for (int i = 0; i < 8; i++) {
        V x;
        load(x, at(i) + c);
        lanes[i] += x * y;
      }
    }
  } else {
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) lanes[i] = V{};
  }
  V sums;
  add_lanes(lanes, sums);
  for (; c < columns; c++)
    for (int i = 0; i < 8; i++) sums[i] += at(i)[c] * b[c];
  if constexpr (Eight)
    store(sums, out);
  else
    for (int64_t i = 0; i < rows; i++) out[i] = sums[i];
}

// out[g, m] = Σ a[g, m, c] · b[g, c] of matrices that lie by rows
template <class T>
POINTCLOUD_INLINE void rows_product(const Matrices<T>& a, const T* b, T* __restrict out) {
  const int64_t groups = a.groups, rows = a.rows, columns = a.columns, row = a.row;
  const T* matrix = a.first;
  // Sizes that the compiler knows: otherwise their bookkeeping takes as long as the sums.
  if (row == kLanes && columns == kLanes && rows % 8 == 0) {
    for (int64_t g = 0; g < groups; g++, matrix += a.group, b += kLanes)
      for (int64_t m = 0; m < rows; m += 8, out += 8)
        eight_rows<true>(matrix + m * kLanes, kLanes, 8, kLanes, b, out);
    return;
  }
  for (int64_t g = 0; g < groups; g++, matrix += a.group, b += columns, out += rows) {
    int64_t m = 0;
    for (; m + 8 <= rows; m += 8) eight_rows<true>(matrix + m * row, row, 8, columns, b, out + m);
    if (m < rows) eight_rows<false>(matrix + m * row, row, rows - m, columns, b, out + m);
  }
}

// The products of one matrix that lies by columns, which are `row` apart.
template <class T>
POINTCLOUD_INLINE void columns_of_one(const T* matrix, int64_t row, int64_t rows, int64_t columns, const T* b,
                                      T* __restrict out) {
  using V = typename Lanes<T>::Type;
  int64_t m = 0;
  for (; m + kLanes <= rows; m += kLanes) {
    V sums = {};
    for (int64_t c = 0; c < columns; c++) {
      V x;
      load(x, matrix + c * row + m);
      sums += x * b[c];
    }
    store(sums, out + m);
  }
  for (; m < rows; m++) {
    T sum = 0;
    for (int64_t c = 0; c < columns; c++) sum += matrix[c * row + m] * b[c];
    out[m] = sum;
  }
}
template <class T>
POINTCLOUD_INLINE void columns_product(const Matrices<T>& a, const T* b, T* __restrict out) {
  const int64_t groups = a.groups, group = a.group, rows = a.rows, columns = a.columns, row = a.row;
  const bool eight = rows == kLanes && row == kLanes;
  for (int64_t g = 0; g < groups; g++) {
    if (eight)
      columns_of_one(a.first + g * group, kLanes, kLanes, columns, b + g * columns, out + g * kLanes);
    else
      columns_of_one(a.first + g * group, row, rows, columns, b + g * columns, out + g * rows);
  }
}

// out[m, c] = x[m] · b[c]
template <class T>
POINTCLOUD_INLINE void outer_of_one(const T* x, const T* b, int64_t rows, int64_t columns,
                                    T* __restrict out) {
  using V = typename Lanes<T>::Type;
  for (int64_t m = 0; m < rows; m++, out += columns) {
    const T scale = x[m];
    int64_t c = 0;
    for (; c + kLanes <= columns; c += kLanes) {
      V y;
      load(y, b + c);
      y *= scale;
      store(y, out + c);
    }
    for (; c < columns; c++) out[c] = scale * b[c];
  }
}
// out[g, m, c] = x[g, m] · b[g, c]
template <class T>
POINTCLOUD_INLINE void outer_product(const T* x, const T* b, int64_t groups, int64_t rows, int64_t columns,
                                     T* __restrict out) {
  for (int64_t g = 0; g < groups; g++) {
    if (columns == kLanes)
      outer_of_one(x + g * rows, b + g * kLanes, rows, kLanes, out + g * rows * kLanes);
    else
      outer_of_one(x + g * rows, b + g * columns, rows, columns, out + g * rows * columns);
  }
}

}  // namespace pointcloud

#endif
