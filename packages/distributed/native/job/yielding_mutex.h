// A lock that is held for microseconds, and whose waiters do not sleep: to be woken takes longer, which would
// delay operations that all ranks wait for.
#ifndef LAZULI_DISTRIBUTED_YIELDING_MUTEX_H
#define LAZULI_DISTRIBUTED_YIELDING_MUTEX_H

#include <atomic>
#include <thread>

namespace lazuli::dist {

class YieldingMutex {
 public:
  void lock() {
    while (taken_.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
  }
  void unlock() { taken_.clear(std::memory_order_release); }

 private:
  std::atomic_flag taken_;
};

}  // namespace lazuli::dist

#endif
