/* Products of one row with packed weights (mode affine), which are as fast as the weights are read: a block
 * stays, goes from tile to tile (16 rows of a matrix), and its weights are on their way to shared memory
 * STAGES − 1 stages ahead; the first ones before earlier work has ended, where that does not write them. Its
 * warps divide the groups of a stage among them; x lies in shared memory as tensor cores take it. Sums are
 * added in the order of few-rows.cu, so that results have the same bits. Before this text stand, besides
 * those of packed-codes.cuh, LZ_PARTS (matrices, at most 3), LZ_STAGES, LZ_STEPS (of a warp in a stage) and
 * LZ_BLOCKS (blocks that a processor is to have at once). */
#define LZ_KERNELS
#include "joined-matrices.cuh"
#include "packed-codes.cuh"

constexpr int WARPS = 8, THREADS = WARPS * 32, ROWS = 16, TILE_ROWS = ROWS, STAGES = LZ_STAGES, STEPS = LZ_STEPS;
/* Of a row in a stage: bytes of its weights, its groups, bytes of their numbers. Rows lie apart so that a
 * warp reads all banks. */
constexpr int ROW_BYTES = STEPS * WARPS * 128, GROUPS = STEPS * WARPS * TOGETHER, NUMBER_BYTES = GROUPS * 2;
constexpr int ROW_PITCH = ROW_BYTES + 16 * (WORDS < 4 ? WORDS : 4), NUMBER_PITCH = NUMBER_BYTES + 16;
constexpr int STAGE_BYTES = ROWS * (ROW_PITCH + 2 * NUMBER_PITCH);
/* Chunks of x in a step; pairs of words that one product takes, of which a chunk has two. */
constexpr int X_CHUNKS = TOGETHER * LZ_GROUP / 8, PAIRS = CODES / 4;

/* What a thread copies of the stages of a tile: the same chunk of several rows, and one of the numbers. */
struct Copying {
  static constexpr int CHUNKS = ROW_BYTES / 16, DOWN = THREADS / CHUNKS, NUMBERS = NUMBER_BYTES / 16;
  static_assert(2 * ROWS * NUMBERS <= THREADS, "a thread copies one chunk of numbers");
  const char *weights, *numbers;
  int bytes, groups, there;

  inline void begin(const Matrix& m, int k) {
    const int thread = int(threadIdx.x), first = m.tile * ROWS, line = thread / NUMBERS;
    bytes = k / 8 * LZ_BITS, groups = k / LZ_GROUP;
    there = m.rows - first;
    weights = (const char*)m.weights + (long long)(first + thread / CHUNKS) * bytes + thread % CHUNKS * 16;
    numbers = (const char*)((line < ROWS ? m.scales : m.biases) + (long long)(first + line % ROWS) * groups) + thread % NUMBERS * 16;
  }
  inline void bring(Shared to, int stage) {
    const int thread = int(threadIdx.x), row = thread / CHUNKS, line = thread / NUMBERS;
    const Shared own = to + row * ROW_PITCH + thread % CHUNKS * 16;
    if (stage * ROW_BYTES + thread % CHUNKS * 16 < bytes)
#pragma unroll
      for (int i = 0; i < ROWS; i += DOWN)
        if (row + i < there) copy_ahead(own + i * ROW_PITCH, weights + (long long)i * bytes, true);
    if (line < 2 * ROWS && line % ROWS < there && stage * GROUPS + thread % NUMBERS * 8 < groups)
      copy_ahead(to + ROWS * ROW_PITCH + line * NUMBER_PITCH + thread % NUMBERS * 16, numbers, true);
    weights += ROW_BYTES, numbers += NUMBER_BYTES;
  }
};

/* A chunk of x as products take it: their words of codes hold codes i and i + 4 (of 8 bits i + 2) of a word
 * of weights. */
