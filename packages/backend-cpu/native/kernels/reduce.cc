// sum, prod, max, min, all, any over any axes of any layout. This file cuts the work into blocks and finds
// the order in which to walk memory; the loops over a block are in simd/reduce.cc. A result depends on the
// elements and the shape alone, not on the layout or the number of threads.
#include "simd/reduce.h"

#include <cstring>
#include <utility>

#include "kernels/accumulators.h"
#include "kernels/families.h"
#include "kernels/layout.h"
#include "runtime/pieces.h"
#include "simd/moves.h"

namespace lazuli {
namespace {

constexpr const char* kNames[] = {"sum", "prod", "max", "min", "all", "any"};
constexpr int64_t kRowBlock = 64, kColumnBlock = 4096, kFewColumns = 128;

// A reduction in two stages. The first combines blocks, which are parts of one group of the reduced axes; the
// second what blocks gave, cell by cell. The shape alone decides on the group, so that elements are combined
// in one order however they lie, and any number of threads may share the cells.
struct Plan {
  Layout<2> cells;    // results of the first stage: strides in x and where they go
  Layout<1> block;    // the group; its first axis is cut
  int64_t part = 1;   // what of that axis is in a block
  int64_t parts = 1;  // results of the first stage for each of the second
  int64_t part_step = 1,
          cell_step = 1;  // how these lie: of a cell one after the other, or of all cells side by side
  int64_t offset = 0;
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

// The reduced axes in the array's order.
struct Reduced {
  Layout<1> axes;
  bool follows[kMaxDims];  // the axis before it in the array

