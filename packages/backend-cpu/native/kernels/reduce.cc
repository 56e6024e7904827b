// sum, prod, max, min, all, any over any axes of any layout. This file finds the order in which to walk
// memory and splits the work; the loops over runs of memory are in simd/reduce.cc. Long reductions are cut
// into pieces by their size alone, so the result does not depend on the number of threads.
#include "simd/reduce.h"

#include <cstring>
#include <limits>

#include "kernels/accumulators.h"
#include "kernels/families.h"
#include "kernels/layout.h"
#include "runtime/pieces.h"

namespace lazuli {
namespace {

constexpr const char* kNames[] = {"sum", "prod", "max", "min", "all", "any"};
constexpr int64_t kRowBlock = 64, kColumnBlock = 4096, kPiece = 32768, kPieceRows = 128;

// The order of walking: `kept` has the input's and the output's strides. The vector axis, last in `kept` when
// `across`, else last in `reduced`, is the one with the smallest stride.
struct Walk {
  Layout<2> kept;
  Layout<1> reduced;
  bool across = false;
  int64_t offset = 0;
  int64_t step = 1;  // the vector axis's stride
};

// Larger strides first; strides of 0 before all, so that a broadcast axis is never the vector axis of choice.
template <int K>
void sort_axes(Layout<K>& layout) {
  const auto rank = [&](int d) {
    const int64_t stride = std::abs(layout.strides[0][d]);
    return stride == 0 ? INT64_MAX : stride;
  };
  for (int i = 1; i < layout.ndim; i++) {
    for (int d = i; d > 0 && rank(d - 1) < rank(d); d--) {
      std::swap(layout.shape[d], layout.shape[d - 1]);
      for (int k = 0; k < K; k++) std::swap(layout.strides[k][d], layout.strides[k][d - 1]);
    }
  }
}

Walk plan(const lz_operand& x, const lz_operand& y, const bool* is_reduced) {
  Walk walk;
  int64_t y_strides[kMaxDims];
  row_major(y.shape, y.ndim, y_strides);
  for (int d = 0; d < x.ndim; d++) {
    if (x.shape[d] == 1) continue;
    int64_t stride = x.strides[d];
    if (!is_reduced[d]) {
      walk.kept.push(x.shape[d], {stride, y_strides[d]});
      continue;
    }
    // The direction of a reduced axis is free.
    if (stride < 0) walk.offset += stride * (x.shape[d] - 1), stride = -stride;
    walk.reduced.push(x.shape[d], {stride});
  }
  sort_axes(walk.kept);
  sort_axes(walk.reduced);
  walk.kept.collapse();
  walk.reduced.collapse();
  const int64_t kept_step = walk.kept.ndim ? walk.kept.strides[0][walk.kept.ndim - 1] : 0;
  const int64_t reduced_step = walk.reduced.ndim ? walk.reduced.strides[0][walk.reduced.ndim - 1] : 0;
  const auto far = [](int64_t stride) { return stride == 0 ? INT64_MAX : std::abs(stride); };
  walk.across = walk.kept.ndim > 0 && (walk.reduced.ndim == 0 || far(kept_step) < far(reduced_step));
  walk.step = walk.across ? kept_step : walk.reduced.ndim ? reduced_step : 1;
  return walk;
}

// The bytes computed just before they are reduced, in the first or second cache. The loops of simd/reduce.cc
// may be fed in multiples of 2048 elements of a row or 64 rows without any change to a result.
constexpr int64_t kFedBytes = 1 << 18, kFedElements = 4096, kFedRows = 64;

struct Job {
  Walk walk;
  ReduceOp op;
  int32_t dtype;
  int64_t itemsize;
  const char* x;
  void (*pack)(void* to, const void* from, int64_t step, int64_t n);
  const MapPieces* prologue = nullptr;  // makes x, which is row-major then
};

// The length of the pieces of a long reduction to few results, and whether a reduction is one.
int64_t piece_of(const Walk& walk) {
  return walk.across ? std::max(kPiece / std::min(walk.kept.size(), kColumnBlock), kPieceRows) : kPiece;
}
bool is_cut(const Walk& walk) {
  return walk.kept.size() <= 4096 && walk.reduced.size() >= 2 * piece_of(walk);
}

// reduce_part's innermost loops on what the prologue computes, from element `start` of x on.
template <class W>
void reduce_computed(const Job& job, int64_t start, int64_t n, int64_t length, int64_t kept_step,
                     int64_t reduced_step, W* wide) {
  const ReduceTable& table = reduce_table();
  alignas(64) char memory[kFedBytes];
  static_assert(kFedElements * 8 <= kFedBytes);
  if (job.walk.across) {
    const int64_t most = kFedBytes / kFedRows / job.itemsize;
    for (int64_t j = 0; j < n; j += most) {
      const int64_t columns = std::min(most, n - j);
      for (int64_t i = 0; i < length; i += kFedRows) {
        const int64_t rows = std::min(kFedRows, length - i);
        job.prologue->compute(start + i * reduced_step + j, rows, reduced_step, columns, memory);
        table.columns[job.op][job.dtype](memory, rows, columns, columns, wide + j);
      }
    }
    return;
  }
  for (int64_t i = 0; i < n; i++) {
    for (int64_t j = 0; j < length; j += kFedElements) {
      const int64_t count = std::min(kFedElements, length - j);
      job.prologue->compute(start + i * kept_step + j, 1, count, count, memory);
      table.rows[job.op][job.dtype](memory, 1, 0, count, wide + i);
    }
  }
}

template <class U>
void pack(void* to, const void* from, int64_t step, int64_t n) {
  for (int64_t i = 0; i < n; i++) static_cast<U*>(to)[i] = static_cast<const U*>(from)[i * step];
}

// Reduces elements of the kept space [begin, end) over [first, last) of the reduced space, giving runs of
// results to `emit`.
template <class W, class F>
void reduce_part(const Job& job, int64_t begin, int64_t end, int64_t first, int64_t last, F&& emit) {
  const Walk& walk = job.walk;
  const ReduceTable& table = reduce_table();
  const auto rows = table.rows[job.op][job.dtype], columns = table.columns[job.op][job.dtype];
  const int kept_axis = walk.kept.ndim - 1, reduced_axis = walk.reduced.ndim - 1;
  const int64_t kept_step = walk.kept.ndim ? walk.kept.strides[0][kept_axis] : 0;
  const int64_t out_step = walk.kept.ndim ? walk.kept.strides[1][kept_axis] : 0;
  const int64_t reduced_step = walk.reduced.ndim ? walk.reduced.strides[0][reduced_axis] : 0;
  const int64_t block = walk.across ? kColumnBlock : kRowBlock;
  const W nothing = identity<W>(job.op, job.dtype);
  W wide[kColumnBlock];
  uint64_t packed[kColumnBlock];
  for_runs(walk.kept, begin, end, [&](const std::array<int64_t, 2>& at, int64_t count) {
    for (int64_t done = 0; done < count; done += block) {
      const int64_t n = std::min(block, count - done);
      const int64_t start = at[0] + done * kept_step;
      std::fill_n(wide, n, nothing);
      for_runs(walk.reduced, first, last, [&](const std::array<int64_t, 1>& run, int64_t length) {
        if (job.prologue)
          return reduce_computed<W>(job, start + run[0], n, length, kept_step, reduced_step, wide);
        const auto from = [&](int64_t i) { return job.x + (start + run[0] + i) * job.itemsize; };
        if (walk.step == 1)
          return walk.across ? columns(from(0), length, reduced_step, n, wide)
                             : rows(from(0), n, kept_step, length, wide);
        // The vector axis has gaps: gather pieces of it.
        if (walk.across) {
          for (int64_t i = 0; i < length; i++) {
            job.pack(packed, from(i * reduced_step), walk.step, n);
            columns(packed, 1, 0, n, wide);
          }
        } else {
          for (int64_t i = 0; i < n; i++) {
            for (int64_t j = 0; j < length; j += kColumnBlock) {
              const int64_t m = std::min(kColumnBlock, length - j);
              job.pack(packed, from(i * kept_step + j * walk.step), walk.step, m);
              rows(packed, 1, 0, m, wide + i);
            }
          }
        }
      });
      emit(at[1] + done * out_step, out_step, wide, n);
    }
  });
}

template <class W>
void reduce_wide(const lz_call& call, const Job& job) {
  const Walk& walk = job.walk;
  const lz_operand& y = call.out[0];
  const int64_t kept = walk.kept.size(), reduced = walk.reduced.size();
  const double each =
      (walk.step == 1 ? 0.02 + 0.03 * double(job.itemsize) : 1.5) + (job.prologue ? job.prologue->cost() : 0);
  const auto write = [&](int64_t at, int64_t step, const W* wide, int64_t n) { store(y, at, step, wide, n); };

  // A long reduction to few results is cut into pieces of the reduced space; each has a row of partial
  // results.
  const int64_t piece = piece_of(walk);
  if (is_cut(walk)) {
    const int64_t pieces = (reduced + piece - 1) / piece;
    W* partial = scratch<W>(call, pieces * kept);
    parallel(call, pieces, each * double(piece) * double(kept) + 20, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; p++) {
        W* row = partial + p * kept;
        reduce_part<W>(job, 0, kept, p * piece, std::min(reduced, (p + 1) * piece),
                       [&](int64_t at, int64_t step, const W* wide, int64_t n) {
                         for (int64_t i = 0; i < n; i++) row[at + i * step] = wide[i];
                       });
      }
    });
    parallel(call, kept, 0.3 * double(pieces), [&](int64_t begin, int64_t end) {
      W* total = partial + begin;
      if constexpr (std::is_same_v<W, wide_complex>) {
        for (int64_t p = 1; p < pieces; p++) {
          for (int64_t i = begin; i < end; i++)
            partial[i] = combine(job.op, partial[i], partial[p * kept + i]);
        }
      } else {
        reduce_table().columns[job.op][dtype_of<W>](total + kept, pieces - 1, kept, end - begin, total);
      }
    });
    return write(0, 1, partial, kept);
  }
  if (!walk.across) {
    return parallel(call, kept, each * double(reduced) + 3,
                    [&](int64_t begin, int64_t end) { reduce_part<W>(job, begin, end, 0, reduced, write); });
  }
  // Whole blocks of columns, so that every thread reads runs of a useful length.
  const int64_t columns = walk.kept.shape[walk.kept.ndim - 1],
                blocks = (columns + kColumnBlock - 1) / kColumnBlock;
  const double price = each * double(reduced) * double(std::min(columns, kColumnBlock)) + 20;
  parallel(call, kept / columns * blocks, price, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      const int64_t start = i / blocks * columns, at = i % blocks * kColumnBlock;
      reduce_part<W>(job, start + at, start + std::min(columns, at + kColumnBlock), 0, reduced, write);
    }
  });
}

