// softmax and logsumexp against the formula in double.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tests/harness.h"

namespace lazuli::test {
namespace {

Array reference(const Array& x, size_t axis, bool log) {
  Shape shape = x.shape;
  if (log) shape[axis] = 1;
  Array want = zeros(LZ_FLOAT64, shape);
  for_each_index(shape, [&](const Shape& index) {
    double max = -INFINITY, sum = 0;
    Shape at = index;
    for (at[axis] = 0; at[axis] < x.shape[axis]; at[axis]++) max = std::fmax(max, x.get(at).real());
    const double around = log && std::isinf(max) ? 0 : max;
    for (at[axis] = 0; at[axis] < x.shape[axis]; at[axis]++) sum += std::exp(x.get(at).real() - around);
    want.data<double>()[want.at(index)] =
        log ? around + std::log(sum) : std::exp(x.get(index).real() - max) / sum;
  });
  return want;
}

void both(const Array& x, size_t axis) {
  const double eps =
      epsilon(x.dtype) * 2 + (x.dtype == LZ_FLOAT64 ? 1e-15 : 6e-6);  // x − max rounds in float32
  const Array want = reference(x, axis, false), want_log = reference(x, axis, true);
  Array y = zeros(x.dtype, x.shape), z = zeros(x.dtype, want_log.shape);
  const int64_t named = uniform(0, 1) ? int64_t(axis) : int64_t(axis) - int64_t(x.shape.size());
  check_ok(run("softmax", {x}, {y}, {named, 0}), "softmax");
  check_ok(run("logsumexp", {x}, {z}, {named}), "logsumexp");
  check_close(
      y, [&](const Shape& i) { return want.get(i); }, eps, x.dtype == LZ_FLOAT16 ? 6e-8 : 1e-37,
      "softmax of " + describe(x));
  check_close(
      z, [&](const Shape& i) { return want_log.get(i); }, eps, x.dtype == LZ_FLOAT64 ? 1e-15 : 3e-7,
      "logsumexp of " + describe(x));
}

LZ_TEST(softmax_layouts) {
  for (int32_t dtype : {LZ_FLOAT32, LZ_FLOAT64, LZ_FLOAT16, LZ_BFLOAT16}) {
    for (int round = 0; round < 150; round++) {
      const Array x = random_layout(dtype, random_shape(1, 4, round % 3 == 0 ? 40 : 6), -10, 10);
      both(x, size_t(uniform(0, int64_t(x.shape.size()) - 1)));
    }
    both(random_array(dtype, {300, 257}), 1);
    both(random_array(dtype, {300, 257}), 0);
    both(random_array(dtype, {20, 30, 33}, -90, 0), 1);
  }
}

LZ_TEST(softmax_special) {
  for (int32_t dtype : {LZ_FLOAT32, LZ_FLOAT64, LZ_BFLOAT16}) {
    const auto values = [&](const Array& x) {
      both(x, 0);
      Array m = zeros(dtype, {x.shape[0], 3});
      for (int64_t i = 0; i < m.size(); i++) m.set(i, x.get(i / 3));
      both(m, 0);
    };
    values(of(dtype, {3}, {-INFINITY, 1, 2}));
    values(of(dtype, {3}, {-INFINITY, -INFINITY, -INFINITY}));
    values(of(dtype, {3}, {INFINITY, 1, -INFINITY}));
    values(of(dtype, {1}, {5}));
    Array x = random_array(dtype, {70});
    x.set(33, NAN);
    Array y = zeros(dtype, {70}), z = zeros(dtype, {1});
    run("softmax", {x}, {y}, {0, 0});
    run("logsumexp", {x}, {z}, {0});
    for (int64_t i = 0; i < 70; i++) check(std::isnan(y.get(i).real()), "a NaN spreads over its row");
    check(std::isnan(z.get(0).real()), "a NaN spreads to the sum");
    x.set(60, INFINITY);
    run("logsumexp", {x}, {z}, {0});
    check(std::isnan(z.get(0).real()), "NaN wins over infinity");
    if (dtype == LZ_FLOAT32) {
      for (uint32_t bits : {0x7fffffffu, 0xffffffffu, 0x7fc00001u, 0xffc00003u}) {
        Array odd = random_array(dtype, {70});
        odd.data<uint32_t>()[9] = bits;
        run("softmax", {odd}, {y}, {0, 0});
        run("logsumexp", {odd}, {z}, {0});
        check(std::isnan(y.get(0).real()) && std::isnan(z.get(0).real()), "a NaN of any bits");
      }
    }
    check_ok(run("softmax", {zeros(dtype, {3, 0})}, {zeros(dtype, {3, 0})}, {1, 0}), "empty");
    Array none = zeros(dtype, {2, 1});
    check_ok(run("logsumexp", {zeros(dtype, {2, 0})}, {none}, {1}), "empty");
    check(none.get(0) == Value(-INFINITY), "log of an empty sum");
  }
  check_fails(run("softmax", {zeros(LZ_INT32, {3})}, {zeros(LZ_INT32, {3})}, {0, 0}),
              "[softmax] dtype int32 is not supported");
}

LZ_TEST(bench_softmax) {
  for (auto [rows, n] : std::vector<std::pair<int64_t, int64_t>>{
           {1024, 256}, {4096, 64}, {4096, 4096}, {64, 100000}, {1, 8}}) {
    for (int32_t dtype : {LZ_FLOAT32, LZ_FLOAT16}) {
      Array x = random_array(dtype, {rows, n}), y = zeros(dtype, {rows, n}), z = zeros(dtype, {rows, 1});
      const double a = time_us("softmax", {x}, {y}, {1, 0}, 1), b = time_us("softmax", {x}, {y}, {1, 0}, 2),
                   c = time_us("logsumexp", {x}, {z}, {1}, 1);
      const double size = double(x.size());
      std::printf(
          "softmax %s %5ldx%-6ld %9.2f us (%.2f ns an element), 2 threads %9.2f us, logsumexp %9.2f us\n",
          dtype_name(dtype), long(rows), long(n), a, a * 1e3 / size, b, c);
    }
  }
}

}  // namespace
}  // namespace lazuli::test
