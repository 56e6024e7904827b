#include "runtime/context.h"

#include <cstdarg>
#include <cstdio>
#include <exception>

#include "runtime/pool.h"
#include "runtime/registry.h"

namespace lazuli {

Context::Context() {
  parallel_for = do_parallel_for;
  scratch = do_scratch;
  fail = do_fail;
  threads = 1;
  size = sizeof(lz_context);
  run = do_run;
  axpby = do_axpby;
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

lz_status Context::do_run(lz_context* self, const char* primitive, const lz_operand* in, int32_t n_in,
                          const lz_operand* out, int32_t n_out, const int64_t* params, int64_t n_params) {
  const lz_kernel kernel = registry().named(primitive);
  if (!kernel) {
    do_fail(self, "there is no kernel for %s to run", primitive);
    return LZ_FAILED;
  }
  // Of its own: the outer call's scratch memory and pieces stay the outer call's.
  Context inner;
  std::string error;
  lz_call call{n_in, n_out, in, out, params, n_params, nullptr, 0};
  if (inner.call(kernel, call, &error)) return LZ_OK;
  do_fail(self, "%s", error.c_str());
  return LZ_FAILED;
}

namespace {

constexpr int64_t kAxpbyGrain = 1 << 15;  // elements a thread takes at least

template <class T>
void axpby_of(int64_t n, double alpha, const void* from, double beta, void* to) {
  const T* x = static_cast<const T*>(from);
  T* y = static_cast<T*>(to);
  struct Work {
    const T* x;
    T* y;
    T a, b;
  } work{x, y, T(alpha), T(beta)};
  pool().run(
      n, kAxpbyGrain,
      [](void* arg, int64_t begin, int64_t end) {
        const Work w = *static_cast<Work*>(arg);
        for (int64_t i = begin; i < end; i++) w.y[i] = w.x[i] * w.a + w.y[i] * w.b;
      },
      &work);
}

}  // namespace

lz_status Context::do_axpby(lz_context* self, lz_dtype dtype, int64_t n, double alpha, const void* x,
                            double beta, void* y) {
  if (dtype == LZ_FLOAT32)
    axpby_of<float>(n, alpha, x, beta, y);
  else if (dtype == LZ_FLOAT64)
    axpby_of<double>(n, alpha, x, beta, y);
  else {
    do_fail(self, "axpby is for float32 and float64, received dtype %d", int(dtype));
    return LZ_FAILED;
  }
  return LZ_OK;
}

bool Context::call(lz_kernel kernel, lz_call& call, std::string* error) {
  threads = pool().threads();
  call.ctx = this;
  call.size = sizeof call;
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
