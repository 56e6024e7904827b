// The machine's ceilings: memory bandwidth of a triad with non-temporal stores, of reads and of writes alone,
// and fused multiply-adds from registers, with one thread and with all. Prints JSON.
#include <immintrin.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>
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
void store(float* p, Vec v) { _mm512_store_ps(p, v); }
Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
Vec set(float x) { return _mm512_set1_ps(x); }
#else
using Vec = __m256;
constexpr int kLanes = 8;
Vec load(const float* p) { return _mm256_load_ps(p); }
void stream(float* p, Vec v) { _mm256_stream_ps(p, v); }
void store(float* p, Vec v) { _mm256_store_ps(p, v); }
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

// Bytes a second over arrays that no cache holds, in huge pages where the system gives them: the best of some
// rounds.
class Memory {
 public:
  Memory() : data_(static_cast<float*>(std::aligned_alloc(kHugePage, 3 * kCount * sizeof(float)))) {
#ifdef MADV_HUGEPAGE
    madvise(data_, 3 * kCount * sizeof(float), MADV_HUGEPAGE);
#endif
    for (size_t i = 0; i < 3 * kCount; ++i) data_[i] = 1.0f;
  }
  ~Memory() { std::free(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // a = b + s * c
  double triad(int rounds, int threads) const {
    return best_of(rounds, threads, 3, [&](size_t from, size_t to) {
      const Vec scale = set(0.5f);
      for (size_t i = from; i < to; i += kLanes)
        stream(data_ + i, fma(load(data_ + 2 * kCount + i), scale, load(data_ + kCount + i)));
      _mm_sfence();
    });
  }
  double reads(int rounds, int threads) const {
    return best_of(rounds, threads, 1, [&](size_t from, size_t to) {
      Vec sums[8];
      for (auto& v : sums) v = set(0);
      const Vec one = set(1);
      for (size_t i = from; i < to; i += 8 * kLanes)
        for (size_t v = 0; v < 8; ++v) sums[v] = fma(load(data_ + i + v * kLanes), one, sums[v]);
      for (auto& v : sums) sums[0] = fma(v, one, sums[0]);
      volatile float sink = sums[0][0];
      (void)sink;
    });
  }
  // Past the caches or through them, whichever is faster.
  double writes(int rounds, int threads) const {
    const Vec value = set(2);
    const double streamed = best_of(rounds, threads, 1, [&](size_t from, size_t to) {
      for (size_t i = from; i < to; i += kLanes) stream(data_ + i, value);
      _mm_sfence();
    });
    const double cached = best_of(rounds, threads, 1, [&](size_t from, size_t to) {
      for (size_t i = from; i < to; i += kLanes) store(data_ + i, value);
    });
    return std::max(streamed, cached);
  }

 private:
  template <class F>
  double best_of(int rounds, int threads, int arrays, const F& f) const {
    double best = 0;
    for (int round = 0; round < rounds; ++round) {
      const double s =
          on_threads(threads, [&](int t) { f(kCount / threads * t, kCount / threads * (t + 1)); });
      best = std::max(best, arrays * double(sizeof(float)) * double(kCount) / s);
    }
    return best;
  }
  static constexpr size_t kCount = size_t(1) << 25, kHugePage = size_t(1) << 21;
  float* data_;
};

// Floating-point operations a second, of which a vector's `step` has so many a lane, on independent vectors:
// the best of some rounds.
template <class F>
double best_rate(int rounds, int threads, long count, int operations, const F& step) {
  double best = 0;
  for (int round = 0; round < rounds; ++round) {
    double s = on_threads(threads, [&](int t) {
      Vec sums[12];
      for (auto& v : sums) v = set(float(t));
      for (long i = 0; i < count; ++i)
        for (auto& v : sums) v = step(v);
      const Vec one = set(1);
      Vec total = sums[0];
      for (auto& v : sums) total = fma(v, one, total);
      volatile float sink = total[0];
      (void)sink;
    });
    best = std::max(best, double(operations) * 12 * kLanes * double(count) * threads / s);
  }
  return best;
}
double multiply_adds(int rounds, int threads) {
  const Vec a = set(0.999f), b = set(1e-3f);
  return best_rate(rounds, threads, 5'000'000, 2, [=](Vec v) { return fma(v, a, b); });
}
// The same of products of bfloat16 pairs where there are such, with all threads.
double pair_products(int rounds, int threads) {
#if defined(__AVX512BF16__)
  const auto a = __m512bh(_mm512_set1_epi16(0x3f00)), b = __m512bh(_mm512_set1_epi16(0x3f01));
  return best_rate(rounds, threads, 2'000'000, 4, [=](Vec v) { return _mm512_dpbf16_ps(v, a, b); });
#else
  return multiply_adds(rounds, threads);
#endif
}
}  // namespace

// Without arguments: all figures. With "pairs": for each line of input, the floating-point operations a
// second of products of pairs. With the bytes and the floating-point operations of a workload, and how many
// of the bytes are written: for each line of input, the least time in milliseconds that the machine needs for
// them at this moment. Of a triad a third is written; where the third argument says how many bytes are,
// neither direction can be faster than it is alone.
int main(int argc, char** argv) {
  const int all = int(std::thread::hardware_concurrency());
  if (argc == 2 && std::string_view(argv[1]) == "pairs") {
    while (std::getchar() != EOF) {
      std::printf("{\"value\": %.9g}\n", pair_products(2, all));
      std::fflush(stdout);
    }
    return 0;
  }
  if (argc < 3) {
    const Memory memory;
    std::printf(
        "{\"triad\": %.0f, \"triadAll\": %.0f, \"readsAll\": %.0f, \"writesAll\": %.0f, \"fma\": %.0f, "
        "\"fmaAll\": %.0f}\n",
        memory.triad(8, 1), memory.triad(8, all), memory.reads(8, all), memory.writes(8, all),
        multiply_adds(8, 1), multiply_adds(8, all));
    return 0;
  }
  const double bytes = std::atof(argv[1]), flops = std::atof(argv[2]);
  const double written = argc > 3 ? std::atof(argv[3]) : -1;
  const std::unique_ptr<Memory> memory(bytes > 0 ? new Memory : nullptr);
  std::printf("{\"ready\": true}\n");
  std::fflush(stdout);
  while (std::getchar() != EOF) {
    double least = memory ? bytes / std::max(memory->triad(2, 1), memory->triad(2, all)) : 0;
    if (memory && written >= 0)
      least = std::max({least, (bytes - written) / std::max(memory->reads(2, 1), memory->reads(2, all)),
                        written / std::max(memory->writes(2, 1), memory->writes(2, all))});
    const double computed = flops > 0 ? flops / multiply_adds(2, all) : 0;
    std::printf("{\"value\": %.9g}\n", 1e3 * std::max(least, computed));
    std::fflush(stdout);
  }
}
