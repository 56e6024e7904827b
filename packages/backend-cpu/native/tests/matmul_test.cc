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
      Shape index(at.end() - int64_t(c->shape.size()), at.end());
      for (size_t d = 0; d < index.size(); d++) index[d] = c->shape[d] == 1 ? 0 : index[d];
      want += beta * c->get(index);
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

// Some elements of products of more than one block along each side.
LZ_TEST(matmul_blocks) {
  const auto turned = [](Array a) {
    std::swap(a.shape[0], a.shape[1]);
    std::swap(a.strides[0], a.strides[1]);
    return a;
  };
  const auto sampled = [&](int32_t dtype, int64_t m, int64_t n, int64_t k) {
    for (int order = 0; order < 4; order++) {
      const Array a = order & 1 ? turned(random_array(dtype, {k, m})) : random_array(dtype, {m, k});
      const Array b = order & 2 ? turned(random_array(dtype, {n, k})) : random_array(dtype, {k, n});
      const Array c = random_array(dtype, {n});
      Array y = zeros(dtype, {m, n});
      check_ok(run("addmm", {c, a, b}, {y}, {bits(2), bits(3)}), "addmm");
      for (int round = 0; round < 100; round++) {
        // The corners, then anywhere.
        const Shape at = round < 4 ? Shape{round & 1 ? m - 1 : 0, round & 2 ? n - 1 : 0}
                                   : Shape{uniform(0, m - 1), uniform(0, n - 1)};
        double scale = 0;
        const Value want = 2.0 * product(a, b, at, &scale) + 3.0 * c.get({at[1]});
        const double narrow = dtype == LZ_FLOAT32 ? 0 : epsilon(dtype);
        check(close(y.get(at), want, narrow * 1.01, (2 * scale + 12) * 0x1p-24 * 40),
              "blocks " + text(a, b) + ": got " + std::to_string(y.get(at).real()) + " want " +
                  std::to_string(want.real()));
      }
    }
  };
  for (int32_t dtype : {LZ_FLOAT32, LZ_BFLOAT16, LZ_FLOAT16}) {
    sampled(dtype, 301, 203, 1100);
    sampled(dtype, 131, 4197, 65);
    sampled(dtype, 5, 530, 515);
    sampled(dtype, 200, 7, 513);
    sampled(dtype, 1500, 70, 300);
  }
  // Tasks that pack for themselves.
  sampled(LZ_FLOAT32, 301, 1003, 300);
  sampled(LZ_FLOAT32, 512, 848, 511);
  // More than is packed at a time.
  sampled(LZ_FLOAT32, 131, 4197, 4100);
  sampled(LZ_BFLOAT16, 131, 4197, 4100);
  sampled(LZ_FLOAT32, 4200, 130, 67);
}

}  // namespace
}  // namespace lazuli::test
