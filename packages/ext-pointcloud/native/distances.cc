// Distances of chosen pairs of points, in the element type.
#include <cmath>

#include "kernels.h"

namespace pointcloud {
namespace {

using Metric = lazuli::params::PairDistances::Metric;

constexpr int64_t kBlock = 256;

// d[t] = Σ (x - y)² of the pairs' points. `Width` is that of the points where it is not 0.
template <int64_t Width, class T>
inline __attribute__((always_inline)) void squares(const T* x, const T* y, const int32_t* i, const int32_t* k,
                                                   int64_t columns, int64_t n, T* d) {
  const int64_t width = Width ? Width : columns;
  for (int64_t t = 0; t < n; t++) {
    const T *p = x + i[t] * width, *q = y + k[t] * width;
    T sum = 0;
    for (int64_t axis = 0; axis < width; axis++) sum += (p[axis] - q[axis]) * (p[axis] - q[axis]);
    d[t] = sum;
  }
}
template <class T>
inline __attribute__((always_inline)) void squares_of(const T* x, const T* y, const int32_t* i,
                                                      const int32_t* k, int64_t width, int64_t n, T* d) {
  if (width == 3)
    squares<3>(x, y, i, k, width, n, d);
  else if (width == 2)
    squares<2>(x, y, i, k, width, n, d);
  else
    squares<0>(x, y, i, k, width, n, d);
}
POINTCLOUD_CLONES void square_block(const float* x, const float* y, const int32_t* i, const int32_t* k,
                                    int64_t width, int64_t n, float* d) {
  squares_of(x, y, i, k, width, n, d);
}
POINTCLOUD_CLONES void square_block(const double* x, const double* y, const int32_t* i, const int32_t* k,
                                    int64_t width, int64_t n, double* d) {
  squares_of(x, y, i, k, width, n, d);
}
POINTCLOUD_CLONES void root_block(float* d, int64_t n) {
  for (int64_t t = 0; t < n; t++) d[t] = __builtin_sqrtf(d[t]);
}
POINTCLOUD_CLONES void root_block(double* d, int64_t n) {
  for (int64_t t = 0; t < n; t++) d[t] = __builtin_sqrt(d[t]);
}

// 1 - p · q / (|p| |q|), which is 1 where one of them is 0.
template <class T>
T cosine(const T* p, const T* q, int64_t width) {
  T dot = 0, pp = 0, qq = 0;
  for (int64_t axis = 0; axis < width; axis++) {
    dot += p[axis] * q[axis];
    pp += p[axis] * p[axis];
    qq += q[axis] * q[axis];
  }
  return pp == 0 || qq == 0 ? T(1) : 1 - dot / std::sqrt(pp) / std::sqrt(qq);
}

// x [N, D], y [M, D], positions of T pairs → [T]
template <class T>
struct PairDistances {
  static void run(const lz_call* call) {
    const char* op = "indexedDistance";
    const lz_operand &x = call->in[0], &y = call->in[1], &out = call->out[0];
    const Metric metric = lazuli::params::PairDistances(*call).metric;
    const int32_t* i = positions(call, op, call->in[2], x.shape[0]);
    const int32_t* k = positions(call, op, call->in[3], y.shape[0]);
    if (out.size == 0) return;
    const int64_t width = x.shape[1];
    const T *from = row_major<T>(call, x), *to = row_major<T>(call, y);
    T* d = static_cast<T*>(out.data);
    parallel(call, out.size, 2 + double(width), [&](int64_t begin, int64_t end) {
      if (metric == Metric::cosine) {
        for (int64_t t = begin; t < end; t++) d[t] = cosine(from + i[t] * width, to + k[t] * width, width);
        return;
      }
      for (int64_t block = begin; block < end; block += kBlock) {
        const int64_t n = std::min(kBlock, end - block);
        square_block(from, to, i + block, k + block, width, n, d + block);
        if (metric == Metric::euclidean) root_block(d + block, n);
      }
    });
  }
};

}  // namespace

lz_status pair_distances(const lz_call* call) { return run<PairDistances>(call); }

}  // namespace pointcloud
