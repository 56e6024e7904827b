// Products against the BLAS library called directly with as many threads, in turns: the best of many runs
// each. Run with: kernel_tests bench_matmul
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "kernels/blas.h"
#include "runtime/pool.h"
#include "tests/harness.h"

namespace lazuli::test {
namespace {

Array turned(Array a) {
  const size_t n = a.shape.size();
  std::swap(a.shape[n - 1], a.shape[n - 2]);
  std::swap(a.strides[n - 1], a.strides[n - 2]);
  return a;
}

double best_us(double seconds, const std::function<void()>& f) {
  using Clock = std::chrono::steady_clock;
  double best = 1e18, spent = 0;
  int repeat = 1;
  for (int round = 0; round < 1000 && spent < seconds; round++) {
    const auto start = Clock::now();
    for (int i = 0; i < repeat; i++) f();
    const double time = std::chrono::duration<double>(Clock::now() - start).count();
    spent += time;
    best = std::min(best, time / repeat * 1e6);
    if (time < 50e-6) repeat *= 2;
  }
  return best;
}

void library(bool ta, bool tb, int64_t batch, int64_t m, int64_t n, int64_t k, const float* a, const float* b,
             float* y) {
  for (int64_t i = 0; i < batch; i++)
    blas::gemm(ta, tb, m, n, k, 1.0f, a + i * m * k, ta ? m : k, b + i * k * n, tb ? k : n, 0.0f,
               y + i * m * n, n);
}

void compare(const char* label, int64_t batch, int64_t m, int64_t n, int64_t k, bool ta, bool tb) {
  Shape sa = ta ? Shape{batch, k, m} : Shape{batch, m, k}, sb = tb ? Shape{batch, n, k} : Shape{batch, k, n};
  const Array a = random_array(LZ_FLOAT32, sa), b = random_array(LZ_FLOAT32, sb);
  Array y = zeros(LZ_FLOAT32, {batch, m, n});
  const Array x = ta ? turned(a) : a, w = tb ? turned(b) : b;
  std::printf("%-30s", label);
  for (int threads : {1, 2}) {
    double times[2] = {1e18, 1e18};
    for (int round = 0; round < 6; round++) {
      times[0] = std::min(times[0], time_us("matmul", {x, w}, {y}, {}, threads));
#if defined(LAZULI_OPENBLAS)
      openblas_set_num_threads(threads);
#endif
      times[1] =
          std::min(times[1], best_us(0.3, [&] {
                     library(ta, tb, batch, m, n, k, a.data<float>(), b.data<float>(), y.data<float>());
                   }));
#if defined(LAZULI_OPENBLAS)
      openblas_set_num_threads(1);
#endif
    }
    const double flops = 2.0 * double(batch * m) * double(n) * double(k) / 1e3;
    std::printf("  %d: %10.2f us %6.1f GFLOP/s, library %10.2f us %6.1f, ratio %.2f", threads, times[0],
                flops / times[0], times[1], flops / times[1], times[1] / times[0]);
  }
  std::printf("\n");
  std::fflush(stdout);
}

LZ_TEST(bench_matmul_square) {
  compare("64", 1, 64, 64, 64, false, false);
  compare("128", 1, 128, 128, 128, false, false);
  compare("256", 1, 256, 256, 256, false, false);
  compare("512", 1, 512, 512, 512, false, false);
  compare("512, second turned", 1, 512, 512, 512, false, true);
  compare("1024", 1, 1024, 1024, 1024, false, false);
  compare("1024, first turned", 1, 1024, 1024, 1024, true, false);
  compare("1024, second turned", 1, 1024, 1024, 1024, false, true);
  compare("2048", 1, 2048, 2048, 2048, false, false);
  compare("64 x 128", 64, 128, 128, 128, false, false);
}

LZ_TEST(bench_matmul_training) {
  compare("64x784 @ 784x256", 1, 64, 256, 784, false, false);
  compare("(64x784)T @ 64x256", 1, 784, 256, 64, true, false);
  compare("64x256 @ 256x10", 1, 64, 10, 256, false, false);
  compare("64x10 @ (256x10)T", 1, 64, 256, 10, false, true);
  compare("(64x256)T @ 64x10", 1, 256, 10, 64, true, false);
  compare("1024x128 @ 128x512", 1, 1024, 512, 128, false, false);
  compare("1024x512 @ 512x128", 1, 1024, 128, 512, false, false);
  compare("1024x128 @ (512x128)T", 1, 1024, 512, 128, false, true);
  compare("(1024x128)T @ 1024x512", 1, 128, 512, 1024, true, false);
  compare("1024x128 @ 128x128", 1, 1024, 128, 128, false, false);
  compare("64 x 64x32 @ (64x32)T", 64, 64, 64, 32, false, true);
  compare("64 x 64x64 @ 64x32", 64, 64, 32, 64, false, false);
}

LZ_TEST(bench_matmul_rows) {
  for (int64_t m : {2, 4, 8, 16, 32}) {
    compare((std::to_string(m) + "x4096 @ 4096x4096").c_str(), 1, m, 4096, 4096, false, false);
    compare((std::to_string(m) + "x4096 @ (4096x4096)T").c_str(), 1, m, 4096, 4096, false, true);
  }
}

}  // namespace
}  // namespace lazuli::test
