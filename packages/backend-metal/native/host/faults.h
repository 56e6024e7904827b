// Turns memory faults and integer divisions by zero inside kernels into errors.
#pragma once

#include <csetjmp>
#include <cstdint>

namespace lz {

// A fault as a guarded region is told of it.
struct Fault {
  int signal = 0;
  uintptr_t address = 0;
};

// The current thread's guarded region; null outside.
struct Guard {
  sigjmp_buf jump;
  Fault fault;
  Guard* outer;
};
Guard*& current_guard();

// Installs the signal handlers, once, and gives the calling thread a stack for them.
void watch_faults();

}  // namespace lz
