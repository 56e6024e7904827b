// Conversion loops between the half types and float32.
#include "simd/halves.h"

#include "simd/vectors.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

template <class T>
void widen(const void* data, float* y, int64_t n) {
  const Floats d;
  const T* x = static_cast<const T*>(data);
  const int64_t N = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + N <= n; i += N) store(d, load(d, x + i), y + i);
  for (; i < n; i++) y[i] = to_float(x[i]);
}

template <class T>
void narrow(const float* x, void* data, int64_t n) {
  const Floats d;
  T* y = static_cast<T*>(data);
  const int64_t N = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + N <= n; i += N) store(d, load(d, x + i), y + i);
  for (; i < n; i++) y[i] = from_float<T>(x[i]);
}

constexpr HalfTable make_table() {
  HalfTable table{};
  table.widen[kFloat16] = widen<float16>;
  table.widen[kBfloat16] = widen<bfloat16>;
  table.narrow[kFloat16] = narrow<float16>;
  table.narrow[kBfloat16] = narrow<bfloat16>;
  return table;
}

}  // namespace

const HalfTable& half_table() {
  static constexpr HalfTable table = make_table();
  return table;
}

}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();
