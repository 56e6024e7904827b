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

// offsets[i] (+)= index[i] · step, indices counted from the end when negative. `limit` is the number of valid
// indices, `extent` the axis's size, which differ for slices longer than 1.
void add_offsets(const lz_call& call, const char* op, const lz_operand& indices, int64_t axis, int64_t extent,
                 int64_t limit, int64_t step, bool first, int64_t* offsets) {
  std::atomic<int64_t> bad{INT64_MAX};
  Layout<2> layout;
  int64_t order[kMaxDims];
  row_major(indices.shape, indices.ndim, order);
  for (int d = 0; d < indices.ndim; d++) layout.push(indices.shape[d], {order[d], indices.strides[d]});
  layout.collapse();
  const int64_t index_step = layout.ndim ? layout.strides[1][layout.ndim - 1] : 0;
  dispatch_or_fail<index_types>(call, op, indices.dtype, [&]<class T>() {
    const T* from = data<const T>(indices);
    parallel(call, indices.size, 1, [&](int64_t begin, int64_t end) {
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
          int64_t& offset = offsets[at[0] + i];
          offset = (first ? 0 : offset) + index * step;
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

  Layout<2> inner;
  int64_t order[kMaxDims];
  row_major(slice.data(), x.ndim, order);
  for (int d = 0; d < x.ndim; d++) inner.push(slice[size_t(d)], {steps[d], order[d]});
  inner.collapse();
  const int64_t size = inner.size(), n = updates.size / size, bytes = itemsize(dtype);
  const void* values = contiguous<void>(call, updates);
  void* target = y.data;
  if (wide) {
    values = widened(call, x.dtype, values, updates.size);
    target = widened(call, x.dtype, y.data, y.size);
  }
  const char* from = static_cast<const char*>(values);
  const int last = inner.ndim - 1;
  const int64_t to_step = inner.ndim ? inner.strides[0][last] : 1,
                from_step = inner.ndim ? inner.strides[1][last] : 1;
  const auto put = [&](int64_t i) {
    for_runs(inner, 0, size, [&](const std::array<int64_t, 2>& at, int64_t items) {
      run(static_cast<char*>(target) + (offsets[i] + at[0]) * bytes, to_step,
          from + (i * size + at[1]) * bytes, from_step, items);
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
          __builtin_prefetch(from + next * size * bytes + b);
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

// Offsets within lines along `axis`, in the order of the indices.
int64_t* line_offsets(const lz_call& call, const char* op, const lz_operand& x, const lz_operand& indices,
                      int64_t axis, int64_t step) {
  bool fits = indices.ndim == x.ndim;
  for (int d = 0; d < x.ndim && fits; d++) fits = d == axis || indices.shape[d] == x.shape[d];
  require(call, fits, "[%s] the indices must have the shape of x except along the axis", op);
  int64_t* offsets = scratch<int64_t>(call, indices.size);
  add_offsets(call, op, indices, axis, x.shape[axis], x.shape[axis], step, true, offsets);
  return offsets;
}

void take_along_axis(const lz_call& call) {
  require_counts(call, "takeAlongAxis", 2, 1);
  const lz_operand &x = call.in[0], &indices = call.in[1], &y = call.out[0];
  const int axis = int(normalize_axis(call, "takeAlongAxis", params::TakeAlongAxis(call).axis, x.ndim));
  require(call, y.dtype == x.dtype && same_shape(y, indices),
          "[takeAlongAxis] the output must have the indices' shape and x's dtype");
  const int64_t* offsets = line_offsets(call, "takeAlongAxis", x, indices, axis, x.strides[axis]);
  if (y.size == 0) return;
  Layout<2> layout;
  int64_t order[kMaxDims];
  row_major(y.shape, y.ndim, order);
  for (int d = 0; d < y.ndim; d++) layout.push(y.shape[d], {order[d], d == axis ? 0 : x.strides[d]});
  layout.collapse();
  const int64_t step = layout.ndim ? layout.strides[1][layout.ndim - 1] : 0;
  dispatch_width(x.dtype, [&]<class U>() {
    parallel(call, y.size, 1.5, [&](int64_t begin, int64_t end) {
      for_runs(layout, begin, end, [&](const std::array<int64_t, 2>& at, int64_t count) {
        const U* from = data<const U>(x) + at[1];
        U* to = data<U>(y) + at[0];
        for (int64_t i = 0; i < count; i++) to[i] = from[i * step + offsets[at[0] + i]];
      });
    });
  });
}

void put_along_axis(const lz_call& call) {
  require_counts(call, "putAlongAxis", 3, 1);
  const lz_operand &x = call.in[0], &indices = call.in[1], &values = call.in[2], &y = call.out[0];
  const params::PutAlongAxis params(call);
  const int axis = int(normalize_axis(call, "putAlongAxis", params.axis, x.ndim));
  const UpdateRun run = find_update(call, "putAlongAxis", int64_t(params.mode), x.dtype);
  require_same(call, "putAlongAxis", x, y);
  require(call, values.dtype == x.dtype && same_shape(values, indices),
          "[putAlongAxis] the values must have the indices' shape and x's dtype");
  int64_t steps[kMaxDims];
  row_major(y.shape, y.ndim, steps);
  const int64_t* offsets = line_offsets(call, "putAlongAxis", x, indices, axis, steps[axis]);
  copy_into(call, x, y);
  if (indices.size == 0) return;
  Layout<3> outer;
  int64_t order[kMaxDims], inner = 1;
  row_major(indices.shape, indices.ndim, order);
  for (int d = 0; d < x.ndim; d++) {
    if (d < axis) outer.push(x.shape[d], {steps[d], order[d], values.strides[d]});
    if (d > axis) inner *= x.shape[d];
  }
  Layout<1> line;  // the values of one index of the outer axes
  for (int d = axis; d < x.ndim; d++) line.push(indices.shape[d], {values.strides[d]});
  const int64_t bytes = itemsize(x.dtype), length = line.size();
  parallel(call, outer.size(), 4.0 * double(length), [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; o++) {
      const Cursor<3> base(outer, outer.ndim, o);
      Cursor<1> value(line, line.ndim, 0);
      for (int64_t i = 0; i < length; i++, value.next()) {
        const int64_t at = base.offset[0] + offsets[base.offset[1] + i] + i % inner;
        run(data<char>(y) + at * bytes, 0,
            data<const char>(values) + (base.offset[2] + value.offset[0]) * bytes, 0, 1);
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
