/* What cuDNN's attention leaves to do, row by row: a mask as a bias, queries that see nothing, and sinks. Before this text stand LZ_MASK (0, 1
 * for bool, 2 for elements of the queries' type) and, for bfloat16, LZ_BRAIN. */
#define LZ_KERNELS
#include "tensor-core.cuh"

typedef long long i64;
#if LZ_MASK == 1
typedef bool Mask;
#else
typedef u16 Mask;
#endif
#ifdef LZ_BRAIN
constexpr u16 HIDDEN = 0xff80;
#else
constexpr u16 HIDDEN = 0xfc00;
#endif

inline i64 thread() { return i64(blockIdx.x) * blockDim.x + threadIdx.x; }
inline float sum_of_warp(float x) {
  for (int mask = 16; mask > 0; mask /= 2) x += from_neighbour(x, mask);
  return x;
}

/* Rows of a mask: steps in elements, and the elements from a row of the bias to the next. */
struct Rows {
  i64 steps[4], heads, queries, keys, pitch, rows;
};
/* A warp for each row: the bias, where it is wanted, and whether the row hides every key that is seen otherwise. */
extern "C" __global__ void __launch_bounds__(256) mask_rows(const Mask* mask, u16* bias, int* hidden,
                                                            const __grid_constant__ Rows at,
                                                            const int causal, const int writes) {
  const i64 row = thread() / 32;
  const int lane = int(threadIdx.x) % 32;
  if (row >= at.rows) return;
  const i64 query = row % at.queries, head = row / at.queries % at.heads, batch = row / at.queries / at.heads;
  const Mask* from = mask + batch * at.steps[0] + head * at.steps[1] + query * at.steps[2];
  const i64 last = causal ? query + at.keys - at.queries : at.keys - 1;
  float seen = 0.0f;
  for (i64 j = lane; j < at.keys; j += 32) {
#if LZ_MASK == 1
    const u16 value = from[j * at.steps[3]] ? 0 : HIDDEN;
#else
    const u16 value = from[j * at.steps[3]];
#endif
    if (writes) bias[row * at.pitch + j] = value;
    /* As the composition has it, where such scores count for nothing. */
    if (j <= last && !(float_of(value) <= -3e38f)) seen = 1.0f;
  }
  const bool hides_all = sum_of_warp(seen) == 0.0f;
  if (lane == 0) hidden[row] = hides_all;
}

/* A result of rows of features; steps of the rows of a mask, and of sinks, by batch and head. */
struct Results {
  i64 heads, queries, features, rows, hidden[2], sinks[2];
};
/* A warp for each query: zeros where it sees nothing, and the share of its sink. */
extern "C" __global__ void __launch_bounds__(256) finish_rows(u16* o, float* lse, const int* hidden,
                                                              const float* sinks,
                                                              const __grid_constant__ Results at,
                                                              const int has_hidden, const int has_sinks) {
  const i64 row = thread() / 32;
  const int lane = int(threadIdx.x) % 32;
  if (row >= at.rows) return;
  const i64 query = row % at.queries, head = row / at.queries % at.heads, batch = row / at.queries / at.heads;
  const bool is_hidden =
      has_hidden && hidden[batch * at.hidden[0] + head * at.hidden[1] * at.queries + query] != 0;
  if (!is_hidden && !has_sinks) return;
  float sum = is_hidden ? -INFINITY : lse[row], factor = 0.0f;
  if (has_sinks) {
    const float sink = sinks[batch * at.sinks[0] + head * at.sinks[1]];
    const float top = sum > sink ? sum : sink;
    const float total = top == -INFINITY ? top : top + logf(expf(sum - top) + expf(sink - top));
    if (!is_hidden) factor = expf(sum - total);
    sum = total;
  }
  for (i64 i = lane; i < at.features; i += 32) {
    u16* x = o + row * at.features + i;
    *x = is_hidden ? u16(0) : u16(pack(float_of(*x) * factor, 0.0f));
  }
  /* Every lane has read it. */
  __syncwarp();
  if (lane == 0) lse[row] = sum;
}

/* log Σ exp for the derivative: of a query that saw nothing every probability is 0. */
extern "C" __global__ void __launch_bounds__(256) close_rows(const float* lse, float* closed, const i64 rows) {
  const i64 i = thread();
  if (i < rows) closed[i] = lse[i] == -INFINITY ? INFINITY : lse[i];
}

/* A block for each sink: −Σ exp(sink − log Σ exp) · Σ g·o over its queries. */
extern "C" __global__ void __launch_bounds__(256) sink_slopes(const float* lse, const float* shares,
                                                              const float* sinks, float* slopes,
                                                              const i64 heads, const i64 queries,
                                                              const i64 batches) {
  __shared__ float sums[8];
  const i64 first = i64(blockIdx.x) / heads, head = i64(blockIdx.x) % heads;
  const float sink = sinks[blockIdx.x];
  float sum = 0.0f;
  for (i64 i = threadIdx.x; i < batches * queries; i += blockDim.x) {
    const i64 row = ((first + i / queries) * heads + head) * queries + i % queries;
    const float share = shares[row];
    if (share != 0.0f) sum -= expf(sink - lse[row]) * share;
  }
  sum = sum_of_warp(sum);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 1; i < 8; i++) sum += sums[i];
    slopes[blockIdx.x] = sum;
  }
}

/* Zeros, 16 bytes a thread. */
struct alignas(16) Four {
  float value[4];
};
extern "C" __global__ void __launch_bounds__(256) set_zero(Four* x, const i64 count) {
  const i64 i = thread();
  if (i < count) x[i] = {};
}
