/* Matrices of simdgroups for kernels that never look at a thread's own elements: the first thread of a
 * simdgroup has all of a matrix and computes with rows as vectors, and the others do nothing. Nobody waits,
 * since what a matrix is loaded from was written before a barrier. */
#pragma once

namespace metal {

template <class T, int C = 8, int R = 8>
struct lz_whole_matrix {
  static_assert(C == 8 && R == 8, "simdgroup matrices are 8 by 8");
  // As T would round them.
  alignas(32) float rows[8][8];
  lz_whole_matrix() = default;
  explicit lz_whole_matrix(T diagonal) {
    if (lz::lane_of_simdgroup() != 0) return;
    for (int y = 0; y < 8; y++)
      for (int x = 0; x < 8; x++) rows[y][x] = x == y ? float(diagonal) : 0.0f;
  }
};
typedef lz_whole_matrix<float, 8, 8> lz_whole_float8x8;
typedef lz_whole_matrix<half, 8, 8> lz_whole_half8x8;
typedef lz_whole_matrix<bfloat, 8, 8> lz_whole_bfloat8x8;

template <class T, int C, int R>
inline lz_whole_matrix<T, C, R> lz_filled_whole_matrix(T value) {
  lz_whole_matrix<T, C, R> m;
  if (lz::lane_of_simdgroup() == 0)
    for (int y = 0; y < 8; y++)
      for (int x = 0; x < 8; x++) m.rows[y][x] = float(value);
  return m;
}
template <class T, int C, int R, class S>
inline void simdgroup_load(lz_whole_matrix<T, C, R>& m, const S* from, ulong stride = 8,
                           ulong2 origin = ulong2(0ul), bool transposed = false) {
  if (lz::lane_of_simdgroup() != 0) return;
  from += origin.x + origin.y * stride;
  for (int y = 0; y < 8; y++)
    for (int x = 0; x < 8; x++)
      m.rows[y][x] = float(T(transposed ? from[x * stride + y] : from[y * stride + x]));
}
template <class T, int C, int R, class S>
inline void simdgroup_store(const lz_whole_matrix<T, C, R>& m, S* to, ulong stride = 8,
                            ulong2 origin = ulong2(0ul), bool transposed = false) {
  if (lz::lane_of_simdgroup() != 0) return;
  to += origin.x + origin.y * stride;
  for (int y = 0; y < 8; y++)
    for (int x = 0; x < 8; x++) to[transposed ? x * stride + y : y * stride + x] = S(T(m.rows[y][x]));
}
/* d = a · b + c; each element's sum is in the order of k. */
template <class T, class A, class B, class U, int N>
inline void simdgroup_multiply_accumulate(lz_whole_matrix<T, N, N>& d, const lz_whole_matrix<A, N, N>& a,
                                          const lz_whole_matrix<B, N, N>& b,
                                          const lz_whole_matrix<U, N, N>& c) {
  if (lz::lane_of_simdgroup() != 0) return;
  typedef float Row __attribute__((vector_size(32), may_alias));
  const Row* right = reinterpret_cast<const Row*>(b.rows);
  const Row* before = reinterpret_cast<const Row*>(c.rows);
  Row sums[8];
#pragma GCC unroll 2
  for (int half = 0; half < 8; half += 4) {
    Row s0 = before[half], s1 = before[half + 1], s2 = before[half + 2], s3 = before[half + 3];
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) {
      s0 += a.rows[half][k] * right[k];
      s1 += a.rows[half + 1][k] * right[k];
      s2 += a.rows[half + 2][k] * right[k];
      s3 += a.rows[half + 3][k] * right[k];
    }
    sums[half] = s0;
    sums[half + 1] = s1;
    sums[half + 2] = s2;
    sums[half + 3] = s3;
  }
  // The result may be one of the operands.
  Row* after = reinterpret_cast<Row*>(d.rows);
#pragma GCC unroll 8
  for (int y = 0; y < 8; y++) after[y] = sums[y];
  if (!lz::same<T, float>)
    for (int y = 0; y < 8; y++)
      for (int x = 0; x < 8; x++) d.rows[y][x] = float(T(d.rows[y][x]));
}
template <class T, class A, class B, int N>
inline void simdgroup_multiply(lz_whole_matrix<T, N, N>& d, const lz_whole_matrix<A, N, N>& a,
                               const lz_whole_matrix<B, N, N>& b) {
  const lz_whole_matrix<T, N, N> zero = lz_filled_whole_matrix<T, N, N>(T(0));
  simdgroup_multiply_accumulate(d, a, b, zero);
}

}  // namespace metal

using metal::lz_whole_bfloat8x8;
using metal::lz_whole_float8x8;
using metal::lz_whole_half8x8;
