// Rows as integers of bytes times packed weights: rows that were rounded to 8 bits. A task owns columns of
// the result: it turns their words once, so that a lane of a vector is a column, for all rows of x, which
// were packed for all tasks.
#include <atomic>

#include "kernels/gemm_tiles.h"
#include "kernels/quantized.h"
#include "kernels/thread_memory.h"
#include "simd/byte_tiles.h"

namespace lazuli {
namespace {

// Rows of x that are packed at a time, columns of a task at most, and the bytes that their words may have.
constexpr int64_t kMostRows = 2304, kMostColumns = 128, kTaskBytes = 1 << 18;
// Elements of x that are packed at a time.
constexpr int64_t kPacked = 1 << 13;

int64_t in_lines(int64_t bytes) { return parts(bytes, 64) * 64; }

// Asks for `count` elements from `first` on.
void ask_for(const char* data, int64_t first, int64_t count, int32_t dtype) {
  constexpr int64_t kLine = 64;
  const char* const end = data + (first + count) * itemsize(dtype);
  for (const char* at = data + first * itemsize(dtype); at < end; at += kLine) __builtin_prefetch(at, 0, 2);
}

// Rows of a tile as they are packed.
struct PackedTile {
  int8_t* codes;
  float *scales, *sums;
  int32_t* offsets;
};
struct TileLayout {
  int64_t group, height, scales, sums, offsets, bytes;

