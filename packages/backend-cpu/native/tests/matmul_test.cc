// matmul and addmm against the triple loop, over dtypes, layouts and degenerate sizes.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tests/harness.h"

namespace lazuli::test {
namespace {

Value product(const Array& a, const Array& b, const Shape& at, double* scale) {
  const size_t n = at.size();
  Shape left = at, right = at;
  Value sum = 0;
  for (int64_t k = 0; k < a.shape[n - 1]; k++) {
    left[n - 1] = right[n - 2] = k;
    const Value term = a.get(left) * b.get(right);
    sum += term;
    *scale += std::abs(term);
  }
  return sum;
}

void check_product(const std::string& what, const Array& y, const Array& a, const Array& b, const Array* c,
                   double alpha, double beta) {
  const double eps = epsilon(y.dtype);
  for_each_index(y.shape, [&](const Shape& at) {
    double scale = 0;
    Value want = alpha * product(a, b, at, &scale);
    if (c) {
      Shape place(at.end() - int64_t(c->shape.size()), at.end());
      for (size_t d = 0; d < place.size(); d++) place[d] = c->shape[d] == 1 ? 0 : place[d];
      want += beta * c->get(place);
    }
    if (is_integer(y.dtype)) want = y.dtype == LZ_BOOL ? Value(want != 0.0) : round_to(y.dtype, want);
    const double narrow = y.dtype == LZ_FLOAT16 || y.dtype == LZ_BFLOAT16 ? eps : 0;
    const double sum = narrow ? 0x1p-24 : eps;
    check(
        close(y.get(at), want, narrow * 1.01, (std::abs(alpha) * scale + std::abs(beta) * 4 + 1) * sum * 40),
        what + ": got " + std::to_string(y.get(at).real()) + " want " + std::to_string(want.real()));
  });
}

std::string text(const Array& a, const Array& b) { return describe(a) + " @ " + describe(b); }

void one(int32_t dtype, const Shape& batch, int64_t m, int64_t n, int64_t k) {
  Shape sa = batch, sb = batch, sy = batch;
  sa.insert(sa.end(), {m, k});
  sb.insert(sb.end(), {k, n});
  sy.insert(sy.end(), {m, n});
  const Array a = random_layout(dtype, sa), b = random_layout(dtype, sb);
  Array y = zeros(dtype, sy);
  check_ok(run("matmul", {a, b}, {y}), "matmul " + text(a, b));
  check_product("matmul " + text(a, b), y, a, b, nullptr, 1, 0);

  Shape sc(sy.end() - uniform(0, int64_t(sy.size())), sy.end());
  for (auto& extent : sc) extent = uniform(0, 3) == 0 ? 1 : extent;
  const Array c = random_layout(dtype, sc);
  const double alpha = uniform(0, 1) ? 1 : 2, beta = double(uniform(0, 2));
  check_ok(run("addmm", {c, a, b}, {y}, {bits(alpha), bits(beta)}), "addmm");
  check_product("addmm " + describe(c) + text(a, b), y, a, b, &c, alpha, beta);
}

LZ_TEST(matmul_layouts) {
  for (int32_t dtype = 0; dtype < kDtypes; dtype++) {
    for (int round = 0; round < 120; round++) {
      const int64_t most = round % 10 == 0 ? 40 : 6, least = round % 12 == 5 ? 0 : 1;
      one(dtype, random_shape(0, 3, 3, 1), uniform(least, most), uniform(least, most), uniform(least, most));
      if (round % 10 == 1) one(dtype, {}, 1, uniform(1, 50), uniform(1, 50));
      if (round % 10 == 2) one(dtype, {2}, uniform(1, 50), 1, uniform(1, 50));
    }
  }
}

LZ_TEST(matmul_tiles) {
  for (int32_t dtype : {LZ_FLOAT32, LZ_FLOAT64, LZ_COMPLEX64, LZ_BFLOAT16}) {
    one(dtype, {}, 400, 300, 200);
    one(dtype, {3}, 300, 20, 300);
    one(dtype, {}, 1, 3000, 500);
    one(dtype, {}, 3000, 1, 500);
    one(dtype, {20, 3}, 33, 34, 35);
  }
}

LZ_TEST(matmul_special) {
  // A factor of 0 does not read c, and an empty sum is 0.
  Array c = of(LZ_FLOAT32, {2}, {NAN, NAN}), a = zeros(LZ_FLOAT32, {2, 0}), b = zeros(LZ_FLOAT32, {0, 2}),
        y = zeros(LZ_FLOAT32, {2, 2});
  check_ok(run("addmm", {c, a, b}, {y}, {bits(1), bits(0)}), "addmm");
  check(y.get(3) == 0.0, "K = 0");
  check_fails(run("matmul", {zeros(LZ_FLOAT32, {2, 3}), zeros(LZ_FLOAT32, {2, 3})}, {y}),
              "[matmul] the shapes or dtypes of the operands do not fit");
  // The half types round once.
  Array h = of(LZ_FLOAT16, {1, 4}, {1, 0x1p-11, 0x1p-11, 0x1p-11}),
        ones = of(LZ_FLOAT16, {4, 1}, {1, 1, 1, 1}), z = zeros(LZ_FLOAT16, {1, 1});
  check_ok(run("matmul", {h, ones}, {z}), "half");
  check(z.get(0) == 1 + 0x1p-9, "the half types accumulate in float32");
}

LZ_TEST(bench_matmul) {
  const auto bench = [](const char* label, int32_t dtype, const Array& a, const Array& b) {
    Shape shape = a.shape;
    shape.back() = b.shape.back();
    Array y = zeros(dtype, shape);
    const double flops = 2.0 * double(y.size()) * double(a.shape.back());
    const double one = time_us("matmul", {a, b}, {y}, {}, 1), two = time_us("matmul", {a, b}, {y}, {}, 2);
    std::printf("%-44s %10.2f us %7.1f GFLOP/s   2 threads %10.2f us %7.1f\n", label, one, flops / one / 1e3,
                two, flops / two / 1e3);
  };
  const auto t = [](Array a) {
    const size_t n = a.shape.size();
    std::swap(a.shape[n - 1], a.shape[n - 2]);
    std::swap(a.strides[n - 1], a.strides[n - 2]);
    return a;
  };
  const auto f = LZ_FLOAT32;
  bench("1024x1024x1024", f, random_array(f, {1024, 1024}), random_array(f, {1024, 1024}));
  bench("1024x128 @ (128x128)T", f, random_array(f, {1024, 128}), t(random_array(f, {128, 128})));
  bench("16x64x128 @ broadcast (512x128)T", f, random_array(f, {16, 64, 128}), [&] {
    Array b = t(random_array(f, {512, 128}));
    b.shape.insert(b.shape.begin(), 16);
    b.strides.insert(b.strides.begin(), 0);
    return b;
  }());
  bench("(1024x128)T @ 1024x512", f, t(random_array(f, {1024, 128})), random_array(f, {1024, 512}));
  bench("64 x 64x32 @ (64x32)T", f, random_array(f, {64, 64, 32}), t(random_array(f, {64, 64, 32})));
  bench("64 x 64x64 @ 64x32", f, random_array(f, {64, 64, 64}), random_array(f, {64, 64, 32}));
  bench("1x4096 @ 4096x4096", f, random_array(f, {1, 4096}), random_array(f, {4096, 4096}));
  bench("4x4 @ 4x4", f, random_array(f, {4, 4}), random_array(f, {4, 4}));
  bench("1024x1024x1024 bfloat16", LZ_BFLOAT16, random_array(LZ_BFLOAT16, {1024, 1024}),
        random_array(LZ_BFLOAT16, {1024, 1024}));
  bench("512x512x512 float64", LZ_FLOAT64, random_array(LZ_FLOAT64, {512, 512}),
        random_array(LZ_FLOAT64, {512, 512}));
  bench("256x256x256 int32", LZ_INT32, random_array(LZ_INT32, {256, 256}),
        random_array(LZ_INT32, {256, 256}));
}

}  // namespace
}  // namespace lazuli::test
