// Lent to kernels: threads, scratch memory, where an error is written.
#ifndef LAZULI_RUNTIME_CONTEXT_H
#define LAZULI_RUNTIME_CONTEXT_H

#include <lazuli/kernel.h>

#include <atomic>
#include <string>
#include <vector>

#include "runtime/memory.h"
#include "runtime/pieces.h"

namespace lazuli {

class Context : public KernelContext {
 public:
  Context();
  // Runs a kernel and gives its scratch memory back. False, with the reason, when it failed.
  bool call(lz_kernel kernel, lz_call& call, std::string* error);

 private:
  static void do_parallel_for(lz_context*, int64_t, int64_t, void (*)(void*, int64_t, int64_t), void*);
  static void* do_scratch(lz_context*, size_t);
  static void do_fail(lz_context*, const char*, ...);
  static lz_status do_run(lz_context*, const char*, const lz_operand*, int32_t, const lz_operand*, int32_t,
                          const int64_t*, int64_t);
  static lz_status do_axpby(lz_context*, lz_dtype, int64_t, double, const void*, double, void*);

  std::vector<BufferRef> scratch_;
  std::atomic<int> failed_{0};  // 0: no, 1: a thread writes the message, 2: the message is there
  char message_[512];
};

}  // namespace lazuli

#endif
