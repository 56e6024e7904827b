// float32 arithmetic. exp, sin and their like are in micro_float32_functions.cc.
#include "simd/micro_float.h"

namespace lazuli::LZ_TARGET {
namespace {

void fill(MicroTable& table) { add_float<float>(table, LZ_FLOAT32); }

}  // namespace

const MicroFamily& micro_float32() {
  static constexpr MicroFamily family = {fill};
  return family;
}

}  // namespace lazuli::LZ_TARGET
