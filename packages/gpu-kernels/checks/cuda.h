/* The declarations of NVRTC's built-ins, for a compiler that lacks them: enough for clang to compile
 * translated kernels to PTX without NVIDIA's headers. For checks; nothing runs this. */
#pragma once

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __cluster_dims__(...)
#define __noinline__ __attribute__((noinline))
#define __grid_constant__

// As NVRTC does by -default-device.
#pragma clang force_cuda_host_device begin

struct uint3 {
  unsigned x, y, z;
};
#define LZ_REGISTER(name, sreg)                                                      \
  struct lz_##name {                                                                 \
    __declspec(property(get = get_x)) unsigned x;                                    \
    __declspec(property(get = get_y)) unsigned y;                                    \
    __declspec(property(get = get_z)) unsigned z;                                    \
    static __device__ unsigned get_x() { return __nvvm_read_ptx_sreg_##sreg##_x(); } \
    static __device__ unsigned get_y() { return __nvvm_read_ptx_sreg_##sreg##_y(); } \
    static __device__ unsigned get_z() { return __nvvm_read_ptx_sreg_##sreg##_z(); } \
  };                                                                                 \
  extern const __device__ lz_##name name;
LZ_REGISTER(threadIdx, tid)
LZ_REGISTER(blockIdx, ctaid)
LZ_REGISTER(blockDim, ntid)
LZ_REGISTER(gridDim, nctaid)
#undef LZ_REGISTER

__device__ inline void __syncwarp(unsigned mask = ~0u) { __nvvm_bar_warp_sync(mask); }
__device__ inline void __threadfence() { __nvvm_membar_gl(); }
__device__ inline unsigned __activemask() {
  unsigned mask;
  asm volatile("activemask.b32 %0;" : "=r"(mask));
  return mask;
}
__device__ inline unsigned __shfl_sync(unsigned mask, unsigned x, int lane) {
  return unsigned(__nvvm_shfl_sync_idx_i32(mask, int(x), lane, 31));
}
__device__ inline int __shfl_sync(unsigned mask, int x, int lane) {
  return __nvvm_shfl_sync_idx_i32(mask, x, lane, 31);
}
__device__ inline float __shfl_sync(unsigned mask, float x, int lane) {
  return __nvvm_shfl_sync_idx_f32(mask, x, lane, 31);
}
__device__ inline unsigned __shfl_xor_sync(unsigned mask, unsigned x, int lanes) {
  return unsigned(__nvvm_shfl_sync_bfly_i32(mask, int(x), lanes, 31));
}
__device__ inline float __shfl_xor_sync(unsigned mask, float x, int lanes) {
  return __nvvm_shfl_sync_bfly_f32(mask, x, lanes, 31);
}
__device__ inline float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
__device__ inline float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
__device__ inline int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
__device__ inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
__device__ inline unsigned long long __cvta_generic_to_shared(const void* p) {
  return (unsigned long long)(const __attribute__((address_space(3))) void*)p;
}
__device__ inline unsigned __ballot_sync(unsigned mask, int x) { return __nvvm_vote_ballot_sync(mask, x); }
__device__ inline int __ffs(int x) { return __builtin_ffs(x); }
__device__ inline int __ffsll(long long x) { return __builtin_ffsll(x); }
__device__ inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(unsigned(x)); }
__device__ inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(x); }
__device__ inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
__device__ inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
__device__ inline long long __mul64hi(long long a, long long b) {
  return (long long)(((__int128)a * b) >> 64);
}

// clang-format off
#define LZ_ATOMIC(name, op)                                                                       \
  __device__ inline unsigned name(unsigned* p, unsigned v) { return op(p, v, __ATOMIC_RELAXED); } \
  __device__ inline unsigned long long name(unsigned long long* p, unsigned long long v) {        \
    return op(p, v, __ATOMIC_RELAXED);                                                            \
  }
#define LZ_SIGNED_ATOMIC(name, op)                                                 \
  LZ_ATOMIC(name, op)                                                              \
  __device__ inline int name(int* p, int v) { return op(p, v, __ATOMIC_RELAXED); } \
  __device__ inline long long name(long long* p, long long v) { return op(p, v, __ATOMIC_RELAXED); }
