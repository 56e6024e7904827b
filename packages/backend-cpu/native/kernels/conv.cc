// conv: a kernel slides over the spatial axes of [batch, …, channels]. Calls become problems of three axes:
// axes that do nothing go, neighbours that act as one are merged, a flipped kernel is one with negative
// steps, the half types are computed in float32. Then the shapes choose one of three algorithms.
#include "kernels/conv.h"

#include <cstdlib>
#include <cstring>

#include "kernels/families.h"
#include "kernels/gemm.h"
#include "kernels/source.h"
#include "simd/halves.h"

namespace lazuli {
namespace conv {
namespace {

// A copy with the axes laid out in the given order, the last one contiguous; float32 when x is of a half
// type.
Source arranged(const lz_call& call, const Source& x, const std::vector<int>& order) {
  Source turned = x;
  for (int d = 0; d < x.ndim; d++) {
    turned.shape[d] = x.shape[order[size_t(d)]];
    turned.strides[d] = x.strides[order[size_t(d)]];
  }
  turned = densify(call, turned, 0);
  Source back = turned;
  for (int d = 0; d < x.ndim; d++) {
    back.shape[order[size_t(d)]] = turned.shape[d];
    back.strides[order[size_t(d)]] = turned.strides[d];
  }
  return back;
}

// The half types as float32, in the order in which they lie in memory.
Source widened(const lz_call& call, const lz_operand& operand) {
  Source x(operand);
  for (int d = 0; d < x.ndim; d++) x.strides[d] = operand.strides[d];
  if (!half_table().widen[x.dtype]) return x;
  std::vector<int> order;
  for (int d = 0; d < x.ndim; d++) {
    auto at = order.end();
    while (at != order.begin() && std::abs(x.strides[*(at - 1)]) < std::abs(x.strides[d])) --at;
    order.insert(at, d);
  }
  return arranged(call, x, order);
}

// All axes in their order but `last`, which comes last.
std::vector<int> with_last(int ndim, int last) {
  std::vector<int> order;
  for (int d = 0; d < ndim; d++) {
    if (d != last) order.push_back(d);
  }
  order.push_back(last);
  return order;
}

bool slides_by_one(const Axis& a) {
  return a.stride == 1 && a.kernel_dilation == 1 && a.input_dilation == 1 && a.low == 0;
}

// True if two axes, one inside the other, are one long axis: both are walked index by index, or summed whole.
bool merge(Axis& outer, const Axis& inner) {
  if (!slides_by_one(outer) || !slides_by_one(inner) || outer.x_step != inner.x_step * inner.in) return false;
  const bool walked = outer.kernel == 1 && inner.kernel == 1 && outer.out == outer.in &&
                      inner.out == inner.in && outer.y_step == inner.y_step * inner.out;
  const bool summed = outer.out == 1 && inner.out == 1 && outer.kernel == outer.in &&
                      inner.kernel == inner.in && outer.w_step == inner.w_step * inner.kernel;
  if (!walked && !summed) return false;
  const auto steps = std::array{inner.x_step, inner.w_step, inner.y_step};
  outer.in *= inner.in;
  outer.kernel *= inner.kernel;
  outer.out *= inner.out;
  outer.x_step = steps[0], outer.w_step = steps[1], outer.y_step = steps[2];
  return true;
}

// An axis of length one everywhere, which meets.
bool is_idle(const Axis& a) { return a.in == 1 && a.kernel == 1 && a.out == 1 && a.low == 0; }

enum class Algorithm { tiles, lanes, sums };

template <class T>
void apply(const lz_call& call, const Problem<T>& p, Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::tiles:
      if constexpr (std::is_same_v<T, float>) {
        if (suits_winograd(p)) return by_winograd(call, p);
      }
      return by_tiles(call, p);
    case Algorithm::lanes:
      return by_lanes(call, p);
    case Algorithm::sums:
      return by_sums(call, p);
  }
}

// Problems of more axes than the algorithms know are sums of smaller ones over pairs of indices.
template <class T>
void solve(const lz_call& call, Problem<T> p, std::vector<Axis> axes, Algorithm algorithm) {
  if (axes.size() <= size_t(kAxes)) {
    std::copy(axes.begin(), axes.end(), p.axes + kAxes - axes.size());
    return apply(call, p, algorithm);
  }
  const Axis outer = axes.front();
  axes.erase(axes.begin());
  for (int64_t o = 0; o < outer.out; o++) {
    for (int64_t k = 0; k < outer.kernel; k++) {
      const int64_t at = o * outer.stride + k * outer.kernel_dilation - outer.low;
      if (at < 0 || at % outer.input_dilation != 0 || at / outer.input_dilation >= outer.in) continue;
      Problem<T> inner = p;
      inner.x += at / outer.input_dilation * outer.x_step;
      inner.w += k * outer.w_step;
      inner.y += o * outer.y_step;
      inner.add = true;
      solve(call, inner, axes, algorithm);
    }
  }
}

// The number of groups computed as one, where a group's outputs alone would leave lanes of a vector idle.
template <class T>
int64_t groups_together(const Problem<T>& p, Algorithm algorithm) {
  const int64_t lanes = algorithm == Algorithm::tiles ? loops<T>().narrow : loops<T>().lanes;
  for (int64_t m = std::min(p.groups, lanes / p.outputs); m > 1; m--) {
    if (p.groups % m == 0) return m;
  }
  return 1;
}

// Makes one group of m: with zeros in the kernel where channels do not mix.
template <class T>
void join_groups(const lz_call& call, Problem<T>& p, std::vector<Axis>& axes, int64_t m) {
  int64_t positions = 1;
  for (const Axis& a : axes) positions *= a.kernel;
  const int64_t row = positions * m * p.channels, outputs = p.groups * p.outputs;
  T* joined = scratch<T>(call, outputs * row);
  std::fill_n(joined, outputs * row, T(0));
  for (int64_t o = 0; o < outputs; o++) {
    for (int64_t k = 0; k < positions; k++) {
      const T* from = p.w + o * p.w_output;
      int64_t rest = k;
      for (size_t i = axes.size(); i-- > 0; rest /= axes[i].kernel)
        from += rest % axes[i].kernel * axes[i].w_step;
      T* to = joined + o * row + (k * m + o / p.outputs % m) * p.channels;
      for (int64_t c = 0; c < p.channels; c++) to[c] = from[c * p.w_channel];
    }
  }
  p.w = joined;
  p.groups /= m, p.channels *= m, p.outputs *= m;
  p.w_output = row, p.w_channel = 1;
  int64_t step = p.channels;
  for (size_t i = axes.size(); i-- > 0; step *= axes[i].kernel) axes[i].w_step = step;
}

template <class T>
bool has_nan(const lz_call& call, const T* y, int64_t size) {
  std::atomic<bool> found = false;
  parallel(call, size, 0.2, [&](int64_t begin, int64_t end) {
    int hits = 0;
    for (int64_t i = begin; i < end; i++) hits |= y[i] != y[i];
    if (hits) found.store(true, std::memory_order_relaxed);
  });
  return found;
}

// The sums of m groups as one, of which only the products within groups are wanted.
template <class T>
void solve_joined(const lz_call& call, const Problem<T>& p, const std::vector<Axis>& axes, int64_t m) {
  Problem<T> joined = p;
  joined.batch *= m, joined.groups /= m, joined.outputs *= m, joined.x_channel *= m;
  joined.y = scratch<T>(call, joined.batch * p.y_batch);
  if (p.add) std::fill_n(joined.y, joined.batch * p.y_batch, T(0));
  solve(call, joined, axes, Algorithm::sums);
  const int64_t outputs = p.groups * p.outputs;
  for (int64_t image = 0; image < p.batch; image++) {
    for (int64_t position = 0; position < p.y_batch; position += outputs) {
      for (int64_t o = 0; o < outputs; o++)
        p.y[image * p.y_batch + position + o] =
            joined.y[(o / p.outputs % m * p.batch + image) * p.y_batch + position + o];
    }
  }
}

struct Settings {
  std::span<const int64_t> stride, low, high, kernel_dilation, input_dilation;
  int64_t groups;
  bool flip;
};

template <class T>
void compute(const lz_call& call, Source x, Source w, const lz_operand& out, const Settings& s, T* y) {
  const int n = out.ndim - 2, last = n + 1;
  const int64_t outputs = out.shape[last], channels = x.shape[last];
  Problem<T> p{nullptr, nullptr, y, x.shape[0], s.groups, channels / s.groups, outputs / s.groups, 0, 0,
               0,       0,       0, {},         false};
  int64_t kernel_positions = 1, output_positions = 1;
  for (int i = 0; i < n; i++) {
    kernel_positions *= w.shape[i + 1];
    output_positions *= out.shape[i + 1];
  }
  // by_sums() wants the batch and the outputs in a row, or, where channels do not mix, the channels; the
  // others want x's channels in a row.
  const bool lanewise = p.unmixed();
  const bool sums = kernel_positions > output_positions && (!lanewise || p.batch == 1);
  const Algorithm algorithm = sums ? Algorithm::sums : lanewise ? Algorithm::lanes : Algorithm::tiles;
  const auto in_a_row = [](const Source& a, int d) { return a.shape[d] <= 1 || a.strides[d] == 1; };
  if (sums && !in_a_row(w, 0)) w = arranged(call, w, with_last(w.ndim, 0));
  const int row = sums && !lanewise ? 0 : last;
  if (!in_a_row(x, row)) x = arranged(call, x, with_last(x.ndim, row));
  // Steps of axes of size 1 mean nothing, except that algorithms take a row's step to be 1.
  const auto step = [](const Source& a, int d) { return a.shape[d] <= 1 ? 1 : a.strides[d]; };
  p.x = static_cast<const T*>(x.data);
  p.w = static_cast<const T*>(w.data);
  p.x_batch = step(x, 0);
  p.x_channel = step(x, last);
  p.w_output = step(w, 0);
  p.w_channel = step(w, last);
  std::vector<Axis> axes;
  int64_t y_step = outputs;
  for (int i = n - 1; i >= 0; i--) {
    Axis a;
    a.in = x.shape[i + 1], a.kernel = w.shape[i + 1], a.out = out.shape[i + 1];
    a.stride = s.stride[size_t(i)], a.low = s.low[size_t(i)];
    a.kernel_dilation = s.kernel_dilation[size_t(i)], a.input_dilation = s.input_dilation[size_t(i)];
    a.x_step = a.in == 1 ? 0 : x.strides[i + 1], a.w_step = a.kernel == 1 ? 0 : w.strides[i + 1],
    a.y_step = y_step;
    y_step *= a.out;
    if (s.flip) {
      p.w += (a.kernel - 1) * a.w_step;
      a.w_step = -a.w_step;
    }
    if (a.kernel == 1) a.kernel_dilation = 1;
    if (a.in == 1) a.input_dilation = 1;
    if (a.out == 1) a.stride = 1;
    axes.insert(axes.begin(), a);
  }
  p.y_batch = y_step;
  // Images whose pixels are all alike are one long image.
  if (!sums && p.batch > 1) {
    Axis images;
    images.in = images.out = p.batch;
    images.x_step = x.strides[0], images.y_step = p.y_batch;
    axes.insert(axes.begin(), images);
    const bool alike = axes.size() > 1 && merge(axes[0], axes[1]);
    axes.erase(axes.begin() + (alike ? 1 : 0));
    if (alike) {
      p.y_batch *= p.batch;
      p.batch = 1;
    }
  }
  std::vector<Axis> merged;
  for (const Axis& a : axes) {
    if (is_idle(a) || (!merged.empty() && merge(merged.back(), a))) continue;
    merged.push_back(a);
  }
  if (merged.size() > size_t(kAxes)) {
    std::fill_n(y, out.size, T(0));
    p.add = true;
  }
  const int64_t m = lanewise ? 1 : groups_together(p, algorithm);
  if (m > 1 && algorithm == Algorithm::tiles) {
    Problem<T> joined = p;
    std::vector<Axis> joined_axes = merged;
    join_groups(call, joined, joined_axes, m);
    solve(call, joined, joined_axes, algorithm);
    // A number that is not finite in one group makes NaN of another's zeros: then each group is computed
    // alone.
    if (!has_nan(call, y, out.size)) return;
    if (p.add) std::fill_n(y, out.size, T(0));
    return solve(call, p, merged, algorithm);
  }
  if (m > 1 && algorithm == Algorithm::sums && p.channels == 1 && p.x_batch == 1 && p.x_channel == p.batch)
    return solve_joined(call, p, merged, m);
  solve(call, p, merged, algorithm);
}

// A kernel of one element that meets every pixel of dense images once: all pixels, as rows of a matrix, times
// the weights turned. That is quicker than tiles where there are many pixels of at most so many channels (256
// to 64 by a quarter with AVX-512, and as quick with AVX2), and up to a tenth slower elsewhere.
bool multiply_pixels(const lz_call& call, const Settings& s) {
  const lz_operand &x = call.in[0], &w = call.in[1], &out = call.out[0];
  const int last = out.ndim - 1;
  constexpr int64_t kMostChannels = 256, kManyPixels = 2048;
  if (s.groups != 1 || !(x.flags & LZ_CONTIGUOUS)) return false;
  if (std::max(x.shape[last], out.shape[last]) > kMostChannels || out.size < kManyPixels * out.shape[last])
    return false;
  for (int d = 1; d < last; d++) {
    const size_t i = size_t(d - 1);
    if (w.shape[d] != 1 || x.shape[d] != out.shape[d] || s.low[i] != 0) return false;
    if (x.shape[d] > 1 && s.stride[i] != s.input_dilation[i]) return false;
  }
  const int64_t channels = x.shape[last], outputs = out.shape[last], pixels = out.size / outputs;
  const int64_t a_shape[] = {pixels, channels}, b_shape[] = {channels, outputs},
                y_shape[] = {pixels, outputs};
  const int64_t a_strides[] = {channels, 1}, b_strides[] = {w.strides[last], w.strides[0]},
                y_strides[] = {outputs, 1};
  lz_operand a = x, b = w, y = out;
  a.ndim = b.ndim = y.ndim = 2;
  a.shape = a_shape, a.strides = a_strides;
  b.shape = b_shape, b.strides = b_strides, b.flags &= ~uint32_t(LZ_CONTIGUOUS);
  y.shape = y_shape, y.strides = y_strides;
  lz_call product = call;
  product.out = &y;
  multiply_matrices(product, "conv", a, b);
  return true;
}

void run(const lz_call& call) {
  require_counts(call, "conv", 2, 1);
  const lz_operand &x = call.in[0], &w = call.in[1], &out = call.out[0];
  const params::Conv params(call);
  Settings s;
  s.stride = params.stride;
  s.low = params.low;
  s.high = params.high;
  s.kernel_dilation = params.kernelDilation;
  s.input_dilation = params.inputDilation;
  s.groups = params.groups;
  s.flip = params.flip;
  const int n = out.ndim - 2;
  bool fits = n >= 1 && x.ndim == out.ndim && w.ndim == out.ndim && x.dtype == out.dtype &&
              w.dtype == out.dtype && s.groups >= 1 && x.shape[0] == out.shape[0] &&
              w.shape[0] == out.shape[n + 1] && x.shape[n + 1] == w.shape[n + 1] * s.groups &&
              w.shape[0] % s.groups == 0;
  // A larger value reaches beyond every array, and sums of it would overflow.
  constexpr int64_t kFar = int64_t(1) << 28;
  for (const auto list : {s.stride, s.low, s.high, s.kernel_dilation, s.input_dilation}) {
    fits &= list.size() == size_t(n);
    for (const int64_t value : list) fits &= value > -kFar && value < kFar;
  }
  for (int i = 0; i < n && fits; i++) {
    const size_t at = size_t(i);
    fits =
        s.stride[at] >= 1 && s.kernel_dilation[at] >= 1 && s.input_dilation[at] >= 1 && w.shape[i + 1] >= 1;
    if (!fits) break;
    const int64_t room =
        (x.shape[i + 1] == 0 ? 0 : (x.shape[i + 1] - 1) * s.input_dilation[at] + 1) + s.low[at] + s.high[at];
    const int64_t reach = (w.shape[i + 1] - 1) * s.kernel_dilation[at] + 1;
    fits = reach <= room && out.shape[i + 1] == 1 + (room - reach) / s.stride[at];
  }
  require(call, fits, "[conv] the shapes, dtypes or parameters of the operands do not fit");
  if (out.size == 0) return;
  if (x.size == 0 || w.size == 0)
    return void(std::memset(out.data, 0, size_t(out.size * itemsize(out.dtype))));
  const auto narrow = half_table().narrow[out.dtype];
  if (out.dtype != LZ_FLOAT64 && out.dtype != LZ_FLOAT32 && !narrow) fail_dtype(call, "conv", out.dtype);
  if (multiply_pixels(call, s)) return;
  if (out.dtype == LZ_FLOAT64) return compute<double>(call, Source(x), Source(w), out, s, data<double>(out));
  float* y = narrow ? scratch<float>(call, out.size) : data<float>(out);
  compute<float>(call, widened(call, x), widened(call, w), out, s, y);
  if (narrow)
    parallel(call, out.size, 0.3, [&](int64_t begin, int64_t end) {
      narrow(y + begin, data<char>(out) + 2 * begin, end - begin);
    });
}

}  // namespace
}  // namespace conv

void register_conv(Registry& registry) { registry.add("conv", entry<conv::run>); }

}  // namespace lazuli
