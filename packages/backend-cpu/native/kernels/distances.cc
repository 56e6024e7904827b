// Distances between the rows of two matrices. Half types are computed in float32.
#include "simd/distances.h"

#include <cmath>
#include <optional>

#include "kernels/families.h"
#include "kernels/layout.h"
#include "simd/halves.h"

namespace lazuli {
namespace {

// Rows of a task: their part of the result stays in a core's own cache while blocks of columns go by.
constexpr int64_t kRows = 16;

std::optional<DistanceNorm> norm_of(double p) {
  if (p == 0) return DistanceNorm::count;
  if (p == 1) return DistanceNorm::sum;
  if (p == 2) return DistanceNorm::euclidean;
  if (std::isinf(p)) return DistanceNorm::largest;
  return std::nullopt;
}

// Any other p, number by number.
template <class T>
void by_powers(double p, const T* x, int64_t rows, const T* y, int64_t width, int64_t columns, T* out,
               int64_t stride) {
  for (int64_t i = 0; i < rows; i++) {
    for (int64_t j = 0; j < columns; j++) {
      T total = 0;
      for (int64_t k = 0; k < width; k++)
        total += std::pow(std::abs(x[i * width + k] - y[k * kDistanceColumns + j]), T(p));
      out[i * stride + j] = std::pow(total, T(1 / p));
    }
  }
}

// The elements as T: their own, or those of half types widened.
template <class E, class T>
const T* values(const lz_call& call, const lz_operand& x) {
  const E* own = contiguous<E>(call, x);
  if constexpr (std::is_same_v<E, T>) {
    return own;
  } else {
    T* wide = scratch<T>(call, x.size);
    half_table().widen[x.dtype](own, wide, x.size);
    return wide;
  }
}

// a […, N, D], b […, M, D] → […, N, M]
void cdist(const lz_call& call) {
  constexpr const char* op = "cdist";
  require_counts(call, op, 2, 1);
  const lz_operand &a = call.in[0], &b = call.in[1], &y = call.out[0];
  require(call, a.ndim >= 2 && a.ndim == b.ndim && a.ndim == y.ndim, "[%s] needs matrices", op);
  const double p = params::Cdist(call).p;
  const int64_t width = a.shape[a.ndim - 1], rows = a.shape[a.ndim - 2], columns = b.shape[b.ndim - 2];
  const int last = a.ndim - 1;
  bool fits = a.dtype == b.dtype && y.dtype == a.dtype && b.shape[last] == width &&
              y.shape[last - 1] == rows && y.shape[last] == columns;
  for (int d = 0; d < last - 1 && fits; d++) fits = b.shape[d] == a.shape[d] && y.shape[d] == a.shape[d];
  require(call, fits, "[%s] the shapes or dtypes of the operands do not fit", op);
  if (y.size == 0) return;
  const int64_t batch = y.size / (rows * columns);
  dispatch_or_fail<floating_types>(call, op, a.dtype, [&]<class E>() {
    using T = compute_t<E>;
    const T *from = values<E, T>(call, a), *to = values<E, T>(call, b);
    // Blocks of columns: [batch, blocks, width, kDistanceColumns].
    const int64_t blocks = (columns + kDistanceColumns - 1) / kDistanceColumns,
                  size = width * kDistanceColumns;
    T* turned = scratch<T>(call, batch * blocks * size);
    parallel(call, batch * blocks, double(size), [&](int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; at++) {
        const int64_t first = at % blocks * kDistanceColumns;
        const int64_t count = std::min(kDistanceColumns, columns - first);
        const T* source = to + (at / blocks * columns + first) * width;
        for (int64_t k = 0; k < width; k++) {
          T* line = turned + at * size + k * kDistanceColumns;
          for (int64_t j = 0; j < count; j++) line[j] = source[j * width + k];
          std::fill(line + count, line + kDistanceColumns, T(0));
        }
      }
    });
    const auto norm = norm_of(p);
    const int64_t tasks = (rows + kRows - 1) / kRows;
    const double price = (norm ? 0.1 : 20.0) * double(width) + 0.5;
    parallel(call, batch * tasks, price * double(kRows * columns), [&](int64_t begin, int64_t end) {
      T narrow[kRows * kDistanceColumns];
      for (int64_t at = begin; at < end; at++) {
        const int64_t row = at % tasks * kRows, count = std::min(kRows, rows - row);
        const T* x = from + (at / tasks * rows + row) * width;
        E* out = data<E>(y) + (at / tasks * rows + row) * columns;
        for (int64_t block = 0; block < blocks; block++) {
          const int64_t first = block * kDistanceColumns, wide = std::min(kDistanceColumns, columns - first);
          const T* other = turned + (at / tasks * blocks + block) * size;
          const auto compute = [&](T* result, int64_t stride) {
            if (norm)
              distance_table(T()).block(*norm, x, count, other, width, wide, result, stride);
            else
              by_powers(p, x, count, other, width, wide, result, stride);
          };
          if constexpr (std::is_same_v<E, T>) {
            compute(out + first, columns);
          } else {
            compute(narrow, kDistanceColumns);
            for (int64_t i = 0; i < count; i++)
              half_table().narrow[y.dtype](narrow + i * kDistanceColumns, out + i * columns + first, wide);
          }
        }
      }
    });
  });
}

}  // namespace

void register_distances(Registry& registry) { registry.add("cdist", entry<cdist>); }

}  // namespace lazuli
