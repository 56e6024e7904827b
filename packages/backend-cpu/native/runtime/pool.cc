#include "runtime/pool.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "runtime/processors.h"
#include "runtime/quota.h"

namespace lazuli {
namespace {

constexpr uint64_t kOpen = 1, kWorker = 2, kClaimed = uint64_t(1) << 62;
constexpr int64_t kChunks = 32;  // of a thread's part, where the grain allows as many
constexpr int64_t kLong = 32;    // A job of so many grains is one of many bytes.
// The time for which a worker looks for the next job before it parks; longer while jobs come so close that
// parking would have been a mistake. (What a program does between two evaluations takes some 50 to 200 µs
// where a kernel has just emptied the caches, and waking 30 to 60.)
constexpr auto kSpinTime = std::chrono::microseconds(30), kLongSpinTime = std::chrono::microseconds(300);

// The time for which the caller looks for the end of helpers' work before it sleeps: at least some 30 µs of
// looks, and longer after a long job, whose last chunk takes a share of it. (Waking takes 30 to 60 µs.)
constexpr int kWaitingSpins = 2000;
constexpr int kWaitingShare = 8;
constexpr auto kLongestWait = std::chrono::microseconds(500);
// The beginning of a job whose chunks are as short as the loop's grain.
constexpr std::chrono::steady_clock::time_point kShort{};
// A spinning worker that sees no time pass for so long was not running: others want its processor.
constexpr auto kPreempted = std::chrono::microseconds(500);

// Bytes that a worker asks for of what is expected: half of a second cache.
constexpr int64_t kFetched = 1 << 18;
constexpr int64_t kLine = 64;

thread_local bool inside_body = false;

// The thread beside which this one works.
struct Other {
  clockid_t clock;
  bool known = false;
  bool busy = false;  // when it was last asked for; this thread's job then leaves a processor to it
  std::chrono::steady_clock::time_point asked;
  std::chrono::nanoseconds used{0};
};
thread_local Other other;
constexpr auto kAskAgain = std::chrono::microseconds(200);

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

int default_threads() {
  if (const char* wish = std::getenv("LAZULI_NUM_THREADS")) {
    // The package warns of anything else.
    char* end = nullptr;
    const long count = std::strtol(wish, &end, 10);
    if (*end == '\0' && count > 0) return int(std::min<long>(count, INT_MAX));
  }
  int count = processors();
#if defined(__linux__)
  // More threads than a container has time for are stopped together until its next period.
  const double quota = processor_quota("/proc/self/cgroup", "/sys/fs/cgroup");
  if (quota > 0) count = std::min(count, std::max(1, int(std::ceil(quota))));
#endif
  return count;
}

std::mutex& starting() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

}  // namespace

// Leaked, and its workers detached: nothing at exit waits for a parked thread.
Pool& pool() {
  static Pool* it = [] {
    auto* made = new Pool;
    // The workers do not exist in a forked child; it starts its own.
    pthread_atfork(nullptr, nullptr, [] {
      Pool& p = pool();
      p.started_ = 0;
      p.parked_ = 0;
      p.avoided_ = -1;
      p.looking_ = 0;
      p.errand_ = Pool::kNone;
      for (auto& job : p.inside_) job = nullptr;
      // The parent's threads, which the child must not move.
      for (auto& id : p.ids_) id = 0;
      for (auto& brought : p.brought_) brought = false;
      for (auto& job : p.jobs_) job.state = 0;
    });
    return made;
  }();
  return *it;
}

Pool::Pool() { set_threads(default_threads()); }

void Pool::set_threads(int count) { threads_ = std::clamp(count, 1, kMaxThreads); }

void Pool::start_workers() {
  std::lock_guard lock(starting());
  for (int index = started_; index < threads_ - 1; index++) {
    try {
      std::thread([this, index] { serve(index); }).detach();
    } catch (...) {
      return;  // the system has no thread to give: the caller does the work
    }
    started_ = index + 1;
  }
}

bool Pool::join(Job& job) {
  uint64_t state = job.state.load(std::memory_order_relaxed);
  while ((state & kOpen) && int64_t(state / kWorker) < job.helpers.load(std::memory_order_relaxed)) {
    if (job.state.compare_exchange_weak(state, state + kWorker, std::memory_order_acquire)) return true;
  }
  return false;
}

void Pool::work_beside(clockid_t clock) {
  other.clock = clock;
  other.known = true;
  other.asked = {};
}

// True if the thread beside this one has used most of a processor since it was last asked for, where this
// thread and the workers would use all.
bool Pool::other_is_busy() const {
  static const int all = processors();
  if (!other.known || threads() < all) return other.busy = false;
  const auto now = std::chrono::steady_clock::now();
  const auto passed = now - other.asked;
  if (passed < kAskAgain) return other.busy;
  timespec time{};
  if (clock_gettime(other.clock, &time) != 0) return other.busy = false;
  const auto used = std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  other.busy = 2 * (used - other.used) > passed;
  other.used = used;
  other.asked = now;
  return other.busy;
}

// True if there was a chunk for this thread.
bool Pool::work(Job& job, int thread) {
  bool worked = false;
  const auto run = [this, &job, &worked](uint64_t first, uint64_t end) {
    worked = true;
    job.body(job.arg, int64_t(first) * job.chunk, std::min(job.n, int64_t(end) * job.chunk));
    // Only in who called.
    if (!other.busy || other_is_busy()) return;
    job.helpers.fetch_add(1, std::memory_order_relaxed);
    wake(1);
  };
  const auto empty = [&run, &job](Part& part, bool own) {
    const bool front = own != job.backward;
    uint64_t seen = part.left.load(std::memory_order_relaxed);
    for (;;) {
      const uint64_t first = uint32_t(seen), end = seen >> 32;
      if (first >= end) return;
      const uint64_t taken = own ? std::max<uint64_t>(1, (end - first) / 4) : 1;
      const uint64_t rest = front ? seen + taken : seen - (taken << 32);
      if (!part.left.compare_exchange_weak(seen, rest, std::memory_order_relaxed)) continue;
      front ? run(first, first + taken) : run(end - taken, end);
      seen = part.left.load(std::memory_order_relaxed);
    }
  };
  // Its own part from one end, a quarter of what is left at a time: few calls, and little to wait for in the
  // end.
  if (thread < job.parts) empty(job.part[thread], true);
  // Then the others', from the end to which their own threads come last.
  for (int i = 1; i <= job.parts; i++) empty(job.part[(thread + i) % job.parts], false);
  return worked;
}

// True if it did something. A job whose caller lost its processor stays open long after its last chunk was
// taken: who comes back to it finds nothing.
bool Pool::help(int thread) {
  bool helped = false;
  for (Job& job : jobs_) {
    if (!join(job)) continue;
    inside_[thread - 1].store(&job, std::memory_order_relaxed);
    if (work(job, thread)) helped = true;
    inside_[thread - 1].store(nullptr, std::memory_order_relaxed);
    const bool brought = brought_[thread - 1].exchange(false);
    // The job may be another caller's from here on, who then only looks once more.
    if (job.state.fetch_sub(kWorker) == kClaimed + kWorker && job.waiting.load() != 0) {
      job.waiting.store(0);
      job.waiting.notify_all();
    }
    if (brought) step_aside();
  }
  return helped;
}

// Where processors are few, the kernel may wake a worker on the caller's: both then wait for each other, at
// times for as long as a burst of calls lasts. So parked workers are kept off it.
void Pool::avoid_caller() {
  if (!few_processors()) return;
  const int here = current_processor();
  if (here < 0 || avoided_.exchange(here) == here) return;
  keep_workers_off(here);
}

// Takes back what avoid_caller() did.
void Pool::allow_everywhere() {
  if (avoided_.exchange(-1) >= 0) keep_workers_off(-1);
}

void Pool::keep_workers_off(int processor) {
  for (int i = 0; i < std::min(started_.load(), kFewProcessors); i++) {
    if (const int id = ids_[i].load()) keep_off(id, processor);
  }
}

void Pool::expect(const Range* ranges, int count) {
  for (int i = 0; i < kRanges; i++) {
    ranges_[i].data.store(i < count ? static_cast<const char*>(ranges[i].data) : nullptr,
                          std::memory_order_relaxed);
    ranges_[i].bytes.store(i < count ? ranges[i].bytes : 0, std::memory_order_relaxed);
  }
  backward_.store(0, std::memory_order_relaxed);
  expected_.fetch_add(1, std::memory_order_release);
}

// Asks for a little of what is expected. False where nothing is, or enough was asked for.
bool Pool::fetch(int thread, Fetched& fetched) const {
  const uint32_t expected = expected_.load(std::memory_order_acquire);
  if (expected != fetched.seen) {
    fetched.seen = expected;
    int64_t all = 0;
    for (const ExpectedRange& each : ranges_) all += each.bytes.load(std::memory_order_relaxed);
    int64_t at = all / threads() * thread;
    fetched.next = fetched.end = nullptr;
    for (const ExpectedRange& each : ranges_) {
      const int64_t bytes = each.bytes.load(std::memory_order_relaxed);
      if (at < bytes) {
        fetched.next = each.data.load(std::memory_order_relaxed) + at;
        fetched.end = fetched.next + std::min({bytes - at, all / threads(), kFetched});
        break;
      }
      at -= bytes;
    }
  }
  if (fetched.next >= fetched.end) return false;
  for (int i = 0; i < 16; i++, fetched.next += kLine) __builtin_prefetch(fetched.next, 0, 2);
  return true;
}

bool Pool::ask(void (*f)(void*), void* arg) {
  int none = kNone;
  if (looking_.load() == 0 || !errand_.compare_exchange_strong(none, kWritten)) return false;
  errand_body_ = f;
  errand_arg_.store(arg, std::memory_order_relaxed);
  errand_.store(kReady, std::memory_order_release);
  epoch_.fetch_add(1);
  // A worker that stops looking from here on looks once more before it parks.
  if (looking_.load() == 0) epoch_.notify_one();
  return true;
}

void Pool::do_errand() {
  int ready = kReady;
  if (errand_.load(std::memory_order_relaxed) != kReady ||
      !errand_.compare_exchange_strong(ready, kBegun, std::memory_order_acquire))
    return;
  errand_body_(errand_arg_.load(std::memory_order_relaxed));
  errand_.store(kNone, std::memory_order_release);
}

void Pool::forget(void* arg) {
  while (errand_.load(std::memory_order_acquire) != kNone && errand_arg_.load() == arg) {
    do_errand();
    std::this_thread::yield();
  }
}

void Pool::serve(int index) {
  inside_body = true;
  ids_[index].store(thread_id());
  avoided_.store(-1);
  auto spin_time = kSpinTime;
  Fetched fetched;
  for (;;) {
    const int32_t seen = epoch_.load(std::memory_order_acquire);
    const bool wanted = index < threads() - 1;
    do_errand();
    if (wanted && help(index + 1)) continue;
    looking_.fetch_add(1);
    const auto idle = std::chrono::steady_clock::now();
    bool preempted = false;
    auto last = idle;
    while (wanted && epoch_.load(std::memory_order_relaxed) == seen) {
      if (!fetch(index + 1, fetched))
        for (int i = 0; i < 32; i++) pause();
      const auto now = std::chrono::steady_clock::now();
      preempted = now > last + kPreempted;
      if (preempted || now > idle + spin_time) break;
      last = now;
    }
    looking_.fetch_sub(1);
    if (epoch_.load() != seen) continue;
    parked_.fetch_add(1);
    epoch_.wait(seen);
    parked_.fetch_sub(1);
    const bool soon = std::chrono::steady_clock::now() - idle < kLongSpinTime;
    spin_time = soon && !preempted ? kLongSpinTime : kSpinTime;
  }
}

void Pool::wake(int64_t count) {
  epoch_.fetch_add(1);
  const int64_t parked = parked_.load();
  if (parked == 0) return;
  avoid_caller();
  if (count >= parked || started_.load(std::memory_order_relaxed) >= threads()) {
    epoch_.notify_all();
  } else {
    for (int64_t i = 0; i < count; i++) epoch_.notify_one();
  }
}

void Pool::run(int64_t n, int64_t grain, Body body, void* arg) {
  if (n <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  const int workers = threads() - 1;
  if (workers == 0 || n <= grain || inside_body) {
    // A nested call keeps the flag; a plain inline call leaves it clear, so that the body itself may fork.
    body(arg, 0, n);
    return;
  }
  if (started_.load(std::memory_order_relaxed) < workers) start_workers();

  Job* job = nullptr;
  for (Job& each : jobs_) {
    uint64_t free = 0;
    if (each.state.compare_exchange_strong(free, kClaimed, std::memory_order_acquire)) {
      job = &each;
      break;
    }
  }
  if (!job) {
    body(arg, 0, n);
    return;
  }
  // Boundaries at multiples of 64 keep threads off each other's cache lines.
  int64_t chunk = std::max(grain, n / (int64_t(workers + 1) * kChunks));
  if (chunk > 256) chunk = (chunk + 63) / 64 * 64;
  const int64_t chunks = (n + chunk - 1) / chunk;
  job->body = body;
  job->arg = arg;
  job->n = n;
  job->chunk = chunk;
  job->parts = int(std::min<int64_t>(workers + 1, chunks));
  job->backward = n / grain >= kLong && backward_.fetch_xor(1, std::memory_order_relaxed) != 0;
  for (int64_t p = 0; p < job->parts; p++) {
    const uint64_t first = uint64_t(chunks * p / job->parts), end = uint64_t(chunks * (p + 1) / job->parts);
    job->part[p].left.store(first | end << 32, std::memory_order_relaxed);
  }
  const int64_t helpers = std::min<int64_t>(workers - (other_is_busy() ? 1 : 0), chunks - 1);
  job->helpers.store(helpers, std::memory_order_relaxed);
  job->state.store(kOpen, std::memory_order_release);
  if (helpers > 0) wake(helpers);

  const auto begin = chunk > grain ? std::chrono::steady_clock::now() : kShort;
  inside_body = true;
  work(*job, 0);
  // Of a worker that has lost its processor.
  do_errand();
  inside_body = false;

  // Nobody joins any more, and nobody has the job until it is free.
  if (job->state.fetch_add(kClaimed - kOpen, std::memory_order_acq_rel) != kOpen)
    wait_for_helpers(*job, begin);
  job->state.store(0, std::memory_order_release);
}

// Leaves the processor to the caller that was woken there, and the next one to whom this worker had to wait
// for: it has not lost its turn.
void Pool::step_aside() {
  keep_off(thread_id(), avoided_.load());
  std::this_thread::yield();
}

struct Pool::Stalled {
  struct Worker {
    int index;
    std::chrono::nanoseconds used;
  };
  Pool& pool;
  const Job& job;
  Worker workers[kFewProcessors];
  int count = 0;

  Stalled(Pool& of, const Job& at) : pool(of), job(at) {
    if (!few_processors()) return;
    for (int i = 0; i < std::min(pool.started_.load(), kFewProcessors); i++) {
      if (!is_inside(i)) continue;
      if (const auto used = used_time(pool.ids_[i].load())) workers[count++] = {i, *used};
    }
  }
  bool is_inside(int index) const { return pool.inside_[index].load(std::memory_order_relaxed) == &job; }

  // Moves workers that have not run since to this processor, which the caller is about to give up: the kernel
  // would leave them behind another process for milliseconds, beside an idle processor. False if there is
  // none.
  bool bring() {
    const int here = current_processor();
    int brought = 0;
    for (int k = 0; k < count && here >= 0; k++) {
      const auto [index, used] = workers[k];
      const int id = pool.ids_[index].load();
      if (!is_inside(index) || used_time(id) != used) continue;
      pool.avoid_caller();
      if (!keep_on(id, here)) continue;
      pool.brought_[index].store(true);
      workers[brought++] = workers[k];
    }
    count = brought;
    return brought > 0;
  }

  // Moves them to where they are while the caller works.
  void send_back() {
    for (int k = 0; k < count; k++) {
      const int index = workers[k].index;
      pool.brought_[index].store(false);
      keep_off(pool.ids_[index].load(), pool.avoided_.load());
    }
  }
};

// A worker that is not done for long has lost its processor to another process. It gets this one, which the
// caller gives up by sleeping.
void Pool::wait_for_helpers(Job& job, Time begin) {
  const auto done = [&job] { return job.state.load() == kClaimed; };
  const auto look = [&done] {
    for (int spins = 0; spins < kWaitingSpins; spins++) {
      if (done()) return true;
      pause();
    }
    return false;
  };
  const auto sleep = [&done, &job] {
    while (!done()) {
      job.waiting.store(1);
      if (!done()) job.waiting.wait(1);
    }
    job.waiting.store(0);
  };
  if (look()) return;
  const auto now = std::chrono::steady_clock::now();
  const auto wait = begin == kShort
                        ? std::chrono::nanoseconds(0)
                        : std::min<std::chrono::nanoseconds>((now - begin) / kWaitingShare, kLongestWait);
  do {
    Stalled stalled(*this, job);
    if (look()) return;
    if (!stalled.bring()) continue;
    sleep();
    return stalled.send_back();
  } while (std::chrono::steady_clock::now() < now + wait);
  allow_everywhere();
  sleep();
}

}  // namespace lazuli
