#include "kernels/thread_memory.h"

#include <memory>
#include <new>

namespace lazuli {

float* thread_memory(int64_t count) {
  struct Free {
    void operator()(float* x) const { ::operator delete[](x, std::align_val_t(64)); }
  };
  struct Held {
    std::unique_ptr<float[], Free> memory;
    int64_t count = 0;
  };
  thread_local Held held;
  if (count > held.count) {
    held.memory.reset();
    held.count = 0;
    held.memory.reset(static_cast<float*>(
        ::operator new[](size_t(count) * sizeof(float), std::align_val_t(64), std::nothrow)));
    if (held.memory) held.count = count;
  }
  return held.memory.get();
}

}  // namespace lazuli
