// Scratch memory for work that runs on several threads at a time: a block for each, leased and given back.
#ifndef LAZULI_KERNELS_LEASES_H
#define LAZULI_KERNELS_LEASES_H

#include <atomic>
#include <limits>

#include "kernels/call.h"

namespace lazuli {

// Blocks of `count` elements for as many of `tasks` as threads may run at a time. To be made on the kernel's
// own thread.
template <class T>
class Leases {
 public:
  Leases(const lz_call& call, int64_t count, int64_t tasks = std::numeric_limits<int64_t>::max())
      : size_((count + 63) / 64 * 64),
        blocks_(std::clamp<int64_t>(tasks, 1, std::max(call.ctx->threads, 1))),
        taken_(scratch<std::atomic<bool>>(call, blocks_)),
        memory_(scratch<T>(call, size_ * blocks_)) {
    for (int64_t i = 0; i < blocks_; i++) new (taken_ + i) std::atomic<bool>(false);
  }
  class Lease {
   public:
    explicit Lease(Leases& from) : from_(from) {
      while (from_.taken_[index_].exchange(true, std::memory_order_acquire))
        index_ = (index_ + 1) % from_.blocks_;
    }
    ~Lease() { from_.taken_[index_].store(false, std::memory_order_release); }
    Lease(const Lease&) = delete;
    T* data() const { return from_.memory_ + from_.size_ * index_; }

   private:
    Leases& from_;
    int64_t index_ = 0;
  };

 private:
  int64_t size_, blocks_;
  std::atomic<bool>* taken_;
  T* memory_;
};

}  // namespace lazuli

#endif
