// The tools around lz_call that every kernel family needs: parameters by name, lending threads and scratch
// memory, failing with a text, and `entry`, which wraps a family's function so that nothing it throws leaves
// the library.
#ifndef LAZULI_KERNELS_CALL_H
#define LAZULI_KERNELS_CALL_H

#include <algorithm>
#include <exception>
#include <span>

#include "kernels/elements.h"
#include "kernels/params.h"
#include "runtime/parallel.h"

namespace lazuli {

inline constexpr int kMaxDims = 64;

template <class... Args>
[[noreturn]] void fail(const lz_call& call, const char* format, Args... args) {
  call.ctx->fail(call.ctx, format, args...);
  throw Failed{};
}

[[noreturn]] inline void fail_dtype(const lz_call& call, const char* op, int32_t dtype) {
  fail(call, "[%s] dtype %s is not supported", op, dtype_name(dtype));
}

// Fails the call unless a condition holds that the runtime does not check: counts, ranks, shapes, dtypes.
template <class... Args>
void require(const lz_call& call, bool condition, const char* format, Args... args) {
  if (!condition) fail(call, format, args...);
}

inline void require_counts(const lz_call& call, const char* op, int n_in, int n_out) {
  require(call, call.n_in == n_in && call.n_out == n_out,
          "[%s] expected %d inputs and %d outputs, received %d and %d", op, n_in, n_out, call.n_in,
          call.n_out);
}

inline bool same_shape(const lz_operand& a, const lz_operand& b) {
  return a.ndim == b.ndim && std::equal(a.shape, a.shape + a.ndim, b.shape);
}

// Shape and dtype of an elementwise result.
inline void require_same(const lz_call& call, const char* op, const lz_operand& x, const lz_operand& y) {
  require(call, x.dtype == y.dtype && same_shape(x, y),
          "[%s] the output must have the input's shape and dtype", op);
}

// dispatch_among() that fails the call for an element type outside the set.
template <class Set = every, class F>
void dispatch_or_fail(const lz_call& call, const char* op, int32_t dtype, F&& f) {
  if (!dispatch_among<Set>(dtype, f)) fail_dtype(call, op, dtype);
}

template <class T>
T* data(const lz_operand& operand) {
  return static_cast<T*>(operand.data);
}

// Scratch memory for `count` values, alive until the kernel returns. To be called on the kernel's own thread.
template <class T>
T* scratch(const lz_call& call, int64_t count) {
  require(call, count >= 0 && uint64_t(count) <= (uint64_t{1} << 60) / sizeof(T), "out of memory");
  auto* memory = static_cast<T*>(call.ctx->scratch(call.ctx, std::max<size_t>(size_t(count) * sizeof(T), 1)));
  require(call, memory != nullptr, "out of memory: %lld bytes of scratch",
          (long long)(count * int64_t(sizeof(T))));
  return memory;
}

// Runs f(begin, end) over [0, n). `cost` is a rough price of one item in nanoseconds: work below about 30 µs
// stays on the calling thread, where a hand-over would cost more than it saves; above, chunks of about 10 µs
// balance the load.
template <class F>
void parallel(const lz_call& call, int64_t n, double cost, F&& f) {
  if (n <= 0) return;
  if (call.ctx->threads <= 1 || n == 1 || double(n) * cost < 30000) return f(int64_t{0}, n);
  parallel_for(call.ctx, n, std::max<int64_t>(1, int64_t(10000 / std::max(cost, 1e-3))), f);
}

inline int64_t normalize_axis(const lz_call& call, const char* op, int64_t axis, int64_t ndim) {
  if (axis < -ndim || axis >= ndim) {
    fail(call, "[%s] axis %lld is out of bounds for an array of %lld dimensions", op,
         static_cast<long long>(axis), static_cast<long long>(ndim));
  }
  return axis < 0 ? axis + ndim : axis;
}

template <void (*Kernel)(const lz_call&)>
lz_status entry(const lz_call* call) {
  try {
    for (int i = 0; i < call->n_in; i++) {
      if (call->in[i].ndim > kMaxDims)
        fail(*call, "arrays of more than %d dimensions are not supported", kMaxDims);
    }
    for (int i = 0; i < call->n_out; i++) {
      if (call->out[i].ndim > kMaxDims)
        fail(*call, "arrays of more than %d dimensions are not supported", kMaxDims);
    }
    Kernel(*call);
    return LZ_OK;
  } catch (const Failed&) {
  } catch (const std::exception& error) {
    call->ctx->fail(call->ctx, "%s", error.what());
  } catch (...) {
    call->ctx->fail(call->ctx, "an unknown error");
  }
  return LZ_FAILED;
}

}  // namespace lazuli

#endif
