// argmax, argmin, sort, argsort and the scans against naive loops.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "tests/harness.h"

namespace lazuli::test {
namespace {

bool is_nan(Value v) { return std::isnan(v.real()) || std::isnan(v.imag()); }
bool before(Value a, Value b) { return a.real() < b.real() || (a.real() == b.real() && a.imag() < b.imag()); }
bool nan_last(Value a, Value b) { return is_nan(a) ? false : is_nan(b) ? true : before(a, b); }

std::vector<Value> line(const Array& x, Shape at, size_t axis) {
  std::vector<Value> values;
  for (at[axis] = 0; at[axis] < x.shape[axis]; at[axis]++) values.push_back(x.get(at));
  return values;
}

void sprinkle(const Array& x) {
  if (is_integer(x.dtype)) return;
  for (int64_t i = 0; i < x.size(); i++) {
    const int64_t kind = uniform(0, 40);
    if (kind == 0) x.set(i, NAN);
    if (kind == 1) x.set(i, INFINITY);
    if (kind == 2) x.set(i, -0.0);
    if (kind == 3) x.set(i, 0.0);
  }
}

void arrange(const Array& x, size_t axis) {
  Shape one = x.shape;
  one[axis] = 1;
  Array most = zeros(LZ_UINT32, one), least = zeros(LZ_UINT32, one), sorted = zeros(x.dtype, x.shape),
        order = zeros(LZ_UINT32, x.shape);
  const std::string what = " of " + describe(x) + " axis " + std::to_string(axis);
  check_ok(run("argmax", {x}, {most}, {int64_t(axis)}), "argmax" + what);
  check_ok(run("argmin", {x}, {least}, {int64_t(axis) - int64_t(x.shape.size())}), "argmin" + what);
  check_ok(run("sort", {x}, {sorted}, {int64_t(axis)}), "sort" + what);
  check_ok(run("argsort", {x}, {order}, {int64_t(axis)}), "argsort" + what);
  for_each_index(one, [&](Shape at) {
    const auto v = line(x, at, axis);
    const auto first_nan = std::find_if(v.begin(), v.end(), is_nan);
    const auto high = first_nan != v.end() ? first_nan : std::max_element(v.begin(), v.end(), before);
    const auto low = first_nan != v.end() ? first_nan : std::min_element(v.begin(), v.end(), before);
    check(most.get(at).real() == double(high - v.begin()), "argmax" + what);
    check(least.get(at).real() == double(low - v.begin()), "argmin" + what);
    std::vector<size_t> sorted_by(v.size());
    std::iota(sorted_by.begin(), sorted_by.end(), size_t(0));
    std::stable_sort(sorted_by.begin(), sorted_by.end(),
                     [&](size_t a, size_t b) { return nan_last(v[a], v[b]); });
    bool same = true, same_order = true;
    for (size_t i = 0; i < v.size(); i++) {
      at[axis] = int64_t(i);
      same &=
          close(sorted.get(at), v[sorted_by[i]], 0, 0) || (is_nan(sorted.get(at)) && is_nan(v[sorted_by[i]]));
      same_order &= order.get(at).real() == double(sorted_by[i]);
    }
    check(same, "sort" + what);
    check(same_order, "argsort" + what);
  });
}

LZ_TEST(order_layouts) {
  for (int32_t dtype = 0; dtype < kDtypes; dtype++) {
    for (int round = 0; round < 60; round++) {
      const Array x = random_layout(dtype, random_shape(1, 4, round % 4 == 0 ? 40 : 6));
      sprinkle(x);
      arrange(x, size_t(uniform(0, int64_t(x.shape.size()) - 1)));
    }
    const Array x = random_array(dtype, {3, 5000}, -100, 100);
    sprinkle(x);
    arrange(x, 1);
    arrange(random_array(dtype, {900, 60}), 1);
    arrange(random_array(dtype, {200, 30}), 0);
  }
  check_fails(run("argmax", {zeros(LZ_FLOAT32, {2, 0})}, {zeros(LZ_UINT32, {2, 1})}, {1}),
              "[argmax] the axis has no elements");
  check_ok(run("sort", {zeros(LZ_FLOAT32, {2, 0})}, {zeros(LZ_FLOAT32, {2, 0})}, {1}), "sort of nothing");
}

void scan(const std::string& op, const Array& x, size_t axis) {
  const bool reverse = uniform(0, 1), inclusive = uniform(0, 1);
  // A running count of what is true.
  const int32_t dtype = op == "cumsum" && x.dtype == LZ_BOOL ? int32_t(LZ_INT32) : x.dtype;
  Array y = zeros(dtype, x.shape);
  const std::string what = op + " of " + describe(x) + " axis " + std::to_string(axis) +
                           (reverse ? " reverse" : "") + (inclusive ? "" : " exclusive");
  check_ok(run(op, {x}, {y}, {int64_t(axis), reverse, inclusive}), what);
  Shape one = x.shape;
  one[axis] = std::min<int64_t>(1, one[axis]);
  const bool integer = is_integer(x.dtype);
  for_each_index(one, [&](Shape at) {
    auto v = line(x, at, axis);
    if (reverse) std::reverse(v.begin(), v.end());
    Value total = op == "cumprod" ? 1 : 0;
    bool any = false;
    for (size_t i = 0; i < v.size(); i++) {
      Value next = total;
      if (op == "cumsum")
        next = total + v[i];
      else if (op == "cumprod")
        next = total * v[i];
      else if (op == "logcumsumexp")
        next = any ? std::log(std::exp(total.real()) + std::exp(v[i].real())) : v[i].real();
      else if (!any || (op == "cummax" ? before(total, v[i]) : before(v[i], total)))
        next = v[i];
      if (integer) next = round_to(dtype, next);
      at[axis] = reverse ? int64_t(v.size() - 1 - i) : int64_t(i);
      if (inclusive || any || op == "cumsum" || op == "cumprod") {
        const Value want = inclusive ? next : total;
        check(close(y.get(at), want, epsilon(x.dtype) * (x.dtype == LZ_COMPLEX64 ? 64 : 4),
                    integer                   ? 0
                    : x.dtype == LZ_COMPLEX64 ? 1e-4
                                              : 1e-6),
              what);
      }
      total = next;
      any = true;
    }
  });
}

LZ_TEST(scan_layouts) {
  for (const std::string op : {"cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"}) {
    for (int32_t dtype = 0; dtype < kDtypes; dtype++) {
      if (op == "logcumsumexp" && (is_integer(dtype) || dtype == LZ_COMPLEX64)) continue;
      for (int round = 0; round < 50; round++) {
        const Shape shape =
            random_shape(1, 4, round % 4 == 0 && op != "cumprod" ? 30 : 6, round % 7 == 0 ? 0 : 1);
        const Array x =
            op == "cumprod" ? random_layout(dtype, shape, 0.5, 1.5) : random_layout(dtype, shape, -2, 2);
        scan(op, x, size_t(uniform(0, int64_t(x.shape.size()) - 1)));
      }
    }
    scan(op, random_array(LZ_FLOAT32, {40, 3000}, -1, 1), op == "cumprod" ? 0 : 1);
    scan(op, random_array(LZ_FLOAT32, {90, 700}, -1, 1), 0);
  }
  Array x = of(LZ_FLOAT32, {4}, {1, NAN, -INFINITY, 2}), y = zeros(LZ_FLOAT32, {4});
  for (const std::string op : {"cumsum", "cummax", "logcumsumexp"}) {
    check_ok(run(op, {x}, {y}, {0, 0, 1}), op);
    check(y.get(0) == 1.0 && std::isnan(y.get(1).real()) && std::isnan(y.get(3).real()),
          "a NaN stays from where it is, in " + op);
  }
  x = of(LZ_FLOAT32, {3}, {-INFINITY, 1, INFINITY});
  y = zeros(LZ_FLOAT32, {3});
  check_ok(run("logcumsumexp", {x}, {y}, {0, 0, 1}), "logcumsumexp");
  check(y.get(0) == Value(-INFINITY) && y.get(1) == 1.0 && y.get(2) == Value(INFINITY),
        "logcumsumexp with infinities");
}

LZ_TEST(bench_order) {
  const auto show = [](const char* label, const std::string& op, const Array& x, const Array& y,
                       const std::vector<int64_t>& params) {
    const double a = time_us(op, {x}, {y}, params, 1), b = time_us(op, {x}, {y}, params, 2);
    std::printf("%-32s %10.2f us (%.2f ns an element), 2 threads %10.2f us\n", label, a,
                a * 1e3 / double(x.size()), b);
  };
  const Array x = random_array(LZ_FLOAT32, {1024, 256}), y = zeros(LZ_FLOAT32, {1024, 256}),
              i = zeros(LZ_UINT32, {1024, 256}), one = zeros(LZ_UINT32, {1024, 1});
  const Array z = random_array(LZ_FLOAT32, {1 << 20}), zs = zeros(LZ_FLOAT32, {1 << 20});
  show("argmax 1024x256", "argmax", x, one, {1});
  show("sort 1024x256", "sort", x, y, {1});
  show("argsort 1024x256", "argsort", x, i, {1});
  show("sort 1M", "sort", z, zs, {0});
  show("cumsum 1024x256 last", "cumsum", x, y, {1, 0, 1});
  show("cumsum 1024x256 first", "cumsum", x, y, {0, 0, 1});
  show("cumsum 1M", "cumsum", z, zs, {0, 0, 1});
}

}  // namespace
}  // namespace lazuli::test
