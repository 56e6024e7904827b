// The inner loops of convolutions: tiles of output elements that stay in registers while a sum runs. Which
// elements meet is the caller's business; here are pointers, steps and counts.
#ifndef LAZULI_SIMD_CONV_H
#define LAZULI_SIMD_CONV_H

#include <stdint.h>

#include "simd/targets.h"

namespace lazuli {

// rows × columns outputs. Row r is y[r] + column and sums over runs of consecutive input elements, each of
// which meets a row of weights:
//   y[r][column + j] (+)= Σ_t Σ_i x[r][offsets[t] + i] · w[(t · length + i) · width + j]
// with width the least of narrow, lanes and 2 · lanes that holds the columns. The rest of w's rows is
// padding. The `next` pointers behind the rows' own are where the rows of the next tile begin, to be fetched
// by the way.
template <class T>
struct ConvTile {
  const T* const* x;
  T* const* y;
  const int64_t* offsets;
  const T* w;
  int64_t taps, length, column;
  int32_t rows, columns, next;
  bool add;
};

// A run of pairs that meet: a and b advance by the steps of the call.
template <class T>
struct ConvRun {
  const T *a, *b;
  int64_t count;
};

// rows × columns outputs as a sum of outer products:
//   y[r · y_step + j] += Σ_runs Σ_t a[t · a_step + r] · b[t · b_step + j]
// b can be read for a whole vector of columns, or two.
template <class T>
struct ConvOuter {
  const ConvRun<T>* runs;
  int64_t n_runs, a_step, b_step;
  T* y;
  int64_t y_step;
  int32_t rows, columns;
};

// Channels that do not mix, for a row of pixels:
//   y[p · y_step + c] (+)= Σ_t Σ_{r < run} x[(p + r) · x_step + x_offsets[t] + c] · w[w_offsets[t] + r ·
//   channels + c]
// without the p + r below low and from high on, of which there may be some where edges() allows it.
template <class T>
struct ConvLanes {
  const T* x;
  const T* w;
  T* y;
  const int64_t *x_offsets, *w_offsets;
  int64_t taps, run, pixels, channels, x_step, y_step, low, high;
  bool add;
};

// Channels that do not mix, summed for up to three taps that meet the same b:
//   y[k · y_step + c] += Σ_runs Σ_t a[t · a_step + offsets[k] + c] · b[t · b_step + c]
template <class T>
struct ConvDots {
  const ConvRun<T>* runs;
  int64_t n_runs, a_step, b_step;
  const int64_t* offsets;
  T* y;
  int64_t y_step, channels;
  int32_t taps;
};

template <class T>
struct ConvLoops {
  int32_t tile_rows, outer_rows, lanes;  // at most, and of a vector
  int32_t narrow;                        // the lanes of a vector for few columns
  // to[i · to_step + j] = from[j · from_step + i] for i < n, j < rows
  void (*transpose)(const T* from, int64_t from_step, int64_t rows, int64_t n, T* to, int64_t to_step);
  void (*tile)(const ConvTile<T>&);
  void (*outer)(const ConvOuter<T>&);
  void (*lanewise)(const ConvLanes<T>&);
  bool (*edges)(const ConvLanes<T>&);
  void (*dots)(const ConvDots<T>&);
};

struct ConvTable {
  ConvLoops<float> f32;
  ConvLoops<double> f64;
};

LZ_SIMD_TABLE(ConvTable, conv_table)

}  // namespace lazuli

#endif