inline Chunk paired(const Chunk& x) {
  const u32 *a = x.word, b = LZ_BITS == 4 ? 2 : 1, c = LZ_BITS == 4 ? 1 : 2;
  return {{low_halves(a[0], a[b]), high_halves(a[0], a[b]), low_halves(a[c], a[3]), high_halves(a[c], a[3])}};
}

/* Each warp keeps what it needs of x by itself; `totals` are the sums of its groups. Reads are under way
 * together, of LOADS steps. */
inline void take_row(Chunk* own, float* totals, const u16* x, int groups, int steps) {
  constexpr int LOADS = 8;
  static_assert(X_CHUNKS <= 32, "a lane has a chunk of a step");
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  for (int first = 0; first < steps; first += LOADS) {
    Chunk some[LOADS];
    const auto is_there = [&](int i) { return first + i < steps && ((first + i) * WARPS + warp) * TOGETHER < groups && lane < X_CHUNKS; };
#pragma unroll
    for (int i = 0; i < LOADS; i++)
      if (is_there(i)) some[i] = *(const Chunk*)(x + ((first + i) * WARPS + warp) * TOGETHER * LZ_GROUP + lane * 8);
#pragma unroll
    for (int i = 0; i < LOADS; i++)
      if (is_there(i)) own[(first + i) * X_CHUNKS + lane] = paired(some[i]);
  }
  __syncwarp();
  const u32 ones[4] = {ONES, ONES, ONES, ONES};
  /* A group's products wait for each other: those of the other groups of a step run meanwhile. */
  for (int i = 0; i < steps; i++) {
    float total[TOGETHER][4] = {};
#pragma unroll
    for (int p = 0; p < PAIRS; p++)
#pragma unroll
      for (int u = 0; u < TOGETHER; u++) {
        const Chunk& c = own[((i * TOGETHER + u) * 4 + lane % 4) * (PAIRS / 2) + p / 2];
        multiply(total[u], ones, c.word[p % 2 * 2], c.word[p % 2 * 2 + 1]);
      }
#pragma unroll
    for (int u = 0; u < TOGETHER; u++)
      if (lane == 0) totals[i * TOGETHER + u] = total[u][0];
  }
  __syncwarp();
}

/* Adds a step's products to the sums of a lane's two rows; `own` and `totals` are those of the step. */
inline void add_step(float (&sums)[2], const char* weights, const char* numbers, const Chunk* own, const float* totals) {
  const int lane = int(threadIdx.x) % 32;
  u16 scale[2][TOGETHER], bias[2][TOGETHER];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const char* from = numbers + half * 8 * NUMBER_PITCH;
    memcpy(scale[half], __builtin_assume_aligned(from, TOGETHER * 2), TOGETHER * 2);
    memcpy(bias[half], __builtin_assume_aligned(from + ROWS * NUMBER_PITCH, TOGETHER * 2), TOGETHER * 2);
  }
#pragma unroll
  for (int u = 0; u < TOGETHER; u++) {
    u32 w[2][WORDS];
#pragma unroll
    for (int half = 0; half < 2; half++)
      memcpy(w[half], __builtin_assume_aligned(weights + half * 8 * ROW_PITCH + u * 16 * WORDS, WORDS < 4 ? WORDS * 4 : 16), WORDS * 4);
    float part[4] = {};
#pragma unroll
    for (int p = 0; p < PAIRS; p++) {
      const Chunk c = own[(u * 4 + lane % 4) * (PAIRS / 2) + p / 2];
      const int word = p / (PER_WORD / 4), shift = p % (PER_WORD / 4) * 2 * LZ_BITS;
      const u32 upper = w[0][word] >> shift, lower = w[1][word] >> shift;
      const u32 codes[4] = {elements_of(upper), elements_of(lower), elements_of(upper >> LZ_BITS), elements_of(lower >> LZ_BITS)};
      multiply(part, codes, c.word[p % 2 * 2], c.word[p % 2 * 2 + 1]);
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const float by = float_of(scale[half][u]), more = float_of(bias[half][u]) - OFFSET * by;
      sums[half] += by * part[2 * half] + more * totals[u];
    }
  }
}

