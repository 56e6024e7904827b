// Discrete Fourier transforms along several axes: the walk over the lines of an array, and the transforms of
// real numbers. Those of even length are complex ones of half the length, on pairs of neighbours; of float64
// input only the first axis is computed in double, for there is no wider complex type to hold the result.
#include <atomic>
#include <memory>

#include "kernels/families.h"
#include "kernels/fft_plan.h"
#include "kernels/layout.h"

namespace lazuli {
namespace {

// Complex arrays are walked as pairs: strides count real numbers.
struct View {
  void* data;
  const int64_t* shape;
  int64_t strides[kMaxDims];
};

View view_of(const lz_operand& x) {
  View view{x.data, x.shape, {}};
  const int64_t unit = x.dtype == LZ_COMPLEX64 ? 2 : 1;
  for (int d = 0; d < x.ndim; d++) view.strides[d] = x.strides[d] * unit;
  return view;
}
View contiguous_view(void* data, const int64_t* shape, int ndim, int64_t unit) {
  View view{data, shape, {}};
  row_major(shape, ndim, view.strides);
  for (int d = 0; d < ndim; d++) view.strides[d] *= unit;
  return view;
}

// The lines along `axis` of an array and of the array they go to: the axes that are walked first lie closest
// in the latter.
Layout<2> lines_of(const View& in, const View& out, int ndim, int axis) {
  int order[kMaxDims], count = 0;
  for (int d = 0; d < ndim; d++) {
    if (d != axis) order[count++] = d;
  }
  std::stable_sort(order, order + count, [&](int a, int b) { return out.strides[a] > out.strides[b]; });
  Layout<2> layout;
  for (int i = 0; i < count; i++)
    layout.push(in.shape[order[i]], {in.strides[order[i]], out.strides[order[i]]});
  layout.collapse();
  return layout;
}

// Work memory for each thread that takes part.
template <class T>
class Workers {
 public:
  Workers(const lz_call& call, int64_t parts, int64_t size)
      : call_(call),
        count_(int(std::clamp<int64_t>(parts, 1, std::max(call.ctx->threads, 1)))),
        size_((size + 15) / 16 * 16),
        memory_(scratch<T>(call, size_ * count_)),
        busy_(new std::atomic<bool>[size_t(count_)]()) {}
  template <class F>
  void each(int64_t n, double cost, F&& f) {
    parallel(call_, n, cost, [&](int64_t begin, int64_t end) {
      int mine = 0;
      while (busy_[size_t(mine)].exchange(true, std::memory_order_acquire)) mine = (mine + 1) % count_;
      f(begin, end, memory_ + mine * size_);
      busy_[size_t(mine)].store(false, std::memory_order_release);
    });
  }

