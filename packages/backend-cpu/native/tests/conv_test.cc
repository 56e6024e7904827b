// conv against its definition in double, in random layouts: forward shapes, and those that gradients by
// inputs and by weights have.
#include <cmath>

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
            const int64_t place = at[d + 1] * a.stride + k[d] * a.kernel_dilation - a.low;
            if (place < 0 || place % a.input_dilation != 0 || place / a.input_dilation >= a.in) return;
            i.push_back(place / a.input_dilation);
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
