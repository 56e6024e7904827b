// randomBits against bits that MLX 0.32 gives for the same keys, and the layouts of narrow and batched
// outputs against the stream of words.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "tests/harness.h"

namespace lazuli::test {
namespace {

Array keys(const Shape& shape, const std::vector<uint32_t>& values) {
  Array a = zeros(LZ_UINT32, shape);
  std::copy(values.begin(), values.end(), a.data<uint32_t>());
  return a;
}

LZ_TEST(random_split_is_mlx) {
  const struct {
    std::vector<uint32_t> key, want;
  } cases[] = {
      {{0x349bd917u, 0x56436832u},
       {0xa87ab5d7u, 0x628127dcu, 0xfa8ef9c9u, 0x89423233u, 0x599f0272u, 0x9058355bu, 0x20ad4d32u,
        0xcc811c15u, 0xf257424u, 0x40dff903u, 0x299a6c8cu, 0xe757897du, 0xcc1b81c5u, 0x64706a67u, 0x204ddf7au,
        0x77b86d97u}},
      {{0x2e3e9661u, 0x47cf4e5cu}, {0x8966f003u, 0xec8e2383u, 0x2594ef17u, 0x5e8b856u}},
      {{0xe6b6b76cu, 0xb4230e35u}, {0xf4c0e75fu, 0xbcb11612u, 0x139edd75u, 0xd7483642u}},
      {{0x4eb57263u, 0x93fb3ad3u}, {0x9eb33a1bu, 0xb918d80bu, 0xfabd744u, 0xef7a2ad2u}},
      {{0x464eabb0u, 0x235328c4u},
       {0xbb578084u, 0xff407ee8u, 0xa8b76e57u, 0x4366d47du, 0xf4847305u, 0x4ab1d824u}},
      {{0x95170b33u, 0xeafec08du},
       {0x1db6a170u, 0x8fc19784u, 0x6c4b7f6eu, 0xae2f3a2cu, 0xed6457cbu, 0xaae1b655u, 0x6a8cb6aau,
        0x345c4360u, 0x46829a17u, 0x456e58a9u, 0xb62c536au, 0xc2c24acu}},
      {{0xfe7f4021u, 0x88d8bf6au}, {0xed1f056bu, 0x9a1ea990u, 0x81ec40b9u, 0x4c97f4b9u}},
      {{0xfb950073u, 0x829a2642u},
       {0xba6d3b2u, 0x86690a5eu, 0x4965a7b0u, 0x78c79bd7u, 0x72899ebeu, 0x2700712au, 0x11721814u, 0x6f0fd7a3u,
        0x7a8883c4u, 0xb5f8c203u, 0x4992ad99u, 0xe4a1a934u, 0xe37c1466u, 0x4eb4ff70u, 0x70bc5f30u,
        0xcae92f02u}},
  };
  for (const auto& each : cases) {
    Array y = zeros(LZ_UINT32, {int64_t(each.want.size()) / 2, 2});
    check_ok(run("randomBits", {keys({2}, each.key)}, {y}, {4, 0}), "randomBits");
    check(std::equal(each.want.begin(), each.want.end(), y.data<uint32_t>()), "bits of split");
  }
}

LZ_TEST(random_uniform_is_mlx) {
  const struct {
    std::vector<uint32_t> key;
    int64_t n;
    std::vector<std::pair<int64_t, float>> want;
  } cases[] = {
      {{0xea861497u, 0xc868c9ebu},
       30,
       {{0, 0.0172454827f},
        {1, 0.933059096f},
        {14, 0.410152584f},
        {15, 0.854650676f},
        {16, 0.129291907f},
        {28, 0.23069413f},
        {29, 0.627055883f}}},
      {{0x9c7e8cf7u, 0xa322faaeu},
       63,
       {{0, 0.788874686f},
        {1, 0.376497209f},
        {30, 0.725557804f},
        {31, 0.0654311404f},
        {32, 0.845437706f},
        {61, 0.0828680247f},
        {62, 0.242956489f}}},
      {{0x9a8ebdecu, 0xb0e75d7au}, 1, {{0, 0.802343488f}}},
      {{0xd9d49b91u, 0x6d98b1ffu},
       83,
       {{0, 0.00839976035f},
        {1, 0.624715447f},
        {40, 0.694516778f},
        {41, 0.289656132f},
        {42, 0.804174185f},
        {81, 0.822137833f},
        {82, 0.699985147f}}},
      {{0xb8b59768u, 0x5d4be696u},
       30,
       {{0, 0.669693589f},
        {1, 0.216153607f},
        {14, 0.115238115f},
        {15, 0.999849617f},
        {16, 0.187793523f},
        {28, 0.355460048f},
        {29, 0.987288594f}}},
      {{0xb1ffc4f0u, 0x5a892cebu}, 1, {{0, 0.107174098f}}},
      {{0xf07adfb4u, 0xeb58fd5du},
       4999,
       {{0, 0.517293513f},
        {1, 0.177499846f},
        {2498, 0.453369826f},
        {2499, 0.650841117f},
        {2500, 0.0418558456f},
        {4997, 0.590211749f},
        {4998, 0.353004724f}}},
  };
  for (const auto& each : cases) {
    Array y = zeros(LZ_UINT32, {each.n});
    check_ok(run("randomBits", {keys({2}, each.key)}, {y}, {4, 0}), "randomBits");
    for (auto [i, want] : each.want) {
      const float got = std::fmin(float(y.data<uint32_t>()[i]) / 4294967295.0f, std::nextafter(1.0f, 0.0f));
      check(got == want, "uniform of " + std::to_string(each.n) + " at " + std::to_string(i));
    }
  }
}

LZ_TEST(random_layouts) {
  for (int round = 0; round < 60; round++) {
    const int64_t n = round < 20 ? round : uniform(20, 70000), batch = uniform(1, 3),
                  width = int64_t(1) << uniform(0, 2);
    const int32_t dtype = width == 1 ? LZ_UINT8 : width == 2 ? LZ_UINT16 : LZ_UINT32;
    const Array k = random_layout(LZ_UINT32, {batch, 2}, 0, 4e9);
    Array y = zeros(dtype, {batch, n});
    check_ok(run("randomBits", {k}, {y}, {width, 0}), "randomBits");
    for (int64_t b = 0; b < batch; b++) {
      // The same key alone, as whole words.
      const int64_t words = (n * width + 3) / 4;
      Array one = zeros(LZ_UINT32, {words});
      check_ok(
          run("randomBits", {keys({2}, {uint32_t(k.get({b, 0}).real()), uint32_t(k.get({b, 1}).real())})},
              {one}, {4, 0}),
          "randomBits");
      check(n == 0 || std::memcmp(y.data<char>() + b * n * width, one.data<char>(), size_t(n * width)) == 0,
            "narrow and batched bits");
    }
  }
  check_fails(run("randomBits", {zeros(LZ_UINT32, {3})}, {zeros(LZ_UINT32, {2})}, {4, 0}),
              "[randomBits] the keys or the output have the wrong shape or dtype");
}

LZ_TEST(bench_random) {
  for (int64_t n : {100, 131072, 1 << 24}) {
    Array y = zeros(LZ_UINT32, {n});
    const double a = time_us("randomBits", {keys({2}, {1, 2})}, {y}, {4, 0}, 1),
                 b = time_us("randomBits", {keys({2}, {1, 2})}, {y}, {4, 0}, 2);
    std::printf("randomBits %9ld %10.2f us %6.1f GB/s, 2 threads %10.2f us\n", long(n), a,
                double(4 * n) / a / 1e3, b);
  }
}

}  // namespace
}  // namespace lazuli::test
