// Measures every float32 function against long double over the whole range of float32, and checks that
// results depend neither on the position in an array nor on working in place.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "runtime/dtype.h"
#include "runtime/scalar_ops.h"
#include "simd/targets.h"

namespace lazuli {
namespace {

using Wide = long double;

Wide sigmoid(Wide x) { return 1 / (1 + expl(-x)); }

// Newton's method from the double precision answer.
Wide erfinv(Wide y) {
  const double start = double(y);
  double x;
  micro_table().sets[int(Op::erfinv)][LZ_FLOAT64].dense(&x, &start, nullptr, nullptr, 1);
  if (!std::isfinite(x)) return x;
  Wide refined = x;
  for (int i = 0; i < 3; i++) {
    const Wide slope = 2 / sqrtl(acosl(-1.0L)) * expl(-refined * refined);
    const Wide error = fabsl(y) < 0.5L ? erfl(refined) - y
                       : y > 0         ? (1 - y) - erfcl(refined)
                                       : erfcl(-refined) - (1 + y);
    refined += -error / slope;
  }
  return refined;
}

struct Case {
  Op op;
  Wide (*exact)(Wide);
  double limit;  // in units in the last place
};

constexpr Case kCases[] = {
    {Op::exp, expl, 1.5},    {Op::expm1, expm1l, 2},   {Op::log, logl, 1.5},      {Op::log1p, log1pl, 2},
    {Op::log2, log2l, 1},    {Op::log10, log10l, 1},   {Op::sin, sinl, 2},        {Op::cos, cosl, 2},
    {Op::tan, tanl, 1},      {Op::tanh, tanhl, 2},     {Op::sigmoid, sigmoid, 2}, {Op::erf, erfl, 2},
    {Op::sinh, sinhl, 1},    {Op::cosh, coshl, 1},     {Op::arcsin, asinl, 1},    {Op::arccos, acosl, 1},
    {Op::arctan, atanl, 1},  {Op::arcsinh, asinhl, 1}, {Op::arccosh, acoshl, 1},  {Op::arctanh, atanhl, 1},
    {Op::erfinv, erfinv, 1},
};

// The distance from a result to the exact value, in units of the last place of the float32 nearest to it.
double ulps(float got, Wide want) {
  const float nearest = float(want);
  if (std::isnan(want)) return std::isnan(got) ? 0 : INFINITY;
  if (std::isinf(nearest) || std::isinf(got)) {
    // Around the largest finite number either neighbour will do.
    return got == nearest || fabsl(want) < 3.41e38L ? 0 : INFINITY;
  }
  if (std::isnan(got)) return INFINITY;
  if (nearest == 0 && want == 0 && std::signbit(got) != std::signbit(nearest)) return INFINITY;
  int exponent;
  std::frexp(nearest, &exponent);
  const Wide unit = ldexpl(1, std::max(exponent - 24, -149));
  return double(fabsl(got - want) / unit);
}

bool measure(const Case& each) {
  constexpr size_t kBatch = 1 << 16;
  // A prime stride over all bit patterns: some four million arguments, NaN, infinities and subnormals among
  // them.
  constexpr uint64_t kStride = 1009;
  const Micro run = micro_table().sets[int(each.op)][LZ_FLOAT32].dense;
  std::vector<float> x(kBatch), y(kBatch);
  double worst = 0;
  float worst_at = 0;
  uint64_t next = 0;
  const float edges[] = {0.0f,     -0.0f,  1.0f,   -1.0f,   INFINITY, -INFINITY, NAN,     0.5f, -0.5f,
                         88.7228f, 88.73f, -87.4f, -103.9f, -104.1f,  1e-45f,    0x1p20f, 1e30f};
  while (next < (uint64_t(1) << 32)) {
    size_t n = 0;
    if (next == 0)
      for (float edge : edges) x[n++] = edge;
    for (; n < kBatch && next < (uint64_t(1) << 32); n++, next += kStride)
      x[n] = std::bit_cast<float>(uint32_t(next));
    run(y.data(), x.data(), nullptr, nullptr, int64_t(n));
    for (size_t i = 0; i < n; i++) {
      const double error = ulps(y[i], each.exact(x[i]));
      if (error > worst) worst = error, worst_at = x[i];
    }
  }
  const bool good = worst <= each.limit;
  std::printf("%-10s %6.3f ulp at %.9g%s\n", op_name(each.op), worst, double(worst_at),
              good ? "" : "   TOO FAR");
  return good;
}

bool measure_power() {
  const Micro run = micro_table().sets[int(Op::power)][LZ_FLOAT32].dense;
  double worst = 0;
  uint32_t state = 1;
  for (int i = 0; i < 2000000; i++) {
    state = state * 1664525 + 1013904223;
    const float x = std::bit_cast<float>((state >> 1) % 0x7f800000u);
    state = state * 1664525 + 1013904223;
    const float y = float(int32_t(state)) / 0x1p27f;
    float got;
    run(&got, &x, &y, nullptr, 1);
    worst = std::max(worst, ulps(got, powl(x, y)));
  }
  const float xs[] = {0.0f, -0.0f, 1.0f, -1.0f, 2.0f, -2.0f, 0.5f, INFINITY, -INFINITY, NAN};
  const float ys[] = {0.0f, 1.0f, -1.0f, 2.0f, 3.0f, -3.0f, 0.5f, INFINITY, -INFINITY, NAN, 1e10f};
  bool good = worst <= 1;
  for (float x : xs) {
    for (float y : ys) {
      float got;
      run(&got, &x, &y, nullptr, 1);
      const float want = std::pow(x, y);
      if (ulps(got, want) != 0 || (!std::isnan(want) && std::signbit(got) != std::signbit(want))) {
        std::printf("power(%g, %g) = %g, expected %g\n", double(x), double(y), double(got), double(want));
        good = false;
      }
    }
  }
  std::printf("%-10s %6.3f ulp\n", "power", worst);
  return good;
}

bool measure_arctan2() {
  const Micro run = micro_table().sets[int(Op::arctan2)][LZ_FLOAT32].dense;
  const float all[] = {0.0f, -0.0f, 1.0f, -1.0f, 2.5f, -1e-20f, 1e20f, INFINITY, -INFINITY, NAN};
  bool good = true;
  for (float y : all) {
    for (float x : all) {
      float got;
      run(&got, &y, &x, nullptr, 1);
      if (ulps(got, atan2l(y, x)) > 1) {
        std::printf("arctan2(%g, %g) = %g, expected %g\n", double(y), double(x), double(got),
                    double(atan2l(y, x)));
        good = false;
      }
    }
  }
  return good;
}

// The rounding of the difference counts, and where the two parts cancel, the error is that of the larger one.
bool measure_logaddexp() {
  const Micro run = micro_table().sets[int(Op::logaddexp)][LZ_FLOAT32].dense;
  double worst = 0;
  const auto check = [&](float x, float y) {
    float got;
    run(&got, &x, &y, nullptr, 1);
    const Wide high = std::max(x, y), low = std::min(x, y);
    const Wide want = std::isinf(high) || std::isinf(low) ? high + 0.0L : high + log1pl(expl(low - high));
    if (std::isnan(x) || std::isnan(y))
      worst = std::isnan(got) ? worst : INFINITY;
    else if (std::isinf(want) || high >= 0)
      worst = std::max(worst, ulps(got, want));
    else
      worst = std::max(worst, double(fabsl(got - want) / ldexpl(std::max<Wide>(-high, 1), -23)));
  };
  uint32_t state = 1;
  for (int i = 0; i < 2000000; i++) {
    state = state * 1664525 + 1013904223;
    const float x = float(int32_t(state)) / 0x1p26f;
    state = state * 1664525 + 1013904223;
    check(x, i % 2 ? 0.0f : float(int32_t(state)) / 0x1p26f);
  }
  const float edges[] = {0.0f, -0.0f, 1.0f, -200.0f, 3e38f, -3e38f, 1e-45f, INFINITY, -INFINITY, NAN};
  for (float x : edges)
    for (float y : edges) check(x, y);
  std::printf("%-10s %6.3f ulp\n", "logaddexp", worst);
  return worst <= 4;
}

// Every length up to three vectors, in place and not, gives the bits of one element alone.
bool check_lengths(Op op) {
  const MicroSet& set = micro_table().sets[int(op)][LZ_FLOAT32];
  for (int n = 1; n <= 48; n++) {
    std::vector<float> x(n), y(n + 1, -77.0f);
    for (int i = 0; i < n; i++) x[i] = 0.9f - 0.03f * float(i);
    set.dense(y.data(), x.data(), x.data(), nullptr, n);
    if (y[n] != -77.0f) return std::printf("%s writes beyond %d elements\n", op_name(op), n), false;
    std::vector<float> z = x;
    set.dense(z.data(), z.data(), z.data(), nullptr, n);
    for (int i = 0; i < n; i++) {
      float one;
      set.dense(&one, &x[i], &x[i], nullptr, 1);
      if (std::memcmp(&one, &y[i], 4) != 0 || std::memcmp(&one, &z[i], 4) != 0) {
        return std::printf("%s depends on the position (%d of %d)\n", op_name(op), i, n), false;
      }
    }
  }
  return true;
}

}  // namespace
}  // namespace lazuli

int main() {
  using namespace lazuli;
  std::printf("%s\n", simd_target_name());
  bool good = true;
  for (const Case& each : kCases) good = measure(each) & good;
  good = measure_power() & measure_arctan2() & measure_logaddexp() & good;
  for (int op = 0; op < kOps; op++) {
    if (op_arity(Op(op)) < 3 && micro_table().sets[op][LZ_FLOAT32].dense && Op(op) != Op::complex &&
        op_result(Op(op), LZ_FLOAT32) == LZ_FLOAT32) {
      good = check_lengths(Op(op)) & good;
    }
  }
  return good ? 0 : 1;
}
