// Rows of b one after the other: a single stream is what memory gives fastest.
#include "simd/half_products.h"

#include "simd/vectors.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

using V = hn::Vec<Floats>;

template <class T>
HWY_INLINE float dot_row(const T* b, int64_t k, const float* x) {
  const Floats d;
  const int64_t N = int64_t(hn::Lanes(d));
  V sum[4];
  for (V& s : sum) s = hn::Zero(d);
  int64_t i = 0;
  for (; i + 4 * N <= k; i += 4 * N) {
    for (int j = 0; j < 4; j++) sum[j] = hn::MulAdd(load(d, b + i + j * N), hn::LoadU(d, x + i + j * N), sum[j]);
  }
  for (; i < k; i += N) {
    const int64_t count = i + N <= k ? N : k - i;
    sum[0] = hn::MulAdd(load_some(d, b + i, count, 0), load_some(d, x + i, count, 0), sum[0]);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3]))));
}

template <class T>
void dot(const void* data, int64_t ldb, int64_t rows, int64_t k, const float* x, float* y) {
  for (int64_t r = 0; r < rows; r++) y[r] = dot_row(static_cast<const T*>(data) + r * ldb, k, x);
}

template <class T, int kRows>
HWY_INLINE void add_some(const T* b, int64_t ldb, int64_t n, const float* x, float* y) {
  const Floats d;
  const int64_t N = int64_t(hn::Lanes(d));
  V factor[kRows];
  for (int r = 0; r < kRows; r++) factor[r] = hn::Set(d, x[r]);
  int64_t i = 0;
  for (; i + N <= n; i += N) {
    V sum = hn::LoadU(d, y + i);
    for (int r = 0; r < kRows; r++) sum = hn::MulAdd(load(d, b + r * ldb + i), factor[r], sum);
    hn::StoreU(sum, d, y + i);
  }
  if (i == n) return;
  V sum = load_some(d, y + i, n - i, 0);
  for (int r = 0; r < kRows; r++) sum = hn::MulAdd(load_some(d, b + r * ldb + i, n - i, 0), factor[r], sum);
  store_some(d, sum, y + i, n - i);
}

template <class T>
void add_rows(const void* data, int64_t ldb, int64_t rows, int64_t n, const float* x, float* y) {
  const T* b = static_cast<const T*>(data);
  int64_t r = 0;
  for (; r + 8 <= rows; r += 8) add_some<T, 8>(b + r * ldb, ldb, n, x + r, y);
  for (; r < rows; r++) add_some<T, 1>(b + r * ldb, ldb, n, x + r, y);
}

constexpr HalfProductTable make_table() {
  HalfProductTable table{};
  table.dot[kFloat16] = dot<float16>;
  table.dot[kBfloat16] = dot<bfloat16>;
  table.add_rows[kFloat16] = add_rows<float16>;
  table.add_rows[kBfloat16] = add_rows<bfloat16>;
  return table;
}

}  // namespace

const HalfProductTable& half_product_table() {
  static constexpr HalfProductTable table = make_table();
  return table;
}

}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();
