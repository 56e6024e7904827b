// The machine's ceilings: memory bandwidth of a triad with non-temporal stores, and fused
// multiply-adds from registers, with one thread and with all. Prints JSON.
#include <immintrin.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

namespace {
using Clock = std::chrono::steady_clock;
double seconds(Clock::time_point since) {
  return std::chrono::duration<double>(Clock::now() - since).count();
}

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

// Bytes a second of a = b + s * c over arrays that no cache holds, in huge pages where the system gives them:
// the best of some rounds.
class Triad {
 public:
  Triad() : data_(static_cast<float*>(std::aligned_alloc(kHugePage, 3 * kCount * sizeof(float)))) {
#ifdef MADV_HUGEPAGE
    madvise(data_, 3 * kCount * sizeof(float), MADV_HUGEPAGE);
#endif
    for (size_t i = 0; i < 3 * kCount; ++i) data_[i] = 1.0f;
  }
  ~Triad() { std::free(data_); }
  Triad(const Triad&) = delete;
  Triad& operator=(const Triad&) = delete;

  double best_of(int rounds, int threads) const {
    double best = 0;
    for (int round = 0; round < rounds; ++round) {
      double s = on_threads(threads, [&](int t) {
        const size_t from = kCount / threads * t, to = kCount / threads * (t + 1);
        const Vec scale = set(0.5f);
        for (size_t i = from; i < to; i += kLanes)
          stream(data_ + i, fma(load(data_ + 2 * kCount + i), scale, load(data_ + kCount + i)));
        _mm_sfence();
      });
      best = std::max(best, 12.0 * double(kCount) / s);
    }
    return best;
  }

 private:
  static constexpr size_t kCount = size_t(1) << 25, kHugePage = size_t(1) << 21;
  float* data_;
};

// Floating-point operations a second of independent multiply-adds: the best of some rounds.
double multiply_adds(int rounds, int threads) {
  const long count = 5'000'000;
  double best = 0;
  for (int round = 0; round < rounds; ++round) {
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

// Without arguments: all four figures. With the bytes and the floating-point operations of a workload: for
// each line of input, the least time in milliseconds that the machine needs for them at this moment.
int main(int argc, char** argv) {
  const int all = int(std::thread::hardware_concurrency());
  if (argc < 3) {
    const Triad triad;
    std::printf("{\"triad\": %.0f, \"triadAll\": %.0f, \"fma\": %.0f, \"fmaAll\": %.0f}\n",
                triad.best_of(8, 1), triad.best_of(8, all), multiply_adds(8, 1), multiply_adds(8, all));
    return 0;
  }
  const double bytes = std::atof(argv[1]), flops = std::atof(argv[2]);
  const std::unique_ptr<Triad> triad(bytes > 0 ? new Triad : nullptr);
  std::printf("{\"ready\": true}\n");
  std::fflush(stdout);
  while (std::getchar() != EOF) {
    const double moved = triad ? bytes / std::max(triad->best_of(2, 1), triad->best_of(2, all)) : 0;
    const double computed = flops > 0 ? flops / multiply_adds(2, all) : 0;
    std::printf("{\"value\": %.9g}\n", 1e3 * std::max(moved, computed));
    std::fflush(stdout);
  }
}