LZ_ATOMIC(atomicAdd, __atomic_fetch_add)
LZ_ATOMIC(atomicAnd, __atomic_fetch_and)
LZ_ATOMIC(atomicOr, __atomic_fetch_or)
LZ_ATOMIC(atomicXor, __atomic_fetch_xor)
LZ_SIGNED_ATOMIC(atomicMax, __atomic_fetch_max)
LZ_SIGNED_ATOMIC(atomicMin, __atomic_fetch_min)
LZ_ATOMIC(atomicExch, __atomic_exchange_n)
// clang-format on
#undef LZ_SIGNED_ATOMIC
#undef LZ_ATOMIC
__device__ inline float atomicAdd(float* p, float v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
__device__ inline unsigned atomicCAS(unsigned* p, unsigned before, unsigned after) {
  __atomic_compare_exchange_n(p, &before, after, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return before;
}
__device__ inline unsigned long long atomicCAS(unsigned long long* p, unsigned long long before,
                                               unsigned long long after) {
  __atomic_compare_exchange_n(p, &before, after, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return before;
}

extern "C" void* memcpy(void* to, const void* from, unsigned long n);
// clang-format off
#define LZ_NATIVE1(name) \
  __device__ inline float name(float x) { return __builtin_##name(x); }
#define LZ_FLOAT1(name) __device__ float name(float);
#define LZ_FLOAT2(name) __device__ float name(float, float);
LZ_NATIVE1(ceilf)
LZ_NATIVE1(fabsf)
LZ_NATIVE1(floorf) LZ_NATIVE1(rintf) LZ_NATIVE1(sqrtf) LZ_NATIVE1(truncf) LZ_FLOAT1(acosf) LZ_FLOAT1(acoshf)
    LZ_FLOAT1(asinf) LZ_FLOAT1(asinhf) LZ_FLOAT1(atanf) LZ_FLOAT1(atanhf) LZ_FLOAT1(cosf) LZ_FLOAT1(coshf)
        LZ_FLOAT1(expf) LZ_FLOAT1(exp2f) LZ_FLOAT1(logf) LZ_FLOAT1(log2f) LZ_FLOAT1(log10f) LZ_FLOAT1(roundf)
            LZ_FLOAT1(sinf) LZ_FLOAT1(sinhf) LZ_FLOAT1(tanf) LZ_FLOAT1(tanhf) LZ_FLOAT2(atan2f)
                LZ_FLOAT2(fdimf) LZ_FLOAT2(fmodf) LZ_FLOAT2(powf) LZ_FLOAT2(nextafterf)
// clang-format on
#undef LZ_NATIVE1
#undef LZ_FLOAT1
#undef LZ_FLOAT2
// clang-format off
#define LZ_DOUBLE1(name) __device__ double name(double);
#define LZ_DOUBLE2(name) __device__ double name(double, double);
LZ_DOUBLE1(fabs) LZ_DOUBLE1(floor) LZ_DOUBLE1(ceil) LZ_DOUBLE1(rint) LZ_DOUBLE1(trunc) LZ_DOUBLE1(sqrt)
LZ_DOUBLE1(exp) LZ_DOUBLE1(expm1) LZ_DOUBLE1(log) LZ_DOUBLE1(log2) LZ_DOUBLE1(log10) LZ_DOUBLE1(log1p) LZ_DOUBLE1(erf)
LZ_DOUBLE1(sin) LZ_DOUBLE1(cos) LZ_DOUBLE1(tan) LZ_DOUBLE1(asin) LZ_DOUBLE1(acos) LZ_DOUBLE1(atan)
LZ_DOUBLE1(sinh) LZ_DOUBLE1(cosh) LZ_DOUBLE1(tanh) LZ_DOUBLE1(asinh) LZ_DOUBLE1(acosh) LZ_DOUBLE1(atanh)
LZ_DOUBLE2(fmod) LZ_DOUBLE2(pow) LZ_DOUBLE2(atan2)
// clang-format on
#undef LZ_DOUBLE1
#undef LZ_DOUBLE2
                                                __device__ inline float copysignf(float a, float b) {
  return __builtin_copysignf(a, b);
}
__device__ inline float fmaxf(float a, float b) { return __builtin_fmaxf(a, b); }
__device__ inline float fminf(float a, float b) { return __builtin_fminf(a, b); }
__device__ inline float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
__device__ inline float __fadd_rn(float a, float b) { return a + b; }
__device__ inline float __fmul_rn(float a, float b) { return a * b; }
__device__ inline float __fdiv_rn(float a, float b) { return a / b; }
__device__ inline float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
__device__ inline float __logf(float x) { return __nvvm_lg2_approx_f(x) * 0.6931471805599453f; }
__device__ float ldexpf(float, int);
__device__ float frexpf(float, int*);
__device__ int ilogbf(float);
