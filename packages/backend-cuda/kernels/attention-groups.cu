/* Attention over 16-bit floats and its derivative by products of groups of four warps, after Shah et al., "FlashAttention-3", 2024. A block
 * has 128 rows, 64 to each of its 2 groups, and goes through the other side 64 rows at a time: keys for results and for the derivative of
 * queries, queries for that of keys and values, which sums over the query heads that share a key head. The last product of a part runs
 * beside the first ones of the next, while the part behind comes. Before this text stand LZ_FEATURES (a multiple of 8, at most 128),
 * LZ_CAUSAL, LZ_MODE (0 results, 1 derivatives of queries, 2 of keys and values) and, for bfloat16, LZ_BRAIN. */
#define LZ_KERNELS
#include "warp-group.cuh"

constexpr int D = LZ_FEATURES, WIDTH = D <= 64 ? 64 : 128, PANELS = WIDTH / PANEL;
constexpr int OWN = 128, ROWS = 64, THREADS = 256, STAGES = 3;
/* Elements of the block's own matrices and of those that come, and of both of a stage. */
constexpr int OWN_TILE = OWN * WIDTH, TILE = ROWS * WIDTH, STAGE = 2 * TILE;
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

#if LZ_MODE == 0
#define LZ_OUTPUTS u16 *o, float *lse
#elif LZ_MODE == 1
#define LZ_OUTPUTS const u16 *g_in, const float *lse, const float *shares, u16 *dq
#else
#define LZ_OUTPUTS const u16 *g_in, const float *lse, const float *shares, u16 *dk, u16 *dv
#endif