  void push(int64_t extent, int64_t stride, bool is_next) {
    follows[axes.ndim] = is_next && axes.ndim > 0;
    axes.push(extent, {stride});
  }
};

// Short axes that follow each other count as one, and so does what a short one at the end follows. The group
// is the last axis of kLongAxis, or else the longest; where the array is small or all are short, all axes. A
// block holds as many of its last axes as it can, and a part of the one before, where the group begins.
constexpr int64_t kLongAxis = 1024, kMergedAxis = 256, kShortAxis = 64, kSmallArray = 1 << 14;

// The range of axes in the group.
std::pair<int, int> group_of(const Reduced& reduced, int64_t size) {
  const auto& shape = reduced.axes.shape;
  const int n = reduced.axes.ndim;
  int begin = 0, end = n;
  int64_t longest = 0;
  for (int last = n, first; last > 0 && longest < kLongAxis; last = first) {
    first = last - 1;
    int64_t length = shape[first];
    while (reduced.follows[first] &&
           (length < kShortAxis || (shape[first] < kMergedAxis && shape[first - 1] < kMergedAxis)))
      length *= shape[--first];
    if (length >= longest) longest = length, begin = first, end = last;
  }
  if (longest < kShortAxis || size <= kSmallArray) begin = 0, end = n;
  int cut = end;
  for (int64_t length = 1; cut > begin && length <= kReduceBlock / 2;) length *= shape[--cut];
  return {cut, end};
}

Plan plan(const lz_operand& x, const lz_operand& y, const bool* is_reduced, bool ordered) {
  Plan plan;
  Reduced all;
  Layout<1>& reduced = all.axes;
  int64_t y_strides[kMaxDims];
  row_major(y.shape, y.ndim, y_strides);
  bool is_next = false;
  for (int d = 0; d < x.ndim; d++) {
    if (x.shape[d] == 1) continue;
    if (is_reduced[d])
      all.push(x.shape[d], x.strides[d], is_next);
    else
      plan.cells.push(x.shape[d], {x.strides[d], y_strides[d]});
    is_next = is_reduced[d];
  }
  if (!ordered) {
    std::fill_n(all.follows, kMaxDims, false);
    for (int d = 0; d < reduced.ndim; d++) {
      int64_t& stride = reduced.strides[0][d];
      if (stride < 0) plan.offset += stride * (reduced.shape[d] - 1), stride = -stride;
    }
    sort_axes(reduced);
    reduced.collapse();
  }
  const auto [begin, end] = group_of(all, x.size);
  for (int d = begin; d < end; d++) plan.block.push(reduced.shape[d], {reduced.strides[0][d]});
  if (begin < end) {
    int64_t within = 1;
    for (int d = begin + 1; d < end; d++) within *= reduced.shape[d];
    plan.part = std::min(kReduceBlock / within, reduced.shape[begin]);
    plan.parts = (reduced.shape[begin] + plan.part - 1) / plan.part;
  }
  int64_t nearest = INT64_MAX;
  for (int d = 0; d < plan.cells.ndim; d++)
    if (plan.cells.strides[0][d] != 0) nearest = std::min(nearest, std::abs(plan.cells.strides[0][d]));
  const int kept = plan.cells.ndim;
  int64_t parts = plan.parts;
  bool by_cells = false;
  for (int d = 0; d < reduced.ndim; d++) {
    if (d >= begin && d < end) continue;
    parts *= reduced.shape[d];
    by_cells = by_cells || (reduced.strides[0][d] != 0 && std::abs(reduced.strides[0][d]) < nearest);
  }
  plan.part_step = by_cells ? 1 : y.size;
  plan.cell_step = by_cells ? parts : 1;
  for (int d = 0; d < kept; d++) plan.cells.strides[1][d] *= plan.cell_step;
  for (int d = reduced.ndim - 1; d >= 0; d--) {
    if (d >= begin && d < end) continue;
    plan.cells.push(reduced.shape[d], {reduced.strides[0][d], plan.parts * plan.part_step});
    plan.parts *= reduced.shape[d];
  }
  return plan;
}

// Tiles that are computed or gathered just before they are reduced, in the first or second cache.
constexpr int64_t kTileBytes = 1 << 18, kTileElements = 4096, kTileColumns = 256;

struct Job {
  ReduceOp op;
  int32_t dtype;
  int64_t itemsize;
  const char* x;
  void (*pack)(void* to, const void* from, int64_t to_step, int64_t step, int64_t n);
  bool has_lanes;                       // columns need kReduceLanes values each
  const MapPieces* prologue = nullptr;  // makes x, which is row-major then
};

template <class U>
void pack(void* to, const void* from, int64_t to_step, int64_t step, int64_t n) {
  for (int64_t i = 0; i < n; i++) static_cast<U*>(to)[i * to_step] = static_cast<const U*>(from)[i * step];
}

// One length of blocks, and their cells.
template <class W>
class Blocks {
 public:
  Blocks(const lz_call& call, const Job& job, Layout<2> cells, Layout<1> block, int64_t start)
      : call_(call), job_(job), cells_(cells), block_(block), start_(start) {
    sort_axes(cells_);
    cells_.collapse();
    block_.collapse();
    length_ = block_.size();
    const auto far = [](int64_t stride) { return stride == 0 ? INT64_MAX : std::abs(stride); };
    int64_t nearest = block_.ndim == 0 ? INT64_MAX : far(block_.strides[0][block_.ndim - 1]);
    for (int d = 0; d < block_.ndim; d++) nearest = std::min(nearest, far(block_.strides[0][d]));
    step_ = block_.ndim == 0 ? 1 : block_.strides[0][block_.ndim - 1];
    const int inner = cells_.ndim - 1;
    cell_step_ = inner < 0 ? 0 : cells_.strides[0][inner];
    to_step_ = inner < 0 ? 0 : cells_.strides[1][inner];
    across_ = inner >= 0 && far(cell_step_) < nearest;
    int64_t strides[kMaxDims];
    row_major(block_.shape, block_.ndim, strides);
    for (int d = 0; d < block_.ndim; d++) tile_.push(block_.shape[d], {block_.strides[0][d], strides[d]});
    sort_axes(tile_);
    in_place_ = across_ ? cell_step_ == 1 : block_.ndim <= 1 && step_ == 1;
  }

