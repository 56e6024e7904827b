/* The derivative of attention over 16-bit floats by products of groups of four warps. A block has 128 rows, 64 to each of its 2 groups, and
 * goes through the other side 64 rows at a time, which come while those before are worked on: keys for the derivative of queries, queries for
 * that of keys and values, which sums over the query heads that share a key head. Before this text stand LZ_FEATURES (a multiple of 8, at
 * most 128), LZ_CAUSAL, LZ_MODE (1 derivatives of queries, 2 of keys and values) and, for bfloat16, LZ_BRAIN. */
#define LZ_KERNELS
#include "warp-group.cuh"

constexpr int D = LZ_FEATURES, WIDTH = D <= 64 ? 64 : 128, PANELS = WIDTH / PANEL;
constexpr int OWN = 128, ROWS = 64, THREADS = 256;
/* Elements of the block's own matrices and of those that come. */
constexpr int OWN_TILE = OWN * WIDTH, TILE = ROWS * WIDTH;
constexpr float LOG2E = 1.4426950408889634f;

/* In elements: from a batch to the next, a head, a row. */
struct Layout {
  long long q[3], k[3], v[3], g[3];
  long long heads, shared_by, queries, keys;
};

/* Brings `N` rows; those from `count` on, and features that there are not, are zeros. */
template <int N>
inline void bring(u16* to, const u16* from, long long step, int count) {
  constexpr int CHUNKS = WIDTH / 8, EACH = THREADS / CHUNKS;
  const int row = int(threadIdx.x) / CHUNKS, chunk = int(threadIdx.x) % CHUNKS;
  const Shared first = shared_address(to + chunk / 8 * N * PANEL + in_panel(row, chunk % 8));
  const u16* at = from + row * step + chunk * 8;
#pragma unroll
  for (int j = 0; j < N / EACH; j++, at += EACH * step) {
    const bool there = row + j * EACH < count && (D == WIDTH || chunk * 8 < D);
    copy_ahead(first + j * EACH * PANEL * 2, there ? at : from, there);
  }
}

/* c = a · bᵀ, of the group's 64 rows of the block's own and the 64 rows that came. */
inline void products_of_rows(float (&c)[ROWS / 8][4], Matrix a, Matrix b) {
#pragma unroll
  for (int k = 0; k < WIDTH / 16; k++)
    multiply_rows(c, moved(a, k / 4 * OWN * PANEL + k % 4 * 16), moved(b, k / 4 * ROWS * PANEL + k % 4 * 16), k > 0);
}
/* c += p · b, of the group's 64 rows of p and the 64 rows that came. */
inline void add_by_columns(float (&c)[WIDTH / 8][4], const u32 (&p)[ROWS / 16][4], Matrix b) {
#pragma unroll
  for (int k = 0; k < ROWS / 16; k++) multiply_columns(c, p[k], moved(b, k * 16 * PANEL));
}
/* What a product left, as the next one takes it. */
inline void narrowed(u32 (&p)[ROWS / 16][4], const float (&c)[ROWS / 8][4]) {
#pragma unroll
  for (int n = 0; n < ROWS / 16; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) p[n][i] = pack(c[2 * n + i / 2][i % 2 * 2], c[2 * n + i / 2][i % 2 * 2 + 1]);
}
/* Writes the warp's 16 rows, of which `count` are there. */
inline void store(u16* to, const float (&c)[WIDTH / 8][4], int count, float factor) {
  const int g = int(threadIdx.x) % 32 / 4, t = int(threadIdx.x) % 4;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    if (g + r * 8 >= count) continue;
    u16* row = to + (g + r * 8) * D + 2 * t;
#pragma unroll
    for (int d = 0; d < D / 8; d++) *(u32*)(row + d * 8) = pack(c[d][2 * r] * factor, c[d][2 * r + 1] * factor);
  }
}
/* −log Σ exp in powers of two; a row that sees nothing has no slope. */
inline float zero_of(float sum) { return sum == -INFINITY ? -INFINITY : -sum * LOG2E; }
/* The first multiple of eight rows' bytes. */
inline u16* begin_of(u16* arena) {
  return (u16*)(((unsigned long long)arena + EIGHT_ROWS - 1) / EIGHT_ROWS * EIGHT_ROWS);
}

