// quantizedMatmul and gatherQmm. A product reads packed words: few rows at once multiply them
// in registers (simd/quantized.cc), more rows meet rows or panels that are unpacked to a cache's size.
// Products are computed in float32.
//
// Rows of x that meet the same weights form a job, so that broadcast batches and neighbouring equal indices
// read the weights once. Work is cut by its size alone, and one task forms the whole sum of an element.
#include "simd/quantized.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <span>
#include <vector>

#include "kernels/blas.h"
#include "kernels/epilogue.h"
#include "kernels/families.h"
#include "kernels/gemm.h"
#include "kernels/quantized.h"
#include "kernels/source.h"
#include "kernels/thread_memory.h"
#include "simd/byte_tiles.h"
#include "simd/half_products.h"
#include "simd/halves.h"

namespace lazuli {
namespace {

// The last two axes with elements of rows next to each other; a copy where they are not.
Source matrices(const lz_call& call, const lz_operand& operand) {
  Source x(operand);
  const int last = x.ndim - 1;
  return x.shape[last] == 1 || x.strides[last] == 1 ? x : dense_copy(call, x, x.ndim - 2);
}

// Memory for a thread's part of a parallel loop, which must not throw; null, with a note, when there is none.
std::unique_ptr<float[]> borrow(int64_t count, std::atomic<bool>& exhausted) {
  auto* memory = new (std::nothrow) float[size_t(count)];
  if (memory == nullptr) exhausted = true;
  return std::unique_ptr<float[]>(memory);
}

constexpr int64_t kSomeRows = 64;

// y = x Wᵀ for more rows of x than few, or codes that are not multiplied where they lie: rows of W are
// unpacked to the first or second cache, four at a time, and meet all rows of x there.
void some_rows(const lz_call& call, const PackedProduct& p, const PackedJob& job) {
  constexpr int64_t kRows = 4;
  const auto dots = half_product_table().dots[LZ_FLOAT32];
  const double price = double(kRows) * double(p.k) * (0.3 + 0.02 * double(job.rows));
  std::atomic<bool> exhausted{false};
  parallel(call, (p.n + kRows - 1) / kRows, price, [&](int64_t begin, int64_t end) {
    const auto buffer = borrow(kRows * p.k + 2 * (p.groups + kScalePad), exhausted);
    if (!buffer) return;
    float *scales = buffer.get(), *biases = scales + p.groups + kScalePad,
          *rows = biases + p.groups + kScalePad;
    for (int64_t row = begin * kRows; row < std::min(p.n, end * kRows); row += kRows) {
      const int64_t count = std::min(kRows, p.n - row);
      for (int64_t r = 0; r < count; r++) {
        p.read_scales(job, row + r, 0, p.groups, scales, biases);
        quantized_table().expand(job.words + (row + r) * p.stride, p.k, p.format, scales,
                                 job.biases ? biases : nullptr, rows + r * p.k);
      }
      dots(rows, p.k, count, p.k, p.x + job.first * p.k, p.k, job.rows, p.y + job.first * p.n + row, p.n);
    }
  });
  require(call, !exhausted, "out of memory");
}

// y += x[:, at : at + k] times a panel of floats, which holds columns of y as rows when `transposed`.
void times_panel(const PackedProduct& p, const PackedJob& job, bool transposed, int64_t at, int64_t k,
                 int64_t column, int64_t n, const float* panel, int64_t ld) {
  const float* x = p.x + job.first * p.k + at;
  float* y = p.y + job.first * p.n + column;
  const float beta = at > 0 ? 1 : 0;
  if (job.rows == 1)
    blas::gemv(!transposed, transposed ? n : k, transposed ? k : n, 1.0f, panel, ld, x, 1, beta, y, 1);
  else
    gemm({{x, LZ_FLOAT32, false, p.k}, {panel, LZ_FLOAT32, transposed, ld}, job.rows, n, k, 1, beta, y, p.n});
}

// y = x Wᵀ through panels of kTall rows of W, or y = x W through panels of kWide of its columns and kFlat
// rows.
void by_panels(const lz_call& call, const PackedProduct& p, const PackedJob& job) {
  constexpr int64_t kTall = 128, kLong = 512, kWide = 512, kFlat = 64;
  const int64_t columns = p.transpose ? kTall : kWide, depth = p.transpose ? kLong : kFlat;
  const int64_t tasks = (p.n + columns - 1) / columns;
  const double price = double(columns) *
                       (double(p.k) * (0.2 + 0.02 * double(job.rows)) + p.epilogue.cost() * double(job.rows));
  std::atomic<bool> exhausted{false};
  parallel(call, tasks, price, [&](int64_t begin, int64_t end) {
    const auto buffer = borrow(columns * depth, exhausted);
    if (!buffer) return;
    float *panel = buffer.get(), scales[kLong / 16 + kScalePad], biases[kLong / 16 + kScalePad];
    const auto unpack = [&](int64_t row, int64_t column, int64_t count, float* to) {
      p.read_scales(job, row, column / p.format.group, count / p.format.group, scales, biases);
      quantized_table().expand(job.words + row * p.stride + column * p.format.bits / 32, count, p.format,
                               scales, job.biases ? biases : nullptr, to);
    };
    for (int64_t task = begin; task < end; task++) {
      const int64_t column = task * columns, n = std::min(columns, p.n - column);
      for (int64_t at = 0; at < p.k; at += depth) {
        const int64_t k = std::min(depth, p.k - at);
        if (p.transpose) {
          for (int64_t row = 0; row < n; row++) unpack(column + row, at, k, panel + row * k);
        } else {
          for (int64_t row = 0; row < k; row++) unpack(at + row, column, n, panel + row * n);
        }
        times_panel(p, job, p.transpose, at, k, column, n, panel, p.transpose ? k : n);
      }
      p.epilogue(job.first, job.rows, column, n);
    }
  });
  require(call, !exhausted, "out of memory");
}

enum class Way { few, some, panels, tiles, bytes };

Way way_of(const PackedProduct& p, const PackedJob& job) {
  constexpr int64_t kLeastTile = 4;
  if (job.rows >= kLeastTile && has_byte_tiles(p)) return Way::bytes;
  // Codes that cross words are unpacked, for each row of x.
  const bool multiplied = 32 % p.format.bits == 0 || quantized_table().takes_bytes(p.format);
  const bool few = p.transpose && job.rows <= (multiplied ? kFewRows : 1);
  if (few) return Way::few;
  if (gemm_is_own()) return Way::tiles;
  return !p.transpose || job.rows > kSomeRows ? Way::panels : Way::some;
}

void multiply(const lz_call& call, const PackedProduct& p) {
  for (const PackedJob& job : p.jobs) {
    FewRows alone{&p, &job};
    switch (way_of(p, job)) {
      case Way::few:
        few_rows(call, {&alone, 1});
        break;
      case Way::some:
        some_rows(call, p, job);
        break;
      case Way::panels:
        by_panels(call, p, job);
        break;
      case Way::tiles:
        packed_tiles(call, p, job);
        break;
      case Way::bytes:
        byte_tiles(call, p, job);
    }
  }
}

// Checks x [..., M, K], w, scales and biases against each other and the result, and reads what products need.
PackedProduct read_product(const lz_call& call, const char* op, int indices, Source& w, Source& scales,
                           Source& biases) {
  PackedProduct p{};
  p.op = op;
  static_assert(std::is_same_v<params::GatherQmm, params::QuantizedMatmul>);
  const params::QuantizedMatmul params(call);
  p.transpose = params.transpose;
  p.format = read_format(call, op, params);
  p.rounded = params.activations == params::QuantizedMatmul::Activations::int8;
  const bool affine = p.format.mode == kAffine;
  require_counts(call, op, 3 + affine + indices, 1);
  const lz_operand &x = call.in[0], &y = call.out[0];
  const int nd = x.ndim;
  bool fits = nd >= 2 && y.dtype == x.dtype && call.in[1].dtype == LZ_UINT32;
  for (int i = 1; i < 3 + affine && fits; i++) {
    fits = call.in[i].ndim == nd;
    for (int d = 0; d < nd - 1 && fits; d++) fits = call.in[i].shape[d] == call.in[1].shape[d];
  }
  require(call, fits, "[%s] the shapes or dtypes of the operands do not fit", op);
  if (x.dtype != LZ_FLOAT32 && half_table().widen[x.dtype] == nullptr) fail_dtype(call, op, x.dtype);
  const int64_t words = w.shape[nd - 1], rows = w.shape[nd - 2];
  p.columns = words * 32 / p.format.bits;
  p.groups = p.columns / p.format.group;
  p.dtype = p.out_dtype = y.dtype;
  p.k = p.transpose ? p.columns : rows;
  p.n = p.transpose ? rows : p.columns;
  fits = words * 32 == p.columns * p.format.bits && p.groups * p.format.group == p.columns &&
         x.shape[nd - 1] == p.k && y.ndim >= 2 && y.shape[y.ndim - 1] == p.n &&
         y.shape[y.ndim - 2] == x.shape[nd - 2] && call.in[2].shape[nd - 1] == p.groups &&
         std::max({p.k, p.n, x.shape[nd - 2]}) <= INT32_MAX && (!p.rounded || p.k % kRoundedBlock == 0);
  fits = fits && call.in[2].dtype == (affine ? x.dtype : int32_t(LZ_UINT8)) &&
         (!affine || (call.in[3].shape[nd - 1] == p.groups && call.in[3].dtype == x.dtype));
  require(call, fits, "[%s] the shapes or dtypes of the operands do not fit", op);
  w = matrices(call, call.in[1]);
  scales = matrices(call, call.in[2]);
  p.stride = w.strides[nd - 2];
  p.scale_stride = scales.strides[nd - 2];
  p.scale = {static_cast<const char*>(scales.data), scales.dtype, p.format.mode};
  if (affine) {
    biases = matrices(call, call.in[3]);
    p.bias_stride = biases.strides[nd - 2];
    p.bias = {static_cast<const char*>(biases.data), biases.dtype, p.format.mode};
  }
  return p;
}

// The packed matrix at offsets into words, scales and biases.
PackedJob job_at(const PackedProduct& p, const Source& w, int64_t words, int64_t scales, int64_t biases,
                 int64_t first, int64_t rows) {
  return {static_cast<const uint32_t*>(w.data) + words, p.scale.data + scales * itemsize(p.scale.dtype),
          p.bias.data ? p.bias.data + biases * itemsize(p.bias.dtype) : nullptr, first, rows};
}

// Rows of x in float32, rounded if the product asks for that.
const float* float_rows(const lz_call& call, const PackedProduct& p, const void* rows, int64_t count) {
  const auto widen = half_table().widen[p.out_dtype];
  if (!widen && !p.rounded) return static_cast<const float*>(rows);
  float* wide = scratch<float>(call, count);
  constexpr int64_t kEach = 1 << 14;
  parallel(call, (count + kEach - 1) / kEach, (p.rounded ? 0.2 : 0.1) * kEach,
           [&](int64_t begin, int64_t end) {
             const int64_t first = begin * kEach, n = std::min(count, end * kEach) - first;
             const float* from = wide + first;
             if (widen)
               widen(static_cast<const char*>(rows) + 2 * first, wide + first, n);
             else
               from = static_cast<const float*>(rows) + first;
             if (p.rounded) byte_tile_table().round(from, n, wide + first);
           });
  return wide;
}

// The product, computed in the result itself or in scratch to be narrowed. `rows` follow each other.
void finish(const lz_call& call, PackedProduct& p, const void* rows, int64_t count) {
  const lz_operand& y = call.out[0];
  const auto narrow = half_table().narrow[y.dtype];
  const auto all = [&](auto... ways) {
    return p.k > 0 && std::all_of(p.jobs.begin(), p.jobs.end(), [&](const PackedJob& job) {
             const Way way = way_of(p, job);
             return ((way == ways) || ...);
           });
  };
  const bool parts = all(Way::tiles, Way::bytes, Way::few), panels = !narrow && all(Way::panels);
  const Epilogue epilogue{narrow || parts || panels ? take_pieces(call) : nullptr};
  p.rows = rows;
  if (!all(Way::few) && (p.rounded || !all(Way::tiles))) {
    p.x = float_rows(call, p, rows, count);
    if (p.rounded) p.rows = p.x, p.dtype = LZ_FLOAT32;
  }
  if (parts) p.out = y.data;
  if (parts || panels) p.epilogue = epilogue;
  if (!narrow)
    p.y = data<float>(y);
  else if (!all(Way::tiles) && !(p.rounded && all(Way::bytes)))
    p.y = scratch<float>(call, y.size);
  if (p.k == 0)
    std::fill_n(p.y, y.size, 0.0f);
  else
    multiply(call, p);
  if (narrow && !parts) narrow_rows(call, p.y, epilogue);
}

// A call of quantizedMatmul with its operands.
struct MatmulCall {
  const lz_call& call;
  Source w, scales, biases;
  PackedProduct p;

