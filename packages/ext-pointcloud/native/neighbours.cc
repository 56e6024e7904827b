// Neighbours in clouds, and points that lie far from each other. Squared distances are taken in double,
// coordinate by coordinate, as the reference implementation takes them, so that both choose the same points.
#include <cmath>
#include <vector>

#include "kernels.h"

namespace pointcloud {
namespace {

constexpr int64_t kBlock = 64;

// d[i] = Σ (p[i] - q)², with the coordinates of points one after the other: p[axis · stride + i].
inline __attribute__((always_inline)) void squared(const double* p, int64_t stride, const double* q,
                                                   int64_t width, int64_t n, double* d) {
  for (int64_t i = 0; i < n; i++) d[i] = 0;
  for (int64_t axis = 0; axis < width; axis++)
    for (int64_t i = 0; i < n; i++) {
      const double difference = p[axis * stride + i] - q[axis];
      d[i] += difference * difference;
    }
}
POINTCLOUD_CLONES void squared_distances(const double* p, int64_t stride, const double* q, int64_t width,
                                         int64_t n, double* d) {
  squared(p, stride, q, width, n, d);
}

// The coordinates of n points as double, those of one axis after those of another.
template <class T>
const double* by_axes(const lz_call* call, const lz_operand& x) {
  const int64_t n = x.shape[0], width = x.shape[1];
  const T* from = row_major<T>(call, x);
  double* out = scratch<double>(call, n * width);
  for (int64_t i = 0; i < n; i++)
    for (int64_t axis = 0; axis < width; axis++) out[axis * n + i] = double(from[i * width + axis]);
  return out;
}

// points [P, D], queries [Q, D], offsets of the clouds of both → int32 [Q, k], -1 where there are fewer
template <class T>
struct Neighbours {
  static void run(const lz_call* call) {
    const lz_operand &points = call->in[0], &queries = call->in[1], &y = call->out[0];
    const lazuli::params::Neighbours params(*call);
    const int64_t k = params.k, n = points.shape[0], width = points.shape[1];
    const double most = params.radius * params.radius;
    const bool nearest = params.order == lazuli::params::Neighbours::Order::nearest;
    const char* op = nearest ? "knn" : "ballQuery";
    const int64_t* of_points = offsets_of(call, op, call->in[2], n);
    const int64_t* of_queries = offsets_of(call, op, call->in[3], queries.shape[0]);
    if (y.size == 0) return;
    const double* from = by_axes<T>(call, points);
    const T* at = row_major<T>(call, queries);
    const int64_t clouds = call->in[2].size - 1;
    const double price = 50 + double(n) / double(std::max<int64_t>(clouds, 1)) * (0.5 + 0.4 * double(width));
    parallel(call, queries.shape[0], price, [&](int64_t begin, int64_t end) {
      std::vector<double> q(static_cast<size_t>(width)), best(static_cast<size_t>(k));
      double d[kBlock];
      int64_t cloud = std::upper_bound(of_queries, of_queries + clouds + 1, begin) - of_queries - 1;
      for (int64_t i = begin; i < end; i++) {
        while (of_queries[cloud + 1] <= i) cloud++;
        for (int64_t axis = 0; axis < width; axis++) q[size_t(axis)] = double(at[i * width + axis]);
        int32_t* out = static_cast<int32_t*>(y.data) + i * k;
        int64_t found = 0;
        const int64_t last = of_points[cloud + 1];
        for (int64_t block = of_points[cloud]; block < last && (nearest || found < k); block += kBlock) {
          const int64_t count = std::min(kBlock, last - block);
          squared_distances(from + block, n, q.data(), width, count, d);
          for (int64_t p = 0; p < count; p++) {
            if (!(d[p] <= most)) continue;
            if (!nearest) {
              if (found < k) out[found++] = int32_t(block + p);
              continue;
            }
            if (found == k && !(d[p] < best[size_t(k - 1)])) continue;
            int64_t rank = found < k ? found++ : k - 1;
            for (; rank > 0 && d[p] < best[size_t(rank - 1)]; rank--) {
              best[size_t(rank)] = best[size_t(rank - 1)];
              out[rank] = out[rank - 1];
            }
            best[size_t(rank)] = d[p];
            out[rank] = int32_t(block + p);
          }
        }
        std::fill(out + found, out + k, -1);
      }
    });
  }
};

// points [P, D], offsets of clouds → int32 [clouds, count]: each the farthest from those before it
template <class T>
struct Farthest {
  static void run(const lz_call* call) {
    const lz_operand &points = call->in[0], &y = call->out[0];
    const int64_t n = points.shape[0], width = points.shape[1], count = y.shape[1];
    const int64_t* offsets = offsets_of(call, "farthestPointSampling", call->in[1], n);
    if (y.size == 0) return;
    const double* from = by_axes<T>(call, points);
    const double price = 100 + double(count) * double(n) / double(y.shape[0]) * (0.5 + 0.4 * double(width));
    parallel(call, y.shape[0], price, [&](int64_t begin, int64_t end) {
      std::vector<double> q(static_cast<size_t>(width)), far;
      double d[kBlock];
      for (int64_t cloud = begin; cloud < end; cloud++) {
        const int64_t first = offsets[cloud], size = offsets[cloud + 1] - first;
        int32_t* out = static_cast<int32_t*>(y.data) + cloud * count;
        far.assign(static_cast<size_t>(size), HUGE_VAL);
        int64_t chosen = 0;
        for (int64_t i = 0; i < count; i++) {
          out[i] = i < size ? int32_t(first + chosen) : -1;
          if (i >= size) continue;
          for (int64_t axis = 0; axis < width; axis++) q[size_t(axis)] = from[axis * n + first + chosen];
          far[size_t(chosen)] = -1;
          double most = -1;
          for (int64_t block = 0; block < size; block += kBlock) {
            const int64_t length = std::min(kBlock, size - block);
            squared_distances(from + first + block, n, q.data(), width, length, d);
            for (int64_t p = 0; p < length; p++) {
              double& at = far[size_t(block + p)];
              // A chosen point keeps -1, and a distance that is NaN counts as none.
              if (d[p] < at) at = d[p];
              if (at > most) most = at, chosen = block + p;
            }
          }
        }
      }
    });
  }
};

}  // namespace

lz_status neighbours(const lz_call* call) { return run<Neighbours>(call); }
lz_status farthest(const lz_call* call) { return run<Farthest>(call); }

}  // namespace pointcloud
