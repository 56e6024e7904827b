// The surroundings of lz_call: threads, parameters, rows in memory without gaps, and positions that
// are checked.
#ifndef LAZULI_POINTCLOUD_CALL_H
#define LAZULI_POINTCLOUD_CALL_H

#include <algorithm>
#include <atomic>
#include <type_traits>

#include "params.h"

namespace pointcloud {

// Loops that the compiler vectorizes once for each instruction set, where the C library can choose when it
// loads them.
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__)
#define POINTCLOUD_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define POINTCLOUD_CLONES
#endif

using lazuli::Failed;

template <class... Args>
[[noreturn]] void fail(const lz_call* call, const char* format, Args... args) {
  call->ctx->fail(call->ctx, format, args...);
  throw Failed{};
}

// Runs body(begin, end) over [0, n); `price` is about how many nanoseconds an item takes.
template <class Body>
void parallel(const lz_call* call, int64_t n, double price, Body body) {
  if (n <= 0) return;
  if (double(n) * price < 30000) return body(int64_t{0}, n);
  call->ctx->parallel_for(
      call->ctx, n, std::max<int64_t>(1, int64_t(20000 / price)),
      [](void* arg, int64_t begin, int64_t end) { (*static_cast<Body*>(arg))(begin, end); }, &body);
}

template <class T>
T* scratch(const lz_call* call, int64_t count) {
  void* memory = call->ctx->scratch(call->ctx, std::max<size_t>(size_t(count) * sizeof(T), 1));
  if (!memory) fail(call, "out of memory");
  return static_cast<T*>(memory);
}

// The elements in row-major order: the operand's own, or a copy.
template <class T>
const T* row_major(const lz_call* call, const lz_operand& x) {
  const T* from = static_cast<const T*>(x.data);
  if (x.flags & LZ_CONTIGUOUS) return from;
  T* copy = scratch<T>(call, x.size);
  for (int64_t i = 0; i < x.size; i++) {
    int64_t rest = i, at = 0;
    for (int axis = x.ndim - 1; axis >= 0; axis--) {
      at += rest % x.shape[axis] * x.strides[axis];
      rest /= x.shape[axis];
    }
    copy[i] = from[at];
  }
  return copy;
}

template <class F>
void with_integers(const lz_call* call, const char* op, const lz_operand& x, F&& f) {
  switch (x.dtype) {
    case LZ_UINT8:
      return f(row_major<uint8_t>(call, x));
    case LZ_UINT16:
      return f(row_major<uint16_t>(call, x));
    case LZ_UINT32:
      return f(row_major<uint32_t>(call, x));
    case LZ_UINT64:
      return f(row_major<uint64_t>(call, x));
    case LZ_INT8:
      return f(row_major<int8_t>(call, x));
    case LZ_INT16:
      return f(row_major<int16_t>(call, x));
    case LZ_INT32:
      return f(row_major<int32_t>(call, x));
    case LZ_INT64:
      return f(row_major<int64_t>(call, x));
    default:
      fail(call, "[%s] indices must be integers", op);
  }
}

// The largest of n numbers; what is negative counts as large.
POINTCLOUD_CLONES inline uint32_t largest(const uint32_t* x, int64_t n) {
  uint32_t most = 0;
  for (int64_t i = 0; i < n; i++) most = x[i] > most ? x[i] : most;
  return most;
}

// Positions in an axis of `size`, which is below 2³¹; one outside fails the call.
inline const int32_t* positions(const lz_call* call, const char* op, const lz_operand& x, int64_t size) {
  if (size > INT32_MAX || x.size > INT32_MAX) fail(call, "[%s] expected fewer than 2^31 rows", op);
  const int32_t* out = nullptr;
  with_integers(call, op, x, [&](const auto* from) {
    using T = std::decay_t<decltype(*from)>;
    int64_t outside = 0;
    if constexpr (sizeof(T) == 4) {
      const auto* bits = reinterpret_cast<const uint32_t*>(from);
      out = reinterpret_cast<const int32_t*>(from);
      std::atomic<bool> fits{true};
      parallel(call, x.size, 0.3, [&](int64_t begin, int64_t end) {
        if (int64_t(largest(bits + begin, end - begin)) >= size) fits = false;
      });
      if (fits) return;
      while (int64_t(bits[outside]) < size) outside++;
    } else {
      int32_t* copy = scratch<int32_t>(call, x.size);
      out = copy;
      while (outside < x.size && uint64_t(from[outside]) < uint64_t(size)) {
        copy[outside] = int32_t(from[outside]);
        outside++;
      }
      if (outside == x.size) return;
    }
    if (std::is_signed<T>::value)
      fail(call, "[%s] index %lld is out of bounds for axis 0 with size %lld", op, (long long)from[outside],
           (long long)size);
    fail(call, "[%s] index %llu is out of bounds for axis 0 with size %lld", op,
         (unsigned long long)from[outside], (long long)size);
  });
  return out;
}

// Offsets of clouds, from 0 to n without a descent, or the call fails.
inline const int64_t* offsets_of(const lz_call* call, const char* op, const lz_operand& x, int64_t n) {
  int64_t* out = scratch<int64_t>(call, x.size);
  with_integers(call, op, x, [&](const auto* from) {
    for (int64_t i = 0; i < x.size; i++) {
      out[i] = int64_t(from[i]);
      if (i == 0 && out[i] != 0)
        fail(call, "[%s] offsets must begin with 0, received %lld", op, (long long)out[i]);
      if (i > 0 && out[i] < out[i - 1])
        fail(call, "[%s] offsets must not descend, received %lld after %lld", op, (long long)out[i],
             (long long)out[i - 1]);
    }
  });
  if (out[x.size - 1] != n)
    fail(call, "[%s] offsets must end with the %lld rows, received %lld", op, (long long)n,
         (long long)out[x.size - 1]);
  return out;
}

// A kernel by the type of its first operand; nothing that it throws leaves the library.
template <template <class> class Kernel>
lz_status run(const lz_call* call) {
  try {
    if (call->in[0].dtype == LZ_FLOAT64)
      Kernel<double>::run(call);
    else if (call->in[0].dtype == LZ_FLOAT32)
      Kernel<float>::run(call);
    else
      fail(call, "there is no kernel for dtype %d", int(call->in[0].dtype));
    return LZ_OK;
  } catch (const Failed&) {
  } catch (...) {
    call->ctx->fail(call->ctx, "out of memory");
  }
  return LZ_FAILED;
}

}  // namespace pointcloud

#endif