  explicit MatmulCall(const lz_call& c) : call(c), w(c.in[1]), scales(c.in[2]), biases(c.in[2]) {
    constexpr const char* op = "quantizedMatmul";
    p = read_product(call, op, 0, w, scales, biases);
    const lz_operand &x = call.in[0], &y = call.out[0];
    bool fits = y.ndim == x.ndim;
    for (int d = 0; d < x.ndim - 2 && fits; d++) fits = x.shape[d] == w.shape[d] && y.shape[d] == x.shape[d];
    require(call, fits, "[%s] the leading axes differ", op);
    if (y.size == 0) return;
    const int64_t rows = x.shape[x.ndim - 2];
    Layout<3> batch;
    for (int d = 0; d < x.ndim - 2; d++)
      batch.push(x.shape[d], {w.strides[d], scales.strides[d], p.bias.data ? biases.strides[d] : 0});
    const int64_t count = batch.size();
    Cursor<3> at(batch, batch.ndim, 0);
    for (int64_t b = 0; b < count; b++, at.next())
      p.add(job_at(p, w, at.offset[0], at.offset[1], at.offset[2], b * rows, rows));
  }
  // True for a product of few rows with one matrix.
  bool is_few() const { return p.k > 0 && p.jobs.size() == 1 && way_of(p, p.jobs[0]) == Way::few; }
};

// Calls with the same few rows: these are arranged once, and all weights are one piece of work.
void multiply_together(const lz_call& call, std::span<const std::unique_ptr<MatmulCall>> all) {
  const lz_operand& x = call.in[0];
  const char* rows = contiguous<char>(call, x);
  std::vector<FewRows> products;
  for (const auto& each : all) {
    PackedProduct& p = each->p;
    const lz_operand& y = each->call.out[0];
    p.rows = rows;
    p.y = half_table().narrow[y.dtype] ? scratch<float>(call, y.size) : data<float>(y);
    p.out = y.data;
    products.push_back({&p, &p.jobs[0]});
  }
  few_rows(call, products);
}

void quantized_matmul(const lz_call& call) {
  require(call, call.n_in >= 3, "[quantizedMatmul] expected at least 3 inputs");
  std::vector<std::unique_ptr<MatmulCall>> all;
  all.push_back(std::make_unique<MatmulCall>(call));
  MatmulCall& first = *all[0];
  const auto others = companions(call);
  bool together = !others.empty() && first.is_few();
  for (size_t i = 0; i < others.size() && together; i++) {
    all.push_back(std::make_unique<MatmulCall>(others[i]));
    together = all.back()->is_few() && all.back()->p.scale.dtype == first.p.scale.dtype;
  }
  if (together) {
    take_companions(call);
    return multiply_together(call, all);
  }
  if (call.out[0].size > 0) finish(call, first.p, contiguous<char>(call, call.in[0]), call.in[0].size);
}

void gather_qmm(const lz_call& call) {
  constexpr const char* op = "gatherQmm";
  require(call, call.n_in >= 5, "[%s] expected at least 5 inputs", op);
  Source w(call.in[1]), scales(call.in[2]), biases(call.in[2]);
  PackedProduct p = read_product(call, op, 2, w, scales, biases);
  const lz_operand &x = call.in[0], &y = call.out[0], *lists = call.in + call.n_in - 2;
  require(call, x.ndim == 3 && y.ndim == 3 && y.shape[0] == lists[0].size && lists[0].size == lists[1].size,
          "[%s] the shapes of the operands do not fit", op);
  const auto lhs = read_indices(call, op, lists[0], x.shape[0]);
  const auto rhs = read_indices(call, op, lists[1], w.shape[0]);
  if (y.size == 0) return;
  const int64_t rows = x.shape[1], size = rows * p.k, count = y.shape[0], bytes = size * itemsize(x.dtype);
  const char* from = contiguous<char>(call, x);
  char* gathered = scratch<char>(call, count * bytes);
  for (int64_t i = 0; i < count; i++) {
    if (size > 0) std::memcpy(gathered + i * bytes, from + lhs[size_t(i)] * bytes, size_t(bytes));
    const int64_t r = rhs[size_t(i)];
    p.add(job_at(p, w, r * w.strides[0], r * scales.strides[0], p.bias.data ? r * biases.strides[0] : 0,
                 i * rows, rows));
  }
  finish(call, p, gathered, count * size);
}

}  // namespace

void register_quantized(Registry& registry) {
  constexpr uint32_t products = kFloatingDtypes & ~(1u << LZ_FLOAT64);
  registry.add("quantizedMatmul", entry<quantized_matmul>, products);
  registry.add("gatherQmm", entry<gather_qmm>, products);
}

}  // namespace lazuli
