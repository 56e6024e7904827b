/* Attention on tensor cores: a block has 128 queries, 32 to each of its 4 warps, and goes through the keys 64
 * at a time; scores and the softmax's running maxima and sums stay in registers. Dao, "FlashAttention-2",
 * 2023. Before this text stand LZ_FEATURES (a multiple of 16, at most 128), LZ_CAUSAL, LZ_MASK (0, 1 for
 * bool, 2 for elements of the queries' type) and, for bfloat16, LZ_BRAIN. */
#define LZ_KERNELS
#include "tensor-core.cuh"

constexpr int D = LZ_FEATURES;
/* Elements from a row in shared memory to the next: chunks of 16 bytes are permuted within eight. */
constexpr int PITCH = D <= 64 ? 64 : 128;
constexpr int QUERIES = 128, KEYS = 64, THREADS = 128;
constexpr float LOG2E = 1.4426950408889634f;

/* In elements: from a batch to the next, a head, a row. */
struct Layout {
  long long q[3], k[3], v[3], mask[4];
  long long heads, shared_by, queries, keys;
};

inline int location(int row, int chunk) { return row * PITCH + ((chunk ^ (row & 7)) << 3); }

/* Brings `ROWS` rows; those from `count` on are zeros. */
template <int ROWS>
inline void bring(u16* to, const u16* from, long long step, int count) {
  constexpr int CHUNKS = D / 8, EACH = THREADS / CHUNKS;
  if constexpr (THREADS % CHUNKS == 0 && EACH % 8 == 0) {
    /* A thread's chunk is the same in every row. */
    const int row = int(threadIdx.x) / CHUNKS, chunk = int(threadIdx.x) % CHUNKS;
    const Shared first = shared_address(to + location(row, chunk));
    const u16* at = from + row * step + chunk * 8;
#pragma unroll
    for (int j = 0; j < ROWS / EACH; j++, at += EACH * step) {
      const bool there = row + j * EACH < count;
      copy_ahead(first + j * EACH * PITCH * 2, there ? at : from, there);
    }
  } else
    for (int i = int(threadIdx.x); i < ROWS * CHUNKS; i += THREADS) {
      const int row = i / CHUNKS, chunk = i % CHUNKS;
      const bool there = row < count;
      copy_ahead(shared_address(to + location(row, chunk)), from + (there ? row * step + chunk * 8 : 0), there);
    }
}

