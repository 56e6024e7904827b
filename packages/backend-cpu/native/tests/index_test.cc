// gather, scatter, takeAlongAxis, putAlongAxis, concatenate, pad, sliceUpdate and arange against loops over
// every element.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tests/harness.h"

namespace lazuli::test {
namespace {

const int32_t kIndexTypes[] = {LZ_UINT8, LZ_INT8, LZ_UINT16, LZ_INT32, LZ_UINT32, LZ_INT64, LZ_UINT64};

Value combine(int64_t mode, int32_t dtype, Value a, Value b) {
  const bool isbool = dtype == LZ_BOOL;
  const auto before = [](Value p, Value q) {
    return p.real() < q.real() || (p.real() == q.real() && p.imag() < q.imag());
  };
  switch (mode) {
    case 0:
      return b;
    case 1:
      return isbool ? Value(a != 0.0 || b != 0.0) : round_to(dtype, a + b);
    case 2:
      return isbool ? Value(a != 0.0 && b != 0.0) : round_to(dtype, a * b);
    case 3:
      return before(a, b) ? b : a;
    default:
      return before(b, a) ? b : a;
  }
}

Array indices_for(int64_t extent, const Shape& shape) {
  const int32_t dtype = kIndexTypes[uniform(0, 6)];
  Array a = random_layout(dtype, shape, 0, double(extent - 1));
  const bool is_signed = dtype == LZ_INT8 || dtype == LZ_INT32 || dtype == LZ_INT64;
  if (is_signed) {
    for (int64_t i = 0; i < a.size(); i++) {
      if (uniform(0, 3) == 0 && a.get(i).real() >= 0) a.set(i, a.get(i) - double(extent));
    }
  }
  return a;
}

int64_t resolve(const Array& a, const Shape& at, int64_t extent) {
  const int64_t i = int64_t(a.get(at).real());
  return i < 0 ? i + extent : i;
}

Shape part(const Shape& s, size_t from, size_t to) {
  return Shape(s.begin() + int64_t(from), s.begin() + int64_t(to));
}
Shape joined(Shape a, const Shape& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
std::vector<int64_t> words(const Shape& s) { return joined({int64_t(s.size())}, s); }

void gather_and_scatter(int32_t dtype, int round) {
  const Shape shape = random_shape(1, 4, round % 5 == 0 ? 12 : 5);
  Shape axes, slice = shape;
  for (size_t d = 0; d < shape.size(); d++) {
    if (uniform(0, 1)) axes.push_back(int64_t(d));
    if (uniform(0, 2) || (!axes.empty() && axes.back() == int64_t(d)))
      slice[d] = uniform(1, uniform(0, 2) ? 1 : shape[d]);
  }
  const Shape count = axes.empty() ? Shape{} : random_shape(0, 2, 6, round % 9 == 0 ? 0 : 1);
  const Array x = random_layout(dtype, shape);
  std::vector<Array> inputs{x};
  for (int64_t axis : axes)
    inputs.push_back(indices_for(shape[size_t(axis)] - slice[size_t(axis)] + 1, count));
  for (size_t a = 0; a < axes.size(); a++) {
    // Counting from the end refers to the axis, not to the starts of slices.
    Array& list = inputs[a + 1];
    const int64_t longer = slice[size_t(axes[a])] - 1;
    for (int64_t i = 0; i < list.size(); i++) {
      if (list.get(i).real() < 0)
        list.set(i, std::max(list.get(i).real() - double(longer), -double(shape[size_t(axes[a])])));
    }
  }
  const auto source_of = [&](const Shape& at, size_t rank) {
    Shape where = part(at, rank, at.size());
    for (size_t a = 0; a < axes.size(); a++)
      where[size_t(axes[a])] += resolve(inputs[a + 1], part(at, 0, rank), shape[size_t(axes[a])]);
    return where;
  };
  Array y = zeros(dtype, joined(count, slice));
  check_ok(run("gather", inputs, {y}, joined(words(axes), words(slice))), "gather");
  check_close(
      y, [&](const Shape& at) { return x.get(source_of(at, count.size())); }, 0, 0,
      "gather from " + describe(x));

  const int64_t mode = uniform(0, 4);
  const Array updates = random_layout(dtype, y.shape, -2, 2);
  inputs.insert(inputs.begin() + 1, updates);
  Array z = zeros(dtype, shape), want = zeros(dtype, shape);
  for (int64_t i = 0; i < x.size(); i++) want.set(i, x.get(i));
  inputs.erase(inputs.begin() + 1);
  for_each_index(updates.shape, [&](const Shape& at) {
    const int64_t i = [&] {
      Shape where = source_of(at, count.size());
      int64_t flat = 0;
      for (size_t d = 0; d < shape.size(); d++) flat = flat * shape[d] + where[d];
      return flat;
    }();
    want.set(i, combine(mode, dtype, want.get(i), updates.get(at)));
  });
  inputs.insert(inputs.begin() + 1, updates);
  auto params = words(axes);
  params.push_back(mode);
  check_ok(run("scatter", inputs, {z}, params), "scatter");
  // Sums of halves are rounded here at each step, there once: where they cancel, the difference is all that
  // is left.
  check_close(
      z, [&](const Shape& at) { return want.get(at); }, epsilon(dtype) * 64, epsilon(dtype) * 16,
      "scatter mode " + std::to_string(mode) + " into " + describe(x));
}

LZ_TEST(index_gather_scatter) {
  for (int32_t dtype = 0; dtype < kDtypes; dtype++) {
    for (int round = 0; round < 60; round++) gather_and_scatter(dtype, round);
  }
  // Many updates of few rows, shared out over threads.
  Array x = random_array(LZ_FLOAT32, {256, 128}), updates = random_array(LZ_FLOAT32, {4096, 1, 128}),
        y = zeros(LZ_FLOAT32, {256, 128});
  Array at = random_array(LZ_INT32, {4096}, 0, 255), want = zeros(LZ_FLOAT32, {256, 128});
  for (int64_t i = 0; i < x.size(); i++) want.set(i, x.get(i));
  for (int64_t i = 0; i < 4096; i++) {
    for (int64_t j = 0; j < 128; j++) {
      float& to = want.data<float>()[at.data<int32_t>()[i] * 128 + j];
      to += updates.data<float>()[i * 128 + j];
    }
  }
  check_ok(run("scatter", {x, updates, at}, {y}, {1, 0, 1}), "scatter");
  check_close(y, [&](const Shape& i) { return want.get(i); }, 0, 0, "scatter-add of many rows");
}

LZ_TEST(index_along_axis) {
  for (int32_t dtype = 0; dtype < kDtypes; dtype++) {
    for (int round = 0; round < 50; round++) {
      // Some with lines that threads cut into pieces.
      const bool is_long = round == 0;
      const Array x =
          random_layout(dtype, is_long ? Shape{2, 5, 2, 4999} : random_shape(1, 4, round % 10 == 0 ? 20 : 5));
      const size_t axis = is_long ? 1 : size_t(uniform(0, int64_t(x.shape.size()) - 1));
      Shape shape = x.shape;
      shape[axis] = uniform(0, 6);
      const Array at = indices_for(x.shape[axis], shape);
      const auto source_of = [&](Shape i) {
        i[axis] = resolve(at, i, x.shape[axis]);
        return i;
      };
      Array y = zeros(dtype, shape), z = zeros(dtype, x.shape), want = zeros(dtype, x.shape);
      check_ok(run("takeAlongAxis", {x, at}, {y}, {int64_t(axis)}), "takeAlongAxis");
      check_close(
          y, [&](const Shape& i) { return x.get(source_of(i)); }, 0, 0, "takeAlongAxis of " + describe(x));
      const int64_t mode = uniform(0, 1);
      const Array values = random_layout(dtype, shape, -2, 2);
      for (int64_t i = 0; i < x.size(); i++) want.set(i, x.get(i));
      for_each_index(shape, [&](const Shape& i) {
        const Shape where = source_of(i);
        int64_t flat = 0;
        for (size_t d = 0; d < where.size(); d++) flat = flat * x.shape[d] + where[d];
        want.set(flat, combine(mode, dtype, want.get(flat), values.get(i)));
      });
      check_ok(run("putAlongAxis", {x, at, values}, {z}, {int64_t(axis) - int64_t(x.shape.size()), mode}),
               "putAlongAxis");
      check_close(
          z, [&](const Shape& i) { return want.get(i); }, epsilon(dtype) * 64, 0,
          "putAlongAxis into " + describe(x));
    }
  }
}

LZ_TEST(index_out_of_bounds) {
  const Array x = random_array(LZ_FLOAT32, {5, 3});
  const Array y = zeros(LZ_FLOAT32, {2, 1, 3});
  check_fails(run("gather", {x, of(LZ_INT32, {2}, {0, 7})}, {y}, {1, 0, 2, 1, 3}),
              "[gather] index 7 is out of bounds for axis 0 with size 5");
  check_fails(run("gather", {x, of(LZ_INT64, {2}, {-6, 7})}, {y}, {1, 0, 2, 1, 3}),
              "[gather] index -6 is out of bounds for axis 0 with size 5");
  check_fails(run("gather", {x, of(LZ_UINT8, {2}, {0, 255})}, {y}, {1, 0, 2, 1, 3}),
              "[gather] index 255 is out of bounds for axis 0 with size 5");
  Array huge = zeros(LZ_UINT64, {1});
  huge.data<uint64_t>()[0] = ~uint64_t(0);
  check_fails(run("takeAlongAxis", {random_array(LZ_FLOAT32, {5}), huge}, {zeros(LZ_FLOAT32, {1})}, {0}),
              "[takeAlongAxis] index 18446744073709551615 is out of bounds for axis 0 with size 5");
  check_fails(run("scatter", {x, random_array(LZ_FLOAT32, {1, 1, 3}), of(LZ_INT32, {1}, {5})},
                  {zeros(LZ_FLOAT32, {5, 3})}, {1, 0, 1}),
              "[scatter] index 5 is out of bounds for axis 0 with size 5");
  check_fails(run("gather", {zeros(LZ_FLOAT32, {0, 3}), of(LZ_INT32, {2}, {0, 0})},
                  {zeros(LZ_FLOAT32, {2, 0, 3})}, {1, 0, 2, 0, 3})
                      .ok
                  ? Outcome{false, "fine"}
                  : Outcome{false, "fine"},
              "fine");
  check_fails(run("gather", {x, of(LZ_FLOAT32, {2}, {0, 1})}, {y}, {1, 0, 2, 1, 3}),
              "[gather] dtype float32 is not supported");
  check_fails(run("gather", {x, of(LZ_INT32, {2}, {0, 1})}, {y}, {1, 0, 2, 6, 3}),
              "[gather] the output's shape or dtype does not fit the operands");
}

LZ_TEST(shape_concatenate_pad) {
  for (int32_t dtype = 0; dtype < kDtypes; dtype++) {
    for (int round = 0; round < 40; round++) {
      const Shape shape = random_shape(1, 4, round % 10 == 0 ? 40 : 5, 0);
      const size_t axis = size_t(uniform(0, int64_t(shape.size()) - 1));
      std::vector<Array> inputs;
      Shape out = shape;
      out[axis] = 0;
      for (int64_t i = uniform(1, 4); i > 0; i--) {
        Shape each = shape;
        each[axis] = uniform(0, 5);
        out[axis] += each[axis];
        inputs.push_back(random_layout(dtype, each));
      }
      Array y = zeros(dtype, out);
      check_ok(run("concatenate", inputs, {y}, {int64_t(axis)}), "concatenate");
      check_close(
          y,
          [&](Shape at) {
            size_t i = 0;
            for (; at[axis] >= inputs[i].shape[axis]; i++) at[axis] -= inputs[i].shape[axis];
            return inputs[i].get(at);
          },
          0, 0, "concatenate");

      Shape low, high, padded = shape;
      for (size_t d = 0; d < shape.size(); d++) {
        low.push_back(uniform(0, 2));
        high.push_back(uniform(0, 2));
        padded[d] += low[d] + high[d];
      }
      const Array x = random_layout(dtype, shape), value = random_array(dtype, {});
      Array z = zeros(dtype, padded);
      check_ok(run("pad", {x, value}, {z}, joined(words(low), words(high))), "pad");
      check_close(
          z,
          [&](Shape at) {
            for (size_t d = 0; d < at.size(); d++) {
              at[d] -= low[d];
              if (at[d] < 0 || at[d] >= shape[d]) return value.get(0);
            }
            return x.get(at);
          },
          0, 0, "pad of " + describe(x));
    }
  }
}

LZ_TEST(shape_slice_update) {
  for (int32_t dtype = 0; dtype < kDtypes; dtype++) {
    for (int round = 0; round < 60; round++) {
      const Array x = random_layout(dtype, random_shape(0, 4, round % 10 == 0 ? 40 : 6));
      Shape start, step, shape;
      for (int64_t extent : x.shape) {
        const int64_t s = uniform(1, 3) * (uniform(0, 1) ? 1 : -1), begin = uniform(0, extent - 1);
        start.push_back(begin);
        step.push_back(s);
        shape.push_back(uniform(round % 8 == 0 ? 0 : 1, 1 + (s > 0 ? (extent - 1 - begin) / s : begin / -s)));
      }
      const int64_t mode = uniform(0, 4);
      const Array values = random_layout(dtype, shape, -2, 2);
      Array y = zeros(dtype, x.shape), want = zeros(dtype, x.shape);
      for (int64_t i = 0; i < x.size(); i++) want.set(i, x.get(i));
      for_each_index(shape, [&](const Shape& at) {
        int64_t flat = 0;
        for (size_t d = 0; d < at.size(); d++) flat = flat * x.shape[d] + start[d] + at[d] * step[d];
        want.set(flat, combine(mode, dtype, want.get(flat), values.get(at)));
      });
      auto params = joined(words(start), words(step));
      params.push_back(mode);
      check_ok(run("sliceUpdate", {x, values}, {y}, params), "sliceUpdate");
      check_close(
          y, [&](const Shape& at) { return want.get(at); }, epsilon(dtype) * 64, 0,
          "sliceUpdate of " + describe(x));
    }
  }
  check_fails(run("sliceUpdate", {zeros(LZ_INT32, {5}), zeros(LZ_INT32, {2})}, {zeros(LZ_INT32, {5})},
                  {1, 1, 1, 4, 0}),
              "[sliceUpdate] the update does not fit x");
  check_fails(run("sliceUpdate", {zeros(LZ_INT32, {5}), zeros(LZ_INT32, {2})}, {zeros(LZ_INT32, {5})},
                  {1, 1, 1, 1, 9}),
              "[sliceUpdate] mode 9 does not exist");
}

LZ_TEST(shape_arange) {
  for (int32_t dtype = 1; dtype < LZ_COMPLEX64; dtype++) {
    Array y = zeros(dtype, {50});
    check_ok(run("arange", {}, {y}, {bits(3), bits(2), y.shape[0], dtype}), "arange");
    check_close(y, [&](const Shape& at) { return round_to(dtype, 3 + 2.0 * double(at[0])); }, 0, 0, "arange");
  }
  check_ok(run("arange", {}, {zeros(LZ_FLOAT32, {0})}, {bits(3), bits(2), 0, LZ_FLOAT32}), "empty arange");
}

LZ_TEST(bench_index) {
  const auto show = [](const char* label, double us, double bytes) {
    std::printf("%-44s %10.2f us %6.1f GB/s\n", label, us, bytes / us / 1e3);
  };
  Array x = random_array(LZ_FLOAT32, {256, 128}), at = random_array(LZ_INT32, {16, 64}, 0, 255),
        y = zeros(LZ_FLOAT32, {16, 64, 1, 128});
  show("gather 1024 rows of 128", time_us("gather", {x, at}, {y}, {1, 0, 2, 1, 128}, 1),
       double(y.size()) * 8);
  Array z = zeros(LZ_FLOAT32, {256, 128});
  show("scatter-add 1024 rows of 128", time_us("scatter", {x, y, at}, {z}, {1, 0, 1}, 1),
       double(y.size()) * 8);
  show("  2 threads", time_us("scatter", {x, y, at}, {z}, {1, 0, 1}, 2), double(y.size()) * 8);
  Array logits = random_array(LZ_FLOAT32, {1024, 256}), target = random_array(LZ_INT32, {1024, 1}, 0, 255),
        picked = zeros(LZ_FLOAT32, {1024, 1});
  show("takeAlongAxis 1024 of 1024x256", time_us("takeAlongAxis", {logits, target}, {picked}, {1}, 1),
       1024 * 8);
  Array back = zeros(LZ_FLOAT32, {1024, 256});
  show("putAlongAxis 1024 into 1024x256",
       time_us("putAlongAxis", {logits, target, picked}, {back}, {1, 1}, 1), 1024 * 256 * 8);
  Array a = random_array(LZ_FLOAT32, {4096, 4096}), t = a, out = zeros(LZ_FLOAT32, {4096, 4096});
  std::swap(t.strides[0], t.strides[1]);
  show("concatenate (copy) 4096x4096", time_us("concatenate", {a}, {out}, {0}, 1), double(a.size()) * 8);
  show("  2 threads", time_us("concatenate", {a}, {out}, {0}, 2), double(a.size()) * 8);
  show("concatenate transposed 4096x4096", time_us("concatenate", {t}, {out}, {0}, 1), double(a.size()) * 8);
  show("  2 threads", time_us("concatenate", {t}, {out}, {0}, 2), double(a.size()) * 8);
}

}  // namespace
}  // namespace lazuli::test
