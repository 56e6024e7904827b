// Chooses the SIMD target by the processor's features. Compiled for the baseline, as all code that runs
// before the choice.
#include <cstdlib>
#include <cstring>

#include "simd/targets.h"

namespace lazuli {
namespace {

struct Named {
  SimdTarget target;
  const char* name;
  bool available;
};

#if defined(__x86_64__) || defined(_M_X64)
bool has_sse4() {
  return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt") &&
         __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("aes");
}
bool has_avx2() {
  // f16c has no name here in older compilers; every processor with AVX2 and FMA has it.
  return has_sse4() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

// True if the target's loops are part of this build.
#if defined(LAZULI_SIMD_ONLY)
bool is_built(SimdTarget target) { return target == SimdTarget::LAZULI_SIMD_ONLY; }
#else
bool is_built(SimdTarget) { return true; }
#endif

Named choose() {
#if defined(__x86_64__) || defined(_M_X64)
  __builtin_cpu_init();
  const Named all[] = {{SimdTarget::avx512, "avx512", has_avx512()},
                       {SimdTarget::avx2, "avx2", has_avx2()},
                       {SimdTarget::sse4, "sse4", has_sse4()}};
#else
  const Named all[] = {{SimdTarget::neon, "neon", true}};
#endif
  if (const char* wish = std::getenv("LAZULI_SIMD")) {
    for (const Named& each : all)
      if (each.available && is_built(each.target) && std::strcmp(each.name, wish) == 0) return each;
  }
  for (const Named& each : all)
    if (each.available && is_built(each.target)) return each;
  return {all[0].target, "none", false};
}

const Named& chosen() {
  static const Named it = choose();
  return it;
}

}  // namespace

SimdTarget simd_target() { return chosen().target; }
const char* simd_target_name() { return chosen().name; }
bool simd_supported() { return chosen().available; }

}  // namespace lazuli