  TileLayout(const PackedProduct& p, int64_t height_) : group(p.format.group), height(height_) {
    const int64_t blocks = p.k / kRoundedBlock;
    scales = in_lines(height * p.k);
    sums = scales + in_lines(height * blocks * 4);
    offsets = sums + in_lines(height * p.groups * 4);
    bytes = offsets + (p.format.code == Code::integer ? 0 : in_lines(height * blocks * 4));
  }
  PackedTile at(char* tile, int64_t first_group) const {
    const int64_t first = first_group * group, blocks = first / kRoundedBlock;
    return {reinterpret_cast<int8_t*>(tile + height * first),
            reinterpret_cast<float*>(tile + scales) + blocks * height,
            reinterpret_cast<float*>(tile + sums) + first_group * height,
            offsets < bytes ? reinterpret_cast<int32_t*>(tile + offsets) + blocks * height : nullptr};
  }
};

}  // namespace

bool has_byte_tiles(const PackedProduct& p) {
  return p.rounded && p.transpose && byte_tile_table().takes(p.format);
}

void byte_tiles(const lz_call& call, const PackedProduct& p, const PackedJob& job) {
  const ByteTileTable& table = byte_tile_table();
  const auto turn = gemm_table().turn[LZ_FLOAT32];
  const int bits = tile_bits(p.format.bits);
  const int64_t width = table.columns;
  const int64_t most = std::min(job.rows, kMostRows), height = parts(even_part(most, table.rows), 2) * 2;
  const int64_t row_words = p.k * bits / 32;
  const TileLayout layout(p, height);
  char* packed = scratch<char>(call, parts(most, height) * layout.bytes);
  // Few rows wait for memory: what the next task reads is asked for meanwhile.
  const bool few = most <= height;
  int64_t columns = width;
  while (!few && 2 * columns <= kMostColumns && 2 * columns * row_words * 4 <= kTaskBytes &&
         parts(p.n, 2 * columns) >= 4 * call.ctx->threads)
    columns *= 2;
  const auto narrow = half_table().narrow[p.out_dtype];
  const bool apart = p.out != nullptr && narrow != nullptr;
  std::atomic<bool> exhausted{false};
  for (int64_t first = 0; first < job.rows; first += kMostRows) {
    const int64_t m = std::min(kMostRows, job.rows - first), tiles = parts(m, height);
    const int64_t groups = std::max<int64_t>(1, kPacked / (height * p.format.group));
    const int64_t each = parts(p.groups, groups);
    parallel(
        call, tiles * each, double(height * groups * p.format.group) * 0.1 + 50,
        [&](int64_t begin, int64_t end) {
          for (int64_t task = begin; task < end; task++) {
            const int64_t tile = task / each, group = task % each * groups;
            const int64_t rows = std::min(height, m - tile * height);
            const PackedTile to = layout.at(packed + tile * layout.bytes, group);
            const float* x = p.x + (job.first + first + tile * height) * p.k + group * p.format.group;
            table.pack({p.format, x, p.k, rows, height, std::min(groups, p.groups - group) * p.format.group,
                        to.codes, to.scales, to.sums, to.offsets});
          }
        });
    // In floats: a sliver's words and turned factors, rows of factors as they were, a tile of the result, and
    // rows of codes that are spread.
    const bool together = p.scale_stride == p.groups && (!job.biases || p.bias_stride == p.groups);
    const int64_t line = together ? p.groups : p.groups + kScalePad,
                  sliver = (row_words + 2 * p.groups) * width;
    const bool spread = bits != p.format.bits;
    const auto compute = [&](int64_t task, float* memory) {
      const int64_t column = task * columns, n = std::min(columns, p.n - column);
      float *scales = memory + parts(columns, width) * sliver, *biases = scales + width * line + kScalePad,
            *result = biases + width * line + kScalePad;
      auto* codes = reinterpret_cast<uint8_t*>(result + height * columns);
      for (int64_t j = 0; j < n; j += width) {
        float* to = memory + j / width * sliver;
        const int64_t count = std::min(width, n - j);
        const uint32_t* words = job.words + (column + j) * p.stride;
        if (together) p.read_scales(job, column + j, 0, count * line, scales, biases);
        for (int64_t c = 0; c < count; c++) {
          if (!together)
            p.read_scales(job, column + j + c, 0, p.groups, scales + c * line, biases + c * line);
          if (spread) table.spread(words + c * p.stride, p.k, p.format.bits, codes + c * p.k);
        }
        if (spread)
          turn({codes, to, row_words, count, row_words, width, 0, true});
        else
          turn({words, to, p.stride, count, row_words, width, 0, true});
        to += row_words * width;
        turn({scales, to, line, count, p.groups, width, 0, true});
        if (job.biases) turn({biases, to + p.groups * width, line, count, p.groups, width, 0, true});
      }
      const uint32_t* ahead = nullptr;
      if (few && column + 2 * width <= p.n) {
        ahead = job.words + (column + width) * p.stride;
        ask_for(job.scales, (column + width) * p.scale_stride, width * p.groups, p.scale.dtype);
        if (job.biases) ask_for(job.biases, (column + width) * p.bias_stride, width * p.groups, p.bias.dtype);
      }
      for (int64_t tile = 0; tile < tiles; tile++) {
        const PackedTile x = layout.at(packed + tile * layout.bytes, 0);
        for (int64_t j = 0; j < n; j += width) {
          const float* w = memory + j / width * sliver;
          const float* factors = w + row_words * width;
          table.multiply({p.format, height, p.k, x.codes, x.scales, x.sums, x.offsets,
                          reinterpret_cast<const uint32_t*>(w), factors,
                          job.biases ? factors + p.groups * width : nullptr,
                          reinterpret_cast<const char*>(ahead), result + j, columns});
        }
        const int64_t row = job.first + first + tile * height, rows = std::min(height, m - tile * height);
        for (int64_t r = 0; r < rows; r++) {
          const int64_t at = (row + r) * p.n + column;
          if (apart)
            narrow(result + r * columns, static_cast<char*>(p.out) + 2 * at, n);
          else
            std::memcpy(p.y + at, result + r * columns, size_t(n) * sizeof(float));
        }
        if (p.out != nullptr) p.epilogue(row, rows, column, n);
      }
    };
    const double price =
        double(std::min(columns, p.n)) * double(m) * (0.25 * kGemmPrice * double(p.k) + p.epilogue.cost());
    const int64_t memory = parts(columns, width) * sliver + 2 * (width * line + kScalePad) +
                           height * columns + (spread ? width * row_words : 0);
    parallel(call, parts(p.n, columns), price, [&](int64_t begin, int64_t end) {
      float* floats = thread_memory(memory);
      if (floats == nullptr) return void(exhausted = true);
      for (int64_t task = begin; task < end; task++) compute(task, floats);
    });
  }
  require(call, !exhausted, "out of memory");
}

}  // namespace lazuli
