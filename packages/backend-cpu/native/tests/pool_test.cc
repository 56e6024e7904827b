// The thread pool beside work that holds its caller, and where its threads are.
#include "runtime/pool.h"

#include <chrono>
#include <thread>

#include "runtime/processors.h"
#include "tests/harness.h"

namespace lazuli::test {
namespace {

using std::chrono::milliseconds;

LZ_TEST(pool_caller_without_processor) {
  pool().set_threads(2);
  struct {
    std::atomic<int> worker{0};
    std::chrono::nanoseconds used{0};
  } seen;
  const auto body = [](void* arg, int64_t begin, int64_t) {
    auto& it = *static_cast<decltype(seen)*>(arg);
    if (begin > 0) return it.worker.store(thread_id());
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (it.worker == 0 && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    const auto before = used_time(it.worker);
    if (!before) return;
    std::this_thread::sleep_for(milliseconds(100));
    it.used = *used_time(it.worker) - *before;
  };
  pool().run(2, 1, body, &seen);
  check(seen.used < milliseconds(20),
        "a worker without chunks uses " + std::to_string(seen.used.count() / 1000) + " us to wait");
}

LZ_TEST(pool_processors) {
  const int here = current_processor(), id = thread_id();
  if (here < 0) return;
  check(keep_on(id, here) && current_processor() == here, "a thread is moved to a processor");
  keep_off(id, few_processors() ? here : -1);
  check(!few_processors() || current_processor() != here, "a thread leaves a processor");
  keep_off(id, -1);
  const auto first = used_time(id);
  std::this_thread::sleep_for(milliseconds(20));
  const auto slept = used_time(id);
  check(first && slept && *slept - *first < milliseconds(10), "a thread that sleeps uses no time");
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (used_time(id) < *slept + milliseconds(5) && std::chrono::steady_clock::now() < end) continue;
  check(used_time(id) >= *slept + milliseconds(5), "a thread that computes uses time");
}

}  // namespace
}  // namespace lazuli::test
