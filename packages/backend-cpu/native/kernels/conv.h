// A convolution as its algorithms see it: one problem of at most three spatial axes, in float or double, with
// strides for everything. conv.cc makes problems out of calls and chooses; each algorithm is a file.
#ifndef LAZULI_KERNELS_CONV_H
#define LAZULI_KERNELS_CONV_H

#include <memory>
#include <vector>

#include "kernels/leases.h"
#include "simd/conv.h"

namespace lazuli::conv {

// Output position o, kernel position k and input position i meet where i · input_dilation = o · stride + k ·
// kernel_dilation − low. `x_step` and its like are strides in memory, in elements.
struct Axis {
  int64_t in = 1, kernel = 1, out = 1;
  int64_t stride = 1, low = 0, kernel_dilation = 1, input_dilation = 1;
  int64_t x_step = 0, w_step = 0, y_step = 0;
};

inline constexpr int kAxes = 3;

template <class T>
struct Problem {
  const T *x, *w;
  T* y;
  int64_t batch, groups, channels, outputs;  // channels and outputs of one group
  int64_t x_batch, x_channel, w_output, w_channel, y_batch;
  Axis axes[kAxes];
  bool add;  // to what y holds

  int64_t output_positions() const { return axes[0].out * axes[1].out * axes[2].out; }
  // True if every channel is a group of its own.
  bool unmixed() const { return groups > 1 && channels == 1 && outputs == 1; }
};

template <class T>
const ConvLoops<T>& loops() {
  if constexpr (std::is_same_v<T, float>)
    return conv_table().f32;
  else
    return conv_table().f64;
}

// Nanoseconds of a multiplication and addition.
template <class T>
inline constexpr double kPrice = sizeof(T) == 4 ? 0.02 : 0.04;

// Bytes that leave the second cache room for something else.
inline constexpr int64_t kCache = 384 << 10;

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The cut of a group's output channels into panels of one or two vectors.
struct Columns {
  int64_t outputs, lanes, narrow;
  int64_t panels() const { return ceil_div(outputs, 2 * lanes); }
  int64_t begin(int64_t panel) const { return panel * 2 * lanes; }
  int64_t count(int64_t panel) const { return std::min(2 * lanes, outputs - begin(panel)); }
  int64_t width(int64_t panel) const {
    return count(panel) > lanes ? 2 * lanes : count(panel) > narrow ? lanes : narrow;
  }
  int64_t padded() const { return begin(panels() - 1) + width(panels() - 1); }
};

// The weights of one position of the kernel, w[output][channel], as n rows of `width` outputs: zeros behind
// the `used` ones.
template <class T>
void pack_tap(const Problem<T>& p, const T* w, int64_t used, int64_t n, int64_t width, T* to) {
  // The side that is contiguous in memory runs innermost.
  if (p.w_output == 1) {
    for (int64_t i = 0; i < n; i++) std::copy_n(w + i * p.w_channel, used, to + i * width);
  } else if (p.w_channel == 1) {
    loops<T>().transpose(w, p.w_output, used, n, to, width);
  } else {
    for (int64_t j = 0; j < used; j++) {
      for (int64_t i = 0; i < n; i++) to[i * width + j] = w[j * p.w_output + i * p.w_channel];
    }
  }
  for (int64_t i = 0; i < n; i++) std::fill(to + i * width + used, to + (i + 1) * width, T(0));
}

// Outputs whose positions differ by a multiple of `step` meet the same kernel positions.
struct Tap {
  int64_t kernel, offset;  // input position = offset + t · stride
};
struct Phase {
  int64_t first, step, count, stride;  // outputs first + t · step for t < count
  std::vector<Tap> taps;
  int64_t lowest() const {
    int64_t least = taps[0].offset;
    for (const Tap& tap : taps) least = std::min(least, tap.offset);
    return least;
  }
  int64_t highest() const {
    int64_t most = taps[0].offset;
    for (const Tap& tap : taps) most = std::max(most, tap.offset);
    return most;
  }
};
std::vector<Phase> phases_of(const Axis& axis);

// Calls f for every combination of the axes' phases; where one has no taps nothing meets, and y is set to 0
// unless it is added to.
template <class T, class F>
void for_phases(const lz_call& call, const Problem<T>& p, F f) {
  const std::vector<Phase> phases[] = {phases_of(p.axes[0]), phases_of(p.axes[1]), phases_of(p.axes[2])};
  for (const Phase& a : phases[0]) {
    for (const Phase& b : phases[1]) {
      for (const Phase& c : phases[2]) f(a, b, c);
    }
  }
}

// Sums over the channels of a group: tiles of pixels × output channels.
template <class T>
void by_tiles(const lz_call& call, const Problem<T>& p);
// Kernels of 3 × 3 with stride 1, where it is quicker than tiles.
bool suits_winograd(const Problem<float>& p);
void by_winograd(const lz_call& call, const Problem<float>& p);
// One channel and one output a group: vectors of channels. x and w have channels in a row.
template <class T>
void by_lanes(const lz_call& call, const Problem<T>& p);
// Long sums for few output positions, as gradients by weights are. x has its batch in a row and w its
// outputs; of one image whose channels do not mix, x and w have channels in a row.
template <class T>
void by_sums(const lz_call& call, const Problem<T>& p);

}  // namespace lazuli::conv

#endif
