// layerNorm and rmsNorm against their formulas in double, gradients against the formula of simd/norm.cc and
// differences.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tests/harness.h"

namespace lazuli::test {
namespace {

struct Row {
  std::vector<double> hat;
  double scale;
};

Row normalized(const Array& x, Shape at, bool layer, double eps) {
  const int64_t n = x.shape.back();
  double mean = 0, square = 0;
  std::vector<double> v;
  for (at.back() = 0; at.back() < n; at.back()++) v.push_back(x.get(at).real());
  for (double e : v) mean += layer ? e / double(n) : 0;
  for (double e : v) square += (e - mean) * (e - mean) / double(n);
  Row row{{}, 1 / std::sqrt(square + eps)};
  for (double e : v) row.hat.push_back((e - mean) * row.scale);
  return row;
}

void one(int32_t dtype, bool layer, Shape shape) {
  const double eps = 1e-3;
  const int64_t n = shape.back();
  const bool has_weight = uniform(0, 1), has_bias = layer && uniform(0, 1);
  const Array x = random_layout(dtype, shape, -4, 4, false), g = random_layout(dtype, shape),
              w = random_layout(dtype, {n}), b = random_layout(dtype, {n});
  const double tolerance = epsilon(dtype) * 2 + (dtype == LZ_FLOAT64 ? 1e-14 : 3e-6);
  const std::string what = (layer ? "layerNorm of " : "rmsNorm of ") + describe(x);
  Array y = zeros(dtype, shape);
  std::vector<Array> in{x};
  std::vector<int64_t> params{bits(eps), has_weight};
  if (has_weight) in.push_back(w);
  if (has_bias) in.push_back(b);
  if (layer) params.push_back(has_bias);
  check_ok(run(layer ? "layerNorm" : "rmsNorm", in, {y}, params), what);
  check_close(
      y,
      [&](const Shape& at) {
        const Row row = normalized(x, at, layer, eps);
        return Value(row.hat[size_t(at.back())] * (has_weight ? w.get(at.back()).real() : 1) +
                     (has_bias ? b.get(at.back()).real() : 0));
      },
      tolerance, tolerance * 8, what);

  Array dx = zeros(dtype, shape), dw = zeros(dtype, {n}), db = zeros(dtype, {n});
  in = {x};
  if (has_weight) in.push_back(w);
  in.push_back(g);
  std::vector<Array> out{dx};
  if (has_weight) out.push_back(dw);
  if (layer) out.push_back(db);
  check_ok(run(layer ? "layerNormVjp" : "rmsNormVjp", in, out, {bits(eps), has_weight}), what);
  std::vector<double> want_w(size_t(n), 0.0), want_b(size_t(n), 0.0);
  Array want = zeros(LZ_FLOAT64, shape);
  Shape lines(shape.begin(), shape.end() - 1);
  for_each_index(lines, [&](Shape at) {
    at.push_back(0);
    const Row row = normalized(x, at, layer, eps);
    double shift = 0, slope = 0;
    for (int64_t i = 0; i < n; i++) {
      at.back() = i;
      const double gi = g.get(at).real(), gw = gi * (has_weight ? w.get(i).real() : 1);
      shift += layer ? gw / double(n) : 0;
      slope += gw * row.hat[size_t(i)] / double(n);
      want_w[size_t(i)] += gi * row.hat[size_t(i)];
      want_b[size_t(i)] += gi;
    }
    for (int64_t i = 0; i < n; i++) {
      at.back() = i;
      const double gw = g.get(at).real() * (has_weight ? w.get(i).real() : 1);
      want.data<double>()[want.at(at)] = row.scale * (gw - shift - row.hat[size_t(i)] * slope);
    }
  });
  const double rows = double(total(lines)) + 1;
  check_close(dx, [&](const Shape& at) { return want.get(at); }, tolerance, tolerance * 400, what + " dx");
  if (has_weight)
    check_close(
        dw, [&](const Shape& at) { return Value(want_w[size_t(at[0])]); }, tolerance, tolerance * 8 * rows,
        what + " dw");
  if (layer)
    check_close(
        db, [&](const Shape& at) { return Value(want_b[size_t(at[0])]); }, tolerance, tolerance * 4 * rows,
        what + " db");
}

LZ_TEST(norm_layouts) {
  for (int32_t dtype : {LZ_FLOAT32, LZ_FLOAT64, LZ_FLOAT16, LZ_BFLOAT16}) {
    for (bool layer : {true, false}) {
      for (int round = 0; round < 60; round++) one(dtype, layer, random_shape(1, 4, round % 3 == 0 ? 40 : 6));
      one(dtype, layer, {700, 130});
      one(dtype, layer, {0, 3});
      one(dtype, layer, {2, 1});
    }
  }
  check_fails(run("rmsNorm", {zeros(LZ_INT32, {3})}, {zeros(LZ_INT32, {3})}, {bits(1e-5), 0}),
              "[rmsNorm] dtype int32 is not supported");
}

LZ_TEST(bench_norm) {
  for (auto [rows, n] : std::vector<std::pair<int64_t, int64_t>>{{1024, 128}, {4096, 4096}}) {
    const Array x = random_array(LZ_FLOAT32, {rows, n}), w = random_array(LZ_FLOAT32, {n}),
                y = zeros(LZ_FLOAT32, {rows, n}), dw = zeros(LZ_FLOAT32, {n}), db = zeros(LZ_FLOAT32, {n});
    const double bytes = double(x.size()) * 4;
    const auto show = [&](const char* label, const std::vector<Array>& in, const std::vector<Array>& out,
                          std::vector<int64_t> params, double passes) {
      const double a = time_us(label, in, out, params, 1), b = time_us(label, in, out, params, 2);
      std::printf("%-14s %5ldx%-5ld %9.2f us %6.1f GB/s, 2 threads %9.2f us %6.1f GB/s\n", label, long(rows),
                  long(n), a, passes * bytes / a / 1e3, b, passes * bytes / b / 1e3);
    };
    show("layerNorm", {x, w, w}, {y}, {bits(1e-5), 1, 1}, 2);
    show("layerNormVjp", {x, w, x}, {y, dw, db}, {bits(1e-5), 1}, 3);
    show("rmsNorm", {x, w}, {y}, {bits(1e-5), 1}, 2);
    show("rmsNormVjp", {x, w, x}, {y, dw}, {bits(1e-5), 1}, 3);
  }
}

}  // namespace
}  // namespace lazuli::test
