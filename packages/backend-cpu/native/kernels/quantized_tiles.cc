// A task owns columns of the result: it unpacks them once for hundreds of rows of x, which were packed for
// all tasks, and finishes its part of the result while that is in its cache.
#include <atomic>

#include "kernels/gemm_tiles.h"
#include "kernels/quantized.h"
#include "kernels/thread_memory.h"
#include "simd/quantized_columns.h"

namespace lazuli {
namespace {

// Rows of x that are packed at a time, and rows and columns of a task's result; columns are whole groups of
// any format.
constexpr int64_t kMostRows = 2304, kTaskRows = 576, kTaskColumns = 128;
// A block of columns begins and ends with a group of any format.
constexpr int64_t kMostGroup = 128, kLeastGroup = 16, kFlat = 64;

int64_t round_up(int64_t n, int64_t unit) { return parts(n, unit) * unit; }

// The operands of a job, cut; depths count codes, and steps are those between packed blocks in floats.
struct Cut {
  GemmKind kind;
  int64_t width, depth, blocks, a_step, b_step;
  int64_t block, height, step;  // rows of a task, of a tile, and of what meets slivers at a time
  int64_t columns;

  Cut(const lz_call& call, const PackedProduct& p, int64_t rows) : kind(p.dtype, p.dtype) {
    const GemmTable& table = gemm_table();
    width = 2 * table.lanes;
    depth = round_up(even_part(p.k, kind.elements(kind.most_depth())), kMostGroup);
    blocks = parts(p.k, depth);
    const int64_t m = std::min(rows, kMostRows), fair = even_part(even_part(m, kTaskRows), kGemmRows);
    height = kind.height(fair);
    step = round_up(fair, height);
    block = round_up(even_part(m, kTaskRows), step);
    a_step = tile_step(height, kind.depth(depth));
    b_step = tile_step(width, kind.depth(depth));
    // Some tasks for every thread.
    columns = kTaskColumns;
    const int64_t least = p.transpose ? width : kMostGroup;
    while (columns > least && parts(p.n, columns) * parts(m, block) < 4 * call.ctx->threads) columns /= 2;
  }
};

// A thread's memory.
struct Workspace {
  float *b, *c, *words, *scales, *biases, *lines, *turned_scales, *turned_biases;
  uint16_t* narrow;

