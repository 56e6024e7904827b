// A double of cuBLASLt: products by plain loops on the double's streams, over the layouts that a caller
// describes. LAZULI_CUDA_DOUBLE=product fails each of them, =product-choice finds no kernel for any, and
// =library-memory fails the making of a handle.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "double/elements.h"

#define LZ_EXPORT extern "C" __attribute__((visibility("default")))

// Adds work to a stream of the double of the driver.
extern "C" int lzDoubleWork(void* stream, void (*run)(void*), void (*drop)(void*), void* data);

namespace {

using lz::read;
using lz::write;

struct Operation {
  int compute, scale;
  int attributes[16] = {};
  const void* bias = nullptr;
};
struct Layout {
  int type;
  uint64_t rows, columns;
  int64_t row;
  int32_t batch = 1;
  int64_t step = 0;
};
struct Heuristic {
  uint64_t algorithm[8];
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};
// Parts of cublasLtEpilogue_t; an epilogue has one activation at most.
enum : int { kRelu = 2, kBias = 4, kGelu = 32 };
enum : int { kAllocationFailed = 3, kInvalidValue = 7, kExecutionFailed = 13, kNotSupported = 15 };

bool is_epilogue(int flags) {
  const int activation = flags & ~kBias;
  return activation == 0 || activation == kRelu || activation == kGelu;
}

// By the hyperbolic tangent, as the library has it.
double gelu(double v) { return 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v))); }

bool is_matrix(const Layout& l, uint64_t rows, uint64_t columns) {
  return l.rows == rows && l.columns == columns && uint64_t(l.row) >= rows;
}

}  // namespace

LZ_EXPORT int cublasLtCreate(void** handle) {
  if (lz::asked("library-memory")) return kAllocationFailed;
  static int token;
  *handle = &token;
  return 0;
}
LZ_EXPORT int cublasLtDestroy(void*) { return 0; }
LZ_EXPORT int cublasLtMatmulDescCreate(void** made, int compute, int scale) {
  *made = new Operation{compute, scale};
  return 0;
}
LZ_EXPORT int cublasLtMatmulDescDestroy(void* p) {
  delete static_cast<Operation*>(p);
  return 0;
}
LZ_EXPORT int cublasLtMatmulDescSetAttribute(void* p, int attribute, const void* value, size_t size) {
  if (attribute == 8 && size == sizeof(void*)) {
    std::memcpy(&static_cast<Operation*>(p)->bias, value, size);
    return 0;
  }
  if (attribute < 0 || attribute >= 16 || size != sizeof(int)) return kInvalidValue;
  std::memcpy(&static_cast<Operation*>(p)->attributes[attribute], value, size);
  return 0;
}
LZ_EXPORT int cublasLtMatrixLayoutCreate(void** made, int type, uint64_t rows, uint64_t columns,
                                         int64_t row) {
  if (rows == 0 || columns == 0) return kInvalidValue;
  *made = new Layout{type, rows, columns, row};
  return 0;
}
LZ_EXPORT int cublasLtMatrixLayoutDestroy(void* p) {
  delete static_cast<Layout*>(p);
  return 0;
}
LZ_EXPORT int cublasLtMatrixLayoutSetAttribute(void* p, int attribute, const void* value, size_t size) {
  auto* l = static_cast<Layout*>(p);
  if (attribute == 5 && size == 4)
    std::memcpy(&l->batch, value, 4);
  else if (attribute == 6 && size == 8)
    std::memcpy(&l->step, value, 8);
  else
    return kInvalidValue;
  return 0;
}
LZ_EXPORT int cublasLtMatmulPreferenceCreate(void** made) {
  static int token;
  *made = &token;
  return 0;
}
LZ_EXPORT int cublasLtMatmulPreferenceDestroy(void*) { return 0; }
LZ_EXPORT int cublasLtMatmulPreferenceSetAttribute(void*, int, const void*, size_t) { return 0; }
LZ_EXPORT int cublasLtMatmulAlgoGetHeuristic(void*, void* operation, void* a, void* b, void* c, void* d,
                                             void*, int, Heuristic* found, int* count) {
  *found = {};
  *count = 0;
  if (lz::asked("product-choice") || !is_epilogue(static_cast<Operation*>(operation)->attributes[7]))
    return kNotSupported;
  *count = 1;
  for (void* p : {a, b, c, d})
    if (const int type = static_cast<Layout*>(p)->type; type != 0 && type != 1 && type != 2 && type != 14) {
      *count = 0;
      return kNotSupported;
    }
  return 0;
}
LZ_EXPORT int cublasLtMatmul(void*, void* operation, const void* alpha, const void* a, void* la,
                             const void* b, void* lb, const void* beta, const void* c, void* lc, void* d,
                             void* ld, const void*, void*, size_t, void* stream) {
  if (lz::asked("product")) return kExecutionFailed;
  const Operation o = *static_cast<Operation*>(operation);
  const Layout A = *static_cast<Layout*>(la), B = *static_cast<Layout*>(lb), C = *static_cast<Layout*>(lc),
               D = *static_cast<Layout*>(ld);
  const bool ta = o.attributes[3] != 0, tb = o.attributes[4] != 0;
  const uint64_t m = D.rows, n = D.columns, k = ta ? A.rows : A.columns;
  if (!is_matrix(A, ta ? k : m, ta ? m : k) || !is_matrix(B, tb ? n : k, tb ? k : n) || !is_matrix(C, m, n) ||
      !is_matrix(D, m, n) || A.batch != D.batch || B.batch != D.batch || C.batch != D.batch)
    return kInvalidValue;
  const bool wide = o.scale == 1;
  const double x = wide ? *static_cast<const double*>(alpha) : *static_cast<const float*>(alpha);
  const double y = wide ? *static_cast<const double*>(beta) : *static_cast<const float*>(beta);
  auto* work = new std::function<void()>([=] {
    for (int64_t z = 0; z < D.batch; z++)
      for (uint64_t j = 0; j < n; j++)
        for (uint64_t i = 0; i < m; i++) {
          double sum = 0;
          for (uint64_t l = 0; l < k; l++)
            sum += read(a, A.type, z * A.step + (ta ? l + i * A.row : i + l * A.row)) *
                   read(b, B.type, z * B.step + (tb ? j + l * B.row : l + j * B.row));
          double v = x * sum;
          if (y != 0) v += y * read(c, C.type, z * C.step + i + j * C.row);
          if (o.attributes[7] & kBias) v += read(o.bias, D.type, int64_t(i));
          if (o.attributes[7] & kRelu && v < 0) v = 0;
          if (o.attributes[7] & kGelu) v = gelu(v);
          write(d, D.type, z * D.step + i + j * D.row, v);
        }
  });
  using Work = std::function<void()>;
  return lzDoubleWork(
      stream, [](void* data) { (*static_cast<Work*>(data))(); },
      [](void* data) { delete static_cast<Work*>(data); }, work);
}
