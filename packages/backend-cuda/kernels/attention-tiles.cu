/* Attention and its derivative on tensor cores in 19 bits, for floats by three products of halves, whose error is that of float32 (Markidis
 * et al., "NVIDIA Tensor Core Programmability", 2018). A block has 64 rows, 16 to each of its 4 warps, and goes through the other side 64
 * rows at a time: queries for results and for their own derivative, keys for that of keys and values, which sums over the query heads that
 * share a key head. Before this text stand LZ_FEATURES (a multiple of 8, at most 128), LZ_CAUSAL, LZ_MODE (0 results, 1 derivatives of
 * queries, 2 of keys and values), LZ_WIDE for float32 and, for bfloat16, LZ_BRAIN. */
#define LZ_KERNELS
#include "tensor-core.cuh"

constexpr int D = LZ_FEATURES, ROWS = 64, THREADS = 128;
/* Elements from a row to the next: rows and columns of fragments are then in different banks. */
constexpr int PITCH = D <= 64 ? 68 : 132;
constexpr int TILE = ROWS * PITCH;
constexpr float LOG2E = 1.4426950408889634f;

#ifdef LZ_WIDE
typedef float Element;
constexpr int PRODUCTS = 3;
inline float value_of(float x) { return x; }
#else
typedef u16 Element;
constexpr int PRODUCTS = 1;
inline float value_of(u16 x) { return float_of(x); }
#endif

/* In elements: from a batch to the next, a head, a row. */
struct Layout {
  long long q[3], k[3], v[3], g[3];
  long long heads, shared_by, queries, keys;
};

/* A float as the products take it: split for three of them, rounded for one. */
inline Split prepared(float x) { return PRODUCTS == 3 ? split(x) : Split{bits_of(x) + 0x1000u, 0}; }
/* c += a · b in the precision of the type; b has the rows k and k + 4 of its lane. */
inline void add_product(float (&c)[4], const u32 (&high)[4], const u32 (&low)[4], float b0, float b1) {
  const Split x = prepared(b0), y = prepared(b1);
  if (PRODUCTS == 3) {
    multiply_short(c, low, x.high, y.high);
    multiply_short(c, high, x.low, y.low);
  }
  multiply_short(c, high, x.high, y.high);
}

/* Brings rows from `begin` on; those that are not there are zeros. */
inline void bring(float* to, const Element* from, long long step, int begin, int end) {
  constexpr int EACH = 16 / int(sizeof(Element)), CHUNKS = D / EACH;
  for (int i = int(threadIdx.x); i < ROWS * CHUNKS; i += THREADS) {
    const int row = i / CHUNKS, chunk = i % CHUNKS;
    const bool there = begin + row < end;
    const Element* at = from + (there ? (begin + row) * step + chunk * EACH : 0);
    float* into = to + row * PITCH + chunk * EACH;
#ifdef LZ_WIDE
    copy_ahead(shared_address(into), at, there);
#else
    struct alignas(16) Eight { Element x[8]; } values = *(const Eight*)at;
#pragma unroll
    for (int e = 0; e < EACH; e++) into[e] = there ? value_of(values.x[e]) : 0.0f;
#endif
  }
}

/* c += a · bᵀ of the warp's 16 rows of a and the 64 rows of b. */
inline void add_by_rows(float (&c)[ROWS / 8][4], const float* a, const float* b) {
  const int g = int(threadIdx.x) % 32 / 4, t = int(threadIdx.x) % 4;
#pragma unroll 2
  for (int k = 0; k < D; k += 8) {
    u32 high[4], low[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const Split s = prepared(a[(g + i % 2 * 8) * PITCH + k + t + i / 2 * 4]);
      high[i] = s.high, low[i] = s.low;
    }
#pragma unroll
    for (int n = 0; n < ROWS / 8; n++) {
      const float* at = b + (n * 8 + g) * PITCH + k + t;
      add_product(c[n], high, low, at[0], at[4]);
    }
  }
}
/* c += p · b of the warp's 16 rows of p, in registers as products leave them, and the 64 rows of b: their order is another one, the same
 * for both. */
