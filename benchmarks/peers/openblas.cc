// OpenBLAS called directly, as a contestant: the matrix products of float32, with OpenBLAS's own threads. Its
// side of the conversation with main.ts is that of serve.ts.
#include <cblas.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

namespace {
using Clock = std::chrono::steady_clock;
constexpr double kLeastMs = 15, kWarmUpMs = 500;

struct Product {
  const char* name;
  int size;
  int count;
  CBLAS_TRANSPOSE second;
};
constexpr Product kProducts[] = {
    {"matmul 64", 64, 1, CblasNoTrans},
    {"matmul 512", 512, 1, CblasNoTrans},
    {"matmul 1024", 1024, 1, CblasNoTrans},
    {"matmul 2048", 2048, 1, CblasNoTrans},
    {"matmul 1024, second transposed", 1024, 1, CblasTrans},
    {"matmul 64 × 128²", 128, 64, CblasNoTrans},
};

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

std::vector<float> numbers(size_t count) {
  std::vector<float> made(count);
  for (size_t i = 0; i < count; ++i) made[i] = float(std::fmod(double(i) * 0.6180339887498949, 1.0) * 2 - 1);
  return made;
}

template <class F>
double ms_of(int calls, const F& body) {
  const auto start = Clock::now();
  for (int i = 0; i < calls; ++i) body();
  return ms_since(start);
}

template <class F>
void serve(const F& body) {
  for (const auto start = Clock::now(); ms_since(start) < kWarmUpMs;) body();
  int calls = 1;
  while (ms_of(calls, body) < kLeastMs) calls *= 2;
  std::printf("{\"ready\": true}\n");
  std::fflush(stdout);
  while (std::getchar() != EOF) {
    body();
    std::printf("{\"value\": %.9g}\n", ms_of(calls, body) / calls);
    std::fflush(stdout);
  }
}
}  // namespace

int main(int argc, char** argv) {
  for (const Product& product : kProducts) {
    if (argc < 2 || std::string(argv[1]) != product.name) continue;
    const int n = product.size;
    const size_t area = size_t(n) * size_t(n);
    const auto a = numbers(area * size_t(product.count)), b = a;
    std::vector<float> c(a.size());
    serve([&] {
      for (size_t i = 0; i < c.size(); i += area)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, product.second, n, n, n, 1, &a[i], n, &b[i], n, 0, &c[i], n);
    });
    return 0;
  }
  std::printf("{\"missing\": \"not there\"}\n");
}
