/* The checked kernels' addition to the prelude: the compiler calls these functions before every
 * access to memory (-fsanitize=thread, without its library), and they tell the executor, which says what is
 * wrong. See host/checker.h. */
#pragma once

#include "../prelude/prelude.h"

/* The executor sets it when it loads a library. */
extern "C" {
__attribute__((visibility("default"))) void (*lazuli_metal_access)(const void*, lz::u32 size, lz::u32 kind,
                                                                   const void* where);
}

namespace lz {
enum Access : u32 { kRead, kWrite, kAtomicRead, kAtomicWrite, kFence, kBarrier };
}

/* With the address of the instruction. */
#define LZ_NOTE(p, size, kind) lazuli_metal_access(p, size, kind, __builtin_return_address(0))
#define LZ_UNCHECKED __attribute__((no_sanitize("thread")))
#define LZ_ACCESS(size)                                                                     \
  LZ_UNCHECKED void __tsan_read##size(void* p) { LZ_NOTE(p, size, lz::kRead); }             \
  LZ_UNCHECKED void __tsan_write##size(void* p) { LZ_NOTE(p, size, lz::kWrite); }           \
  LZ_UNCHECKED void __tsan_unaligned_read##size(void* p) { LZ_NOTE(p, size, lz::kRead); }   \
  LZ_UNCHECKED void __tsan_unaligned_write##size(void* p) { LZ_NOTE(p, size, lz::kWrite); } \
  LZ_UNCHECKED void __tsan_volatile_read##size(void* p) { LZ_NOTE(p, size, lz::kRead); }    \
  LZ_UNCHECKED void __tsan_volatile_write##size(void* p) { LZ_NOTE(p, size, lz::kWrite); }
#define LZ_ATOMIC_ACCESS(bits, type)                                                                     \
  LZ_UNCHECKED type __tsan_atomic##bits##_load(const volatile type* p, int) {                            \
    LZ_NOTE(const_cast<const type*>(p), bits / 8, lz::kAtomicRead);                                      \
    return __atomic_load_n(p, __ATOMIC_RELAXED);                                                         \
  }                                                                                                      \
  LZ_UNCHECKED void __tsan_atomic##bits##_store(volatile type* p, type v, int) {                         \
    LZ_NOTE(const_cast<type*>(p), bits / 8, lz::kAtomicWrite);                                           \
    __atomic_store_n(p, v, __ATOMIC_RELAXED);                                                            \
  }                                                                                                      \
  LZ_UNCHECKED int __tsan_atomic##bits##_compare_exchange_strong(volatile type* p, type* e, type v, int, \
                                                                 int) {                                  \
    LZ_NOTE(const_cast<type*>(p), bits / 8, lz::kAtomicWrite);                                           \
    return __atomic_compare_exchange_n(p, e, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);              \
  }                                                                                                      \
  LZ_UNCHECKED int __tsan_atomic##bits##_compare_exchange_weak(volatile type* p, type* e, type v, int,   \
                                                               int) {                                    \
    LZ_NOTE(const_cast<type*>(p), bits / 8, lz::kAtomicWrite);                                           \
    return __atomic_compare_exchange_n(p, e, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);              \
  }
extern "C" {
#pragma GCC visibility push(hidden)
LZ_UNCHECKED void __tsan_init() {}
LZ_UNCHECKED void __tsan_func_entry(void*) {}
LZ_UNCHECKED void __tsan_func_exit() {}
LZ_UNCHECKED void __tsan_read_range(void* p, lz::usize n) { LZ_NOTE(p, lz::u32(n), lz::kRead); }
LZ_UNCHECKED void __tsan_write_range(void* p, lz::usize n) { LZ_NOTE(p, lz::u32(n), lz::kWrite); }
LZ_UNCHECKED void __tsan_atomic_thread_fence(int) {}
LZ_ACCESS(1)
LZ_ACCESS(2)
LZ_ACCESS(4)
LZ_ACCESS(8)
LZ_ACCESS(16)
LZ_ATOMIC_ACCESS(8, unsigned char)
LZ_ATOMIC_ACCESS(16, unsigned short)
LZ_ATOMIC_ACCESS(32, unsigned int)
LZ_ATOMIC_ACCESS(64, unsigned long)
#pragma GCC visibility pop
}

namespace metal {
inline void lz_checked_barrier(mem_flags flags, int line = __builtin_LINE()) {
  threadgroup_barrier(flags, line);
  LZ_NOTE(nullptr, lz::u32(flags), lz::kBarrier);
}
inline void lz_checked_fence(mem_flags flags, int line = __builtin_LINE()) {
  simdgroup_barrier(flags, line);
  LZ_NOTE(nullptr, lz::u32(flags), lz::kFence);
}
}  // namespace metal
#define threadgroup_barrier(flags) lz_checked_barrier(flags)
#define simdgroup_barrier(flags) lz_checked_fence(flags)