// True if the parts that reduce_part() asks for are those that MapPieces::compute() gives.
bool fits_prologue(const MapPieces& prologue, const lz_operand& x, const Walk& walk) {
  if (!(x.flags & LZ_CONTIGUOUS) || walk.step != 1 || walk.offset != 0 || !is_cut(walk)) return false;
  if (prologue.flat() || !walk.across) return true;
  return walk.kept.ndim == 1 && walk.reduced.ndim == 1 && walk.reduced.strides[0][0] == prologue.columns();
}

void reduce(const lz_call& call, ReduceOp op) {
  require_counts(call, kNames[op], 1, 1);
  const lz_operand &x = call.in[0], &y = call.out[0];
  bool is_reduced[kMaxDims] = {};
  for (const int64_t axis : Params(call).integers())
    is_reduced[normalize_axis(call, kNames[op], axis, x.ndim)] = true;
  bool fits = y.ndim == x.ndim &&
              (y.dtype == LZ_COMPLEX64 || x.dtype != LZ_COMPLEX64 || op == kAll || op == kAny) &&
              (y.dtype != LZ_COMPLEX64 || x.dtype == LZ_COMPLEX64);
  for (int d = 0; d < x.ndim && fits; d++) fits = y.shape[d] == (is_reduced[d] ? 1 : x.shape[d]);
  require(call, fits, "[%s] the output's shape or dtype does not fit the input's", kNames[op]);
  if (y.size == 0) return;
  Job job{plan(x, y, is_reduced), op, x.dtype, itemsize(x.dtype), nullptr, nullptr};
  job.x = data<const char>(x) + job.walk.offset * job.itemsize;
  job.prologue = take_prologue(call);
  if (job.prologue && !(x.size > 0 && fits_prologue(*job.prologue, x, job.walk))) {
    job.prologue->compute_all();
    job.prologue = nullptr;
  }
  dispatch_width(x.dtype, [&]<class U>() { job.pack = pack<U>; });
  const auto run = [&]<class W>() {
    if (x.size > 0) return reduce_wide<W>(call, job);
    const W nothing = identity<W>(op, x.dtype);
    for (int64_t i = 0; i < y.size; i++) store(y, i, 1, &nothing, 1);
  };
  if (op == kAll || op == kAny) return run.template operator()<uint64_t>();
  with_accumulator(x.dtype, run);
}

template <ReduceOp Op>
void reduce(const lz_call& call) {
  reduce(call, Op);
}

}  // namespace

void register_reduce(Registry& registry) {
  registry.add("sum", entry<reduce<kSum>>);
  registry.add("prod", entry<reduce<kProd>>);
  registry.add("max", entry<reduce<kMax>>);
  registry.add("min", entry<reduce<kMin>>);
  registry.add("all", entry<reduce<kAll>>);
  registry.add("any", entry<reduce<kAny>>);
}

}  // namespace lazuli
