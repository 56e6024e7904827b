// The variance over any axes of any layout. Rows or columns of memory go to simd/moments.cc; what is neither
// is copied to be rows. A result depends on the elements alone, not on the layout or the number of threads.
#include "simd/moments.h"

#include "kernels/families.h"
#include "kernels/layout.h"

namespace lazuli {
namespace {

constexpr int64_t kPiece = 65536, kColumns = 256, kFewColumns = 64;  // elements

struct Job {
  const char* x;
  int64_t itemsize;
  int32_t dtype;
  Layout<2> kept;     // strides of the input and of the output
  Layout<1> reduced;  // one axis at most
};

// The moments of pieces of n elements, `step` apart.
Moments joined_pieces(const Moments* parts, int64_t step, int64_t n) {
  Moments all = parts[0];
  for (int64_t first = kPiece, p = 1; first < n; first += kPiece, p++)
    all = joined(all, double(first), parts[p * step], double(std::min(kPiece, n - first)));
  return all;
}

// Gives moments of kept elements: emit(offset in the output, step there, moments, how many). Long reductions
// are cut into pieces; what these give is joined in order.
template <class F>
void moments_of_rows(const lz_call& call, const Job& job, F&& emit) {
  const auto rows = moments_table().rows[job.dtype];
  const int64_t n = job.reduced.size(), kept = job.kept.size();
  const int inner = job.kept.ndim - 1;
  const int64_t stride = inner < 0 ? 0 : job.kept.strides[0][inner],
                step = inner < 0 ? 1 : job.kept.strides[1][inner];
  const double price = 0.05 * double(job.itemsize);
  if (n > kPiece) {
    const int64_t pieces = (n + kPiece - 1) / kPiece;
    Moments* parts = scratch<Moments>(call, kept * pieces);
    parallel(call, kept * pieces, price * kPiece, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) {
        const Cursor<2> cell(job.kept, job.kept.ndim, i / pieces);
        const int64_t first = i % pieces * kPiece;
        rows(job.x + (cell.offset[0] + first) * job.itemsize, 1, 0, std::min(kPiece, n - first), parts + i);
      }
    });
    Cursor<2> cell(job.kept, job.kept.ndim, 0);
    for (int64_t i = 0; i < kept; i++, cell.next()) {
      const Moments all = joined_pieces(parts + i * pieces, 1, n);
      emit(cell.offset[1], 1, &all, 1);
    }
    return;
  }
  constexpr int64_t kBatch = 64;
  parallel(call, kept, price * double(n) + 20, [&](int64_t begin, int64_t end) {
    Moments batch[kBatch];
    for_runs(job.kept, begin, end, [&](const std::array<int64_t, 2>& at, int64_t count) {
      for (int64_t i = 0; i < count; i += kBatch) {
        const int64_t m = std::min(kBatch, count - i);
        rows(job.x + (at[0] + i * stride) * job.itemsize, m, stride, n, batch);
        emit(at[1] + i * step, step, batch, m);
      }
    });
  });
}

// The same where the innermost kept axis is contiguous and the reduced axis has steps.
template <class F>
void moments_of_columns(const lz_call& call, const Job& job, F&& emit) {
  const auto columns = moments_table().columns[job.dtype];
  const int64_t n = job.reduced.size(), stride = job.reduced.ndim ? job.reduced.strides[0][0] : 0;
  const int inner = job.kept.ndim - 1;
  const int64_t all = job.kept.shape[inner], step = job.kept.strides[1][inner], outer = job.kept.size() / all;
  const double price = 0.08 * double(job.itemsize);
  const int64_t pieces = (n + kPiece - 1) / kPiece;
  // As wide as the loops are, and narrower where threads would have nothing to do.
  const int64_t shares = std::max<int64_t>(1, 2 * call.ctx->threads / (outer * pieces));
  const int64_t width = std::clamp((all + shares - 1) / shares, kFewColumns, kColumns),
                chunks = (all + width - 1) / width;
  Moments* parts = scratch<Moments>(call, outer * all * pieces);
  parallel(call, outer * chunks * pieces, price * double(std::min(n, kPiece) * std::min(width, all)),
           [&](int64_t begin, int64_t end) {
             for (int64_t i = begin; i < end; i++) {
               const int64_t piece = i % pieces, chunk = i / pieces % chunks, block = i / pieces / chunks;
               const Cursor<2> cell(job.kept, inner, block);
               const int64_t first = piece * kPiece, j = chunk * width;
               columns(job.x + (cell.offset[0] + first * stride + j) * job.itemsize,
                       std::min(kPiece, n - first), stride, std::min(width, all - j),
                       parts + (block * pieces + piece) * all + j);
             }
           });
  parallel(call, outer * all, 4 * double(pieces), [&](int64_t begin, int64_t end) {
    for_runs(job.kept, begin, end, [&](const std::array<int64_t, 2>& at, int64_t count) {
      Moments* part = parts + begin / all * pieces * all + begin % all;
      if (pieces > 1)
        for (int64_t j = 0; j < count; j++) part[j] = joined_pieces(part + j, all, n);
      emit(at[1], step, part, count);
      begin += count;
    });
  });
}

