/* Products of one row with packed weights (mode affine), which are as fast as the weights are read: a block
 * stays and goes from tile to tile (16 rows of a matrix). A warp of its own brings weights to shared memory,
 * STAGES ahead, the first ones before earlier work has ended, where that does not write them; the others
 * divide the groups of a stage among them. x lies in shared memory as tensor cores take it. Sums are added in
 * the order of few-rows.cu, so that results have the same bits. Work around the products is done with the bits
 * that it has by itself: x may be the RMS norm of what is given, and results may end with one more row that is
 * added, or be silu(gate) · up of two matrices, of which a tile then has 8 rows each. Before this text stand,
 * besides those of packed-codes.cuh, LZ_COLUMNS (elements of x), LZ_PARTS (matrices, at most 3), LZ_STAGES, LZ_BLOCKS (resident blocks of
 * a processor), LZ_TABLES (tiles whose scales and biases are kept: as many as LZ_STAGES consecutive stages can
 * belong to), LZ_NORM (0, 1, or 2 where the norm is written as well) and LZ_END (0, 1
 * for a row that is added, 2 for silu). */
#define LZ_KERNELS
#include "joined-matrices.cuh"
#include "bulk-copies.cuh"
#include "packed-codes.cuh"

constexpr int WARPS = 8, ROWS = 16, STAGES = LZ_STAGES, TABLES = LZ_TABLES, K = LZ_COLUMNS;
constexpr bool IS_GATED = LZ_END == 2;
/* Rows of a tile that one matrix has. */
constexpr int TILE_ROWS = IS_GATED ? ROWS / 2 : ROWS;
/* Of a row in a stage: bytes of its weights, and its groups. Rows lie apart so that a warp reads all banks. */
constexpr int ROW_BYTES = WARPS * 128, GROUPS = WARPS * TOGETHER;
constexpr int ROW_PITCH = ROW_BYTES + 16 * (WORDS < 4 ? WORDS : 4), STAGE_BYTES = ROWS * ROW_PITCH;
/* Groups of a row, and the stages of a tile; true if warps have groups in all of them. */
constexpr int ALL_GROUPS = K / LZ_GROUP, PER_TILE = (ALL_GROUPS + GROUPS - 1) / GROUPS;
constexpr bool IS_FULL = ALL_GROUPS % GROUPS == 0;
/* Bytes of a row's numbers of a kind, and of a table: the scales of a tile, and then its biases. */
constexpr int LINE = ALL_GROUPS * 2, TABLE_BYTES = 2 * ROWS * LINE;
/* Chunks of x in a stage of a warp; pairs of words that one product takes, of which a chunk has two. */
constexpr int X_CHUNKS = TOGETHER * LZ_GROUP / 8, PAIRS = CODES / 4;

/* A chunk of x as products take it: their words of codes hold codes i and i + 4 (of 8 bits i + 2) of a word
 * of weights. */
inline Chunk paired(const Chunk& x, u32 larger) {
  const u32 *a = x.word, b = LZ_BITS == 4 ? 2 : 1, c = LZ_BITS == 4 ? 1 : 2;
  Chunk y = {{low_halves(a[0], a[b]), high_halves(a[0], a[b]), low_halves(a[c], a[3]), high_halves(a[c], a[3])}};
  if (ARE_TINY)
#pragma unroll
    for (int i = 0; i < 4; i++) y.word[i] = enlarged(y.word[i], i % 2 ? larger - LESS : larger);
  return y;
}

#if LZ_NORM
/* Elements of x that a thread of the kernel for rows keeps; row-source.ts and rows.ts, whose order this is. */
constexpr int KEPT = 16;

inline float sum_of_lanes(float x) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) x = plus(x, from_neighbour(x, distance));
  return x;
}

/* One over the root of the mean square. */
inline float rate_of(const u16* x, float eps) {
  constexpr int ALL = (K / KEPT + 31) / 32, PARTS = ALL < 2 ? 2 : ALL, EACH = (PARTS + WARPS - 1) / WARPS;
  __shared__ float squares[PARTS];
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const auto has = [&](int v) { return PARTS % WARPS == 0 || v * WARPS + warp < PARTS; };
  const auto place = [&](int v, int u) { return (u * PARTS * 32 + (v * WARPS + warp) * 32 + lane) * 8; };
  const auto is_there = [&](int v, int u) { return has(v) && (K == PARTS * 32 * KEPT || place(v, u) < K); };
  Chunk some[EACH][2];
#pragma unroll
  for (int v = 0; v < EACH; v++)
#pragma unroll
    for (int u = 0; u < 2; u++)
      if (is_there(v, u)) some[v][u] = *(const Chunk*)(x + place(v, u));
#pragma unroll
  for (int v = 0; v < EACH; v++) {
    float sum = 0.0f;
#pragma unroll
    for (int u = 0; u < 2; u++)
      if (is_there(v, u))
#pragma unroll
        for (int e = 0; e < 8; e++) {
          const float value = float_of(u16(some[v][u].word[e / 2] >> e % 2 * 16));
          sum = plus(sum, times(value, value));
        }
    sum = sum_of_lanes(sum);
    if (lane == 0 && has(v)) squares[v * WARPS + warp] = sum;
  }
  meet_consumers();
  const float sum = sum_of_lanes(lane < PARTS ? squares[lane] : 0.0f);
  return over(1.0f, root(plus(over(sum, float(K)), eps)));
}

