// The gradient of max and min: a cell's cotangent, in equal shares, where x is the cell's extreme. Each part
// of x is counted and written while it is in the cache. Cells are rows, or columns side by side that are
// counted together; one large cell is cut into pieces.
#include <cmath>

#include "kernels/families.h"
#include "kernels/layout.h"
#include "runtime/blocks.h"
#include "simd/extremes.h"

namespace lazuli {
namespace {

constexpr int64_t kPiece = 65536, kColumns = 512;  // elements
// Cells of more elements leave the first caches between counting and writing.
constexpr int64_t kLargeCell = 8192;

// The strides of x's elements, of their cells and of the result.
struct Job {
  Layout<3> kept;     // strides of x, of the cells and of the result
  Layout<2> reduced;  // of x and of the result
  int32_t dtype;
  bool streaming;  // the operands are more than the caches hold
};

// The share of one of `count` extremes, and what the other elements have: 0, or NaN where the share is not
// finite.
template <class T>
std::array<T, 2> shares(T g, int64_t count) {
  using C = compute_t<T>;
  const T share = T(C(load(g)) / C(count));
  return {share, T(C(load(share)) * C(0))};
}

template <class T>
int64_t count_equal(int32_t dtype, const T* x, int64_t step, int64_t n, T extreme) {
  if (step == 1) return extremes_table().count[dtype](x, n, &extreme);
  int64_t count = 0;
  for (int64_t i = 0; i < n; i++) count += load(x[i * step]) == load(extreme);
  return count;
}

// Both count_equal() and write_shares(), in one pass.
template <class T>
int64_t count_and_write(const Job& job, const T* x, int64_t x_step, int64_t n, T extreme,
                        const std::array<T, 2>& share, T* to, int64_t to_step) {
  if (x_step == 1 && to_step == 1)
    return extremes_table().count_and_write[job.dtype](x, n, &extreme, share.data(), to, job.streaming);
  int64_t count = 0;
  for (int64_t i = 0; i < n; i++) {
    const bool is_hit = load(x[i * x_step]) == load(extreme);
    to[i * to_step] = share[is_hit ? 0 : 1];
    count += is_hit;
  }
  return count;
}

template <class T>
void write_shares(const Job& job, const T* x, int64_t x_step, int64_t n, T extreme,
                  const std::array<T, 2>& share, T* to, int64_t to_step) {
  if (x_step == 1 && to_step == 1)
    return extremes_table().write[job.dtype](x, n, &extreme, share.data(), to, job.streaming);
  for (int64_t i = 0; i < n; i++) to[i * to_step] = share[load(x[i * x_step]) == load(extreme) ? 0 : 1];
}

// Calls f(offsets, count, steps) for the runs of elements [begin, end) of a cell.
template <class F>
void for_parts(const Layout<2>& reduced, int64_t begin, int64_t end, F&& f) {
  const int inner = reduced.ndim - 1;
  const std::array<int64_t, 2> step = {inner < 0 ? 1 : reduced.strides[0][inner],
                                       inner < 0 ? 1 : reduced.strides[1][inner]};
  for_runs(reduced, begin, end, [&](const std::array<int64_t, 2>& at, int64_t count) { f(at, count, step); });
}

template <class T>
void by_cells(const lz_call& call, const Job& job, const T* x, const T* y, const T* g, T* to) {
  const int64_t n = job.reduced.size();
  const auto count = [&](int64_t at, T extreme, int64_t begin, int64_t end) {
    int64_t sum = 0;
    for_parts(job.reduced, begin, end, [&](auto offset, int64_t m, auto step) {
      sum += count_equal(job.dtype, x + at + offset[0], step[0], m, extreme);
    });
    return sum;
  };
  const auto write = [&](int64_t x_at, int64_t to_at, T extreme, const std::array<T, 2>& share, int64_t begin,
                         int64_t end) {
    for_parts(job.reduced, begin, end, [&](auto offset, int64_t m, auto step) {
      write_shares(job, x + x_at + offset[0], step[0], m, extreme, share, to + to_at + offset[1], step[1]);
    });
  };
  const bool once = n > kLargeCell && static_cast<const void*>(x) != to;
  const auto try_alone = [&](int64_t x_at, int64_t to_at, T extreme, const std::array<T, 2>& share) {
    int64_t sum = 0;
    for_parts(job.reduced, 0, n, [&](auto offset, int64_t m, auto step) {
      sum += count_and_write(job, x + x_at + offset[0], step[0], m, extreme, share, to + to_at + offset[1],
                             step[1]);
    });
    return sum;
  };
  const int64_t cells = job.kept.size();
  if (n <= kPiece || cells >= 4 * call.ctx->threads) {
    return parallel(call, cells, 0.6 * double(n) + 10, [&](int64_t begin, int64_t end) {
      Cursor<3> cell(job.kept, job.kept.ndim, begin);
      for (int64_t i = begin; i < end; i++, cell.next()) {
        const auto [x_at, at, to_at] = cell.offset;
        // As in by_rows(): an extreme is taken for the only one, which it mostly is.
        const int64_t found =
            once ? try_alone(x_at, to_at, y[at], shares(g[at], 1)) : count(x_at, y[at], 0, n);
        if (!once || found != 1) write(x_at, to_at, y[at], shares(g[at], found), 0, n);
      }
    });
  }
  const int64_t pieces = (n + kPiece - 1) / kPiece;
  int64_t* counts = scratch<int64_t>(call, pieces);
  Cursor<3> cell(job.kept, job.kept.ndim, 0);
  for (int64_t i = 0; i < cells; i++, cell.next()) {
    const auto [x_at, at, to_at] = cell.offset;
    parallel(call, pieces, 0.2 * double(kPiece), [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; p++)
        counts[p] = count(x_at, y[at], p * kPiece, std::min(n, (p + 1) * kPiece));
    });
    int64_t sum = 0;
    for (int64_t p = 0; p < pieces; p++) sum += counts[p];
    const auto share = shares(g[at], sum);
    parallel(call, pieces, 0.4 * double(kPiece), [&](int64_t begin, int64_t end) {
      write(x_at, to_at, y[at], share, begin * kPiece, std::min(n, end * kPiece));
    });
  }
}

// Columns side by side: the innermost kept axis is contiguous in x, in the cells and in the result.
template <class T>
class Columns {
 public:
  Columns(const Job& job, const T* x, const T* y, const T* g, T* to)
      : job_(job), x_(x), y_(y), g_(g), to_(to) {}