inline void add_by_columns(float (&c)[D / 8][4], const float (&p)[ROWS / 8][4], const float* b) {
  const int g = int(threadIdx.x) % 32 / 4, t = int(threadIdx.x) % 4;
#pragma unroll
  for (int n = 0; n < ROWS / 8; n++) {
    u32 high[4], low[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const Split s = prepared(p[n][i % 2 * 2 + i / 2]);
      high[i] = s.high, low[i] = s.low;
    }
#pragma unroll
    for (int d = 0; d < D / 8; d++) {
      const float* at = b + (n * 8 + 2 * t) * PITCH + d * 8 + g;
      add_product(c[d], high, low, at[0], at[PITCH]);
    }
  }
}
/* Writes the warp's 16 rows, of which `count` are there, each times its factor. */
inline void store(Element* to, const float (&c)[D / 8][4], int count, float first, float second) {
  const int g = int(threadIdx.x) % 32 / 4, t = int(threadIdx.x) % 4;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    if (g + r * 8 >= count) continue;
    Element* row = to + (g + r * 8) * D + 2 * t;
    const float factor = r ? second : first;
#pragma unroll
    for (int d = 0; d < D / 8; d++) {
#ifdef LZ_WIDE
      row[d * 8] = c[d][2 * r] * factor;
      row[d * 8 + 1] = c[d][2 * r + 1] * factor;
#else
      *(u32*)(row + d * 8) = pack(c[d][2 * r] * factor, c[d][2 * r + 1] * factor);
#endif
    }
  }
}

#if LZ_MODE == 0

extern "C" __global__ void __launch_bounds__(128) attend(const Element* q, const Element* k, const Element* v, Element* o, float* lse,
                                                         const __grid_constant__ Layout at,
                                                         const __grid_constant__ float scale) {
  extern __shared__ float arena[];
  float *sq = arena, *sk = sq + TILE, *sv = sk + TILE;
  const int L = int(at.queries), S = int(at.keys), warp = int(threadIdx.x) / 32;
  const int g = int(threadIdx.x) % 32 / 4, t = int(threadIdx.x) % 4;
  /* The last rows see the most keys, and begin first. */
  const int first = int(gridDim.x - 1 - blockIdx.x) * ROWS;
  const int batch = int(blockIdx.y / at.heads), head = int(blockIdx.y % at.heads), shared_head = int(head / at.shared_by);
  const Element* keys = k + batch * at.k[0] + shared_head * at.k[1];
  const Element* values = v + batch * at.v[0] + shared_head * at.v[1];
  /* Row i sees columns up to i + ahead. */
  const int ahead = S - L, last = (first + ROWS < L ? first + ROWS : L) - 1 + ahead;
  const int end = LZ_CAUSAL && last + 1 < S ? last + 1 : S;
  const float factor = scale * LOG2E;
  bring(sq, q + batch * at.q[0] + head * at.q[1], at.q[2], first, L);
  float out[D / 8][4] = {}, most[2] = {-INFINITY, -INFINITY}, total[2] = {};
  for (int begin = 0; begin < end; begin += ROWS) {
    __syncthreads();
    bring(sk, keys, at.k[2], begin, S);
    bring(sv, values, at.v[2], begin, S);
    commit_copies();
    wait_for_copies<0>();
    __syncthreads();
    float s[ROWS / 8][4] = {};
    add_by_rows(s, sq + warp * 16 * PITCH, sk);
    const bool partly = begin + ROWS > S || (LZ_CAUSAL && begin + ROWS - 1 > first + ahead);
    if (partly) {
#pragma unroll
      for (int n = 0; n < ROWS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const int row = first + warp * 16 + g + i / 2 * 8, column = begin + n * 8 + 2 * t + i % 2;
          if (column >= S || (LZ_CAUSAL && column > row + ahead)) s[n][i] = -INFINITY;
        }
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
      float top = most[r];
#pragma unroll
      for (int n = 0; n < ROWS / 8; n++) top = fmaxf(top, fmaxf(s[n][2 * r], s[n][2 * r + 1]));
      top = fmaxf(top, from_neighbour(top, 1));
      top = fmaxf(top, from_neighbour(top, 2));
      /* Of a row that has seen nothing so far nothing may be −∞ − (−∞). */
      const float zero = top == -INFINITY ? 0.0f : top * factor;
      const float shrink = power_of_two(most[r] * factor - zero);
      most[r] = top;
      float sum = 0.0f;
#pragma unroll
      for (int n = 0; n < ROWS / 8; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
          float& x = s[n][2 * r + i];
          x = power_of_two(x * factor - zero);
          sum += x;
        }
      total[r] = total[r] * shrink + sum;
#pragma unroll
      for (int d = 0; d < D / 8; d++) {
        out[d][2 * r] *= shrink;
        out[d][2 * r + 1] *= shrink;
      }
    }
    add_by_columns(out, s, sv);
  }
  const long long rows = blockIdx.y * at.queries + first + warp * 16;
  const int count = L - first - warp * 16;
  float share[2];
#pragma unroll
  for (int r = 0; r < 2; r++) {
    float sum = total[r];
    sum += from_neighbour(sum, 1);
    sum += from_neighbour(sum, 2);
    share[r] = sum > 0.0f ? 1.0f / sum : 0.0f;
    if (t == 0 && g + r * 8 < count) lse[rows + g + r * 8] = sum > 0.0f ? most[r] * scale + log_of(sum) : -INFINITY;
  }
  store(o + rows * D, out, count, share[0], share[1]);
}