void variance(const lz_call& call) {
  require_counts(call, "variance", 1, 1);
  const lz_operand &x = call.in[0], &y = call.out[0];
  const params::Variance params(call);
  bool is_reduced[kMaxDims] = {};
  for (const int64_t axis : params.axes) is_reduced[normalize_axis(call, "variance", axis, x.ndim)] = true;
  const double ddof = params.ddof;
  bool fits = y.ndim == x.ndim && y.dtype == x.dtype;
  for (int d = 0; d < x.ndim && fits; d++) fits = y.shape[d] == (is_reduced[d] ? 1 : x.shape[d]);
  require(call, fits, "[variance] the output's shape or dtype does not fit the input's");
  if (moments_table().rows[x.dtype] == nullptr) fail_dtype(call, "variance", x.dtype);
  if (y.size == 0) return;

  Job job{data<const char>(x), itemsize(x.dtype), x.dtype, {}, {}};
  int64_t y_strides[kMaxDims];
  row_major(y.shape, y.ndim, y_strides);
  const auto lay_out = [&](const int64_t* strides) {
    job.kept.ndim = job.reduced.ndim = 0;
    for (int d = 0; d < x.ndim; d++) {
      if (is_reduced[d])
        job.reduced.push(x.shape[d], {strides[d]});
      else
        job.kept.push(x.shape[d], {strides[d], y_strides[d]});
    }
    job.kept.collapse();
    job.reduced.collapse();
  };
  lay_out(x.strides);
  const int64_t n = job.reduced.size();
  const double scale = 1 / std::max(double(n) - ddof, 0.0);
  const auto emit = [&](int64_t at, int64_t step, const Moments* moments, int64_t count) {
    dispatch_among<floating_types>(y.dtype, [&]<class T>() {
      // A negative variance from rounding is zero; NaN stays.
      for (int64_t i = 0; i < count; i++)
        data<T>(y)[at + i * step] = convert<T>((moments[i].square < 0 ? 0 : moments[i].square) * scale);
    });
  };
  if (n == 0) {
    const Moments nothing{0, 0};
    for (int64_t i = 0; i < y.size; i++) emit(i, 1, &nothing, 1);
    return;
  }
  if (job.reduced.ndim == 0 || (job.reduced.ndim == 1 && job.reduced.strides[0][0] == 1))
    return moments_of_rows(call, job, emit);
  if (job.reduced.ndim == 1 && job.kept.ndim > 0) {
    const int inner = job.kept.ndim - 1;
    if (job.kept.strides[0][inner] == 1 && job.kept.shape[inner] >= 16 && job.kept.shape[inner] * n >= kPiece)
      return moments_of_columns(call, job, emit);
  }

  // A copy with the reduced axes last.
  char* copy = scratch<char>(call, x.size * job.itemsize);
  Layout<2> layout;
  int64_t strides[kMaxDims];
  int64_t inside = 1, outside = n;
  for (int d = x.ndim - 1; d >= 0; d--) {
    int64_t& next = is_reduced[d] ? inside : outside;
    strides[d] = next;
    next *= x.shape[d];
  }
  for (int d = 0; d < x.ndim; d++) layout.push(x.shape[d], {strides[d], x.strides[d]});
  copy_strided(call, layout, job.itemsize, copy, x.data);
  job.x = copy;
  lay_out(strides);
  moments_of_rows(call, job, emit);
}

}  // namespace

void register_variance(Registry& registry) { registry.add("variance", entry<variance>, kFloatingDtypes); }

}  // namespace lazuli
