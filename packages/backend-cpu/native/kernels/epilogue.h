// Ends kernels that compute a result of rows in parts: rows at a time, with the elementwise work that
// follows.
#ifndef LAZULI_KERNELS_EPILOGUE_H
#define LAZULI_KERNELS_EPILOGUE_H

#include "kernels/call.h"
#include "runtime/pieces.h"
#include "simd/halves.h"

namespace lazuli {

// f(row, rows) for the rows of a result that is not empty, a cache's share at a time. `price` is that of an
// element.
template <class F>
void parallel_rows(const lz_call& call, const lz_operand& out, double price, F f) {
  const int64_t n = out.shape[out.ndim - 1], rows = out.size / n, each = std::max<int64_t>(1, (1 << 15) / n);
  parallel(call, (rows + each - 1) / each, double(std::min(each, rows)) * double(n) * price,
           [&](int64_t begin, int64_t end) {
             for (int64_t at = begin; at < end; at++) f(at * each, std::min(each, rows - at * each));
           });
}

// A result of a half type from what was computed in float32.
inline void narrow_rows(const lz_call& call, const float* wide, Epilogue epilogue) {
  const lz_operand& out = call.out[0];
  const int64_t n = out.shape[out.ndim - 1];
  const auto narrow = half_table().narrow[out.dtype];
  parallel_rows(call, out, 0.3 + epilogue.cost(), [&](int64_t row, int64_t rows) {
    narrow(wide + row * n, data<char>(out) + 2 * row * n, rows * n);
    epilogue(row, rows, 0, n);
  });
}

}  // namespace lazuli

#endif