  // Null pointers where there is no memory.
  explicit Workspace(const Cut& cut) {
    const int64_t groups = cut.depth / kLeastGroup, line = groups + kScalePad;
    int64_t sizes[] = {parts(cut.columns, cut.width) * cut.b_step,
                       cut.block * cut.columns,
                       cut.depth / 4 * cut.width,
                       cut.width * line,
                       cut.width * line,
                       kFlat * cut.columns,
                       groups * cut.width,
                       groups * cut.width,
                       kFlat * cut.columns / 2};
    int64_t total = 0;
    for (int64_t& size : sizes) total += size = round_up(size, 16);
    b = thread_memory(total);
    if (b == nullptr) return;
    float** const to[] = {&c, &words, &scales, &biases, &lines, &turned_scales, &turned_biases};
    float* at = b + sizes[0];
    for (int i = 0; i < 7; i++) *to[i] = at, at += sizes[i + 1];
    narrow = reinterpret_cast<uint16_t*>(at);
  }
};

// Columns [column, column + n) of Wᵀ, at most a sliver, and codes [at, at + k) of each.
void pack_columns(const PackedProduct& p, const PackedJob& job, const Cut& cut, Workspace& w, int64_t column,
                  int64_t n, int64_t at, int64_t k, float* to) {
  const GemmTable& table = gemm_table();
  const int64_t groups = k / p.format.group, line = groups + kScalePad;
  const auto turn = [&](const void* from, int64_t ld, int64_t depth, float* turned) {
    table.turn[LZ_FLOAT32]({from, turned, ld, n, depth, cut.width, 0, true});
  };
  for (int64_t r = 0; r < n; r++)
    p.read_scales(job, column + r, at / p.format.group, groups, w.scales + r * line, w.biases + r * line);
  turn(w.scales, line, groups, w.turned_scales);
  if (job.biases) turn(w.biases, line, groups, w.turned_biases);
  turn(job.words + column * p.stride + at * p.format.bits / 32, p.stride, k * p.format.bits / 32, w.words);
  const QuantizedColumnsTable& unpack = quantized_columns_table();
  (cut.kind.pairs ? unpack.unpack_pairs : unpack.unpack)(
      {p.format, reinterpret_cast<const uint32_t*>(w.words), w.turned_scales,
       job.biases ? w.turned_biases : nullptr, k},
      to);
}

// The same of W: rows [at, at + k), of which columns [column, column + n) become slivers.
void pack_rows(const PackedProduct& p, const PackedJob& job, const Cut& cut, Workspace& w, int64_t column,
               int64_t n, int64_t at, int64_t k, float* to) {
  const GemmTable& table = gemm_table();
  const int64_t groups = n / p.format.group;
  for (int64_t from = 0; from < k; from += kFlat) {
    const int64_t rows = std::min(kFlat, k - from);
    for (int64_t r = 0; r < rows; r++) {
      const int64_t row = at + from + r;
      p.read_scales(job, row, column / p.format.group, groups, w.scales, w.biases);
      quantized_table().expand(job.words + row * p.stride + column * p.format.bits / 32, n, p.format,
                               w.scales, job.biases ? w.biases : nullptr, w.lines + r * n);
    }
    const void* lines = w.lines;
    if (cut.kind.pairs) half_table().narrow[LZ_BFLOAT16](w.lines, w.narrow, rows * n), lines = w.narrow;
    (cut.kind.pairs ? table.pair_copy : table.copy[LZ_FLOAT32])(
        {lines, to + cut.kind.depth(from) * cut.width, n, n, rows, cut.width, cut.b_step, true});
  }
}

}  // namespace

void packed_tiles(const lz_call& call, const PackedProduct& p, const PackedJob& job) {
  const Cut cut(call, p, job.rows);
  const int64_t most = std::min(job.rows, kMostRows), tiles = parts(most, cut.height);
  float* packed = scratch<float>(call, tiles * cut.blocks * cut.a_step);
  const auto sliver = cut.kind.sliver();
  const auto narrow = half_table().narrow[p.out_dtype];
  const bool apart = p.out != nullptr && narrow != nullptr;
  std::atomic<bool> exhausted{false};
  for (int64_t first = 0; first < job.rows; first += kMostRows) {
    const int64_t m = std::min(kMostRows, job.rows - first);
    const GemmOperand x = GemmOperand{p.rows, p.dtype, false, p.k}.at(job.first + first, 0);
    parallel(call, parts(m, cut.height), double(cut.height) * double(p.k) * 0.2 + 50,
             [&](int64_t begin, int64_t end) {
               for (int64_t tile = begin; tile < end; tile++) {
                 const int64_t i = tile * cut.height;
                 for (int64_t block = 0; block < cut.blocks; block++) {
                   const int64_t at = block * cut.depth;
                   cut.kind.pack(x.at(i, at), false, std::min(cut.height, m - i),
                                 std::min(cut.depth, p.k - at), cut.height,
                                 packed + (block * tiles + tile) * cut.a_step, false);
                 }
               }
             });
    const int64_t across = parts(p.n, cut.columns), down = parts(m, cut.block);
    const auto compute = [&](int64_t task, Workspace& w) {
      const int64_t top = task / across * cut.block, rows = std::min(cut.block, m - top);
      const int64_t column = task % across * cut.columns, n = std::min(cut.columns, p.n - column);
      const int64_t row = job.first + first + top;
      float* const c = apart ? w.c : p.y + row * p.n + column;
      const int64_t ldc = apart ? cut.columns : p.n;
      for (int64_t block = 0; block < cut.blocks; block++) {
        const int64_t at = block * cut.depth, k = std::min(cut.depth, p.k - at);
        if (p.transpose) {
          for (int64_t j = 0; j < n; j += cut.width)
            pack_columns(p, job, cut, w, column + j, std::min(cut.width, n - j), at, k,
                         w.b + j / cut.width * cut.b_step);
        } else {
          pack_rows(p, job, cut, w, column, n, at, k, w.b);
        }
        for (int64_t j = 0; j < n; j += cut.width)
          cut.kind.end_columns(w.b + j / cut.width * cut.b_step, cut.width, k);
        GemmSliver s{};
        s.depth = cut.kind.depth(k);
        s.alpha = 1;
        s.beta = block > 0 ? 1 : 0;
        s.b_step = cut.width;
        s.c_row = s.addend_row = ldc;
        for (int64_t i = 0; i < rows; i += cut.step) {
          s.rows = std::min(cut.step, rows - i);
          cut.kind.set_packed(s, packed + (block * tiles + (top + i) / cut.height) * cut.a_step, cut.height,
                              cut.a_step);
          for (int64_t j = 0; j < n; j += cut.width) {
            s.columns = int32_t(std::min(cut.width, n - j));
            s.b = w.b + j / cut.width * cut.b_step;
            s.addend = s.c = c + i * ldc + j;
            sliver(s);
          }
        }
      }
      if (p.out == nullptr) return;
      for (int64_t i = 0; apart && i < rows; i++)
        narrow(c + i * ldc, static_cast<char*>(p.out) + 2 * ((row + i) * p.n + column), n);
      p.epilogue(row, rows, column, n);
    };
    const double price = double(cut.block) * double(std::min(cut.columns, p.n)) *
                             (kGemmPrice * double(p.k) + p.epilogue.cost()) +
                         double(cut.columns) * double(p.k) * 0.15;
    parallel(call, across * down, price, [&](int64_t begin, int64_t end) {
      Workspace w(cut);
      if (w.b == nullptr) return void(exhausted = true);
      for (int64_t task = begin; task < end; task++) compute(task, w);
    });
  }
  require(call, !exhausted, "out of memory");
}

}  // namespace lazuli
