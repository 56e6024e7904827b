// gather, scatter, takeAlongAxis and putAlongAxis. Indices of any integer type are first checked and turned
// into offsets; what follows only moves or combines elements. An index outside its axis fails the call before
// anything is written.
//
// Updates of one element happen in the order of the indices: threads divide the elements, not the indices.
#include <atomic>
#include <cstring>

#include "kernels/families.h"
#include "kernels/update.h"
#include "runtime/blocks.h"
#include "simd/moves.h"

namespace lazuli {
namespace {

// Calls use(i, index) for the i-th index in the order of `layout`, counted from the end when negative, and
// fails the call for one outside its axis. `limit` is the number of valid indices, `extent` the axis's size,
// which differ for slices longer than 1. Layouts have the order first, then the indices' strides.
template <class F>
void each_index(const lz_call& call, const char* op, const lz_operand& indices, const Layout<2>& layout,
                int64_t axis, int64_t extent, int64_t limit, F&& use) {
  std::atomic<int64_t> bad{INT64_MAX};
  const int64_t index_step = layout.ndim ? layout.strides[1][layout.ndim - 1] : 0;
  dispatch_or_fail<index_types>(call, op, indices.dtype, [&]<class T>() {
    const T* from = data<const T>(indices);
    parallel(call, indices.size ? layout.size() : 0, 1, [&](int64_t begin, int64_t end) {
      for_runs(layout, begin, end, [&](const std::array<int64_t, 2>& at, int64_t count) {
        for (int64_t i = 0; i < count; i++) {
          const T raw = from[at[1] + i * index_step];
          int64_t index = int64_t(raw);
          if (std::is_signed_v<T> && index < 0) index += extent;
          if (uint64_t(index) >= uint64_t(limit)) {
            int64_t seen = bad.load();
            while (at[0] + i < seen && !bad.compare_exchange_weak(seen, at[0] + i)) {
            }
            index = 0;
          }
          use(at[0] + i, index);
        }
      });
    });
    if (bad == INT64_MAX) return;
    const Cursor<2> where(layout, layout.ndim, bad);
    const T raw = from[where.offset[1]];
    if (std::is_signed_v<T>) {
      fail(call, "[%s] index %lld is out of bounds for axis %lld with size %lld", op, (long long)raw,
           (long long)axis, (long long)extent);
    }
    fail(call, "[%s] index %llu is out of bounds for axis %lld with size %lld", op, (unsigned long long)raw,
         (long long)axis, (long long)extent);
  });
}

// offsets[i] (+)= index[i] · step; see each_index.
void add_offsets(const lz_call& call, const char* op, const lz_operand& indices, int64_t axis, int64_t extent,
                 int64_t limit, int64_t step, bool first, int64_t* offsets) {
  Layout<2> layout;
  int64_t order[kMaxDims];
  row_major(indices.shape, indices.ndim, order);
  for (int d = 0; d < indices.ndim; d++) layout.push(indices.shape[d], {order[d], indices.strides[d]});
  layout.collapse();
  each_index(call, op, indices, layout, axis, extent, limit,
             [&](int64_t i, int64_t index) { offsets[i] = (first ? 0 : offsets[i]) + index * step; });
}

// Offsets into x of the slices that one index array an axis selects.
int64_t* offsets_of(const lz_call& call, const char* op, const lz_operand& x, const int64_t* steps,
                    std::span<const int64_t> axes, const lz_operand* indices,
                    std::span<const int64_t> slice) {
  const int64_t n = axes.empty() ? 1 : indices[0].size;
  int64_t* offsets = scratch<int64_t>(call, std::max<int64_t>(n, 1));
  offsets[0] = 0;
  for (size_t a = 0; a < axes.size(); a++) {
    require(call, same_shape(indices[a], indices[0]), "[%s] the index arrays must have equal shapes", op);
    const int64_t axis = normalize_axis(call, op, axes[a], x.ndim);
    add_offsets(call, op, indices[a], axis, x.shape[axis],
                std::max<int64_t>(x.shape[axis] - slice[size_t(axis)] + 1, 0), steps[axis], a == 0, offsets);
  }
  return offsets;
}

void gather(const lz_call& call) {
  const params::Gather params(call);
  const auto axes = params.axes, slice = params.sliceSizes;
  require_counts(call, "gather", int(axes.size()) + 1, 1);
  const lz_operand &x = call.in[0], &y = call.out[0];
  const int index_ndim = axes.empty() ? 0 : call.in[1].ndim;
  bool fits = int64_t(slice.size()) == x.ndim && y.ndim == index_ndim + x.ndim && y.dtype == x.dtype;
  for (int d = 0; d < y.ndim && fits; d++)
    fits = y.shape[d] == (d < index_ndim ? call.in[1].shape[d] : slice[size_t(d - index_ndim)]);
  // Without indices no slice is read.
  for (int d = 0; d < x.ndim && fits; d++)
    fits = slice[size_t(d)] >= 0 && (slice[size_t(d)] <= x.shape[d] || y.size == 0);
  require(call, fits, "[gather] the output's shape or dtype does not fit the operands");
  const int64_t* offsets = offsets_of(call, "gather", x, x.strides, axes, call.in + 1, slice);
  if (y.size == 0) return;

  Layout<1> inner;
  for (int d = 0; d < x.ndim; d++) inner.push(slice[size_t(d)], {x.strides[d]});
  inner.collapse();
  const int64_t size = inner.size(), n = y.size / size;
  const int last = inner.ndim - 1;
  const int64_t run = inner.ndim ? inner.shape[last] : 1, step = inner.ndim ? inner.strides[0][last] : 1;
  const int64_t item = itemsize(x.dtype);
  if (size == run && step == 1 && size * item >= 64) {
    const bool streaming = size_t(y.size) * size_t(item) > last_level_cache();
    return parallel(call, n, 5 + 0.1 * double(size * item), [&](int64_t begin, int64_t end) {
      move_table().gather(data<const char>(x), offsets + begin, item, end - begin, size * item,
                          data<char>(y) + begin * size * item, streaming);
    });
  }
  dispatch_width(x.dtype, [&]<class U>() {
    const U* from = data<const U>(x);
    U* to = data<U>(y);
    parallel(call, n, 3 + double(size) * (step == 1 ? 0.1 * sizeof(U) : 1.5),
             [&](int64_t begin, int64_t end) {
               for (int64_t i = begin; i < end; i++) {
                 const U* source = from + offsets[i];
                 U* target = to + i * size;
                 if (size == 1)
                   *target = *source;
                 else if (size == run && step == 1)
                   std::memcpy(target, source, size_t(size) * sizeof(U));
                 else
                   for_runs(inner, 0, size, [&](const std::array<int64_t, 1>& at, int64_t count) {
                     for (int64_t j = 0; j < count; j++) *target++ = source[at[0] + j * step];
                   });
               }
             });
  });
}

// Halves as floats, in memory of the call.
float* widened(const lz_call& call, int32_t dtype, const void* values, int64_t n) {
  float* wide = scratch<float>(call, n);
  dispatch_among<floating_types>(dtype, [&]<class T>() {
    const T* from = static_cast<const T*>(values);
    for (int64_t i = 0; i < n; i++) wide[i] = float(from[i]);
  });
  return wide;
}

// True if no offset is below the one before it.
bool ascends(const int64_t* offsets, int64_t n) {
  constexpr int64_t kBlock = 2048;
  for (int64_t first = 1; first < n; first += kBlock) {
    int64_t descents = 0;
    for (int64_t i = first; i < std::min(first + kBlock, n); i++)
      descents += int64_t(offsets[i] < offsets[i - 1]);
    if (descents > 0) return false;
  }
  return true;
}

// The updates of a scatter: elements in the order of the slice's strides, and `between` slices.
struct Updates {
  const void* data;
  const int64_t* strides;
  int64_t between;
};

// Updates where they lie, as a broadcast of few elements need not be spelled out, or copied into row-major
// order, whose strides go to `order`.
Updates updates_of(const lz_call& call, const lz_operand& updates, int index_ndim, int64_t* order) {
  const int rank = updates.ndim - index_ndim;
  const int64_t *shape = updates.shape + index_ndim, *strides = updates.strides + index_ndim;
  Layout<1> indices;
  for (int d = 0; d < index_ndim; d++) indices.push(updates.shape[d], {updates.strides[d]});
  indices.collapse();
  int last = rank - 1;
  while (last >= 0 && shape[last] == 1) last--;
  const bool in_runs = last < 0 || strides[last] == 0 || strides[last] == 1;
  if (in_runs && indices.ndim <= 1) return {updates.data, strides, indices.ndim ? indices.strides[0][0] : 0};
  row_major(shape, rank, order);
  int64_t between = 1;
  for (int d = 0; d < rank; d++) between *= shape[d];
  return {contiguous<void>(call, updates), order, between};
}

void scatter(const lz_call& call) {
  const params::Scatter params(call);
  const auto axes = params.axes;
  const auto mode = int64_t(params.mode);
  require_counts(call, "scatter", int(axes.size()) + 2, 1);
  const lz_operand &x = call.in[0], &updates = call.in[1], &y = call.out[0];
  require_same(call, "scatter", x, y);
  const int index_ndim = axes.empty() ? 0 : call.in[2].ndim;
  bool fits = updates.ndim == index_ndim + x.ndim && updates.dtype == x.dtype;
  for (int d = 0; d < index_ndim && fits; d++) fits = updates.shape[d] == call.in[2].shape[d];
  for (int d = 0; d < x.ndim && fits; d++)
    fits = updates.shape[index_ndim + d] <= x.shape[d] || updates.size == 0;
  require(call, fits, "[scatter] the updates' shape or dtype does not fit x and the indices");
  // More updates than elements: sums and products of halves are rounded once, and not at every update.
  const bool wide = (x.dtype == LZ_FLOAT16 || x.dtype == LZ_BFLOAT16) && updates.size > y.size &&
                    (Update(mode) == Update::add || Update(mode) == Update::multiply);
  const int32_t dtype = wide ? int32_t{LZ_FLOAT32} : x.dtype;
  const UpdateRun run = find_update(call, "scatter", mode, dtype);
  const std::span slice(updates.shape + index_ndim, size_t(x.ndim));
  int64_t steps[kMaxDims];
  row_major(y.shape, y.ndim, steps);
  const int64_t* offsets = offsets_of(call, "scatter", y, steps, axes, call.in + 2, slice);
  copy_into(call, x, y);
  if (updates.size == 0) return;

  int64_t order[kMaxDims];
  Updates source;
  void* target = y.data;
  if (wide) {
    row_major(slice.data(), x.ndim, order);
    source = {widened(call, x.dtype, contiguous<void>(call, updates), updates.size), order, 1};
    for (const int64_t extent : slice) source.between *= extent;
    target = widened(call, x.dtype, y.data, y.size);
  } else {
    source = updates_of(call, updates, index_ndim, order);
  }
  Layout<2> inner;
  for (int d = 0; d < x.ndim; d++) inner.push(slice[size_t(d)], {steps[d], source.strides[d]});
  inner.collapse();
  const int64_t size = inner.size(), n = updates.size / size, bytes = itemsize(dtype);
  const auto from = static_cast<const char*>(source.data);
  const int64_t between = source.between;
  const int last = inner.ndim - 1;
  const int64_t to_step = inner.ndim ? inner.strides[0][last] : 1,
                from_step = inner.ndim ? inner.strides[1][last] : 1;
  const auto put = [&](int64_t i) {
    for_runs(inner, 0, size, [&](const std::array<int64_t, 2>& at, int64_t items) {
      run(static_cast<char*>(target) + (offsets[i] + at[0]) * bytes, to_step,
          from + (i * between + at[1]) * bytes, from_step, items);
    });
  };
  // The updates of offsets from low to high: chosen without branches, which random indices would mispredict,
  // and fetched some steps ahead.
  constexpr int64_t kBlock = 2048, kAhead = 8, kLine = 64;
  const int64_t fetched =
      inner.ndim <= 1 && to_step == 1 && from_step == 1 ? std::min(size * bytes, 4 * kLine) : 1;
  const auto apply = [&](int64_t low, int64_t high) {
    uint16_t chosen[kBlock];
    for (int64_t first = 0; first < n; first += kBlock) {
      const int64_t length = std::min(kBlock, n - first);
      int64_t count = 0;
      for (int64_t i = 0; i < length; i++) {
        chosen[count] = uint16_t(i);
        count += int64_t(offsets[first + i] >= low) & int64_t(offsets[first + i] < high);
      }
      for (int64_t k = 0; k < count; k++) {
        const int64_t next = first + chosen[std::min(k + kAhead, count - 1)];
        for (int64_t b = 0; b < fetched; b += kLine) {
          __builtin_prefetch(static_cast<char*>(target) + offsets[next] * bytes + b, 1);
          __builtin_prefetch(from + next * between * bytes + b);
        }
        put(first + chosen[k]);
      }
    }
  };
  // The updates from begin to end of offsets that ascend, without those of a slice that began before, and
  // with all of the last slice.
  const auto apply_in_order = [&](int64_t begin, int64_t end) {
    while (begin < end && begin > 0 && offsets[begin] == offsets[begin - 1]) begin++;
    if (begin == end) return;
    while (end < n && offsets[end] == offsets[end - 1]) end++;
    for (int64_t i = begin; i < end; i++) put(i);
  };
  // Slices of one element along every indexed axis meet only when their offsets are equal: threads own ranges
  // of offsets, or of updates where these come in the order of their offsets.
  bool disjoint = true;
  for (const int64_t axis : axes)
    disjoint &= slice[size_t(normalize_axis(call, "scatter", axis, x.ndim))] == 1;
  const double price = double(n) * (6 + 1.0 * double(size));
  const int64_t parts = disjoint && price > 100000 && size >= 16 ? 8 : 1;
  if (parts > 1 && ascends(offsets, n))
    parallel(call, n, price / double(n), apply_in_order);
  else
    parallel(call, parts, price / double(parts), [&](int64_t begin, int64_t end) {
      apply(begin * y.size / parts, end == parts ? INT64_MAX : end * y.size / parts);
    });
  if (!wide) return;
  dispatch_among<floating_types>(y.dtype, [&]<class T>() {
    const float* sums = static_cast<const float*>(target);
    for (int64_t i = 0; i < y.size; i++) data<T>(y)[i] = T(sums[i]);
  });
}

// Fails the call unless all indices along `axis` are within x. Indices that are repeated by a broadcast are
// read once.
void check_along(const lz_call& call, const char* op, const lz_operand& x, const lz_operand& indices,
                 int axis) {
  bool fits = indices.ndim == x.ndim;
  for (int d = 0; d < x.ndim && fits; d++) fits = d == axis || indices.shape[d] == x.shape[d];
  require(call, fits, "[%s] the indices must have the shape of x except along the axis", op);
  Layout<2> layout;
  int64_t shape[kMaxDims], order[kMaxDims];
  for (int d = 0; d < x.ndim; d++) shape[d] = indices.strides[d] == 0 ? 1 : indices.shape[d];
  row_major(shape, x.ndim, order);
  for (int d = 0; d < x.ndim; d++) layout.push(shape[d], {order[d], indices.strides[d]});
  layout.collapse();
  each_index(call, op, indices, layout, axis, x.shape[axis], x.shape[axis], [](int64_t, int64_t) {});
}

// So many offsets are made of indices at a time.
constexpr int64_t kOffsets = 512;

// to[i] = index[i] · step + i · stride, for indices that were checked, `from_step` apart.
void offsets_along(const lz_operand& indices, int64_t at, int64_t from_step, int64_t extent, int64_t step,
                   int64_t stride, int64_t count, int64_t* to) {
  dispatch_among<index_types>(indices.dtype, [&]<class T>() {
    const T* from = data<const T>(indices) + at;
    for (int64_t i = 0; i < count; i++) {
      const T raw = from[i * from_step];
      to[i] = (int64_t(raw) + (std::is_signed_v<T> && raw < 0 ? extent : 0)) * step + i * stride;
    }
  });
}

void take_along_axis(const lz_call& call) {
  require_counts(call, "takeAlongAxis", 2, 1);
  const lz_operand &x = call.in[0], &indices = call.in[1], &y = call.out[0];
  const int axis = int(normalize_axis(call, "takeAlongAxis", params::TakeAlongAxis(call).axis, x.ndim));
  require(call, y.dtype == x.dtype && same_shape(y, indices),
          "[takeAlongAxis] the output must have the indices' shape and x's dtype");
  check_along(call, "takeAlongAxis", x, indices, axis);
  if (y.size == 0) return;
  Layout<3> layout;
  int64_t order[kMaxDims];
  row_major(y.shape, y.ndim, order);
  for (int d = 0; d < y.ndim; d++)
    layout.push(y.shape[d], {order[d], d == axis ? 0 : x.strides[d], indices.strides[d]});
  layout.collapse();
  const int last = layout.ndim - 1;
  const int64_t step = layout.ndim ? layout.strides[1][last] : 0,
                index_step = layout.ndim ? layout.strides[2][last] : 0;
  dispatch_width(x.dtype, [&]<class U>() {
    parallel(call, y.size, 1.5, [&](int64_t begin, int64_t end) {
      int64_t offsets[kOffsets];
      for_runs(layout, begin, end, [&](const std::array<int64_t, 3>& at, int64_t count) {
        for (int64_t done = 0; done < count; done += kOffsets) {
          const int64_t n = std::min(kOffsets, count - done);
          offsets_along(indices, at[2] + done * index_step, index_step, x.shape[axis], x.strides[axis], step,
                        n, offsets);
          const U* from = data<const U>(x) + at[1] + done * step;
          U* to = data<U>(y) + at[0] + done;
          for (int64_t i = 0; i < n; i++) to[i] = from[offsets[i]];
        }
      });
    });
  });
}

// to[offsets[i]] = op(to[offsets[i]], from[i · from_step]).
using PlacedRun = void (*)(void* to, const int64_t* offsets, const void* from, int64_t from_step, int64_t n);

template <Update Mode, class T>
void placed_run(void* to, const int64_t* offsets, const void* from, int64_t from_step, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    update<Mode>(static_cast<T*>(to)[offsets[i]], static_cast<const T*>(from)[i * from_step]);
}

PlacedRun find_placed(const lz_call& call, Update mode, int32_t dtype) {
  PlacedRun run = nullptr;
  if (mode == Update::set)
    dispatch_width(dtype, [&]<class U>() { run = placed_run<Update::set, U>; });
  else if (mode == Update::add)
    dispatch_among<every>(dtype, [&]<class T>() { run = placed_run<Update::add, T>; });
  require(call, run != nullptr, "[putAlongAxis] mode %lld does not exist", (long long)mode);
  return run;
}

void put_along_axis(const lz_call& call) {
  require_counts(call, "putAlongAxis", 3, 1);
  const lz_operand &x = call.in[0], &indices = call.in[1], &values = call.in[2], &y = call.out[0];
  const params::PutAlongAxis params(call);
  const int axis = int(normalize_axis(call, "putAlongAxis", params.axis, x.ndim));
  const PlacedRun run = find_placed(call, Update(int64_t(params.mode)), x.dtype);
  require_same(call, "putAlongAxis", x, y);
  require(call, values.dtype == x.dtype && same_shape(values, indices),
          "[putAlongAxis] the values must have the indices' shape and x's dtype");
  check_along(call, "putAlongAxis", x, indices, axis);
  copy_into(call, x, y);
  if (indices.size == 0) return;
  int64_t steps[kMaxDims], inner = 1;
  row_major(y.shape, y.ndim, steps);
  // The axes before `axis`, and from there on, where an element of y stands for all that its indices may
  // select.
  Layout<3> outer, line;
  for (int d = 0; d < x.ndim; d++) {
    const std::array<int64_t, 3> step{d == axis ? 0 : steps[d], indices.strides[d], values.strides[d]};
    (d < axis ? outer : line).push(indices.shape[d], step);
    if (d > axis) inner *= x.shape[d];
  }
  line.collapse();
  const int last = line.ndim - 1;
  const int64_t y_step = line.ndim ? line.strides[0][last] : 0,
                i_step = line.ndim ? line.strides[1][last] : 0,
                v_step = line.ndim ? line.strides[2][last] : 0;
  // Elements of y that the same thread updates, in the order of the indices: all of a line, or a piece of
  // long ones.
  constexpr int64_t kPiece = 4096;
  const int64_t pieces = (inner + kPiece - 1) / kPiece, rows = pieces == 1 ? 1 : indices.shape[axis],
                row = line.size() / rows, bytes = itemsize(x.dtype);
  parallel(call, outer.size() * pieces, 2.0 * double(line.size()) / double(pieces),
           [&](int64_t begin, int64_t end) {
             int64_t offsets[kOffsets];
             for (int64_t piece = begin; piece < end; piece++) {
               const Cursor<3> base(outer, outer.ndim, piece / pieces);
               const int64_t first = piece % pieces * kPiece,
                             length = pieces == 1 ? row : std::min(kPiece, row - first);
               for (int64_t r = 0; r < rows; r++) {
                 const int64_t from = r * row + first;
                 for_runs(line, from, from + length, [&](const std::array<int64_t, 3>& at, int64_t count) {
                   for (int64_t done = 0; done < count; done += kOffsets) {
                     const int64_t n = std::min(kOffsets, count - done);
                     offsets_along(indices, base.offset[1] + at[1] + done * i_step, i_step, x.shape[axis],
                                   steps[axis], y_step, n, offsets);
                     run(data<char>(y) + (base.offset[0] + at[0] + done * y_step) * bytes, offsets,
                         data<const char>(values) + (base.offset[2] + at[2] + done * v_step) * bytes, v_step,
                         n);
                   }
                 });
               }
             }
           });
}

}  // namespace

void register_index(Registry& registry) {
  registry.add("gather", entry<gather>);
  registry.add("scatter", entry<scatter>);
  registry.add("takeAlongAxis", entry<take_along_axis>);
  registry.add("putAlongAxis", entry<put_along_axis>);
}

}  // namespace lazuli
