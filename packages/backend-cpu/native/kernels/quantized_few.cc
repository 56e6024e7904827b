// Few rows of x times packed weights, where these lie.
#include <atomic>

#include "kernels/epilogue.h"
#include "kernels/gemm_tiles.h"
#include "kernels/quantized.h"
#include "kernels/thread_memory.h"
#include "simd/byte_tiles.h"
#include "simd/halves.h"

namespace lazuli {
namespace {

// Rows of x in the order in which dot() meets codes, made a part at a time, of which all forms stay in the
// first cache, on all threads where there are many.
class ArrangedRows {
 public:
  ArrangedRows(const lz_call& call, const PackedProduct& p, const PackedJob& job)
      : p_(p),
        job_(job),
        size_((table_.arranged_size(p.k, p.format) + 15) / 16 * 16),
        width_(p.groups + kScalePad),
        arranged_(scratch<float>(call, job.rows * size_)),
        sums_(scratch<float>(call, job.rows * width_)) {
    const bool halves = p.out_dtype == LZ_BFLOAT16 && !p.rounded;
    const int digits = halves && table_.takes_bfloat16(p.format) ? kAsBfloat16
                       : table_.takes_bytes(p.format)            ? p.digits()
                                                                 : 0;
    const int64_t each = parts(p.k, kArrangedPart);
    constexpr double kPrice = 0.3 * double(kArrangedPart);
    // Of rows that must be floats.
    std::atomic<bool> failed[kFewRows]{};
    parallel(call, job.rows * each, kPrice, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; task++) {
        if (!arrange(task / each, digits, task % each * kArrangedPart)) failed[task / each] = true;
      }
    });
    for (int64_t r = 0; r < job.rows; r++) {
      for (int64_t first = 0; failed[r] && first < p.k; first += kArrangedPart) arrange(r, 0, first);
    }
  }

  // The rows from `first` on that are arranged alike.
  Arranged vectors(int64_t first) const {
    int64_t count = 1;
    while (first + count < job_.rows && digits(first + count) == digits(first)) count++;
    return {arranged_ + first * size_, size_, sums_ + first * width_, width_, count};
  }
  // Of a row, as arrange() takes them.
  int digits(int64_t r) const { return int(arranged_[r * size_]); }
  // Of a row of sums or scales.
  int64_t width() const { return width_; }

 private:
  // A part of a row, from element `first` on; false if the row must be floats.
  bool arrange(int64_t r, int digits, int64_t first) const {
    alignas(64) float memory[kArrangedPart];
    const int64_t length = std::min(kArrangedPart, p_.k - first);
    const float* x = read(r, first, length, memory);
    float* sums = sums_ + r * width_;
    table_.sum_groups(x, length, p_.format.group, sums + first / p_.format.group);
    if (first + length == p_.k) std::fill_n(sums + p_.groups, kScalePad, 0.0f);
    return table_.arrange(x, p_.k, p_.format, digits, first, length, arranged_ + r * size_);
  }

  // Elements from `first` on in float32, rounded if the product asks for that.
  const float* read(int64_t r, int64_t first, int64_t length, float* memory) const {
    const int64_t at = (job_.first + r) * p_.k + first;
    if (p_.x) return p_.x + at;
    const float* x = static_cast<const float*>(p_.rows) + at;
    if (const auto widen = half_table().widen[p_.out_dtype]) {
      widen(static_cast<const char*>(p_.rows) + 2 * at, memory, length);
      x = memory;
    }
    if (!p_.rounded) return x;
    byte_tile_table().round(x, length, memory);
    return memory;
  }

  const QuantizedTable& table_ = quantized_table();
  const PackedProduct& p_;
  const PackedJob& job_;
  const int64_t size_, width_;
  float *const arranged_, *const sums_;
};

// Columns of which so many vectors of bfloat16 numbers stay in the first cache beside packed rows.
int64_t most_columns(int64_t vectors) {
  constexpr int64_t kElements = 1 << 13, kLeast = 1 << 11;
  return std::max(kElements / vectors / kLeast * kLeast, kLeast);
}

}  // namespace

