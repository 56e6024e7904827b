// conv against its definition in double, in random layouts: forward shapes, and those that gradients by
// inputs and by weights have.
#include <cmath>
#include <limits>

#include "tests/harness.h"

namespace lazuli::test {
namespace {

struct Axis {
  int64_t in, kernel, stride, low, high, kernel_dilation, input_dilation;
  int64_t out() const {
    return 1 + ((in - 1) * input_dilation + 1 + low + high - (kernel - 1) * kernel_dilation - 1) / stride;
  }
  bool fits() const { return (in - 1) * input_dilation + low + high >= (kernel - 1) * kernel_dilation; }
};

void one(int32_t dtype, const std::vector<Axis>& axes, int64_t batch, int64_t groups, int64_t channels,
         int64_t outputs, bool flip) {
  Shape xs{batch}, ws{groups * outputs}, ys{batch};
  std::vector<int64_t> params;
  for (const Axis& a : axes) xs.push_back(a.in), ws.push_back(a.kernel), ys.push_back(a.out());
  xs.push_back(groups * channels), ws.push_back(channels), ys.push_back(groups * outputs);
  for (int64_t Axis::* member :
       {&Axis::stride, &Axis::low, &Axis::high, &Axis::kernel_dilation, &Axis::input_dilation}) {
    params.push_back(int64_t(axes.size()));
    for (const Axis& a : axes) params.push_back(a.*member);
  }
  params.push_back(groups);
  params.push_back(flip);
  const Array x = random_layout(dtype, xs, -2, 2), w = random_layout(dtype, ws, -2, 2);
  Array y = zeros(dtype, ys);
  const std::string what =
      "conv of " + describe(x) + " and " + describe(w) + ", " + std::to_string(groups) + " groups";
  check_ok(run("conv", {x, w}, {y}, params), what);
  Shape kernel(ws.begin() + 1, ws.end());
  const double tolerance = epsilon(dtype) * 2 + (dtype == LZ_FLOAT64 ? 1e-14 : 1e-5);
  check_close(
      y,
      [&](const Shape& at) {
        Value sum = 0;
        for_each_index(kernel, [&](const Shape& k) {
          Shape i{at[0]}, j{at.back()};
          for (size_t d = 0; d < axes.size(); d++) {
            const Axis& a = axes[d];
            const int64_t position = at[d + 1] * a.stride + k[d] * a.kernel_dilation - a.low;
            if (position < 0 || position % a.input_dilation != 0 || position / a.input_dilation >= a.in)
              return;
            i.push_back(position / a.input_dilation);
            j.push_back(flip ? a.kernel - 1 - k[d] : k[d]);
          }
          i.push_back(at.back() / outputs * channels + k.back());
          j.push_back(k.back());
          sum += x.get(i) * w.get(j);
        });
        return sum;
      },
      tolerance, tolerance * 40, what);
}

LZ_TEST(conv_random) {
  for (int round = 0; round < 150; round++) {
    const int32_t dtypes[] = {LZ_FLOAT32, LZ_FLOAT64, LZ_FLOAT16, LZ_BFLOAT16};
    std::vector<Axis> axes(size_t(uniform(1, uniform(1, 4))));
    // As many gradients by weights, whose kernels are large, as others.
    const bool gradient = uniform(0, 1);
    for (Axis& a : axes) {
      const int64_t most = axes.size() > 2 ? 3 : axes.size() > 1 ? 6 : 30;
      do {
        a = {uniform(1, most),
             gradient ? uniform(1, most) : uniform(1, 3),
             uniform(1, 3),
             uniform(-1, 3),
             uniform(-1, 3),
             uniform(1, 2),
             uniform(0, 2) ? 1 : uniform(2, 3)};
      } while (!a.fits());
    }
    const int64_t groups = uniform(0, 2) ? 1 : uniform(2, 40), lone = groups > 1 ? uniform(0, 1) : 0;
    const int64_t most = groups > 8 ? 2 : axes.size() > 2 ? 4 : 18;
    one(dtypes[uniform(0, 3)], axes, uniform(1, 3) * (gradient && groups == 1 ? 5 : 1), groups,
        lone ? 1 : uniform(1, most), lone ? 1 : uniform(1, most * 2), uniform(0, 1));
  }
}

// Channels that do not mix, in rows of pixels that are longer than a block of them, with edges on both sides.
LZ_TEST(conv_lanes) {
  for (int round = 0; round < 60; round++) {
    const int32_t dtypes[] = {LZ_FLOAT32, LZ_FLOAT32, LZ_FLOAT64, LZ_BFLOAT16};
    const int64_t kernel = uniform(2, 7);
    std::vector<Axis> axes(2);
    do {
      axes[0] = {uniform(1, 4), uniform(1, 3), uniform(1, 2), uniform(0, 2), uniform(0, 2), 1, 1};
      axes[1] = {uniform(1, 40), kernel, uniform(0, 4) ? 1 : 2, uniform(-2, 8), uniform(-2, 8), 1, 1};
    } while (!axes[0].fits() || !axes[1].fits());
    one(dtypes[uniform(0, 3)], axes, uniform(1, 2), uniform(2, 40), 1, 1, uniform(0, 1));
  }
}

// Two axes of 3 × 3 kernels with stride 1, for which there is an algorithm of its own.
LZ_TEST(conv_squares) {
  for (int round = 0; round < 16; round++) {
    const int32_t dtypes[] = {LZ_FLOAT32, LZ_FLOAT32, LZ_FLOAT16, LZ_BFLOAT16};
    std::vector<Axis> axes(2);
    for (Axis& a : axes) {
      do {
        a = {uniform(1, 11), 3, 1, uniform(-2, 3), uniform(-2, 3), 1, 1};
      } while (!a.fits());
    }
    one(dtypes[uniform(0, 3)], axes, uniform(1, 3), 1, uniform(15, 40), uniform(1, 6) * uniform(1, 12),
        uniform(0, 1));
  }
  // Several panels, parts of them and blocks.
  one(LZ_FLOAT32, {{7, 3, 1, 1, 1, 1, 1}, {6, 3, 1, 1, 1, 1, 1}}, 5, 1, 130, 35, 0);
  one(LZ_FLOAT32, {{11, 3, 1, 0, 2, 1, 1}, {21, 3, 1, 2, 0, 1, 1}}, 1, 1, 16, 97, 1);
}

// NaN, infinities and overflow are there where the definition, in the order in which it
// is summed, makes it so. Two images in a row along a third axis are computed by it.
LZ_TEST(conv_squares_wild) {
  const double inf = INFINITY, most = std::numeric_limits<float>::max();
  for (int round = 0; round < 40; round++) {
    const int64_t h = uniform(4, 15), w = uniform(4, 15), channels = uniform(16, 20),
                  outputs = uniform(8, 36);
    const int64_t images = uniform(1, 3),
                  pad[] = {uniform(0, 2), uniform(0, 2), uniform(0, 2), uniform(0, 2)};
    const Array x = random_array(LZ_FLOAT32, {images, 2, h, w, channels}),
                k = random_array(LZ_FLOAT32, {outputs, 1, 3, 3, channels});
    const double kinds[] = {inf, -inf, NAN, most, -most, most / 8, 1e36};
    const int kind = int(uniform(0, 9));
    const Array& spoilt = uniform(0, 3) ? x : k;
    if (kind >= 7) {
      // Sums that overflow or nearly do; transforms alone would, of inputs that meet small weights or the
      // other way round.
      const Array& large = kind == 9 ? k : x;
      for (int64_t i = 0; i < large.size(); i++) large.set(i, large.get(i) * (uniform(0, 1) ? 8e37 : 1e37));
      const Array& small = kind == 9 ? x : k;
      for (int64_t i = 0; kind > 7 && i < small.size(); i++) small.set(i, small.get(i) * 1e-37);
    } else {
      for (int64_t n = uniform(1, 3); n > 0; n--) spoilt.set(uniform(0, spoilt.size() - 1), kinds[kind]);
    }
    const Shape whole{images, 2, h + pad[0] + pad[1] - 2, w + pad[2] + pad[3] - 2, outputs};
    const Array want = zeros(LZ_FLOAT32, whole),
                y = zeros(LZ_FLOAT32, {whole[0] * 2, whole[2], whole[3], outputs});
    check_ok(run("conv", {x, k}, {want},
                 {3, 1, 1, 1, 3, 0, pad[0], pad[2], 3, 0, pad[1], pad[3], 3, 1, 1, 1, 3, 1, 1, 1, 1, 0}),
             "conv of three axes");
    Array flat = x, kernel = k;
    flat.shape = {images * 2, h, w, channels}, flat.strides = {h * w * channels, w * channels, channels, 1};
    kernel.shape = {outputs, 3, 3, channels}, kernel.strides = {9 * channels, 3 * channels, channels, 1};
    check_ok(run("conv", {flat, kernel}, {y},
                 {2, 1, 1, 2, pad[0], pad[2], 2, pad[1], pad[3], 2, 1, 1, 2, 1, 1, 1, 0}),
             "conv of two axes");
    bool same = true;
    for (int64_t i = 0; i < y.size(); i++) {
      const double a = y.get(i).real(), b = want.get(i).real();
      same &= std::isnan(a) ? std::isnan(b) : std::isinf(a) || std::isinf(b) ? a == b : true;
    }
    check(same, "conv of " + describe(flat) + " with wild values of kind " + std::to_string(kind));
  }
}

LZ_TEST(conv_refuses) {
  const Array x = zeros(LZ_FLOAT32, {1, 4, 2}), w = zeros(LZ_FLOAT32, {3, 2, 2});
  const std::string text = "[conv] the shapes, dtypes or parameters of the operands do not fit";
  const auto with = [&](int64_t stride, int64_t groups, const Array& y) {
    return run("conv", {x, w}, {y}, {1, stride, 1, 0, 1, 0, 1, 1, 1, 1, groups, 0});
  };
  check_ok(with(1, 1, zeros(LZ_FLOAT32, {1, 3, 3})), "conv");
  check_fails(with(1, 1, zeros(LZ_FLOAT32, {1, 4, 3})), text);
  check_fails(with(0, 1, zeros(LZ_FLOAT32, {1, 3, 3})), text);
  check_fails(with(1, 2, zeros(LZ_FLOAT32, {1, 3, 3})), text);
  check_fails(with(1, 1, zeros(LZ_FLOAT64, {1, 3, 3})), text);
}

}  // namespace
}  // namespace lazuli::test
