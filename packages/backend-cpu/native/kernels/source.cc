// Dense copies of operands, and lists of indices.
#include "kernels/source.h"

#include "simd/halves.h"

namespace lazuli {

namespace {

// Of dense memory in which the axes that stay broadcast have no room; returns its elements.
int64_t dense_strides(const Source& x, int broadcastable, int64_t* strides) {
  int64_t n = 1;
  for (int d = x.ndim - 1; d >= 0; d--) {
    const bool stays = d < broadcastable && x.strides[d] == 0;
    strides[d] = stays ? 0 : n;
    if (!stays) n *= x.shape[d];
  }
  return n;
}

}  // namespace

Source dense_copy(const lz_call& call, Source x, int broadcastable) {
  Layout<2> layout;
  int64_t strides[kMaxDims];
  const int64_t n = dense_strides(x, broadcastable, strides);
  bool dense = true;
  for (int d = 0; d < x.ndim; d++) {
    if (strides[d] != 0 || d >= broadcastable) layout.push(x.shape[d], {strides[d], x.strides[d]});
    dense &= x.shape[d] == 1 || strides[d] == x.strides[d];
  }
  if (!dense) {
    void* copy = scratch<char>(call, n * itemsize(x.dtype));
    copy_strided(call, layout, itemsize(x.dtype), copy, x.data);
    x.data = copy;
    std::copy_n(strides, x.ndim, x.strides);
  }
  return x;
}

Source densify(const lz_call& call, Source x, int broadcastable) {
  x = dense_copy(call, x, broadcastable);
  if (const auto widen = half_table().widen[x.dtype]) {
    int64_t strides[kMaxDims];
    const int64_t n = dense_strides(x, broadcastable, strides);
    float* wide = scratch<float>(call, n);
    const char* from = static_cast<const char*>(x.data);
    parallel(call, n, 0.3,
             [&](int64_t begin, int64_t end) { widen(from + 2 * begin, wide + begin, end - begin); });
    x.data = wide;
    x.dtype = LZ_FLOAT32;
  }
  return x;
}

Source float_rows(const lz_call& call, const lz_operand& operand) {
  Source x(operand);
  if (x.dtype == LZ_FLOAT32) {
    const int row = x.ndim - 2, last = x.ndim - 1;
    const bool runs = last < 0 || x.shape[last] == 1 || x.strides[last] == 1;
    if (runs && (row < 0 || x.shape[row] == 1 || x.strides[row] >= x.shape[last])) return x;
  }
  x = densify(call, x, std::max(x.ndim - 2, 0));
  if (x.dtype == LZ_FLOAT64) {
    int64_t n = 1;
    for (int d = 0; d < x.ndim; d++) n *= x.strides[d] == 0 ? 1 : x.shape[d];
    float* narrow = scratch<float>(call, n);
    const double* from = static_cast<const double*>(x.data);
    parallel(call, n, 0.3, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) narrow[i] = float(from[i]);
    });
    x.data = narrow;
    x.dtype = LZ_FLOAT32;
  }
  return x;
}

std::vector<int64_t> read_indices(const lz_call& call, const char* op, const lz_operand& list,
                                  int64_t extent) {
  require(call, list.ndim == 1, "[%s] indices must be lists", op);
  std::vector<int64_t> out(size_t(list.size));
  dispatch_or_fail<index_types>(call, op, list.dtype, [&]<class T>() {
    for (int64_t i = 0; i < list.size; i++) {
      const T raw = data<const T>(list)[i * list.strides[0]];
      int64_t index = int64_t(raw);
      if (std::is_signed_v<T> && index < 0) index += extent;
      if (uint64_t(index) >= uint64_t(extent))
        fail(call, "[%s] index %lld is out of bounds for axis 0 with size %lld", op, (long long)raw,
             (long long)extent);
      out[size_t(i)] = index;
    }
  });
  return out;
}

}  // namespace lazuli
