// Runs dispatches: threadgroups over a few workers, the threads of a group one after another, on fibers where
// they wait for each other.
#pragma once

#include <string>

#include "lazuli/metal_host.h"

namespace lz {

// A buffer as a dispatch sees it, to name it in errors.
struct Binding {
  char* data = nullptr;
  size_t length = 0;
  size_t reach = 0;  // bytes until an inaccessible page
};

struct Dispatch {
  const Kernel* kernel;
  Launch launch;
  Binding bindings[kBuffers];
  u32 threadgroup_bytes;  // memory lengths set by the host, together
};

// Runs every thread and waits. Returns what went wrong, or an empty string.
std::string run(const Dispatch& dispatch);

// How many threads work on a dispatch, the caller included; 0 asks for the default.
void set_workers(u32 count);
u32 workers();

// Inaccessible memory, which stands for buffers that are not bound.
char* unbound_memory();

}  // namespace lz