 private:
  const lz_call& call_;
  int count_;
  int64_t size_;
  T* memory_;
  std::unique_ptr<std::atomic<bool>[]> busy_;
};

// A single line is worth several threads from this length on.
constexpr int64_t kLongLine = 1 << 15;
constexpr int kMaxBlock = 64;

// Calls body(offsets in and out, count, work, crew) for every block of lines of a plan; `extra` values of
// work follow the plan's.
template <class T, class F>
void for_blocks(const lz_call& call, const FftPlan<T>& plan, const Layout<2>& lines, int64_t n, int64_t extra,
                F&& body) {
  const int64_t total = lines.size(), block = plan.block(), blocks = (total + block - 1) / block;
  const int64_t own = (plan.work() + 15) / 16 * 16;
  const auto run = [&](int64_t begin, int64_t end, T* work, const FftCrew<T>* crew) {
    Cursor<2> cursor(lines, lines.ndim, begin * block);
    int64_t in[kMaxBlock], out[kMaxBlock];
    for (int64_t at = begin; at < end; at++) {
      const int64_t count = std::min(block, total - at * block);
      for (int64_t l = 0; l < count; l++, cursor.next()) in[l] = cursor.offset[0], out[l] = cursor.offset[1];
      body(in, out, count, work, work + own, crew);
    }
  };
  if (block == 1 && n >= kLongLine && total < 2 * call.ctx->threads) {
    Workers<T> members(call, INT64_MAX, plan.crew_work());
    const FftCrew<T> crew = [&](int64_t parts, double cost, const auto& f) { members.each(parts, cost, f); };
    return run(0, blocks, scratch<T>(call, own + extra), &crew);
  }
  Workers<T> workers(call, blocks, own + extra);
  workers.each(blocks, plan.cost() + 4 * double(n) * double(extra > 0),
               [&](int64_t begin, int64_t end, T* work) { run(begin, end, work, nullptr); });
}

// True if lines start one after the other in memory, `step` values apart.
bool neighbours(const int64_t* offsets, int64_t count, int64_t step) {
  for (int64_t l = 1; l < count; l++) {
    if (offsets[l] != offsets[0] + step * l) return false;
  }
  return true;
}

// Complex numbers along one axis; `out` may be `in`.
void transform_complex(const lz_call& call, const View& in, const View& out, int ndim, int axis, bool inverse,
                       double scale) {
  const int64_t n = in.shape[axis];
  const Layout<2> lines = lines_of(in, out, ndim, axis);
  const int64_t from = in.strides[axis], to = out.strides[axis];
  const auto plan = fft_plan<float>(n, lines.size(), from != 2 || to != 2);
  for_blocks(call, *plan, lines, n, 0,
             [&](const int64_t* a, const int64_t* b, int64_t count, float* work, float*,
                 const FftCrew<float>* crew) {
               plan->run({static_cast<const float*>(in.data), a, from, neighbours(a, count, 2), inverse},
                         {static_cast<float*>(out.data), b, to, neighbours(b, count, 2), inverse}, count,
                         float(scale), work, crew);
             });
}

// Offsets of rows that follow each other in work memory.
struct Rows {
  int64_t offsets[kMaxBlock];
  Rows(int64_t count, int64_t step) {
    for (int64_t l = 0; l < count; l++) offsets[l] = l * step;
  }
};

// Calls f(line, i) for n numbers of some lines, in the order in which they lie in memory: where numbers of a
// line lie apart, neighbours are mostly of neighbouring lines.
template <class F>
void for_numbers(bool apart, int64_t count, int64_t n, F&& f) {
  if (apart) {
    for (int64_t i = 0; i < n; i++)
      for (int64_t l = 0; l < count; l++) f(l, i);
  } else {
    for (int64_t l = 0; l < count; l++)
      for (int64_t i = 0; i < n; i++) f(l, i);
  }
}

// Float32 or complex64 numbers (`parts` of 1 or 2) of neighbouring lines, `step` values apart along the
// lines, to rows that follow each other, and back. Complex numbers move as doubles.
void columns_to_rows(const float* x, int64_t step, float* rows, int64_t row, int64_t n, int64_t count,
                     int parts) {
  if (parts == 1) return fft_table(0.0f).transpose(x, step, rows, row, n, count);
  fft_table(0.0).transpose(reinterpret_cast<const double*>(x), step / 2, reinterpret_cast<double*>(rows),
                           row / 2, n, count);
}
void rows_to_columns(const float* rows, int64_t row, float* y, int64_t step, int64_t n, int64_t count,
                     int parts) {
  if (parts == 1) return fft_table(0.0f).transpose(rows, row, y, step, count, n);
  fft_table(0.0).transpose(reinterpret_cast<const double*>(rows), row / 2, reinterpret_cast<double*>(y),
                           step / 2, count, n);
}

// n real numbers along an axis to n/2 + 1 complex ones.
template <class T>
void transform_real(const lz_call& call, const View& in, const View& out, int ndim, int axis, double scale) {
  const int64_t n = in.shape[axis], h = n / 2, from = in.strides[axis], to = out.strides[axis];
  const bool even = n % 2 == 0;
  const Layout<2> lines = lines_of(in, out, ndim, axis);
  const auto plan = fft_plan<T>(even ? h : n, lines.size());
  const auto roots = even ? fft_half_roots<T>(h) : nullptr;
  const int64_t row = even ? 2 * h + 2 : 2 * n;
  const bool direct = even && to == 2 && std::is_same_v<T, float>;
  for_blocks(
      call, *plan, lines, n, plan->block() * row,
      [&](const int64_t* a, const int64_t* b, int64_t count, T* work, T* rows, const FftCrew<T>* crew) {
        const T* x = static_cast<const T*>(in.data);
        auto* y = static_cast<float*>(out.data);
        const Rows packed_rows(count, row);
        if (!even || from != 1) {
          bool moved = false;
          if constexpr (std::is_same_v<T, float>) {
            moved = even && neighbours(a, count, 1);
            if (moved) columns_to_rows(x + a[0], from, rows, row, n, count, 1);
          }
          if (!moved) {
            for_numbers(from != 1, count, n, [&](int64_t l, int64_t i) {
              rows[l * row + (even ? i : 2 * i)] = x[a[l] + i * from];
              if (!even) rows[l * row + 2 * i + 1] = 0;
            });
          }
          x = rows;
          a = packed_rows.offsets;
        }
        T* z = rows;
        const int64_t* at = packed_rows.offsets;
        if constexpr (std::is_same_v<T, float>) {
          if (direct) z = y, at = b;
        }
        plan->run({x, a, 2, false, false}, {z, at, 2, false, false}, count, even ? T(1) : T(scale), work,
                  crew);
        if (even) {
          for (int64_t l = 0; l < count; l++) fft_table(T()).unpack(z + at[l], h, roots->data(), T(scale));
        }
        if (direct) return;
        if constexpr (std::is_same_v<T, float>) {
          if (neighbours(b, count, 2)) return rows_to_columns(z, row, y + b[0], to, h + 1, count, 2);
        }
        for_numbers(to != 2, count, h + 1, [&](int64_t l, int64_t k) {
          y[b[l] + k * to] = float(z[at[l] + 2 * k]);
          y[b[l] + k * to + 1] = float(z[at[l] + 2 * k + 1]);
        });
      });
}

// n/2 + 1 complex numbers along an axis to n real ones.
void transform_to_real(const lz_call& call, const View& in, const View& out, int ndim, int axis,
                       double scale) {
  const int64_t n = out.shape[axis], h = n / 2, from = in.strides[axis], to = out.strides[axis];
  const bool even = n % 2 == 0;
  const Layout<2> lines = lines_of(in, out, ndim, axis);
  const auto plan = fft_plan<float>(even ? h : n, lines.size());
  const auto roots = even ? fft_half_roots<float>(h) : nullptr;
  const int64_t row = even ? 2 * h + 2 : 2 * n;
  const bool direct = even && to == 1;
  for_blocks(call, *plan, lines, n, plan->block() * row,
             [&](const int64_t* a, const int64_t* b, int64_t count, float* work, float* rows,
                 const FftCrew<float>* crew) {
               const auto* x = static_cast<const float*>(in.data);
               auto* y = static_cast<float*>(out.data);
               const Rows packed_rows(count, row);
               const bool packed = even && from == 2;
               if (!packed && neighbours(a, count, 2)) {
                 columns_to_rows(x + a[0], from, rows, row, h + 1, count, 2);
               } else if (!packed) {
                 for_numbers(from != 2, count, h + 1, [&](int64_t l, int64_t k) {
                   rows[l * row + 2 * k] = x[a[l] + k * from];
                   rows[l * row + 2 * k + 1] = x[a[l] + k * from + 1];
                 });
               }
               for (int64_t l = 0; l < count; l++) {
                 float* z = rows + l * row;
                 if (even) {
                   fft_table(0.0f).pack(packed ? x + a[l] : z, z, h, roots->data());
                   continue;
                 }
                 z[1] = 0;
                 for (int64_t k = 1; k <= h; k++) {
                   z[2 * (n - k)] = z[2 * k];
                   z[2 * (n - k) + 1] = -z[2 * k + 1];
                 }
               }
               plan->run({rows, packed_rows.offsets, 2, false, true},
                         {direct ? y : rows, direct ? b : packed_rows.offsets, 2, false, true}, count,
                         float(scale), work, crew);
               if (direct) return;
               if (even && neighbours(b, count, 1))
                 return rows_to_columns(rows, row, y + b[0], to, n, count, 1);
               for_numbers(to != 1, count, n, [&](int64_t l, int64_t i) {
                 y[b[l] + i * to] = rows[l * row + (even ? i : 2 * i)];
               });
             });
}

void fft(const lz_call& call) {
  require_counts(call, "fft", 1, 1);
  const lz_operand &x = call.in[0], &y = call.out[0];
  const params::Fft params(call);
  const auto axes = params.axes;
  const bool inverse = params.inverse, real = params.real;
  const int64_t n = params.n;
  const double scale = params.scale;
  const int ndim = x.ndim;
  require(call, !axes.empty() && y.ndim == ndim, "[fft] needs axes and an output of the input's rank");
  for (const int64_t axis : axes) require(call, axis >= 0 && axis < ndim, "[fft] an axis is out of bounds");
  const int last = int(axes[axes.size() - 1]);
  for (int d = 0; d < ndim; d++) {
    const int64_t half = n / 2 + 1;
    const bool fits = real && d == last
                          ? x.shape[d] == (inverse ? half : n) && y.shape[d] == (inverse ? n : half)
                          : x.shape[d] == y.shape[d];
    require(call, fits, "[fft] the shapes of input and output do not fit");
  }
  require(call, y.dtype == (real && inverse ? LZ_FLOAT32 : LZ_COMPLEX64),
          "[fft] the output has the wrong dtype");
  if (x.dtype != LZ_COMPLEX64 && !(real && !inverse && (x.dtype == LZ_FLOAT32 || x.dtype == LZ_FLOAT64)))
    fail_dtype(call, "fft", x.dtype);
  if (y.size == 0 || x.size == 0) return;
  View from = view_of(x);
  const View to = contiguous_view(y.data, y.shape, ndim, real && inverse ? 1 : 2);
  if (!real) {
    for (size_t i = axes.size(); i-- > 0; from = to)
      transform_complex(call, from, to, ndim, int(axes[i]), inverse, i == 0 ? scale : 1);
  } else if (!inverse) {
    if (x.dtype == LZ_FLOAT64)
      transform_real<double>(call, from, to, ndim, last, scale);
    else
      transform_real<float>(call, from, to, ndim, last, scale);
    for (size_t i = axes.size() - 1; i-- > 0;) transform_complex(call, to, to, ndim, int(axes[i]), false, 1);
  } else {
    if (axes.size() > 1) {
      const View middle = contiguous_view(scratch<float>(call, 2 * x.size), x.shape, ndim, 2);
      for (size_t i = 0; i + 1 < axes.size(); i++, from = middle)
        transform_complex(call, from, middle, ndim, int(axes[i]), true, 1);
      from = middle;
    }
    transform_to_real(call, from, to, ndim, last, scale);
  }
}

}  // namespace

void register_fft(Registry& registry) { registry.add("fft", entry<fft>); }

}  // namespace lazuli
