// Rows that were rounded to 8 bits times packed weights. A task owns columns of the result: it turns their
// words once, so that a lane of a vector is a column, for all rows of x, which were packed for all tasks.
#include <atomic>

#include "kernels/gemm_tiles.h"
#include "kernels/quantized.h"
#include "kernels/thread_memory.h"
#include "simd/byte_tiles.h"

namespace lazuli {
namespace {

// Rows of x that are packed at a time, columns of a task at most, and the bytes that their words may have.
constexpr int64_t kMostRows = 2304, kMostColumns = 128, kTaskBytes = 1 << 18;

int64_t in_lines(int64_t bytes) { return parts(bytes, 64) * 64; }

}  // namespace

bool has_byte_tiles(const PackedProduct& p) { return p.rounded && p.transpose && has_byte_tiles(p.format); }

void byte_tiles(const lz_call& call, const PackedProduct& p, const PackedJob& job) {
  const ByteTileTable& table = byte_tile_table();
  const auto turn = gemm_table().turn[LZ_FLOAT32];
  const int64_t width = table.columns;
  const int64_t most = std::min(job.rows, kMostRows), height = parts(even_part(most, table.rows), 2) * 2;
  const int64_t blocks = p.k / kRoundedBlock, row_words = p.k * p.format.bits / 32;
  // A packed tile: codes, scales, sums.
  const int64_t scales_at = in_lines(height * p.k), sums_at = scales_at + in_lines(height * blocks * 4),
                tile_bytes = sums_at + in_lines(height * p.groups * 4);
  char* packed = scratch<char>(call, parts(most, height) * tile_bytes);
  int64_t columns = width;
  while (2 * columns <= kMostColumns && 2 * columns * row_words * 4 <= kTaskBytes &&
         parts(p.n, 2 * columns) >= 4 * call.ctx->threads)
    columns *= 2;
  const auto narrow = half_table().narrow[p.out_dtype];
  const bool apart = p.out != nullptr && narrow != nullptr;
  std::atomic<bool> exhausted{false};
  for (int64_t first = 0; first < job.rows; first += kMostRows) {
    const int64_t m = std::min(kMostRows, job.rows - first), tiles = parts(m, height);
    parallel(call, tiles, double(height) * double(p.k) * 0.1 + 50, [&](int64_t begin, int64_t end) {
      for (int64_t tile = begin; tile < end; tile++) {
        char* to = packed + tile * tile_bytes;
        table.pack({p.format, p.x + (job.first + first + tile * height) * p.k, p.k,
                    std::min(height, m - tile * height), height, p.k, reinterpret_cast<int8_t*>(to),
                    reinterpret_cast<float*>(to + scales_at), reinterpret_cast<float*>(to + sums_at)});
      }
    });
    // In floats: a sliver's words and turned factors, rows of factors as they were, and a tile of the result.
    const int64_t line = p.groups + kScalePad, sliver = (row_words + 2 * p.groups) * width;
    const auto compute = [&](int64_t task, float* memory) {
      const int64_t column = task * columns, n = std::min(columns, p.n - column);
      float *scales = memory + parts(columns, width) * sliver, *biases = scales + width * line,
            *result = biases + width * line;
      for (int64_t j = 0; j < n; j += width) {
        float* to = memory + j / width * sliver;
        const int64_t count = std::min(width, n - j);
        for (int64_t c = 0; c < count; c++)
          p.read_scales(job, column + j + c, 0, p.groups, scales + c * line, biases + c * line);
        turn({job.words + (column + j) * p.stride, to, p.stride, count, row_words, width, 0, true});
        to += row_words * width;
        turn({scales, to, line, count, p.groups, width, 0, true});
        if (job.biases) turn({biases, to + p.groups * width, line, count, p.groups, width, 0, true});
      }
      for (int64_t tile = 0; tile < tiles; tile++) {
        const char* x = packed + tile * tile_bytes;
        for (int64_t j = 0; j < n; j += width) {
          const float* w = memory + j / width * sliver;
          const float* factors = w + row_words * width;
          table.multiply({p.format, height, p.k, reinterpret_cast<const int8_t*>(x),
                          reinterpret_cast<const float*>(x + scales_at),
                          reinterpret_cast<const float*>(x + sums_at), reinterpret_cast<const uint32_t*>(w),
                          factors, job.biases ? factors + p.groups * width : nullptr, result + j, columns});
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
    parallel(call, parts(p.n, columns), price, [&](int64_t begin, int64_t end) {
      float* memory = thread_memory(parts(columns, width) * sliver + 2 * width * line + height * columns);
      if (memory == nullptr) return void(exhausted = true);
      for (int64_t task = begin; task < end; task++) compute(task, memory);
    });
  }
  require(call, !exhausted, "out of memory");
}

}  // namespace lazuli
