// Command streams that repeat with other arrays, as in an eager loop: plan.cc then runs them as graphs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cuda/driver.h"

namespace lz {

struct Repeats {
  static constexpr uint32_t kNone = UINT32_MAX;
  // A stream; its key is a hash of its commands, with bindings in place of buffers, and of their sizes.
  struct Known {
    uint32_t times = 0;
    uint32_t plan = kNone;
    std::vector<uint32_t> sizes;  // of the plan's bindings
    bool is_refused = false;
    double used = 0;  // its last run
  };
  std::unordered_map<uint64_t, Known> known;
  std::vector<uint64_t> planned;  // keys of those with a plan
  uint32_t stage = kNone;         // the kernel that copies small arrays, which plans need
  bool wants_stage = false;       // a stream would have a plan by now
  bool is_off = false;            // there is no such kernel

  // The current stream: its commands, and the bindings that these name.
  std::vector<uint32_t> words, sizes;
  std::vector<DevicePointer> bound;
  // A hash table from buffers and their parts to bindings; slots with another stamp are free.
  struct Slot {
    uint64_t key;
    uint32_t stamp, number;
  };
  static constexpr uint32_t kSlots = 512;
  std::vector<Slot> slots = std::vector<Slot>(kSlots);
  uint32_t stamp = 0;

  // The number of the binding of a buffer's part, new or known; kNone if there are too many.
  uint32_t number_of(uint64_t key, DevicePointer at, uint32_t bytes);
  uint64_t hash() const;
};

}  // namespace lz
