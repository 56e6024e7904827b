// The process's fork-join thread pool. The caller of run() works too and never waits for a worker that has
// not started, so a busy machine costs nothing but the help it cannot give. Every thread begins with the same
// part of the items each time: what it wrote or read there may still be in the caches of its own processor.
// Long jobs go through their parts forward and backward in turn: what the last one came to in the end is
// still in the cache that processors share, and would be gone before one that begins at the same end came
// there.
#ifndef LAZULI_RUNTIME_POOL_H
#define LAZULI_RUNTIME_POOL_H

#include <time.h>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace lazuli {

class Pool {
 public:
  using Body = void (*)(void* arg, int64_t begin, int64_t end);

  // Runs body over [0, n) in runs of chunks of at least `grain`. Inside a body it runs inline.
  void run(int64_t n, int64_t grain, Body body, void* arg);

  // From now on the calling thread works beside another one, whose processor time the clock shows: while that
  // one is at work, which it is for itself, a processor is left to it.
  static void work_beside(clockid_t clock);

  int threads() const { return threads_.load(std::memory_order_relaxed); }
  void set_threads(int count);

 private:
  friend Pool& pool();
  Pool();

  static constexpr int kJobs = 8;
  static constexpr int kMaxThreads = 256;

  // The chunks of a thread's part that nobody has taken: the first in the low half, their end in the high
  // one.
  struct alignas(64) Part {
    std::atomic<uint64_t> left{0};
  };

  // One job at a time. `state`: bit 0 says workers may join, the bits above count those inside. A worker
  // that has joined keeps it from being reused; one that never comes is not waited for.
  struct alignas(64) Job {
    std::atomic<uint64_t> state{0};
    std::atomic<int64_t> helpers{0};  // how many may be inside at once
    std::atomic<int32_t> waiting{0};  // whether the caller sleeps until the last of them has left
    Body body = nullptr;
    void* arg = nullptr;
    int64_t n = 0, chunk = 1;
    int parts = 1;
    bool backward = false;
    Part part[kMaxThreads];
  };

  void work(Job& job, int thread);
  static bool join(Job& job);
  bool help(int thread);
  void serve(int index);
  void start_workers();
  void wake(int64_t count);
  void avoid_caller();
  void allow_everywhere();
  using Time = std::chrono::steady_clock::time_point;
  void wait_for_helpers(Job& job, Time begin);
  bool other_is_busy() const;

  Job jobs_[kJobs];
  alignas(64) std::atomic<int32_t> epoch_{0};
  alignas(64) std::atomic<int32_t> parked_{0};
  std::atomic<int> backward_{0};         // whether the next long job is
  std::atomic<int> avoided_{-1};         // the processor that parked workers are kept off
  std::atomic<int> ids_[kMaxThreads]{};  // of the workers, for the kernel
  std::atomic<int> threads_{1};
  std::atomic<int> started_{0};
};

Pool& pool();

}  // namespace lazuli

#endif