  // Gives results: emit(where they go, the step there, results, how many).
  template <class F>
  void run(F&& emit) const {
    const double each =
        (job_.prologue ? job_.prologue->cost() : 0) + (in_place_ ? 0.02 + 0.03 * double(job_.itemsize) : 1);
    if (across_)
      columns(each, emit);
    else
      rows(each, emit);
  }
  // True where the prologue gives what this reads.
  bool fits(const MapPieces& prologue) const {
    return in_place_ && block_.ndim <= 1 && (prologue.flat() || !across_ || step_ == prologue.columns());
  }

 private:
  const char* address(int64_t element) const { return job_.x + (start_ + element) * job_.itemsize; }

  template <class F>
  void rows(double each, F&& emit) const {
    const auto reduce = reduce_table().rows[job_.op][job_.dtype];
    const W nothing = identity<W>(job_.op, job_.dtype);
    parallel(call_, cells_.size(), each * double(length_) + 3, [&](int64_t begin, int64_t end) {
      W wide[kRowBlock];
      for_runs(cells_, begin, end, [&](const std::array<int64_t, 2>& at, int64_t count) {
        for (int64_t done = 0; done < count; done += kRowBlock) {
          const int64_t n = std::min(kRowBlock, count - done), first = at[0] + done * cell_step_;
          std::fill_n(wide, n, nothing);
          if (in_place_ && !job_.prologue)
            reduce(address(first), n, cell_step_, length_, wide);
          else
            row_tiles(first, n, wide);
          emit(at[1] + done * to_step_, to_step_, wide, n);
        }
      });
    });
  }

  void row_tiles(int64_t first, int64_t n, W* wide) const {
    const auto reduce = reduce_table().rows[job_.op][job_.dtype];
    alignas(64) char memory[std::max(kTileElements, kReduceBlock) * 8];
    if (!job_.prologue) {
      for (int64_t i = 0; i < n; i++) {
        gather(first + i * cell_step_, memory);
        reduce(memory, 1, 0, length_, wide + i);
      }
      return;
    }
    const int64_t most =
        cell_step_ == length_ || job_.prologue->flat() ? std::max<int64_t>(kTileElements / length_, 1) : 1;
    for (int64_t i = 0; i < n; i += most) {
      const int64_t some = std::min(most, n - i), from = start_ + first + i * cell_step_;
      if (some == 1 || cell_step_ == length_)
        job_.prologue->compute(from, 1, some * length_, some * length_, memory);
      else
        job_.prologue->compute(from, some, cell_step_, length_, memory);
      reduce(memory, some, length_, length_, wide + i);
    }
  }

  // A block that lies elsewhere, in its order.
  void gather(int64_t cell, char* memory) const {
    const int inner = tile_.ndim - 1;
    const int64_t count = tile_.shape[inner], from_step = tile_.strides[0][inner],
                  to_step = tile_.strides[1][inner];
    // Tiles that lie across are turned some at a time.
    const bool turned = inner > 0 && from_step == 1 && tile_.strides[1][inner - 1] == 1;
    const auto transpose = turned ? move_table().transpose[job_.itemsize] : nullptr;
    const int outer = transpose ? inner - 1 : inner;
    Cursor<2> cursor(tile_, outer, 0);
    for (int64_t i = 0, n = length_ / count / (transpose ? tile_.shape[outer] : 1); i < n;
         i++, cursor.next()) {
      const char* from = address(cell + cursor.offset[0]);
      char* to = memory + cursor.offset[1] * job_.itemsize;
      if (transpose)
        transpose(from, tile_.strides[0][outer], tile_.shape[outer], count, to, to_step);
      else if (from_step == 1 && to_step == 1)
        std::memcpy(to, from, size_t(count * job_.itemsize));
      else
        job_.pack(to, from, to_step, from_step, count);
    }
  }

