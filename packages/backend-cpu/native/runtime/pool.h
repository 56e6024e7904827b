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

  // Memory that the next long job reads once, from its beginning to its end.
  struct Range {
    const void* data;
    int64_t bytes;
  };
  static constexpr int kRanges = 8;
  // Until that job comes, workers that look for one ask for the first bytes of their parts: those are in
  // their caches by then, and the time that the caller takes for what it does alone is not lost to memory.
  void expect(const Range* ranges, int count);

  // Lets a worker that looks for work call f, in its own time and on its own processor; false where none
  // looks. forget() waits until nothing of what was asked for with `arg` is left to do.
  bool ask(void (*f)(void* arg), void* arg);
  void forget(void* arg);

  // True if a worker looks for work now.
  bool is_awake() const { return looking_.load(std::memory_order_relaxed) > 0; }

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

  bool work(Job& job, int thread);
  static bool join(Job& job);
  bool help(int thread);
  void serve(int index);
  void start_workers();
  void do_errand();
  // The progress of a worker with what is expected.
  struct Fetched {
    uint32_t seen = 0;
    const char *next = nullptr, *end = nullptr;
  };
  bool fetch(int thread, Fetched& fetched) const;
  void wake(int64_t count);
  void avoid_caller();
  void allow_everywhere();
  void keep_workers_off(int processor);
  void step_aside();
  // Workers inside a job, with the processor time that they had used when they were looked at.
  struct Stalled;
  using Time = std::chrono::steady_clock::time_point;
  void wait_for_helpers(Job& job, Time begin);
  bool other_is_busy() const;

  Job jobs_[kJobs];
  alignas(64) std::atomic<int32_t> epoch_{0};
  alignas(64) std::atomic<int32_t> parked_{0};
  // Counts what was expected. Addresses and sizes of two expectations may be mixed up: what is fetched is
  // never wrong.
  alignas(64) std::atomic<uint32_t> expected_{0};
  struct ExpectedRange {
    std::atomic<const char*> data{nullptr};
    std::atomic<int64_t> bytes{0};
  };
  ExpectedRange ranges_[kRanges];
  // A call that a worker was asked for, and how far that is.
  enum Errand : int { kNone, kWritten, kReady, kBegun };
  std::atomic<int> errand_{kNone};
  void (*errand_body_)(void*) = nullptr;
  std::atomic<void*> errand_arg_{nullptr};
  std::atomic<int> looking_{0};                    // workers that look for work
  std::atomic<int> backward_{0};                   // whether the next long job is
  std::atomic<int> avoided_{-1};                   // the processor that parked workers are kept off
  std::atomic<int> ids_[kMaxThreads]{};            // of the workers, for the kernel
  std::atomic<const Job*> inside_[kMaxThreads]{};  // the job that a worker is inside
  std::atomic<bool> brought_[kMaxThreads]{};  // whether a worker is on the processor of a caller that sleeps
  std::atomic<int> threads_{1};
  std::atomic<int> started_{0};
};

Pool& pool();

}  // namespace lazuli

#endif
