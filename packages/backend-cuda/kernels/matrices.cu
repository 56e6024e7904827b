/* Matrices on their way to cuSOLVER and back: copies that turn them, keep a triangle of them, and find those with a NaN or an infinity, in whose
 * stead the library gets the identity. Before this text stands LZ_ELEMENT: float, double or Complex. */
#define LZ_KERNELS
#include "tensor-core.cuh"

typedef long long i64;
struct alignas(8) Complex {
  float x, y;
};
typedef LZ_ELEMENT T;

/* Matrices of rows and columns, and the elements from a matrix to the next, a row and a column. */
struct Layout {
  i64 count, rows, columns, from[3], to[3];
};
/* The triangle that is read, and what stands for a matrix that is not finite. */
enum { ALL = 0, LOWER = 1, UPPER = 2 };
enum { IDENTITY = 0, NANS = 1, NANS_IN_PART = 2 };

inline bool is_finite(float x) { return x - x == 0.0f; }
inline bool is_finite(double x) { return x - x == 0.0; }
inline bool is_finite(Complex x) { return is_finite(x.x) && is_finite(x.y); }
template <class E>
struct Of {
  static inline E number(float x) { return E(x); }
  static inline E conjugate(E x) { return x; }
};
template <>
struct Of<Complex> {
  static inline Complex number(float x) { return {x, x == x ? 0.0f : x}; }
  static inline Complex conjugate(Complex x) { return {x.x, -x.y}; }
};
inline bool is_zero(float x) { return x == 0.0f; }
inline bool is_zero(double x) { return x == 0.0; }
inline bool is_zero(Complex x) { return x.x == 0.0f && x.y == 0.0f; }

inline i64 thread() { return i64(blockIdx.x) * blockDim.x + threadIdx.x; }
inline bool in_part(int part, i64 row, i64 column) {
  return part == ALL || (part == LOWER ? column <= row : row <= column);
}

/* Sets n integers. */
extern "C" __global__ void __launch_bounds__(256) clear(int* x, const int n) {
  if (thread() < n) x[thread()] = 0;
}

extern "C" __global__ void __launch_bounds__(256) find_bad(const T* x, int* bad,
                                                           const __grid_constant__ Layout at,
                                                           const int part) {
  const i64 i = thread(), size = at.rows * at.columns;
  if (i >= at.count * size) return;
  const i64 m = i / size, row = i % size / at.columns, column = i % at.columns;
  if (in_part(part, row, column) && !is_finite(x[m * at.from[0] + row * at.from[1] + column * at.from[2]]))
    bad[m] = 1;
}

extern "C" __global__ void __launch_bounds__(256) move(const T* x, const int* bad, T* y,
                                                       const __grid_constant__ Layout at, const int part,
                                                       const int instead, const int conjugated) {
  const i64 i = thread(), size = at.rows * at.columns;
  if (i >= at.count * size) return;
  const i64 m = i / size, row = i % size / at.columns, column = i % at.columns;
  const bool is_in = in_part(part, row, column);
  T value = Of<T>::number(0.0f);
  if (bad[m])
    value = Of<T>::number(instead == IDENTITY             ? float(row == column)
                          : instead == NANS || is_in ? INFINITY - INFINITY
                                                          : 0.0f);
  else if (is_in) {
    value = x[m * at.from[0] + row * at.from[1] + column * at.from[2]];
    if (conjugated) value = Of<T>::conjugate(value);
  }
  y[m * at.to[0] + row * at.to[1] + column * at.to[2]] = value;
}

/* Identities of n rows. */
extern "C" __global__ void __launch_bounds__(256) identities(T* x, const int n, const i64 elements) {
  const i64 i = thread();
  if (i < elements) x[i] = Of<T>::number(float(i / n % n == i % n));
}
/* For each of the matrices whether its diagonal has a zero. */
extern "C" __global__ void __launch_bounds__(256) find_zeros(const T* x, int* found, const int n,
                                                             const int count) {
  const i64 i = thread();
  if (i < i64(n) * count && is_zero(x[i / n * n * n + i % n * (n + 1)])) found[i / n] = 1;
}

/* The pivots of no exchange. */
extern "C" __global__ void __launch_bounds__(256) in_order(i64* pivots, const int n, const int count) {
  const i64 i = thread();
  if (i < i64(n) * count) pivots[i] = i % n + 1;
}
/* Pivots from 0 on, and the rows' numbers after the exchanges, inverted; `order` is scratch memory for them. */
extern "C" __global__ void __launch_bounds__(256) order_rows(const i64* given, u32* order, u32* pivots,
                                                             u32* permutation, const int k, const int rows,
                                                             const int count) {
  const i64 m = thread();
  if (m >= count) return;
  u32* at = order + m * rows;
  for (int i = 0; i < rows; i++) at[i] = u32(i);
  for (int i = 0; i < k; i++) {
    const u32 other = u32(given[m * k + i] - 1), old = at[i];
    pivots[m * k + i] = other;
    at[i] = at[other];
    at[other] = old;
  }
  for (int i = 0; i < rows; i++) permutation[m * rows + at[i]] = u32(i);
}
