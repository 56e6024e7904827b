// float32 functions with vectors.
#include "simd/micro_loops.h"

namespace lazuli::LZ_TARGET {
namespace {

void fill(MicroTable&) {}

}  // namespace

const MicroFamily& micro_float32_functions() {
  static constexpr MicroFamily family = {fill};
  return family;
}

}  // namespace lazuli::LZ_TARGET
