// segmentReduce and segmentIds: runs of rows, given by offsets. The loops over rows are in simd/reduce.cc. A
// run is reduced by one thread, or, where it is long, in pieces by its length alone: results do not depend on
// the number of threads.
#include <vector>

#include "kernels/accumulators.h"
#include "kernels/families.h"
#include "kernels/layout.h"

namespace lazuli {
namespace {

constexpr int64_t kColumns = 256, kPiece = 32768, kPieceRows = 128;

// The offsets of all examples, [batch, runs + 1]: each from 0 to n without a descent, or the call fails.
const int64_t* read_offsets(const lz_call& call, const char* op, const lz_operand& offsets, int64_t n) {
  const int64_t count = offsets.shape[1];
  int64_t* bounds = scratch<int64_t>(call, offsets.size);
  dispatch_or_fail<index_types>(call, op, offsets.dtype, [&]<class T>() {
    const T* from = contiguous<T>(call, offsets);
    for (int64_t i = 0; i < offsets.size; i++) {
      const bool beyond = std::is_unsigned_v<T> && uint64_t(from[i]) > uint64_t(INT64_MAX);
      const int64_t bound = bounds[i] = beyond ? INT64_MAX : int64_t(from[i]), s = i % count;
      if (s == 0 && bound != 0)
        fail(call, "[%s] offsets must begin with 0, received %lld", op, (long long)bound);
      if (s > 0 && bound < bounds[i - 1])
        fail(call, "[%s] offsets must not descend, received %lld after %lld", op, (long long)bound,
             (long long)bounds[i - 1]);
      if (s == count - 1 && bound != n)
        fail(call, "[%s] offsets must end with the %lld rows, received %lld", op, (long long)n,
             (long long)bound);
    }
  });
  return bounds;
}

void segment_ids(const lz_call& call) {
  constexpr const char* op = "segmentIds";
  require_counts(call, op, 1, 1);
  const lz_operand &offsets = call.in[0], &y = call.out[0];
  require(call,
          offsets.ndim == 2 && offsets.shape[1] > 0 && y.ndim == 2 && y.dtype == LZ_INT32 &&
              y.shape[0] == offsets.shape[0],
          "[%s] the output does not fit the offsets", op);
  const int64_t n = y.shape[1], runs = offsets.shape[1] - 1;
  const int64_t* bounds = read_offsets(call, op, offsets, n);
  if (runs == 0) return;
  const int64_t total = offsets.shape[0] * runs;
  parallel(call, total, 5 + 0.3 * double(y.size) / double(total), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      const int64_t b = i / runs, s = i % runs, *at = bounds + b * (runs + 1) + s;
      std::fill(data<int32_t>(y) + b * n + at[0], data<int32_t>(y) + b * n + at[1], int32_t(s));
    }
  });
}

// A part of a long run, whose result is number `to`.
struct Piece {
  int64_t example, first, last, to;
};

