#include "runtime/context.h"

#include <cstdarg>
#include <cstdio>
#include <exception>

#include "runtime/pool.h"

namespace lazuli {

Context::Context() {
  parallel_for = do_parallel_for;
  scratch = do_scratch;
  fail = do_fail;
  threads = 1;
}

void Context::do_parallel_for(lz_context*, int64_t n, int64_t grain, void (*body)(void*, int64_t, int64_t),
                              void* arg) {
  pool().run(n, grain, body, arg);
}

void* Context::do_scratch(lz_context* self, size_t bytes) {
  std::string error;
  // The limit is one on living arrays: an evaluation that was let through does not fail for a kernel's own
  // needs.
  BufferRef buffer(memory().allocate(bytes, &error, true));
  if (!buffer) return nullptr;
  auto& held = static_cast<Context*>(self)->scratch_;
  held.push_back(std::move(buffer));
  return held.back()->data;
}

// The first message wins; threads of a parallel_for may fail at once.
void Context::do_fail(lz_context* self, const char* format, ...) {
  auto& it = *static_cast<Context*>(self);
  int none = 0;
  if (!it.failed_.compare_exchange_strong(none, 1)) return;
  va_list args;
  va_start(args, format);
  std::vsnprintf(it.message_, sizeof it.message_, format, args);
  va_end(args);
  it.failed_.store(2);
}

bool Context::call(lz_kernel kernel, lz_call& call, std::string* error) {
  threads = pool().threads();
  call.ctx = this;
  lz_status status = LZ_FAILED;
  try {
    status = kernel(&call);
  } catch (const std::exception& thrown) {
    do_fail(this, "%s", thrown.what());
  } catch (...) {
    do_fail(this, "the kernel threw an exception");
  }
  if (!scratch_.empty()) scratch_.clear();
  if (status == LZ_OK && failed_.load(std::memory_order_acquire) == 0) [[likely]]
    return true;
  *error = failed_.load() == 2 ? message_ : "the kernel failed without a message";
  failed_.store(0);
  return false;
}

}  // namespace lazuli
