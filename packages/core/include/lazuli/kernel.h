/* The C interface between a command buffer and a kernel, for the kernels of this package and for addons built
 * outside it.
 *
 * A kernel is one C function that reads `lz_call`: input and output operands, parameters as 64-bit words, and
 * a context that lends it threads, scratch memory and an error slot. It never allocates outputs, never keeps
 * a pointer, never calls Node-API.
 *
 * Version 1, frozen: structures only grow, at their ends, and a `size` says how much of one is there; an
 * addon states the version it was built for, and is refused when it differs. `LZ_HAS(ctx, run)` asks a host
 * that may be older than this header. */
#ifndef LAZULI_KERNEL_H
#define LAZULI_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LZ_KERNEL_ABI 1

/* True where the host's structure is long enough to hold the member. */
#define LZ_HAS(pointer, member) \
  ((const char*)(&(pointer)->member + 1) <= (const char*)(pointer) + (pointer)->size)

/* Element types; the numbers are part of the command-buffer format and equal those in @lazuli/core's
 * dtype.ts. */
typedef enum lz_dtype {
  LZ_BOOL = 0,
  LZ_UINT8 = 1,
  LZ_UINT16 = 2,
  LZ_UINT32 = 3,
  LZ_UINT64 = 4,
  LZ_INT8 = 5,
  LZ_INT16 = 6,
  LZ_INT32 = 7,
  LZ_INT64 = 8,
  LZ_FLOAT16 = 9,
  LZ_FLOAT32 = 10,
  LZ_BFLOAT16 = 11,
  LZ_FLOAT64 = 12,
  LZ_COMPLEX64 = 13
} lz_dtype;

enum {
  LZ_CONTIGUOUS = 1, /* row-major without gaps: `strides` still points to valid strides */
  LZ_IMMEDIATE = 2   /* a constant: one element, every stride 0 */
};

/* One array as a kernel sees it; of this size in every version. `data` already includes the byte offset.
 * Strides count elements and may be 0 or negative. */
typedef struct lz_operand {
  void* data;
  int32_t dtype;
  int32_t ndim;
  uint32_t flags;
  uint32_t reserved;
  int64_t size; /* number of elements: the product of shape */
  const int64_t* shape;
  const int64_t* strides;
} lz_operand;

typedef struct lz_context lz_context;

typedef enum lz_status { LZ_OK = 0, LZ_FAILED = 1 } lz_status;

/* Lent by the runtime to a kernel for the time of one call. */
struct lz_context {
  /* Runs fn(arg, begin, end) over [0, n) in chunks of at least `grain`, on the caller and the pool; returns
   * when all ran. */
  void (*parallel_for)(lz_context* ctx, int64_t n, int64_t grain,
                       void (*fn)(void* arg, int64_t begin, int64_t end), void* arg);
  /* 64-byte aligned memory that lives until the kernel returns; NULL when memory ran out. Call on the
   * kernel's own thread. */
  void* (*scratch)(lz_context* ctx, size_t bytes);
  /* Marks the call as failed, printf style; from any thread, and the first message stays. The kernel should
   * return LZ_FAILED after it. */
  void (*fail)(lz_context* ctx, const char* format, ...);
  int32_t threads; /* how many threads parallel_for may use */
  uint32_t size;   /* bytes of this structure as the host has it */
  /* Runs the host's own kernel of a primitive, such as "matmul": results are those of the primitive, on all
   * threads. Outputs are the caller's memory, row-major. LZ_FAILED, with the message of the call, where it
   * fails or the host has no such kernel. Call on the kernel's own thread. */
  lz_status (*run)(lz_context* ctx, const char* primitive, const lz_operand* in, int32_t n_in,
                   const lz_operand* out, int32_t n_out, const int64_t* params, int64_t n_params);
  /* y[i] = alpha · x[i] + beta · y[i] over n elements of LZ_FLOAT32 or LZ_FLOAT64, on all threads; both
   * products are rounded, then the sum. */
  lz_status (*axpby)(lz_context* ctx, lz_dtype dtype, int64_t n, double alpha, const void* x, double beta,
                     void* y);
};

/* One kernel call. Parameters come in the order of the primitive's schema: 'f64' is one word of double bits;
 * 'i64', 'bool', 'dtype' and an enumeration (its position) one word each; 'i64[]' and 'f64[]' a count and
 * then that many words; 'string' its length in bytes and then UTF-8 bytes padded to words. An absent optional
 * value is preceded by a word 0, a present one by 1. */
typedef struct lz_call {
  int32_t n_in;
  int32_t n_out;
  const lz_operand* in;
  const lz_operand* out;
  const int64_t* params;
  int64_t n_params; /* words */
  lz_context* ctx;
  uint32_t size; /* bytes of this structure as the host has it */
} lz_call;

typedef lz_status (*lz_kernel)(const lz_call* call);

/* An outside addon's export `lazuli_kernels`: a table ended by a null name. */
typedef struct lz_kernel_entry {
  const char* name; /* the primitive's name */
  lz_kernel run;
} lz_kernel_entry;

typedef struct lz_kernel_table {
  int32_t abi; /* LZ_KERNEL_ABI */
  const lz_kernel_entry* entries;
  uint32_t entry_size; /* bytes of an entry as the addon has it; 0 for those of version 1's first */
} lz_kernel_table;

/* True for an operand that is row-major with its axes reversed, without gaps: BLAS takes it as a transposed
 * matrix, without a copy. */
static inline int lz_column_contiguous(const lz_operand* x) {
  int64_t step = 1;
  for (int32_t axis = 0; axis < x->ndim; axis++) {
    if (x->shape[axis] != 1 && x->strides[axis] != step) return 0;
    step *= x->shape[axis];
  }
  return 1;
}

/* For the addon to define. `abi` stays the first member in every version. */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
extern const lz_kernel_table lazuli_kernels;

#ifdef __cplusplus
}
#endif
#endif
