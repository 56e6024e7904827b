// Reductions against naive loops in double, over every dtype and randomly drawn layouts and axes.
#include "tests/harness.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

namespace lazuli::test {
namespace {

int32_t sum_dtype(int32_t dtype) {
  if (dtype == LZ_BOOL || dtype == LZ_INT8 || dtype == LZ_INT16) return LZ_INT32;
  if (dtype == LZ_UINT8 || dtype == LZ_UINT16) return LZ_UINT32;
  return dtype;
}

bool before(Value a, Value b) { return a.real() < b.real() || (a.real() == b.real() && a.imag() < b.imag()); }
bool is_nan(Value a) { return std::isnan(a.real()) || std::isnan(a.imag()); }

void one(const std::string& op, const Array& x, const std::vector<bool>& reduced) {
  Shape shape = x.shape;
  std::vector<int64_t> params{0};
  for (size_t d = 0; d < shape.size(); d++) {
    if (!reduced[d]) continue;
    shape[d] = 1;
    params.push_back(uniform(0, 1) ? int64_t(d) : int64_t(d) - int64_t(shape.size()));
    params[0]++;
  }
  const bool logical = op == "all" || op == "any";
  const int32_t out = logical ? LZ_BOOL : op == "sum" || op == "prod" ? sum_dtype(x.dtype) : x.dtype;
  Array y = zeros(out, shape);
  const std::string what = op + " of " + describe(x);
  check_ok(run(op, {x}, {y}, params), what);
  Array want = zeros(LZ_COMPLEX64, shape);
  std::vector<Value> total(size_t(want.size()), op == "prod" || op == "all" ? 1.0 : 0.0);
  std::vector<bool> first(total.size(), true);
  for_each_index(x.shape, [&](const Shape& index) {
    Shape at = index;
    for (size_t d = 0; d < at.size(); d++) at[d] = reduced[d] ? 0 : at[d];
    const size_t i = size_t(want.at(at));
    const Value v = x.get(index);
    if (op == "sum")
      total[i] += v;
    else if (op == "prod")
      total[i] *= v;
    else if (op == "all")
      total[i] = total[i] != 0.0 && v != 0.0;
    else if (op == "any")
      total[i] = total[i] != 0.0 || v != 0.0;
    else if (first[i] ||
             (!is_nan(total[i]) && (is_nan(v) || (op == "max" ? before(total[i], v) : before(v, total[i])))))
      total[i] = v;
    first[i] = false;
  });
  const double eps = std::max(epsilon(out), out == LZ_FLOAT64 ? 0
                                            : is_integer(out) ? 0
                                                              : 0x1p-24) *
                     (op == "prod" ? 32 : 4);
  check_close(
      y, [&](const Shape& index) { return total[size_t(want.at(index))]; }, eps, is_integer(out) ? 0 : 1e-4,
      what);
}

LZ_TEST(reduce_every_dtype_and_layout) {
  for (const std::string op : {"sum", "prod", "max", "min", "all", "any"}) {
    for (int32_t dtype = 0; dtype < kDtypes; dtype++) {
      for (int round = 0; round < 40; round++) {
        const bool prod = op == "prod";
        const Shape shape = random_shape(0, 4, round % 4 == 0 ? 40 : 7);
        Array x = prod ? random_layout(dtype, random_shape(0, 3, 4), 1, 1.2) : random_layout(dtype, shape);
        std::vector<bool> reduced(x.shape.size());
        for (size_t d = 0; d < reduced.size(); d++) reduced[d] = uniform(0, 1);
        one(op, x, reduced);
      }
    }
  }
}

LZ_TEST(reduce_large) {
  for (int32_t dtype : {LZ_FLOAT32, LZ_FLOAT16, LZ_INT32, LZ_FLOAT64, LZ_COMPLEX64}) {
    for (const std::string op : {"sum", "max", "any"}) {
      one(op, random_array(dtype, {300000}), {true});
      one(op, random_array(dtype, {3, 70001}), {false, true});
      one(op, random_array(dtype, {5000, 37}), {true, false});
      one(op, random_array(dtype, {2, 500, 300}), {false, true, false});
      one(op, random_array(dtype, {2000, 5, 30}), {true, false, true});
      one(op, random_array(dtype, {70, 1200}), {true, false});
      one(op, random_layout(dtype, {60, 70, 50}), {true, false, true});
    }
  }
}

LZ_TEST(reduce_empty_and_special) {
  for (const std::string op : {"sum", "prod", "max", "min", "all", "any"}) {
    const bool logical = op == "all" || op == "any";
    for (int32_t dtype : {LZ_FLOAT32, LZ_INT8, LZ_BOOL, LZ_COMPLEX64}) {
      Array y = zeros(logical ? LZ_BOOL : dtype, {2, 1});
      check_ok(run(op, {zeros(dtype, {2, 0})}, {y}, {1, 1}), op + " over nothing");
      if (op == "sum" || op == "any") check(y.get(1) == 0.0, op);
      if (op == "prod" || op == "all") check(y.get(1) == 1.0, op);
      if (op == "max" && dtype == LZ_INT8) check(y.get(1) == -128.0, "max of no int8");
      if (op == "min" && dtype == LZ_FLOAT32) check(y.get(1) == Value(INFINITY), "min of no float32");
      check_ok(run(op, {zeros(dtype, {0, 3})}, {zeros(y.dtype, {0, 1})}, {1, 1}), op + " to nothing");
    }
  }
  for (int64_t n : {3, 17, 100, 1000}) {
    for (int64_t index : {int64_t(0), n / 2, n - 1}) {
      for (int32_t dtype : {LZ_FLOAT32, LZ_FLOAT64, LZ_BFLOAT16, LZ_FLOAT16}) {
        Array x = random_array(dtype, {n});
        x.set(index, NAN);
        one("max", x, {true});
        one("min", x, {true});
        x.set(index, -INFINITY);
        one("max", x, {true});
        one("sum", x, {true});
      }
    }
  }
  check_fails(run("sum", {zeros(LZ_FLOAT32, {2, 3})}, {zeros(LZ_FLOAT32, {2, 1})}, {1, 2}),
              "[sum] axis 2 is out of bounds for an array of 2 dimensions");
  check_fails(run("sum", {zeros(LZ_FLOAT32, {2, 3})}, {zeros(LZ_FLOAT32, {2, 3})}, {1, 1}),
              "[sum] the output's shape or dtype does not fit the input's");
}

LZ_TEST(reduce_accuracy) {
  // 0.1 summed ten million times: plain float addition is off by several percent.
  const int64_t n = 10000000;
  Array x = zeros(LZ_FLOAT32, {n});
  for (int64_t i = 0; i < n; i++) x.data<float>()[i] = 0.1f;
  Array y = zeros(LZ_FLOAT32, {1});
  run("sum", {x}, {y}, {1, 0});
  const double error = y.get(0).real() / (double(0.1f) * double(n)) - 1;
  check(std::abs(error) < 5e-7, "a long sum is off by " + std::to_string(error * 1e6) + " millionths");
}

LZ_TEST(bench_reduce) {
  const auto bench = [](const char* label, const Shape& shape, std::vector<int64_t> axes,
                        const char* op = "sum", int32_t dtype = LZ_FLOAT32) {
    Array x = zeros(dtype, shape);
    Shape out = shape;
    for (auto a : axes) out[size_t(a)] = 1;
    Array y = zeros(dtype, out);
    axes.insert(axes.begin(), int64_t(axes.size()));
    const double one = time_us(op, {x}, {y}, axes, 1), two = time_us(op, {x}, {y}, axes, 2);
    const double bytes = double(x.size() * itemsize(dtype));
    std::printf("%-34s %10.2f us %6.1f GB/s   2 threads %10.2f us %6.1f GB/s\n", label, one,
                bytes / one / 1e3, two, bytes / two / 1e3);
  };
  bench("sum 32M all", {32 << 20}, {0});
  bench("sum 4096x4096 last", {4096, 4096}, {1});
  bench("sum 4096x4096 first", {4096, 4096}, {0});
  bench("sum 64x512x512 middle", {64, 512, 512}, {1});
  bench("sum 64x512x512 ends", {64, 512, 512}, {0, 2});
  bench("max 4096x4096 last", {4096, 4096}, {1}, "max");
  bench("max 4096x4096 first", {4096, 4096}, {0}, "max");
  bench("sum f16 4096x4096 last", {4096, 4096}, {1}, "sum", LZ_FLOAT16);
  bench("sum bf16 4096x4096 first", {4096, 4096}, {0}, "sum", LZ_BFLOAT16);
  bench("sum i32 4096x4096 last", {4096, 4096}, {1}, "sum", LZ_INT32);
  bench("sum 1Mx4 last", {1 << 20, 4}, {1});
  bench("sum 1024x128 last", {1024, 128}, {1});
  bench("sum 1024x128 first", {1024, 128}, {0});
  bench("sum 1024x256 first", {1024, 256}, {0});
  bench("sum 16x64x128 (0,1)", {16, 64, 128}, {0, 1});
  bench("sum 8", {8}, {0});
  bench("sum 4x4 last", {4, 4}, {1});
}

}  // namespace
}  // namespace lazuli::test