inline Chunk normed_chunk(const Chunk& x, const Chunk& scales, float rate) {
  Chunk y;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    float part[2];
#pragma unroll
    for (int e = 0; e < 2; e++)
      part[e] = times(times(float_of(u16(x.word[i] >> e * 16)), rate), float_of(u16(scales.word[i] >> e * 16)));
    y.word[i] = pack(part[0], part[1]);
  }
  return y;
}
#endif

/* Of the norm: the scales of its features, and where it is written, if it is. */
struct Norm {
  const u16* scales;
  u16* y;
  float eps;
};

/* Each warp keeps what it needs of x by itself; `totals` are the sums of its groups. Reads are under way
 * together, of LOADS stages. Gives what one is in sums of products. */
inline float take_row(Chunk* own, float* totals, const u16* x, const Norm& norm) {
  constexpr int MOST = LZ_NORM ? 4 : 8, LOADS = PER_TILE < MOST ? PER_TILE : MOST;
  static_assert(X_CHUNKS <= 32, "a lane has a chunk of a stage");
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  float rate = 0.0f;
  bool large = false;
  for (bool again = true; again;) {
    bool are_large = false;
#pragma unroll 1
    for (int first = 0; first < PER_TILE; first += LOADS) {
      Chunk some[LOADS];
      const auto is_there = [&](int i) {
        return (PER_TILE % LOADS == 0 || first + i < PER_TILE) && (IS_FULL || ((first + i) * WARPS + warp) * TOGETHER < ALL_GROUPS) && lane < X_CHUNKS;
      };
      const auto place = [&](int i) { return ((first + i) * WARPS + warp) * TOGETHER * LZ_GROUP + lane * 8; };
#pragma unroll
      for (int i = 0; i < LOADS; i++)
        if (is_there(i)) some[i] = *(const Chunk*)(x + place(i));
#if LZ_NORM
      Chunk scales[LOADS];
#pragma unroll
      for (int i = 0; i < LOADS; i++)
        if (is_there(i)) scales[i] = *(const Chunk*)(norm.scales + place(i));
      if (first == 0 && !large) rate = rate_of(x, norm.eps);
#pragma unroll
      for (int i = 0; i < LOADS; i++)
        if (is_there(i)) {
          some[i] = normed_chunk(some[i], scales[i], rate);
          if (LZ_NORM == 2 && blockIdx.x == 0) *(Chunk*)(norm.y + place(i)) = some[i];
        }
#endif
#pragma unroll
      for (int i = 0; i < LOADS; i++)
        if (is_there(i)) {
          own[(first + i) * X_CHUNKS + lane] = paired(some[i], larger_by(large));
#pragma unroll
          for (int j = 0; j < 4; j++) are_large = are_large || is_large(some[i].word[j]);
        }
    }
    again = ARE_TINY && !large && __ballot_sync(~0u, are_large) != 0;
    large = large || again;
  }
  __syncwarp();
  const u32 ones[4] = {ONES[0], ONES[0], ONES[1], ONES[1]};
  /* Each column of a product has another group. */
#pragma unroll 1
  for (int first = 0; first < PER_TILE * TOGETHER; first += 8) {
    const int group = first + lane / 4 < PER_TILE * TOGETHER ? first + lane / 4 : first;
    float total[4] = {};
#pragma unroll
    for (int p = 0; p < PAIRS; p++) {
      const Chunk& c = own[(group * 4 + lane % 4) * (PAIRS / 2) + p / 2];
      multiply(total, ones, c.word[p % 2 * 2], c.word[p % 2 * 2 + 1]);
    }
#pragma unroll
    for (int i = 0; i < 2; i++)
      if (const int at = first + lane * 2 + i; lane < 4 && at < PER_TILE * TOGETHER) totals[at] = total[i];
  }
  __syncwarp();
  return unit_of(large);
}

