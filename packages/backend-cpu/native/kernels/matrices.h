// Shared by the kernels on LAPACK: the matrices of a batch, scratch memory for each thread that
// works on one, and small loops over a matrix.
#ifndef LAZULI_KERNELS_MATRICES_H
#define LAZULI_KERNELS_MATRICES_H

#include <atomic>
#include <complex>
#include <limits>
#include <tuple>

#include "kernels/layout.h"
#include "kernels/leases.h"
#include "runtime/registry.h"

namespace lazuli {

struct lapack_types {
  template <class T>
  static constexpr bool accepts = std::is_same_v<T, float> || std::is_same_v<T, double> || is_complex<T>;
};
inline constexpr uint32_t kLapackDtypes = 1u << LZ_FLOAT32 | 1u << LZ_FLOAT64 | 1u << LZ_COMPLEX64;

template <class T>
using real_t = std::conditional_t<is_complex<T>, float, T>;
template <class T>
inline constexpr real_t<T> kNan = std::numeric_limits<real_t<T>>::quiet_NaN();

// The matrices of an operand's last two axes.
struct Batch {
  int64_t count = 1, rows, columns;
  Batch(const lz_call& call, const char* op, const lz_operand& x) {
    require(call, x.ndim >= 2, "[%s] needs an array of at least 2 dimensions", op);
    rows = x.shape[x.ndim - 2];
    columns = x.shape[x.ndim - 1];
    for (int d = 0; d < x.ndim - 2; d++) count *= x.shape[d];
    require(call, rows <= INT32_MAX && columns <= INT32_MAX,
            "[%s] a matrix has more than 2^31 - 1 rows or columns", op);
  }
  int64_t size() const { return rows * columns; }
  int m() const { return int(rows); }
  int n() const { return int(columns); }
  int k() const { return int(std::min(rows, columns)); }
};

inline Batch squares(const lz_call& call, const char* op, const lz_operand& x) {
  Batch batch(call, op, x);
  require(call, batch.rows == batch.columns, "[%s] needs square matrices", op);
  return batch;
}

inline void require_output(const lz_call& call, const char* op, const lz_operand& out, int32_t dtype,
                           int64_t size) {
  require(call, out.dtype == dtype && out.size == size,
          "[%s] the output's shape or dtype does not fit the input's", op);
}

// Of the real values that belong to a matrix.
inline int32_t real_dtype(int32_t dtype) { return dtype == LZ_COMPLEX64 ? int32_t(LZ_FLOAT32) : dtype; }

inline bool is_finite(float x) { return std::isfinite(x); }
inline bool is_finite(double x) { return std::isfinite(x); }
inline bool is_finite(complex64 x) { return std::isfinite(x.real()) && std::isfinite(x.imag()); }

template <class T>
bool all_finite(const T* x, int64_t count) {
  return std::all_of(x, x + count, [](T v) { return is_finite(v); });
}
// The same for the triangle that a Hermitian matrix is read from.
template <class T>
bool all_finite(const T* x, int64_t n, bool upper) {
  for (int64_t i = 0; i < n; i++) {
    if (!(upper ? all_finite(x + i * n + i, n - i) : all_finite(x + i * n, i + 1))) return false;
  }
  return true;
}

template <class T>
void transpose(const T* from, int64_t rows, int64_t columns, T* to) {
  constexpr int64_t kBlock = 32;
  for (int64_t i0 = 0; i0 < rows; i0 += kBlock) {
    for (int64_t j = 0; j < columns; j++) {
      for (int64_t i = i0; i < std::min(rows, i0 + kBlock); i++) to[j * rows + i] = from[i * columns + j];
    }
  }
}

// A block of memory, handed out piece by piece. Without memory it measures.
class Pieces {
 public:
  explicit Pieces(char* memory = nullptr) : memory_(memory) {}
  template <class T>
  T* take(int64_t count) {
    char* at = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += (std::max<int64_t>(count, 1) * int64_t(sizeof(T)) + 63) / 64 * 64;
    return static_cast<T*>(static_cast<void*>(at));
  }
  int64_t used() const { return used_; }

 private:
  char* memory_;
  int64_t used_ = 0;
};

// The length of work that a query answered: float32 may have rounded it down.
template <class T>
int work_length(const lz_call& call, const char* op, T answer) {
  const double length = std::real(answer) * (1 + 0x1p-22) + 1;
  require(call, length < INT32_MAX, "[%s] the matrix is too large for LAPACK", op);
  return int(length);
}

// Runs solve(i, pieces) for the matrices of a batch; it tells whether that went well. `cost` is in
// nanoseconds.
template <class F>
void each_matrix(const lz_call& call, const char* op, const char* failure, int64_t count, int64_t bytes,
                 double cost, F&& solve) {
  if (count == 0) return;
  Leases<char> blocks(call, bytes, count);
  std::atomic<bool> failed{false};
  parallel(call, count, cost + 200, [&](int64_t begin, int64_t end) {
    const Leases<char>::Lease block(blocks);
    for (int64_t i = begin; i < end; i++) {
      if (!solve(i, Pieces(block.data()))) failed.store(true, std::memory_order_relaxed);
    }
  });
  if (failed.load()) fail(call, "[%s] %s", op, failure);
}

template <class T>
double cost_of(double operations) {
  return operations * (is_complex<T> ? 0.4 : sizeof(T) == 8 ? 0.15 : 0.1);
}
inline double cube(int64_t n) { return double(n) * double(n) * double(n); }

}  // namespace lazuli

#endif