#elif LZ_MODE == 1

/* dq = Σ p · (g · vᵀ − Σ g·o) · scale · k */
extern "C" __global__ void __launch_bounds__(128) attend(const Element* q, const Element* k, const Element* v, const Element* g_in,
                                                         const float* lse, const float* shares, Element* dq,
                                                         const __grid_constant__ Layout at,
                                                         const __grid_constant__ float scale) {
  extern __shared__ float arena[];
  float *sq = arena, *sg = sq + TILE, *sk = sg + TILE, *sv = sk + TILE;
  const int L = int(at.queries), S = int(at.keys), warp = int(threadIdx.x) / 32;
  const int g = int(threadIdx.x) % 32 / 4, t = int(threadIdx.x) % 4;
  const int first = int(gridDim.x - 1 - blockIdx.x) * ROWS;
  const int batch = int(blockIdx.y / at.heads), head = int(blockIdx.y % at.heads), shared_head = int(head / at.shared_by);
  const Element* keys = k + batch * at.k[0] + shared_head * at.k[1];
  const Element* values = v + batch * at.v[0] + shared_head * at.v[1];
  const int ahead = S - L, last = (first + ROWS < L ? first + ROWS : L) - 1 + ahead;
  const int end = LZ_CAUSAL && last + 1 < S ? last + 1 : S;
  const float factor = scale * LOG2E;
  bring(sq, q + batch * at.q[0] + head * at.q[1], at.q[2], first, L);
  bring(sg, g_in + batch * at.g[0] + head * at.g[1], at.g[2], first, L);
  const long long rows = blockIdx.y * at.queries + first + warp * 16;
  const int count = L - first - warp * 16;
  float zero[2], share[2];
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const bool there = g + r * 8 < count;
    const float sum = there ? lse[rows + g + r * 8] : 0.0f;
    /* A row that sees nothing has no slope. */
    zero[r] = sum == -INFINITY ? INFINITY : sum * LOG2E;
    share[r] = there ? shares[rows + g + r * 8] : 0.0f;
  }
  float out[D / 8][4] = {};
  for (int begin = 0; begin < end; begin += ROWS) {
    __syncthreads();
    bring(sk, keys, at.k[2], begin, S);
    bring(sv, values, at.v[2], begin, S);
    commit_copies();
    wait_for_copies<0>();
    __syncthreads();
    float s[ROWS / 8][4] = {}, slope[ROWS / 8][4] = {};
    add_by_rows(s, sq + warp * 16 * PITCH, sk);
    add_by_rows(slope, sg + warp * 16 * PITCH, sv);
    const bool partly = begin + ROWS > S || (LZ_CAUSAL && begin + ROWS - 1 > first + ahead);
#pragma unroll
    for (int n = 0; n < ROWS / 8; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int row = first + warp * 16 + g + i / 2 * 8, column = begin + n * 8 + 2 * t + i % 2;
        const bool seen = !partly || (column < S && (!LZ_CAUSAL || column <= row + ahead));
        const float p = seen ? power_of_two(s[n][i] * factor - zero[i / 2]) : 0.0f;
        s[n][i] = p * (slope[n][i] - share[i / 2]);
      }
    add_by_columns(out, s, sk);
  }
  store(dq + rows * D, out, count, scale, scale);
}

