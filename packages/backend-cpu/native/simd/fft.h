// Discrete Fourier transforms of several lines at once, one line a SIMD lane, and the passes that turn the
// transform of a half into that of real numbers. Plans and the walk over arrays are in kernels/fft.cc.
#ifndef LAZULI_SIMD_FFT_H
#define LAZULI_SIMD_FFT_H

#include <stdint.h>

#include "simd/targets.h"

namespace lazuli {

inline constexpr int kFftStages = 40;  // a length below 2^63 has fewer factors
// Numbers between the two buffers of work: at a power of 2 apart, equal indices look like a dependency to the
// processor.
inline constexpr int kFftGap = 5;
inline constexpr int kFftLargestRadix = 31;  // lengths with a larger prime factor go by way of a convolution

// The plan of one length, with tables that someone else owns. Complex numbers in tables are (re, im) pairs.
template <class T>
struct FftLine {
  int64_t n = 1;
  int stages = 0;
  int radix[kFftStages] = {};
  // For each stage, with m = (length left) / radix: w^(p·k), w of order radix·m, for p < m and 0 < k < radix;
  // for the radices without a butterfly of their own also cosines and sines of 2πj/radix, j < radix.
  const T* twiddles[kFftStages] = {};
  const T* roots[kFftStages] = {};
  // Bluestein's algorithm: y[k] = c[k] · Σ x[j] c[j] · conj(c[k−j]) with c[k] = exp(−πi k²/n), a convolution
  // of length `inner->n`; `filter` is the transform of conj(c), divided by that length.
  const FftLine* inner = nullptr;
  const T* chirp = nullptr;
  const T* filter = nullptr;

  int64_t length() const { return inner ? inner->n : n; }
};

// Where lines lie, counted in T: element i of lane l at offsets[l] + i·step, two T a number.
template <class T>
struct FftSide {
  T* data;
  const int64_t* offsets;
  int64_t step;
  bool columns;  // offsets are consecutive numbers
  bool swap;     // real and imaginary parts change places: on both sides, that makes the inverse transform
};

template <class T>
struct FftTable {
  int64_t lanes;
  // Transforms `count` lines, at most `lanes`. The result is multiplied by `twist` (where given: n × (re, im)
  // vectors of lanes) and by `scale`. `work`: (4 · length + 2 · kFftGap) · lanes values, aligned. In place is
  // allowed.
  void (*lines)(const FftLine<T>& plan, const FftSide<const T>& in, const FftSide<T>& out, int64_t count,
                T scale, const T* twist, T* work);
  // From the transform z of h pairs of real numbers, in place the h + 1 numbers of the real transform. `w`:
  // exp(−πik/h) for k ≤ h/2, real parts first, then imaginary ones.
  void (*unpack)(T* z, int64_t h, const T* w, T scale);
  // The way back, up to a factor 2h: from h + 1 numbers the h whose inverse transform are the pairs.
  void (*pack)(const T* x, T* z, int64_t h, const T* w);
  // y[j·y_step + i] = x[i·x_step + j] for i < rows and j < columns.
  void (*transpose)(const T* x, int64_t x_step, T* y, int64_t y_step, int64_t rows, int64_t columns);
  // y = x·a of complex numbers; y may be x.
  void (*multiply)(const T* x, const T* a, T* y, int64_t n);
};

struct FftTables {
  FftTable<float> f32;
  FftTable<double> f64;
};

LZ_SIMD_TABLE(FftTables, fft_tables)

inline const FftTable<float>& fft_table(float) { return fft_tables().f32; }
inline const FftTable<double>& fft_table(double) { return fft_tables().f64; }

}  // namespace lazuli

#endif