extern "C" __global__ void __launch_bounds__(256) attend(const u16* q, const u16* k, const u16* v, const u16* g_in,
                                                            const float* lse, const float* shares,
#if LZ_MODE == 1
                                                            u16* dq,
#else
                                                            u16* dk, u16* dv,
#endif
                                                            const __grid_constant__ Layout at,
                                                            const __grid_constant__ float scale) {
  extern __shared__ u16 arena[];
  u16 *first_own = begin_of(arena), *second_own = first_own + OWN_TILE, *tiles = second_own + OWN_TILE;
  const int L = int(at.queries), S = int(at.keys), warp = int(threadIdx.x) / 32;
  const int g = int(threadIdx.x) % 32 / 4, t = int(threadIdx.x) % 4;
  /* Row i sees columns up to i + ahead. */
  const int ahead = S - L;
  const float factor = scale * LOG2E;
  const Matrix own[2] = {matrix_at(first_own + warp / 4 * 64 * PANEL, 0), matrix_at(second_own + warp / 4 * 64 * PANEL, 0)};
  const Matrix came[2][2] = {{matrix_at(tiles, ROWS * PANEL * 2), matrix_at(tiles + TILE, ROWS * PANEL * 2)},
                             {matrix_at(tiles + 2 * TILE, ROWS * PANEL * 2), matrix_at(tiles + 3 * TILE, ROWS * PANEL * 2)}};

#if LZ_MODE == 1

  /* dq = Σ p · (g · vᵀ − Σ g·o) · scale · k. The last rows see the most keys, and begin first. */
  const int first = int(gridDim.x - 1 - blockIdx.x) * OWN;
  const int batch = int(blockIdx.y / at.heads), head = int(blockIdx.y % at.heads), shared_head = int(head / at.shared_by);
  const u16* keys = k + batch * at.k[0] + shared_head * at.k[1];
  const u16* values = v + batch * at.v[0] + shared_head * at.v[1];
  const int last = (first + OWN < L ? first + OWN : L) - 1 + ahead;
  const int end = LZ_CAUSAL && last + 1 < S ? last + 1 : S;
  bring<OWN>(first_own, q + batch * at.q[0] + head * at.q[1] + first * at.q[2], at.q[2], L - first);
  bring<OWN>(second_own, g_in + batch * at.g[0] + head * at.g[1] + first * at.g[2], at.g[2], L - first);
  auto bring_next = [&](int begin, int which) {
    if (begin < end) {
      bring<ROWS>(tiles + which * 2 * TILE, keys + begin * at.k[2], at.k[2], S - begin);
      bring<ROWS>(tiles + (which * 2 + 1) * TILE, values + begin * at.v[2], at.v[2], S - begin);
    }
    commit_copies();
  };
  bring_next(0, 0);
  const long long rows = blockIdx.y * at.queries + first + warp * 16;
  const int count = L - first - warp * 16;
  float zero[2], share[2];
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const bool there = g + r * 8 < count;
    zero[r] = zero_of(there ? lse[rows + g + r * 8] : 0.0f);
    share[r] = there ? shares[rows + g + r * 8] : 0.0f;
  }
  float out[WIDTH / 8][4] = {};
  for (int begin = 0, which = 0; begin < end; begin += ROWS, which = 1 - which) {
    wait_for_copies<0>();
    show_shared();
    __syncthreads();
    bring_next(begin + ROWS, 1 - which);
    const Matrix of_keys = which ? came[1][0] : came[0][0], of_values = which ? came[1][1] : came[0][1];
    float s[ROWS / 8][4], slope[ROWS / 8][4];
    begin_products();
    products_of_rows(s, own[0], of_keys);
    end_products();
    products_of_rows(slope, own[1], of_values);
    end_products();
    await_products<1>();
    const bool partly = begin + ROWS > S || (LZ_CAUSAL && begin + ROWS - 1 > first + ahead);
#pragma unroll
    for (int n = 0; n < ROWS / 8; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        s[n][i] = power_of_two(s[n][i] * factor + zero[i / 2]);
        if (partly) {
          const int row = first + warp * 16 + g + i / 2 * 8, column = begin + n * 8 + 2 * t + i % 2;
          if (column >= S || (LZ_CAUSAL && column > row + ahead)) s[n][i] = 0.0f;
        }
      }
    await_products<0>();
#pragma unroll
    for (int n = 0; n < ROWS / 8; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) s[n][i] *= slope[n][i] - share[i / 2];
    u32 p[ROWS / 16][4];
    narrowed(p, s);
    begin_products();
    add_by_columns(out, p, of_keys);
    end_products();
    await_products<0>();
  }
  store(dq + rows * D, out, count, scale);