extern "C" __global__ void __launch_bounds__(256) attend(const u16* q, const u16* k, const u16* v, LZ_OUTPUTS,
                                                         const __grid_constant__ Layout at,
                                                         const __grid_constant__ float scale) {
  extern __shared__ u16 arena[];
  u16 *first_own = begin_of(arena), *second_own = first_own + OWN_TILE, *tiles = first_own + (LZ_MODE ? 2 : 1) * OWN_TILE;
  const int L = int(at.queries), S = int(at.keys), warp = int(threadIdx.x) / 32;
  const int g = int(threadIdx.x) % 32 / 4, t = int(threadIdx.x) % 4;
  /* Row i sees columns up to i + ahead. */
  const int ahead = S - L;
  const float factor = scale * LOG2E;
  const Matrix own[2] = {matrix_at(first_own + warp / 4 * 64 * PANEL, 0), matrix_at(second_own + warp / 4 * 64 * PANEL, 0)};
  /* Of a stage: keys and values, or queries and slopes. */
  const Matrix came = matrix_at(tiles, ROWS * PANEL * 2);
  auto first_of = [&](int stage) { return moved(came, stage * STAGE); };
  auto second_of = [&](int stage) { return moved(came, stage * STAGE + TILE); };
  auto next_of = [](int stage) { return stage + 1 == STAGES ? 0 : stage + 1; };

#if LZ_MODE < 2

  /* The last rows see the most keys, and begin first. */
  const int first = int(gridDim.x - 1 - blockIdx.x) * OWN;
  const int batch = int(blockIdx.y / at.heads), head = int(blockIdx.y % at.heads), shared_head = int(head / at.shared_by);
  const u16* keys = k + batch * at.k[0] + shared_head * at.k[1];
  const u16* values = v + batch * at.v[0] + shared_head * at.v[1];
  const int last = (first + OWN < L ? first + OWN : L) - 1 + ahead;
  const int end = LZ_CAUSAL && last + 1 < S ? last + 1 : S;
  bring<OWN>(first_own, q + batch * at.q[0] + head * at.q[1] + first * at.q[2], at.q[2], L - first);
#if LZ_MODE == 1
  bring<OWN>(second_own, g_in + batch * at.g[0] + head * at.g[1] + first * at.g[2], at.g[2], L - first);
#endif
  auto bring_next = [&](int begin, int stage) {
    if (begin < end) {
      bring<ROWS>(tiles + stage * STAGE, keys + begin * at.k[2], at.k[2], S - begin);
      bring<ROWS>(tiles + stage * STAGE + TILE, values + begin * at.v[2], at.v[2], S - begin);
    }
    commit_copies();
  };
  /* Takes out scores that are not seen, where a part has any. */
  auto hide = [&](float (&s)[ROWS / 8][4], int begin, float instead) {
    if (begin + ROWS <= S && (!LZ_CAUSAL || begin + ROWS - 1 <= first + warp * 16 + ahead)) return;
#pragma unroll
    for (int n = 0; n < ROWS / 8; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int row = first + warp * 16 + g + i / 2 * 8, column = begin + n * 8 + 2 * t + i % 2;
        if (column >= S || (LZ_CAUSAL && column > row + ahead)) s[n][i] = instead;
      }
  };
  const long long rows = blockIdx.y * at.queries + first + warp * 16;
  const int count = L - first - warp * 16;
  float out[WIDTH / 8][4] = {};
  /* The next part takes the place of the one before the last, which no group reads any more. */
  auto turn = [&](int begin, int stage) {
    wait_for_copies<0>();
    show_shared();
    __syncthreads();
    bring_next(begin + ROWS, next_of(stage));
  };
  bring_next(0, 0);

#if LZ_MODE == 0

  float most[2] = {-INFINITY, -INFINITY}, total[2] = {}, shrink[2];
  float s[ROWS / 8][4];
  u32 p[ROWS / 16][4];
  /* Scores become powers of two of what they are above the running maximum. */
  auto weigh = [&](int begin) {
    hide(s, begin, -INFINITY);
#pragma unroll
    for (int r = 0; r < 2; r++) {
      float top = most[r];
#pragma unroll
      for (int n = 0; n < ROWS / 8; n++) top = fmaxf(top, fmaxf(s[n][2 * r], s[n][2 * r + 1]));
      top = fmaxf(top, from_neighbour(top, 1));
      top = fmaxf(top, from_neighbour(top, 2));
      /* Of a row that has seen nothing so far nothing may be −∞ − (−∞). */
      const float zero = top == -INFINITY ? 0.0f : top * factor;
      shrink[r] = power_of_two(most[r] * factor - zero);
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
      total[r] = total[r] * shrink[r] + sum;
    }
  };
  int stage = 0;
  if (end > 0) {
    turn(0, 0);
    begin_products();
    products_of_rows(s, own[0], first_of(0));
    end_products();
    await_products<0>();
    weigh(0);
    narrowed(p, s);
  }
  for (int begin = ROWS; begin < end; begin += ROWS) {
    const int before = stage;
    stage = next_of(stage);
    turn(begin, stage);
    begin_products();
    products_of_rows(s, own[0], first_of(stage));
    end_products();
    add_by_columns(out, p, second_of(before));
    end_products();
    await_products<1>();
    weigh(begin);
    await_products<0>();
#pragma unroll
    for (int d = 0; d < WIDTH / 8; d++)
#pragma unroll
      for (int i = 0; i < 4; i++) out[d][i] *= shrink[i / 2];
    narrowed(p, s);
  }
  if (end > 0) {
    begin_products();
    add_by_columns(out, p, second_of(stage));
    end_products();
    await_products<0>();
  }
#pragma unroll
  for (int r = 0; r < 2; r++) {
    float sum = total[r];
    sum += from_neighbour(sum, 1);
    sum += from_neighbour(sum, 2);
    const float share = sum > 0.0f ? 1.0f / sum : 0.0f;
    if (t == 0 && g + r * 8 < count) lse[rows + g + r * 8] = sum > 0.0f ? most[r] * scale + log_of(sum) : -INFINITY;
#pragma unroll
    for (int d = 0; d < WIDTH / 8; d++) {
      out[d][2 * r] *= share;
      out[d][2 * r + 1] *= share;
    }
  }
  store(o + rows * D, out, count, 1.0f);

#else

  /* dq = Σ p · (g · vᵀ − Σ g·o) · scale · k. */
  float zero[2], share[2];
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const bool there = g + r * 8 < count;
    zero[r] = zero_of(there ? lse[rows + g + r * 8] : 0.0f);
    share[r] = there ? shares[rows + g + r * 8] : 0.0f;
  }
  u32 slopes[ROWS / 16][4];
  int stage = 0, before = 0;
  for (int begin = 0; begin < end; begin += ROWS) {
    turn(begin, stage);
    float s[ROWS / 8][4], slope[ROWS / 8][4];
    begin_products();
    products_of_rows(s, own[0], first_of(stage));
    end_products();
    products_of_rows(slope, own[1], second_of(stage));
    end_products();
    if (begin > 0) {
      begin_products();
      add_by_columns(out, slopes, first_of(before));
    }
    end_products();
    await_products<2>();
#pragma unroll
    for (int n = 0; n < ROWS / 8; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) s[n][i] = power_of_two(s[n][i] * factor + zero[i / 2]);
    hide(s, begin, 0.0f);
    await_products<1>();
#pragma unroll
    for (int n = 0; n < ROWS / 8; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) s[n][i] *= slope[n][i] - share[i / 2];
    await_products<0>();
    narrowed(slopes, s);
    before = stage;
    stage = next_of(stage);
  }
  if (end > 0) {
    begin_products();
    add_by_columns(out, slopes, first_of(before));
    end_products();
    await_products<0>();
  }
  store(dq + rows * D, out, count, scale);

