// Waiting busily for what comes soon, for as short as it pays: on a machine with other work a busy wait keeps
// from running what it waits for, and a yield gives the processor away for whole slices of time.
#ifndef LAZULI_DISTRIBUTED_PATIENCE_H
#define LAZULI_DISTRIBUTED_PATIENCE_H

#include <sched.h>
#include <time.h>

#include <algorithm>

#include "wire/sockets.h"

namespace lazuli::dist {

// Knows whether the other threads of this process use most of a processor's time, as a backward pass beside
// exchanges does, from which a busy wait would take it.
class OtherThreads {
 public:
  bool are_at_work(Instant now) {
    const auto passed = now - asked_;
    if (passed < kAskAgain) return at_work_;
    const auto used = time_of(CLOCK_PROCESS_CPUTIME_ID) - time_of(CLOCK_THREAD_CPUTIME_ID);
    at_work_ = 2 * (used - used_) > passed;
    used_ = used;
    asked_ = now;
    return at_work_;
  }

 private:
  static std::chrono::nanoseconds time_of(clockid_t clock) {
    timespec time{};
    clock_gettime(clock, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  }
  static constexpr auto kAskAgain = std::chrono::microseconds(200);
  bool at_work_ = false;
  std::chrono::nanoseconds used_{0};
  Instant asked_{};
};

class Patience {
 public:
  // `crowded`: there are more members here than processors, so that a busy wait has to let others run.
  // `sharing`: this process has no second processor for its other threads.
  Patience(bool crowded, bool sharing) : crowded_(crowded), sharing_(sharing) {}

  // Calls `there` until it is true, or until waiting asleep is likelier to pay.
  template <class There>
  bool wait(There there) {
    const Instant begin = Clock::now();
    const bool hurries = sharing_ && others_.are_at_work(begin);
    const auto most = hurries ? kLeast : ++waits_ % kProbe == 0 ? kMost : time_;
    do {
      for (int i = 0; i < (crowded_ ? 1 : kTries); i++) {
        if (there()) {
          // A probe that pays tells at once how long a wait takes.
          time_ = std::min(2 * std::max(time_, Clock::now() - begin), kMost);
          return true;
        }
        if (crowded_)
          sched_yield();
        else
          pause();
      }
    } while (Clock::now() - begin < most);
    if (!hurries) time_ = std::max(time_ / 2, kLeast);
    return false;
  }

 private:
  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb");
#endif
  }
  static constexpr int kTries = 16;
  static constexpr unsigned kProbe = 32;  // so that better times are noticed
  static constexpr Clock::duration kMost = std::chrono::microseconds(200),
                                   kLeast = std::chrono::nanoseconds(500);
  const bool crowded_, sharing_;
  OtherThreads others_;
  Clock::duration time_ = kMost;
  unsigned waits_ = 0;
};

}  // namespace lazuli::dist

#endif
