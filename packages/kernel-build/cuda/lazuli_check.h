/* The words that Lazuli gives to every CUDA kernel, by CUDA's own headers, so that nvcc can read a file that
 * includes nothing. */
#pragma once

#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace cg = cooperative_groups;

template <typename T>
struct lazuli_axes {
  T values[10];
  __host__ __device__ const T* data() const { return values; }
  __host__ __device__ const T& operator[](int axis) const { return values[axis]; }
};
using Shape = lazuli_axes<int32_t>;
using Strides = lazuli_axes<int64_t>;

template <typename I>
__device__ I elem_to_loc(I element, const int* shape, const int64_t* strides, int ndim) {
  I location = 0;
  for (int axis = ndim - 1; axis >= 0; axis--) {
    location += element % shape[axis] * I(strides[axis]);
    element /= shape[axis];
  }
  return location;
}
