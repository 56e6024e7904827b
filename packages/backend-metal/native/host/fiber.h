// Fibers: stacks of their own for threads that must wait for each other, and the switch between them. What
// runs on them and when is the executor's business.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "lazuli/metal_host.h"

namespace lz {

// Saves the callee's registers on the current stack, notes the stack in *from, and continues at `to`.
void switch_stack(void** from, void* to);

// Stacks with their fibers above them; each ends at an inaccessible page.
class Stacks {
 public:
  Stacks() = default;
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;
  ~Stacks();

  // The fiber of that number, made on first use; null when memory ran out.
  Fiber* fiber(u32 index);
  // True if an address lies in a stack.
  bool contains(uintptr_t address) const;

 private:
  std::vector<Fiber*> fibers_;
  std::vector<std::pair<void*, size_t>> regions_;
};

// Makes the fiber start at `entry`, which must not return, when it is switched to.
void prepare(Fiber* fiber, void (*entry)());

}  // namespace lz
