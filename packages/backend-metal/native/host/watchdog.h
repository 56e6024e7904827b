// Ends dispatches that take too long: a thread that looks at the clock four times a second while any runs,
// and interrupts those whose time is over where they execute a kernel's code, which holds no lock.
#pragma once

#include <csignal>
#include <cstdint>

namespace lz {

// The fault of a dispatch when its time is over.
constexpr int kTimeSignal = SIGURG;

double time_limit();

// Watches the calling thread for as long as it lives.
class Watch {
 public:
  Watch();
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  int entry_;
};

// True if an instruction belongs to a kernel.
bool is_kernel_code(uintptr_t instruction);

}  // namespace lz
