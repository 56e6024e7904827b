// Streams of commands that come again but for where their arrays lie: an eager loop's. plan.cc runs them as
// graphs from then on.
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
  // A stream, by the hash of its commands with numbers in place of buffers, and of the bytes that each has.
  struct Known {
    uint32_t times = 0;
    uint32_t plan = kNone;
    std::vector<uint32_t> sizes;  // of the plan's bindings
    bool is_refused = false;
    double used = 0;  // the run that it came with last
  };
  std::unordered_map<uint64_t, Known> known;
  std::vector<uint64_t> planned;  // those with a plan
  uint32_t stage = kNone;         // the kernel that copies small arrays; without it nothing is looked for

  // The current stream: its commands, and the bindings that these name.
  std::vector<uint32_t> words, sizes;
  std::vector<DevicePointer> bound;
  // Numbers of bindings by their buffers and parts of these, of the stream of `stamp`.
  struct Slot {
    uint64_t key;
    uint32_t stamp, number;
  };
  static constexpr uint32_t kSlots = 512;
  std::vector<Slot> slots = std::vector<Slot>(kSlots);
  uint32_t stamp = 0;

  // The number of a binding that begins there, of so many bytes if it is in one piece; kNone beyond the most.
  uint32_t number_of(uint64_t key, DevicePointer at, uint32_t bytes);
  uint64_t hash() const;
};

}  // namespace lz