template <class W>
void reduce_runs(const lz_call& call, ReduceOp op, const int64_t* bounds) {
  const lz_operand &x = call.in[0], &y = call.out[0];
  const int64_t n = x.shape[1], width = x.shape[2], runs = y.shape[1], batch = y.shape[0];
  const int64_t stride = call.in[1].shape[0] == 1 ? 0 : runs + 1, item = itemsize(x.dtype);
  const char* from = reinterpret_cast<const char*>(contiguous<char>(call, x));
  const auto rows = reduce_table().rows[op][x.dtype];
  const int64_t length = std::max(kPiece / std::min(width, kColumns), kPieceRows);
  const auto reduce = [&](int64_t example, int64_t first, int64_t last, int64_t column, int64_t count,
                          W* wide) {
    std::fill_n(wide, count, identity<W>(op, x.dtype));
    const char* start = from + ((example * n + first) * width + column) * item;
    if (first == last) return;
    if (width == 1)
      rows(start, 1, 0, last - first, wide);
    else
      reduce_columns(op, x.dtype, start, last - first, width, count, wide);
  };
  const auto write = [&](int64_t example, int64_t first, int64_t last, int64_t to, int64_t column,
                         int64_t count) {
    W wide[kColumns];
    reduce(example, first, last, column, count, wide);
    store(y, to * width + column, 1, wide, count);
  };
  // Long runs first, in pieces.
  std::vector<Piece> pieces;
  for (int64_t to = 0; to < batch * runs; to++) {
    const int64_t* at = bounds + to / runs * stride + to % runs;
    if (at[1] - at[0] < 2 * length) continue;
    for (int64_t first = at[0]; first < at[1]; first += length)
      pieces.push_back({to / runs, first, std::min(at[1], first + length), to});
  }
  const double each = 0.02 + 0.03 * double(item);
  if (!pieces.empty()) {
    const int64_t count = int64_t(pieces.size());
    W* partial = scratch<W>(call, count * width);
    parallel(call, count, each * double(length * width), [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; p++)
        for (int64_t j = 0; j < width; j += kColumns)
          reduce(pieces[size_t(p)].example, pieces[size_t(p)].first, pieces[size_t(p)].last, j,
                 std::min(kColumns, width - j), partial + p * width + j);
    });
    for (int64_t p = 0; p < count;) {
      const int64_t to = pieces[size_t(p)].to;
      W* total = partial + p * width;
      for (p++; p < count && pieces[size_t(p)].to == to; p++) {
        if constexpr (std::is_same_v<W, wide_complex>) {
          for (int64_t j = 0; j < width; j++) total[j] = combine(op, total[j], partial[p * width + j]);
        } else {
          for (int64_t j = 0; j < width; j += kColumns)
            reduce_columns(op, dtype_of<W>, partial + p * width + j, 1, width, std::min(kColumns, width - j),
                           total + j);
        }
      }
      store(y, to * width, 1, total, width);
    }
  }
  const int64_t blocks = (width + kColumns - 1) / kColumns, tasks = batch * runs * blocks;
  parallel(call, tasks, 15 + each * double(x.size) / double(tasks), [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; task++) {
      const int64_t to = task / blocks, column = task % blocks * kColumns;
      const int64_t* at = bounds + to / runs * stride + to % runs;
      if (at[1] - at[0] < 2 * length)
        write(to / runs, at[0], at[1], to, column, std::min(kColumns, width - column));
    }
  });
}

void segment_reduce(const lz_call& call) {
  constexpr const char* op = "segmentReduce";
  constexpr ReduceOp kinds[] = {kSum, kMax, kMin};
  require_counts(call, op, 2, 1);
  const lz_operand &x = call.in[0], &offsets = call.in[1], &y = call.out[0];
  const auto kind = int64_t(params::SegmentReduce(call).reduction);
  bool fits = x.ndim == 3 && offsets.ndim == 2 && y.ndim == 3 && kind >= 0 && kind < 3;
  fits = fits && (offsets.shape[0] == 1 || offsets.shape[0] == x.shape[0]) && y.shape[0] == x.shape[0] &&
         y.shape[1] == offsets.shape[1] - 1 && y.shape[2] == x.shape[2] &&
         (x.dtype == LZ_COMPLEX64) == (y.dtype == LZ_COMPLEX64);
  require(call, fits, "[%s] the shapes or dtypes of the operands do not fit", op);
  const int64_t* bounds = read_offsets(call, op, offsets, x.shape[1]);
  if (y.size == 0) return;
  with_accumulator(x.dtype, [&]<class W>() { reduce_runs<W>(call, kinds[kind], bounds); });
}

}  // namespace

void register_segment(Registry& registry) {
  registry.add("segmentIds", entry<segment_ids>);
  registry.add("segmentReduce", entry<segment_reduce>);
}

}  // namespace lazuli