/* Adds a stage's products to the sums of a lane's two rows; `own` and `totals` are those of the stage. */
inline void add_stage(float (&sums)[2], const char* weights, const char* numbers, const Chunk* own, const float* totals) {
  const int lane = int(threadIdx.x) % 32;
  u32 scale[2][(TOGETHER + 1) / 2], bias[2][(TOGETHER + 1) / 2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const char* from = numbers + half * 8 * LINE;
    memcpy(scale[half], __builtin_assume_aligned(from, TOGETHER * 2), TOGETHER * 2);
    memcpy(bias[half], __builtin_assume_aligned(from + ROWS * LINE, TOGETHER * 2), TOGETHER * 2);
  }
  u32 w[TOGETHER][2][WORDS];
#pragma unroll
  for (int u = 0; u < TOGETHER; u++)
#pragma unroll
    for (int half = 0; half < 2; half++)
      memcpy(w[u][half], __builtin_assume_aligned(weights + half * 8 * ROW_PITCH + u * 16 * WORDS, WORDS < 4 ? WORDS * 4 : 16), WORDS * 4);
  float part[TOGETHER][4] = {};
#pragma unroll
  for (int p = 0; p < PAIRS; p++)
#pragma unroll
    for (int u = 0; u < TOGETHER; u++) {
      const Chunk& c = own[(u * 4 + lane % 4) * (PAIRS / 2) + p / 2];
      const int word = p / (PER_WORD / 4), shift = p % (PER_WORD / 4) * 2 * LZ_BITS;
      u32 codes[4];
      take_codes(codes, w[u][0][word] >> shift, w[u][1][word] >> shift);
      multiply(part[u], codes, c.word[p % 2 * 2], c.word[p % 2 * 2 + 1]);
    }
#pragma unroll
  for (int u = 0; u < TOGETHER; u++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const auto number = [&](const u32* pairs) { return u % 2 ? high_float(pairs[u / 2]) : low_float(pairs[u / 2]); };
      sums[half] = fmaf(number(scale[half]), part[u][2 * half], fmaf(number(bias[half]), totals[u], sums[half]));
    }
}

inline u16 narrow(float x) { return u16(pack(x, 0.0f)); }

/* As elementwise work computes it (scalar-source.ts): rounded after each step. */
inline u16 gated(float gate, float up) {
  const float g = float_of(narrow(gate)), e = exp_of(g < 0.0f ? g : -g);
  const float share = float_of(narrow(g >= 0.0f ? over(1.0f, plus(1.0f, e)) : over(e, plus(1.0f, e))));
  return narrow(times(float_of(narrow(times(g, share))), float_of(narrow(up))));
}

