// Runs one block of a kernel's threads on the CPU, on fibers, with the barriers and exchanges of warps.
#pragma once

#include <string>

#include "double/kernel.h"

namespace lz {

struct Block {
  uint3 grid, size;
  size_t dynamic_shared;
  bool reversed;  // from the last thread and block to the first
};

// Runs all blocks. Returns what is wrong, or an empty string.
std::string run_grid(const LzKernel& kernel, LzHost* host, const Block& launch, void** arguments);
// Sets up what kernels ask of the double.
void prepare_host(LzHost* host);

}  // namespace lz
