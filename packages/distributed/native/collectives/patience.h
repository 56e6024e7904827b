// Waiting busily for what comes soon, for as short as it pays: on a machine with other work a busy wait keeps
// from running what it waits for, and a yield gives the processor away for whole slices of time.
#ifndef LAZULI_DISTRIBUTED_PATIENCE_H
#define LAZULI_DISTRIBUTED_PATIENCE_H

#include <sched.h>

#include <algorithm>

#include "wire/sockets.h"

namespace lazuli::dist {

class Patience {
 public:
  // `crowded`: there are more members here than processors, so that a busy wait has to let others run.
  explicit Patience(bool crowded) : crowded_(crowded) {}

  // Calls `there` until it is true, or until waiting asleep is likelier to pay.
  template <class There>
  bool wait(There there) {
    const Instant begin = Clock::now();
    const auto most = ++waits_ % kProbe == 0 ? kMost : time_;
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
    time_ = std::max(time_ / 2, kLeast);
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
  const bool crowded_;
  Clock::duration time_ = kMost;
  unsigned waits_ = 0;
};

}  // namespace lazuli::dist

#endif