extern "C" __global__ void __launch_bounds__(256, LZ_BLOCKS) packed_row(const u16* x, LZ_MATRICES, const __grid_constant__ Sizes sizes) {
  extern __shared__ Chunk arena[];
  /* Of two tiles: a warp adds up the sums of one while others are at the next. */
  __shared__ float parts[2][WARPS][ROWS];
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const int k = sizes.k, groups = k / LZ_GROUP, per_tile = (groups + GROUPS - 1) / GROUPS, steps = per_tile * STEPS;
  int tiles = 0;
#pragma unroll
  for (int i = 0; i < LZ_PARTS; i++) tiles += (sizes.rows[i] + ROWS - 1) / ROWS;
  const auto matrix_of = [&](int tile) {
    LZ_FIND_MATRIX(tile)
    return matrix;
  };
  const auto give = [&](int tile, int at) {
    const Matrix m = matrix_of(tile);
    const int row = m.tile * ROWS + lane;
    if (lane >= ROWS || row >= m.rows) return;
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < WARPS; w++) sum += parts[at][w][lane];
    m.y[row] = u16(pack(sum, 0.0f));
  };

  const char* stages = (const char*)arena;
  Chunk* own = (Chunk*)(stages + STAGES * STAGE_BYTES) + warp * steps * X_CHUNKS;
  float* totals = (float*)(stages + STAGES * STAGE_BYTES + WARPS * steps * X_CHUNKS * 16) + warp * steps * TOGETHER;
  int next = int(blockIdx.x), next_stage = 0, next_slot = 0;
  Copying copying;
  const auto bring_next = [&]() {
    if (next < tiles) {
      if (next_stage == 0) copying.begin(matrix_of(next), k);
      copying.bring(shared_address(stages) + next_slot * STAGE_BYTES, next_stage);
      if (++next_stage == per_tile) next_stage = 0, next += int(gridDim.x);
      if (++next_slot == STAGES) next_slot = 0;
    }
    commit_copies();
  };
  const auto bring_first = [&]() {
#pragma unroll
    for (int i = 0; i < STAGES; i++) bring_next();
  };
  if (sizes.early) bring_first();
  await_earlier();
  if (!sizes.early) bring_first();
  take_row(own, totals, x, groups, steps);

  const char* weights = stages + lane / 4 * ROW_PITCH + warp * 128 + lane % 4 * WORDS * 4;
  const char* numbers = stages + ROWS * ROW_PITCH + lane / 4 * NUMBER_PITCH + warp * TOGETHER * 2;
  int slot = 0, at = 0;
  for (int tile = int(blockIdx.x); tile < tiles; tile += int(gridDim.x)) {
    float sums[2] = {};
    for (int stage = 0; stage < per_tile; stage++) {
      wait_for_copies<STAGES - 2>();
      __syncthreads();
      if (stage > 0 || tile != int(blockIdx.x)) bring_next();
      if (stage == 0 && tile != int(blockIdx.x) && warp == 0) give(tile - int(gridDim.x), at ^ 1);
#pragma unroll
      for (int i = 0; i < STEPS; i++) {
        const int step = stage * STEPS + i;
        if ((step * WARPS + warp) * TOGETHER < groups)
          add_step(sums, weights + slot * STAGE_BYTES + i * WARPS * 128, numbers + slot * STAGE_BYTES + i * WARPS * TOGETHER * 2,
                   own + step * X_CHUNKS, totals + step * TOGETHER);
      }
      if (++slot == STAGES) slot = 0;
    }
    if (lane % 4 == 0) parts[at][warp][lane / 4] = sums[0], parts[at][warp][8 + lane / 4] = sums[1];
    at ^= 1;
  }
  __syncthreads();
  if (warp == 0 && int(blockIdx.x) < tiles) {
    const int last = int(blockIdx.x) + (tiles - 1 - int(blockIdx.x)) / int(gridDim.x) * int(gridDim.x);
    give(last, at ^ 1);
  }
}
