// Scratch memory for work that runs on several threads at a time: a room for each, taken and given back.
#ifndef LAZULI_KERNELS_ROOMS_H
#define LAZULI_KERNELS_ROOMS_H

#include <atomic>

#include "kernels/call.h"

namespace lazuli {

// Rooms of `bytes` for as many of `tasks` as threads may run at a time. To be made on the kernel's own
// thread.
class Rooms {
 public:
  Rooms(const lz_call& call, int64_t bytes, int64_t tasks)
      : bytes_((bytes + 63) / 64 * 64),
        count_(std::clamp<int64_t>(tasks, 1, std::max(call.ctx->threads, 1))) {
    memory_ = scratch<char>(call, bytes_ * count_);
    taken_ = scratch<std::atomic<bool>>(call, count_);
    for (int64_t i = 0; i < count_; i++) new (taken_ + i) std::atomic<bool>(false);
  }
  template <class F>
  void with(F&& f) {
    for (int64_t i = 0;; i = (i + 1) % count_) {
      if (taken_[i].exchange(true, std::memory_order_acquire)) continue;
      f(memory_ + i * bytes_);
      taken_[i].store(false, std::memory_order_release);
      return;
    }
  }

 private:
  int64_t bytes_, count_;
  char* memory_;
  std::atomic<bool>* taken_;
};

}  // namespace lazuli

#endif
