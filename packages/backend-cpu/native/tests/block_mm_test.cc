// blockMaskedMm against the product of masked matrices.
#include <cmath>

#include "tests/harness.h"

namespace lazuli::test {
namespace {

Value masked(const Array& x, const Array* mask, int64_t block, const Shape& at) {
  if (mask == nullptr) return x.get(at);
  Shape block_at = at;
  const size_t n = at.size();
  block_at[n - 2] /= block, block_at[n - 1] /= block;
  const Value m = mask->get(block_at);
  if (mask->dtype == LZ_BOOL) return m == 0.0 ? Value(0) : x.get(at);
  return x.get(at) * m;
}

void one(int32_t dtype, const Shape& batch, int64_t m, int64_t n, int64_t k, int64_t block) {
  const auto shape = [&](int64_t rows, int64_t columns) {
    Shape s = batch;
    s.insert(s.end(), {rows, columns});
    return s;
  };
  const auto blocks = [&](int64_t size) { return (size + block - 1) / block; };
  const Array a = random_layout(dtype, shape(m, k)), b = random_layout(dtype, shape(k, n)),
              y = zeros(dtype, shape(m, n));
  std::vector<Array> inputs = {a, b}, masks;
  std::vector<int64_t> params = {block};
  const int64_t sizes[3][2] = {{m, n}, {m, k}, {k, n}};
  const Array* of[3] = {};
  masks.reserve(3);
  for (int i = 0; i < 3; i++) {
    const bool has = uniform(0, 2) > 0;
    params.push_back(has);
    if (!has) continue;
    masks.push_back(random_layout(uniform(0, 1) ? int32_t(LZ_BOOL) : dtype,
                                  shape(blocks(sizes[i][0]), blocks(sizes[i][1])), -1, 1));
    of[i] = &masks.back();
    inputs.push_back(masks.back());
  }
  check_ok(run("blockMaskedMm", inputs, {y}, params), "blockMaskedMm " + describe(a) + describe(b));
  const double eps = epsilon(dtype);
  for_each_index(y.shape, [&](const Shape& at) {
    const size_t last = at.size() - 1;
    Shape left = at, right = at;
    Value sum = 0;
    double scale = 0;
    for (int64_t l = 0; l < k; l++) {
      left[last] = right[last - 1] = l;
      const Value term = masked(a, of[1], block, left) * masked(b, of[2], block, right);
      sum += term;
      scale += std::abs(term);
    }
    if (of[0]) {
      Shape block_at = at;
      block_at[last - 1] /= block, block_at[last] /= block;
      const Value factor = of[0]->get(block_at);
      sum *= of[0]->dtype == LZ_BOOL ? Value(factor != 0.0) : factor;
    }
    const bool half = dtype == LZ_FLOAT16 || dtype == LZ_BFLOAT16;
    check(close(y.get(at), sum, half ? eps * 1.01 : 0, (scale + 1) * (half ? 0x1p-24 : eps) * 40),
          "blockMaskedMm: got " + std::to_string(y.get(at).real()) + " want " + std::to_string(sum.real()));
  });
}

LZ_TEST(block_masked_mm) {
  for (int32_t dtype : {LZ_FLOAT32, LZ_FLOAT64, LZ_FLOAT16, LZ_BFLOAT16}) {
    for (int round = 0; round < 30; round++) {
      const int64_t block = uniform(0, 1) ? 32 : 64, least = round % 10 == 9 ? 0 : 1;
      one(dtype, random_shape(0, 2, 2, 1), uniform(least, 100), uniform(least, 100), uniform(least, 140),
          block);
    }
    one(dtype, {}, 130, 200, 300, 64);
  }
  // A block that is dropped is not looked at.
  const Array a = of(LZ_FLOAT32, {1, 64}, std::vector<double>(64, NAN)), b = zeros(LZ_FLOAT32, {64, 1}),
              y = zeros(LZ_FLOAT32, {1, 1}), mask = of(LZ_BOOL, {1, 2}, {0, 1});
  for (int64_t i = 32; i < 64; i++) a.set(i, 1), b.set(i, 2);
  check_ok(run("blockMaskedMm", {a, b, mask}, {y}, {32, 0, 1, 0}), "blockMaskedMm");
  check(y.get(0) == 64.0, "a dropped block of NaN");
  check_fails(run("blockMaskedMm", {a, b, mask}, {y}, {32, 1, 0, 0}),
              "[blockMaskedMm] the shapes or dtypes of the masks do not fit");
}

LZ_TEST(bench_block_masked_mm) {
  const Array a = random_array(LZ_FLOAT32, {1024, 1024}), b = random_array(LZ_FLOAT32, {1024, 1024}),
              y = zeros(LZ_FLOAT32, {1024, 1024}), mask = random_array(LZ_BOOL, {16, 16});
  for (int64_t kept : {256, 128, 64}) {
    for (int64_t i = 0; i < 256; i++) mask.set(i, double(i * 7 % 256 < kept));
    std::printf("blockMaskedMm 1024, %lld of 256 blocks of a: %.1f us, of the result: %.1f us\n",
                (long long)kept, time_us("blockMaskedMm", {a, b, mask}, {y}, {64, 0, 1, 0}, 2),
                time_us("blockMaskedMm", {a, b, mask}, {y}, {64, 1, 0, 0}, 2));
  }
}

}  // namespace
}  // namespace lazuli::test
