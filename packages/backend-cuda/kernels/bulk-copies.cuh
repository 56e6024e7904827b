/* Copies that a warp of its own starts and barriers tell of (Hopper), and exact arithmetic: each operation
 * rounds by itself, as in kernels that are translated. Where the test double compiles for the CPU, a stage is
 * copied between two meetings of the whole block. */
#pragma once
#include "tensor-core.cuh"

typedef unsigned long long u64;
/* Threads that take what is copied. */
#define LZ_CONSUMERS "256"

#ifdef __CUDA_ARCH__

inline void begin_barrier(Shared at, int count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory"); }
inline void show_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
inline void await_phase(Shared at, int phase) {
  asm volatile(
      "{\n.reg .pred p;\nWAIT%=:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra DONE%=;\nbra WAIT%=;\nDONE%=:\n}" ::"r"(at),
      "r"(phase)
      : "memory");
}
inline void await_full(Shared at, int phase) { await_phase(at, phase); }
inline void await_empty(Shared at, int phase) { await_phase(at, phase); }
inline void leave(Shared at) { asm volatile("{ .reg .b64 s; mbarrier.arrive.shared::cta.b64 s, [%0]; }" ::"r"(at) : "memory"); }
inline void expect_bytes(Shared at, int bytes) {
  asm volatile("{ .reg .b64 s; mbarrier.arrive.expect_tx.shared::cta.b64 s, [%0], %1; }" ::"r"(at), "r"(bytes) : "memory");
}
inline void copy_bulk(Shared to, const void* from, int bytes, Shared barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
inline void show_stage() {}
/* True of one lane of a warp: compilers take what it alone computes from values of the warp as one value. */
inline bool is_chosen() {
  u32 chosen;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(chosen));
  return chosen != 0;
}
inline void meet_consumers() { asm volatile("bar.sync 1, " LZ_CONSUMERS ";" ::: "memory"); }
inline void join_consumers() {}
/* Sums that warps leave for the first one, which says when it has read them: of two places, with barriers of their own. */
inline void give_sums(int at) { asm volatile("bar.arrive %0, " LZ_CONSUMERS ";" ::"r"(2 + at) : "memory"); }
inline void await_sums(int at) { asm volatile("bar.sync %0, " LZ_CONSUMERS ";" ::"r"(2 + at) : "memory"); }
inline void free_sums(int at) { asm volatile("bar.arrive %0, " LZ_CONSUMERS ";" ::"r"(4 + at) : "memory"); }
inline void await_free(int at) { asm volatile("bar.sync %0, " LZ_CONSUMERS ";" ::"r"(4 + at) : "memory"); }

inline float plus(float a, float b) { return __fadd_rn(a, b); }
inline float times(float a, float b) { return __fmul_rn(a, b); }
inline float over(float a, float b) { return __fdiv_rn(a, b); }
inline float root(float x) { return __fsqrt_rn(x); }
inline float exp_of(float x) { return expf(x); }

#else

inline void begin_barrier(Shared, int) {}
inline void show_barriers() {}
inline void await_full(Shared, int) {
  __syncthreads();
  __syncthreads();
}
inline void await_empty(Shared, int) { __syncthreads(); }
inline void leave(Shared) {}
inline void expect_bytes(Shared, int) {}
inline void copy_bulk(Shared to, const void* from, int bytes, Shared) { memcpy((void*)to, from, bytes); }
inline void show_stage() { __syncthreads(); }
inline bool is_chosen() { return threadIdx.x % 32 == 0; }
inline void meet_consumers() { __syncthreads(); }
inline void join_consumers() { __syncthreads(); }
inline void give_sums(int) { __syncthreads(); }
inline void await_sums(int) { __syncthreads(); }
inline void free_sums(int) {}
inline void await_free(int) {}

inline float plus(float a, float b) { return a + b; }
inline float times(float a, float b) { return a * b; }
inline float over(float a, float b) { return a / b; }
inline float root(float x) { return sqrtf(x); }
inline float exp_of(float x) { return expf(x); }

#endif
