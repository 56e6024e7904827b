// Plain loops, which compilers turn into comparisons and choices of vectors.
#include "simd/extremes.h"

#include "simd/vectors.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

LZ_FORCE_INLINE double value(double x) { return x; }
template <class T>
LZ_FORCE_INLINE float value(T x) {
  return to_float(x);
}

template <class T>
int64_t count(const void* x_data, int64_t n, const void* extreme_data) {
  const T* x = static_cast<const T*>(x_data);
  const auto extreme = value(*static_cast<const T*>(extreme_data));
  int64_t total = 0;
  while (n > 0) {
    const int32_t part = n < (1 << 20) ? int32_t(n) : 1 << 20;
    int32_t sum = 0;
    for (int32_t i = 0; i < part; i++) sum += value(x[i]) == extreme ? 1 : 0;
    total += sum, x += part, n -= part;
  }
  return total;
}

template <class T>
void write(const void* x_data, int64_t n, const void* extreme_data, const void* choice, void* to_data) {
  const T* x = static_cast<const T*>(x_data);
  const auto extreme = value(*static_cast<const T*>(extreme_data));
  const T hit = static_cast<const T*>(choice)[0], miss = static_cast<const T*>(choice)[1];
  T* to = static_cast<T*>(to_data);
  LZ_INDEPENDENT
  for (int64_t i = 0; i < n; i++) to[i] = value(x[i]) == extreme ? hit : miss;
}

template <class T>
void count_columns(const void* x_data, int64_t n, const void* extremes_data, int32_t* counts) {
  const T *x = static_cast<const T*>(x_data), *extremes = static_cast<const T*>(extremes_data);
  LZ_INDEPENDENT
  for (int64_t i = 0; i < n; i++) counts[i] += value(x[i]) == value(extremes[i]) ? 1 : 0;
}

template <class T>
void write_columns(const void* x_data, int64_t n, const void* extremes_data, const void* hits_data,
                   const void* misses_data, void* to_data) {
  const T *x = static_cast<const T*>(x_data), *extremes = static_cast<const T*>(extremes_data);
  const T *hits = static_cast<const T*>(hits_data), *misses = static_cast<const T*>(misses_data);
  T* to = static_cast<T*>(to_data);
  LZ_INDEPENDENT
  for (int64_t i = 0; i < n; i++) {
    const T hit = hits[i], miss = misses[i];
    to[i] = value(x[i]) == value(extremes[i]) ? hit : miss;
  }
}

template <class T>
constexpr void fill(ExtremesTable& table, int dtype) {
  table.count[dtype] = count<T>;
  table.write[dtype] = write<T>;
  table.count_columns[dtype] = count_columns<T>;
  table.write_columns[dtype] = write_columns<T>;
}

constexpr ExtremesTable make_table() {
  ExtremesTable table{};
  fill<float16>(table, kFloat16);
  fill<bfloat16>(table, kBfloat16);
  fill<float>(table, kFloat32);
  fill<double>(table, kFloat64);
  return table;
}

}  // namespace

const ExtremesTable& extremes_table() {
  static constexpr ExtremesTable table = make_table();
  return table;
}

}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();