  bool in_place() const { return static_cast<const void*>(x_) == to_; }

  // Of rows [begin, end) of a reduced cell, `m` columns at these offsets of x, the cells and the result.
  void count(const std::array<int64_t, 3>& at, int64_t begin, int64_t end, int64_t m, int32_t* counts) const {
    const auto run = extremes_table().count_columns[job_.dtype];
    by_blocks(begin, end, m, [&](const std::array<int64_t, 2>& row, int64_t j, int64_t count) {
      run(x_ + at[0] + row[0] + j, count, y_ + at[1] + j, counts + j);
    });
  }
  void share(int64_t at, const int32_t* counts, int64_t m, T* hits, T* misses) const {
    for (int64_t j = 0; j < m; j++) {
      const auto share = shares(g_[at + j], counts[j]);
      hits[j] = share[0], misses[j] = share[1];
    }
  }
  void write(const std::array<int64_t, 3>& at, int64_t begin, int64_t end, int64_t m, const T* hits,
             const T* misses) const {
    const auto run = extremes_table().write_columns[job_.dtype];
    by_blocks(begin, end, m, [&](const std::array<int64_t, 2>& row, int64_t j, int64_t count) {
      run(x_ + at[0] + row[0] + j, count, y_ + at[1] + j, hits + j, misses + j, to_ + at[2] + row[1] + j,
          job_.streaming);
    });
  }

  // Both at once.
  void count_and_write(const std::array<int64_t, 3>& at, int64_t begin, int64_t end, int64_t m,
                       int32_t* counts, const T* hits, const T* misses) const {
    const auto run = extremes_table().count_and_write_columns[job_.dtype];
    by_blocks(begin, end, m, [&](const std::array<int64_t, 2>& row, int64_t j, int64_t count) {
      run(x_ + at[0] + row[0] + j, count, y_ + at[1] + j, counts + j, hits + j, misses + j,
          to_ + at[2] + row[1] + j, job_.streaming);
    });
  }

 private:
  // The columns' other data stay in the first cache, and a part of a row is long enough to be read ahead.
  template <class F>
  void by_blocks(int64_t begin, int64_t end, int64_t m, F&& f) const {
    constexpr int64_t kPart = 1024;
    for (int64_t j = 0; j < m; j += kPart) {
      Cursor<2> row(job_.reduced, job_.reduced.ndim, begin);
      for (int64_t k = begin; k < end; k++, row.next()) f(row.offset, j, std::min(kPart, m - j));
    }
  }

