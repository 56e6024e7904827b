// Blocks of rows of a meet slivers of b, two vectors wide. Both are packed in the order in which tiles read
// them, where they are read often enough to pay for that.
#include "kernels/gemm.h"

#include "kernels/blas.h"
#include "kernels/gemm_tiles.h"
#include "kernels/thread_memory.h"
#include "simd/half_products.h"
#include "simd/halves.h"

namespace lazuli {
namespace {

// Shared by all threads at a time: so many rows or columns, and so many floats of packed operands or one
// block of the depth.
constexpr int64_t kMostShared = 4096, kMostPacked = 1 << 24;
// Their tasks: kTasks for each thread, so that others take over from one that is late, of kMostSlivers
// slivers at most, and of kLeastRows rows at least where there would be fewer tasks. With fewer columns than
// kColumnsOfA a is not packed.
constexpr int64_t kLeastRows = 64, kMostSlivers = 8, kTasks = 8, kColumnsOfA = 2048;
// Packing b for all is a large share of products with at most kRowsOfOwn rows: tasks of kOwnRows pack it for
// themselves while their first tiles read it, unless its rows are a multiple of kAlias elements apart, which
// then share a few lines of the first cache. (512³ on two cores of a Xeon with AVX-512: 1.17 ms shared, 1.10
// so; 1024³ 9.1 and 9.6.)
constexpr int64_t kRowsOfOwn = 512, kOwnRows = 256, kAlias = 1024;
// a is packed for so many slivers of b, and else read in blocks of so many elements; b is packed for more
// than so many tiles, unless it is small, or no larger than kNarrowB in whole slivers that many rows meet.
// (64 products of 128² on two cores of a Zen 5 by 7 % faster than packed.)
constexpr int64_t kSliversOfA = 6, kUnpackedA = 1 << 16, kTilesOfB = 2, kNarrowB = 1 << 14;
int64_t small_b() { return gemm_table().lanes > 8 ? 8192 : 16384; }
// Few rows of a meet b as memory gives it: its rows, those of its transpose, or lines of kLongSlivers
// slivers. `kLargeB` elements are more than the caches hold.
constexpr int64_t kFewRows = 48, kFewDots = 24, kShort = 64, kLongSlivers = 16, kLargeB = 1 << 16,
                  kLongDot = 256;
// Elements that are finished together, while they are in the caches.
constexpr int64_t kFinished = 1 << 14;
// Of a thread's own packed blocks: a block's rows are rounded up to whole tiles.
constexpr int64_t kBlockA = (kGemmDepth + 4) * (kGemmRows + 16), kSliverB = (kShort + 1) * kLongSlivers * 32;
static_assert(kSliverB >= (kGemmDepth + 1) * 32 && kSliverB >= kFewSums * (2 * (512 + 16) + kGemmDepth + 16));

// A sliver of b and a block of a. Null when there is no memory.
float* packing_memory() { return thread_memory(kBlockA + kSliverB); }

void by_library(const GemmProblem& p) {
  blas::gemm(p.a.transposed, p.b.transposed, p.m, p.n, p.k, p.alpha, static_cast<const float*>(p.a.data),
             p.a.ld, static_cast<const float*>(p.b.data), p.b.ld, p.beta, p.c, p.ldc);
  p.done(0, p.m, 0, p.n);
}

}  // namespace

void GemmProblem::done(int64_t i, int64_t rows, int64_t j, int64_t columns, const float* from,
                       int64_t ld) const {
  if (narrow) {
    const auto to_half = half_table().narrow[narrow_dtype];
    for (int64_t r = 0; r < rows; r++, from += ld)
      to_half(from, narrow + 2 * ((i + r) * narrow_ld + j), columns);
  }
  epilogue(i, rows, j, columns);
}

bool gemm_is_own() {
#if defined(__x86_64__) || defined(_M_X64)
  return simd_target() != SimdTarget::sse4;
#else
  return false;  // Accelerate has units of its own
#endif
}

bool gemm_is_large(int64_t m, int64_t n, int64_t k) {
  return m > 128 && n > 128 && k >= 64 && double(m) * double(n) * double(k) * kGemmPrice > 5e5;
}

bool gemm_takes_strips(int64_t m, int64_t n, int64_t k) {
  return gemm_is_own() && gemm_table().matrix && m <= kFewSums && k * n > kLargeB;
}

int64_t gemm_height() { return gemm_table().height; }
int64_t gemm_width() { return 2 * gemm_table().lanes; }

// Without memory for packing.
void by_elements(const GemmProblem& p) {
  const auto element = [](const GemmOperand& x) {
    float value;
    if (x.dtype == LZ_FLOAT32)
      value = *static_cast<const float*>(x.data);
    else
      half_table().widen[x.dtype](x.data, &value, 1);
    return value;
  };
  for (int64_t i = 0; i < p.m; i++) {
    for (int64_t j = 0; j < p.n; j++) {
      float sum = 0;
      for (int64_t k = 0; k < p.k; k++) sum += element(p.a.at(i, k)) * element(p.b.at(k, j));
      p.c[i * p.ldc + j] = p.alpha * sum + (p.beta == 0 ? 0 : p.beta * *p.added().at(i, j).data);
    }
  }
  p.done(0, p.m, 0, p.n);
}

// c from the sums of columns [j, j + n), in rows that are ld apart.
void give(const GemmProblem& p, int64_t j, int64_t n, const float* sums, int64_t ld) {
  for (int64_t i = 0; i < p.m; i++) {
    float* c = p.c + i * p.ldc + j;
    const float *sum = sums + i * ld, *addend = p.added().at(i, j).data;
    for (int64_t r = 0; r < n; r++) c[r] = p.alpha * sum[r] + (p.beta == 0 ? 0 : p.beta * addend[r]);
  }
}

// For few rows of a: inner products where b is stored by columns, else sums of its rows, so that it is read
// once and as it lies.
void by_rows(const GemmProblem& p, float* total) {
  const HalfProductTable& table = half_product_table();
  const auto* x = static_cast<const float*>(p.a.data);
  const int64_t columns = p.b.transposed ? 64 : p.m > 8 ? 256 : 512;
  // Steps of a power of two would share a few lines of the first cache.
  constexpr int64_t kApart = 16;
  const int64_t ld = columns + kApart, x_ld = kGemmDepth + kApart;
  float *part = total + p.m * ld, *factors = part + p.m * ld;
  for (int64_t j = 0; j < p.n; j += columns) {
    const int64_t n = std::min(columns, p.n - j);
    if (p.b.transposed) table.dots[p.b.dtype](p.b.at(0, j).data, p.b.ld, n, p.k, x, p.a.ld, p.m, total, ld);
    // Sums of sums, as those of tiles are.
    for (int64_t k = 0; k < p.k && !p.b.transposed; k += kGemmDepth) {
      const int64_t depth = std::min(kGemmDepth, p.k - k);
      for (int64_t i = 0; i < p.m; i++) std::copy_n(x + i * p.a.ld + k, depth, factors + i * x_ld);
      float* sums = k == 0 ? total : part;
      std::fill_n(sums, p.m * ld, 0.0f);
      table.add_rows[p.b.dtype](p.b.at(k, j).data, p.b.ld, depth, n, factors, x_ld, p.m, sums, ld);
      for (int64_t i = 0; k > 0 && i < p.m * ld; i++) total[i] += part[i];
    }
    give(p, j, n, total, ld);
  }
  p.done(0, p.m, 0, p.n);
}

// For few rows of bfloat16 where there is a matrix unit, with b as it lies.
void by_strips(const GemmProblem& p, const GemmKind& kind) {
  // Steps of a power of two would share a few lines of the first cache.
  constexpr int64_t kApart = 16;
  const int64_t ld = kGemmStrip + kApart, depth = kind.depth(p.k);
  const bool lies = p.k % (2 * kMatrixTile) == 0 && p.a.ld % 2 == 0;
  float* sums = thread_memory(p.m * ld + (lies ? 0 : tile_step(kMatrixTile, depth)));
  if (sums == nullptr) return by_elements(p);
  float* packed_a = sums + p.m * ld;
  if (!lies) kind.pack(p.a, false, p.m, p.k, kMatrixTile, packed_a, false);
  for (int64_t j = 0; j < p.n; j += kGemmStrip) {
    const int64_t n = std::min(kGemmStrip, p.n - j);
    const void* next = j + n < p.n ? p.b.at(0, j + n).data : p.next_b;
    gemm_table().matrix_strip({lies ? static_cast<const float*>(p.a.data) : packed_a,
                               static_cast<const uint16_t*>(p.b.at(0, j).data),
                               static_cast<const uint16_t*>(next), sums, lies ? p.a.ld / 2 : depth, p.b.ld,
                               ld, p.m, n, p.k});
    give(p, j, n, sums, ld);
  }
  p.done(0, p.m, 0, p.n);
}

// For many rows of a and few columns: each tile of a's rows meets all slivers of b, while the next one comes
// into the caches, and what the next product will meet. The processor does not see so many short rows coming.
void by_tiles(const GemmProblem& p, const GemmKind& kind, float* packed_b) {
  const int64_t width = gemm_width(), height = even_part(p.m, gemm_height());
  const int64_t step = tile_step(width, p.k), fetched = p.k / 4 * 16 * kGemmAhead;
  const bool lies = !p.b.transposed && p.n % width == 0 && p.k * p.b.ld <= kNarrowB;
  if (!lies) kind.pack(p.b, true, p.n, p.k, width, packed_b, true);
  GemmSliver s{};
  s.c_row = p.ldc, s.addend_row = p.added().ld, s.b_step = lies ? p.b.ld : width;
  s.depth = p.k, s.a_row = p.a.ld, s.a_step = 1;
  s.height = int32_t(height);
  s.alpha = p.alpha, s.beta = p.beta;
  const bool dense = p.b.ld == (p.b.transposed ? p.k : p.n);
  const auto* next_b = static_cast<const float*>(p.next_b);
  const float* const end_b = next_b && dense ? next_b + p.n * p.k : next_b;
  for (int64_t i = 0, done = 0; i < p.m; i += height) {
    s.rows = std::min(height, p.m - i);
    s.a = static_cast<const float*>(p.a.at(i, 0).data);
    // Slivers share the lines of the next rows, which follow each other, and then those of b.
    const float* next_a = i + height < p.m ? s.a + height * p.k : static_cast<const float*>(p.next_a);
    if (p.a.ld != p.k) next_a = nullptr;
    const float* const end_a = next_a ? next_a + height * p.k : nullptr;
    for (int64_t j = 0; j < p.n; j += width) {
      s.columns = int32_t(std::min(width, p.n - j));
      s.b = lies ? static_cast<const float*>(p.b.at(0, j).data) : packed_b + j / width * step;
      const float*& next = next_a < end_a ? next_a : next_b;
      s.next = next < (next_a < end_a ? end_a : end_b) ? next : nullptr;
      if (s.next) next += fetched;
      s.c = p.c + i * p.ldc + j;
      s.addend = p.added().at(i, j).data;
      kind.sliver()(s);
    }
    const int64_t end = i + s.rows;
    if (end < p.m && (end - done) * p.n < kFinished) continue;
    p.done(done, end - done, 0, p.n);
    done = end;
  }
}

void gemm(const GemmProblem& p) {
  if (p.m == 0 || p.n == 0) return;
  // Nothing to cut into blocks: an element is an empty sum.
  if (p.k == 0) return by_elements(p);
  if (!gemm_is_own()) return by_library(p);
  float* packed_b = packing_memory();
  if (packed_b == nullptr) return by_elements(p);
  const bool large = p.k * p.b.ld > kLargeB, rows = !p.a.transposed && p.a.dtype == LZ_FLOAT32;
  const int64_t product_rows = std::max(p.m, p.all_rows);
  if (rows &&
      (p.b.transposed ? product_rows <= kFewDots && p.k >= kLongDot : product_rows <= kFewSums && large))
    return by_rows(p, packed_b);
  const GemmTable& table = gemm_table();
  const GemmKind kind(p.a.dtype, p.b.dtype);
  if (kind.matrix && !p.a.transposed && !p.b.transposed && product_rows <= kFewSums)
    return by_strips(p, kind);
  const auto sliver = kind.sliver();
  const int64_t all = kind.depth(p.k);
  const bool lines = product_rows <= kFewRows && !p.b.transposed && large;
  const int64_t width = 2 * table.lanes, group = lines ? kLongSlivers * width : width;
  const int64_t depth = lines ? kShort : kind.block_depth(all);
  const bool many = parts(p.m, table.height) > kTilesOfB, small = p.k * p.b.ld <= small_b();
  if (rows && !lines && p.b.dtype == LZ_FLOAT32 && many && (p.b.transposed || !small) && p.n > table.lanes &&
      parts(p.n, width) < kSliversOfA && all <= kGemmDepth &&
      parts(p.n, width) * tile_step(width, all) <= kSliverB)
    return by_tiles(p, kind, packed_b);
  const bool pack_a = p.a.dtype != LZ_FLOAT32 || lines || parts(p.n, width) >= kSliversOfA;
  // Rows of a block and of its tiles are nearly equal. Those that are not packed stay in the second cache for
  // further slivers.
  const int64_t most = pack_a ? kGemmRows : p.n > width ? std::max(kGemmRows, kUnpackedA / depth) : p.m;
  const int64_t block = even_part(p.m, most);
  const int64_t height = kind.height(block);
  const int64_t tall = parts(block, height) * height;
  const bool pack_b = p.b.dtype != LZ_FLOAT32 || p.b.transposed || lines ||
                      (parts(p.m, height) > kTilesOfB && p.k * p.b.ld > small_b());
  // All of b, once for all rows.
  const bool once =
      pack_b && !lines && tall < p.m && all <= depth && parts(p.n, width) * tile_step(width, all) <= kSliverB;
  if (once) kind.pack(p.b, true, p.n, p.k, width, packed_b, true);
  float* packed_a = packed_b + kSliverB;
  GemmSliver s{};
  s.c_row = p.ldc;
  s.alpha = p.alpha;
  for (int64_t i = 0; i < p.m; i += tall) {
    s.rows = std::min(tall, p.m - i);
    for (int64_t at = 0; at < all; at += depth) {
      s.depth = std::min(depth, all - at);
      s.beta = at > 0 ? 1 : p.beta;
      const GemmAddend addend = at > 0 ? GemmAddend{p.c, p.ldc} : p.added();
      s.addend_row = addend.ld;
      const int64_t k = kind.elements(at), deep = std::min(kind.elements(s.depth), p.k - k);
      const GemmOperand a = p.a.at(i, k);
      if (pack_a) {
        kind.pack(a, false, s.rows, deep, height, packed_a, false);
        kind.set_packed(s, packed_a, height, tile_step(height, s.depth));
      } else {
        s.a = static_cast<const float*>(a.data);
        s.a_row = a.transposed ? 1 : a.ld, s.a_step = a.transposed ? a.ld : 1;
        s.a_tile = height * s.a_row;
        s.height = int32_t(height);
      }
      for (int64_t j0 = 0; j0 < p.n; j0 += group) {
        const int64_t n = std::min(group, p.n - j0);
        const GemmOperand b = p.b.at(k, j0);
        // A vector alone is packed as such.
        const int64_t full = n > table.lanes ? width : table.lanes;
        const bool packed = pack_b || n % full != 0;
        if (packed && !once) kind.pack(b, true, n, deep, full, packed_b, true);
        s.b_step = once ? width : packed ? full : b.ld;
        for (int64_t j = 0; j < n; j += width) {
          s.columns = int32_t(std::min(width, n - j));
          s.b = packed ? packed_b + (once ? j0 + j : j) / width * tile_step(once ? width : full, s.depth)
                       : static_cast<const float*>(b.at(0, j).data);
          s.c = p.c + i * p.ldc + j0 + j;
          s.addend = addend.at(i, j0 + j).data;
          sliver(s);
        }
      }
    }
    p.done(i, s.rows, 0, p.n);
  }
}

GemmTiling choose_tiling(const GemmProblem& p, int threads) {
  const GemmKind kind(p.a.dtype, p.b.dtype);
  const int64_t height = kind.wide_height(), width = kind.wide_width();
  const int64_t down = parts(std::min(p.m, kMostShared), height), wanted = kTasks * threads;
  const int64_t across = parts(std::min(p.n, kMostShared), width);
  GemmTiling t{even_part(down, kGemmRows / height), 1, true};
  const auto tasks = [&] { return across * parts(down, t.tiles); };
  t.slivers = std::clamp<int64_t>(tasks() / wanted, 1, even_part(across, kMostSlivers));
  while (t.slivers == 1 && t.tiles * height >= 2 * kLeastRows && tasks() < wanted)
    t.tiles = parts(t.tiles, 2);
  t.pack_a = p.a.dtype != LZ_FLOAT32 || p.a.transposed || p.n >= kColumnsOfA || gemm_table().wide_vectors < 3;
  if (t.pack_a || p.b.dtype != LZ_FLOAT32 || p.b.transposed || p.m > kRowsOfOwn || p.k > kGemmDepth ||
      p.b.ld % kAlias == 0)
    return t;
  GemmTiling own{even_part(down, kOwnRows / height), 1, false, false};
  const int64_t own_tasks = parts(down, own.tiles) * across;
  own.slivers = std::clamp<int64_t>(own_tasks / wanted, 1, even_part(across, kMostSlivers));
  return own_tasks >= wanted ? own : t;
}

void gemm(const lz_call& call, const GemmProblem& p) { gemm(call, p, choose_tiling(p, call.ctx->threads)); }

// Depth by depth in blocks, all of which a task meets for its part of c, so that this stays in its cache.
// Only of a depth too large to be packed at once, one part after another is packed and multiplied.
void gemm(const lz_call& call, const GemmProblem& p, const GemmTiling& tiling) {
  if (p.m == 0 || p.n == 0 || p.k == 0) return gemm(p);
  const GemmKind kind(p.a.dtype, p.b.dtype);
  const int64_t height = kind.wide_height(), width = kind.wide_width();
  const int64_t all = kind.depth(p.k), depth = kind.block_depth(all);
  const int64_t mb = std::min(p.m, kMostShared), nb = std::min(p.n, kMostShared);
  const int64_t a_block = parts(mb, height) * tile_step(height, depth);
  const int64_t b_block = parts(nb, width) * tile_step(width, depth);
  const int64_t together = std::clamp<int64_t>(kMostPacked / (a_block + b_block), 1, parts(all, depth));
  const bool pack_a = tiling.pack_a, share_b = tiling.share_b;
  const int64_t rows = tiling.tiles * height, columns = tiling.slivers * width;
  float* packed_a = pack_a ? scratch<float>(call, together * a_block) : nullptr;
  float* packed_b = share_b ? scratch<float>(call, together * b_block) : nullptr;
  for (int64_t j0 = 0; j0 < p.n; j0 += nb) {
    const int64_t n = std::min(nb, p.n - j0), across = parts(n, columns);
    for (int64_t begin = 0; begin < all; begin += together * depth) {
      const int64_t end = std::min(all, begin + together * depth), blocks = parts(end - begin, depth);
      const auto depth_at = [&](int64_t at) { return std::min(depth, end - at); };
      const bool local = p.narrow && begin == 0 && end == all;
      for (int64_t i0 = 0; i0 < p.m; i0 += mb) {
        const int64_t m = std::min(mb, p.m - i0), down_here = parts(m, rows);
        const int64_t packs = i0 == 0 && share_b ? across * blocks : 0;
        const auto prepare = [&](int64_t task) {
          const bool of_b = task < packs;
          if (!of_b) task -= packs;
          const int64_t block = task % blocks, at = begin + block * depth, k = kind.elements(at);
          const int64_t deep = std::min(kind.elements(depth_at(at)), p.k - k);
          if (of_b) {
            const int64_t j = task / blocks * columns;
            kind.pack(p.b.at(k, j0 + j), true, std::min(columns, n - j), deep, width,
                      packed_b + block * b_block + j / width * tile_step(width, depth_at(at)), true);
          } else {
            const int64_t i = task / blocks * rows;
            kind.pack(p.a.at(i0 + i, k), false, std::min(rows, m - i), deep, height,
                      packed_a + block * a_block + i / height * tile_step(height, depth_at(at)), false);
          }
        };
        const auto compute = [&](int64_t task) {
          const int64_t i = task / across * rows, first = task % across * columns;
          const int64_t last = std::min(n, first + columns);
          GemmSliver s{};
          s.rows = std::min(rows, m - i);
          s.alpha = p.alpha;
          s.b_step = width;
          const auto following = [&](int64_t block, int64_t j) {
            block = (block + 1) % blocks;
            return packed_b + block * b_block + j / width * tile_step(width, depth_at(begin + block * depth));
          };
          // A result that is narrowed in the end need not be in memory before.
          float* own = local ? thread_memory(rows * columns) : nullptr;
          float* packed = share_b ? nullptr : thread_memory(tile_step(width, depth));
          if (!share_b && !packed) return by_elements(p.part(i0 + i, s.rows, j0 + first, last - first));
          float* c = own ? own : p.c + (i0 + i) * p.ldc + j0 + first;
          s.c_row = own ? columns : p.ldc;
          for (int64_t at = begin, block = 0; at < end; at += depth, block++) {
            s.depth = depth_at(at);
            s.beta = at > 0 ? 1 : p.beta;
            const GemmAddend addend = at > 0 ? GemmAddend{c, s.c_row} : p.added().at(i0 + i, j0 + first);
            s.addend_row = addend.ld;
            if (pack_a) {
              const int64_t step = tile_step(height, s.depth);
              kind.set_packed(s, packed_a + block * a_block + i / height * step, height, step);
            } else {
              const GemmOperand a = p.a.at(i0 + i, at);
              s.a = static_cast<const float*>(a.data);
              s.a_row = a.ld, s.a_step = 1, s.a_tile = height * a.ld;
              s.height = int32_t(height);
            }
            for (int64_t j = first; j < last; j += width) {
              const int64_t step = tile_step(width, s.depth);
              s.columns = int32_t(std::min(width, last - j));
              s.b = share_b ? packed_b + block * b_block + j / width * step : packed;
              if (share_b) {
                s.next = j + width < last ? s.b + step : following(block, first);
                s.next_tile = s.depth / 4 * 16;
              } else {
                const GemmOperand b = p.b.at(at, j0 + j);
                // Whole vectors of whole tiles are packed on the way.
                const bool whole = s.columns % gemm_table().lanes == 0 && s.rows >= height;
                if (whole)
                  s.b = static_cast<const float*>(b.data);
                else
                  kind.pack(b, true, s.columns, s.depth, width, packed, true);
                s.packed = whole ? packed : nullptr, s.b_step = whole ? b.ld : width;
                s.next = s.a + s.a_tile, s.next_tile = s.a_tile;
              }
              s.c = c + j - first;
              s.addend = addend.at(0, j - first).data;
              kind.wide_sliver()(s);
            }
          }
          if (end == all) p.done(i0 + i, s.rows, j0 + first, last - first, c, s.c_row);
        };
        const auto each = [](auto& f) {
          return [&f](int64_t from, int64_t to) {
            for (int64_t task = from; task < to; task++) f(task);
          };
        };
        parallel(call, packs + (pack_a ? down_here * blocks : 0),
                 0.2 * double(depth) * double(std::max(rows, columns)), each(prepare));
        parallel(call, down_here * across,
                 double(rows) * double(columns) * (kGemmPrice * double(end - begin) + p.epilogue.cost()),
                 each(compute));
      }
    }
  }
}

}  // namespace lazuli
