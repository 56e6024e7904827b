// From a scalar program to a sequence: what each instruction means in float32 and int32 lanes and in masks.
#ifndef LAZULI_MACHINE_LOWER_H
#define LAZULI_MACHINE_LOWER_H

#include <cstdint>
#include <optional>
#include <vector>

#include "machine/sequence.h"
#include "simd/micro.h"

namespace lazuli::machine {

// An instruction as it was registered: `dtype` is the result's, registers count inputs first.
struct Scalar {
  Op op;
  int32_t dtype;
  int args[3];
  int64_t bits;
};

// Bit i of `single`: input i is a single element. Nothing when machine code does not cover an instruction or
// a dtype.
std::optional<Sequence> lower(const std::vector<int32_t>& inputs, const std::vector<Scalar>& code,
                              const std::vector<int>& results, uint64_t single, int lanes);

}  // namespace lazuli::machine

#endif
