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
  size_t reach = 0;           // bytes until an inaccessible page
  bool inline_bytes = false;  // of the command stream
};

struct Dispatch {
  const Kernel* kernel;
  Launch launch;
  Binding bindings[kBuffers];
  u32 threadgroup_bytes;  // memory lengths set by the host, together
  bool checked;           // the kernel calls note_access
};

struct Traffic;
// The bytes that checked kernels of the calling thread have moved since the last call.
Traffic take_traffic();

// Called by checked kernels before every access.
void note_access(const void* address, u32 size, u32 kind, const void* where);

// Seconds after which a dispatch is ended; 0 never ends one.
void set_time_limit(double seconds);

// Code that may be left at any instruction: that of kernels.
void add_kernel_code(const void* in_library);

// Runs every thread and waits. Returns what went wrong, or an empty string.
std::string run(const Dispatch& dispatch);

// The number of threads that work on a dispatch, the caller included; 0 asks for the default.
void set_workers(u32 count);
u32 workers();

// Inaccessible memory, which stands for buffers that are not bound.
char* unbound_memory();

}  // namespace lz
