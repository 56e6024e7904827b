#include "host/pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace lz {
namespace {

struct Work {
  const std::function<void(uint64_t, uint64_t)>* body;
  uint64_t count, chunk;
  std::atomic<uint64_t> next{0};
};

// One job at a time; jobs of other isolates run on their callers alone.
struct State {
  std::mutex mutex;
  std::condition_variable wake, idle;
  Work* work = nullptr;
  unsigned wanted = 0;   // helpers that may still join
  unsigned joined = 0;   // helpers inside
  unsigned threads = 0;  // helpers that exist
};

// Never destroyed: its threads live until the process ends.
State& state() {
  static State* s = new State;
  return *s;
}

void drain(Work& work) {
  for (;;) {
    const uint64_t begin = work.next.fetch_add(work.chunk, std::memory_order_relaxed);
    if (begin >= work.count) return;
    (*work.body)(begin, std::min(begin + work.chunk, work.count));
  }
}

void help() {
  State& s = state();
  std::unique_lock<std::mutex> lock(s.mutex);
  for (;;) {
    s.wake.wait(lock, [&] { return s.wanted > 0; });
    s.wanted--;
    s.joined++;
    Work* work = s.work;
    lock.unlock();
    drain(*work);
    lock.lock();
    if (--s.joined == 0) s.idle.notify_all();
  }
}

}  // namespace

void Pool::run(uint64_t count, uint64_t chunk, unsigned threads,
               const std::function<void(uint64_t, uint64_t)>& body) {
  Work work{&body, count, std::max<uint64_t>(chunk, 1)};
  const uint64_t chunks = (count + work.chunk - 1) / work.chunk;
  const unsigned helpers =
      static_cast<unsigned>(std::min<uint64_t>(threads > 0 ? threads - 1 : 0, chunks > 0 ? chunks - 1 : 0));
  State& s = state();
  bool shared = false;
  if (helpers > 0) {
    std::lock_guard<std::mutex> lock(s.mutex);
    if (!s.work) {
      for (; s.threads < helpers; s.threads++) std::thread(help).detach();
      s.work = &work;
      s.wanted = helpers;
      shared = true;
    }
  }
  if (shared) s.wake.notify_all();
  drain(work);
  if (!shared) return;
  std::unique_lock<std::mutex> lock(s.mutex);
  s.wanted = 0;
  s.idle.wait(lock, [&] { return s.joined == 0; });
  s.work = nullptr;
}

}  // namespace lz
