// Operands that a kernel rearranges before it computes: copied to dense memory where their layout is of no
// use, and the half types widened to float32.
#ifndef LAZULI_KERNELS_SOURCE_H
#define LAZULI_KERNELS_SOURCE_H

#include <vector>

#include "kernels/layout.h"

namespace lazuli {

// An operand with strides of its own: the original, or a copy in scratch memory.
struct Source {
  const void* data = nullptr;
  int32_t dtype = 0;
  int ndim = 0;
  int64_t shape[kMaxDims];
  int64_t strides[kMaxDims];
  explicit Source(const lz_operand& x) : data(x.data), dtype(x.dtype), ndim(x.ndim) {
    std::copy_n(x.shape, x.ndim, shape);
    for (int d = 0; d < x.ndim; d++) strides[d] = x.shape[d] == 1 ? 0 : x.strides[d];
  }
};

// Copies a source to dense memory unless it is dense. Of its first `broadcastable` axes, those with stride 0
// stay that way.
Source dense_copy(const lz_call& call, Source x, int broadcastable);
// The same, as float32 when it is of a half type.
Source densify(const lz_call& call, Source x, int broadcastable);

// The same for any floating type, always giving float32. Rows (the last axis) keep their strides where they
// are float32 already and contiguous, with rows that do not overlap.
Source float_rows(const lz_call& call, const lz_operand& x);

// A list of indices of any integer type into an axis, counted from the front. Fails the call for one outside.
std::vector<int64_t> read_indices(const lz_call& call, const char* op, const lz_operand& list,
                                  int64_t extent);

}  // namespace lazuli

#endif
