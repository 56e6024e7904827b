// What every kernel family needs around lz_call: reading parameters, lending threads and scratch memory, failing with a text,
// and `entry`, which wraps a family's function so that nothing it throws leaves the library.
#pragma once

#include <algorithm>
#include <exception>
#include <span>
#include <stdexcept>

#include "kernels/dispatch.h"

namespace lazuli {

inline constexpr int kMaxDims = 64;

// Thrown after lz_context::fail was called: the message is already with the runtime.
struct Failed {};

template <class... Args>
[[noreturn]] void fail(const lz_call& call, const char* format, Args... args) {
  call.ctx->fail(call.ctx, format, args...);
  throw Failed{};
}

[[noreturn]] inline void fail_dtype(const lz_call& call, const char* op, int32_t dtype) {
  fail(call, "[%s] dtype %s is not supported", op, dtype_name(dtype));
}

// dispatch() that fails the call for an element type outside the set.
template <class Set = every, class F>
void dispatch_or_fail(const lz_call& call, const char* op, int32_t dtype, F&& f) {
  if (!dispatch<Set>(dtype, f)) fail_dtype(call, op, dtype);
}

// Reads parameter words in schema order.
class Params {
 public:
  explicit Params(const lz_call& call) : call_(call), next_(call.params), end_(call.params + call.n_params) {}
  int64_t integer() {
    if (next_ == end_) fail(call_, "a kernel was called with too few parameters");
    return *next_++;
  }
  bool boolean() { return integer() != 0; }
  double number() { return std::bit_cast<double>(integer()); }
  std::span<const int64_t> integers() {
    const int64_t count = integer();
    if (count < 0 || count > end_ - next_) fail(call_, "a kernel was called with too few parameters");
    const int64_t* first = next_;
    next_ += count;
    return {first, static_cast<size_t>(count)};
  }

 private:
  const lz_call& call_;
  const int64_t* next_;
  const int64_t* end_;
};

template <class T>
T* data(const lz_operand& operand) {
  return static_cast<T*>(operand.data);
}

// Scratch memory for `count` values, alive until the kernel returns.
template <class T>
T* scratch(const lz_call& call, int64_t count) {
  if (count < 0 || static_cast<uint64_t>(count) > (uint64_t{1} << 62) / sizeof(T)) fail(call, "out of memory");
  void* memory = call.ctx->scratch(call.ctx, std::max<size_t>(static_cast<size_t>(count) * sizeof(T), 1));
  if (memory == nullptr) fail(call, "out of memory");
  return static_cast<T*>(memory);
}

// Runs f(begin, end) over [0, n). `cost` is a rough price of one item in nanoseconds; work below about 30 µs stays on the
// calling thread, where a hand-over would cost more than it saves.
template <class F>
void parallel(const lz_call& call, int64_t n, double cost, F&& f) {
  if (n <= 0) return;
  constexpr double serial = 30000, chunk = 10000;
  if (call.ctx->threads <= 1 || n == 1 || static_cast<double>(n) * cost < serial) return f(int64_t{0}, n);
  // Chunks of about 10 µs balance the load; never fewer than one item.
  const int64_t grain = std::max<int64_t>(1, static_cast<int64_t>(chunk / std::max(cost, 1e-3)));
  using Body = std::remove_reference_t<F>;
  call.ctx->parallel_for(
      call.ctx, n, grain, [](void* arg, int64_t begin, int64_t end) { (*static_cast<Body*>(arg))(begin, end); },
      const_cast<void*>(static_cast<const void*>(&f)));
}

inline int64_t normalize_axis(const lz_call& call, const char* op, int64_t axis, int64_t ndim) {
  if (axis < -ndim || axis >= ndim) {
    fail(call, "[%s] axis %lld is out of bounds for an array of %lld dimensions", op, static_cast<long long>(axis),
         static_cast<long long>(ndim));
  }
  return axis < 0 ? axis + ndim : axis;
}

template <void (*Kernel)(const lz_call&)>
lz_status entry(const lz_call* call) {
  try {
    for (int i = 0; i < call->n_in; i++) {
      if (call->in[i].ndim > kMaxDims) fail(*call, "arrays of more than %d dimensions are not supported", kMaxDims);
    }
    for (int i = 0; i < call->n_out; i++) {
      if (call->out[i].ndim > kMaxDims) fail(*call, "arrays of more than %d dimensions are not supported", kMaxDims);
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
