// Searches for tilings of a float32 product that all threads share: product_tilings THREADS M N K SECONDS
// TOP. Says which are the fastest alone; then each line of input measures them, the chosen one first, in
// turns with whatever else the reader runs between two lines, and prints their milliseconds.
// benchmarks/peers/tilings.py does so beside PyTorch.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kernels/gemm_tiles.h"
#include "runtime/pool.h"

namespace lazuli {
namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Shared tasks, or parts whose operands each thread packs for itself.
struct Candidate {
  GemmTiling tiling;
  int64_t rows, columns;
  bool apart;
  double best = 1e9;

  std::string name() const {
    return (apart            ? "apart "
            : tiling.pack_a  ? "a packed "
            : tiling.share_b ? "shared "
                             : "own ") +
           std::to_string(rows) + " x " + std::to_string(columns);
  }
};

struct Memory {
  explicit Memory(int64_t count) : floats(new float[size_t(count)]) {
    std::minstd_rand random;
    std::uniform_real_distribution<float> values(-1, 1);
    for (int64_t i = 0; i < count; i++) floats[i] = values(random);
  }
  std::unique_ptr<float[]> floats;
};

char* arena = nullptr;
size_t used = 0;
void* scratch(lz_context*, size_t bytes) {
  char* at = arena + used;
  used = (used + bytes + 4095) & ~size_t(4095);
  return at;
}
void pool_for(lz_context*, int64_t n, int64_t grain, void (*f)(void*, int64_t, int64_t), void* arg) {
  pool().run(n, grain, f, arg);
}
void fail(lz_context*, const char* format, ...) {
  std::fputs(format, stderr);
  std::abort();
}

class Search {
 public:
  Search(int threads, int64_t m, int64_t n, int64_t k) : a_(m * k), b_(k * n), c_(m * n) {
    pool().set_threads(threads);
    context_.threads = threads;
    context_.parallel_for = pool_for, context_.scratch = scratch, context_.fail = fail;
    call_.ctx = &context_;
    product_ = {{a_.floats.get(), LZ_FLOAT32, false, k},
                {b_.floats.get(), LZ_FLOAT32, false, n},
                m,
                n,
                k,
                1,
                0,
                c_.floats.get(),
                n};
    const GemmKind kind(LZ_FLOAT32, LZ_FLOAT32);
    const int64_t height = kind.wide_height(), width = kind.wide_width();
    const GemmTiling chosen = choose_tiling(product_, threads);
    all_.push_back({chosen, chosen.tiles * height, chosen.slivers * width, false});
    for (int64_t rows : {48, 64, 96, 128, 192, 256, 384, 512}) {
      const int64_t tiles = even_part(parts(m, height), std::max<int64_t>(1, rows / height));
      for (int64_t most : {1, 2, 3, 4, 8, 16}) {
        const int64_t slivers = even_part(parts(n, width), most);
        for (bool pack_a : {false, true})
          add({{tiles, slivers, pack_a}, tiles * height, slivers * width, false});
      }
      for (int64_t columns : {1, 2, 4, 8}) add({chosen, rows, columns * gemm_width(), true});
    }
  }

  void screen(double seconds) {
    const auto start = Clock::now();
    do {
      for (Candidate& each : all_) each.best = std::min({each.best, once(each), once(each)});
    } while (since(start) < seconds);
    std::sort(all_.begin() + 1, all_.end(), [](auto& x, auto& y) { return x.best < y.best; });
  }
  void keep(size_t top) { all_.resize(std::min(all_.size(), top)); }

  void names() const {
    for (size_t i = 0; i < all_.size(); i++)
      std::printf("%s\"%s%s\"", i ? ", " : "[", i ? "" : "chosen: ", all_[i].name().c_str());
    std::printf("]\n");
    std::fflush(stdout);
  }
  void measure() {
    // The first product after a pause pays for threads that sleep.
    once(all_[0]);
    for (size_t i = 0; i < all_.size(); i++) {
      const int calls = std::max(2, int(10e-3 / once(all_[i])));
      const auto start = Clock::now();
      for (int each = 0; each < calls; each++) once(all_[i]);
      std::printf("%s%.6f", i ? ", " : "[", since(start) * 1e3 / calls);
    }
    std::printf("]\n");
    std::fflush(stdout);
  }

 private:
  void add(const Candidate& x) {
    const bool known =
        std::any_of(all_.begin() + 1, all_.end(), [&](auto& y) { return y.name() == x.name(); });
    const int64_t tasks = parts(product_.m, x.rows) * parts(product_.n, x.columns);
    if (!known && tasks >= context_.threads) all_.push_back(x);
  }
  double once(const Candidate& x) {
    used = 0;
    const auto start = Clock::now();
    x.apart ? apart(x) : gemm(call_, product_, x.tiling);
    return since(start);
  }
  void apart(const Candidate& x) {
    const int64_t across = parts(product_.n, x.columns);
    const auto body = [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; task++) {
        const int64_t i = task / across * x.rows, j = task % across * x.columns;
        gemm(product_.part(i, std::min(x.rows, product_.m - i), j, std::min(x.columns, product_.n - j)));
      }
    };
    parallel_for(&context_, parts(product_.m, x.rows) * across, 1, body);
  }

  KernelContext context_{};
  lz_call call_{};
  GemmProblem product_{};
  Memory a_, b_, c_;
  std::vector<Candidate> all_;
};

}  // namespace
}  // namespace lazuli

int main(int argc, char** argv) {
  if (argc != 7) {
    std::fputs("product_tilings THREADS M N K SECONDS TOP\n", stderr);
    return 2;
  }
  lazuli::arena = static_cast<char*>(std::aligned_alloc(4096, size_t(1) << 28));
  lazuli::Search search(std::atoi(argv[1]), std::atoll(argv[2]), std::atoll(argv[3]), std::atoll(argv[4]));
  search.screen(std::atof(argv[5]));
  search.keep(size_t(std::atoi(argv[6])));
  search.names();
  for (char line[16]; std::fgets(line, sizeof line, stdin);) search.measure();
}
