// Scaled dot-product attention in blocks of queries and keys with an online softmax, so that the matrix of
// scores never exists, and its gradient, which forms each block of probabilities again from the log-sum-exp:
// Dao et al., "FlashAttention: fast and memory-efficient exact attention", 2022. Everything is computed in
// float32; other types are converted before and after.
//
// The forward pass divides blocks of queries among threads, the gradient heads of k and v: no two threads add
// to one number. For few queries there is attention_few.cc.
#include <cmath>
#include <cstring>

#include "kernels/attention.h"
#include "kernels/blas.h"
#include "kernels/families.h"
#include "kernels/gemm_tiles.h"
#include "kernels/source.h"
#include "simd/attention.h"
#include "simd/halves.h"

namespace lazuli {
namespace {

// Queries of a block, at most. The gradient keeps two blocks of scores in the caches, which are smaller.
constexpr int64_t kRows = 96, kGradientRows = 64, kColumns = kAttentionColumns;

struct Matrix {
  const float* data;
  int64_t ld;
  const float* row(int64_t i) const { return data + i * ld; }
};

// The matrix of one batch element and head.
Matrix matrix(const Source& x, int64_t b, int64_t h) {
  const int64_t ld = x.shape[2] == 1 ? x.shape[3] : x.strides[2];
  return {static_cast<const float*>(x.data) + b * x.strides[0] + h * x.strides[1], std::max<int64_t>(ld, 1)};
}

using Problem = AttentionProblem;

static_assert(std::is_same_v<params::ScaledDotProductAttentionVjp, params::ScaledDotProductAttention>);

Problem read_problem(const lz_call& call, const char* op, int after_extras, int outputs) {
  Problem p{};
  p.op = op;
  const params::ScaledDotProductAttention params(call);
  p.scale = float(params.scale);
  p.causal = params.causal;
  const bool has_mask = params.hasMask, has_sinks = params.hasSinks;
  require_counts(call, op, 3 + has_mask + has_sinks + after_extras, outputs + (outputs == 3 && has_sinks));
  const lz_operand &q = call.in[0], &k = call.in[1], &v = call.in[2];
  require(call, q.ndim == 4 && k.ndim == 4 && v.ndim == 4, "[%s] q, k and v must have 4 dimensions", op);
  if (half_table().widen[q.dtype] == nullptr && q.dtype != LZ_FLOAT32) fail_dtype(call, op, q.dtype);
  p.batch = q.shape[0], p.heads = q.shape[1], p.rows = q.shape[2], p.depth = q.shape[3];
  p.kv_heads = k.shape[1], p.columns = k.shape[2], p.width = v.shape[3];
  require(call,
          k.dtype == q.dtype && v.dtype == q.dtype && k.shape[0] == p.batch && v.shape[0] == p.batch &&
              k.shape[3] == p.depth && v.shape[1] == p.kv_heads && v.shape[2] == p.columns &&
              (p.heads == 0 || (p.kv_heads > 0 && p.heads % p.kv_heads == 0)) &&
              std::max({p.rows, p.columns, p.depth, p.width}) <= INT32_MAX,
          "[%s] the shapes or dtypes of q, k and v do not fit", op);
  if (has_sinks) {
    const lz_operand& sinks = call.in[3 + has_mask];
    require(
        call,
        sinks.ndim == 2 && sinks.shape[1] == p.heads && (sinks.shape[0] == 1 || sinks.shape[0] == p.batch),
        "[%s] the sinks' shape does not fit", op);
    if (half_table().widen[sinks.dtype] == nullptr && sinks.dtype != LZ_FLOAT32)
      fail_dtype(call, op, sinks.dtype);
    p.sinks = static_cast<const float*>(densify(call, float_rows(call, sinks), 0).data);
    p.sink_stride = sinks.shape[0] == 1 ? 0 : p.heads;
  }
  if (!has_mask) return p;
  const lz_operand& mask = call.in[3];
  const int64_t full[4] = {p.batch, p.heads, p.rows, p.columns};
  bool fits = mask.ndim <= 4;
  for (int d = 0; d < mask.ndim && fits; d++)
    fits = mask.shape[d] == 1 || mask.shape[d] == full[4 - mask.ndim + d];
  require(call, fits, "[%s] the mask does not broadcast to the shape of the scores", op);
  Source source(mask);
  if (mask.dtype == LZ_BOOL) {
    p.allowed = static_cast<const bool*>(source.data);
  } else {
    if (mask.dtype != LZ_FLOAT32 && half_table().widen[mask.dtype] == nullptr)
      fail_dtype(call, op, mask.dtype);
    if (mask.dtype != LZ_FLOAT32) source = float_rows(call, mask);
    p.additive = static_cast<const float*>(source.data);
  }
  for (int d = 0; d < mask.ndim; d++)
    p.mask_strides[4 - mask.ndim + d] = source.shape[d] == 1 ? 0 : source.strides[d];
  return p;
}

void multiply(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda,
              const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  gemm({{a, LZ_FLOAT32, ta, lda}, {b, LZ_FLOAT32, tb, ldb}, m, n, k, alpha, beta, c, ldc});
}

// Scores of rows [row, row + m) and columns [column, column + n): scale · q kᵀ, masked.
void scores(const Problem& p, const Matrix& q, const Matrix& k, int64_t b, int64_t h, int64_t row, int64_t m,
            int64_t column, int64_t n, float* to) {
  if (m == 1)
    blas::gemv(false, n, p.depth, p.scale, k.row(column), k.ld, q.row(row), 1, 0.0f, to, 1);
  else
    multiply(false, true, m, n, p.depth, p.scale, q.row(row), q.ld, k.row(column), k.ld, 0.0f, to, kColumns);
  for (int64_t i = 0; i < m; i++) p.mask(b, h, row + i, column, n, to + i * kColumns);
}

// to = a @ b (+ to), for a block of probabilities or gradients `a` with rows of kColumns.
void times(const float* a, int64_t m, int64_t n, int64_t k, const float* b, int64_t ldb, bool add, float* to,
           int64_t ld) {
  if (m == 1)
    blas::gemv(true, k, n, 1.0f, b, ldb, a, 1, add ? 1.0f : 0.0f, to, 1);
  else
    multiply(false, false, m, n, k, 1.0f, a, kColumns, b, ldb, add ? 1.0f : 0.0f, to, ld);
}

// Where a result is computed: in the output itself, or in scratch to be converted.
float* result(const lz_call& call, const lz_operand& y) {
  return y.dtype == LZ_FLOAT32 ? data<float>(y) : scratch<float>(call, y.size);
}

void finish(const lz_call& call, const lz_operand& y, const float* from) {
  if (y.dtype == LZ_FLOAT32) return;
  const auto narrow = half_table().narrow[y.dtype];
  parallel(call, y.size, 0.3,
           [&](int64_t begin, int64_t end) { narrow(from + begin, data<char>(y) + 2 * begin, end - begin); });
}

void attention(const lz_call& call) {
  const Problem p = read_problem(call, "scaledDotProductAttention", 0, 2);
  const lz_operand &o = call.out[0], &lse = call.out[1];
  require(call,
          o.size == p.batch * p.heads * p.rows * p.width && o.dtype == call.in[0].dtype &&
              lse.size == p.batch * p.heads * p.rows && lse.dtype == LZ_FLOAT32,
          "[%s] the outputs' shapes or dtypes do not fit", p.op);
  if (lse.size == 0) return;
  float* out = result(call, o);
  if (attention_of_few(call, p, out)) return finish(call, o, out);
  const Source q = float_rows(call, call.in[0]), k = float_rows(call, call.in[1]),
               v = float_rows(call, call.in[2]);
  // Whole tiles but for the last one's. How many heads there are changes no block, and so no rounding.
  const int64_t height = gemm_height();
  const int64_t rows = std::min(kRows, parts(even_part(p.rows, kRows), height) * height);
  const int64_t blocks = parts(p.rows, rows);
  const double price =
      double(std::min(p.rows, rows)) * double(p.columns) * (1.2 + 0.02 * double(p.depth + p.width));
  parallel(call, p.batch * p.heads * blocks, price, [&](int64_t begin, int64_t end) {
    const AttentionTable& table = attention_table();
    alignas(64) float block[kRows * kColumns];
    float max[kRows], sum[kRows], factor[kRows];
    for (int64_t item = begin; item < end; item++) {
      const int64_t head = item / blocks, b = head / p.heads, h = head % p.heads,
                    kv = h / (p.heads / p.kv_heads);
      const int64_t row = item % blocks * rows, m = std::min(rows, p.rows - row);
      const Matrix qm = matrix(q, b, h), km = matrix(k, b, kv), vm = matrix(v, b, kv);
      float* to = out + (head * p.rows + row) * p.width;
      std::fill_n(max, m, -INFINITY);
      std::fill_n(sum, m, 0.0f);
      const int64_t columns = p.visible(row + m);
      for (int64_t column = 0; column < columns; column += kColumns) {
        const int64_t n = std::min(kColumns, columns - column);
        scores(p, qm, km, b, h, row, m, column, n, block);
        table.online_softmax(block, m, n, kColumns, max, sum, factor);
        if (column > 0) table.scale_rows(to, m, p.width, p.width, factor);
        if (p.width > 0) times(block, m, p.width, n, vm.row(column), vm.ld, column > 0, to, p.width);
      }
      for (int64_t i = 0; i < m; i++)
        factor[i] = p.finish(b, h, max[i], sum[i], data<float>(lse) + head * p.rows + row + i);
      if (columns == 0)
        std::fill_n(to, m * p.width, 0.0f);
      else
        table.scale_rows(to, m, p.width, p.width, factor);
    }
  });
  finish(call, o, out);
}

void attention_vjp(const lz_call& call) {
  const Problem p = read_problem(call, "scaledDotProductAttentionVjp", 3, 3);
  const lz_operand* rest = call.in + call.n_in - 3;
  const lz_operand &dq = call.out[0], &dk = call.out[1], &dv = call.out[2];
  const int32_t dtype = call.in[0].dtype;
  const int64_t pairs = p.batch * p.heads;
  bool fits = rest[0].ndim == 4 && same_shape(rest[0], rest[2]) && rest[0].size == pairs * p.rows * p.width &&
              rest[1].size == pairs * p.rows;
  fits = fits && rest[0].dtype == dtype && rest[1].dtype == LZ_FLOAT32 && rest[2].dtype == dtype;
  for (int i = 0; i < 3; i++)
    fits = fits && call.out[i].size == call.in[i].size && call.out[i].dtype == dtype;
  if (p.sinks) {
    const lz_operand &x = call.in[call.n_in - 4], &y = call.out[3];
    fits = fits && same_shape(x, y) && y.dtype == x.dtype;
  }
  require(call, fits, "[%s] the shapes or dtypes of the operands do not fit", p.op);
  const Source q = float_rows(call, call.in[0]), k = float_rows(call, call.in[1]),
               v = float_rows(call, call.in[2]);
  const Source o = float_rows(call, rest[0]), g = float_rows(call, rest[2]);
  const float* lse = contiguous<float>(call, rest[1]);
  float *to_q = result(call, dq), *to_k = result(call, dk), *to_v = result(call, dv);
  float* to_sinks = p.sinks ? scratch<float>(call, pairs) : nullptr;
  if (to_sinks) std::fill_n(to_sinks, pairs, 0.0f);
  const int64_t group = p.kv_heads ? p.heads / p.kv_heads : 0;
  const double price =
      double(group) * double(p.rows) * double(p.columns) * (1.5 + 0.02 * double(3 * p.depth + 2 * p.width)) +
      100;
  parallel(call, p.batch * p.kv_heads, price, [&](int64_t begin, int64_t end) {
    const AttentionTable& table = attention_table();
    alignas(64) float block[kGradientRows * kColumns], gradient[kGradientRows * kColumns];
    float delta[kGradientRows];
    for (int64_t item = begin; item < end; item++) {
      const int64_t b = item / p.kv_heads, kv = item % p.kv_heads;
      const Matrix km = matrix(k, b, kv), vm = matrix(v, b, kv);
      float *key = to_k + item * p.columns * p.depth, *value = to_v + item * p.columns * p.width;
      std::fill_n(key, p.columns * p.depth, 0.0f);
      std::fill_n(value, p.columns * p.width, 0.0f);
      for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
        const Matrix qm = matrix(q, b, h), om = matrix(o, b, h), gm = matrix(g, b, h);
        const int64_t head = b * p.heads + h;
        for (int64_t row = 0; row < p.rows; row += kGradientRows) {
          const int64_t m = std::min(kGradientRows, p.rows - row), columns = p.visible(row + m);
          float* query = to_q + (head * p.rows + row) * p.depth;
          if (columns == 0 || p.width == 0 || p.depth == 0) {
            std::fill_n(query, m * p.depth, 0.0f);
            if (columns == 0 || p.width == 0) continue;
          }
          table.dot_rows(om.row(row), om.ld, gm.row(row), gm.ld, m, p.width, delta);
          if (to_sinks && p.sink(b, h) != -INFINITY)
            for (int64_t i = 0; i < m; i++)
              to_sinks[head] -= std::exp(p.sink(b, h) - lse[head * p.rows + row + i]) * delta[i];
          for (int64_t column = 0; column < columns; column += kColumns) {
            const int64_t n = std::min(kColumns, columns - column);
            scores(p, qm, km, b, h, row, m, column, n, block);
            table.probabilities(block, m, n, kColumns, lse + head * p.rows + row);
            multiply(true, false, n, p.width, m, 1.0f, block, kColumns, gm.row(row), gm.ld, 1.0f,
                     value + column * p.width, p.width);
            multiply(false, true, m, n, p.width, 1.0f, gm.row(row), gm.ld, vm.row(column), vm.ld, 0.0f,
                     gradient, kColumns);
            table.score_gradient(block, gradient, m, n, kColumns, delta, p.scale);
            if (p.depth == 0) continue;
            multiply(true, false, n, p.depth, m, 1.0f, gradient, kColumns, qm.row(row), qm.ld, 1.0f,
                     key + column * p.depth, p.depth);
            times(gradient, m, p.depth, n, km.row(column), km.ld, column > 0, query, p.depth);
          }
        }
      }
    }
  });
  if (to_sinks) {
    float* to = result(call, call.out[3]);
    std::fill_n(to, call.out[3].size, 0.0f);
    for (int64_t i = 0; i < pairs; i++) to[i / p.heads * p.sink_stride + i % p.heads] += to_sinks[i];
    finish(call, call.out[3], to);
  }
  finish(call, dq, to_q);
  finish(call, dk, to_k);
  finish(call, dv, to_v);
}

}  // namespace

void register_attention(Registry& registry) {
  constexpr uint32_t dtypes = kFloatingDtypes & ~(1u << LZ_FLOAT64);
  registry.add("scaledDotProductAttention", entry<attention>, dtypes);
  registry.add("scaledDotProductAttentionVjp", entry<attention_vjp>, dtypes);
}

}  // namespace lazuli