#else

  /* dv = Σ pᵀ · g, dk = Σ (p · (g · vᵀ − Σ g·o))ᵀ · scale · q; rows are keys, of which the first are seen by the most queries. */
  float* sums = (float*)(tiles + 4 * TILE);
  const int first = int(blockIdx.x) * OWN;
  const int key_heads = int(at.heads / at.shared_by);
  const int batch = int(blockIdx.y) / key_heads, shared_head = int(blockIdx.y) % key_heads;
  const int seen_from = LZ_CAUSAL && first - ahead > 0 ? (first - ahead) / ROWS * ROWS : 0;
  const int each = seen_from < L ? (L - seen_from + ROWS - 1) / ROWS : 0, all = each * int(at.shared_by);
  bring<OWN>(first_own, k + batch * at.k[0] + shared_head * at.k[1] + first * at.k[2], at.k[2], S - first);
  bring<OWN>(second_own, v + batch * at.v[0] + shared_head * at.v[1] + first * at.v[2], at.v[2], S - first);
  auto bring_next = [&](int tile, int which) {
    if (tile < all) {
      const int head = shared_head * int(at.shared_by) + tile / each, begin = seen_from + tile % each * ROWS;
      bring<ROWS>(tiles + which * 2 * TILE, q + batch * at.q[0] + head * at.q[1] + begin * at.q[2], at.q[2], L - begin);
      bring<ROWS>(tiles + (which * 2 + 1) * TILE, g_in + batch * at.g[0] + head * at.g[1] + begin * at.g[2], at.g[2], L - begin);
      const int i = int(threadIdx.x) % ROWS;
      const float* from = threadIdx.x < ROWS ? lse : shares;
      const long long rows = (batch * at.heads + head) * at.queries + begin;
      if (threadIdx.x < 2 * ROWS)
        copy_word_ahead(shared_address(sums + which * 2 * ROWS + threadIdx.x), from + (begin + i < L ? rows + i : 0), begin + i < L);
    }
    commit_copies();
  };
  bring_next(0, 0);
  float by_keys[WIDTH / 8][4] = {}, by_values[WIDTH / 8][4] = {};
  for (int tile = 0, which = 0; tile < all; tile++, which = 1 - which) {
    const int begin = seen_from + tile % each * ROWS;
    wait_for_copies<0>();
    show_shared();
    __syncthreads();
    bring_next(tile + 1, 1 - which);
    const Matrix of_queries = which ? came[1][0] : came[0][0], of_slopes = which ? came[1][1] : came[0][1];
    const float *sum = sums + which * 2 * ROWS + 2 * t, *share = sum + ROWS;
    float s[ROWS / 8][4], slope[ROWS / 8][4];
    begin_products();
    products_of_rows(s, own[0], of_queries);
    end_products();
    products_of_rows(slope, own[1], of_slopes);
    end_products();
    await_products<1>();
    const bool partly = LZ_CAUSAL && first + OWN - 1 > begin + ahead;
#pragma unroll
    for (int n = 0; n < ROWS / 8; n++) {
      const float zero[2] = {zero_of(sum[n * 8]), zero_of(sum[n * 8 + 1])};
#pragma unroll
      for (int i = 0; i < 4; i++) {
        s[n][i] = power_of_two(s[n][i] * factor + zero[i % 2]);
        if (partly) {
          const int key = first + warp * 16 + g + i / 2 * 8, query = begin + n * 8 + 2 * t + i % 2;
          if (key > query + ahead) s[n][i] = 0.0f;
        }
      }
    }
    u32 p[ROWS / 16][4];
    narrowed(p, s);
    begin_products();
    add_by_columns(by_values, p, of_slopes);
    end_products();
    await_products<1>();
#pragma unroll
    for (int n = 0; n < ROWS / 8; n++) {
      const float part[2] = {share[n * 8], share[n * 8 + 1]};
#pragma unroll
      for (int i = 0; i < 4; i++) s[n][i] *= slope[n][i] - part[i % 2];
    }
    u32 slopes[ROWS / 16][4];
    narrowed(slopes, s);
    begin_products();
    add_by_columns(by_keys, slopes, of_queries);
    end_products();
    await_products<0>();
  }
  const long long rows = blockIdx.y * at.keys + first + warp * 16;
  const int count = S - first - warp * 16;
  store(dk + rows * D, by_keys, count, scale);
  store(dv + rows * D, by_values, count, 1.0f);

#endif
}
