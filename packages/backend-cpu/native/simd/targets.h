// The instruction sets that simd/*.cc is compiled for, and the choice among them, made once when the addon
// loads. A family declares a table of function pointers with LZ_SIMD_TABLE and defines it in a file of simd/.
#ifndef LAZULI_SIMD_TARGETS_H
#define LAZULI_SIMD_TARGETS_H

namespace lazuli {

#if defined(__x86_64__) || defined(_M_X64)
enum class SimdTarget { sse4, avx2, avx512 };
// A macro because a namespace cannot be a template argument.
#define LZ_SIMD_TABLE(Table, name) \
  namespace sse4 {                 \
  const Table& name();             \
  }                                \
  namespace avx2 {                 \
  const Table& name();             \
  }                                \
  namespace avx512 {               \
  const Table& name();             \
  }                                \
  inline const Table& name() {     \
    switch (simd_target()) {       \
      case SimdTarget::avx512:     \
        return avx512::name();     \
      case SimdTarget::avx2:       \
        return avx2::name();       \
      default:                     \
        return sse4::name();       \
    }                              \
  }
#else
enum class SimdTarget { neon };
#define LZ_SIMD_TABLE(Table, name) \
  namespace neon {                 \
  const Table& name();             \
  }                                \
  inline const Table& name() { return neon::name(); }
#endif

// The best target of this processor, or the one named by LAZULI_SIMD when the processor has it.
SimdTarget simd_target();
const char* simd_target_name();
// False on a processor below the lowest target: the addon then refuses to load.
bool simd_supported();

}  // namespace lazuli

// Promises the compiler that iterations are independent, so that a loop whose output is exactly one of its
// inputs is vectorised too.
#if defined(__clang__)
#define LZ_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define LZ_INDEPENDENT _Pragma("GCC ivdep")
#endif

#endif