extern "C" __global__ void __launch_bounds__(128) attend(const u16* q, const u16* k, const u16* v, u16* o,
                                                         float* lse,
#if LZ_MASK == 1
                                                         const bool* mask,
#elif LZ_MASK == 2
                                                         const u16* mask,
#endif
                                                         const __grid_constant__ Layout at,
                                                         const __grid_constant__ float scale) {
  extern __shared__ u16 arena[];
  u16 *sq = arena, *sk = sq + QUERIES * PITCH, *sv = sk + KEYS * PITCH;
  const int L = int(at.queries), S = int(at.keys);
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  /* The last rows see the most keys, and begin first. */
  const int first = int(gridDim.x - 1 - blockIdx.x) * QUERIES;
  const int batch = int(blockIdx.y / at.heads), head = int(blockIdx.y % at.heads);
  const int shared_head = int(head / at.shared_by);
  const u16* keys = k + batch * at.k[0] + shared_head * at.k[1];
  const u16* values = v + batch * at.v[0] + shared_head * at.v[1];
  /* Row i sees columns up to i + ahead. */
  const int ahead = S - L;
  int blocks = (S + KEYS - 1) / KEYS;
  if (LZ_CAUSAL) {
    const int last = (first + QUERIES < L ? first + QUERIES : L) - 1 + ahead;
    const int reached = last < 0 ? 0 : last / KEYS + 1;
    blocks = reached < blocks ? reached : blocks;
  }

  float out[2][D / 8][4] = {};
  float most[2][2], total[2][2] = {};
  for (int m = 0; m < 2; m++)
    for (int r = 0; r < 2; r++) most[m][r] = -INFINITY;
  const float factor = scale * LOG2E;

  if (blocks > 0) {
    bring<QUERIES>(sq, q + batch * at.q[0] + head * at.q[1] + first * at.q[2], at.q[2], L - first);
    const int begin = (blocks - 1) * KEYS;
    bring<KEYS>(sk, keys + begin * at.k[2], at.k[2], S - begin);
    commit_copies();
  }
  const int mi = lane / 8, r8 = lane % 8;
  for (int block = blocks - 1; block >= 0; block--) {
    const int begin = block * KEYS;
    wait_for_copies<0>();
    __syncthreads();
    bring<KEYS>(sv, values + begin * at.v[2], at.v[2], S - begin);
    commit_copies();

    float s[2][KEYS / 8][4] = {};
#pragma unroll
    for (int d = 0; d < D / 16; d++) {
      u32 a[2][4];
#pragma unroll
      for (int m = 0; m < 2; m++)
        load_matrices(a[m], shared_address(sq + location(warp * 32 + m * 16 + (mi & 1) * 8 + r8, d * 2 + mi / 2)));
#pragma unroll
      for (int n = 0; n < KEYS / 16; n++) {
        u32 b[4];
        load_matrices(b, shared_address(sk + location(n * 16 + mi / 2 * 8 + r8, d * 2 + (mi & 1))));
#pragma unroll
        for (int m = 0; m < 2; m++) {
          multiply(s[m][2 * n], a[m], b[0], b[1]);
          multiply(s[m][2 * n + 1], a[m], b[2], b[3]);
        }
      }
    }
    __syncthreads();
    if (block > 0) {
      bring<KEYS>(sk, keys + (begin - KEYS) * at.k[2], at.k[2], KEYS);
      commit_copies();
    }

    /* Scores in powers of two, −∞ where nothing is seen. */
    const bool partly = begin + KEYS > S || (LZ_CAUSAL && begin + KEYS - 1 > first + ahead) || LZ_MASK;
#pragma unroll
    for (int m = 0; m < 2; m++) {
      if (partly) {
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
          for (int i = 0; i < 4; i++) {
            const int row = first + warp * 32 + m * 16 + lane / 4 + i / 2 * 8;
            const int column = begin + n * 8 + lane % 4 * 2 + i % 2;
            float& x = s[m][n][i];
            bool seen = column < S && (!LZ_CAUSAL || column <= row + ahead);
#if LZ_MASK
            if (seen && row < L) {
              const long long p = batch * at.mask[0] + head * at.mask[1] + row * at.mask[2] + column * at.mask[3];
#if LZ_MASK == 1
              seen = mask[p];
#else
              x += float_of(mask[p]) / scale;
#endif
            }
#endif
            if (!seen) x = -INFINITY;
          }
      }
#pragma unroll
      for (int r = 0; r < 2; r++) {
        float top = most[m][r];
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) top = fmaxf(top, fmaxf(s[m][n][2 * r], s[m][n][2 * r + 1]));
        top = fmaxf(top, from_neighbour(top, 1));
        top = fmaxf(top, from_neighbour(top, 2));
        /* Of a row that has seen nothing so far nothing may be −∞ − (−∞). */
        const float zero = top == -INFINITY ? 0.0f : top * factor;
        const float shrink = power_of_two(most[m][r] * factor - zero);
        most[m][r] = top;
        float sum = 0.0f;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
          for (int i = 0; i < 2; i++) {
            float& x = s[m][n][2 * r + i];
            x = power_of_two(x * factor - zero);
            sum += x;
          }
        total[m][r] = total[m][r] * shrink + sum;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
          out[m][n][2 * r] *= shrink;
          out[m][n][2 * r + 1] *= shrink;
        }
      }
    }

    /* The next keys may still be on their way. */
    if (block > 0) wait_for_copies<1>();
    else wait_for_copies<0>();
    __syncthreads();
#pragma unroll
    for (int n = 0; n < KEYS / 16; n++) {
      u32 a[2][4];
#pragma unroll
      for (int m = 0; m < 2; m++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const float* from = &s[m][2 * n + i / 2][i % 2 * 2];
          a[m][i] = pack(from[0], from[1]);
        }
#pragma unroll
      for (int d = 0; d < D / 16; d++) {
        u32 b[4];
        load_transposed(b, shared_address(sv + location(n * 16 + (mi & 1) * 8 + r8, d * 2 + mi / 2)));
#pragma unroll
        for (int m = 0; m < 2; m++) {
          multiply(out[m][2 * d], a[m], b[0], b[1]);
          multiply(out[m][2 * d + 1], a[m], b[2], b[3]);
        }
      }
    }
  }

  const long long rows = blockIdx.y * at.queries;
#pragma unroll
  for (int m = 0; m < 2; m++)
#pragma unroll
    for (int r = 0; r < 2; r++) {
      float sum = total[m][r];
      sum += from_neighbour(sum, 1);
      sum += from_neighbour(sum, 2);
      const int row = first + warp * 32 + m * 16 + r * 8 + lane / 4;
      if (row >= L) continue;
      const float share = sum > 0.0f ? 1.0f / sum : 0.0f;
      if (lane % 4 == 0) lse[rows + row] = sum > 0.0f ? most[m][r] * scale + log_of(sum) : -INFINITY;
      u32* to = (u32*)(o + (rows + row) * D);
#pragma unroll
      for (int n = 0; n < D / 8; n++)
        to[n * 4 + lane % 4] = pack(out[m][n][2 * r] * share, out[m][n][2 * r + 1] * share);
    }
}
