// Buffers on their way from one isolate to another, under numbers that the isolates tell each other.
#ifndef LAZULI_RUNTIME_EXCHANGE_H
#define LAZULI_RUNTIME_EXCHANGE_H

#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "runtime/memory.h"

namespace lazuli {

class Exchange {
 public:
  // Takes a reference, until somebody takes it out.
  uint64_t put(BufferRef buffer) {
    std::lock_guard lock(mutex_);
    buffers_.emplace(++last_, std::move(buffer));
    return last_;
  }
  // Null where there is none of that number any more.
  BufferRef take(uint64_t number) {
    std::lock_guard lock(mutex_);
    const auto found = buffers_.find(number);
    if (found == buffers_.end()) return {};
    BufferRef out = std::move(found->second);
    buffers_.erase(found);
    return out;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<uint64_t, BufferRef> buffers_;
  uint64_t last_ = 0;
};

// The process's; leaked, because isolates end in any order.
inline Exchange& exchange() {
  static auto* it = new Exchange;
  return *it;
}

}  // namespace lazuli

#endif
