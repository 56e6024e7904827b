/* Attention of one more token in one launch: turns its queries and its key by their position, puts the key and the value where they belong
 * in the caches, and attends. A cluster of LZ_SPLITS blocks has the queries of the heads that share keys, at most eight rows; its warps take
 * 16 keys each in turns, the first ones before earlier work has ended, where that does not write them. The new key and value are not read
 * from the caches, to which only the warp that has their place writes. Each block puts together some of the features. Instructions that run
 * once are waited for one after another, so that there are few of them on the way. Before this text stand, besides those of
 * attention-keys.cuh and clusters.cuh, LZ_MASK (1 with one of bool), LZ_TRADITIONAL (pairs are neighbours), LZ_RATES (1 where rates are
 * given, 0 for a base), LZ_OFFSET and LZ_PLACE (types of the position of the rotation, and of that in the caches), and LZ_ONCE (1 where all
 * keys are taken in one turn). */
#define LZ_KERNELS
#include "attention-keys.cuh"
#include "clusters.cuh"

constexpr bool IS_ONCE = LZ_ONCE;
constexpr int THREADS = WARPS * 32, PAIRS = D / 2;
/* Rows that are turned: queries and the key. */
constexpr int TURNED = ROWS + 1, AT_ONCE = THREADS / PAIRS, TURNS = (TURNED + AT_ONCE - 1) / AT_ONCE;
/* Warps of a cluster; features of a block, and what a warp leaves for it, apart by what spares conflicts of banks; lanes of a feature. */
constexpr int PARTS = SPLITS * WARPS, OWN = D / SPLITS, PITCH = ROWS * OWN + 8;
constexpr int LANES = OWN % 16 == 0 && ROWS * OWN * 4 > THREADS ? 2 : 4;
static_assert(THREADS % PAIRS == 0 && PARTS % 32 == 0 && OWN % (32 / LANES) == 0, "threads have pairs, lanes parts, and warps features of a row");

/* In elements: from a batch of the mask to the next, a head, a key. `early` is 1 of caches that may be read before earlier work has ended. */
struct Layout {
  long long mask[3];
  int groups, keys, early;
};
/* Of scores, positions and features; sines are of -1 where it turns back. */
struct Factors {
  float score, position, feature, sine;
};

#if LZ_RATES
typedef float Rate;
#else
typedef unsigned char Rate;
#endif

/* What only large angles need stands apart. */
__noinline__ inline void turn_far(float angle, float& c, float& s) { c = cosf(angle), s = sinf(angle); }

/* Values of a warp, in shared memory; and with them what a lane has of their keys. */
struct alignas(16) Values {
  u16 of[KEYS][D];
};
struct Tile {
  static constexpr int AT_ONCE = 2;
  Chunk keys[2][D / 32];
  const Values* values;
  inline Features value(int i) const { return *(const Features*)(values->of[i] + int(threadIdx.x) % 32 * EACH); }
};

/* Begins to read tile `block` of `count` keys; the last key stands for those behind it, and nothing is copied for their values. */
inline void read_tile(Tile& tile, Values& copies, const u16* keys, const u16* values, int block, int count) {
  constexpr int CHUNKS = D / 8;
  const int lane = int(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < KEYS * CHUNKS / 32; i++) {
    const int at = i * 32 + lane, key = at / CHUNKS, chunk = at % CHUNKS * 8;
    const bool is_there = block * KEYS + key < count;
    copy_ahead(shared_address(copies.of[key] + chunk), values + (is_there ? (long long)(block * KEYS + key) * D : 0) + chunk, is_there);
  }
  commit_copies();
  tile.values = &copies;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const int key = block * KEYS + h * 8 + lane / 4;
    const u16* from = keys + (long long)(key < count ? key : count - 1) * D + lane % 4 * 8;
#pragma unroll
    for (int d = 0; d < D / 32; d++) tile.keys[h][d] = *(const Chunk*)(from + d * 32);
  }
}