  const Job& job_;
  const T *x_, *y_, *g_;
  T* to_;
};

// Blocks of columns that stay in the cache between counting and writing.
template <class T>
void by_columns(const lz_call& call, const Job& job, const Columns<T>& all, int64_t width, int64_t n) {
  const int64_t columns = std::min(kColumns, width), blocks = (width + columns - 1) / columns;
  parallel(call, job.kept.size() / width * blocks, 0.8 * double(n) * double(columns) + 20,
           [&](int64_t begin, int64_t end) {
             T hits[kColumns], misses[kColumns];
             for (int64_t i = begin; i < end; i++) {
               const Cursor<3> cell(job.kept, job.kept.ndim - 1, i / blocks);
               const int64_t first = i % blocks * columns, m = std::min(columns, width - first);
               auto at = cell.offset;
               for (int64_t& offset : at) offset += first;
               int32_t counts[kColumns] = {};
               all.count(at, 0, n, m, counts);
               all.share(at[1], counts, m, hits, misses);
               all.write(at, 0, n, m, hits, misses);
             }
           });
}

// Whole rows, in pieces, each with counts of its own. What is written while counting takes each extreme for
// the only one of its column: where others equal it, which is rare, the column is written again.
template <class T>
void by_rows(const lz_call& call, const Job& job, const Columns<T>& all, int64_t width, int64_t n) {
  const int64_t height = std::max<int64_t>(16, kPiece / width), pieces = (n + height - 1) / height;
  int32_t* counts = scratch<int32_t>(call, pieces * width);
  T *hits = scratch<T>(call, width), *misses = scratch<T>(call, width);
  const int64_t outer = job.kept.size() / width;
  const bool once = !all.in_place();
  Cursor<3> cell(job.kept, job.kept.ndim - 1, 0);
  for (int64_t i = 0; i < outer; i++, cell.next()) {
    const auto at = cell.offset;
    const double price = 0.3 * double(height * width);
    const auto write = [&](int64_t first, int64_t count) {
      auto from = at;
      for (int64_t& offset : from) offset += first;
      parallel(call, pieces, 0.3 * double(height * count), [&](int64_t begin, int64_t end) {
        all.write(from, begin * height, std::min(n, end * height), count, hits + first, misses + first);
      });
    };
    std::fill_n(counts, width, 1);
    all.share(at[1], counts, width, hits, misses);
    parallel(call, pieces, price, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; p++) {
        int32_t* found = counts + p * width;
        std::fill_n(found, width, 0);
        const int64_t first = p * height, last = std::min(n, first + height);
        if (once)
          all.count_and_write(at, first, last, width, found, hits, misses);
        else
          all.count(at, first, last, width, found);
      }
    });
    for (int64_t p = 1; p < pieces; p++)
      for (int64_t j = 0; j < width; j++) counts[j] += counts[p * width + j];
    const int64_t others = width - std::count(counts, counts + width, 1);
    if (once && others == 0) continue;
    all.share(at[1], counts, width, hits, misses);
    if (!once || others > width / 16) {
      write(0, width);
    } else {
      for (int64_t j = 0; j < width; j++)
        if (counts[j] != 1) write(j, 1);
    }
  }
}

void extreme_vjp(const lz_call& call) {
  const char* op = "extremeVjp";
  require_counts(call, op, 3, 1);
  const lz_operand &x = call.in[0], &y = call.in[1], &g = call.in[2], &to = call.out[0];
  require_same(call, op, x, to);
  bool is_reduced[kMaxDims] = {};
  for (const int64_t axis : params::ExtremeVjp(call).axes)
    is_reduced[normalize_axis(call, op, axis, x.ndim)] = true;
  bool fits = same_shape(y, g) && y.ndim == x.ndim && y.dtype == x.dtype && g.dtype == x.dtype;
  for (int d = 0; d < x.ndim && fits; d++) fits = y.shape[d] == (is_reduced[d] ? 1 : x.shape[d]);
  require(call, fits, "[%s] the shapes or dtypes of the operands do not fit", op);
  if (to.size == 0) return;
  Job job{};
  job.dtype = x.dtype;
  job.streaming = x.data != to.data && 2 * size_t(x.size) * size_t(itemsize(x.dtype)) >= last_level_cache();
  int64_t cells[kMaxDims], out[kMaxDims];
  row_major(y.shape, y.ndim, cells);
  row_major(to.shape, to.ndim, out);
  for (int d = 0; d < x.ndim; d++) {
    if (is_reduced[d])
      job.reduced.push(x.shape[d], {x.strides[d], out[d]});
    else
      job.kept.push(x.shape[d], {x.strides[d], cells[d], out[d]});
  }
  job.kept.collapse();
  job.reduced.collapse();
  const int inner = job.kept.ndim - 1;
  const bool columns = inner >= 0 && job.kept.shape[inner] >= 8 && job.kept.strides[0][inner] == 1 &&
                       job.kept.strides[1][inner] == 1 && job.kept.strides[2][inner] == 1 &&
                       job.reduced.size() <= INT32_MAX;
  dispatch_or_fail<floating_types>(call, op, x.dtype, [&]<class T>() {
    const T *extremes = contiguous<T>(call, y), *cotangents = contiguous<T>(call, g);
    if (!columns) return by_cells<T>(call, job, data<const T>(x), extremes, cotangents, data<T>(to));
    const Columns<T> all(job, data<const T>(x), extremes, cotangents, data<T>(to));
    const int64_t width = job.kept.shape[inner], n = job.reduced.size();
    (n * std::min(kColumns, width) > kPiece ? by_rows<T> : by_columns<T>)(call, job, all, width, n);
  });
}

}  // namespace

void register_extremes(Registry& registry) {
  registry.add("extremeVjp", entry<extreme_vjp>, kFloatingDtypes);
}

}  // namespace lazuli
