// Compiled kernels as shared libraries.
#pragma once

#include <string>

#include "lazuli/metal_host.h"

namespace lz {

struct Opened {
  const Library* library = nullptr;
  bool is_checked = false;  // its kernels tell of each access
  std::string problem;
};

// Opens the library of one source, by the symbol that a file exports for it.
Opened open_library(const std::string& path, const std::string& symbol);

}  // namespace lz