#endif
#else

  /* dv = Σ pᵀ · g, dk = Σ (p · (g · vᵀ − Σ g·o))ᵀ · scale · q; rows are keys, of which the first are seen by the most queries. */
  float* sums = (float*)(tiles + STAGES * STAGE);
  const int first = int(blockIdx.x) * OWN;
  const int key_heads = int(at.heads / at.shared_by);
  const int batch = int(blockIdx.y) / key_heads, shared_head = int(blockIdx.y) % key_heads;
  const int seen_from = LZ_CAUSAL && first - ahead > 0 ? (first - ahead) / ROWS * ROWS : 0;
  const int each = seen_from < L ? (L - seen_from + ROWS - 1) / ROWS : 0, all = each * int(at.shared_by);
  bring<OWN>(first_own, k + batch * at.k[0] + shared_head * at.k[1] + first * at.k[2], at.k[2], S - first);
  bring<OWN>(second_own, v + batch * at.v[0] + shared_head * at.v[1] + first * at.v[2], at.v[2], S - first);
  auto bring_next = [&](int tile, int stage) {
    if (tile < all) {
      const int head = shared_head * int(at.shared_by) + tile / each, begin = seen_from + tile % each * ROWS;
      bring<ROWS>(tiles + stage * STAGE, q + batch * at.q[0] + head * at.q[1] + begin * at.q[2], at.q[2], L - begin);
      bring<ROWS>(tiles + stage * STAGE + TILE, g_in + batch * at.g[0] + head * at.g[1] + begin * at.g[2], at.g[2], L - begin);
      const int i = int(threadIdx.x) % ROWS;
      const float* from = threadIdx.x < ROWS ? lse : shares;
      const long long rows = (batch * at.heads + head) * at.queries + begin;
      if (threadIdx.x < 2 * ROWS)
        copy_word_ahead(shared_address(sums + stage * 2 * ROWS + threadIdx.x), from + (begin + i < L ? rows + i : 0), begin + i < L);
    }
    commit_copies();
  };
  float by_keys[WIDTH / 8][4] = {}, by_values[WIDTH / 8][4] = {};
  u32 slopes[ROWS / 16][4];
  int stage = 0, before = 0, begin = seen_from;
  bring_next(0, 0);
  for (int tile = 0; tile < all; tile++) {
    wait_for_copies<0>();
    show_shared();
    __syncthreads();
    bring_next(tile + 1, next_of(stage));
    const float *sum = sums + stage * 2 * ROWS + 2 * t, *share = sum + ROWS;
    float s[ROWS / 8][4], slope[ROWS / 8][4];
    begin_products();
    products_of_rows(s, own[0], first_of(stage));
    end_products();
    products_of_rows(slope, own[1], second_of(stage));
    end_products();
    if (tile > 0) {
      begin_products();
      add_by_columns(by_keys, slopes, first_of(before));
    }
    end_products();
    await_products<2>();
#pragma unroll
    for (int n = 0; n < ROWS / 8; n++) {
      const float zero[2] = {zero_of(sum[n * 8]), zero_of(sum[n * 8 + 1])};
#pragma unroll
      for (int i = 0; i < 4; i++) s[n][i] = power_of_two(s[n][i] * factor + zero[i % 2]);
    }
    if (LZ_CAUSAL && first + warp * 16 + 15 > begin + ahead) {
#pragma unroll
      for (int n = 0; n < ROWS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const int key = first + warp * 16 + g + i / 2 * 8, query = begin + n * 8 + 2 * t + i % 2;
          if (key > query + ahead) s[n][i] = 0.0f;
        }
    }
    u32 p[ROWS / 16][4];
    narrowed(p, s);
    begin_products();
    add_by_columns(by_values, p, second_of(stage));
    end_products();
    await_products<2>();
#pragma unroll
    for (int n = 0; n < ROWS / 8; n++) {
      const float part[2] = {share[n * 8], share[n * 8 + 1]};
#pragma unroll
      for (int i = 0; i < 4; i++) s[n][i] *= slope[n][i] - part[i % 2];
    }
    await_products<0>();
    narrowed(slopes, s);
    before = stage;
    stage = next_of(stage);
    begin += ROWS;
    if ((tile + 1) % each == 0) begin = seen_from;
  }
  if (all > 0) {
    begin_products();
    add_by_columns(by_keys, slopes, first_of(before));
    end_products();
    await_products<0>();
  }
  const long long rows = blockIdx.y * at.keys + first + warp * 16;
  const int count = S - first - warp * 16;
  store(dk + rows * D, by_keys, count, scale);
  store(dv + rows * D, by_values, count, 1.0f);

#endif
}