/* What all warps have of a block's features, and of each row the largest score and the sum. */
struct alignas(16) Left {
  float features[PARTS][PITCH], sums[ROWS][PARTS][2];
};
struct Memory {
  Values values[WARPS];
  Told told[WARPS];
  alignas(16) u16 turned[TURNED][D];
  Left left;
  u64 all_left;
};

extern "C" __global__ void __cluster_dims__(LZ_SPLITS, 1, 1) __launch_bounds__(512) attend_token(const u16* q, const u16* k, const u16* v, const u16* keys, const u16* values, u16* new_keys, u16* new_values, u16* o, const LZ_OFFSET* offset, const LZ_PLACE* place, const Rate* rates, const unsigned char* mask, const __grid_constant__ Layout at, const __grid_constant__ Factors by) {
  extern __shared__ Chunk arena[];
  Memory& own = *(Memory*)arena;
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32, row = lane / 4, rank = rank_of_block();
  const int S = at.keys, batch = int(blockIdx.y) / at.groups, group = int(blockIdx.y) % at.groups;
  const long long cache = (long long)blockIdx.y * S * D, first_row = (long long)blockIdx.y * ROWS;
  const int first_block = rank + SPLITS * warp;
  Tile tile;
  begin_block(&own.all_left, PARTS * ROWS * (OWN + 2) * 4);
  const int pair = int(threadIdx.x) % PAIRS, first = int(threadIdx.x) / PAIRS;
  const int low = LZ_TRADITIONAL ? 2 * pair : pair, high = LZ_TRADITIONAL ? low + 1 : low + PAIRS;
  /* Addresses are made before the wait: what comes behind it is waited for by the next kernel. */
  const u16* given_at[TURNS];
#pragma unroll
  for (int i = 0; i < TURNS; i++) {
    const int r = first + i * AT_ONCE;
    given_at[i] = held((r < ROWS ? q + (first_row + r) * D : k + (long long)blockIdx.y * D) + low);
  }
  const u16* value_at = held(v + (long long)blockIdx.y * D + lane * EACH);
  const Rate* rate_at = held(rates + (LZ_RATES ? pair : 0));
  const unsigned char* shown = LZ_MASK ? held(mask + batch * at.mask[0] + (group * ROWS + row % ROWS) * at.mask[1]) : mask;
  bool seen[4];
  const auto see = [&](int block) {
    unsigned char some[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int key = block * KEYS + key_of(i);
      some[i] = LZ_MASK ? shown[(key < S ? key : S - 1) * at.mask[2]] : 1;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) seen[i] = row < ROWS && block * KEYS + key_of(i) < S && some[i] != 0;
  };
  if (!at.early) await_earlier();
  read_tile(tile, own.values[warp], keys + cache, values + cache, first_block, S);
  if (at.early) await_earlier();

  u16 given[TURNS][2];
#pragma unroll
  for (int i = 0; i < TURNS; i++) given[i][0] = given_at[i][0], given[i][1] = given_at[i][high - low];
  const float location = float(*offset) * by.position;
  const long long asked = (long long)*place;
#if LZ_RATES
  const float rate = 1.0f / float(*rate_at);
#else
  const float rate = expf(float(pair) * by.feature);
#endif
  const Features value = *(const Features*)value_at;
  see(first_block);
  const float angle = location * rate;
  float c, s;
  if (fabsf(angle) >= 105615.0f) turn_far(angle, c, s);
  else c = cosf(angle), s = sinf(angle);
  s *= by.sine;
#pragma unroll
  for (int i = 0; i < TURNS; i++)
    if (const int r = first + i * AT_ONCE; r < TURNED) {
      const float a = float_of(given[i][0]), b = float_of(given[i][1]);
      own.turned[r][low] = u16(pack(a * c - b * s, 0.0f));
      own.turned[r][high] = u16(pack(a * s + b * c, 0.0f));
    }
  wait_for_copies<0>();
  __syncthreads();

  /* A position out of bounds is nowhere. */
  const long long inside = asked < 0 ? asked + S : asked;
  const int fresh = inside >= 0 && inside < S ? int(inside) : -1;
  Chunk queries[D / 32] = {};
  if (row < ROWS)
#pragma unroll
    for (int d = 0; d < D / 32; d++) queries[d] = *(const Chunk*)(own.turned[row] + lane % 4 * 8 + d * 32);
  Sums sums;
  for (int block = first_block; IS_ONCE || block * KEYS < S; block += SPLITS * WARPS) {
    if (!IS_ONCE && block != first_block) {
      read_tile(tile, own.values[warp], keys + cache, values + cache, block, S);
      see(block);
      wait_for_copies<0>();
      __syncwarp();
    }
    if (fresh >= 0 && fresh / KEYS == block) {
      const long long to = cache + (long long)fresh * D + lane * EACH;
      *(Features*)(new_keys + to) = *(const Features*)(own.turned[ROWS] + lane * EACH);
      *(Features*)(own.values[warp].of[fresh % KEYS] + lane * EACH) = *(Features*)(new_values + to) = value;
#pragma unroll
      for (int h = 0; h < 2; h++)
        if (fresh % KEYS == h * 8 + row)
#pragma unroll
          for (int d = 0; d < D / 32; d++) tile.keys[h][d] = *(const Chunk*)(own.turned[ROWS] + lane % 4 * 8 + d * 32);
      __syncwarp();
    }
    if (__ballot_sync(~0u, seen[0] || seen[1] || seen[2] || seen[3]) != 0)
      add_tile(sums, tile, queries, seen, by.score * LOG2E, own.told[warp], IS_ONCE || block == first_block);
    if (IS_ONCE) break;
  }

  /* A lane's features are one block's, and all lanes of a row have its sums. */
  await_blocks();
  const int part = rank * WARPS + warp, owner = lane * EACH / OWN;
#pragma unroll
  for (int r = 0; r < ROWS; r++) leave_for(owner, &place_of(own.left, owner).features[part][r * OWN + lane * EACH % OWN], sums.out[r], &own.all_left);
  const float both[2] = {sums.top, sums.total};
  if (row < ROWS)
#pragma unroll
    for (int i = 0; i < SPLITS / 4; i++) {
      const int to = lane % 4 + i * 4;
      leave_for(to, place_of(own.left, to).sums[row][part], both, &own.all_left);
    }
  after_all(&own.all_left, [&](int mine) {
    const Left& all = place_of(own.left, mine);
#pragma unroll
    for (int i = int(threadIdx.x) / LANES; i < ROWS * OWN; i += THREADS / LANES) {
      const int r = i / OWN;
      float by_part[PARTS / 32], most = -INFINITY, sum = 0.0f, result = 0.0f;
#pragma unroll
      for (int p = 0; p < PARTS / 32; p++) most = fmaxf(most, by_part[p] = all.sums[r][p * 32 + lane][0]);
#pragma unroll
      for (int distance = 16; distance > 0; distance /= 2) most = fmaxf(most, from_neighbour(most, distance));
      const float zero = most == -INFINITY ? 0.0f : most;
#pragma unroll
      for (int p = 0; p < PARTS / 32; p++) {
        by_part[p] = power_of_two(by_part[p] - zero);
        sum += all.sums[r][p * 32 + lane][1] * by_part[p];
      }
#pragma unroll
      for (int distance = 16; distance > 0; distance /= 2) sum += from_neighbour(sum, distance);
#pragma unroll
      for (int p = 0; p < PARTS / LANES; p++) {
        const int part = p * LANES + lane % LANES;
        result += from_lane(by_part[p / (32 / LANES)], part) * all.features[part][i];
      }
#pragma unroll
      for (int distance = LANES / 2; distance > 0; distance /= 2) result += from_neighbour(result, distance);
      if (lane % LANES == 0) o[(first_row + r) * D + mine * OWN + i % OWN] = u16(pack(sum == 0.0f ? 0.0f : result / sum, 0.0f));
    }
  });
}