#else

/* dv = Σ pᵀ · g, dk = Σ (p · (g · vᵀ − Σ g·o))ᵀ · scale · q; rows are keys. */
extern "C" __global__ void __launch_bounds__(128) attend(const Element* q, const Element* k, const Element* v, const Element* g_in,
                                                         const float* lse, const float* shares, Element* dk, Element* dv,
                                                         const __grid_constant__ Layout at,
                                                         const __grid_constant__ float scale) {
  extern __shared__ float arena[];
  float *sk = arena, *sv = sk + TILE, *sq = sv + TILE, *sg = sq + TILE, *zeros = sg + TILE, *parts = zeros + ROWS;
  const int L = int(at.queries), S = int(at.keys), warp = int(threadIdx.x) / 32;
  const int g = int(threadIdx.x) % 32 / 4, t = int(threadIdx.x) % 4;
  /* The first keys are seen by the most queries. */
  const int first = int(blockIdx.x) * ROWS;
  const int key_heads = int(at.heads / at.shared_by);
  const int batch = int(blockIdx.y) / key_heads, shared_head = int(blockIdx.y) % key_heads;
  const int ahead = S - L;
  const int seen_from = LZ_CAUSAL && first - ahead > 0 ? (first - ahead) / ROWS * ROWS : 0;
  const float factor = scale * LOG2E;
  bring(sk, k + batch * at.k[0] + shared_head * at.k[1], at.k[2], first, S);
  bring(sv, v + batch * at.v[0] + shared_head * at.v[1], at.v[2], first, S);
  float of_keys[D / 8][4] = {}, of_values[D / 8][4] = {};
  for (int each = 0; each < int(at.shared_by); each++) {
    const int head = shared_head * int(at.shared_by) + each;
    const Element* queries = q + batch * at.q[0] + head * at.q[1];
    const Element* slopes = g_in + batch * at.g[0] + head * at.g[1];
    const long long rows = (batch * at.heads + head) * at.queries;
    for (int begin = seen_from; begin < L; begin += ROWS) {
      __syncthreads();
      bring(sq, queries, at.q[2], begin, L);
      bring(sg, slopes, at.g[2], begin, L);
      if (int(threadIdx.x) < ROWS) {
        const int row = begin + int(threadIdx.x);
        const float sum = row < L ? lse[rows + row] : -INFINITY;
        zeros[threadIdx.x] = sum == -INFINITY ? INFINITY : sum * LOG2E;
        parts[threadIdx.x] = row < L ? shares[rows + row] : 0.0f;
      }
      commit_copies();
      wait_for_copies<0>();
      __syncthreads();
      float p[ROWS / 8][4] = {}, slope[ROWS / 8][4] = {};
      add_by_rows(p, sk + warp * 16 * PITCH, sq);
      const bool partly = first + ROWS > S || begin + ROWS > L || (LZ_CAUSAL && first + ROWS - 1 > begin + ahead);
#pragma unroll
      for (int n = 0; n < ROWS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const int key = first + warp * 16 + g + i / 2 * 8, in_tile = n * 8 + 2 * t + i % 2;
          const bool seen = !partly || (begin + in_tile < L && (!LZ_CAUSAL || key <= begin + in_tile + ahead));
          p[n][i] = seen ? power_of_two(p[n][i] * factor - zeros[in_tile]) : 0.0f;
        }
      add_by_columns(of_values, p, sg);
      add_by_rows(slope, sv + warp * 16 * PITCH, sg);
#pragma unroll
      for (int n = 0; n < ROWS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) p[n][i] *= slope[n][i] - parts[n * 8 + 2 * t + i % 2];
      add_by_columns(of_keys, p, sq);
    }
  }
  const long long rows = blockIdx.y * at.keys + first + warp * 16;
  const int count = S - first - warp * 16;
  store(dk + rows * D, of_keys, count, scale, scale);
  store(dv + rows * D, of_values, count, 1.0f, 1.0f);
}

#endif
