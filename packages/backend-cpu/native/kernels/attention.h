// Shared by the kernels of scaled dot-product attention: the problem, read from a call, and its masks.
#ifndef LAZULI_KERNELS_ATTENTION_H
#define LAZULI_KERNELS_ATTENTION_H

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/call.h"

namespace lazuli {

// Columns whose scores are formed at a time.
inline constexpr int64_t kAttentionColumns = 128;

struct AttentionProblem {
  const char* op;
  int64_t batch, heads, kv_heads, rows, columns, depth, width;  // B, H, Hk, L, S, D, E
  float scale;
  bool causal;
  // Strides of the mask over [B, H, L, S]; at most one of the pointers is set.
  const bool* allowed = nullptr;
  const float* additive = nullptr;
  int64_t mask_strides[4] = {};
  // One more score of each head, without a value; rows of it for each batch element, or one for all.
  const float* sinks = nullptr;
  int64_t sink_stride = 0;

  // The number of columns that rows before `end` may see.
  int64_t visible(int64_t end) const {
    return causal ? std::clamp<int64_t>(end + columns - rows, 0, columns) : columns;
  }

  // Masks the scores of one row and columns [column, column + n).
  void mask(int64_t b, int64_t h, int64_t row, int64_t column, int64_t n, float* line) const {
    const auto* s = mask_strides;
    const int64_t at = b * s[0] + h * s[1] + row * s[2] + column * s[3];
    if (allowed) {
      // Usually the mask allows all of them: when decoding with a cache.
      const bool shows_all = s[3] == 1 && std::memchr(allowed + at, 0, size_t(n)) == nullptr;
      for (int64_t j = 0; j < n && !shows_all; j++) line[j] = allowed[at + j * s[3]] ? line[j] : -INFINITY;
    } else if (additive) {
      for (int64_t j = 0; j < n; j++) line[j] += additive[at + j * s[3]];
    }
    if (!causal) return;
    for (int64_t j = std::max<int64_t>(row + columns - rows + 1 - column, 0); j < n; j++) line[j] = -INFINITY;
  }

  // True if the mask hides columns [column, column + n) from all rows of `count` heads starting at h. This
  // happens when a cache is preallocated: its unused end is masked.
  bool hides(int64_t b, int64_t h, int64_t count, int64_t column, int64_t n) const {
    if (!allowed) return false;
    const auto* s = mask_strides;
    for (int64_t i = 0; i < (s[1] == 0 ? 1 : count); i++) {
      for (int64_t row = 0; row < (s[2] == 0 ? 1 : rows); row++) {
        const bool* line = allowed + b * s[0] + (h + i) * s[1] + row * s[2] + column * s[3];
        for (int64_t j = 0; j < n; j++)
          if (line[j * s[3]]) return false;
      }
    }
    return true;
  }

  float sink(int64_t b, int64_t h) const { return sinks[b * sink_stride + h]; }

  // The factor of a row's sums, whose exponentials were of scores less `max` and have this `sum`, and the
  // row's log-sum-exp. A row that sees nothing has sum 0: its output is 0 and its log-sum-exp −∞, or the
  // sink.
  float finish(int64_t b, int64_t h, float max, float sum, float* lse) const {
    if (sinks == nullptr) {
      *lse = sum == 0 ? -INFINITY : max + std::log(sum);
      return sum == 0 ? 0 : 1 / sum;
    }
    const float own = sink(b, h), top = sum == 0 ? own : std::max(max, own);
    if (sum == 0 || top == -INFINITY) {
      *lse = own;
      return 0;
    }
    const float weight = std::exp(max - top), total = sum * weight + std::exp(own - top);
    *lse = top + std::log(total);
    return weight / total;
  }
};

// The output, as float32 in `out`, and the log-sum-exp of a call with few queries a head of k and v, whose
// elements are read once, where they lie and in their own type. False, with nothing done, for other calls.
bool attention_of_few(const lz_call& call, const AttentionProblem& p, float* out);

}  // namespace lazuli

#endif