  template <class F>
  void columns(double each, F&& emit) const {
    const bool tiled = job_.prologue || !in_place_;
    const int64_t most = tiled ? kTileColumns : job_.has_lanes ? lane_columns(job_.dtype) : kColumnBlock;
    const int64_t all = cells_.shape[cells_.ndim - 1], groups = cells_.size() / all;
    // As wide as the caches allow, and narrower where threads would have nothing to do.
    const int64_t shares = std::max<int64_t>(1, 2 * call_.ctx->threads / groups);
    const int64_t width = std::clamp((all + shares - 1) / shares, std::min(kFewColumns, most), most);
    const int64_t chunks = (all + width - 1) / width;
    const W nothing = identity<W>(job_.op, job_.dtype);
    int64_t offsets[kReduceBlock];
    if (block_.ndim > 1) {
      Cursor<1> cursor(block_, block_.ndim, 0);
      for (int64_t i = 0; i < length_; i++, cursor.next()) offsets[i] = cursor.offset[0];
    }
    parallel(call_, groups * chunks, each * double(length_) * double(std::min(all, width)) + 20,
             [&](int64_t begin, int64_t end) {
               W wide[kColumnBlock];
               alignas(64) char lanes[kLaneBytes];
               for (int64_t i = begin; i < end; i++) {
                 const Cursor<2> cell(cells_, cells_.ndim - 1, i / chunks);
                 const int64_t j = i % chunks * width, n = std::min(width, all - j),
                               first = cell.offset[0] + j * cell_step_;
                 std::fill_n(wide, n, nothing);
                 BlockRows rows{
                     address(first), block_.ndim > 1 ? offsets : nullptr, step_, length_, 0, length_, n,
                     lanes};
                 if (tiled)
                   column_tiles(first, rows, wide);
                 else
                   reduce_table().columns[job_.op][job_.dtype](rows, wide);
                 emit(cell.offset[1] + j * to_step_, to_step_, wide, n);
               }
             });
  }

  void column_tiles(int64_t first, BlockRows rows, W* wide) const {
    alignas(64) char memory[kTileBytes];
    const int64_t n = rows.n, height = kTileBytes / (n * job_.itemsize) / kReduceLanes * kReduceLanes;
    const int64_t* offsets = std::exchange(rows.at, nullptr);
    rows.x = memory;
    rows.stride = n;
    for (; rows.done < length_; rows.done += rows.count) {
      rows.count = std::min(height, length_ - rows.done);
      if (job_.prologue) {
        job_.prologue->compute(start_ + first + rows.done * step_, rows.count, step_, n, memory);
      } else {
        for (int64_t i = 0; i < rows.count; i++) {
          const int64_t row = rows.done + i;
          job_.pack(memory + i * n * job_.itemsize, address(first + (offsets ? offsets[row] : row * step_)),
                    1, cell_step_, n);
        }
      }
      reduce_table().columns[job_.op][job_.dtype](rows, wide);
    }
  }

