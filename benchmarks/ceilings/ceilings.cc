// What this machine can do at most: memory bandwidth of a triad with non-temporal stores, and fused multiply-adds from registers, with one thread and
// with all. Prints JSON.
#include <immintrin.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {
using Clock = std::chrono::steady_clock;
double seconds(Clock::time_point since) { return std::chrono::duration<double>(Clock::now() - since).count(); }

#if defined(__AVX512F__)
using Vec = __m512;
constexpr int kLanes = 16;
Vec load(const float* p) { return _mm512_load_ps(p); }
void stream(float* p, Vec v) { _mm512_stream_ps(p, v); }
Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
Vec set(float x) { return _mm512_set1_ps(x); }
#else
using Vec = __m256;
constexpr int kLanes = 8;
Vec load(const float* p) { return _mm256_load_ps(p); }
void stream(float* p, Vec v) { _mm256_stream_ps(p, v); }
Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
Vec set(float x) { return _mm256_set1_ps(x); }
#endif

template <class F>
double on_threads(int threads, const F& f) {
  auto start = Clock::now();
  std::vector<std::thread> pool;
  for (int t = 1; t < threads; ++t) pool.emplace_back(f, t);
  f(0);
  for (auto& thread : pool) thread.join();
  return seconds(start);
}

// Bytes a second of a = b + s * c over arrays that no cache holds.
double triad(int threads) {
  const size_t n = size_t(1) << 25;
  float* data = static_cast<float*>(std::aligned_alloc(64, 3 * n * sizeof(float)));
  for (size_t i = 0; i < 3 * n; ++i) data[i] = 1.0f;
  double best = 0;
  for (int round = 0; round < 8; ++round) {
    double s = on_threads(threads, [&](int t) {
      const size_t from = n / threads * t, to = n / threads * (t + 1);
      const Vec scale = set(0.5f);
      for (size_t i = from; i < to; i += kLanes) stream(data + i, fma(load(data + 2 * n + i), scale, load(data + n + i)));
      _mm_sfence();
    });
    best = std::max(best, 12.0 * double(n) / s);
  }
  std::free(data);
  return best;
}

// Floating-point operations a second of independent multiply-adds.
double multiply_adds(int threads) {
  const long count = 20'000'000;
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    double s = on_threads(threads, [&](int t) {
      Vec sums[12];
      for (auto& v : sums) v = set(float(t));
      const Vec a = set(0.999f), b = set(1e-3f);
      for (long i = 0; i < count; ++i)
        for (auto& v : sums) v = fma(v, a, b);
      Vec total = sums[0];
      for (auto& v : sums) total = fma(v, a, total);
      volatile float sink = total[0];
      (void)sink;
    });
    best = std::max(best, 2.0 * 12 * kLanes * double(count) * threads / s);
  }
  return best;
}
}  // namespace

int main() {
  const int all = int(std::thread::hardware_concurrency());
  std::printf("{\"triad\": %.0f, \"triadAll\": %.0f, \"fma\": %.0f, \"fmaAll\": %.0f}\n", triad(1), triad(all), multiply_adds(1), multiply_adds(all));
}
