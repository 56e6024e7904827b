// lz_context's C functions with C++ closures.
#ifndef LAZULI_RUNTIME_PARALLEL_H
#define LAZULI_RUNTIME_PARALLEL_H

#include <lazuli/kernel.h>

#include <type_traits>

namespace lazuli {

// Runs body(begin, end) over [0, n) in chunks of at least `grain`, on the caller and the pool. The chunks'
// boundaries are unspecified, so a result must not depend on them. The body must not throw. Aim at 10 to 30
// µs of work a grain.
template <class F>
void parallel_for(lz_context* ctx, int64_t n, int64_t grain, F&& body) {
  using Body = std::remove_reference_t<F>;
  ctx->parallel_for(
      ctx, n, grain, [](void* arg, int64_t begin, int64_t end) { (*static_cast<Body*>(arg))(begin, end); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

// Scratch for `count` elements, 64-byte aligned; null (the call is then marked as failed) when memory ran
// out.
template <class T>
T* scratch(lz_context* ctx, int64_t count) {
  auto* memory = static_cast<T*>(ctx->scratch(ctx, size_t(count) * sizeof(T)));
  if (!memory) ctx->fail(ctx, "out of memory: %lld bytes of scratch", (long long)(size_t(count) * sizeof(T)));
  return memory;
}

}  // namespace lazuli

#endif