  const lz_call& call_;
  const Job& job_;
  Layout<2> cells_;
  Layout<1> block_;
  Layout<2> tile_;  // the block: memory's smallest stride last, and where elements belong
  int64_t start_, length_, step_, cell_step_, to_step_;
  bool across_;    // several cells are combined side by side
  bool in_place_;  // the vector axis has no gaps
};

// The second stage, to `n` results.
template <class W>
void combine_parts(const lz_call& call, const Job& job, const Plan& plan, const W* from, W* to, int64_t n) {
  parallel(call, n, 0.3 * double(plan.parts), [&](int64_t begin, int64_t end) {
    std::fill(to + begin, to + end, identity<W>(job.op, job.dtype));
    if constexpr (std::is_same_v<W, wide_complex>) {
      for (int64_t i = begin; i < end; i++)
        for (int64_t p = 0; p < plan.parts; p++)
          to[i] = combine(job.op, to[i], from[p * plan.part_step + i * plan.cell_step]);
    } else if (plan.part_step == 1) {
      reduce_table().rows[job.op][dtype_of<W>](from + begin * plan.parts, end - begin, plan.parts, plan.parts,
                                               to + begin);
    } else {
      const int64_t most = lane_columns(dtype_of<W>);
      for (int64_t i = begin; i < end; i += most)
        reduce_columns(job.op, dtype_of<W>, from + i, plan.parts, n, std::min(most, end - i), to + i);
    }
  });
}

template <class W>
void reduce_wide(const lz_call& call, Job job, const Plan& plan) {
  const lz_operand& y = call.out[0];
  const int64_t n = y.size;
  W* parts = plan.parts == 1 ? nullptr : scratch<W>(call, plan.parts * n);
  const auto blocks = [&](int64_t first, int64_t count, int64_t part) {
    Layout<2> cells = plan.cells;
    Layout<1> block = plan.block;
    const int64_t step = block.ndim ? block.strides[0][0] : 0;
    if (block.ndim) block.shape[0] = part;
    cells.push(count, {plan.part * step, plan.part_step});
    return Blocks<W>(call, job, cells, block, plan.offset + first * plan.part * step);
  };
  const int64_t length = plan.block.ndim ? plan.block.shape[0] : 1, whole = length / plan.part,
                rest = length % plan.part;
  // Work on the input is done part by part for long reductions to few results.
  const bool is_long = n <= kColumnBlock && call.in[0].size >= n * kLongAxis;
  if (job.prologue && !(is_long && blocks(0, whole, plan.part).fits(*job.prologue))) {
    job.prologue->compute_all();
    job.prologue = nullptr;
  }
  const auto run = [&](int64_t first, int64_t count, int64_t part) {
    blocks(first, count, part).run([&](int64_t at, int64_t step, const W* wide, int64_t m) {
      if (!parts) return store(y, at, step, wide, m);
      W* to = parts + first * plan.part_step + at;
      for (int64_t i = 0; i < m; i++) to[i * step] = wide[i];
    });
  };
  run(0, whole, plan.part);
  if (rest > 0) run(whole, 1, rest);
  if (!parts) return;
  W* total = scratch<W>(call, n);
  combine_parts(call, job, plan, parts, total, n);
  parallel(call, n, 1, [&](int64_t begin, int64_t end) { store(y, begin, 1, total + begin, end - begin); });
}

// True where results depend on the order. Of complex numbers max and min keep the first with a NaN.
bool is_ordered(ReduceOp op, int32_t dtype) {
  return (!is_integral(dtype) && (op == kSum || op == kProd)) ||
         (dtype == LZ_COMPLEX64 && (op == kMax || op == kMin));
}

static_assert(std::is_same_v<params::Prod, params::Sum>);
static_assert(std::is_same_v<params::Max, params::Sum>);
static_assert(std::is_same_v<params::Min, params::Sum>);
static_assert(std::is_same_v<params::All, params::Sum>);
static_assert(std::is_same_v<params::Any, params::Sum>);

void reduce(const lz_call& call, ReduceOp op) {
  require_counts(call, kNames[op], 1, 1);
  const lz_operand &x = call.in[0], &y = call.out[0];
  bool is_reduced[kMaxDims] = {};
  for (const int64_t axis : params::Sum(call).axes)
    is_reduced[normalize_axis(call, kNames[op], axis, x.ndim)] = true;
  bool fits = y.ndim == x.ndim &&
              (y.dtype == LZ_COMPLEX64 || x.dtype != LZ_COMPLEX64 || op == kAll || op == kAny) &&
              (y.dtype != LZ_COMPLEX64 || x.dtype == LZ_COMPLEX64);
  for (int d = 0; d < x.ndim && fits; d++) fits = y.shape[d] == (is_reduced[d] ? 1 : x.shape[d]);
  require(call, fits, "[%s] the output's shape or dtype does not fit the input's", kNames[op]);
  if (y.size == 0) return;
  const bool ordered = is_ordered(op, x.dtype);
  const Plan order = x.size > 0 ? plan(x, y, is_reduced, ordered) : Plan{};
  Job job{op, x.dtype, itemsize(x.dtype), data<const char>(x), nullptr, ordered && x.dtype != LZ_COMPLEX64};
  job.prologue = take_prologue(call);
  if (job.prologue && (x.size == 0 || !(x.flags & LZ_CONTIGUOUS))) {
    job.prologue->compute_all();
    job.prologue = nullptr;
  }
  dispatch_width(x.dtype, [&]<class U>() { job.pack = pack<U>; });
  const auto run = [&]<class W>() {
    if (x.size > 0) return reduce_wide<W>(call, job, order);
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