extern "C" __global__ void __launch_bounds__(288, LZ_BLOCKS) packed_row(const u16* x, LZ_MATRICES, const __grid_constant__ Sizes sizes, const u16* added, const u16* scales, u16* normed, const __grid_constant__ float eps) {
  extern __shared__ Chunk arena[];
  /* Of two tiles: a warp adds up the sums of one while others, which do not wait for it, are at the next. */
  __shared__ float parts[2][WARPS][ROWS];
  __shared__ u64 full[STAGES], empty[STAGES];
  const int lane = int(threadIdx.x) % 32, warp = __shfl_sync(~0u, int(threadIdx.x) / 32, 0);
  int tiles = 0;
#pragma unroll
  for (int i = 0; i < (IS_GATED ? 1 : LZ_PARTS); i++) tiles += (sizes.rows[i] + TILE_ROWS - 1) / TILE_ROWS;
  const auto matrix_of = [&](int tile) {
    LZ_FIND_MATRIX(tile)
    return matrix;
  };
  const Shared stages = shared_address(arena), tables = stages + STAGES * STAGE_BYTES;
  const Shared is_full = shared_address(full), is_empty = shared_address(empty);
  if (threadIdx.x == 0) {
#pragma unroll
    for (int i = 0; i < STAGES; i++) begin_barrier(is_full + 8 * i, 1), begin_barrier(is_empty + 8 * i, WARPS);
    show_barriers();
  }
  __syncthreads();
  int slot = 0, phase = 0, table = 0;
  const auto advance = [&]() {
    if (++slot == STAGES) slot = 0, phase ^= 1;
  };

  if (warp == WARPS) {
    if (!sizes.early) await_earlier();
    if (LZ_NORM) join_consumers();
    constexpr int bytes = K / 8 * LZ_BITS;
    /* One lane copies, to addresses that are the same for all: those of lanes would be taken one after another. */
    const bool copies = is_chosen();
    for (int tile = int(blockIdx.x); tile < tiles; tile += int(gridDim.x)) {
      const Matrix m = matrix_of(tile);
      const int first = m.tile * TILE_ROWS, there = m.rows - first < TILE_ROWS ? m.rows - first : TILE_ROWS;
#pragma unroll 1
      for (int stage = 0; stage < PER_TILE; stage++) {
        const int some = bytes - stage * ROW_BYTES < ROW_BYTES ? bytes - stage * ROW_BYTES : ROW_BYTES;
        const Shared barrier = is_full + 8 * slot;
        await_empty(is_empty + 8 * slot, phase ^ 1);
        const auto copy = [&](const u16* weights, const u16* scales, const u16* biases, int at) {
          const char* from = (const char*)weights + (long long)first * bytes + stage * ROW_BYTES;
          const Shared to = stages + slot * STAGE_BYTES + at * ROW_PITCH;
#pragma unroll 4
          for (int r = 0; r < there; r++) copy_bulk(to + r * ROW_PITCH, from + (long long)r * bytes, some, barrier);
          if (stage > 0) return;
          const Shared numbers = tables + table * TABLE_BYTES + at * LINE;
          copy_bulk(numbers, scales + (long long)first * ALL_GROUPS, there * LINE, barrier);
          copy_bulk(numbers + ROWS * LINE, biases + (long long)first * ALL_GROUPS, there * LINE, barrier);
        };
        if (copies) {
          expect_bytes(barrier, (IS_GATED ? 2 : 1) * there * (some + (stage == 0 ? 2 * LINE : 0)));
          copy(m.weights, m.scales, m.biases, 0);
#if LZ_END == 2
          copy(weights1, scales1, biases1, TILE_ROWS);
#endif
        }
        show_stage();
        advance();
      }
      join_consumers();
      if (++table == TABLES) table = 0;
    }
    return;
  }

  char* kept = (char*)arena + STAGES * STAGE_BYTES + TABLES * TABLE_BYTES;
  Chunk* own = (Chunk*)kept + warp * PER_TILE * X_CHUNKS;
  float* totals = (float*)(kept + WARPS * PER_TILE * X_CHUNKS * 16) + warp * PER_TILE * TOGETHER;
#if LZ_NORM
  if (int(threadIdx.x) * 64 < K) fetch_ahead(scales + int(threadIdx.x) * 64);
#endif
  await_earlier();
  const float unit = take_row(own, totals, x, {scales, normed, eps});
  const char* weights = (const char*)arena + lane / 4 * ROW_PITCH + warp * 128 + lane % 4 * WORDS * 4;
  const char* numbers = (const char*)arena + STAGES * STAGE_BYTES + lane / 4 * LINE + warp * TOGETHER * 2;
  for (int tile = int(blockIdx.x), turn = 0; tile < tiles; tile += int(gridDim.x), turn++) {
    const Matrix m = matrix_of(tile);
    const int at = turn % 2;
    const int row = m.tile * TILE_ROWS + lane;
    const bool gives = warp == 0 && lane < TILE_ROWS && row < m.rows;
    u16 more = 0;
    if (LZ_END == 1 && gives) more = added[row];
    float sums[2] = {};
#pragma unroll 1
    for (int stage = 0; stage < PER_TILE; stage++) {
      await_full(is_full + 8 * slot, phase);
      if (IS_FULL || (stage * WARPS + warp) * TOGETHER < ALL_GROUPS)
        add_stage(sums, weights + slot * STAGE_BYTES, numbers + table * TABLE_BYTES + stage * GROUPS * 2, own + stage * X_CHUNKS, totals + stage * TOGETHER);
      __syncwarp();
      if (lane == 0) leave(is_empty + 8 * slot);
      advance();
    }
    if (warp > 0 && turn >= 2) await_free(at);
    if (lane % 4 == 0) parts[at][warp][lane / 4] = unit * sums[0], parts[at][warp][8 + lane / 4] = unit * sums[1];
    if (warp > 0) give_sums(at);
    else await_sums(at);
    if (gives) {
      float sum[2] = {};
#pragma unroll
      for (int i = 0; i < (IS_GATED ? 2 : 1); i++)
#pragma unroll
        for (int w = 0; w < WARPS; w++) sum[i] += parts[at][w][lane + i * TILE_ROWS];
      if (LZ_END == 2) m.y[row] = gated(sum[0], sum[1]);
      else if (LZ_END == 1) m.y[row] = narrow(plus(float_of(narrow(sum[0])), float_of(more)));
      else m.y[row] = narrow(sum[0]);
    }
    __syncwarp();
    if (warp == 0 && tile + 2 * int(gridDim.x) < tiles) free_sums(at);
    if (++table == TABLES) table = 0;
  }
}