// y = x Wᵀ for few rows of x and one or more W: rows of these are read once. They are alike but for their
// weights, columns and results.
void few_rows(const lz_call& call, std::span<FewRows> products) {
  const QuantizedTable& table = quantized_table();
  const PackedProduct& x = *products[0].p;
  const int64_t x_rows = products[0].job->rows;
  const ArrangedRows arranged(call, x, *products[0].job);
  const int64_t width = arranged.width();
  constexpr int64_t kRows = kCarriedRows;
  std::atomic<bool> exhausted{false};
  // Tasks of one product and rows of x from `first` on that are alike.
  const auto sum_alike = [&](const PackedProduct& p, const PackedJob& job, int64_t begin, int64_t end,
                             const Arranged& vectors, int64_t first) {
    // Bytes and bfloat16 meet scales where they lie. For floats these are widened for many rows at once, or
    // read where they lie too, if rows of them follow each other and no group needs padding.
    const bool unpadded = p.scale_stride == p.groups && (!job.biases || p.bias_stride == p.groups) &&
                          table.reads_no_padding(p.k, p.format);
    const bool in_place = unpadded && p.scale.dtype == LZ_FLOAT32;
    const int64_t step = unpadded ? p.groups : width;
    const auto scales_at = [](const char* scales, int32_t dtype, int64_t at) {
      return scales == nullptr ? nullptr : scales + at * itemsize(dtype);
    };
    const auto dot_part = [&](const PackedRows& rows, int64_t row, const Arranged& part) {
      table.dot(rows, part, p.y + (job.first + first) * p.n + row, p.n);
    };
    const auto dot = [&](const PackedRows& rows, int64_t row) { dot_part(rows, row, vectors); };
    const int64_t last = std::min(p.n, end * kRows);
    PackedRows rows{p.format, nullptr, p.stride, 0, p.k, ScaleKind::float32, nullptr, nullptr, step, step};
    if (const int digits = arranged.digits(first); digits != 0) {
      rows.kind = p.scale.kind();
      rows.scale_stride = p.scale_stride;
      rows.bias_stride = p.bias_stride;
      const auto read = [&](int64_t row, int64_t count, int64_t column) {
        rows.words = job.words + row * p.stride + column * p.format.bits / 32;
        rows.rows = count;
        const int64_t group = column / p.format.group;
        rows.scales = scales_at(job.scales, p.scale.dtype, row * p.scale_stride + group);
        rows.biases = scales_at(job.biases, p.bias.dtype, row * p.bias_stride + group);
      };
      if (const int64_t depth = most_columns(vectors.count); digits == kAsBfloat16 && p.k >= 2 * depth) {
        Arranged part = vectors;
        part.carried = thread_memory(vectors.count * kCarried);
        if (part.carried == nullptr) return void(exhausted = true);
        for (int64_t row = begin * kRows; row < last; row += kRows) {
          for (part.first = 0; part.first < p.k; part.first += depth) {
            rows.columns = std::min(depth, p.k - part.first);
            part.last = part.first + rows.columns == p.k;
            read(row, std::min(kRows, last - row), part.first);
            dot_part(rows, row, part);
          }
        }
        return;
      }
      // Several passes over rows find them in the first cache.
      const int64_t most = vectors.count <= table.most_vectors(digits) ? last : kRows;
      for (int64_t row = begin * kRows; row < last; row += most) {
        read(row, std::min(most, last - row), 0);
        dot(rows, row);
      }
      return;
    }
    float* const buffer = thread_memory(2 * (kRows * step + kScalePad));
    if (buffer == nullptr) return void(exhausted = true);
    float* const biases = buffer + kRows * step + kScalePad;
    for (int64_t row = begin * kRows; row < last; row += kRows) {
      rows.words = job.words + row * p.stride;
      rows.rows = std::min(kRows, last - row);
      rows.scales = buffer;
      rows.biases = job.biases ? biases : nullptr;
      if (in_place && row + rows.rows < p.n) {
        rows.scales = scales_at(job.scales, LZ_FLOAT32, row * step);
        rows.biases = scales_at(job.biases, LZ_FLOAT32, row * step);
      } else if (unpadded) {
        p.read_scales(job, row, 0, rows.rows * step, buffer, biases);
      } else {
        for (int64_t r = 0; r < rows.rows; r++)
          p.read_scales(job, row + r, 0, p.groups, buffer + r * width, biases + r * width);
      }
      dot(rows, row);
    }
  };
  // Tasks of one product: sums, then the result itself, while they are in a cache.
  const auto sum = [&](const PackedProduct& p, const PackedJob& job, int64_t begin, int64_t end) {
    for (int64_t first = 0; first < job.rows;) {
      const Arranged vectors = arranged.vectors(first);
      sum_alike(p, job, begin, end, vectors, first);
      first += vectors.count;
    }
  };
  const auto work = [&](const PackedProduct& p, const PackedJob& job, int64_t begin, int64_t end) {
    sum(p, job, begin, end);
    const int64_t column = begin * kRows, n = std::min(p.n, end * kRows) - column;
    const auto narrow = p.out ? half_table().narrow[p.out_dtype] : nullptr;
    for (int64_t r = job.first; narrow && r < job.first + job.rows; r++) {
      const int64_t at = r * p.n + column;
      narrow(p.y + at, static_cast<char*>(p.out) + 2 * at, n);
    }
    p.epilogue(job.first, job.rows, column, n);
  };
  int64_t tasks = 0, columns = 0;
  double finish = 0;
  for (FewRows& each : products) {
    finish = std::max(finish, each.p->epilogue.cost() * double(x_rows));
    each.begin = tasks;
    each.end = tasks += (each.p->n + kRows - 1) / kRows;
    columns = std::max(columns, each.p->n);
  }
  const double price =
      double(std::min(kRows, columns)) * (20 + double(x.k) * (0.01 + 0.025 * double(x_rows)) + finish);
  parallel(call, tasks, price, [&](int64_t begin, int64_t end) {
    for (const FewRows& each : products) {
      const int64_t from = std::max(begin, each.begin), to = std::min(end, each.end);
      if (from < to) work(*each.p, *each.job, from - each.begin, to - each.begin);
    }
  });
  require(call, !exhausted, "out of memory");
}

}  // namespace lazuli
