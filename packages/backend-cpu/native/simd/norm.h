// layerNorm and rmsNorm of rows and their gradients, for float16, bfloat16 and float32 data, computed in
// float32.
#ifndef LAZULI_SIMD_NORM_H
#define LAZULI_SIMD_NORM_H

#include <stdint.h>

#include "simd/targets.h"

namespace lazuli {

// By dtype; null for the others. Rows follow each other; weight and bias are float32 or null. Gradients of
// weight and bias are added to float32 sums, null when not wanted. `streaming`: y is too large to stay in the
// caches, and is not x.
struct NormTable {
  void (*layer[14])(const void* x, int64_t rows, int64_t n, float eps, const float* weight, const float* bias,
                    void* y, bool streaming);
  void (*rms[14])(const void* x, int64_t rows, int64_t n, float eps, const float* weight, void* y,
                  bool streaming);
  void (*layer_vjp[14])(const void* x, const void* g, int64_t rows, int64_t n, float eps, const float* weight,
                        void* dx, float* dweight, float* dbias);
  void (*rms_vjp[14])(const void* x, const void* g, int64_t rows, int64_t n, float eps, const float* weight,
                      void* dx, float* dweight);
};

LZ_SIMD_TABLE(NormTable, norm_table)

}  // namespace lazuli

#endif
