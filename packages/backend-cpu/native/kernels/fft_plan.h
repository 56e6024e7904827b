// Plans of discrete Fourier transforms: how a length is cut into what simd/fft.h does in lanes, with the
// tables that this needs. Plans are shared by all threads and kept in a bounded cache.
#ifndef LAZULI_KERNELS_FFT_PLAN_H
#define LAZULI_KERNELS_FFT_PLAN_H

#include <functional>
#include <memory>
#include <vector>

#include "simd/fft.h"

namespace lazuli {

// A transform in lanes, with its tables.
template <class T>
class FftLinePlan {
 public:
  explicit FftLinePlan(int64_t n);
  const FftLine<T>& line() const { return line_; }
  size_t bytes() const;

 private:
  const T* keep(std::vector<T> table);
  FftLine<T> line_;
  std::unique_ptr<FftLinePlan> inner_;
  std::vector<std::vector<T>> tables_;
};

// Threads for the parts of one line: f(begin, end, work) over [0, n), at `cost` nanoseconds a part.
template <class T>
using FftCrew =
    std::function<void(int64_t n, double cost, const std::function<void(int64_t, int64_t, T* work)>& f)>;

// A transform of n numbers, by one of three ways:
//   lines        as many lines at once as there are lanes;
//   split        n = rows · columns, a line at a time: lanes are the columns, then, after a transposition of
//   each number, the rows
//                (the four-step algorithm: Bailey, "FFTs in external or hierarchical memory", 1990);
//   convolution  a line at a time by Bluestein's algorithm, for lengths that do not split.
template <class T>
class FftPlan {
 public:
  enum class Way { lines, split, convolution };
  FftPlan(int64_t n, Way way);

  // Lines for one call of run(), values of aligned `work` it takes, those of them that each member of a crew
  // has to have, and nanoseconds it takes, roughly.
  int64_t block() const;
  int64_t work() const;
  int64_t crew_work() const;
  double cost() const { return cost_; }
  size_t bytes() const;

  // Transforms `count` lines, at most block(). In place is allowed. A crew is of use for single long lines.
  void run(const FftSide<const T>& in, const FftSide<T>& out, int64_t count, T scale, T* work,
           const FftCrew<T>* crew = nullptr) const;

 private:
  void run_split(const FftSide<const T>& in, const FftSide<T>& out, T scale, T* work,
                 const FftCrew<T>* crew) const;
  void run_convolution(const FftSide<const T>& in, const FftSide<T>& out, T scale, T* work,
                       const FftCrew<T>* crew) const;
  int64_t n_;
  Way way_;
  double cost_;
  std::unique_ptr<FftLinePlan<T>> first_, second_;  // lines: first; split: of length rows, of length columns
  std::vector<T> twist_;                  // split: by block of lanes columns, rows × (re, im) vectors
  std::shared_ptr<const FftPlan> inner_;  // convolution
  std::vector<T> chirp_, filter_;
};

// The plan for `count` lines of length n; `scattered` when the numbers of a line lie apart.
template <class T>
std::shared_ptr<const FftPlan<T>> fft_plan(int64_t n, int64_t count, bool scattered = false);

// exp(−πik/h) for k ≤ h/2, real parts first, then imaginary ones: what unpack() and pack() take.
template <class T>
std::shared_ptr<const std::vector<T>> fft_half_roots(int64_t h);

}  // namespace lazuli

#endif
