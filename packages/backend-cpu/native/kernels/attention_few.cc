// Attention of few queries, as in generating text: memory is what it waits for. All queries that share a head
// of k and v meet its columns together, which are cut into parts by the problem's size alone; their results
// are joined in order.
#include <cmath>

#include "kernels/attention.h"
#include "kernels/source.h"
#include "simd/attention.h"
#include "simd/half_products.h"
#include "simd/halves.h"

namespace lazuli {
namespace {

constexpr int64_t kMostQueries = 16, kPart = 1024;

struct Rows {
  const char* data;
  int64_t strides[3];  // in bytes: of batch, head and row
  Rows(const Source& x) : data(static_cast<const char*>(x.data)) {
    for (int d = 0; d < 3; d++) strides[d] = x.shape[d] == 1 ? 0 : x.strides[d] * itemsize(x.dtype);
  }
  const char* at(int64_t b, int64_t h, int64_t row) const {
    return data + b * strides[0] + h * strides[1] + row * strides[2];
  }
};

// An operand whose rows' elements follow each other, or a copy: its layout must not choose the algorithm,
// whose order of summation is its own.
Source in_rows(const lz_call& call, const lz_operand& operand) {
  Source x(operand);
  if (x.strides[3] == 1 || x.shape[3] == 1) return x;
  x.data = packed(call, operand);
  row_major(x.shape, x.ndim, x.strides);
  return x;
}

}  // namespace

bool attention_of_few(const lz_call& call, const AttentionProblem& p, float* out) {
  const int64_t group = p.kv_heads > 0 ? p.heads / p.kv_heads : 0, queries = group * p.rows;
  if (queries == 0 || queries > kMostQueries || p.depth == 0 || p.width == 0) return false;
  const int64_t columns = p.visible(p.rows), parts = std::max<int64_t>((columns + kPart - 1) / kPart, 1);
  if (columns == 0) return false;
  const Source k = in_rows(call, call.in[1]), v = in_rows(call, call.in[2]);
  const Source q = densify(call, Source(call.in[0]), 0);
  const int32_t dtype = k.dtype;
  const HalfProductTable& products = half_product_table();
  const AttentionTable& table = attention_table();
  const int64_t size = p.width + 2, k_size = itemsize(dtype);
  const Rows keys(k), values(v);
  const int64_t k_row = p.columns == 1 ? p.depth : k.strides[2],
                v_row = p.columns == 1 ? p.width : v.strides[2];
  // Of every query of every part: the sums, then the maximum and the sum of exponentials.
  const int64_t heads = p.batch * p.kv_heads;
  float* partial = scratch<float>(call, heads * parts * queries * size);
  const double price = double(std::min(columns, kPart)) * double(p.depth + p.width) *
                           (0.03 * double(k_size) + 0.03 * double(queries)) +
                       500;
  parallel(call, heads * parts, price, [&](int64_t begin, int64_t end) {
    alignas(64) float block[kMostQueries * kAttentionColumns];
    float max[kMostQueries], sum[kMostQueries], factor[kMostQueries];
    for (int64_t item = begin; item < end; item++) {
      const int64_t head = item / parts, b = head / p.kv_heads, kv = head % p.kv_heads;
      const int64_t first = item % parts * kPart, last = std::min(first + kPart, columns);
      float* to = partial + item * queries * size;
      // Queries of a group of heads follow each other.
      const auto* x = static_cast<const float*>(q.data) + (b * p.heads + kv * group) * p.rows * p.depth;
      std::fill_n(to, queries * size, 0.0f);
      std::fill_n(max, queries, -INFINITY);
      std::fill_n(sum, queries, 0.0f);
      for (int64_t column = first; column < last; column += kAttentionColumns) {
        const int64_t n = std::min(kAttentionColumns, last - column);
        if (p.hides(b, kv * group, group, column, n)) continue;
        products.dots[dtype](keys.at(b, kv, column), k_row, n, p.depth, x, p.depth, queries, block,
                             kAttentionColumns);
        for (int64_t i = 0; i < queries; i++) {
          float* line = block + i * kAttentionColumns;
          for (int64_t j = 0; j < n; j++) line[j] *= p.scale;
          p.mask(b, kv * group + i / p.rows, i % p.rows, column, n, line);
        }
        table.online_softmax(block, queries, n, kAttentionColumns, max, sum, factor);
        if (column > first) table.scale_rows(to, queries, p.width, size, factor);
        products.add_rows[dtype](values.at(b, kv, column), v_row, n, p.width, block, kAttentionColumns,
                                 queries, to, size);
      }
      for (int64_t i = 0; i < queries; i++)
        to[i * size + p.width] = max[i], to[i * size + p.width + 1] = sum[i];
    }
  });
  auto* lse = data<float>(call.out[1]);
  const double join = double(parts * size) * 0.5;
  parallel(call, heads * queries, join, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; at++) {
      const float* from = partial + (at / queries * parts * queries + at % queries) * size;
      const int64_t step = queries * size;
      float *to = out + at * p.width, most = -INFINITY, sum = 0;
      for (int64_t i = 0; i < parts; i++) most = std::max(most, from[i * step + p.width]);
      std::fill_n(to, p.width, 0.0f);
      for (int64_t i = 0; i < parts; i++) {
        const float *part = from + i * step, seen = part[p.width];
        if (part[p.width + 1] == 0) continue;  // nothing of it is seen
        const float weight = std::exp(seen - most);
        sum += weight * part[p.width + 1];
        for (int64_t j = 0; j < p.width; j++) to[j] += weight * part[j];
      }
      const int64_t head = at / p.rows;
      const float factor = p.finish(head / p.heads, head % p.heads, most, sum, lse + at);
      for (int64_t j = 0; j < p.width; j++) to[j] *= factor;
    }
  });
  return true;
}

}  // namespace lazuli
